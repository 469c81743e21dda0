"""A public number of steps, and the distance to the exact weights that they reach on every dataset.

Theorem 34 of ``docs/theory/weights_certificate.md``. Everything here follows from the form, that is
from public numbers: the radius is known before any record is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.arrays import (
    ROUND_DOWN,
    ROUND_DOWN_SUMS,
    ROUND_UP,
    ROUND_UP_SUMS,
    UNIT,
    Array,
    largest_bound,
)
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.curves.inverse_slope import LARGEST_LOGARITHM, LEAST_POWER
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.bounds.constants import WeightingConstants
from dp2erm_cvx.weighting.bounds.response import base_response, largest_response, mean_response
from dp2erm_cvx.weighting.forms.features import BallSet, ConstantSet, Features, IntervalSet
from dp2erm_cvx.weighting.forms.form import FeatureRows, Group, SumKind, WeightingForm
from dp2erm_cvx.weighting.forms.shapes import shape_of
from dp2erm_cvx.weighting.solving.certificate import response_of_means, squared_gain
from dp2erm_cvx.weighting.solving.dataset import (
    AVERAGED_TARGETS,
    MOST_PAIRS,
    MOST_PIVOTS,
    RECORDS_PER_PIVOT,
    kernel_factors,
    products,
    push_size,
    split_factors,
    sum_units,
)
from dp2erm_cvx.weighting.solving.multipliers import SUM_UNITS
from dp2erm_cvx.weighting.solving.pivoted import SIMILARITY_ERROR

#: What the steps leave, relative to n, beside rounding.
_ACCURACY = 1e-12
#: Sums that computed weights may be off by, relative to n, in the proof; larger ones have no public
#: radius.
_LARGEST_DRIFT = 1e-3
#: A step of the dual takes no less than this smoothness, which keeps its numbers in range.
_LEAST_SMOOTHNESS = 1e-3


@dataclass(frozen=True)
class StepConstants:
    """Public constants of a form that steps and their radius follow from.

    All norms are those of the price: of a coordinate times the root of its smoothness.

    Parameters
    ----------
    response
        Bound of the sum of the responses of all weights, over n.
    diameter
        Bound of the distance of the rows of two records of a block.
    row
        Bound of the norm of the row of a record.
    target
        Bound of the norm of the sum of all targets and the public shift.
    linear
        Bound of the numbers that are added to slopes.
    columns
        Number of coordinates.
    entry_units
        Units of roundoff by which an entry of a kernel may be off; 0 without kernels.
    n
        Number of records.
    """

    response: float
    diameter: float
    row: float
    target: float
    linear: float
    columns: int
    entry_units: float = 0.0
    n: int = 1

    @classmethod
    def of(cls, form: WeightingForm, entry_units: float = 0.0) -> StepConstants:
        """Constants from the sets of the features alone, by the triangle inequality.

        Parameters
        ----------
        form
            The form.
        entry_units
            Units of roundoff by which an entry of a kernel may be off.

        Returns
        -------
        StepConstants
        """
        row = _size_of(form, "weighted")
        of_records = form.n * (
            _size_of(form, "target") + _size_of(form, "mean") + _size_of(form, "public")
        )
        linear = 0.0
        if form.linear is not None:
            linear = _largest_of_rows(form.linear, "weighted")
        return cls(
            response=_response(form),
            diameter=2.0 * row,
            row=row,
            target=of_records + _size_of_shift(form),
            linear=linear,
            columns=sum(len(imbalance.shift) for imbalance in form.imbalances),
            entry_units=entry_units,
            n=form.n,
        )

    def sharpened(self, form: WeightingForm, bounds: WeightingConstants) -> StepConstants:
        """These constants with smaller sizes of rows, where the stability of the form has some.

        Fewer steps follow, and a smaller radius. It holds on every dataset of the universe of the
        bounds. The response is that over the whole box, as weights on the way may exceed the
        largest one of a solution.

        Parameters
        ----------
        form
            The form.
        bounds
            Its constants in a universe, whose rows have another factor: the root of n.

        Returns
        -------
        StepConstants
        """
        if not _has_mean_one(form):
            # The drift of sums is not counted for responses at other means.
            return self
        response = self.response
        if form.base is None:
            low, high = _box(form)
            at_mean = mean_response(form.dispersion, min(low, 1.0), max(high, 1.0), 1.0)
            response = min(response, at_mean)
        root = math.sqrt(form.n)
        return replace(
            self,
            response=response,
            diameter=min(self.diameter, bounds.diameter / root * ROUND_UP_SUMS),
            row=min(self.row, bounds.row_bound / root * ROUND_UP_SUMS),
        )

    @property
    def dual_smoothness(self) -> float:
        """Smoothness of the part of the weights in the dual: ``n R D^2 / 4``."""
        return max(self.n * self.response * self.diameter**2 / 4.0, _LEAST_SMOOTHNESS)

    @property
    def largest_imbalance(self) -> float:
        """Bound of the norm of the imbalance of any weights that have the sums."""
        return self.n * self.row + self.target


def public_steps(form: WeightingForm, constants: StepConstants) -> int:
    """Number of steps after which the steps leave ``1e-12 n`` beside rounding, on every dataset.

    Parameters
    ----------
    form
        The form.
    constants
        Its public constants.

    Returns
    -------
    int
        The number of steps.

    Raises
    ------
    DeclarationError
        Where weights may answer to prices without bound.
    """
    smoothness = constants.dual_smoothness
    if not math.isfinite(smoothness):
        raise DeclarationError(
            "dispersion is not strongly convex over all weights: add cp.sum_squares(w), or a "
            "public cap"
        )
    # k = 2 sqrt(1 + l) log(2 sqrt(2 R l) B / (1e-12 n)) of Theorem 34.
    gain = math.sqrt(2.0 * form.n * constants.response * smoothness)
    start = 2.0 * constants.largest_imbalance
    ratio = gain * start / (_ACCURACY * form.n)
    return max(math.ceil(2.0 * math.sqrt(1.0 + smoothness) * math.log(max(ratio, 1.0))), 1)


def public_radius(
    form: WeightingForm, constants: StepConstants, *, by_features: bool = False
) -> float | None:
    """Distance in the 1-norm, of weights by public steps to exact weights, that no dataset exceeds.

    Parameters
    ----------
    form
        The form.
    constants
        Its public constants, as they are given to ``DualProblem.by_public_steps``.
    by_features
        Whether features of kernels are few on every dataset, so that no pairs of records are ever
        needed.

    Returns
    -------
    float or None
        The radius; None where none is proved: constraints and kinks of the imbalance, powers that
        are cut off within the boxes, sums of parts of which one ends there, sums whose multipliers
        have no public bound, numbers that are too large.

    Raises
    ------
    DeclarationError
        For a price that is no square beside features of a kernel.
    """
    # A price that is no square beside a kernel is refused, whatever the records are.
    kernel_factors(form)
    if form.hard or form.kinked:
        return None
    if not math.isfinite(constants.response):
        return None
    steepest = _steepest_slope(form)
    curve = _curve_rounding(form)
    if steepest is None or curve is None:
        return None
    rounding = _Rounding(form, constants, steepest, curve)
    if not any(one.kernel is not None for one in form.features):
        return rounding.radius(constants.columns, constants.largest_imbalance, _KernelErrors())
    if constants.entry_units <= 0.0:
        return None
    features = rounding.with_features()
    if by_features:
        return features
    pairs = rounding.with_pairs()
    if features is None or pairs is None:
        return None
    # Which of both solves a dataset depends on it.
    return largest_bound(features, pairs)


@dataclass(frozen=True)
class _KernelErrors:
    """What kernels add to the rounding of every step.

    Parameters
    ----------
    price
        Bound of what a price is off.
    position
        Bound of what a point of the dual is off, in the norm of prices.
    """

    price: float = 0.0
    position: float = 0.0


@dataclass(frozen=True)
class _WeightErrors:
    """Bounds of the rounding of the weights at given prices.

    Parameters
    ----------
    computed
        What all weights together are off.
    sums
        What their sums are off, added up.
    """

    computed: float
    sums: float


class _Rounding:
    """Rounding of every step, bounded over all datasets.

    Parameters
    ----------
    form
        The form.
    constants
        Its public constants.
    steepest
        Bound of the slopes of phi at the weights that multipliers are bracketed at.
    curve
        Rounding of weights from their prices.
    """

    def __init__(
        self, form: WeightingForm, constants: StepConstants, steepest: float, curve: _CurveRounding
    ) -> None:
        self.form = form
        self.curve = curve
        self.constants = constants
        self.steepest = steepest
        self.n = form.n
        self.smoothness = constants.dual_smoothness
        self.steps = public_steps(form, constants)
        self.tolerance = _size_of_tolerance(form)
        self.first_price = _size_of_first_price(form)
        self.step_size = _size_of_step(form, self.smoothness)

    def radius(self, columns: int, start: float, kernels: _KernelErrors) -> float | None:
        """The radius of Theorem 34.

        It is ``theta + sum_b hat sigma_b + sqrt(2 R l) (B e^(-k beta / 2) + 2 sqrt(2) eta)``.

        Parameters
        ----------
        columns
            Number of coordinates.
        start
            Bound B of the norm of a slope of the dual where the steps begin.
        kernels
            What kernels add.
        """
        # Prices stay below 7 times the start as long as gradients are off by less than it.
        guess = self.gradient(columns, 7.0 * start + self.first_price, kernels)
        if guess is None or not guess <= start:
            return None
        largest_price = 3.0 * start + 4.0 * guess + self.first_price
        eta = self.gradient(columns, largest_price, kernels)
        weights = self.weights(columns, largest_price, kernels.price)
        if eta is None or weights is None:
            return None
        contraction = 1.0 / math.sqrt(1.0 + self.smoothness)
        left_by_steps = start * math.exp(-self.steps * contraction / 2.0)
        distance = left_by_steps + 2.0 * math.sqrt(2.0) * eta
        gain = math.sqrt(2.0 * self.n * self.response_near() * self.smoothness)
        return (weights.computed + weights.sums + gain * distance) * ROUND_UP_SUMS

    def with_features(self) -> float | None:
        """The radius where features of kernels stand in for the kernel (Theorem 35).

        The steps solve the problem of the features. Its weights are as far from those of the kernel
        as the prices of both, at the same weights, make them: ``vartheta (2 + 2 Z sqrt(F))`` with
        ``vartheta = R xi``.
        """
        pivots = min(self.n // RECORDS_PER_PIVOT, MOST_PIVOTS)
        kernels = kernel_factors(self.form)
        columns = self.constants.columns + 2 * len(kernels) * pivots
        start = self.constants.largest_imbalance * (1.0 + 1e-6)
        of_features = self.radius(columns, start, _KernelErrors())
        if of_features is None:
            return None
        price_error = 0.0
        for features, stacked in kernels.items():
            price_error += self._price_error_of(features, stacked)
        moved = self.n * self.response_near() * price_error
        gain = squared_gain(self.n * self.constants.response, self.constants.diameter)
        factor = 2.0 + 2.0 * self.constants.row * math.sqrt(gain)
        return of_features + moved * factor * (1.0 + 1e-6)

    def with_pairs(self) -> float | None:
        """The radius where pairs of records stand in for the kernel (Theorem 35)."""
        if self.n > MOST_PAIRS:
            # Whether features suffice depends on the records, and so would a refusal.
            return None
        constants = self.constants
        mass = 3.0 * _mass_of_points(self.smoothness, self.steps) * self.n * (1.0 + _LARGEST_DRIFT)
        n_points = 0
        for features in self.form.features:
            if features.points is not None:
                n_points = max(n_points, len(features.points))
        units = (constants.entry_units + constants.columns + self.n + n_points + 24.0) * UNIT
        price = 1.01 * units * (constants.row**2 * mass + constants.row * constants.target)
        position = 8.0 * UNIT * constants.row * (mass + self.n)
        start = 2.0 * constants.largest_imbalance
        return self.radius(constants.columns, start, _KernelErrors(price, position))

    def gradient(self, columns: int, largest_price: float, kernels: _KernelErrors) -> float | None:
        """Bound eta of the error of a gradient of the dual, with everything that a step rounds.

        Parameters
        ----------
        columns
            Number of coordinates.
        largest_price
            Bound of the norm of prices.
        kernels
            What kernels add.
        """
        weights = self.weights(columns, largest_price, kernels.price)
        if weights is None:
            return None
        u = UNIT
        constants = self.constants
        reached = constants.largest_imbalance * (1.0 + _LARGEST_DRIFT)
        width = max([columns, *(features.width for features in self.form.features)])
        summed = (2.0 * sum_units(self.n) + width + 16.0) * u * reached
        units = 16.0
        for imbalance in self.form.imbalances:
            units = largest_bound(units, shape_of(imbalance.penalty).step_units(columns))
        sizes = 6.0 * largest_price + self.tolerance + self.step_size
        rounded = units * u * ((1.0 + self.smoothness) * sizes + reached)
        return (
            constants.row * (weights.computed + weights.sums)
            + summed
            + rounded
            + (1.0 + self.smoothness) * kernels.position
        )

    def weights(
        self, columns: int, largest_price: float, price_error: float
    ) -> _WeightErrors | None:
        """Bounds of the rounding of weights at prices of a bounded norm; None for large ones.

        Parameters
        ----------
        columns
            Number of coordinates.
        largest_price
            Bound of the norm of prices.
        price_error
            What prices are off beside the rounding of their sums.
        """
        u = UNIT
        n = self.n
        constants = self.constants
        score = constants.row * (largest_price + self.tolerance) + constants.linear
        multiplier = score + self.steepest
        argument = score + multiplier
        # Prices that are off by xi move weights by at most xi R in all.
        error = 2.0 * (columns + 8.0) * u * argument + price_error
        error += self.curve.price_error(argument)
        response = self.response_near()
        formula = self.curve.units * u * n * (1.0 + self.curve.offset + _LARGEST_DRIFT)
        computed = n * response * error + formula
        summing = sum_units(n) * u * n * (1.0 + _LARGEST_DRIFT)
        # Bisection of a multiplier ends at the rounding of prices, or where the sum is met.
        bracket = (score + 4.0 * multiplier + 4.0 * score) * u
        n_blocks = 2.0
        if self.form.sums.kind in (SumKind.ALL, SumKind.CONTROLS, SumKind.TREATED):
            n_blocks = 1.0
        of_bracket = n_blocks * (bracket * n * response)
        sums = SUM_UNITS * u * n + of_bracket + 2.0 * (computed + summing)
        sums += computed + summing
        if not sums + computed <= _LARGEST_DRIFT * n:
            return None
        return _WeightErrors(computed, sums)

    def response_near(self) -> float:
        """The response of weights whose sums are off by the largest drift."""
        return self.constants.response * _drift_factor(self.form)

    def _price_error_of(self, features: Features, stacked: Array) -> float:
        """Bound of what features of a kernel move a price by, at any weights of the form."""
        pull, push = products(stacked)
        n_averaged = np.count_nonzero(np.any(push[:, AVERAGED_TARGETS] != 0.0, axis=0))
        _, _, split_error = split_factors(pull, push)
        factor_error = (1.0 + n_averaged) * split_error + 16.0 * UNIT
        largest_factor = max(float(np.max(np.abs(pull))), push_size(push))
        # similarities are off by at most this, and factors by theirs
        of_similarities = 1.01 * largest_factor * (SIMILARITY_ERROR + 1e-14)
        of_factors = 1.01 * factor_error * max(largest_factor, 1.0)
        error = of_similarities + of_factors
        # the mass of weights and targets is at most 2 n
        return error * _norm_of(features) ** 2 * 2.0 * self.n


def _mass_of_points(smoothness: float, steps: int) -> float:
    """Bound of ``|omega|_1 / n`` over accelerated steps.

    Every step is linear in the weights of all steps before it. Every point is a combination of the
    even weights and of the weights of all steps; the sizes of its factors are those of the answer
    of the steps to one of them alone.
    """
    contraction = 1.0 / math.sqrt(1.0 + smoothness)
    momentum = (1.0 - contraction) / (1.0 + contraction)
    share = 1.0 / (1.0 + smoothness)

    def after(last: float, new: float) -> float:
        return (1.0 - share) * ((1.0 + momentum) * new - momentum * last)

    # Factors, in the last two points, of the even weights and of the weights of one step.
    even_last = 1.0
    even = 1.0
    answer_last = 0.0
    answer = share
    largest = 0.0
    mass = 0.0
    for _ in range(steps + 1):
        mass += abs(answer)
        largest = largest_bound(largest, abs(even) + mass)
        even_after = after(even_last, even)
        even_last = even
        even = even_after
        answer_after = after(answer_last, answer)
        answer_last = answer
        answer = answer_after
    return largest


def _norm_of(features: Features) -> float:
    """Bound of the norm of a feature."""
    within = features.within
    if isinstance(within, ConstantSet):
        return 1.0
    if isinstance(within, BallSet):
        return within.radius
    if isinstance(within, IntervalSet):
        return max(abs(within.low), abs(within.high))
    return math.sqrt(within.bound)


def _largest_of_rows(part: FeatureRows, which: str) -> float:
    """Bound of the norm of the rows, of the targets, or of the means that a feature makes."""
    factors_of = {
        "weighted": part.weighted,
        "target": part.target,
        "mean": part.mean,
        "public": np.array([part.public]),
    }
    factors: Array = np.abs(factors_of[which])
    largest = float(np.max(factors))
    if which == "mean":
        # A record has one arm, and a target the means of both.
        largest = float(np.sum(factors))
    if part.features.kernel is not None:
        return largest * abs(float(part.matrix[0, 0])) * _norm_of(part.features)
    # The Frobenius norm bounds the largest singular value and has no rounding to speak of.
    frobenius = float(np.linalg.norm(part.matrix))
    size = min(frobenius, float(np.linalg.norm(part.matrix, 2)) * ROUND_UP_SUMS)
    return largest * size * _norm_of(part.features)


def _size_of_group(group: Group, which: str) -> float:
    """The same for a group of features, whose rows are added."""
    return sum(_largest_of_rows(part, which) for part in group)


def _size_of(form: WeightingForm, which: str) -> float:
    """Bound of the norm of a row or a target of one record, over all imbalances."""
    square = 0.0
    for imbalance in form.imbalances:
        groups = sum(_size_of_group(group, which) ** 2 for group in imbalance.groups)
        square += imbalance.penalty.smoothness * groups
    return math.sqrt(square) * ROUND_UP_SUMS


def _size_of_shift(form: WeightingForm) -> float:
    """Norm of all public targets."""
    square = 0.0
    for imbalance in form.imbalances:
        square += imbalance.penalty.smoothness * float(np.sum(np.square(imbalance.shift)))
    return math.sqrt(square) * ROUND_UP_SUMS


def _size_of_tolerance(form: WeightingForm) -> float:
    """Norm of all tolerances."""
    square = 0.0
    for imbalance in form.imbalances:
        stated = np.asarray(imbalance.penalty.tolerance)
        tolerance = np.broadcast_to(stated, np.shape(imbalance.shift))
        square += imbalance.penalty.smoothness * float(np.sum(np.square(tolerance)))
    return math.sqrt(square)


def _size_of_first_price(form: WeightingForm) -> float:
    """Norm of the prices at the imbalance 0, where steps begin."""
    square = 0.0
    for imbalance in form.imbalances:
        slope = imbalance.penalty.slope_at_zero(len(imbalance.shift))
        if np.any(slope):
            square += float(np.sum(np.square(slope))) / imbalance.penalty.smoothness
    return math.sqrt(square) * ROUND_UP_SUMS


def _size_of_step(form: WeightingForm, smoothness: float) -> float:
    """Norm of what proximal steps add to the numbers that they are taken of."""
    square = 0.0
    for imbalance in form.imbalances:
        penalty = imbalance.penalty
        if penalty.smooth and penalty.smoothness > 0.0:
            added = penalty.added_by_step(len(imbalance.shift), smoothness / penalty.smoothness)
            square += penalty.smoothness * added**2
    return math.sqrt(square)


def _box(form: WeightingForm) -> tuple[float, float]:
    """Ends of all weights: no weight exceeds n, nor a computed one n and the largest drift."""
    low = max(float(np.min(form.low)), 0.0)
    return low, max(min(float(np.max(form.cap)), form.n * (1.0 + 4.0 * _LARGEST_DRIFT)), low)


def _has_mean_one(form: WeightingForm) -> bool:
    """Whether the weights of every dataset have mean 1."""
    return form.sums.kind in (SumKind.ALL, SumKind.PUBLIC, SumKind.COUNTS)


def _bases(form: WeightingForm) -> tuple[float, float]:
    """Least and largest base of a record; 1 without bases, 0 and infinite where none is public."""
    if form.base is None:
        return 1.0, 1.0
    within = form.base.within
    if isinstance(within, IntervalSet) and within.low > 0:
        return within.low, within.high
    return 0.0, math.inf


def _response(form: WeightingForm) -> float:
    """Bound of the sum of all responses, over n."""
    low, high = _box(form)
    least, largest = _bases(form)
    if least <= 0.0:
        return math.inf
    if not _has_mean_one(form):
        return largest * largest_response(form.dispersion, low / largest, high / least)
    if form.base is not None:
        return base_response(form.dispersion, (low / largest, high / least), (least, largest))
    return response_of_means(form.dispersion, (low, high), (1.0, 1.0))


def _drift_factor(form: WeightingForm) -> float:
    """How much larger the response is where the mean weight is off by the largest drift."""
    if not _has_mean_one(form):
        return 1.0
    low, high = _box(form)
    room = min(1.0 - low, high - 1.0)
    if room <= 0.0:
        # All weights are at an end of their box.
        return 1.0
    return 1.0 + _LARGEST_DRIFT / room


def _steepest_slope(form: WeightingForm) -> float | None:
    """Bound of the slopes of phi at weights in the boxes that have the sums, or None.

    Multipliers are bracketed at these weights (Theorem 34 (c)).
    """
    ratios = _bracketing_ratios(form)
    steepest = max(_slope_size(form.dispersion, ratio) for ratio in ratios)
    if not math.isfinite(steepest):
        return None
    return steepest * ROUND_UP_SUMS


def _bracketing_ratios(form: WeightingForm) -> tuple[float, float]:
    """Least and largest ratio of these weights and their bases."""
    kind = form.sums.kind
    least, largest = _bases(form)
    alike = form.alike_boxes
    equal_boxes = alike and form.low[0] == form.low[1] and form.cap[0] == form.cap[1]
    if equal_boxes and kind in (SumKind.ALL, SumKind.COUNTS):
        return 1.0 / largest, 1.0 / least
    if alike and kind in (SumKind.CONTROLS, SumKind.TREATED):
        # The mean weight of at most n controls, of the sum n or of at least one treated record.
        mean = 1.0
        if kind is SumKind.TREATED:
            mean = 1.0 / form.n
        low = max(mean, float(form.low[0]))
        high = min(float(form.cap[0]), float(form.n))
        return low / largest, high / least
    if alike and kind is SumKind.ALL:
        weights = _bracketing_weights(form)
        return min(weights) / largest * ROUND_DOWN, max(weights) / least * ROUND_UP
    low, high = _box(form)
    if kind is SumKind.PUBLIC and form.sums.public is not None and equal_boxes:
        low = max(low, min(form.sums.public) / form.n)
    return low / largest, high / least


def _bracketing_weights(form: WeightingForm) -> list[float]:
    """Least and largest weights, of each arm, that the multiplier of one sum is bracketed at.

    These are ``low + theta (cap - low)`` with one theta for all records, so that they have mean 1.
    Of n records theta is the mean of ``1 - low`` over that of ``cap - low``, which lies between the
    ratios of both arms. It is computed with rounding.
    """
    cap = np.minimum(form.cap, float(form.n))
    width = cap - form.low
    if np.any(width <= 0.0):
        return [float(np.min(form.low)), float(np.max(cap))]
    shares = (1.0 - form.low) / width
    rounded = 8.0 * form.n * UNIT * (1.0 + 1.0 / float(np.min(width)))
    weights: list[float] = []
    for share in (np.min(shares) - rounded, np.max(shares) + rounded):
        weights += list(form.low + np.clip(share, 0.0, 1.0) * width)
    return weights


def _slope_size(dispersion: Dispersion, weight: float) -> float:
    """Bound of the size of the slope of phi at one weight; infinite where it has none."""
    first, last = dispersion.ends
    if first < weight < last:
        return abs(float(dispersion.slope(np.array(weight))))
    if weight not in (first, last) or not dispersion.finite_slopes:
        return math.inf
    # Computed slopes of powers are above 0 there: in a sum they could hide the slope of a line.
    return sum(abs(float(part.slope(np.array(weight)))) for part in dispersion.parts)


#: Prices over the leading factors of powers, in size, beyond which no radius is stated.
_LARGEST_PRICE = 1e110


@dataclass(frozen=True)
class _CurveRounding:
    """Rounding of weights from their prices, with a formula (Theorem 34 (b) of the page).

    Parameters
    ----------
    n_parts
        Number of parts of the dispersion.
    constants
        Size of the constants in the slope of phi, in prices.
    offset
        Size of those in its inverse, in weights.
    units
        Units of roundoff of a weight and the offset.
    largest_price
        Size of a price from which on the formula cuts it off.
    """

    n_parts: int
    constants: float
    offset: float
    units: float = 40.0
    largest_price: float = math.inf

    def price_error(self, argument: float) -> float:
        """What a price of at most this size is off in effect; infinite where that is unknown.

        Parameters
        ----------
        argument
            Bound of the size of a price.
        """
        if argument > self.largest_price:
            return math.inf
        return (self.n_parts + 24.0) * UNIT * (argument + self.constants)


@dataclass(frozen=True)
class _BracketRounding(_CurveRounding):
    """Rounding of weights that are found in brackets (section "Powers and brackets" of the page).

    Parameters
    ----------
    bounded
        Bound of the sum of the sizes of the slopes of all parts that have a bounded one, in prices.
    bend
        Bound of a weight times the curvature of squares, Huber functions and entropies, in prices.
    log_power
        Bound of the logarithm of a power with a bounded slope, or with a rising one.
    least_leading
        Least leading factor of a power that falls from infinity; infinite without any.
    largest_rate
        Largest size of an exponent less 1, and at least 1.
    """

    bounded: float = 0.0
    bend: float = 0.0
    log_power: float = 0.0
    least_leading: float = math.inf
    largest_rate: float = 1.0

    def price_error(self, argument: float) -> float:
        sizes = (argument + 2.0 * self.constants + 2.0 * self.bounded) * (1.0 + 1e-6)
        logarithm = max(self.log_power, math.log(max(sizes / self.least_leading, 1.0)))
        slopes = (self.n_parts + 26.0 + 2.0 * self.largest_rate + logarithm) * sizes
        last_step = 2.0 * (self.largest_rate * sizes + self.bend)
        return UNIT * (slopes + last_step)


def _curve_rounding(form: WeightingForm) -> _CurveRounding | None:
    """Rounding of the weights of a form from their prices; None where none is proved."""
    dispersion = form.dispersion
    if dispersion.family == "general":
        return _rounding_of_brackets(form)
    constants, offset = _sizes_of_curve(form)
    rounding = _CurveRounding(len(dispersion.parts), constants, offset)
    if dispersion.family != "power":
        return rounding
    low, high = _box(form)
    least, largest = _bases(form)
    (part,) = (part for part in dispersion.parts if part.atom == "power")
    first = part.factor * low / largest + part.offset
    last = part.factor * high / least + abs(part.offset)
    if not _cut_beyond_box(part, first, last):
        return None
    # 40 + 16 log(1 + t_max) + 8 d_+ / k, as an exponential is off by as many units as its argument
    # has.
    units = rounding.units + 16.0 * math.log(last + 1.0) + 8.0 * largest / part.factor
    return replace(rounding, units=units, largest_price=_LARGEST_PRICE * _leading(part))


def _cut_beyond_box(part: DispersionPart, first: float, last: float) -> bool:
    """Whether the formula of a power cuts off numbers ``k w + c``.

    It may do so beyond those of the box, or below roundoff.

    Parameters
    ----------
    part
        The power.
    first, last
        Bounds of the numbers in the box.
    """
    if part.number == 1.0 or last >= math.exp(LARGEST_LOGARITHM - 1.0):
        return False
    cut = math.log(LEAST_POWER) / (part.number - 1.0)
    if part.number > 1.0:
        return cut <= math.log(max(UNIT / 2.0, first * ROUND_DOWN_SUMS))
    return cut >= math.log(last * ROUND_UP_SUMS)


def _leading(part: DispersionPart) -> float:
    """The size of the factor of ``(k w + c)^(p - 1)`` in the slope of a power."""
    return abs(part.scale * part.factor * part.number)


def _rounding_of_brackets(form: WeightingForm) -> _BracketRounding | None:
    """Of weights without a formula; None where a part ends inside of the boxes.

    The numbers are those of "Bound of e" (section "Powers and brackets" of the page).
    """
    low, high = _box(form)
    least, largest = _bases(form)
    ends = np.array([low / largest, high / least])
    constants, _ = _sizes_of_curve(form)
    bounded = 0.0
    bend = 0.0
    log_power = 0.0
    least_leading = math.inf
    largest_rate = 1.0
    for part in form.dispersion.parts:
        sizes = _sizes_of_part(part, ends)
        if sizes is None:
            return None
        bounded += sizes.bounded
        bend += sizes.bend
        constants += sizes.slope_near_one
        constants += sizes.power_near_one
        log_power = max(log_power, sizes.log_power)
        least_leading = min(least_leading, sizes.falling_leading)
        largest_rate = max(largest_rate, sizes.rate)
    # 66 halvings in 400 steps, and two units of a weight.
    units = 40.0 + 2.0**-13 * largest * ends[1]
    return _BracketRounding(
        n_parts=len(form.dispersion.parts),
        constants=constants,
        offset=0.0,
        units=units,
        bounded=bounded,
        bend=bend,
        log_power=log_power,
        least_leading=least_leading,
        largest_rate=largest_rate,
    )


@dataclass(frozen=True)
class _PartSizes:
    """What one part ``s psi(k w + c)`` of a dispersion adds to the rounding of brackets.

    Parameters
    ----------
    bounded
        Bound of the size of its slopes where they are bounded, else 0: a term of G.
    bend
        Bound of a weight times its curvature, of squares, Huber functions and entropies.
    slope_near_one
        ``s k (1 + |log k| + 1 / k)``, a term of C; 0 for parts without a pole.
    power_near_one
        ``|l| max(1, k^(p - 1))`` of a power with the leading factor l, a term of C; else 0.
    log_power
        Bound of the logarithm of a power with a bounded slope, or with a rising one.
    falling_leading
        Leading factor of a power that falls from infinity; else infinite.
    rate
        Size of the exponent of a power less 1; else 1.
    """

    bounded: float = 0.0
    bend: float = 0.0
    slope_near_one: float = 0.0
    power_near_one: float = 0.0
    log_power: float = 0.0
    falling_leading: float = math.inf
    rate: float = 1.0


def _sizes_of_part(part: DispersionPart, ends: Array) -> _PartSizes | None:
    """The sizes of one part ``s psi(k w + c)`` at ratios w between two ends.

    Parameters
    ----------
    part
        The part.
    ends
        Least and largest ratio (2,).

    Returns
    -------
    _PartSizes or None
        None where the part may end between the ends.
    """
    size = abs(part.scale * part.factor)
    if part.atom in ("square", "huber"):
        # 2 s |k| (|k| hi + |c|), and w times the curvature 2 s k^2
        slope = 2.0 * size * (abs(part.factor) * ends[1] + abs(part.offset))
        return _PartSizes(bounded=slope, bend=2.0 * size * abs(part.factor) * ends[1])
    if part.atom in ("line", "size"):
        return _PartSizes(bounded=size)
    arguments = part.factor * ends + part.offset
    if part.offset != 0.0 and float(np.min(arguments)) > 0.0:
        return _sizes_off_pole(part, ends, arguments)
    if part.offset == 0.0 and part.factor > 0.0:
        return _sizes_at_pole(part, arguments)
    return None


def _sizes_off_pole(part: DispersionPart, ends: Array, arguments: Array) -> _PartSizes:
    """Sizes of an entropy, a logarithm or a power whose arguments t = k w + c stay above 0.

    Its slopes are bounded.
    """
    size = abs(part.scale * part.factor)
    # chi, how much larger the terms of k w + c may be than their sum
    chi = 1.0
    if part.factor < 0.0 or part.offset < 0.0:
        chi = (abs(part.factor) * ends[1] + abs(part.offset)) / float(np.min(arguments))
    largest_slope = float(np.max(np.abs(part.slope(ends))))
    log_power = 0.0
    if part.atom == "power":
        log_power = _exponent_of_slope(part) * float(np.max(np.abs(np.log(arguments))))
    bounded = chi * (largest_slope + size)
    return replace(_sizes_with_any_offset(part), bounded=bounded, log_power=log_power)


def _sizes_at_pole(part: DispersionPart, arguments: Array) -> _PartSizes:
    """Sizes of an entropy, a logarithm or a power of ``k w``, k > 0, whose pole is at the ratio 0.

    Of powers with a rising slope the logarithm is bounded by that at the largest argument; those
    that fall from infinity count with their leading factor.
    """
    sizes = _sizes_with_any_offset(part)
    if part.atom != "power":
        return sizes
    if part.number > 1.0:
        largest_logarithm = math.log(max(arguments[1], 1.0))
        return replace(sizes, log_power=_exponent_of_slope(part) * largest_logarithm)
    return replace(sizes, falling_leading=_leading(part))


def _sizes_with_any_offset(part: DispersionPart) -> _PartSizes:
    """Sizes that an entropy, a logarithm or a power has whatever its offset."""
    size = abs(part.scale * part.factor)
    slope_near_one = size * (1.0 + abs(math.log(abs(part.factor))) + 1.0 / abs(part.factor))
    if part.atom == "entropy":
        return _PartSizes(bend=size, slope_near_one=slope_near_one)
    if part.atom == "log":
        return _PartSizes(slope_near_one=slope_near_one)
    power_near_one = _leading(part) * max(1.0, abs(part.factor) ** (part.number - 1.0))
    return _PartSizes(
        slope_near_one=slope_near_one,
        power_near_one=power_near_one,
        rate=_exponent_of_slope(part),
    )


def _exponent_of_slope(part: DispersionPart) -> float:
    """The size of the exponent of the slope of a power, ``|p - 1|``."""
    return abs(part.number - 1.0)


def _sizes_of_curve(form: WeightingForm) -> tuple[float, float]:
    """Sizes of constants in the slope of phi, in prices, and in its inverse, in weights."""
    prices = 0.0
    offset = 0.0
    _, largest = _bases(form)
    for part in form.dispersion.parts:
        size = abs(part.scale * part.factor)
        prices += size * (4.0 + 2.0 * abs(part.offset) + abs(math.log(abs(part.factor))))
        if part.atom != "line":
            offset = max(offset, largest * abs(part.offset / part.factor))
    return prices, 2.0 * offset
