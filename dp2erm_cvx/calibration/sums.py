"""Sums of whole numbers that records contribute, released together with noise (Theorem 12).

Every law has its factors, and how far one record moves the products; proofs are on the page
"Private effects".
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.calibration.base import Noise, sum_quantile
from dp2erm_cvx.calibration.numbers import LARGEST_INTEGER, IntegerNoise, calibrate_integers
from dp2erm_cvx.checks import one_of, public_size, whole_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

Whole = NDArray[np.int64]

#: A record counts by a multiple of ``2^-SHARE_BITS``, and by one half at most.
SHARE_BITS = 20
#: Scores are rounded to a grid of 2^19 to 2^20 steps on either side of their center, fewer for huge
#: n.
_FINEST = 20
_COARSEST = 15
#: Noise beyond this many of its scales has probability below exp(-60).
_TAIL = 64.0


class SumLaw(enum.StrEnum):
    """Sums that a record adds to: its score is k steps, ``|k| <= K``, perhaps beside a mark.

    Attributes
    ----------
    SCORE
        ``k, k^2``: the second moment costs nothing.
    CONTRASTS
        ``k_1, k_2, (|k_1| + |k_2|)^2``, ``|k_1| + |k_2| <= K``: two means for one, as one of them
        is 0 of a record.
    ARMS
        ``k_1, k_0, (k_1 - k_0)^2, (k_1 + k_0)^2, k_1^2 - k_0^2``; the score of the record's own arm
        is at most K, that of the other arm, a prediction, at most L <= K.
    COUNTED_ARMS
        The same, all 0 where h is, and h in {0, 1}, which costs nothing; scores are at most K, and
        ``|k_1| + |k_0| <= K + L``, as of means of records.
    TREATED
        ``k, a, k^2, (2a - 1) k``, a in {0, 1}.
    OVERLAP
        ``k, h, k^2``, h in [0, 1/2] on its grid, whatever the score has to do with it.
    WITHIN
        The same where ``|k| <= 2 h K``, as with sampling weights.
    WHOLE
        The same where h is 0 or 1/2, and k = 0 where h is.
    GROUPS, WHOLE_GROUPS
        These two in each of many disjoint groups; the noise covers all of them.
    DISJOINT
        ``k, k^2`` in each of many groups, of steps of their own, and one count of a share h in [0,
        1] of the record; sizes of k add up to ``h K`` over the groups, of a record to one of them
        (Theorem 26).
    """

    SCORE = "score"
    CONTRASTS = "contrasts"
    ARMS = "arms"
    COUNTED_ARMS = "counted arms"
    TREATED = "treated"
    OVERLAP = "overlap"
    WITHIN = "within"
    WHOLE = "whole"
    GROUPS = "groups"
    WHOLE_GROUPS = "whole groups"
    DISJOINT = "disjoint"

    @property
    def degrees(self) -> tuple[int, ...]:
        """Power of the step, and of the outcome's unit, that each released mean has."""
        return _ROWS[self].degrees

    @property
    def has_shares(self) -> bool:
        """True if a record counts by a share of its own, up to one half."""
        return _ROWS[self].marks in (("share",), ("whole",))

    @property
    def of_arms(self) -> bool:
        """True if the scores of both arms are summed."""
        return _ROWS[self].marks[:1] == ("arm",)

    @property
    def whole(self) -> bool:
        """True if every share is 0 or 1/2."""
        return _ROWS[self].marks == ("whole",)


class _Row(NamedTuple):
    """A law of sums.

    Attributes
    ----------
    degrees
        Power of the step that each released mean has.
    factors
        Makes, of K, L and whether noise is pure, the whole factors of the sums.
    moved
        Makes, of the same, how far one record moves the products: in l1 if noise is pure, else in
        l2.
    marks
        What a record has beside its scores: its "arm", whether it is "treated", a "share" of at
        most 1/2, one that is "whole", 0 or 1/2, or what it "counts", up to 1.
    scores
        Number of scores of a record.
    groups
        Whether a record is in one of many groups.
    """

    degrees: tuple[int, ...]
    factors: Callable[[int, int, bool], tuple[int, ...]]
    moved: Callable[[int, int, bool], int]
    marks: tuple[str, ...] = ()
    scores: int = 1
    groups: bool = False


def _score_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    return (2 * K, 1) if pure else (2 * K, 3)


def _contrast_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    return (2 * K, 2 * K, 1) if pure else (2 * K, 2 * K, 3)


