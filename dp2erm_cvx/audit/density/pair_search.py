"""The exact-density audit over searched pairs: where a release loses most."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.density.audit import audit_density
from dp2erm_cvx.audit.density.hockey_stick import sample
from dp2erm_cvx.audit.density.law import log_ratio
from dp2erm_cvx.audit.density.laws import laws
from dp2erm_cvx.audit.density.pair_file import describe, load_state, save_pair, save_state
from dp2erm_cvx.audit.density.pair_makers import Maker, Pair, Records
from dp2erm_cvx.audit.density.result import DensityAudit
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.public import public_number, whole_number

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
    """The pair of neighbors with the largest privacy loss found, (X, a, y) each, and its ``audit``.

    ``audited`` pairs were audited and ``screened`` looked at; for ``failed`` of them a solution was not
    certified. ``settings`` repeat the audit. The pair is synthetic, yet the search shows what a release can
    lose. One that found no violation is no proof: the worst pair may be another.
    """

    model: PrivateTwoStageERM
    first: Records
    second: Records
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
        save_pair(path, self.model, self.first, self.second, self.audit, self.settings)

    def __str__(self) -> str:
        failed = f", {self.failed} of them without a certified solution" if self.failed else ""
        return f"worst of {self.audited} pairs audited and {self.screened} screened{failed}: {self.audit}"


def search_pairs(
    model: PrivateTwoStageERM,
    n_samples: int,
    n_features: int,
    *,
    audits: int = 100,
    seconds: float = math.inf,
    seed: int = 0,
    starts: int = 16,
    draws: int = 4000,
    checkpoint: str | Path | None = None,
    workers: int = 1,
) -> PairSearch:
    """Look for the neighbors of ``n_samples`` records on which ``model`` loses most, in its own domain.

    Every step screens a few pairs, by the log density ratio where an ascent would start from, and audits the
    best of them. They come from structured families or are small changes of the best pairs met so far. The
    worst pair is then audited with ``starts`` and ``draws``.

    Parameters
    ----------
    n_features
        Raw covariates, without an intercept.
    audits, seconds
        The search ends after whichever comes first. With ``audits`` alone the same ``seed`` repeats it.
    checkpoint
        A file that holds the search as it goes. If it exists the search goes on from there, to the same
        result as without a break.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the result.

    Raises what :func:`audit_density` raises, except that a pair without a certified solution is only counted;
    CertificateError if every pair was; DataError for a checkpoint of another search.
    """
    audits = whole_number("audits", audits, at_least=1)
    seconds = public_number("seconds", seconds, above=0.0, infinite=True)
    seed = whole_number("seed", seed, at_least=0)
    plan = model.plan(n_samples, n_features)
    maker = Maker(model.domain, n_samples, n_features)
    search = _Search(model, plan, maker, seed)
    path = None if checkpoint is None else Path(checkpoint)
    label = json.dumps([describe(model), n_samples, n_features, seed], default=float)
    if path is not None and path.exists():
        search.resume(*load_state(path, label))
    deadline = time.time() + seconds
    while search.step < audits and (search.step == 0 or time.time() < deadline):
        steps = range(search.step, min(search.step + WAVE, audits))
        best = tuple(search.best)
        tasks = [(step, best, deadline if step else math.inf) for step in steps]
        for found in run_tasks(search.look, tasks, workers=workers):
            search.add(found)
        # a wave that was cut short is no place to go on from
        if path is not None and len(steps) == WAVE and time.time() < deadline:
            save_state(path, label, search.step, search.counts, search.best)
    return search.finish({"seed": seed, "starts": starts, "draws": draws})


@dataclass(frozen=True)
class _Step:
    """What one step met: pairs screened and without certified solutions, and the audited one's height."""

    screened: int
    failed: int
    audited: tuple[float, Pair] | None


class _Search:
    """Its state is the step, the counts and the best pairs: every step has a generator of its own."""

    def __init__(self, model: PrivateTwoStageERM, plan: Plan, maker: Maker, seed: int) -> None:
        self.model, self.plan, self.maker, self.seed = model, plan, maker, seed
        self.step = 0
        self.counts = np.zeros(2, dtype=np.int64)  # screened, failed
        self.best: list[tuple[float, Pair]] = []

    def resume(self, step: int, counts: NDArray[np.int64], best: list[tuple[float, Pair]]) -> None:
        """Go on from a saved state."""
        self.step, self.counts, self.best = step, counts.copy(), best

    def look(self, step: int, best: tuple[tuple[float, Pair], ...], deadline: float) -> _Step | None:
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

    def finish(self, settings: dict[str, int]) -> PairSearch:
        """Audit the best pairs with the given settings, and the very best as it was found, too."""
        found = []
        for _, pair in self.best[:3]:
            found.append((self._audit(pair, settings), settings, pair))
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

    def _pairs(self, best: tuple[tuple[float, Pair], ...], rng: np.random.Generator) -> list[Pair]:
        if not best or rng.random() < _FRESH:
            return [self.maker.draw(rng) for _ in range(_SCREENED)]
        # better pairs are refined more often
        rank = min(int(rng.geometric(0.5)), len(best)) - 1
        return [self.maker.change(best[rank][1], rng) for _ in range(_SCREENED)]

    def _audit(self, pair: Pair, settings: dict[str, int]) -> DensityAudit:
        return audit_density(self.model, *pair.raw(self.model.domain), **settings)  # type: ignore[arg-type]

    def _screen(self, pair: Pair, rng: np.random.Generator) -> float:
        """The largest log ratio where a search would start, or a high one among a few outputs.

        NaN where a solution was not certified.
        """
        try:
            datasets = [self.model.dataset_from(*raw) for raw in pair.raw(self.model.domain)]
            one, other = laws(self.model, self.plan, datasets)
            ways = ((one, other), (other, one))
            if not one.pure:
                return max(float(np.quantile(sample(*way, _LOOK, rng).ratio, 0.95)) for way in ways)
            points = one.starts(other, 1, rng) + other.starts(one, 1, rng)
            points = points[:: 1 + len(points) // _POINTS]
            places = [one.place(u) for u in points]
            ratios = [
                log_ratio(a, b, place) - a.error(place) - b.error(place) for a, b in ways for place in places
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
