"""Theorem 23: the largest weight of a separable scheme and the least mean weight of the others.

The variational inequality at 0 bounds the mean of the pulls ``-c x phi'(x + o)`` of all records
from below. Under a mean of the pulls of the other records of at least kappa, their mean of ``b f``
is least at a corner of the hull of the points (pull, b f) of what a record may be: a linear program
over laws. Norms of the minimizer and margins are cut into cells, whose ends are taken outward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array, largest_bound
from dp2erm_cvx.curves.suprema import Interval, corners
from dp2erm_cvx.stability.arm_curves import ArmCurves, largest_pull_on_cells
from dp2erm_cvx.stability.margin_cells import OUTWARD, ROUNDS, MarginCells, MarginScheme

#: Cells of the norm of the minimizer, how many of them are cut in a round, and into how many parts.
_NORMS = 48
_WORST = 4
_NORM_PARTS = 8
#: Largest weights of a cell of norms whose cells of margins may be cut.
_TOP = 32
#: Parts of the interval of a factor that weights carry as well.
_FACTOR_PARTS = 16


def largest_and_mean(scheme: MarginScheme) -> tuple[float, float]:
    """Bounds of the largest weight, and of the mean of b f over n - 1 records from below.

    Parameters
    ----------
    scheme
        The scheme, whose margins and weights are within floating point.

    Returns
    -------
    tuple
        The largest weight, at most n, and the least mean.
    """
    margins = scheme.cells()
    candidates = _Candidates.on_cells(scheme, margins)
    edges = np.linspace(0.0, scheme.reach, _NORMS + 1).tolist()
    norms = [candidates.at_norms(low, high) for low, high in pairwise(edges)]
    for _ in range(ROUNDS):
        norms.sort(key=lambda cell: -cell.largest)
        worst = norms[:_WORST]
        norms = norms[_WORST:]
        rested_on = np.unique(np.concatenate([cell.margins for cell in worst]))
        margins = margins.cut(rested_on)
        candidates = _Candidates.on_cells(scheme, margins)
        for cell in worst:
            edges = np.linspace(cell.low, cell.high, _NORM_PARTS + 1).tolist()
            norms += [candidates.at_norms(low, high) for low, high in pairwise(edges)]
    largest = largest_bound(*(cell.largest for cell in norms)) * OUTWARD
    least_mean = float(np.min([cell.least_mean for cell in norms])) / OUTWARD
    if math.isnan(least_mean):
        # nothing is known of it, as of a mean that may be 0
        least_mean = 0.0
    return min(float(scheme.n), largest), least_mean


class _MarginsOfArm(NamedTuple):
    """What the margins of a record of one arm may be, a row for every cell.

    Attributes
    ----------
    near
        Least ``|x|``, ``x = <z, v>``, of the cell.
    loose
        Whether x may be out of reach where the margin is not, as the offset varies.
    left, right
        Ends of x.
    slope_left, slope_right
        Ends of phi'.
    pull
        Largest ``-x phi'(x + o)``.
    arm
        Number of the arm.
    cell
        Number of the cell.
    """

    near: Array
    loose: NDArray[np.bool_]
    left: Array
    right: Array
    slope_left: Array
    slope_right: Array
    pull: Array
    arm: NDArray[np.int64]
    cell: NDArray[np.int64]

    @classmethod
    def on_cells(cls, arm: ArmCurves, number: int, cells: MarginCells) -> _MarginsOfArm:
        """Of the arm of this number."""
        of_arm = np.flatnonzero(cells.arm == number)
        first = cells.low[of_arm]
        last = cells.high[of_arm]
        least_offset, largest_offset = arm.offset
        left = first - largest_offset
        right = last - least_offset
        # The pull is linear in the offset at one margin, so that an end is worst.
        at_least = largest_pull_on_cells(
            arm.loss, first - least_offset, last - least_offset, least_offset
        )
        at_largest = largest_pull_on_cells(
            arm.loss, first - largest_offset, last - largest_offset, largest_offset
        )
        return cls(
            near=np.maximum(np.maximum(left, -right), 0.0),
            loose=np.full(len(of_arm), least_offset < largest_offset),
            left=left,
            right=right,
            slope_left=arm.loss.slope(first),
            slope_right=arm.loss.slope(last),
            pull=np.maximum(at_least, at_largest),
            arm=cells.arm[of_arm],
            cell=of_arm,
        )

    def rows(self, factor: Interval, weight: Array) -> _Rows:
        """Rows with factors in an interval and these bounds on b f."""
        count = len(self.near)
        return _Rows(*self, np.full(count, factor[0]), np.full(count, factor[1]), weight)


class _Rows(NamedTuple):
    """What records may be: a row for a cell of margins and a part of the interval of c.

    Attributes
    ----------
    near, loose, left, right, slope_left, slope_right, pull, arm, cell
        As of :class:`_MarginsOfArm`; rows are sorted by ``near``.
    factor_low, factor_high
        Ends of c.
    weight
        Bound on b f: the least of one of the others, the largest of the record itself.
    """

    near: Array
    loose: NDArray[np.bool_]
    left: Array
    right: Array
    slope_left: Array
    slope_right: Array
    pull: Array
    arm: NDArray[np.int64]
    cell: NDArray[np.int64]
    factor_low: Array
    factor_high: Array
    weight: Array

    @classmethod
    def joined(cls, parts: list[_Rows]) -> _Rows:
        """The rows of all parts, sorted."""
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))

    def within(self, norm: float) -> _Rows:
        """Rows that a margin may lie in where ``||v|| <= norm``."""
        count = int(np.searchsorted(self.near, norm, side="right"))
        columns: tuple[Any, ...] = self
        return _Rows(*(column[:count] for column in columns))

    def pulls(self, norm: float) -> Array:
        """Largest ``-c x phi'`` where ``|x| <= norm``."""
        left = np.maximum(self.left, -norm)
        right = np.minimum(self.right, norm)
        products = [
            -left * self.slope_left,
            -left * self.slope_right,
            -right * self.slope_left,
            -right * self.slope_right,
        ]
        within_norm = np.minimum(self.pull, np.max(products, axis=0))
        pull = np.where(self.loose, within_norm, self.pull)
        largest: Array = np.where(pull > 0.0, self.factor_high, self.factor_low) * pull
        return largest


