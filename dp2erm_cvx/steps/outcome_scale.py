"""The scale of an outcome, from how far the outcomes of pairs of records lie apart (Theorem 31)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import calibrate_integers
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.noise import drawn_in_order, perturb_integers
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.execution import Execution, Inputs, StepResult
from dp2erm_cvx.steps.step import Step

#: The name of the step.
SCALE = "scale"
#: Classes of differences: the first is of those below the least edge, which ties are in as well.
CLASSES = 16
#: Most seats that are drawn to be paired: as many say enough, and no pass holds more outcomes.
MOST_SEATS = 2**18
#: Scales that are tried, per factor of 2.
_STEPS = 8
#: Counts do not refute a scale whose sum of squares is larger than the least by so many variances
#: of a count.
_REFUTED = 3.0
#: This share of pairs of a normal outcome lies ``_FAR`` standard deviations of it apart, or more.
_FAR_SHARE = 0.1
#: The 95 % quantile of a standard normal variable, times the root of 2.
_FAR = 1.6449 * math.sqrt(2.0)
#: Standard deviations by which noisy counts of far pairs have to exceed that share.
_SURE = 2.0


@dataclass(frozen=True, kw_only=True)
class OutcomeScale(Step):
    """How many pairs of units have outcomes so far apart, by powers of 2 of the range (Theorem 31).

    All seats are paired at random, those of units that do not count and of persons without records
    included: the pairing is drawn afresh from the source of the noise, and is not released. A pair
    counts where both of its units do. The outcome of a person is the mean over its own records.
    """

    name: str = SCALE

    @property
    def theorem(self) -> str:
        return "Theorem 31 (integers, pairs in secret)"

    @property
    def edges(self) -> Array:
        """Least differences (CLASSES - 1,) of all classes but the first, in outcomes."""
        widest = 2.0 * self.universe.space.outcome_bound
        return np.ldexp(widest, np.arange(1 - CLASSES, 0))

    @property
    def n_seats(self) -> int:
        """Seats that are paired: an even number."""
        return min(self.universe.n_samples, MOST_SEATS) // 2 * 2

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one class, as a share of all pairs."""
        pairs = max(self.n_seats // 2, 1)
        return float(self.calibration.variance / pairs**2)

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """Noise for two counts that move by 1: a replacement takes a pair to another class."""
        return self.planned(universe, calibrate_integers(2, budget, Noise.GAMMA))

    def run(
        self, inputs: Inputs, released: Mapping[str, Array], execution: Execution
    ) -> StepResult:
        """Release the number of pairs (CLASSES,) of every class with its noise, in int64."""
        pairs = self.drawn_pairs(execution.label(f"{self.name} pairs"))
        counts = self.counts(inputs.records, pairs)
        assert self.integers is not None
        seed = execution.label(self.name)
        noisy = perturb_integers(counts.tolist(), self.integers, exact=self.counted, seed=seed)
        return StepResult(np.array(noisy, dtype=np.int64))

    def drawn_pairs(self, seed: int | str | None = None) -> NDArray[np.int64]:
        """Pairs (m, 2) of different seats, neighbors in an order that is drawn uniformly."""
        seats = drawn_in_order(self.universe.n_samples, self.n_seats, seed=seed)
        return seats.reshape(-1, 2)

    def counts(self, records: Records, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the ``pairs`` (m, 2) in every class (CLASSES,), before its noise. Private."""
        seats = np.sort(pairs, axis=None)
        speaks, outcomes = _outcomes(records, seats)
        first, second = np.searchsorted(seats, pairs).T
        both = speaks[first] & speaks[second]
        apart = np.abs(outcomes[first[both]] - outcomes[second[both]])
        places = np.searchsorted(self.edges, apart, side="right")
        return np.bincount(places, minlength=CLASSES)

    def scale(self, released: Array) -> float:
        """The standard deviation of the outcome, from released counts (CLASSES,).

        It is in units of the outcome. Of normal outcomes of scale s the differences of pairs are
        normal of scale sqrt(2) s. The largest s is taken that the counts do not refute, but for
        ties: they say nothing of it. Where a tenth of all pairs lies farther apart than that says,
        s is what normal outcomes would need. It is at most half the outcome bound, which is also
        what counts say that are noise alone.
        """
        counts = np.asarray(released, dtype=np.float64)
        bound = self.universe.space.outcome_bound
        variance = float(self.calibration.variance)
        pairs = self.n_seats // 2
        halvings = np.arange(_STEPS * (CLASSES - 3) + 1)
        tried = 0.5 * bound * 2.0 ** (-halvings / _STEPS)
        missed = _missed(counts, self.edges, tried, pairs)
        allowed = missed <= np.min(missed) + _REFUTED * variance
        likely = float(tried[np.argmax(allowed)])
        return min(max(likely, self._of_far_pairs(counts)), 0.5 * bound)

    def _of_far_pairs(self, counts: Array) -> float:
        """The least scale of normal outcomes of which so many pairs lie as far apart; else 0."""
        noise = math.sqrt(float(self.calibration.variance))
        many = _FAR_SHARE * (self.n_seats // 2)
        least = 0.0
        for place, edge in enumerate(self.edges.tolist(), 1):
            farther = counts[place:]
            if float(np.sum(farther)) > many + _SURE * noise * math.sqrt(len(farther)):
                least = edge / _FAR
        return least


def class_names(edges: Array) -> tuple[str, ...]:
    """Names of the classes of differences, by their ``edges`` (CLASSES - 1,)."""
    texts = [f"{edge:.4g}" for edge in edges.tolist()]
    inner = [f"from {low} to {high}" for low, high in pairwise(texts)]
    return (f"below {texts[0]}", *inner, f"from {texts[-1]}")


def _missed(counts: Array, edges: Array, scales: Array, pairs: int) -> Array:
    """How far counts lie off those of normal outcomes: sums of squares (s,) at every scale.

    The first class does not count. How many of the pairs differ at all is fitted as well.

    Parameters
    ----------
    counts
        Released numbers of pairs (CLASSES,).
    edges
        Least differences (CLASSES - 1,) of all classes but the first.
    scales
        Standard deviations (s,) that are tried.
    pairs
        Number of all pairs.
    """
    ends = np.append(edges, np.inf)
    below = 2.0 * special.ndtr(ends / (math.sqrt(2.0) * scales[:, None])) - 1.0
    shares = np.diff(below, axis=1)
    found = counts[1:]
    differing = shares @ found / np.sum(shares**2, axis=1)
    differing = np.clip(differing, 0.0, float(pairs))
    off = found - differing[:, None] * shares
    return np.asarray(np.sum(off**2, axis=1))


def _outcomes(records: Records, seats: NDArray[np.int64]) -> tuple[NDArray[np.bool_], Array]:
    """Whether the units of increasing ``seats`` (m,) count, and their outcomes (m,), else 0."""
    if records.space.units is None:
        found = records.blocks.map(partial(_of_rows, seats=seats), range(records.n_rows))
        counted, outcomes = zip(*found, strict=True)
        return np.concatenate(counted), np.concatenate(outcomes)
    sums = np.sum(records.by_units(partial(_of_persons, seats=seats)), axis=0)
    speaks = sums[0] > 0.0
    return speaks, np.divide(sums[1], sums[0], where=speaks, out=np.zeros(len(seats)))


def _of_rows(
    block: Records, numbers: range, seats: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], Array]:
    first = np.searchsorted(seats, numbers.start)
    after = np.searchsorted(seats, numbers.stop)
    rows = seats[first:after] - numbers.start
    return block.counts[rows] > 0.0, block.y[rows]


def _of_persons(block: Records, seats: NDArray[np.int64]) -> Array:
    """Sums (2, m) over the records of persons: what they count, and that times their outcomes."""
    counts, totals = block.by_unit(block.counts, block.counts * block.y)
    return np.stack([counts[seats], totals[seats]])