def _arm_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    if pure:
        return (18 * K, 18 * K, 4, 4, 1)
    of_square = 16 * K // (K + L)
    return (16 * K, 16 * K, of_square, of_square, 8 * K // (K + L))


def _counted_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    """Factors of both arms; that of h is what a record with a score leaves when it falls silent."""
    arms = _arm_factors(K, L, pure)
    moved = _counted_moved(K, L, pure)
    at_corner = (K, L, (K - L) ** 2, (K + L) ** 2, K**2 - L**2)
    products = [factor * x for factor, x in zip(arms, at_corner, strict=True)]
    if pure:
        left = moved - sum(products)
    else:
        left = math.isqrt(moved**2 - sum(product**2 for product in products))
    return (*arms, min(left, arms[0] * K))


def _treated_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    return (14 * K, 4 * K**2, 6, 2 * K) if pure else (8 * K, 4 * K**2, 11, 2 * K)


def _size(square: int, times: int = 1) -> int:
    """Factor of a share: near ``times square``, a multiple of the steps of its grid in one."""
    steps = square >> (SHARE_BITS - 1)
    return (times * steps) << SHARE_BITS


def _overlap_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    return (2 * K, _size(K**2), 1) if pure else (2 * K, _size(K**2, 2), 3)


def _whole_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    if pure:
        return (2 * K, _size(K**2), 1)
    return (2 * K, _size(math.isqrt(3 * K**4)), 3)


def _group_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    return (8 * K, _size(K**2), 1) if pure else (10 * K, _size(K**2, 7), 7)


def _disjoint_factors(K: int, L: int, pure: bool) -> tuple[int, ...]:
    return (2 * K, 1, 3 * K**2) if pure else (2 * K, 2, math.isqrt(8 * K**2) * K)


def _overlap_moved(K: int, L: int, pure: bool) -> int:
    score = 4 * K**2
    share = _overlap_factors(K, L, pure)[1] // 2
    return score + share if pure else _root(score**2 + share**2)


def _within_moved(K: int, L: int, pure: bool) -> int:
    exact = 17 * K**2 // 4 + 1 if pure else _root(17 * K**4)
    rounding = 12 * K
    return min(_overlap_moved(K, L, pure), exact + rounding)


def _root(square: int) -> int:
    """The square root, rounded up."""
    return math.isqrt(square - 1) + 1


def _score_moved(K: int, L: int, pure: bool) -> int:
    return 4 * K**2


def _arms_moved(K: int, L: int, pure: bool) -> int:
    return 2 * (K + L) * (19 * K - L) if pure else 32 * K * (K + L)


def _treated_moved(K: int, L: int, pure: bool) -> int:
    return 32 * K**2 if pure else _root(272 * K**4)


def _group_moved(K: int, L: int, pure: bool) -> int:
    return 20 * K**2


def _disjoint_moved(K: int, L: int, pure: bool) -> int:
    return 6 * K**2 if pure else 4 * K**2


# The l1 distance is the largest over signs of a quadratic form at one point less that at the other,
# each of them in the octagon ``|k_1|, |k_0| <= K, |k_1| + |k_0| <= K + L``. On its edges forms
# reach beyond its corners where 9L < 7K. In l2 nothing does: with x, y the distances of sum and
# difference over K + L,
# ``(x^2 + y^2)/2 + x^2 (2 - x)^2 + y^2 (2 - y)^2 + (x + y - xy)^2 / 4 <= 4``.
# One point less 0 and h = 1 less 0 is convex in either norm, hence largest at the corner (K, L):
# the factor of h is what that leaves.
def _counted_moved(K: int, L: int, pure: bool) -> int:
    if not pure:
        return _arms_moved(K, L, pure)
    beyond_corners = max(7 * K - 9 * L, 0) ** 2 // 16 + 1
    return _arms_moved(K, L, pure) + beyond_corners


# For w = 1 a score moves its sums by 2K d + d (2K - d) <= 4 K^2, d = |k - k'| and |k + k'| <= 2K -
# d. For w = 3 the squares add up to 16 K^4 u^2 (1 + 9 (1 - u)^2), u = d / 2K: at most 16 K^4. With
# sizes u >= v a record that changes its contrast moves them by 2K (u + v) + u^2 - v^2 <= 4 K^2;
# squared, for w = 3, by 4 K^2 (u^2 + v^2) + 9 (u^2 - v^2)^2, convex in the squares and at most 13
# K^4. One that changes its group moves both: its own is at most 10 K^2, or 198 K^4 squared. In
# disjoint sums a record that changes its group moves 2K |k| + k^2 in either, 6 K^2 together;
# squared, for 2, 4 K^2 k^2 + 4 k^4 in either, 16 K^4. One that falls out of all of them moves the
# count by 3 K^2 beside 3 K^2, squared by at most 8 K^4 beside 8 K^4. Of a person in several of
# them, with sizes that add up to S <= q and to T <= r, q >= r the counts in K-ths, they move by 2K
# (S + T) + S^2 + T^2 + 3K (q - r) <= 5 K q + q^2 + r (r - K) <= 6 K^2.
_ROWS: dict[SumLaw, _Row] = {
    SumLaw.SCORE: _Row((1, 2), _score_factors, _score_moved),
    SumLaw.CONTRASTS: _Row((1, 1, 2), _contrast_factors, _score_moved, scores=2),
    SumLaw.ARMS: _Row((1, 1, 2, 2, 2), _arm_factors, _arms_moved, ("arm",), scores=2),
    SumLaw.COUNTED_ARMS: _Row(
        (1, 1, 2, 2, 2, 0), _counted_factors, _counted_moved, ("arm", "counts"), scores=2
    ),
    SumLaw.TREATED: _Row((1, 0, 2, 1), _treated_factors, _treated_moved, ("treated",)),
    SumLaw.OVERLAP: _Row((1, 0, 2), _overlap_factors, _overlap_moved, ("share",)),
    SumLaw.WITHIN: _Row((1, 0, 2), _overlap_factors, _within_moved, ("share",)),
    SumLaw.WHOLE: _Row((1, 0, 2), _whole_factors, _score_moved, ("whole",)),
    SumLaw.GROUPS: _Row((1, 0, 2), _group_factors, _group_moved, ("share",), groups=True),
    SumLaw.WHOLE_GROUPS: _Row((1, 0, 2), _group_factors, _group_moved, ("whole",), groups=True),
    SumLaw.DISJOINT: _Row((1, 2, 0), _disjoint_factors, _disjoint_moved, ("counts",), groups=True),
}


@dataclass(frozen=True, kw_only=True)
class GridSums(IntegerNoise):
    """Sums of whole numbers over the records, each times a whole factor, with noise on each.

    What is inherited is the noise on the released integers.

    Parameters
    ----------
    law
        What is summed.
    step_exponent
        The score of a record, less its public center, is ``2^step_exponent k`` in units of the
        outcome.
    largest
        K, the bound on ``|k|``.
    n_samples
        N, the number of records.
    largest_other
        L, the bound on ``|k|`` of the other arm under the laws of both arms; else 0.
    """

    law: SumLaw
    step_exponent: int
    largest: int
    n_samples: int
    largest_other: int = 0

    @property
    def multipliers(self) -> tuple[int, ...]:
        """Whole factors of the sums."""
        return _ROWS[self.law].factors(self.largest, self.largest_other, self.noise is Noise.GAMMA)

    @property
    def step(self) -> float:
        """Step of the grid, in units of the outcome."""
        return math.ldexp(1.0, self.step_exponent)

    @property
    def bound(self) -> float:
        """B, what the score less its center is clipped to, in units of the outcome."""
        return math.ldexp(float(self.largest), self.step_exponent)

    @property
    def other_bound(self) -> float:
        """G, what the score of the other arm is clipped to, in units of the outcome."""
        return math.ldexp(float(self.largest_other), self.step_exponent)

    @property
    def units(self) -> tuple[float, ...]:
        """Value of one unit of each released integer in the mean over the records."""
        units = []
        for factor, degree in zip(self.multipliers, self.law.degrees, strict=True):
            units.append(self.step**degree / (float(factor) * self.n_samples))
        return tuple(units)

    @property
    def scales(self) -> tuple[float, ...]:
        """Scale of the noise of each mean over the records."""
        return tuple(self.scale * unit for unit in self.units)

    def margin(self, tail: float, *which: int) -> float:
        """Quantile of the summed noise of some means; what integers may add is added.

        Parameters
        ----------
        tail
            Probability that the continuous law exceeds the quantile.
        which
            Places of the means.
        """
        scales = [self.scales[place] for place in which]
        quantile = sum_quantile(self.noise, tail, 0.0, *scales)
        return quantile + self.coupling * sum(self.units[place] for place in which)

    def means(self, released: Sequence[int]) -> tuple[float, ...]:
        """The means over the records that the ``released`` integers stand for."""
        return tuple(number * unit for number, unit in zip(released, self.units, strict=True))

    def totals(self, *columns: ArrayLike) -> tuple[int, ...]:
        """The exact integers before their noise, private; parts of the records have sums that add.

        Scores are rounded to steps and clipped, what is no number counts as 0; shares are clipped
        to [0, 1/2], of disjoint groups to [0, 1], and rounded to their grid, or its ends.

        Parameters
        ----------
        columns
            The score less its public center (n,); of two means and of both arms there are two of
            them, the treated arm first, of disjoint groups one for each of them. The marks of the
            law (n,) follow.

        Raises
        ------
        DeclarationError
            For more than n records, and where lengths differ.
        """
        if self.law is SumLaw.DISJOINT:
            return self._disjoint(columns[:-1], columns[-1])
        if len(columns) != _ROWS[self.law].scores + len(_ROWS[self.law].marks):
            raise DeclarationError(
                f"{len(columns)} columns are not what the sums {self.law.value!r} are of"
            )
        if self.law.of_arms:
            everyone = np.ones(np.shape(columns[0]))
            return self._of_arms(*columns, everyone)
        score = columns[0]
        mark = columns[-1]
        k = self._steps(score, self.largest)
        if self.law is SumLaw.SCORE:
            return self._totals(k, k * k)
        if self.law is SumLaw.CONTRASTS:
            _flags(mark, score)
            other = self._steps(mark, self.largest - np.abs(k))
            return self._totals(k, other, (np.abs(k) + np.abs(other)) ** 2)
        if self.law.has_shares:
            return self._counted(k, mark)
        treated = _flags(mark, score)
        score_of_treated = np.where(treated, k, 0)
        return self._totals(k, treated.astype(np.int64), k * k, 2 * score_of_treated - k)

    def _of_arms(
        self, first: ArrayLike, second: ArrayLike, mark: ArrayLike, counts: ArrayLike, *_: ArrayLike
    ) -> tuple[int, ...]:
        """Sums of both arms; a record counts where ``counts`` is 1."""
        _flags(mark, first)
        K = self.largest
        L = self.largest_other
        treated = np.asarray(mark, dtype=np.float64)
        if self.law is SumLaw.ARMS:
            # its noise is for one score of at most L: a record is in one arm
            treated = np.where(treated >= 0.5, 1.0, 0.0)
        h = np.greater_equal(counts, 0.5).astype(np.int64)
        largest_treated = np.where(treated > 0.0, K, L)
        largest_control = np.where(treated < 1.0, K, L)
        k_1 = h * self._steps(first, largest_treated)
        k_0 = h * self._steps(second, np.minimum(largest_control, K + L - np.abs(k_1)))
        columns = [k_1, k_0, (k_1 - k_0) ** 2, (k_1 + k_0) ** 2, k_1**2 - k_0**2, h]
        return self._totals(*columns[: len(self.multipliers)])

    def _disjoint(self, scores: Sequence[ArrayLike], share: ArrayLike) -> tuple[int, ...]:
        """Sum and squares of every group in turn, then the shares.

        No record leaves its ball: sizes of its scores add up to its share of K.
        """
        of_score, of_square, of_share = self.multipliers
        counted = np.nan_to_num(np.asarray(share, dtype=np.float64))
        room = np.rint(np.clip(counted, 0.0, 1.0) * self.largest).astype(np.int64)
        totals: list[int] = []
        remaining_room = room
        for score in scores:
            if np.shape(score) != room.shape:
                raise DeclarationError(
                    f"share of shape {room.shape}: the score is {np.shape(score)}"
                )
            k = self._steps(score, remaining_room)
            remaining_room = remaining_room - np.abs(k)
            totals.append(of_score * int(k.sum()))
            totals.append(of_square * int((k * k).sum()))
        return (*totals, of_share // self.largest * int(room.sum()))

    def _counted(self, k: Whole, share: ArrayLike) -> tuple[int, ...]:
        """Sums of records that count by a share of at most one half."""
        shares = np.asarray(share, dtype=np.float64)
        if shares.shape != k.shape:
            raise DeclarationError(f"share of shape {shares.shape}: the score is {k.shape}")
        inside = np.clip(np.where(np.isnan(shares), 0.0, shares), 0.0, 0.5)
        if self.law.whole:
            inside = np.where(inside >= 0.25, 0.5, 0.0)
            k = np.where(inside > 0.0, k, 0)
        parts = np.rint(np.ldexp(inside, SHARE_BITS)).astype(np.int64)
        if _ROWS[self.law].groups:
            most = parts * (2 * self.largest) >> SHARE_BITS
            k = np.clip(k, -most, most)
        total, share_total, squares = self._totals(k, parts, k * k)
        return total, share_total >> SHARE_BITS, squares

    def _steps(self, values: ArrayLike, largest: ArrayLike) -> Whole:
        """Scores in whole steps, clipped; what is no number is 0."""
        score = np.asarray(values, dtype=np.float64)
        bound = np.asarray(largest, dtype=np.float64)
        if score.ndim != 1 or len(score) > self.n_samples:
            raise DeclarationError(
                f"score of shape {score.shape}: the noise is for ({self.n_samples},)"
            )
        with np.errstate(all="ignore"):
            steps = np.rint(np.ldexp(score, -self.step_exponent))
        numbers = np.where(np.isnan(steps), 0.0, steps)
        return np.clip(numbers, -bound, bound).astype(np.int64)

    def _totals(self, *columns: Whole) -> tuple[int, ...]:
        """The sums of columns, each times its factor."""
        pairs = zip(self.multipliers, columns, strict=True)
        return tuple(factor * int(column.sum()) for factor, column in pairs)


def calibrate_sums(
    law: SumLaw | str,
    score_bound: float,
    n_samples: int,
    budget: Budget,
    noise: Noise | str = Noise.GAMMA,
    *,
    other_bound: float | None = None,
) -> GridSums:
    """Calibrate the noise of all sums of a law, on the finest grid that fits into 64-bit integers.

    Parameters
    ----------
    law
        What is summed.
    score_bound
        B of the score less its center, in units of the outcome; ``GridSums.bound``, in force, is
        larger by at most ``2^-19`` of it (``2^-14`` beyond 1.3 million records).
    n_samples
        N, at most about 1.4e9 (3e8 for the treated).
    budget
        That of all numbers together; Laplace noise spends no delta.
    noise
        Law of the noise.
    other_bound
        G <= B, the bound of the score of the other arm; for both arms alone.

    Returns
    -------
    GridSums

    Raises
    ------
    DeclarationError
        For an invalid argument.
    CalibrationError
        Where n is too large, epsilon too small, or Gaussian noise has no delta.
    """
    law = one_of("law", law, SumLaw)
    bound = public_size("score_bound", score_bound)
    kind = one_of("noise", noise, Noise).on_numbers
    if law.of_arms is (other_bound is None):
        raise DeclarationError(
            f"other_bound: for both arms alone, and needed there; law = {law.value!r}"
        )
    other = 0.0 if other_bound is None else public_size("other_bound", other_bound)
    if other > bound:
        raise DeclarationError(f"other_bound = {other:g}: must be at most score_bound = {bound:g}")
    n = whole_number("n_samples", n_samples, at_least=2)
    exponent = math.frexp(math.nextafter(bound, 0.0))[1]
    for bits in range(_FINEST, _COARSEST - 1, -1):
        K = math.ceil(math.ldexp(bound, bits - exponent))
        L = math.ceil(math.ldexp(other, bits - exponent))
        moved = _ROWS[law].moved(K, L, kind is Noise.GAMMA)
        sums = GridSums(
            **vars(calibrate_integers(moved, budget, kind)),
            law=law,
            step_exponent=exponent - bits,
            largest=K,
            n_samples=n,
            largest_other=L,
        )
        pairs = zip(sums.multipliers, law.degrees, strict=True)
        largest_product = max(factor * K**degree for factor, degree in pairs)
        if n * largest_product <= LARGEST_INTEGER and _TAIL * sums.scale <= LARGEST_INTEGER:
            return sums
    raise CalibrationError(
        f"n_samples = {n}: the sums of a score or their noise are beyond 64-bit integers"
    )


def _flags(mark: ArrayLike, score: ArrayLike) -> NDArray[np.bool_]:
    """Where the mark is 1; DeclarationError where its shape is not that of the score."""
    if np.shape(mark) != np.shape(score):
        raise DeclarationError(f"treated of shape {np.shape(mark)}: the score is {np.shape(score)}")
    return np.equal(mark, 1)
