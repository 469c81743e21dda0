"""A proved distance of computed weights to the exact weights of a dataset.

Theorems 32, 33, 36 and 39 of ``docs/theory/weights_certificate.md``: at any point of the dual the
weights are the exact ones of a problem with other targets and sums, and the stability of the
weights bounds what that changes. What doubles round is one more change of prices, targets and sums.
Under constraints of the imbalance no distance follows, and how far those targets and sums are off
is what is said (Theorem 37).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array, largest_bound
from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.weighting.bounds.response import largest_response, mean_response
from dp2erm_cvx.weighting.solving.dataset import (
    WeightingData,
    blocked_sum,
    members_of_block,
    sum_units,
)
from dp2erm_cvx.weighting.solving.metric import Metric
from dp2erm_cvx.weighting.solving.moments import moment_units
from dp2erm_cvx.weighting.solving.multipliers import weights_at

#: A number below which doubles lose digits; it stands for all that underflows.
UNDERFLOW = 1e-280
#: Times that the largest weight, and with it the response, is bounded anew by the claim before.
_ROUNDS = 3
#: A claim, relative to n, above which that in the metric of the Hessian is worth its time.
_METRIC_FROM = 1e-11
#: What is missed, over its rounding, up to which a point is so near that this metric is asked for.
_MOST_ROUNDINGS = 1e3


@dataclass(frozen=True)
class Point:
    """A point of the dual.

    Parameters
    ----------
    imbalance
        An imbalance s (K,), in doubles.
    prices
        Computed prices lambda (K,): of the penalty's slopes at s the one that is meant.
    multipliers
        Multipliers, one per block.
    """

    imbalance: Array
    prices: Array
    multipliers: Array


@dataclass(frozen=True)
class Missed:
    """What is missed of the imbalances of vectors.

    Parameters
    ----------
    computed
        The imbalance of the point less that of the weights (K,), as computed.
    rounding
        Bounds (K,) of how far that is off.
    """

    computed: Array
    rounding: Array


@dataclass(frozen=True)
class Deviations:
    """How far computed weights are from solving the problem.

    Parameters
    ----------
    weights
        Computed weights (n,).
    radii
        Bounds (n,) of their distance to the exact weights at the exact prices of the point.
    smooth
        Norm of what is missed of imbalances whose price is smooth, in the norm of the price.
    kinks
        Sum of what is missed of imbalances with kinks, each times the diameter of its prices.
    row
        Bound of the norm of a row of a record whose weight is free.
    diameter
        Bound of the distance of two such rows within a block.
    row_at_kinks
        The same as ``row`` for imbalances with kinks: their sum, each times the diameter of its
        prices.
    missed
        What is missed by coordinate; None where rows are known by their products alone.
    """

    weights: Array
    radii: Array
    smooth: float
    kinks: float
    row: float
    diameter: float
    row_at_kinks: float = 0.0
    missed: Missed | None = None


@dataclass(frozen=True)
class Residual:
    """How far weights are from solving a problem with constraints exactly (Theorem 37).

    Some weights within ``moved`` of these solve a problem exactly whose targets and sums are off by
    what is stated here. Nothing follows about the distance to the exact weights of the problem
    itself.

    Parameters
    ----------
    n
        Number of records.
    moved
        Bound of ``|weights - weights that solve the other problem|_1``.
    sums
        Bound of how far its sums of weights are off, added up.
    moments
        Bounds (K,) of how far its targets are off, in units of a mean of a balanced function over
        an arm.
    """

    n: int
    moved: float
    sums: float
    moments: Array

    @property
    def largest(self) -> float:
        """The largest of all: of the first two over n, and of those of the moments."""
        largest_moment = float(np.max(self.moments, initial=0.0))
        return largest_bound(self.moved / self.n, self.sums / self.n, largest_moment)

    def farther(self, distance: float) -> Residual:
        """That of other weights, within a distance in the 1-norm of these."""
        return replace(self, moved=(self.moved + distance) * ROUND_UP)


def residual_of(data: WeightingData, point: Point) -> tuple[Array, Residual]:
    """Weights at a point of the dual, and how far they are from solving its problem.

    The problem has constraints of the imbalance (Theorem 37).

    Parameters
    ----------
    data
        The dataset.
    point
        Any point whose imbalance meets the constraints.

    Returns
    -------
    tuple
        The weights (n,), and their residual.
    """
    at_point = _at_point(data, point)
    deviations = at_point.deviations
    assert deviations.missed is not None
    weights = deviations.weights
    n = len(weights)
    # |e_k| <= |hat e_k| + delta_k + sum_i r_i |z_ik|.
    by_radii = data.sum_of_sizes(deviations.radii) * _outward(n)
    missed = np.abs(deviations.missed.computed) + deviations.missed.rounding + by_radii
    sums_off = float(sum(_sums_off(data, deviations)))
    return weights, Residual(
        n=n,
        moved=_theta(deviations),
        sums=sums_off * ROUND_UP,
        moments=missed * ROUND_UP / moment_units(data),
    )


def certified_distance(data: WeightingData, point: Point) -> tuple[Array, float]:
    """Weights at a point of the dual, and a bound of their distance to the exact weights.

    Parameters
    ----------
    data
        The dataset.
    point
        Any point; the nearer to the solution, the smaller the bound.

    Returns
    -------
    tuple
        The weights (n,), and a bound of ``|weights - exact|_1``.
    """
    at_point = _at_point(data, point)
    claim = claimed(data, at_point.deviations)
    if data.similarities:
        # Beside features of a kernel all prices are squares, as Theorem 36 asks.
        claim = min(claim, _claimed_by_features(data, at_point))
    return at_point.deviations.weights, claim


@dataclass(frozen=True)
class _AtPoint:
    """Weights at a point of the dual.

    Parameters
    ----------
    argument
        Computed arguments (n,) of the inverse slopes.
    error
        Bounds (n,) of their distance to the exact ones: xi_i of Theorem 33.
    deviations
        How far the weights are from solving the problem.
    """

    argument: Array
    error: Array
    deviations: Deviations


def _at_point(data: WeightingData, point: Point) -> _AtPoint:
    """Weights ``w_i = h_i(-<z_i, lambda> - nu_b)`` at a point, and how far they are off."""
    price = -(data.rows @ point.prices) - data.linear
    weights, argument = weights_at(data, price, point.multipliers)
    reached = blocked_sum(weights, data.rows) - data.targets
    error = _price_errors(data, point, weights, reached)
    with np.errstate(over="ignore", invalid="ignore"):
        radii = data.curve.radii(weights, argument, error)
    return _AtPoint(argument, error, _deviations(data, point, weights, radii, reached))


def _claimed_by_features(data: WeightingData, at_point: _AtPoint) -> float:
    """The bound of Theorem 36, by features of the kernel.

    Arguments are those at the weights' own prices. Own prices of vectors differ from those of the
    point by what is missed of their imbalances.
    """
    deviations = at_point.deviations
    missed = deviations.missed
    assert missed is not None
    vectors = slice(0, data.vector_columns)
    price_change = data.smoothness[vectors] * (np.abs(missed.computed) + missed.rounding)
    error = at_point.error + data.sizes_times(price_change, vectors) * ROUND_UP
    arguments_off = data.curve.arguments_off(deviations.weights, at_point.argument, error)
    return claimed_at_own_prices(data, deviations.weights, arguments_off, deviations.row)


def _price_errors(data: WeightingData, point: Point, weights: Array, reached: Array) -> Array:
    """Bounds (n,) of the distance of computed from exact arguments of the inverse slopes.

    They are xi_i of Theorem 33 (a).
    """
    # 2 (K + 8) u (sum_k |z_ik lambda_k| + |nu_b| + |line|).
    units = 2.0 * (data.rows.shape[1] + 8.0)
    size = data.sizes_times(np.abs(point.prices)) + np.abs(data.linear)
    for number, block in enumerate(data.blocks):
        size[block.members] += abs(float(point.multipliers[number]))
    error = units * UNIT * size + UNDERFLOW
    for priced in data.priced:
        slack = float(priced.price_slack(point.imbalance[priced.columns]))
        if slack > 0.0:
            norms = np.sqrt(np.sum(data.rows[:, priced.columns] ** 2, axis=1))
            error += slack * UNIT * norms
    if data.rows.shape[1] == data.vector_columns:
        return np.asarray(error)
    kernels = slice(data.vector_columns, None)
    by_kernels = data.sizes_times(_kernel_missed(data, point, weights, reached), kernels)
    mass = float(np.sum(weights)) + len(weights)
    return np.asarray(error + (by_kernels + data.price_error * mass) * ROUND_UP)


def _kernel_missed(data: WeightingData, point: Point, weights: Array, reached: Array) -> Array:
    """Bounds of how far prices of kernel features are from those of the computed weights.

    These are the prices that are meant (Theorem 35).
    """
    kernels = slice(data.vector_columns, None)
    prices = point.prices[kernels]
    rounding = sum_units(len(weights)) * UNIT
    missed = np.abs(prices - reached[kernels])
    missed = missed + rounding * data.sum_of_sizes(weights, kernels)
    missed = missed + data.target_errors[kernels]
    return np.asarray(missed + 4.0 * UNIT * (np.abs(data.targets[kernels]) + np.abs(prices)))


def _missed(data: WeightingData, point: Point, weights: Array, reached: Array) -> Missed:
    """What is missed of the imbalances of vectors: hat e of Theorem 33, and its rounding."""
    vectors = slice(0, data.vector_columns)
    sizes = data.sum_of_sizes(weights, vectors)
    rounding = (sum_units(len(weights)) + 2.0) * UNIT * sizes + data.target_errors[vectors]
    stated = np.abs(point.imbalance[vectors]) + np.abs(data.targets[vectors])
    rounding = rounding + 4.0 * UNIT * stated + UNDERFLOW
    for priced in data.priced:
        columns = priced.columns
        if columns.stop <= data.vector_columns:
            rounding[columns] += priced.drift(point.imbalance[columns], point.prices[columns])
    return Missed(point.imbalance[vectors] - reached[vectors], rounding)


def _deviations(
    data: WeightingData, point: Point, weights: Array, radii: Array, reached: Array
) -> Deviations:
    """What is missed of the imbalances of vectors, and the sizes of rows."""
    missed = _missed(data, point, weights, reached)
    sizes = np.abs(missed.computed) + missed.rounding
    smoothness = data.smoothness[: data.vector_columns]
    scale = np.sqrt(np.where(np.isfinite(smoothness), smoothness, 0.0))
    kinks = 0.0
    for priced in data.priced:
        if priced.penalty.kinked:
            kinks += float(priced.width_at_kink(sizes[priced.columns])) * ROUND_UP
    rows = data.row_bounds
    return Deviations(
        weights=weights,
        radii=radii,
        smooth=float(np.linalg.norm(scale * sizes)) * ROUND_UP,
        kinks=kinks * ROUND_UP,
        row=rows.row,
        diameter=rows.diameter,
        row_at_kinks=rows.row_at_kinks,
        missed=missed,
    )


def claimed(data: WeightingData, deviations: Deviations) -> float:
    """The bound of Theorem 33, from what is missed.

    Parameters
    ----------
    data
        The dataset.
    deviations
        How far the weights are from a solution.

    Returns
    -------
    float
        Bound of ``|weights - exact weights|_1``.
    """
    weights = deviations.weights
    theta = _theta(deviations)
    off = _sums_off(data, deviations)
    total_off = float(sum(off))
    # hat E = |hat e| + Z (theta + sum of hat sigma_b).
    missed = deviations.smooth + deviations.row * (theta + total_off)
    at_kinks = deviations.kinks + deviations.row_at_kinks * (theta + total_off)
    trivial = _trivial_claim(data, weights)
    largest_weight = math.inf
    claim = trivial
    for _ in range(_ROUNDS):
        response = _summed_response(data, weights, total_off, largest_weight)
        new = theta + _moved(off, _spread(response, (missed, at_kinks), deviations.diameter))
        if not new < claim:
            break
        claim = new
        # No exact weight is farther from a computed one than the claim: the response is less than
        # that of weights as large as their sum.
        largest_weight = float(np.max(weights)) + claim
    if (
        _METRIC_FROM * len(weights) < claim < trivial
        and deviations.missed is not None
        and _has_metric(data, deviations.missed)
    ):
        return _claimed_in_metric(data, deviations, deviations.missed, off, claim)
    return _finite_or_infinite(claim)


def claimed_at_own_prices(
    data: WeightingData, weights: Array, arguments_off: Array, row: float
) -> float:
    """The bound of Theorem 36, of weights and the prices that they have themselves.

    Parameters
    ----------
    data
        The dataset; all its prices are squares.
    weights
        Weights (n,) within their boxes.
    arguments_off
        How far arguments at their own prices are from ones that ask for exactly these weights (n,),
        at most.
    row
        Bound of the norm of a row whose weight is free.

    Returns
    -------
    float
        Bound of ``|weights - exact weights|_1``.
    """
    off = _sums_off(data, _exact_weights(weights, row))
    total_off = float(sum(off))
    farthest = float(np.max(arguments_off, initial=0.0))
    claim = _trivial_claim(data, weights)
    largest_weight = math.inf
    for _ in range(_ROUNDS):
        response = _summed_response(data, weights, total_off, largest_weight)
        # G = R max |xi_i| + sqrt(R) Z sigma / 2.
        spread = (response * farthest + math.sqrt(response) * row * total_off / 2.0) ** 2
        new = _moved(off, spread)
        if not new < claim:
            break
        claim = new
        largest_weight = float(np.max(weights)) + claim
    return _finite_or_infinite(claim)


def claimed_by_eigenvalues(
    data: WeightingData, weights: Array, arguments_off: Array, row: float, least_eigenvalue: float
) -> float:
    """The bound of Theorem 36 with the least eigenvalue of the products of all rows.

    Parameters
    ----------
    data, weights, arguments_off, row
        As of :func:`claimed_at_own_prices`.
    least_eigenvalue
        Number, 0 or more, that no eigenvalue of these products is below, among records whose
        weights are free: those that are fixed do not move.

    Returns
    -------
    float
        Bound of ``|weights - exact weights|_1``.
    """
    n = len(weights)
    off = _sums_off(data, _exact_weights(weights, row))
    total_off = float(sum(off))
    response = _summed_response(data, weights, total_off, math.inf)
    moved = _moved(off, _spread(response, (row * total_off, 0.0), 2.0 * row))
    # mu + 1 / q_+, for the least eigenvalue mu and the largest response q_+ of a record.
    stiffness = least_eigenvalue + 1.0 / _steepest_response(data, total_off)
    farthest = float(np.max(arguments_off, initial=0.0))
    if not math.isfinite(farthest) or stiffness <= 0.0:
        return math.inf
    # The norm of xi is taken relative to the farthest one, as squares of large numbers are no
    # doubles.
    size = farthest * float(np.linalg.norm(arguments_off / max(farthest, UNDERFLOW)))
    # sqrt(n) |xi|_2 / (mu + 1 / q_+), and what the sums move.
    claim = (math.sqrt(n) * size / stiffness + moved) * _outward(n) * ROUND_UP
    return _finite_or_infinite(claim)


def _exact_weights(weights: Array, row: float) -> Deviations:
    """Deviations of weights (n,) that are what they are: nothing but their sums may be off."""
    return Deviations(
        weights=weights,
        radii=np.zeros(len(weights)),
        smooth=0.0,
        kinks=0.0,
        row=row,
        diameter=2.0 * row,
    )


def _finite_or_infinite(claim: float) -> float:
    """A claim; infinite where it is no number."""
    if math.isfinite(claim):
        return claim
    return math.inf


def _outward(n: int) -> float:
    """Rounding of a sum of n numbers of one sign."""
    return 1.0 + 4.0 * n * UNIT


def _theta(deviations: Deviations) -> float:
    """Bound of the sum of all radii: theta of Theorem 33."""
    n = len(deviations.weights)
    return float(np.sum(deviations.radii)) * _outward(n) + n * UNDERFLOW


def _trivial_claim(data: WeightingData, weights: Array) -> float:
    """The sum of all computed and all exact weights, which no claim exceeds."""
    return (float(np.sum(weights)) + data.form.n) * _outward(len(weights))


def _steepest_response(data: WeightingData, total_off: float) -> float:
    """Bound of the response of one record whose sums are off by so much.

    It holds for any weights in the box of the record.
    """
    curve = data.curve
    base = np.ones_like(curve.low)
    if curve.base is not None:
        base = curve.base
    largest_total = max((block.total for block in data.blocks), default=0.0)
    # Ends of all ratios w_i / d_i.
    low = float(np.min(curve.low / base)) * (1.0 - 4.0 * UNIT)
    caps = np.minimum(curve.cap, largest_total + total_off)
    high = max(float(np.max(caps / base)) * (1.0 + 4.0 * UNIT), low)
    response = largest_response(data.form.dispersion, low, high)
    return float(np.max(base)) * response * ROUND_UP


def _has_metric(data: WeightingData, missed: Missed) -> bool:
    """Whether Theorem 39 holds: all rows are vectors, all prices smooth, the point is near."""
    scale = np.sqrt(data.smoothness[: data.vector_columns])
    with np.errstate(invalid="ignore"):
        size = float(np.linalg.norm(scale * missed.computed))
        rounding = float(np.linalg.norm(scale * missed.rounding))
    if not size <= _MOST_ROUNDINGS * rounding:
        return False
    vectors = data.rows.shape[1] == data.vector_columns and not data.similarities
    return vectors and bool(np.all(np.isfinite(data.smoothness)))


def _claimed_in_metric(
    data: WeightingData, deviations: Deviations, missed: Missed, off: list[float], claim: float
) -> float:
    """The bound of Theorem 39, in the metric of the Hessian, where a claim is proved already."""
    weights = deviations.weights
    n = len(weights)
    total_off = float(sum(off))
    theta = _theta(deviations)
    for _ in range(_ROUNDS):
        largest_weight = float(np.max(weights)) + claim
        response = _summed_response(data, weights, total_off, largest_weight)
        metric = Metric.of(data, weights, claim, response)
        if metric is None:
            break
        # hat k = |s - m(w)|_M + sum_i r_i |z_i|_M + sum_b hat sigma_b max_i |z_i|_M.
        size = metric.size(missed.computed, missed.rounding)
        size += float(deviations.radii @ metric.lengths) * _outward(n)
        for number, block in enumerate(data.blocks):
            size += off[number] * float(np.max(metric.lengths[block.members], initial=0.0))
        new = theta + _moved(off, response * size * size * ROUND_UP)
        if not new < claim:
            break
        enough = new > 0.5 * claim
        claim = new
        if enough:
            break
    return claim


def _sums_off(data: WeightingData, deviations: Deviations) -> list[float]:
    """Bounds of how far the exact weights at a point miss the sum of each block.

    They are hat sigma_b of Theorem 33.
    """
    bounds = []
    for block in data.blocks:
        weights = deviations.weights[block.members]
        summed = float(np.sum(weights))
        radii = float(np.sum(deviations.radii[block.members])) * _outward(len(weights))
        difference = abs(math.fsum(weights) - block.total)
        bounds.append((difference + 2.0 * UNIT * (summed + block.total) + radii) * ROUND_UP)
    return bounds


def squared_gain(response: float, diameter: float) -> float:
    """F of the theory: what the square of an imbalance moves the square of the weights by, at most.

    Parameters
    ----------
    response
        Bound of the sum of the responses of all records.
    diameter
        Bound of the distance of two rows within a block, in the norm of the price.

    Returns
    -------
    float
        ``response A / (1 + A)^2`` with ``A = min(1, response diameter^2 / 4)``.
    """
    largest = min(1.0, response * diameter * diameter / 4.0)
    return response * largest / (1.0 + largest) ** 2


def _spread(response: float, missed: tuple[float, float], diameter: float) -> float:
    """Square of what ``missed`` imbalances, of smooth prices and at kinks, move weights by."""
    smooth, at_kinks = missed
    if at_kinks == 0.0:
        return squared_gain(response, diameter) * smooth * smooth
    return response * (smooth * smooth / 4.0 + at_kinks)


def _moved(off: list[float], spread: float) -> float:
    """What sums that are ``off``, and imbalances of this ``spread``, move the weights by.

    It is ``sqrt(sigma^2 + spread)`` of one block, and of two ``max_b |sigma_b|`` and the root with
    the smaller one: the block whose sum is less off takes all of the imbalance in the worst case.
    """
    if math.isnan(spread + sum(off)):
        return math.inf
    if len(off) == 1:
        return math.sqrt(off[0] ** 2 + spread) * ROUND_UP
    return (max(off, default=0.0) + math.sqrt(min(off, default=0.0) ** 2 + spread)) * ROUND_UP


def _summed_response(
    data: WeightingData, weights: Array, total_off: float, largest_weight: float
) -> float:
    """Bound of the sum of the responses of all records between the exact and the computed weights.

    It is R of Theorems 32 and 33. The midpoints of both have a known sum up to half of what the
    sums are off, and the response of a record with a base d is d times that of the ratio ``w / d``.
    """
    curve = data.curve
    free = data.free
    if not np.any(free):
        return 0.0
    base = np.ones(1)
    mass = float(np.count_nonzero(free))
    if curve.base is not None:
        base = curve.base[free]
        mass = math.fsum(base)
    # Ends of all ratios w_i / d_i.
    low = float(np.min(curve.low[free] / base)) * (1.0 - 4.0 * UNIT)
    # Neither an exact weight nor one at the point exceeds the sum of its block.
    largest_sum = max(block.total for block in data.blocks) + total_off
    caps = np.minimum(curve.cap[free], min(largest_sum, largest_weight))
    high = float(np.max(caps / base)) * (1.0 + 4.0 * UNIT)
    # Ends of the mean mu = total / N, which is off by up to half of what the sums are off.
    fixed = math.fsum(weights[~free & _summed(data)])
    total = sum(block.total for block in data.blocks) - fixed
    slack = total_off / 2.0 + 4.0 * UNIT * (abs(total) + fixed)
    means = ((total - slack) / mass, (total + slack) / mass)
    # R = N qhat(mu).
    return mass * response_of_means(data.form.dispersion, (low, high), means) * ROUND_UP


def _summed(data: WeightingData) -> NDArray[np.bool_]:
    """Whether a record (n,) is in a block."""
    inside = np.zeros(len(data.arms), dtype=bool)
    for block in data.blocks:
        inside |= members_of_block(data, block)
    return inside


def response_of_means(
    dispersion: Dispersion, box: tuple[float, float], means: tuple[float, float]
) -> float:
    """Bound of the concave envelope of the response over an interval of mean weights.

    A concave function above 0 on the box is at most ``(m - low) / (c - low)`` times its value at c
    to the right of c, and ``(high - m) / (high - c)`` times to the left.

    Parameters
    ----------
    dispersion
        The dispersion.
    box
        Ends of all weights.
    means
        Ends of the mean weight; only what lies in the box counts.

    Returns
    -------
    float
        The bound.
    """
    low, high = box
    first = min(max(means[0], low), high)
    last = min(max(means[1], low), high)
    middle = min(max((first + last) / 2.0, low), high)
    anywhere = largest_response(dispersion, low, high)
    at_middle = mean_response(dispersion, low, high, middle)
    if not low < middle < high:
        return anywhere
    rightward = (last - low) / (middle - low)
    leftward = 1.0
    if math.isfinite(high):
        leftward = (high - first) / (high - middle)
    return min(anywhere, at_middle * max(rightward, leftward, 1.0) * ROUND_UP)
