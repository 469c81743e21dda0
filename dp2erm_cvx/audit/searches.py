"""Searches for the pair of neighbors on which a release loses most, and audits of a pair that one saved.

Each look draws a pair of a structured family or changes one of the best a little, and judges it: by its exact
density, by runs, or by exact losses of known noise. The worst pair is audited, and saved in files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.audit.additive import AdditiveAudit, Staged, audit_additive, walk
from dp2erm_cvx.audit.blackbox import Attack, BlackBoxAudit, Choice, audit_blackbox, bound_of
from dp2erm_cvx.audit.density import DensityAudit, audit_density, audited_laws, sampled_losses
from dp2erm_cvx.audit.finding import Columns, Declared, SavedPair, WorstPair
from dp2erm_cvx.audit.pairs import KindPair, by_groups, next_pair, steepest_pair
from dp2erm_cvx.audit.release_laws import log_ratio
from dp2erm_cvx.audit.runs import Runner, run_all, scores
from dp2erm_cvx.audit.search import Gain, Search, SearchPlan, State, Task, explore
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CertificateError, DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.program import Program
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.verify import public_center
from dp2erm_cvx.universe import Universe

#: Pairs that are looked at before one is audited, and the share of looks at new ones.
_SCREENED, _FRESH = 8, 0.4
#: Points or outputs that a look at a pair takes; outputs of an audit while searching.
_LOOK, _SEARCH_DRAWS = 60, 300


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
    releases = _Releases(model, plan, search.seed)
    state = explore(
        Search(
            releases.look,
            highest=lambda state: float(max((high for high, _ in state.best.get("loss", ())), default=0.0)),
            wave=4,
            call=[_audited_model(model), n_samples, n_features, search.seed],
            read=KindPair.of_plain,
        ),
        search,
    )
    audit, settings, pair = releases.worst(state, {"seed": search.seed, "starts": starts, "draws": draws})
    first, second = pair.raw(model.domain)
    facts = {"model": _audited_model(model), "settings": settings, "audit": asdict(audit)}
    counts = {"audited": state.spent, **{name: int(count) for name, count in state.counts.items()}}
    name, weights = type(model).__name__, _audited_weights(model)
    return WorstPair(name, "density", model.domain, first, second, audit, counts, facts, weights)


@dataclass(frozen=True, eq=False)
class _Releases:
    """Pairs by the loss of a release over what is promised."""

    model: PrivateEstimator
    plan: Plan
    seed: int

    def look(self, task: Task) -> Gain:
        """Screen a few pairs, new ones or changes of one of the best, and audit the highest."""
        rng = np.random.default_rng([self.seed, task.number])
        known = None if rng.random() < _FRESH else task.elite("loss", rng)
        pairs = [next_pair(self.plan.study.universe, known, rng) for _ in range(_SCREENED)]
        heights = [self._screen(pair, rng) for pair in pairs]
        counts = {"screened": len(pairs), "failed": sum(map(math.isnan, heights))}
        pair = pairs[int(np.argmax(np.nan_to_num(heights, nan=-math.inf)))]
        try:
            audit = self._audit(pair, self._quick)
        except CertificateError:
            return Gain(1, counts={**counts, "failed": counts["failed"] + 1})
        return Gain(1, [({"loss": _height(audit)}, pair)], counts)

    def worst(self, state: State, settings: dict[str, int]) -> tuple[DensityAudit, dict[str, int], KindPair]:
        """Audit the best pairs with the given settings, and the very best as the search did, too."""
        best = [pair for _, pair in state.best.get("loss", ())]
        audits = [(self._audit(pair, settings), settings, pair) for pair in best[:3]]
        if not audits:
            raise CertificateError(
                f"none of {state.spent} pairs had certified solutions: nothing was audited"
            )
        if audits[0][0].hockey_stick is None:
            # with other starts the same pair may have been higher
            audits.append((self._audit(best[0], self._quick), self._quick, best[0]))
        return max(audits, key=lambda item: _height(item[0]))

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
                return max(
                    float(np.quantile([p.ratio for p in sampled_losses(*way, _LOOK, rng)], 0.95))
                    for way in ways
                )
            points = one.starts(other, 1, rng) + other.starts(one, 1, rng)
            points = points[:: 1 + len(points) // _LOOK]
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


def _audited_model(model: PrivateEstimator) -> dict[str, Any]:
    """What a density audit depends on, in plain JSON types."""
    facts = model.get_params(deep=False)
    if isinstance(model, PrivateTwoStageERM):
        facts["first_stage"], facts["second_stage"] = (
            model.resolved_first_stage(),
            model.resolved_second_stage(),
        )
    return {name: _plain(value) for name, value in facts.items() if name not in _HOW}


def _audited_weights(model: PrivateEstimator) -> dict[str, Any]:
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
    mine: dict[str, Any] = {"first_stage": _audited_weights(model), "domain": model.domain.to_dict()}
    theirs: dict[str, Any] = {"first_stage": pair.first_stage, "domain": pair.domain.to_dict()}
    settings, loss = {}, None
    if pair.audit == "density":
        try:
            theirs, settings = dict(pair.finding["model"]), dict(pair.finding["settings"])
            loss = float(pair.finding["audit"]["loss"])
        except (KeyError, TypeError, ValueError) as wrong:
            raise DataError(f"{path}: not a saved pair ({type(wrong).__name__})") from None
        mine = _audited_model(model)
    for name, value in json.loads(json.dumps(mine, default=float)).items():
        if json.loads(json.dumps(theirs.get(name), default=float)) != value:
            raise DeclarationError(f"{path}: was saved for another model: {name} differs")
    return audit_density(model, *pair.raw(), **settings), loss


#: Runs on each dataset of a pair that is screened, and of one that is looked at again.
_SHORT, _LONG = 40, 200
#: Shares of the looks that change one of the best pairs, and that go along a path.
_CHANGED, _PATHS = 0.3, 0.2
#: Risk of the bounds of a few runs: pairs are only put into an order by them.
_RISK = 0.25


def search_blackbox(
    mechanism: Callable[..., Any],
    universe: Universe,
    declared: Declared,
    *,
    attack: Attack | None = None,
    search: SearchPlan | None = None,
) -> WorstPair[BlackBoxAudit]:
    """Look for neighbors on which runs of ``mechanism`` differ most, and audit the worst of them.

    A few runs on each of two datasets put pairs into an order. Some are new ones of structured families:
    clusters, ends, antipodes, nearly empty arms, one record far from all others. Others are small changes of
    the best met so far, and the steepest places on paths between datasets far apart. The best are looked at
    with more runs, and one is audited by runs that had no part in the choice: its bound is right with its
    stated confidence however the pair was found.

    Parameters
    ----------
    mechanism
        ``mechanism((X, a, y))``, or ``mechanism((X, a, y), rng)`` where the attack says so: X (n, k) and y
        (n,) in the units of the data, a (n,) of 0 and 1. What it returns is as for :func:`audit_blackbox`.
    universe
        The datasets that the guarantee is declared for; its domain says which of them are neighbors.
    declared
        The guarantee, as epsilon with delta, or as mu.
    attack
        How the worst pair is audited; default: ``Attack()``.
    search
        Its evaluations are screened pairs; default: 60. Its workers are those of the attack.

    Raises what :func:`audit_blackbox` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search = SearchPlan(evaluations=60) if search is None else search
    attack = Attack() if attack is None else attack
    screening = _Screening(mechanism, universe, attack, declared, search.seed)
    state = explore(Search(screening.look), search)
    first, second = screening.worst(state)
    audit = audit_blackbox(mechanism, first, second, **asdict(declared), attack=attack)
    facts = {
        "violated": audit.exceeds,
        "attack": {name: getattr(attack, name) for name in ("runs", "confidence", "events", "takes_rng")},
        "audit": asdict(audit),
        "search_seed": search.seed,
    }
    return _worst_pair("blackbox", screening, (first, second), audit, facts, state)


