"""Proved distances to the exact weights, for many datasets that are solved together.

They are those of Theorems 32, 33, 35 and 36 of ``docs/theory/weights_certificate.md``, and names
here are those of that page. The response has one bound for all datasets that are solved together:
the largest of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.weighting.neighbors.many_datasets import DatasetsPart, ManyDatasets, Part
from dp2erm_cvx.weighting.solving.certificate import UNDERFLOW, response_of_means

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

        They are those of Theorem 33, of Theorem 35 for columns of kernels.

        Parameters
        ----------
        points
            Points of the dual of the datasets.
        part
            The datasets.
        """
        datasets = self.datasets
        weights = points.weights
        computed_missed, rounding = self._missed(points, part)
        missed = computed_missed + rounding
        error = self._price_errors(points, missed, part)
        # What is missed in the space of a kernel is at most Z theta, which counts below.
        missed[:, datasets.vector_columns :] = 0.0
        with np.errstate(all="ignore"):
            flat = datasets.curve(part).radii(
                weights.ravel(), points.argument.ravel(), error.ravel()
            )
        radii = flat.reshape(weights.shape)
        # theta, the sum of the radii, and hat sigma_b, what sums are off.
        theta = datasets.total(radii, part) * self._outward + datasets.n * UNDERFLOW
        off = self._sums_off(weights, radii, part)
        total_off = np.sum(off, axis=1)
        # hat E = |hat e| + Z (theta + sum of hat sigma_b).
        row, diameter = datasets.row_sizes(part)
        vectors_missed = np.linalg.norm(datasets.scale * missed, axis=1) * ROUND_UP
        smooth = vectors_missed + row * (theta + total_off)
        kinks = self._kinks(missed, part, theta + total_off)
        trivial = self._trivial(weights, part)
        claims = np.full(len(part), np.inf)
        settled = part.feasible & (total_off <= _SETTLED * datasets.n) & np.isfinite(trivial)
        if not np.any(settled):
            return claims
        chosen = part.take(settled)
        new_claims = trivial[settled]
        largest_weight = math.inf
        for _ in range(_ROUNDS):
            response = self._response(weights[settled], chosen, total_off[settled], largest_weight)
            moved = _moved(
                off[settled], response, (smooth[settled], kinks[settled]), diameter[settled]
            )
            bound = theta[settled] + moved
            new_claims = np.where(bound < new_claims, bound, new_claims)
            largest_weight = float(np.max(np.max(weights[settled], axis=1) + new_claims))
        claims[settled] = new_claims
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
        error = self._price_errors(points, np.zeros((len(part), 0)), part)
        with np.errstate(all="ignore"):
            curve = datasets.curve(part)
            flat = curve.arguments_off(weights.ravel(), points.argument.ravel(), error.ravel())
        # The largest |xi_i| of the theorem.
        farthest = np.max(flat.reshape(weights.shape), axis=1)
        off = self._sums_off(weights, None, part)
        total_off = np.sum(off, axis=1)
        row, _ = datasets.row_sizes(part)
        trivial = self._trivial(weights, part)
        claims = np.full(len(part), np.inf)
        settled = part.feasible & (total_off <= _SETTLED * datasets.n) & np.isfinite(trivial)
        if not np.any(settled):
            return claims
        chosen = part
        if not np.all(settled):
            chosen = part.take(settled)
            weights = weights[settled]
        new_claims = trivial[settled]
        largest_weight = math.inf
        for _ in range(_ROUNDS):
            response = self._response(weights, chosen, total_off[settled], largest_weight)
            # G = R max |xi_i| + sqrt(R) Z sigma / 2.
            spread = response * farthest[settled]
            spread = spread + math.sqrt(response) * row[settled] * total_off[settled] / 2.0
            bound = _moved_by(off[settled], spread * spread)
            new_claims = np.where(bound < new_claims, bound, new_claims)
            largest_weight = float(np.max(np.max(weights, axis=1) + new_claims))
        claims[settled] = new_claims
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
        for priced in datasets.priced:
            kinks += priced.width_at_kink(missed[:, priced.columns])
        return np.asarray(sums + np.sqrt(response * (smooth * smooth / 4.0 + kinks)))

    def within_rounding(self, points: NeighborPoints, part: Part) -> NDArray[np.bool_]:
        """Whether what is missed (m,) is no more than its rounding, below which no claim falls."""
        missed, rounding = self._missed(points, part)
        return np.asarray(np.all(missed <= rounding, axis=1))

    def _missed(self, points: NeighborPoints, part: Part) -> tuple[Array, Array]:
        """What is missed of imbalances (m, K) as computed, and bounds (m, K) of its rounding.

        Their sum bounds hat e of Theorem 33.
        """
        datasets = self.datasets
        reached, sizes = datasets.reached(points.weights, part)
        missed = np.abs(points.imbalance - reached)
        rounding = (datasets.reached_units + 2.0) * UNIT * sizes + part.target_errors
        stated = np.abs(points.imbalance) + np.abs(part.targets)
        rounding += 4.0 * UNIT * stated + UNDERFLOW
        for priced in datasets.priced:
            columns = priced.columns
            rounding[:, columns] += priced.drift(
                points.imbalance[:, columns], points.prices[:, columns]
            )
        return missed, rounding

    def _price_errors(self, points: NeighborPoints, missed: Array, part: Part) -> Array:
        """Bounds (m, k) of the distance of computed from exact arguments of the inverse slopes.

        They are xi_i of Theorem 33 (a).
        """
        datasets = self.datasets
        # 2 (K + 8) u (sum_k |z_ik lambda_k| + |nu_b| + |line|).
        units = 2.0 * (missed.shape[1] + 8.0) * UNIT
        error = datasets.argument_sizes(np.abs(points.prices), np.abs(points.multipliers), part)
        error *= units
        error += UNDERFLOW
        for priced in datasets.priced:
            slack = priced.price_slack(points.imbalance[:, priced.columns]) * UNIT
            if np.any(slack):
                error += slack[:, None] * datasets.row_norms(priced.columns, part)
        kernels = slice(datasets.vector_columns, missed.shape[1])
        if kernels.stop > kernels.start:
            # Prices of kernels are meant to be those of the computed weights themselves (Theorem
            # 35), from which those used differ by at most |f_i| |hat e|.
            kernel_missed = np.linalg.norm(missed[:, kernels], axis=1)
            error += kernel_missed[:, None] * datasets.row_norms(kernels, part) * ROUND_UP
        error += datasets.price_errors(points.weights, part)
        return np.asarray(error)

    @property
    def _outward(self) -> float:
        """Factor that covers the rounding of a sum over all records."""
        return 1.0 + self._sum_units

    def _sums_off(self, weights: Array, radii: Array | None, part: Part) -> Array:
        """Bounds (m, B) of how far weights within radii miss the sums of the blocks.

        They are hat sigma_b of Theorem 33; without radii, sigma_b of Theorem 36.
        """
        datasets = self.datasets
        summed = datasets.sums(weights, part)
        summed_radii = np.zeros_like(summed)
        if radii is not None:
            summed_radii = datasets.sums(radii, part) * self._outward
        rounding = (datasets.summed_units + 2.0) * UNIT * (summed + part.totals)
        return np.asarray((np.abs(summed - part.totals) + rounding + summed_radii) * ROUND_UP)

    def _kinks(self, missed: Array, part: Part, moved: Array) -> Array:
        """What is missed (m,) of imbalances with kinks, each times the diameter of its prices."""
        total = np.zeros(len(part))
        for place, priced in enumerate(self.datasets.priced):
            if priced.penalty.kinked:
                width = self.datasets.kink_widths(place, part)
                total += priced.width_at_kink(missed[:, priced.columns]) + width * moved
        return np.asarray(total * ROUND_UP * ROUND_UP)

    def _trivial(self, weights: Array, part: Part) -> Array:
        """The sums (m,) of all computed and all exact weights, which no claim exceeds."""
        return (self.datasets.total(weights, part) + self.datasets.n) * self._outward

    def _response(
        self, weights: Array, part: Part, total_off: Array, largest_weight: float
    ) -> float:
        """Bound of the sum of the responses of all records, for all of these datasets.

        It is R of Theorem 33. The concave envelope rises with the box and its largest value with
        the interval of means, so that the hull of the boxes and of the means of all datasets serves
        every one of them.
        """
        counts = self.datasets.counts(part)
        # The weights that their bounds leave room for; of the others the response is 0.
        is_free = (part.cap > part.low) & (counts > 0)
        if not np.any(is_free):
            return 0.0
        base = np.ones((1, 1))
        if part.base.size:
            base = part.base
        # Neither an exact weight nor one at the point exceeds the sum of its block.
        largest_sum = float(np.max(np.max(part.totals, axis=1) + total_off))
        ratios = _ratio_ends(part, base, is_free, min(largest_sum, largest_weight))
        # N, the sum of d_i over the free weights.
        mass = np.sum(np.where(is_free, counts * base, 0.0), axis=1)
        means = self._mean_ends(weights, part, is_free, mass, total_off)
        # R = N qhat(mu).
        largest_mass = float(np.max(mass)) * (1.0 + self._sum_units)
        mean_response = response_of_means(self.datasets.form.dispersion, ratios, means)
        return largest_mass * mean_response * ROUND_UP

    @property
    def _sum_units(self) -> float:
        """Rounding of a sum over all records, relative to the sum of sizes."""
        return 4.0 * self.datasets.n * UNIT

    def _mean_ends(
        self, weights: Array, part: Part, is_free: NDArray[np.bool_], mass: Array, total_off: Array
    ) -> tuple[float, float]:
        """Ends of the means mu of the free weights, over all datasets.

        Parameters
        ----------
        weights
            Weights (m, k).
        part
            The datasets.
        is_free
            Which weights their bounds leave room for (m, k).
        mass
            N (m,), the sum of d_i over the free weights.
        total_off
            What sums of weights are off (m,); means are off by up to half of it.
        """
        fixed = np.zeros(len(part))
        if not np.all(is_free):
            is_fixed = ~is_free & self.datasets.summed(part)
            counted = self.datasets.counts(part) * weights
            fixed = np.sum(np.where(is_fixed, counted, 0.0), axis=1)
        units = self._sum_units
        totals = np.sum(part.totals, axis=1)
        free_totals = totals - fixed
        slack = total_off / 2.0 + units * (np.abs(free_totals) + fixed + totals)
        any_free = mass > 0.0
        first = float(np.min((free_totals - slack)[any_free] / mass[any_free])) * (1.0 - units)
        last = float(np.max((free_totals + slack)[any_free] / mass[any_free])) * (1.0 + units)
        return first, last


