"""Public constants of a weighting form, and how far its weights move with one record.

The theorems and their proofs are in ``docs/theory/weights_as_variable.md``; names here are those of
the page. Nothing here sees data: everything follows from the form, which is public, and from the
universe.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dp2erm_cvx.arrays import ROUND_DOWN_SUMS, Array, largest_bound
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.stability.base import outward
from dp2erm_cvx.weighting.bounds.diameters import (
    RecordCombinations,
    ScaledImbalance,
    largest_squares,
)
from dp2erm_cvx.weighting.bounds.largest import (
    GradientBounds,
    block_diameter,
    largest_by_size,
    start_squares,
)
from dp2erm_cvx.weighting.bounds.moved_targets import MovedTarget, moved_targets
from dp2erm_cvx.weighting.bounds.response import (
    base_response,
    controls_response,
    mean_response,
    treated_response,
)
from dp2erm_cvx.weighting.forms.arm_sizes import ArmSizes, check_feasible, check_means
from dp2erm_cvx.weighting.forms.features import IntervalSet
from dp2erm_cvx.weighting.forms.form import (
    FeatureRows,
    Imbalance,
    ImbalancePenalty,
    SumKind,
    WeightingForm,
)
from dp2erm_cvx.weighting.forms.proximal import ROUGH

#: Boxes of largest weights near either end of the arm sizes, and about so many between.
_NEAR = 16

#: All arms that two records may have.
_ALL_PAIRS = tuple(itertools.product((0, 1), (0, 1)))
#: Arms in words.
_ARMS = ("control", "treated record")


@dataclass(frozen=True)
class PairBound:
    """Bound on the movement of the weights for given arms of the replaced record.

    Parameters
    ----------
    arms
        Its arm before and after.
    largest
        Its largest weights before and after.
    kappa
        Largest pull ``|w'(z' - zbar) - w(z - zbar) - n(t' - t)|`` that its replacement exerts, over
        the corners of the box of its weights, in scaled rows.
    V
        The bound, of the weights as they are solved for.
    """

    arms: tuple[int, int]
    largest: tuple[float, float]
    kappa: float
    V: float


@dataclass(frozen=True)
class WeightingConstants:
    """Public constants of a weighting form in a universe.

    Rows are scaled by ``sqrt(n * smoothness)``.

    Rows with kinks are not among the scaled ones.

    Parameters
    ----------
    response
        R, a bound on the mean of ``q = 1/phi''`` over records; infinite where phi may be flat.
    diameter
        D, the largest distance of two rows of one block, scaled.
    row_bound
        Z, the largest norm of a row, scaled.
    target_diameter
        T, the largest movement ``|n(t' - t)|`` of the target, scaled.
    start
        The largest norm of the imbalance, over n, of weights that are equal within every block,
        scaled.
    largest
        W, bounds of the weights of controls and treated, as they are solved for.
    factor
        ``F = R A / (1 + A)^2`` with ``A = min(1, R D^2 / 4)``.
    pairs
        A bound for each pair of arms that a replaced record may have.
    release_factor
        Largest factor by which weights are multiplied for their release, so that their sum is n: 1,
        or ``n / (2 n_1)`` at the floor of the treated where those weigh 1.
    V
        Bound on ``sum_{i != j} |w_i - w'_i| + w_j + w'_j`` of the *released* weights, which have
        the sum n.
    theorem
        Which theorem gave V.
    limits
        What V is limited by, in a sentence.
    smoothing
        What a smoothed kink leaves out, in a sentence; empty where none was smoothed.
    """

    response: float
    diameter: float
    row_bound: float
    target_diameter: float
    start: float
    largest: tuple[float, float]
    factor: float
    pairs: tuple[PairBound, ...]
    release_factor: float
    V: float
    theorem: str
    limits: str
    smoothing: str


def weighting_constants(
    form: WeightingForm, arm_floors: tuple[int, int], keeps_treatment: bool
) -> WeightingConstants:
    """All constants of a form, for neighbors that differ in one replaced record of a universe.

    Parameters
    ----------
    form
        The form.
    arm_floors
        Public lower bounds on the numbers of controls and of treated; 0 where there are none.
    keeps_treatment
        Whether the replaced record keeps its arm.

    Returns
    -------
    WeightingConstants
        The constants.

    Raises
    ------
    CalibrationError
        If some dataset of the universe has no weights, or no theorem covers the form.
    DeclarationError
        If floors or sums are invalid.
    """
    sizes = ArmSizes(form.n, arm_floors)
    check_feasible(form, sizes)
    check_means(form, sizes)
    _check_covered(form)
    gradients = _gradient_bounds(form)
    starts = start_squares(form, sizes, gradients.smooth)
    by_size = largest_by_size(form, sizes, gradients, starts)
    largest = (float(np.max(by_size[0])), float(np.max(by_size[1])))
    response = _response(form, sizes, largest, keeps_treatment)
    diameter = block_diameter(gradients.smooth, _pairs_within_blocks(form, sizes))
    # n Gamma of the smooth penalties, the largest s = n |Delta|; infinite for squares.
    spread = _Spread(form.n, response, diameter, gradients, form.n * gradients.diameter)
    pairs = []
    for kind in _pair_kinds(form, sizes, by_size, keeps_treatment):
        pairs.append(_pair_bound(kind, spread))
    V, theorem, limits = _stated(form, sizes, spread, pairs)
    return WeightingConstants(
        response=response,
        diameter=diameter,
        row_bound=_largest_norm_of_rows(gradients.smooth, sizes.arms),
        target_diameter=_target_diameter(form, sizes, gradients, keeps_treatment),
        start=float(np.sqrt(np.max(starts))),
        largest=largest,
        factor=spread_factor(response, diameter),
        pairs=tuple(pairs),
        release_factor=_release_factor(form, sizes),
        V=V,
        theorem=theorem,
        limits=limits,
        smoothing=_smoothing(form),
    )


def spread_factor(response: float, diameter: float) -> float:
    """``F = R A / (1 + A)^2`` with ``A = min(1, R D^2 / 4)``: at most R/4 (Theorem 5).

    Parameters
    ----------
    response
        R.
    diameter
        D, in scaled rows.

    Returns
    -------
    float
        F; infinite where R is.
    """
    if math.isinf(response):
        return math.inf
    share = min(1.0, response * diameter**2 / 4.0)
    return response * share / (1.0 + share) ** 2


def _check_covered(form: WeightingForm) -> None:
    """Refuse what no theorem on the page covers. Raises CalibrationError."""
    for imbalance in form.imbalances:
        if imbalance.penalty.rough:
            raise CalibrationError(f"{imbalance.text or 'a penalty'}: {ROUGH}")
    if form.base is None:
        return
    within = form.base.within
    if not isinstance(within, IntervalSet) or not within.low > 0.0:
        raise CalibrationError("base weights lie in a public interval above 0: declare one")
    start, end = form.dispersion.ends
    if start > 0.0 or math.isfinite(end):
        # A record of a small or large base might have no weight near 1.
        raise CalibrationError(
            "base weights beside a dispersion that ends above 0: write one of all positive "
            "weights, such as cp.kl_div, and bounds as constraints"
        )
    if form.sums.kind in (SumKind.CONTROLS, SumKind.TREATED):
        raise CalibrationError(
            "base weights beside weights of the controls alone have no theorem: write one sum or "
            "sums by arm"
        )


def _coordinates(imbalance: Imbalance) -> int:
    """Number of coordinates of an imbalance."""
    return sum(len(group[0].matrix) for group in imbalance.groups)


def _gradient_bounds(form: WeightingForm) -> GradientBounds:
    """The imbalances, scaled where their penalties are smooth, and what bounds their gradients."""
    smooth = []
    kinks = []
    kink_sizes = []
    kink_diameters = []
    squared_norm = 0.0
    squared_diameter = 0.0
    linear = _linear_diameter(form)
    for imbalance in form.imbalances:
        penalty = imbalance.penalty
        coordinates = _coordinates(imbalance)
        if penalty.smooth and penalty.smoothness > 0.0:
            scale = math.sqrt(form.n * penalty.smoothness)
            smooth.append(ScaledImbalance(imbalance, scale))
            squared_norm += (penalty.gradient_size(coordinates) / scale) ** 2
            squared_diameter += (penalty.gradient_diameter(coordinates) / scale) ** 2
            linear += _pull_at_zero(imbalance)
        elif penalty.kinked:
            kinks.append(ScaledImbalance(imbalance, 1.0))
            kink_sizes.append(penalty.gradient_size(coordinates))
            kink_diameters.append(penalty.gradient_diameter(coordinates))
    return GradientBounds(
        smooth=smooth,
        kinks=kinks,
        kink_sizes=kink_sizes,
        kink_diameters=kink_diameters,
        gradient_norm=outward(math.sqrt(squared_norm)),
        diameter=outward(math.sqrt(squared_diameter)),
        linear=linear,
    )


def _pull_at_zero(imbalance: Imbalance) -> float:
    """Largest difference of ``<z, P'(0)>`` of two records.

    It is a linear term of the bounds W1 and W2 on the largest weight (section "The largest weight"
    of the page).
    """
    slope = imbalance.penalty.slope_at_zero(_coordinates(imbalance))
    if not np.any(slope):
        return 0.0
    directions: dict[str, Array] = {}
    begin = 0
    for group in imbalance.groups:
        end = begin + len(group[0].matrix)
        for part in group:
            name = part.features.name
            by_arm = part.weighted[:, None] * (slope[begin:end] @ part.matrix)
            directions[name] = directions.get(name, 0.0) + by_arm
        begin = end
    if not any(np.any(direction) for direction in directions.values()):
        # An imbalance that is priced on both of its sides is pulled to neither.
        return 0.0
    rows = block_diameter([ScaledImbalance(imbalance, 1.0)], _ALL_PAIRS)
    return outward(float(np.linalg.norm(slope)) * rows)


def _linear_diameter(form: WeightingForm) -> float:
    """Largest difference of the linear terms of two records."""
    if form.linear is None:
        return 0.0
    return block_diameter([_unpriced(form.linear)], _ALL_PAIRS)


def _unpriced(rows: FeatureRows) -> ScaledImbalance:
    """An imbalance of one group, whose penalty does not matter."""
    shift = np.zeros(len(rows.matrix))
    return ScaledImbalance(Imbalance(((rows,),), shift, ImbalancePenalty(1.0)), 1.0)


def _response(
    form: WeightingForm, sizes: ArmSizes, largest: tuple[float, float], keeps_treatment: bool
) -> float:
    """R, by the weights and the mean that the paragraph "Constants" of the page gives."""
    n = form.n
    kind = form.sums.kind
    if kind is SumKind.CONTROLS:
        return controls_response(form.dispersion, largest[0], sizes.most(0) / n)
    if kind is SumKind.TREATED:
        total = 1.0
        if sizes.may_change and not keeps_treatment:
            total = 1.0 + 0.5 / n
        shares = (sizes.least(0) / n, sizes.most(0) / n)
        return treated_response(form.dispersion, largest[0], shares, total)
    low = float(np.min(form.low[list(sizes.arms)]))
    high = max(largest[arm] for arm in sizes.arms)
    if form.base is None:
        return mean_response(form.dispersion, min(low, 1.0), max(high, 1.0), 1.0)
    within = form.base.within
    assert isinstance(within, IntervalSet)
    ratios = (low / within.high, high / within.low)
    return base_response(form.dispersion, ratios, (within.low, within.high))


def _arm_pairs(sizes: ArmSizes, keeps_treatment: bool) -> list[tuple[int, int]]:
    """Arms that a replaced record may have before and after."""
    if sizes.may_change and not keeps_treatment:
        return list(itertools.product(sizes.arms, sizes.arms))
    return [(arm, arm) for arm in sizes.arms]


def _pairs_within_blocks(form: WeightingForm, sizes: ArmSizes) -> list[tuple[int, int]]:
    """Arms of two records of one block."""
    if form.sums.kind is SumKind.ALL:
        return list(itertools.product(sizes.arms, sizes.arms))
    if form.sums.kind in (SumKind.CONTROLS, SumKind.TREATED):
        return [(0, 0)]
    return [(arm, arm) for arm in sizes.arms]


def _largest_norm_of_rows(imbalances: Sequence[ScaledImbalance], arms: Sequence[int]) -> float:
    """Largest norm of the row of a record of any of these arms."""
    if not imbalances:
        return 0.0
    ones = np.ones((len(arms), 1))
    rows = RecordCombinations(ones, np.zeros_like(ones), np.array(arms)[:, None])
    return float(np.sqrt(np.max(largest_squares(imbalances, rows))))


def _target_diameter(
    form: WeightingForm, sizes: ArmSizes, gradients: GradientBounds, keeps_treatment: bool
) -> float:
    """Largest movement of the target, scaled."""
    if not gradients.smooth:
        return 0.0
    largest = 0.0
    for before, after in _arm_pairs(sizes, keeps_treatment):
        for moved in moved_targets(form, sizes, before, after):
            squares = largest_squares(gradients.smooth, moved.alone())
            largest = largest_bound(largest, float(np.sqrt(np.max(squares))))
    return largest


@dataclass(frozen=True)
class _PairKind:
    """Pairs of datasets whose replaced record has given arms, with one choice of common rows.

    Parameters
    ----------
    form
        The form.
    before, after
        Arms of the replaced record.
    common
        Arm of the common row of each block whose sum moves.
    least
        Its least weights before and after.
    largest
        Largest weights before and after, (boxes, 2): each pair of datasets has both in one of the
        boxes.
    targets
        Movements of the target, of whose convex hull that of every pair is a member.
    """

    form: WeightingForm
    before: int
    after: int
    common: tuple[int, ...]
    least: tuple[float, float]
    largest: Array
    targets: tuple[MovedTarget, ...]

    def gains(self, w: float, v: float) -> tuple[float, ...]:
        """delta_b, what the other records of each block gain, for weights w before and v after."""
        kind = self.form.sums.kind
        if self.before == self.after:
            return (w - v,)
        if kind is SumKind.TREATED:
            # The treated weigh 1, and the controls weigh one more or one less.
            if self.before == 0:
                return (1.0 + w,)
            return (-1.0 - v,)
        if kind is SumKind.PUBLIC:
            return (w, -v)
        if kind is SumKind.COUNTS:
            return (w - 1.0, 1.0 - v)
        return (w - v,)

    @property
    def two_blocks(self) -> bool:
        """Whether two blocks of weights answer."""
        return self.form.sums.kind in (SumKind.PUBLIC, SumKind.COUNTS)

    def pull(self, w: float, v: float) -> list[float]:
        """Factors of rows in ``k_c = v z' - w z + sum_b delta_b zbar_b - n(t' - t)``."""
        return [v, -w, *self.gains(w, v)]

    def corners(self) -> Array:
        """Corners (boxes, 4, 2) of the boxes of both weights, at one of which kappa is largest."""
        least = np.minimum(np.array(self.least), self.largest)
        least_before = least[:, 0]
        least_after = least[:, 1]
        largest_before = self.largest[:, 0]
        largest_after = self.largest[:, 1]
        before = np.stack([least_before, least_before, largest_before, largest_before], axis=1)
        after = np.stack([least_after, largest_after, least_after, largest_after], axis=1)
        return np.stack([before, after], axis=2)

    def kappas(self, imbalances: Sequence[ScaledImbalance]) -> Array:
        """Kappa at the corners, (boxes, 4)."""
        corners = self.corners()
        if not imbalances:
            return np.zeros(corners.shape[:2])
        rows = np.array([self.pull(w, v) for w, v in corners.reshape(-1, 2).tolist()])
        squares = []
        for moved in self.targets:
            squares.append(largest_squares(imbalances, moved.beside(rows, self.common)))
        return np.asarray(np.sqrt(np.max(squares, axis=0)).reshape(corners.shape[:2]))

    def total(self, w: float, v: float, squared: float) -> float:
        """V for weights w and v, where ``squared`` bounds ``sum_b R_b A_b s^2``.

        One block answers with ``sqrt(delta^2 + squared)`` (Theorem 5); of two, the one whose sum
        moves less takes all of it in the worst case (Theorem 6).
        """
        sizes = sorted(abs(gain) for gain in self.gains(w, v))
        if not self.two_blocks:
            return w + v + math.sqrt(sizes[0] ** 2 + squared)
        smaller = 0.0
        if len(sizes) == 2:
            smaller = sizes[0]
        return w + v + sizes[-1] + math.sqrt(smaller**2 + squared)


def _pair_kinds(
    form: WeightingForm, sizes: ArmSizes, by_size: Array, keeps_treatment: bool
) -> list[_PairKind]:
    """All arms that a replaced record and the common rows may have, with its largest weights."""
    kinds = []
    for before, after in _arm_pairs(sizes, keeps_treatment):
        least = (_least_weight(form, before), _least_weight(form, after))
        largest = _largest_of_both(form, by_size, before, after)
        targets = moved_targets(form, sizes, before, after)
        for common in _common_arms(form, sizes, before, after):
            kinds.append(_PairKind(form, before, after, common, least, largest, targets))
    return kinds


def _least_weight(form: WeightingForm, arm: int) -> float:
    """Least weight of a record of an arm; the treated may have no weight of their own."""
    if arm == 1 and form.sums.kind is SumKind.CONTROLS:
        return 0.0
    if arm == 1 and form.sums.kind is SumKind.TREATED:
        return 1.0
    return float(form.low[arm])


def _largest_of_both(form: WeightingForm, by_size: Array, before: int, after: int) -> Array:
    """Largest weights (boxes, 2) of a replaced record before and after.

    A record that changes its arm leaves n_1 one higher or lower, so that its weights belong to
    neighboring sizes: where sums are by arm a small arm stands against a large one, and not both
    weights are large.
    """
    sums_by_arm = form.sums.kind in (SumKind.PUBLIC, SumKind.COUNTS)
    if before == after or not sums_by_arm:
        overall = np.max(by_size, axis=1)
        return np.array([[overall[before], overall[after]]])
    boxes = []
    for first, last in pairwise(_edges_of_boxes(by_size.shape[1])):
        of_before = by_size[before, first:last]
        # The other size may be one further, in the next cell to either side.
        of_after = by_size[after, max(first - 1, 0) : last + 1]
        boxes.append([float(np.max(of_before)), float(np.max(of_after))])
    return np.array(boxes)


def _edges_of_boxes(n_cells: int) -> list[int]:
    """Cells of arm sizes that boxes begin at: every one near both ends, and few between."""
    near = np.arange(_NEAR)
    between = np.rint(np.linspace(0, n_cells, _NEAR))
    edges = np.clip(np.concatenate([near, between, n_cells - near]), 0, n_cells)
    return [int(edge) for edge in np.unique(edges)]


def _common_arms(
    form: WeightingForm, sizes: ArmSizes, before: int, after: int
) -> list[tuple[int, ...]]:
    """Arms of the common rows, one for each block whose sum moves."""
    if form.sums.kind is SumKind.ALL:
        return [(arm,) for arm in sizes.arms]
    if form.sums.kind in (SumKind.CONTROLS, SumKind.TREATED):
        return [(0,)]
    if before == after:
        return [(before,)]
    return [(before, after)]


@dataclass(frozen=True)
class _Spread:
    """What a pull kappa does to the other weights: bounds of ``sum_b R_b A_b s^2``.

    Parameters
    ----------
    n
        Number of records.
    response, diameter
        R, and D of the smooth penalties.
    gradients
        The imbalances, and what bounds the gradients of their penalties.
    largest_s
        The largest ``s = n |Delta|``, which is ``n Gamma`` of the smooth penalties; infinite for
        squares.
    """

    n: int
    response: float
    diameter: float
    gradients: GradientBounds
    largest_s: float

    @property
    def has_bounded_gradients(self) -> bool:
        """Whether a bound by Theorem 29 holds: gradients are bounded, or there are kinks.

        Kinks always have bounded gradients: their subgradients lie in a bounded set.
        """
        return math.isfinite(self.largest_s) or bool(self.gradients.kinks)

    def squared(self, kappa: float) -> float:
        """``F kappa^2``, of Theorems 5 and 6."""
        return spread_factor(self.response, self.diameter) * kappa**2

    def squared_with_bounded_gradients(self, kappa: float, kink_kappas: Sequence[float]) -> float:
        """``R max_s min(kappa s - s^2, R D^2 s^2 / 4)`` over ``s <= n Gamma`` (Theorem 29).

        The second branch says that s moves rows of diameter D alone; beside kinks only the first is
        left, and each kink adds ``R n Gamma kappa``.
        """
        if self.gradients.kinks:
            s = min(self.largest_s, kappa / 2.0)
            gained = kappa * s - s**2
            for diameter, of_kink in zip(self.gradients.kink_diameters, kink_kappas, strict=True):
                gained += self.n * diameter * of_kink
            return self.response * gained
        bend = self.response * self.diameter**2 / 4.0
        s = min(self.largest_s, max(kappa / 2.0, kappa / (1.0 + bend)))
        return self.response * min(kappa * s - s**2, bend * s**2)


def _pair_bound(kind: _PairKind, spread: _Spread) -> PairBound:
    """The bound of one kind of pairs: the largest over the boxes of both weights."""
    kappas = kind.kappas(spread.gradients.smooth)
    kappa = float(np.max(kappas))
    arms = (kind.before, kind.after)
    largest = (float(np.max(kind.largest[:, 0])), float(np.max(kind.largest[:, 1])))
    if math.isinf(spread.response):
        return PairBound(arms, largest, kappa, math.inf)
    kink_kappas = [np.max(kind.kappas([kink]), axis=1) for kink in spread.gradients.kinks]
    worst = 0.0
    for box, corners in enumerate(kind.corners().tolist()):
        of_kinks = [float(of_kink[box]) for of_kink in kink_kappas]
        bound = _bound_of_box(kind, spread, corners, kappas[box].tolist(), of_kinks)
        # no comparison holds of what is no number, so that it would count as a bound of 0
        bound = largest_bound(bound)
        if bound > worst:
            worst = bound
            largest = (corners[-1][0], corners[-1][1])
    return PairBound(arms, largest, kappa, outward(worst))


def _bound_of_box(
    kind: _PairKind,
    spread: _Spread,
    corners: list[list[float]],
    kappas: list[float],
    kink_kappas: list[float],
) -> float:
    """The bound of pairs whose weights lie in one box: the better of two.

    With squares alone V is convex in both weights, and largest at a corner. With bounded gradients
    it is not; but V rises with each weight while kappa is held, so that the largest weights
    together with the largest kappa of all corners are a bound.
    """
    bound = math.inf
    if not spread.gradients.kinks:
        at_corners = []
        for (w, v), kappa in zip(corners, kappas, strict=True):
            at_corners.append(kind.total(w, v, spread.squared(kappa)))
        bound = largest_bound(*at_corners)
    if spread.has_bounded_gradients:
        squared = spread.squared_with_bounded_gradients(largest_bound(*kappas), kink_kappas)
        largest_w, largest_v = corners[-1]
        bound = min(bound, kind.total(largest_w, largest_v, squared))
    return bound


def _release_factor(form: WeightingForm, sizes: ArmSizes) -> float:
    """Largest factor that makes the sum of all weights n."""
    if form.sums.kind is SumKind.TREATED:
        return form.n / (2.0 * sizes.least(1))
    return 1.0


def _released(form: WeightingForm, sizes: ArmSizes, pair: PairBound) -> float:
    """V of the released weights, ``n / (2 n_1)`` times those that treated records weigh 1 in.

    At a change of arm n_1 changes as well. The larger of both is n_1 + 1, and with it
    ``V_u <= n / (2 (n_1 + 1)) (V + 2)``.
    """
    if form.sums.kind is not SumKind.TREATED:
        return pair.V
    before, after = pair.arms
    if before == after:
        return _release_factor(form, sizes) * pair.V
    return form.n / (2.0 * (sizes.least(1) + 1)) * (pair.V + 2.0)


def _stated(
    form: WeightingForm, sizes: ArmSizes, spread: _Spread, pairs: Sequence[PairBound]
) -> tuple[float, str, str]:
    """V with the name of its theorem and what limits it."""
    trivial = 2.0 * form.n
    trivial_theorem = "weights of sum n move by at most 2n"
    if form.hard:
        reason = (
            "V is 2n: a constraint of the imbalance depends on the data; price the imbalance "
            "instead"
        )
        return trivial, trivial_theorem, reason
    none_above_one = bool(np.all(form.cap[list(sizes.arms)] <= 1.0))
    if none_above_one and form.sums.kind in (SumKind.ALL, SumKind.COUNTS):
        return 2.0, "all weights are 1", "V is 2: no weight may be above 1, so that none is below"
    if math.isinf(spread.response):
        reason = "V is 2n: the dispersion may be flat in its box; add a square of the weights"
        return trivial, trivial_theorem, reason
    bounds = [_released(form, sizes, pair) for pair in pairs]
    moved = largest_bound(*bounds)
    # Of pairs that differ by rounding alone the first is named, on any machine.
    named = next(k for k, bound in enumerate(bounds) if not bound < moved * ROUND_DOWN_SUMS)
    where = _in_words(pairs[named])
    if moved >= trivial:
        reason = (
            f"V is 2n, as the bound is {moved:.4g} where {where}: declare a smaller cap or a "
            "larger ridge"
        )
        return trivial, trivial_theorem, reason
    return moved, _theorem(form, spread), f"V is largest where {where}"


def _in_words(pair: PairBound) -> str:
    """The arms and the largest weights of a replaced record before and after."""
    before, after = pair.arms
    weight_before, weight_after = pair.largest
    return (
        f"a {_ARMS[before]} of weight {weight_before:.4g} becomes "
        f"a {_ARMS[after]} of weight {weight_after:.4g}"
    )


def _theorem(form: WeightingForm, spread: _Spread) -> str:
    """Name of the theorem that V follows from."""
    names = {
        SumKind.ALL: "Theorem 5 (one sum)",
        SumKind.PUBLIC: "Theorem 6 (public sums by arm)",
        SumKind.COUNTS: "Theorem 6 (arm sizes as sums)",
        SumKind.CONTROLS: "Theorem 5 (one sum over the controls)",
        SumKind.TREATED: "Theorem 5 (controls that weigh as many as the treated)",
    }
    name = names[form.sums.kind]
    if spread.gradients.kinks:
        return f"{name} with Theorem 29 (kinks)"
    if math.isfinite(spread.largest_s):
        return f"{name}, gradients bounded"
    return name


def _smoothing(form: WeightingForm) -> str:
    """What smoothing leaves out (section "Smoothing a kink" of the page)."""
    if not form.smoothed:
        return ""
    each = [f"{text} with parameter {value:g}" for text, value in form.smoothed.items()]
    smoothed = f"Smoothed: {'; '.join(each)}. "
    if any(imbalance.penalty.envelope for imbalance in form.imbalances):
        return smoothed + (
            "What stands for a price, over n, is below it by at most half of the parameter times "
            "the square of the price's slope."
        )
    return smoothed + (
        "Where the imbalance left, over n, is at least the parameter times the "
        "price, the weights are those of the declared program; elsewhere it is below this product."
    )