@dataclass(frozen=True, eq=False)
class _Screening:
    """Pairs in the order of how far a few runs on both sides are apart."""

    mechanism: Callable[..., Any]
    universe: Universe
    attack: Attack
    declared: Declared
    seed: int

    def look(self, task: Task) -> Gain:
        """Meet a new pair, a change of one of the best, or where a path is steepest."""
        rng = np.random.default_rng([self.seed, task.spent])
        chance, looks = rng.random(), 0
        known = task.elite("distance", rng) if chance < _CHANGED else None
        pair = next_pair(self.universe, known, rng)
        if chance > 1 - _PATHS:
            steep, looks = steepest_pair(self.universe, pair, lambda *p: self._distance(p, _SHORT, rng), rng)
            pair = pair if steep is None else steep
        height = self._distance(pair.raw(self.universe.domain), _SHORT, rng)
        return Gain(looks + 1, [({"distance": height}, pair)])

    def worst(self, state: State) -> tuple[Columns, Columns]:
        """The best of those kept, by more runs: the highest of many short looks is partly luck."""
        kept, domain = state.best["distance"], self.universe.domain
        pairs: list[tuple[Columns, Columns]] = [pair.raw(domain) for _, pair in kept]
        heights = [
            self._distance(pair, _LONG, np.random.default_rng([self.seed, rank, 1]))
            for rank, pair in enumerate(pairs)
        ]
        return pairs[int(np.argmax(heights))]

    def _distance(self, datasets: tuple[Columns, Columns], runs: int, rng: np.random.Generator) -> float:
        seed = int(rng.integers(2**53))
        runner = Runner(self.mechanism, datasets, self.attack.takes_rng, seed, self.attack.statistics)
        one, other = run_all(runner, runs, self.attack.workers)
        choice = Choice(one, other, bound_of(self.declared, runs, _RISK))
        choice.offer_values()
        gap = 0.0
        # learned scores would separate the very runs that they learned from
        for score in scores(one, other, ("tails",)):
            choice.offer_tails(score)
            gap = max(gap, _separation(score(one), score(other)))
        # bounds of so few runs are 0 for small shifts, which ranks see, and ranks miss what is rare
        return choice.height + gap


