"""Proved distances to the exact weights, for many neighbors of one dataset (Theorems 1 and 2).

The page is ``docs/theory/weights_certificate.md``. Bounds that one number serves all neighbors with (of rows,
of the response) are the largest of the neighbors that are solved together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.weighting.certificate import OUTWARD, UNDERFLOW, response_of_means
from dp2erm_cvx.weighting.inverse_slope import UNIT_ROUNDOFF
from dp2erm_cvx.weighting.neighboring_data import OUTSIDE, NeighboringData, Numbers, ReplacedRecords

#: Part of n by which sums may be off where a claim is made together with others.
_SETTLED = 1e-6
#: Times that the largest weight, and with it the response, is bounded anew by the claim before.
_ROUNDS = 2


@dataclass(frozen=True)
class NeighborPoints:
    """Points of the dual of m neighbors, with the weights that were computed from them.

    Parameters
    ----------
    imbalance
        Imbalances s (m, K).
    prices
        Computed slopes of the penalties at s (m, K).
    multipliers
        Multipliers (m, B).
    argument
        Computed arguments of the inverse slopes (m, n).
    weights
        Weights there (m, n).
    """

    imbalance: Array
    prices: Array
    multipliers: Array
    argument: Array
    weights: Array


class NeighborClaims:
    """Certificates of neighbors of one dataset.

    Parameters
    ----------
    neighboring
        The dataset.
    """

    def __init__(self, neighboring: NeighboringData) -> None:
        self.neighboring = neighboring
        data = neighboring.data
        smooth = np.isfinite(data.smoothness)
        self.scale: Array = np.sqrt(np.where(smooth, data.smoothness, 0.0))
        low, cap = neighboring.boxes
        self.free = cap > low
        self.middles = [self._middle(members) for members in neighboring.members]
        self.row = math.sqrt(float(np.max(self._squares(data.rows)[self.free], initial=0.0)))
        self.distance = 0.0
        for number, members in enumerate(neighboring.members):
            members = members[self.free[members]]
            apart = self._distance(data.rows[members], self.middles[number])
            self.distance = max(self.distance, float(np.max(apart, initial=0.0)))
        self.kink_sizes = [
            float(np.max(_kink_sizes(one.by_norm, data.rows[self.free][:, one.columns]), initial=0.0))
            for one in data.priced
        ]

    def claims(self, points: NeighborPoints, part: ReplacedRecords) -> Array:
        """Bounds (m,) of ``|weights - exact weights|_1``; infinite where nothing is proved.

        Parameters
        ----------
        points
            Points of the dual of the neighbors.
        part
            Their replaced records.
        """
        neighboring = self.neighboring
        weights = points.weights
        n = neighboring.n
        error = self._price_errors(points, part)
        with np.errstate(all="ignore"):
            flat = neighboring.curve(part).radii(weights.ravel(), points.argument.ravel(), error.ravel())
        radii = flat.reshape(weights.shape)
        rounding = np.sum(radii, axis=1) * (1.0 + 4.0 * n * UNIT_ROUNDOFF) + n * UNDERFLOW
        off = self._sums_off(weights, radii, part)
        total_off = np.sum(off, axis=1)
        missed = self._missed(points, part)
        row, diameter = self._row_sizes(part)
        smooth = np.linalg.norm(self.scale * missed, axis=1) * OUTWARD + row * (rounding + total_off)
        kinks = self._kinks(missed, part, rounding + total_off)
        trivial = (np.sum(weights, axis=1) + n) * (1.0 + 4.0 * n * UNIT_ROUNDOFF)
        claims = np.full(len(part), np.inf)
        settled = part.feasible & (total_off <= _SETTLED * n) & np.isfinite(trivial)
        if not np.any(settled):
            return claims
        chosen = part.take(settled)
        found = trivial[settled]
        largest_weight = math.inf
        for _ in range(_ROUNDS):
            response = self._response(weights[settled], chosen, total_off[settled], largest_weight)
            moved = _moved(off[settled], response, (smooth[settled], kinks[settled]), diameter[settled])
            new = rounding[settled] + moved
            found = np.where(new < found, new, found)
            largest_weight = float(np.max(np.max(weights[settled], axis=1) + found))
        claims[settled] = found
        return claims

    def estimates(self, missed: Array, off: Array, response: float) -> Array:
        """Claims (m,) without rounding, by which steps are ended; nothing is proved by them.

        Parameters
        ----------
        missed
            What is missed of imbalances (m, K).
        off
            What sums of blocks (m, B) are off.
        response
            The sum of the responses of all records.
        """
        sums = np.sum(np.abs(off), axis=1)
        smooth = np.linalg.norm(self.scale * missed, axis=1) + self.row * sums
        kinks = np.zeros(len(missed))
        for one in self.neighboring.data.priced:
            if one.penalty.kinked:
                size = _kink_sizes(one.by_norm, np.abs(missed[:, one.columns]))
                kinks += 2.0 * one.penalty.price * size
        return np.asarray(sums + np.sqrt(response * (smooth * smooth / 4.0 + kinks)))

    def _price_errors(self, points: NeighborPoints, part: ReplacedRecords) -> Array:
        """Bounds (m, n) of the distance of computed from exact arguments of the inverse slopes."""
        neighboring = self.neighboring
        data = neighboring.data
        places = np.arange(len(part)), part.index
        units = 2.0 * (data.rows.shape[1] + 8.0) * UNIT_ROUNDOFF
        prices = np.abs(points.prices)
        error = prices @ neighboring.sizes.T
        error += np.abs(data.linear)
        own = np.sum(prices * np.abs(part.rows), axis=1) + np.abs(part.linear)
        error[places] = own
        error += neighboring.levels(np.abs(points.multipliers), part)
        error *= units
        error += UNDERFLOW
        for one in data.priced:
            if not one.by_norm:
                continue
            slack = one.price_slack(points.imbalance[:, one.columns]) * UNIT_ROUNDOFF
            shared = np.sqrt(np.sum(np.square(data.rows[:, one.columns]), axis=1))
            more = slack[:, None] * shared
            more[places] = slack * np.sqrt(np.sum(np.square(part.rows[:, one.columns]), axis=1))
            error += more
        return np.asarray(error)

    def _sums_off(self, weights: Array, radii: Array, part: ReplacedRecords) -> Array:
        """Bounds (m, B) of the distance of the sums of exact weights at a point to those of the blocks."""
        neighboring = self.neighboring
        summed = neighboring.sums(weights, part)
        wide = neighboring.sums(radii, part) * (1.0 + 4.0 * neighboring.n * UNIT_ROUNDOFF)
        rounding = (neighboring.summed_units + 2.0) * UNIT_ROUNDOFF * (summed + part.totals)
        return np.asarray((np.abs(summed - part.totals) + rounding + wide) * OUTWARD)

    def _missed(self, points: NeighborPoints, part: ReplacedRecords) -> Array:
        """Bounds (m, K) of what is missed of imbalances."""
        reached, sizes = self.neighboring.reached(points.weights, part)
        missed = np.abs(points.imbalance - reached)
        missed += (self.neighboring.reached_units + 2.0) * UNIT_ROUNDOFF * sizes + part.target_errors
        stated = np.abs(points.imbalance) + np.abs(part.targets)
        return np.asarray(missed + 4.0 * UNIT_ROUNDOFF * stated + UNDERFLOW)

    def _kinks(self, missed: Array, part: ReplacedRecords, moved: Array) -> Array:
        """What is missed (m,) of imbalances with kinks, each times the diameter of its prices."""
        total = np.zeros(len(part))
        for place, one in enumerate(self.neighboring.data.priced):
            if not one.penalty.kinked:
                continue
            width = 2.0 * one.penalty.price
            own = _kink_sizes(one.by_norm, part.rows[:, one.columns])
            size = np.maximum(own, self.kink_sizes[place])
            total += width * (_kink_sizes(one.by_norm, missed[:, one.columns]) + size * moved)
        return np.asarray(total * OUTWARD * OUTWARD)

    def _row_sizes(self, part: ReplacedRecords) -> tuple[Array, Array]:
        """Bounds (m,) of the norm of rows whose weight is free, and of the distance of two in a block."""
        places = np.arange(len(part)), part.index
        own_free = part.cap[places] > part.low[places]
        own = np.where(own_free, np.sqrt(self._squares(part.rows)), 0.0)
        apart = np.zeros(len(part))
        for number, middle in enumerate(self.middles):
            inside = own_free & (part.block == number)
            apart[inside] = self._distance(part.rows[inside], middle)
        row = np.maximum(own, self.row) * OUTWARD
        return row, 2.0 * np.maximum(apart, self.distance) * OUTWARD

    def _squares(self, rows: Array) -> Array:
        return np.asarray(np.sum(np.square(rows * self.scale), axis=1))

    def _middle(self, members: Numbers) -> Array:
        """A point (K,) that distances of rows in a block are measured from; any one will do."""
        if not len(members):
            return np.zeros(len(self.scale))
        return np.asarray(np.mean(self.neighboring.rows[members] * self.scale, axis=0))

    def _distance(self, rows: Array, middle: Array) -> Array:
        """Bounds of the distances of rows to a point, with the rounding of the rows."""
        scaled = rows * self.scale
        slack = 8.0 * UNIT_ROUNDOFF * np.sqrt(np.sum(np.square(scaled), axis=1))
        return np.asarray(np.sqrt(np.sum(np.square(scaled - middle), axis=1)) + slack)

    def _response(
        self, weights: Array, part: ReplacedRecords, total_off: Array, largest_weight: float
    ) -> float:
        """Bound of the sum of the responses of all records, for all of these neighbors.

        The concave envelope rises with the box and its largest value with the interval of means, so that the
        hull of the boxes and of the means of all neighbors serves every one of them.
        """
        neighboring = self.neighboring
        n = neighboring.n
        units = 4.0 * n * UNIT_ROUNDOFF
        free = part.cap > part.low
        base = part.base if part.base.size else np.ones((1, 1))
        counts = np.where(free, base, 0.0)
        mass = np.sum(counts, axis=1)
        if not np.any(free):
            return 0.0
        fixed = np.zeros(len(part))
        if not np.all(free):
            summed = np.tile(neighboring.block != OUTSIDE, (len(part), 1))
            summed[np.arange(len(part)), part.index] = part.block != OUTSIDE
            fixed = np.sum(np.where(~free & summed, weights, 0.0), axis=1)
        totals = np.sum(part.totals, axis=1)
        total = totals - fixed
        low = float(np.min(np.where(free, part.low / base, np.inf))) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        # Neither an exact weight nor one at the point exceeds the sum of its block.
        largest_sum = float(np.max(np.max(part.totals, axis=1) + total_off))
        caps = np.minimum(part.cap, min(largest_sum, largest_weight))
        high = float(np.max(np.where(free, caps / base, -np.inf))) * (1.0 + 4.0 * UNIT_ROUNDOFF)
        slack = total_off / 2.0 + units * (np.abs(total) + fixed + totals)
        some = mass > 0.0
        first = float(np.min((total - slack)[some] / mass[some])) * (1.0 - units)
        last = float(np.max((total + slack)[some] / mass[some])) * (1.0 + units)
        largest_mass = float(np.max(mass)) * (1.0 + units)
        response = response_of_means(neighboring.form.dispersion, (low, high), (first, last))
        return largest_mass * response * OUTWARD


def _kink_sizes(by_norm: bool, numbers: Array) -> Array:
    """The norm (m,) of rows (m, K) that is dual to the norm of the prices of a kink."""
    if by_norm:
        return np.asarray(np.linalg.norm(numbers, axis=1))
    return np.asarray(np.sum(np.abs(numbers), axis=1))


def _moved(off: Array, response: float, missed: tuple[Array, Array], diameter: Array) -> Array:
    """What sums that are off (m, B) and imbalances that are missed move the weights by (m,)."""
    smooth, kinks = missed
    with np.errstate(invalid="ignore"):
        largest = np.minimum(1.0, response * diameter * diameter / 4.0)
        spread = response * largest / (1.0 + largest) ** 2 * smooth * smooth
        at_kinks = response * (smooth * smooth / 4.0 + kinks)
    spread = np.where(kinks > 0.0, at_kinks, spread)
    spread = np.where(np.isnan(spread), np.inf, spread)
    least = np.min(off, axis=1)
    if off.shape[1] == 1:
        return np.asarray(np.sqrt(least * least + spread) * OUTWARD)
    # Of two blocks, the one whose sum is less off takes all of the imbalance in the worst case.
    return np.asarray((np.max(off, axis=1) + np.sqrt(least * least + spread)) * OUTWARD)