def _ratio_ends(
    part: DatasetsPart, base: Array, is_free: NDArray[np.bool_], largest_weight: float
) -> tuple[float, float]:
    """Ends of the ratios w_i / d_i of the free weights, up to the largest weight."""
    low = float(np.min(np.where(is_free, part.low / base, np.inf))) * (1.0 - 4.0 * UNIT)
    caps = np.minimum(part.cap, largest_weight)
    high = float(np.max(np.where(is_free, caps / base, -np.inf))) * (1.0 + 4.0 * UNIT)
    return low, high


def _moved(off: Array, response: float, missed: tuple[Array, Array], diameter: Array) -> Array:
    """What sums that are off (m, B) and imbalances that are missed move the weights by (m,)."""
    smooth, kinks = missed
    with np.errstate(invalid="ignore"):
        # F E^2 with F = R A / (1 + A)^2 and A = min(1, R D^2 / 4); R (E^2 / 4 + 2 p E_2) at kinks.
        share = np.minimum(1.0, response * diameter * diameter / 4.0)
        spread = response * share / (1.0 + share) ** 2 * smooth * smooth
        at_kinks = response * (smooth * smooth / 4.0 + kinks)
    spread = np.where(kinks == 0.0, spread, at_kinks)
    return _moved_by(off, np.where(np.isnan(spread), np.inf, spread))


def _moved_by(off: Array, spread: Array) -> Array:
    """Movement (m,) of weights whose sums are off (m, B) and whose imbalances spread (m,)."""
    least = np.min(off, axis=1)
    if off.shape[1] == 1:
        return np.asarray(np.sqrt(least * least + spread) * ROUND_UP)
    # Of two blocks, the one whose sum is less off takes all of the imbalance in the worst case.
    return np.asarray((np.max(off, axis=1) + np.sqrt(least * least + spread)) * ROUND_UP)
