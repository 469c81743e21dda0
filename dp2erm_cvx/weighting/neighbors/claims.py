"""Proved distances to the exact weights, for many datasets that are solved together.

They are those of Theorems 32, 33, 35 and 36 of ``docs/theory/weights_certificate.md``.

The page is ``docs/theory/weights_certificate.md``. Bounds that one number serves all datasets with
(of the response) are the largest of the datasets that are solved together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic

import numpy as np

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.weighting.neighbors.many_datasets import ManyDatasets, Part
from dp2erm_cvx.weighting.solving.certificate import UNDERFLOW, response_of_means
from dp2erm_cvx.weighting.solving.dataset import OUTWARD

#: Part of n by which sums may be off where a claim is made together with others.
_SETTLED = 1e-6
#: Times that the largest weight, and with it the response, is bounded anew by the claim before.
_ROUNDS = 2


@dataclass(frozen=True)
class NeighborPoints:
    """Points of the dual of m datasets, with the k weights that were computed from each.

    Parameters
    ----------
    imbalance
        Imbalances s (m, K).
    prices
        Computed slopes of the penalties at s (m, K).
    multipliers
        Multipliers (m, B).
    argument
        Computed arguments of the inverse slopes (m, k).
    weights
        Weights there (m, k).
    """

    imbalance: Array
    prices: Array
    multipliers: Array
    argument: Array
    weights: Array


class NeighborClaims(Generic[Part]):
    """Certificates of datasets of one form.

    Parameters
    ----------
    datasets
        The datasets.
    """

    def __init__(self, datasets: ManyDatasets[Part]) -> None:
        self.datasets = datasets

    def claims(self, points: NeighborPoints, part: Part) -> Array:
        """Bounds (m,) of ``|weights - exact weights|_1``; infinite where nothing is proved.

        Parameters
        ----------
        points
            Points of the dual of the datasets.
        part
            The datasets.
        """
        datasets = self.datasets
        weights = points.weights
        n = datasets.n
        missed = self._missed(points, part)
        error = self._price_errors(points, missed, part)
        missed[:, datasets.vector_columns :] = 0.0
        with np.errstate(all="ignore"):
            flat = datasets.curve(part).radii(
                weights.ravel(), points.argument.ravel(), error.ravel()
            )
        radii = flat.reshape(weights.shape)
        units = 1.0 + 4.0 * n * UNIT
        rounding = datasets.total(radii, part) * units + n * UNDERFLOW
        off = self._sums_off(weights, radii, part)
        total_off = np.sum(off, axis=1)
        row, diameter = datasets.row_sizes(part)
        smooth = np.linalg.norm(datasets.scale * missed, axis=1) * OUTWARD + row * (
            rounding + total_off
        )
        kinks = self._kinks(missed, part, rounding + total_off)
        trivial = (datasets.total(weights, part) + n) * units
        claims = np.full(len(part), np.inf)
        settled = part.feasible & (total_off <= _SETTLED * n) & np.isfinite(trivial)
        if not np.any(settled):
            return claims
        chosen = part.take(settled)
        found = trivial[settled]
        largest_weight = math.inf
        for _ in range(_ROUNDS):
            response = self._response(weights[settled], chosen, total_off[settled], largest_weight)
            moved = _moved(
                off[settled], response, (smooth[settled], kinks[settled]), diameter[settled]
            )
            new = rounding[settled] + moved
            found = np.where(new < found, new, found)
            largest_weight = float(np.max(np.max(weights[settled], axis=1) + found))
        claims[settled] = found
        return claims

    def claims_at_own_prices(self, points: NeighborPoints, part: Part) -> Array:
        """Bounds (m,) of ``|weights - exact weights|_1`` by Theorem 36, or infinite.

        Parameters
        ----------
        points
            Weights and the arguments at the prices that they have themselves; all prices are
            squares.
        part
            The datasets.
        """
        datasets = self.datasets
        weights = points.weights
        n = datasets.n
        error = self._price_errors(points, np.zeros((len(part), 0)), part)
        with np.errstate(all="ignore"):
            curve = datasets.curve(part)
            flat = curve.arguments_off(weights.ravel(), points.argument.ravel(), error.ravel())
        farthest = np.max(flat.reshape(weights.shape), axis=1)
        off = self._sums_off(weights, None, part)
        total_off = np.sum(off, axis=1)
        row, _ = datasets.row_sizes(part)
        trivial = (datasets.total(weights, part) + n) * (1.0 + 4.0 * n * UNIT)
        claims = np.full(len(part), np.inf)
        settled = part.feasible & (total_off <= _SETTLED * n) & np.isfinite(trivial)
        if not np.any(settled):
            return claims
        chosen = part if np.all(settled) else part.take(settled)
        here = weights if np.all(settled) else weights[settled]
        found = trivial[settled]
        largest_weight = math.inf
        for _ in range(_ROUNDS):
            response = self._response(here, chosen, total_off[settled], largest_weight)
            spread = response * farthest[settled]
            spread = spread + math.sqrt(response) * row[settled] * total_off[settled] / 2.0
            new = _moved_by(off[settled], spread * spread)
            found = np.where(new < found, new, found)
            largest_weight = float(np.max(np.max(here, axis=1) + found))
        claims[settled] = found
        return claims

    def estimates(self, missed: Array, off: Array, response: float | Array, part: Part) -> Array:
        """Claims (m,) without rounding, by which steps are ended; nothing is proved by them.

        Parameters
        ----------
        missed
            What is missed of imbalances (m, K).
        off
            What sums of blocks (m, B) are off.
        response
            The sum of the responses of all records, of each dataset or of all.
        part
            The datasets.
        """
        datasets = self.datasets
        row, _ = datasets.row_sizes(part)
        sums = np.sum(np.abs(off), axis=1)
        smooth = np.linalg.norm(datasets.scale * missed, axis=1) + row * sums
        kinks = np.zeros(len(missed))
        for one in datasets.priced:
            kinks += one.width_at_kink(missed[:, one.columns])
        return np.asarray(sums + np.sqrt(response * (smooth * smooth / 4.0 + kinks)))

    def _price_errors(self, points: NeighborPoints, missed: Array, part: Part) -> Array:
        """Bounds (m, k) of the distance of computed from exact arguments of the inverse slopes."""
        datasets = self.datasets
        units = 2.0 * (missed.shape[1] + 8.0) * UNIT
        error = datasets.argument_sizes(np.abs(points.prices), np.abs(points.multipliers), part)
        error *= units
        error += UNDERFLOW
        for one in datasets.priced:
            slack = one.price_slack(points.imbalance[:, one.columns]) * UNIT
            if np.any(slack):
                error += slack[:, None] * datasets.row_norms(one.columns, part)
        kernels = slice(datasets.vector_columns, missed.shape[1])
        if kernels.stop > kernels.start:
            # Prices of kernels are meant to be those of the computed weights themselves (Theorem
            # 35).
            apart = np.linalg.norm(missed[:, kernels], axis=1)
            error += apart[:, None] * datasets.row_norms(kernels, part) * OUTWARD
        error += datasets.price_errors(points.weights, part)
        return np.asarray(error)

    def _sums_off(self, weights: Array, radii: Array | None, part: Part) -> Array:
        """Bounds (m, B) of how far weights within radii miss the sums of the blocks."""
        datasets = self.datasets
        summed = datasets.sums(weights, part)
        wide = np.zeros_like(summed)
        if radii is not None:
            wide = datasets.sums(radii, part) * (1.0 + 4.0 * datasets.n * UNIT)
        rounding = (datasets.summed_units + 2.0) * UNIT * (summed + part.totals)
        return np.asarray((np.abs(summed - part.totals) + rounding + wide) * OUTWARD)

    def _missed(self, points: NeighborPoints, part: Part) -> Array:
        """Bounds (m, K) of what is missed of imbalances."""
        datasets = self.datasets
        reached, sizes = datasets.reached(points.weights, part)
        missed = np.abs(points.imbalance - reached)
        missed += (datasets.reached_units + 2.0) * UNIT * sizes + part.target_errors
        stated = np.abs(points.imbalance) + np.abs(part.targets)
        missed += 4.0 * UNIT * stated + UNDERFLOW
        for one in datasets.priced:
            prices = points.prices[:, one.columns]
            missed[:, one.columns] += one.drift(points.imbalance[:, one.columns], prices)
        return np.asarray(missed)

    def _kinks(self, missed: Array, part: Part, moved: Array) -> Array:
        """What is missed (m,) of imbalances with kinks, each times the diameter of its prices."""
        total = np.zeros(len(part))
        for place, one in enumerate(self.datasets.priced):
            if not one.penalty.kinked:
                continue
            width = self.datasets.kink_widths(place, part)
            total += one.width_at_kink(missed[:, one.columns]) + width * moved
        return np.asarray(total * OUTWARD * OUTWARD)

    def _response(
        self, weights: Array, part: Part, total_off: Array, largest_weight: float
    ) -> float:
        """Bound of the sum of the responses of all records, for all of these datasets.

        The concave envelope rises with the box and its largest value with the interval of means, so
        that the hull of the boxes and of the means of all datasets serves every one of them.
        """
        datasets = self.datasets
        n = datasets.n
        units = 4.0 * n * UNIT
        counts = datasets.counts(part)
        free = (part.cap > part.low) & (counts > 0)
        base = part.base if part.base.size else np.ones((1, 1))
        mass = np.sum(np.where(free, counts * base, 0.0), axis=1)
        if not np.any(free):
            return 0.0
        fixed = np.zeros(len(part))
        if not np.all(free):
            fixed = np.sum(np.where(~free & datasets.summed(part), counts * weights, 0.0), axis=1)
        totals = np.sum(part.totals, axis=1)
        total = totals - fixed
        low = float(np.min(np.where(free, part.low / base, np.inf))) * (1.0 - 4.0 * UNIT)
        # Neither an exact weight nor one at the point exceeds the sum of its block.
        largest_sum = float(np.max(np.max(part.totals, axis=1) + total_off))
        caps = np.minimum(part.cap, min(largest_sum, largest_weight))
        high = float(np.max(np.where(free, caps / base, -np.inf))) * (1.0 + 4.0 * UNIT)
        slack = total_off / 2.0 + units * (np.abs(total) + fixed + totals)
        some = mass > 0.0
        first = float(np.min((total - slack)[some] / mass[some])) * (1.0 - units)
        last = float(np.max((total + slack)[some] / mass[some])) * (1.0 + units)
        largest_mass = float(np.max(mass)) * (1.0 + units)
        response = response_of_means(datasets.form.dispersion, (low, high), (first, last))
        return largest_mass * response * OUTWARD


def _moved(off: Array, response: float, missed: tuple[Array, Array], diameter: Array) -> Array:
    """What sums that are off (m, B) and imbalances that are missed move the weights by (m,)."""
    smooth, kinks = missed
    with np.errstate(invalid="ignore"):
        largest = np.minimum(1.0, response * diameter * diameter / 4.0)
        spread = response * largest / (1.0 + largest) ** 2 * smooth * smooth
        at_kinks = response * (smooth * smooth / 4.0 + kinks)
    spread = np.where(kinks > 0.0, at_kinks, spread)
    return _moved_by(off, np.where(np.isnan(spread), np.inf, spread))


def _moved_by(off: Array, spread: Array) -> Array:
    """Movement (m,) of weights whose sums are off (m, B) and whose imbalances spread (m,)."""
    least = np.min(off, axis=1)
    if off.shape[1] == 1:
        return np.asarray(np.sqrt(least * least + spread) * OUTWARD)
    # Of two blocks, the one whose sum is less off takes all of the imbalance in the worst case.
    return np.asarray((np.max(off, axis=1) + np.sqrt(least * least + spread)) * OUTWARD)