class _NormCell(NamedTuple):
    """Bounds where ``low <= ||v|| <= high``.

    Attributes
    ----------
    largest
        Of the largest weight.
    least_mean
        Of the mean of b f over the other records, from below.
    low, high
        Ends of the norm.
    margins
        Numbers of the cells of margins that the largest weights rest on.
    """

    largest: float
    least_mean: float
    low: float
    high: float
    margins: NDArray[np.int64]


class _Hull(NamedTuple):
    """Corners of the least mean of b f as a function of the mean of the pull, by rising pull.

    Attributes
    ----------
    pull, weight
        Coordinates of the corners.
    rows
        Numbers of the rows that share in each corner, one or two.
    """

    pull: Array
    weight: Array
    rows: NDArray[np.int64]

    def least_mean(self, kappa: Array) -> Array:
        """The least mean (m,) of b f where the mean of the pull is kappa or more."""
        rounding = 1e-15 * np.max(self.weight)
        interpolated = np.interp(kappa, self.pull, self.weight) - rounding
        return np.asarray(np.maximum(interpolated, self.weight[0]))

    def sharing(self, kappa: Array) -> NDArray[np.int64]:
        """Numbers of the rows at the two corners that lie on either side of each kappa."""
        right = np.minimum(np.searchsorted(self.pull, kappa), len(self.pull) - 1)
        left = np.maximum(right - 1, 0)
        return np.asarray(np.append(self.rows[left], self.rows[right]))


