"""The exact-density audit over searched pairs: where a release loses most, saved and audited once more."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.audit.density import DensityAudit, audit_density, audited_laws, sampled_losses
from dp2erm_cvx.audit.finding import SavedPair, WorstPair
from dp2erm_cvx.audit.laws import log_ratio
from dp2erm_cvx.audit.pairs import KindPair, Maker
from dp2erm_cvx.audit.search import Gain, Searcher, SearchPlan, State, Task, explore
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CertificateError, DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.program import Program
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.verify import public_center

#: Pairs that are looked at before one of them is audited.
_SCREENED = 8
#: Share of the looks at new pairs, and outputs that a look at Gaussian noise draws.
_FRESH, _LOOK = 0.4, 60
#: Points that a look at gamma or Laplace noise evaluates, about.
_POINTS = 60
#: Outputs drawn in each audit of Gaussian noise while searching.
_SEARCH_DRAWS = 300


def search_pairs(
    model: PrivateEstimator,
    n_samples: int,
    n_features: int,
    *,
    search: SearchPlan | None = None,
    starts: int = 16,
    draws: int = 4000,
) -> WorstPair[DensityAudit]:
    """Look for the neighbors of ``n_samples`` records on which ``model`` loses most, in its own domain.

    Every look screens a few pairs, by the log density ratio where an ascent would start from, and audits the
    best of them. They come from structured families or are small changes of the best pairs met so far. The
    worst pair is then audited with ``starts`` and ``draws``.

    Parameters
    ----------
    model
        An estimator of a rule or an effect, with all covariates.
    n_features
        Raw covariates, without an intercept.
    search
        Its evaluations are audited pairs; default: 100.

    Raises what :func:`audit_density` raises, except that a pair without a certified solution is only counted;
    CertificateError if every pair was; DeclarationError for a domain with sampling weights, which are not
    drawn; DataError for a checkpoint of another search.
    """
    search = SearchPlan(evaluations=100) if search is None else search
    plan = model.plan(n_samples, n_features)
    if plan.study.universe.domain.sampling is not None:
        raise DeclarationError(
            "sampling_weights: pairs are drawn without any; audit_density takes a pair that has its own"
        )
    maker = Maker(plan.study.universe.domain, n_samples, n_features)
    releases = _Releases(model, plan, maker, search.seed)
    state = explore(releases, search)
    audit, settings, pair = releases.worst(state, {"seed": search.seed, "starts": starts, "draws": draws})
    first, second = pair.raw(model.domain)
    facts = {"model": audited_model(model), "settings": settings, "audit": asdict(audit)}
    counts = {"audited": state.spent, **{name: int(count) for name, count in state.counts.items()}}
    name, weights = type(model).__name__, audited_weights(model)
    return WorstPair(name, "density", model.domain, first, second, audit, counts, facts, weights)


@dataclass(frozen=True, eq=False)
class _Releases(Searcher):
    """Pairs by the loss of a release over what is promised."""

    model: PrivateEstimator
    plan: Plan
    maker: Maker
    seed: int
    wave = 4

    def look(self, task: Task) -> Gain:
        """Screen a few pairs, and audit the best."""
        rng = np.random.default_rng([self.seed, task.number])
        best = task.best.get("loss", ())
        if not best or rng.random() < _FRESH:
            pairs = [self.maker.draw(rng) for _ in range(_SCREENED)]
        else:  # better pairs are refined more often
            known = best[min(int(rng.geometric(0.5)), len(best)) - 1][1]
            pairs = [self.maker.change(known, rng) for _ in range(_SCREENED)]
        heights = [self._screen(pair, rng) for pair in pairs]
        counts = {"screened": len(pairs), "failed": sum(map(math.isnan, heights))}
        pair = pairs[int(np.argmax(np.nan_to_num(heights, nan=-math.inf)))]
        try:
            audit = self._audit(pair, self._quick)
        except CertificateError:
            return Gain(1, counts={**counts, "failed": counts["failed"] + 1})
        return Gain(1, [({"loss": _height(audit)}, pair)], counts)

    def highest(self, state: State) -> float:
        """The largest loss over what is promised."""
        return float(max((height for height, _ in state.best.get("loss", ())), default=0.0))

    def call(self) -> object:
        """The model, the size of its datasets and the seed."""
        return [audited_model(self.model), self.maker.n, self.maker.k, self.seed]

    def plain(self, pair: KindPair) -> dict[str, Any]:
        """In plain JSON types."""
        return pair.plain()

    def pair_of(self, plain: dict[str, Any]) -> KindPair:
        """From them."""
        return KindPair.of_plain(plain)

    def worst(self, state: State, settings: dict[str, int]) -> tuple[DensityAudit, dict[str, int], KindPair]:
        """Audit the best pairs with the given settings, and the very best as the search did, too."""
        best = [pair for _, pair in state.best.get("loss", ())]
        found = [(self._audit(pair, settings), settings, pair) for pair in best[:3]]
        if not found:
            raise CertificateError(
                f"none of {state.spent} pairs had certified solutions: nothing was audited"
            )
        if found[0][0].hockey_stick is None:
            # with other starts the same pair may have been higher
            found.append((self._audit(best[0], self._quick), self._quick, best[0]))
        return max(found, key=lambda one: _height(one[0]))

    @property
    def _quick(self) -> dict[str, int]:
        return {"seed": self.seed, "starts": 1, "draws": _SEARCH_DRAWS}

    def _audit(self, pair: KindPair, settings: dict[str, int]) -> DensityAudit:
        return audit_density(self.model, *pair.raw(self.model.domain), **settings)  # type: ignore[arg-type]

    def _screen(self, pair: KindPair, rng: np.random.Generator) -> float:
        """The largest log ratio where a search would start, or a high one among a few outputs.

        NaN where a solution was not certified.
        """
        try:
            _, (one, other) = audited_laws(self.plan, pair.raw(self.model.domain))
            ways = ((one, other), (other, one))
            if not one.pure:
                return max(float(np.quantile(sampled_losses(*way, _LOOK, rng).ratio, 0.95)) for way in ways)
            points = one.starts(other, 1, rng) + other.starts(one, 1, rng)
            points = points[:: 1 + len(points) // _POINTS]
            ratios = [
                log_ratio(a, b, met) - a.error(met) - b.error(met)
                for a, b in ways
                for met in map(a.place, points)
            ]
        except CertificateError:
            return math.nan
        return max(ratio for ratio in ratios if not math.isnan(ratio))


def _height(audit: DensityAudit) -> float:
    stick = audit.hockey_stick
    if stick is None:
        return (audit.loss - audit.numerical_error) / audit.epsilon
    # where no output lost more than epsilon, the loss still tells pairs apart
    return stick.estimate / audit.delta + 1e-6 * min(audit.loss / audit.epsilon, 1e3)


#: Parameters of an estimator that do not change the law of what it releases.
_HOW = frozenset({"solver", "seed", "level", "ledger", "dataset"})


def audited_model(model: PrivateEstimator) -> dict[str, Any]:
    """What a density audit depends on, in plain JSON types."""
    facts = model.get_params(deep=False)
    if isinstance(model, PrivateTwoStageERM):
        facts["first_stage"], facts["second_stage"] = (
            model.resolved_first_stage(),
            model.resolved_second_stage(),
        )
    return {name: _plain(value) for name, value in facts.items() if name not in _HOW}


def audited_weights(model: PrivateEstimator) -> dict[str, Any]:
    """The first stage of ``model``, in plain JSON types; weights are 1 where it has none."""
    if isinstance(model, PrivateTwoStageERM):
        return dict(_plain(model.resolved_first_stage()))
    return dict(_plain(registry.build(registry.first_stages(), "uniform")))


def _plain(value: Any) -> Any:
    if isinstance(value, Program):
        return {"name": value.name, "settings": value.settings()}
    if isinstance(value, Domain):
        return value.to_dict()
    if isinstance(value, EffectRelease):
        value = public_center(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def replay_pair(path: str | Path, model: PrivateEstimator) -> tuple[DensityAudit, float | None]:
    """Audit a saved pair once more: the audit, and the loss that was saved with it.

    The settings are those of the saved audit. Another ``solver`` of the model checks the weights that the
    densities rest on. A pair that a stability audit saved is audited with the usual settings, and its loss is
    None. Raises DataError where the files are missing or damaged, DeclarationError where ``model`` is not the
    one they were saved for.
    """
    pair = SavedPair.load(path)
    mine: dict[str, Any] = {"first_stage": audited_weights(model), "domain": model.domain.to_dict()}
    theirs: dict[str, Any] = {"first_stage": pair.first_stage, "domain": pair.domain.to_dict()}
    settings, loss = {}, None
    if pair.audit == "density":
        try:
            theirs, settings = dict(pair.finding["model"]), dict(pair.finding["settings"])
            loss = float(pair.finding["audit"]["loss"])
        except (KeyError, TypeError, ValueError) as wrong:
            raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
        mine = audited_model(model)
    for name, value in json.loads(json.dumps(mine, default=float)).items():
        if json.loads(json.dumps(theirs.get(name), default=float)) != value:
            raise DeclarationError(f"{path}: was saved for another model: {name} differs")
    return audit_density(model, *pair.raw(), **settings), loss