def _separation(one: Array, other: Array) -> float:
    """Distance of two samples by ranks, and by medians where the ranks are apart; 0 without values."""
    one, other = np.sort(one[~np.isnan(one)]), np.sort(other[~np.isnan(other)])
    if not (one.size and other.size):
        return 0.0
    below = np.searchsorted(other, one, side="left") + np.searchsorted(other, one, side="right")
    ranks = abs(below.mean() / len(other) - 1.0)
    spread = max(float(np.subtract(*np.quantile(part, [0.75, 0.25]))) for part in (one, other))
    gap = abs(float(np.median(one) - np.median(other)))
    return float(2 * ranks + (np.log1p(min(gap / spread, 1e9)) if spread > 0 else 10.0 * (gap > 0)))


def replay_blackbox(
    path: str | Path, mechanism: Callable[..., Any], *, attack: Attack | None = None
) -> BlackBoxAudit:
    """Audit ``mechanism`` on a pair that a search saved, by new runs that choose an event of their own.

    ``attack`` overrides the saved one. Raises DataError for files without a pair of a black-box audit, and
    what :func:`audit_blackbox` raises.
    """
    pair = SavedPair.load(path, "blackbox")
    try:
        saved, known = Attack(**pair.finding["attack"]), pair.finding["audit"]
        declared = {"epsilon": known["epsilon"], "delta": known["delta"], "mu": known.get("mu")}
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of a black-box audit ({wrong})") from None
    return audit_blackbox(mechanism, *pair.raw(), attack=saved if attack is None else attack, **declared)


#: Share of the looks that draw a new pair.
_NEW = 0.35