@dataclass(frozen=True)
class _Candidates:
    """What the other records and the record itself may be.

    Parameters
    ----------
    scheme
        The scheme.
    others
        Rows of one of the others, with the least b f.
    own
        Rows of the record itself, with the largest b f.
    """

    scheme: MarginScheme
    others: _Rows
    own: _Rows

    @classmethod
    def on_cells(cls, scheme: MarginScheme, cells: MarginCells) -> _Candidates:
        """On cells of margins of all arms."""
        least, largest = scheme.log_weights(cells).weights()
        others = []
        own = []
        for number, arm in enumerate(scheme.arms):
            margins = _MarginsOfArm.on_cells(arm, number, cells)
            for factor, b in _factors_of_others(arm):
                others.append(margins.rows(factor, b * least[margins.cell]))
            for factor, b in _factors_of_itself(arm):
                own.append(margins.rows(factor, b * largest[margins.cell]))
        return cls(scheme, _Rows.joined(others), _Rows.joined(own))

    def at_norms(self, low: float, high: float) -> _NormCell:
        """Largest weight and least mean where ``low <= ||v|| <= high`` (Theorem 23)."""
        n = self.scheme.n
        others = self.others.within(high)
        own = self.own.within(high)
        hull = self._least_means(others, self._pulls(others, high))
        kappa = self._needed_pull(own, low, high)
        # A record that needs a larger pull than the others have is not there.
        (possible,) = np.nonzero(~(kappa > hull.pull[-1]))
        if len(possible) == 0:
            return _NormCell(1.0, math.inf, low, high, own.cell[:0])
        kappa = kappa[possible]
        mean = hull.least_mean(kappa)
        of_itself = own.weight[possible]
        weights = n * of_itself / (of_itself + (n - 1) * mean)
        top = np.argsort(-weights)[:_TOP]
        margins = np.append(others.cell[hull.sharing(kappa[top])], own.cell[possible[top]])
        return _NormCell(float(np.max(weights)), float(np.min(mean)), low, high, margins)

    def _pulls(self, rows: _Rows, norm: float) -> Array:
        """Largest pulls of rows where ``||v|| <= norm``, those of a linear term included."""
        pulls = rows.pulls(norm)
        if self.scheme.beside:
            return pulls + self.scheme.beside * self._other_margin(rows.near, norm)
        return pulls

    def _needed_pull(self, own: _Rows, low: float, high: float) -> Array:
        """Kappa of Theorem 23: the least mean pull of the others, for each row of the record."""
        n = self.scheme.n
        norm = np.maximum(low, own.near)
        # At worst the public terms pull at the largest norm, or hold at the least one.
        public = self.scheme.public * norm
        if self.scheme.public > 0.0:
            public = np.full_like(norm, self.scheme.public * high)
        own_pull = self._pulls(own, high)
        kappa: Array = (n * self.scheme.mu * norm**2 - n * public - own_pull) / (n - 1)
        return kappa

    def _other_margin(self, near: Array, norm: float) -> Array | float:
        """Largest size of the margin of a linear term, in units of its norm."""
        if not self.scheme.by_arm:
            return norm
        # Margins s and t of one g in both arms obey s^2 + t^2 <= ||v||^2
        return np.sqrt(np.maximum(norm * norm - near * near, 0.0))

    def _least_means(self, others: _Rows, pulls: Array) -> _Hull:
        """Corners of the least mean of b f of the others, by the mean of their pull.

        With an arm floor each arm has at least its share pi, and the rest is of either: the hull of
        ``pi S_0 + (1 - pi) S_1`` and ``(1 - pi) S_0 + pi S_1``, S_a the hull of arm a.
        """
        share = self.scheme.least_share
        if len(self.scheme.arms) == 1 or share == 0.0:
            on_hull = corners(pulls, -others.weight)[::-1]
            return _Hull(pulls[on_hull], others.weight[on_hull], on_hull[:, None])
        hulls = []
        for number in range(2):
            rows = np.flatnonzero(others.arm == number)
            on_hull = corners(pulls[rows], -others.weight[rows])[::-1]
            hulls.append(rows[on_hull])
        pairs = pairs_of_hulls(pulls, others.weight, hulls)
        first_share = np.repeat([share, 1.0 - share], len(pairs))
        rows = np.concatenate([pairs, pairs])
        pull = _shared(pulls, rows, first_share)
        weight = _shared(others.weight, rows, first_share)
        on_hull = corners(pull, -weight)[::-1]
        return _Hull(pull[on_hull], weight[on_hull] * (1.0 - 1e-14), rows[on_hull])


def _shared(numbers: Array, rows: NDArray[np.int64], first_share: Array) -> Array:
    """Means (k,) of the numbers of two rows (k, 2), of which the first has a share."""
    second_share = 1.0 - first_share
    mean: Array = first_share * numbers[rows[:, 0]] + second_share * numbers[rows[:, 1]]
    return mean


def pairs_of_hulls(
    pulls: Array, weights: Array, hulls: list[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Corners of the sum of two hulls, whatever their shares are: a row of each, by rising slope.

    Parameters
    ----------
    pulls, weights
        Coordinates of all rows.
    hulls
        Numbers of the rows at the corners of both hulls, by rising pull.

    Returns
    -------
    NDArray
        Numbers (k, 2) of a row of each hull.
    """
    slopes = []
    of_second = []
    for number, rows in enumerate(hulls):
        slopes.append(np.diff(weights[rows]) / np.diff(pulls[rows]))
        of_second.append(np.full(len(rows) - 1, number))
    order = np.argsort(np.concatenate(slopes), kind="stable")
    steps = np.concatenate(of_second)[order]
    second = np.concatenate([[0], np.cumsum(steps)])
    first = np.arange(len(second)) - second
    return np.stack([hulls[0][first], hulls[1][second]], axis=1)


def _factors_of_others(arm: ArmCurves) -> list[tuple[Interval, float]]:
    """Ends of c and the least b of one of the others; a tied factor enters their mean linearly."""
    if arm.tied:
        return [((c, c), c) for c in sorted(set(arm.factor))]
    return [(arm.factor, arm.base[0])]


def _factors_of_itself(arm: ArmCurves) -> list[tuple[Interval, float]]:
    """Ends of c and the largest b of the record itself.

    A tied factor raises its weight and, where its pull is negative, the mean of the others as well:
    the largest weight may lie between the ends, so that the interval is cut into parts.
    """
    if not arm.tied:
        return [(arm.factor, arm.base[1])]
    ends = np.geomspace(*arm.factor, _FACTOR_PARTS + 1)
    ends[[0, -1]] = arm.factor
    return [((low, high), high) for low, high in pairwise(ends.tolist())]
