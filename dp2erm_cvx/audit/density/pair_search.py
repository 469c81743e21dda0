"""The exact-density audit over searched pairs: where a release loses most."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.density.audit import DensityAudit, audit_density, audited_laws
from dp2erm_cvx.audit.density.hockey_stick import sampled_losses
from dp2erm_cvx.audit.density.law import log_ratio
from dp2erm_cvx.audit.density.pair_makers import KindPair, Maker, load_search, save_search
from dp2erm_cvx.audit.density.replay import DENSITY, audited_model, audited_weights
from dp2erm_cvx.audit.pair_file import Columns, SavedPair
from dp2erm_cvx.audit.search import Progress, SearchPlan
from dp2erm_cvx.errors import CertificateError, DeclarationError
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.plan import Plan

#: Pairs that are looked at before one of them is audited; best pairs that are kept and refined.
_SCREENED, _KEPT = 8, 6
#: Steps that start from the same best pairs, whoever takes them.
WAVE = 4
#: Share of the steps that look at new pairs, and outputs that a look at Gaussian noise draws.
_FRESH, _LOOK = 0.4, 60
#: Points that a look at gamma or Laplace noise evaluates, about.
_POINTS = 60
#: Outputs drawn in each audit of Gaussian noise while searching.
_SEARCH_DRAWS = 300


@dataclass(frozen=True, eq=False)
class PairSearch:
    """The pair of neighbors with the largest privacy loss of a search, (X, a, y) each, and its ``audit``.

    ``audited`` pairs were audited and ``screened`` looked at; for ``failed`` of them a solution was not
    certified. ``settings`` repeat the audit. The pair is synthetic, yet the search shows what a release can
    lose. A search without a violation is no proof: the worst pair may be another.
    """

    model: PrivateEstimator
    first: Columns
    second: Columns
    audit: DensityAudit
    settings: dict[str, int]
    audited: int
    screened: int
    failed: int
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def exceeds(self) -> bool:
        """Whether the pair breaks the bound of the theorem, beyond the numerical or sampling error."""
        return self.audit.exceeds

    def save(self, path: str | Path) -> None:
        """Write the pair to ``path``.npz and the finding to ``path``.json, for ``replay_pair``."""
        finding = {"model": audited_model(self.model), "settings": self.settings, "audit": asdict(self.audit)}
        domain, weights = self.model.domain, audited_weights(self.model)
        SavedPair(self.first, self.second, False, domain, weights, DENSITY, finding, self.private).save(path)

    def __str__(self) -> str:
        failed = f", {self.failed} of them without a certified solution" if self.failed else ""
        return f"worst of {self.audited} pairs audited and {self.screened} screened{failed}: {self.audit}"


def search_pairs(
    model: PrivateEstimator,
    n_samples: int,
    n_features: int,
    *,
    search: SearchPlan | None = None,
    starts: int = 16,
    draws: int = 4000,
) -> PairSearch:
    """Look for the neighbors of ``n_samples`` records on which ``model`` loses most, in its own domain.

    Every step screens a few pairs, by the log density ratio where an ascent would start from, and audits the
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
    steps = _Steps(model, plan, Maker(plan.study.universe.domain, n_samples, n_features), search.seed)
    path = None if search.checkpoint is None else Path(search.checkpoint)
    label = json.dumps([audited_model(model), n_samples, n_features, search.seed], default=float)
    if path is not None and path.exists():
        steps.resume(*load_search(path, label))
    clock = search.start()
    # the first step of all is taken however little time there is
    while (left := clock.left(steps.step)) != 0 or steps.step == 0:
        wave = range(steps.step, steps.step + min(WAVE, left or WAVE))
        best = tuple(steps.best)
        tasks = [(step, best, clock.deadline if step else math.inf) for step in wave]
        for met in run_tasks(steps.look, tasks, workers=search.workers):
            steps.add(met)
        if search.progress is not None:
            search.progress(Progress(clock.share(steps.step), steps.step, steps.highest))
        # a wave that was cut short is no place to go on from
        if path is not None and len(wave) == WAVE and time.time() < clock.deadline:
            save_search(path, label, steps.step, steps.counts, steps.best)
    return steps.finish({"seed": search.seed, "starts": starts, "draws": draws})


@dataclass(frozen=True)
class _Step:
    """What one step met: pairs screened and without certified solutions, and the audited one's height."""

    screened: int
    failed: int
    audited: tuple[float, KindPair] | None


class _Steps:
    """Its state is the step, the counts and the best pairs: every step has a generator of its own."""

    def __init__(self, model: PrivateEstimator, plan: Plan, maker: Maker, seed: int) -> None:
        self.model, self.plan, self.maker, self.seed = model, plan, maker, seed
        self.step = 0
        self.counts = np.zeros(2, dtype=np.int64)  # screened, failed
        self.best: list[tuple[float, KindPair]] = []

    def resume(self, step: int, counts: NDArray[np.int64], best: list[tuple[float, KindPair]]) -> None:
        """Go on from a saved state."""
        self.step, self.counts, self.best = step, counts.copy(), best

    def look(self, step: int, best: tuple[tuple[float, KindPair], ...], deadline: float) -> _Step | None:
        """One step: screen, and audit the best. None after the ``deadline``."""
        if time.time() >= deadline:
            return None
        rng = np.random.default_rng([self.seed, step])
        pairs = self._pairs(best, rng)
        heights = [self._screen(pair, rng) for pair in pairs]
        failed = sum(math.isnan(height) for height in heights)
        pair = pairs[int(np.argmax(np.nan_to_num(heights, nan=-math.inf)))]
        try:
            audit = self._audit(pair, self._quick())
        except CertificateError:
            return _Step(len(pairs), failed + 1, None)
        return _Step(len(pairs), failed, (_height(audit), pair))

    def add(self, found: _Step | None) -> None:
        """Count a step, and keep its pair if it is among the best."""
        if found is None:
            return
        self.step += 1
        self.counts += np.array([found.screened, found.failed])
        if found.audited is not None:
            self.best.append(found.audited)
            self.best.sort(key=lambda one: -one[0])
            del self.best[_KEPT:]

    @property
    def highest(self) -> float:
        """The largest loss over what is promised so far, as far as the search can tell."""
        return max((height for height, _ in self.best), default=0.0)

    def finish(self, settings: dict[str, int]) -> PairSearch:
        """Audit the best pairs with the given settings, and the very best as the search did, too."""
        found = [(self._audit(pair, settings), settings, pair) for _, pair in self.best[:3]]
        if not found:
            raise CertificateError(f"none of {self.step} pairs had certified solutions: nothing was audited")
        if found[0][0].hockey_stick is None:
            # with other starts the same pair may have been higher
            quick = self._quick()
            found.append((self._audit(self.best[0][1], quick), quick, self.best[0][1]))
        audit, chosen, pair = max(found, key=lambda one: _height(one[0]))
        first, second = pair.raw(self.model.domain)
        screened, failed = map(int, self.counts)
        return PairSearch(
            self.model, first, second, audit, dict(chosen), self.step, screened, failed, self.seed
        )

    def _quick(self) -> dict[str, int]:
        return {"seed": self.seed, "starts": 1, "draws": _SEARCH_DRAWS}

    def _pairs(self, best: tuple[tuple[float, KindPair], ...], rng: np.random.Generator) -> list[KindPair]:
        if not best or rng.random() < _FRESH:
            return [self.maker.draw(rng) for _ in range(_SCREENED)]
        # better pairs are refined more often
        rank = min(int(rng.geometric(0.5)), len(best)) - 1
        return [self.maker.change(best[rank][1], rng) for _ in range(_SCREENED)]

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