def search_additive(
    mechanism: Staged,
    universe: Universe,
    declared: Declared,
    *,
    search: SearchPlan | None = None,
) -> WorstPair[AdditiveAudit]:
    """Look for the neighbors on which a mechanism of known noise loses most.

    Pairs are of the families of every audit, further ones in which whole groups of a split are alike, and
    small changes of the best met so far. Each is judged by its exact loss (:func:`audit_additive`), on
    splits that are part of the search.

    The dataset of ``mechanism`` is ``(X, a, y)`` in the units of the data: X (n, k), a (n,) of 0 and 1, y
    (n,). ``universe`` holds the datasets that the guarantee is declared for; its domain says which of them
    are neighbors. The evaluations of ``search`` are pairs, in one process and without a checkpoint; default:
    3,000. Raises what :func:`audit_additive` raises, and DeclarationError where an arm floor leaves no pair.
    """
    search = SearchPlan(evaluations=3000) if search is None else search
    walks = _Walks(mechanism, universe, declared, search.seed)
    kept = Search(walks.look, highest=lambda state: float(state.best["loss"][0][0][0]), keep=8)
    state = explore(kept, search)
    worst: _Walked = state.best["loss"][0][1]
    pair, facts = worst.pair.raw(universe.domain), {"audit": worst.audit.to_dict()}
    return _worst_pair("additive", walks, pair, worst.audit, facts, state)


@dataclass(frozen=True, eq=False)
class _Walked:
    """A pair, its audit, and the groups of rows."""

    pair: KindPair
    audit: AdditiveAudit
    groups: list[list[np.ndarray]]


@dataclass(frozen=True, eq=False)
class _Walks:
    """Pairs by the loss of a walk; where one is infinite, or 0, by movement."""

    mechanism: Staged
    universe: Universe
    declared: Declared
    seed: int

    def look(self, task: Task) -> Gain:
        """A new pair, or a change of one of the best, often with its splits and released values."""
        rng = np.random.default_rng([self.seed, task.spent])
        seed, known, fresh = int(rng.integers(2**31)), task.elite("loss", rng), rng.random() < _NEW
        pair = next_pair(self.universe, None if known is None or fresh else known.pair, rng)
        if known is not None and rng.random() < (0.7 if fresh else 0.8):
            seed = known.audit.seed
            if known.groups and rng.random() < (1.0 if fresh else 0.2):
                # kinds of records by the groups that a walk drew
                grouped = by_groups(pair, known.groups[int(rng.integers(len(known.groups)))], rng)
                pair = grouped if grouped.admissible(self.universe.domain) else pair
        audit, groups = walk(self.mechanism, pair.raw(self.universe.domain), self.declared, seed)
        height = audit.found, sum(stage.loss for stage in audit.losses)
        return Gain(1, [({"loss": height}, _Walked(pair, audit, groups))])


def replay_additive(path: str | Path, mechanism: Staged, declared: Declared | None = None) -> AdditiveAudit:
    """Audit ``mechanism`` on a pair that a search saved, with the same splits and released values.

    ``declared`` is that of the file unless it is given.
    Raises DataError for files without a pair of this audit, and what :func:`audit_additive` raises.
    """
    pair = SavedPair.load(path, "additive")
    try:
        finding: dict[str, Any] = pair.finding["audit"]
        declared = Declared(**finding["declared"]) if declared is None else declared
        seed = int(finding["seed"])
    except (KeyError, TypeError) as wrong:
        raise DataError(f"{path}: no finding of an audit of known noise ({wrong})") from None
    return audit_additive(mechanism, *pair.raw(), declared, seed=seed)


def _worst_pair(
    kind: str,
    searched: _Screening | _Walks,
    pair: tuple[Columns, Columns],
    audit: Any,
    facts: dict[str, Any],
    state: State,
) -> WorstPair[Any]:
    name = str(getattr(searched.mechanism, "__name__", type(searched.mechanism).__name__))
    counts, facts = {"screened": state.spent}, {"mechanism": name, **facts}
    return WorstPair(name, kind, searched.universe.domain, *pair, audit, counts, facts)
