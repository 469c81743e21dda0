"""The largest weight that a form gives to any record of any dataset (W1 and W2 of the theory)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.stability.base import ROUNDING
from dp2erm_cvx.weighting.bounds.diameters import (
    RecordCombinations,
    ScaledImbalance,
    largest_products,
    largest_squares,
)
from dp2erm_cvx.weighting.forms.arm_sizes import ArmSizes, arm_size, block_size, block_total
from dp2erm_cvx.weighting.forms.features import IntervalSet
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm

#: Halvings of a bracket of weights.
_HALVINGS = 60

#: Relative step aside, so that the slope next to a kink is that of the right side.
_ASIDE = 1e-12


@dataclass(frozen=True)
class GradientBounds:
    """What bounds the gradient g of the penalties, in the scaled rows of a form.

    Parameters
    ----------
    smooth
        Imbalances with smooth penalties, times the root of n times their smoothness.
    kinks
        Imbalances with kinks, not scaled.
    kink_sizes
        Largest Euclidean norm of a subgradient of each kink.
    kink_diameters
        Largest Euclidean distance of two subgradients of each kink.
    gradient_norm
        Largest norm of the gradient of the smooth ones less that at 0, scaled: the ball of the
        page; infinite for squares.
    diameter
        Largest distance of two gradients of the smooth ones, scaled; infinite for squares.
    linear
        Largest difference of the linear terms of two records, those of the slopes of the penalties
        at 0 among them.
    """

    smooth: Sequence[ScaledImbalance]
    kinks: Sequence[ScaledImbalance]
    kink_sizes: Sequence[float]
    kink_diameters: Sequence[float]
    gradient_norm: float
    diameter: float
    linear: float


def largest_by_size(
    form: WeightingForm, sizes: ArmSizes, gradients: GradientBounds, starts: Array
) -> Array:
    """Upper bounds of the weights of controls and treated, by the arm sizes of a dataset.

    The smallest of the cap, of what the others leave of the sum, and of the bounds W1 and W2.

    Parameters
    ----------
    form
        The form; it is feasible on the universe.
    sizes
        Arm sizes of the universe.
    gradients
        What bounds the gradient of its penalties.
    starts
        What :func:`start_squares` finds of the smooth ones.

    Returns
    -------
    Array
        The bounds by arm and by cell of ``sizes.cells()``, (2, m); a fixed weight is its own bound.
    """
    kind = form.sums.kind
    if form.hard:
        # The prices of a constraint have no bound, so that only the box is known.
        caps = np.minimum(form.cap, float(form.n))
        return np.repeat(caps[:, None], len(sizes.cells()[0]), axis=1)
    arms_of_blocks: list[tuple[int, ...]] = [(0,), (1,)]
    if kind is SumKind.ALL:
        arms_of_blocks = [(0, 1)]
    elif kind in (SumKind.CONTROLS, SumKind.TREATED):
        arms_of_blocks = [(0,)]
    blocks = [_Block(form, sizes, gradients, starts, arms) for arms in arms_of_blocks]
    bounds = _bounds_of_blocks(blocks, form, gradients)
    if kind is SumKind.CONTROLS:
        return np.stack([bounds[0], np.zeros_like(bounds[0])])
    if kind is SumKind.TREATED:
        return np.stack([bounds[0], np.ones_like(bounds[0])])
    return np.stack([np.minimum(bounds[0], form.cap[0]), np.minimum(bounds[-1], form.cap[1])])


def _bounds_of_blocks(
    blocks: Sequence[_Block], form: WeightingForm, gradients: GradientBounds
) -> list[Array]:
    """The least bound (m,) of every block: W2, and W1 where it applies."""
    with_caps = [block.second_bound() for block in blocks]
    if _first_bound_applies(form, gradients):
        without_caps = [block.first_bound() for block in blocks]
    elif form.base is not None:
        without_caps = [block.base_bound() for block in blocks]
    else:
        return with_caps
    # The latter is that of the program without caps, which solves the program with caps where it
    # keeps them in every block.
    keeps_caps = np.ones_like(with_caps[0], dtype=bool)
    for bound, block in zip(without_caps, blocks, strict=True):
        keeps_caps &= bound <= block.least_cap
    bounds = []
    for capped, uncapped in zip(with_caps, without_caps, strict=True):
        bounds.append(np.where(keeps_caps, np.minimum(capped, uncapped), capped))
    return bounds


def start_squares(
    form: WeightingForm, sizes: ArmSizes, imbalances: Sequence[ScaledImbalance]
) -> Array:
    """Largest square of the imbalance, over n, at the start of the steps.

    There the weights of a block are equal, or as their bases.

    Parameters
    ----------
    form
        The form; it is feasible on the universe.
    sizes
        Arm sizes of the universe.
    imbalances
        The imbalances, whose squares are added.

    Returns
    -------
    Array
        Upper bounds by cell of ``sizes.cells()``, (m,).
    """
    first, last = sizes.cells()
    # Most cells are one size, which begins and ends them: each size once.
    ends = np.unique(np.concatenate([first, last]))
    squares = _start_squares(form, imbalances, ends)
    at_first = squares[np.searchsorted(ends, first)]
    at_last = squares[np.searchsorted(ends, last)]
    return np.asarray(np.maximum(at_first, at_last))


def _start_squares(
    form: WeightingForm, imbalances: Sequence[ScaledImbalance], treated: Array
) -> Array:
    """The same by numbers of treated records (m,)."""
    if not imbalances:
        return np.zeros(len(treated))
    if form.base is None:
        return largest_squares(imbalances, _start_sums(form, treated))
    bounds = []
    for starts in (_starts_of_bases(form, treated), _starts_near_equal_weights(form, treated)):
        squares = [largest_squares(imbalances, start) for start in starts]
        bounds.append(np.max(squares, axis=0))
    return np.asarray(np.min(bounds, axis=0))


def _start_sums(form: WeightingForm, treated: Array) -> RecordCombinations:
    """The mean imbalance of equal weights within blocks: a mean row and a mean target of each arm.

    It is affine in the number of treated records, so that norms are largest at ends of cells.
    """
    share = treated / form.n
    shares = np.stack([1.0 - share, share], axis=1)
    kind = form.sums.kind
    if kind is SumKind.PUBLIC:
        totals = [block_total(form, arm, treated) for arm in (0, 1)]
        held = np.stack(totals, axis=1) / form.n
    elif kind is SumKind.CONTROLS:
        held = np.tile([1.0, 0.0], (len(treated), 1))
    elif kind is SumKind.TREATED:
        held = np.stack([share, share], axis=1)
    else:
        held = shares
    arms = np.tile([0, 1], (len(treated), 1))
    return RecordCombinations(held, -shares, arms, -1.0 / form.n, -np.ones_like(shares), -1.0)


def _starts_of_bases(form: WeightingForm, treated: Array) -> list[RecordCombinations]:
    """The mean imbalance of weights in proportion to their bases within blocks.

    Means of rows are weighted by the bases, and none of the means that targets are: four records in
    place of two. Where all weights share a sum the bases share them out between the arms as they
    like, and a norm is largest where one arm has all.
    """
    even = _start_sums(form, treated)
    shares_of_rows = [even.rows]
    if form.sums.kind is SumKind.ALL:
        shares_of_rows = [
            np.tile([1.0, 0.0], (len(treated), 1)),
            np.tile([0.0, 1.0], (len(treated), 1)),
        ]
    zeros = np.zeros_like(even.rows)
    arms = np.tile([0, 1, 0, 1], (len(treated), 1))
    targets = np.hstack([zeros, even.targets])
    means = np.hstack([zeros, -np.ones_like(even.rows)])
    sums = []
    for shares in shares_of_rows:
        rows = np.hstack([shares, zeros])
        sums.append(RecordCombinations(rows, targets, arms, even.shift, means, even.public))
    return sums


def _starts_near_equal_weights(form: WeightingForm, treated: Array) -> list[RecordCombinations]:
    """The same imbalance, as that of equal weights and a mass that moves from some rows to others.

    Shares in proportion to bases differ from equal ones by at most
    ``(sqrt(d_+) - sqrt(d_-)) / (sqrt(d_+) + sqrt(d_-))`` of the mass of a block.
    """
    even = _start_sums(form, treated)
    least, largest = bases_of(form)
    low = math.sqrt(least)
    high = math.sqrt(largest)
    share = (high - low) / (high + low)
    ones = np.ones_like(treated)
    if form.sums.kind is SumKind.ALL:
        # In the one block mass moves from a record of any arm to one of any other.
        moves = [[_MovedMass(pair, ones)] for pair in itertools.product((0, 1), (0, 1))]
    else:
        moves = [[_MovedMass((0, 0), even.rows[:, 0]), _MovedMass((1, 1), even.rows[:, 1])]]
    return [_with_moved_mass(even, share, masses) for masses in moves]


@dataclass(frozen=True)
class _MovedMass:
    """A mass of weight that moves from one record of a block to another.

    Parameters
    ----------
    arms
        Arms of both records.
    mass
        Mass (m,) of the block, over n.
    """

    arms: tuple[int, int]
    mass: Array


def _with_moved_mass(
    even: RecordCombinations, share: float, masses: Sequence[_MovedMass]
) -> RecordCombinations:
    """The imbalance of equal weights, of whose mass in each block a share moves."""
    m = len(even.rows)
    rows = [even.rows]
    arms = [np.tile([0, 1], (m, 1))]
    for moved in masses:
        rows.append(share * moved.mass[:, None] * np.array([1.0, -1.0]))
        arms.append(np.tile(moved.arms, (m, 1)))
    zeros = np.zeros((m, 2 * len(masses)))
    return RecordCombinations(
        rows=np.hstack(rows),
        targets=np.hstack([even.targets, zeros]),
        arms=np.hstack(arms),
        shift=even.shift,
        means=np.hstack([-np.ones_like(even.rows), zeros]),
        public=even.public,
    )


def block_diameter(
    imbalances: Sequence[ScaledImbalance], pairs: Sequence[tuple[int, int]]
) -> float:
    """Largest distance of the rows of two records, of the given pairs of arms."""
    if not imbalances:
        return 0.0
    arms = np.array(pairs)
    factors = np.tile([1.0, -1.0], (len(arms), 1))
    differences = RecordCombinations(factors, 0.0 * factors, arms)
    return float(np.sqrt(np.max(largest_squares(imbalances, differences))))


def bases_of(form: WeightingForm) -> tuple[float, float]:
    """Least and largest base of a record; 1 where the form has none."""
    if form.base is None:
        return 1.0, 1.0
    within = form.base.within
    assert isinstance(within, IntervalSet)
    return within.low, within.high


def _slopes_before(dispersion: Dispersion, weights: Array) -> Array:
    """Lower bounds of the slopes just below weights."""
    with np.errstate(divide="ignore", over="ignore"):
        return dispersion.slope(weights * (1.0 - _ASIDE))


def _slopes_after(dispersion: Dispersion, weights: Array) -> Array:
    """Upper bounds of the slopes just above weights."""
    with np.errstate(divide="ignore", over="ignore"):
        return dispersion.slope(weights + _ASIDE * np.maximum(np.abs(weights), _ASIDE))


def _equal_weights_fit(form: WeightingForm) -> bool:
    """Whether weights of 1 are in all boxes, where all records share one sum."""
    if form.sums.kind is not SumKind.ALL:
        return True
    return bool(np.all(form.highest_low <= 1.0) and np.all(form.least_cap >= 1.0))


def _first_bound_applies(form: WeightingForm, gradients: GradientBounds) -> bool:
    """W1 asks for a concave slope and for smooth penalties."""
    if not form.dispersion.concave_slope or form.base is not None or gradients.kinks:
        return False
    return bool(gradients.smooth) and _equal_weights_fit(form)


class _Block:
    """The largest weight of one block of records that have a sum of their own.

    Every array has one entry for each cell of arm sizes, and bounds what the sizes in it have.

    Parameters
    ----------
    form, sizes, gradients, starts
        As of :func:`largest_by_size`.
    arms
        Arms of the block.
    """

    def __init__(
        self,
        form: WeightingForm,
        sizes: ArmSizes,
        gradients: GradientBounds,
        starts: Array,
        arms: tuple[int, ...],
    ) -> None:
        self.form = form
        self.sizes = sizes
        self.gradients = gradients
        self.arms = [arm for arm in arms if arm in sizes.arms]
        self.cells = sizes.cells()
        boxed = list(arms)
        self.low = float(np.min(form.low[boxed]))
        self.cap = float(np.max(form.cap[boxed]))
        self.least_cap = float(np.min(form.least_cap[boxed]))
        self.highest_low = float(np.max(form.highest_low[boxed]))
        #: Records and sum at both ends of each cell, (2, m).
        self.size = np.stack([block_size(form, arms[0], treated) for treated in self.cells])
        self.total = np.stack([block_total(form, arms[0], treated) for treated in self.cells])
        self.mean = np.max(self.total / np.maximum(self.size, 1.0), axis=0)
        remainder = np.where(self.size >= 1.0, self.total - self.low * (self.size - 1.0), 0.0)
        #: What the others leave of the sum, as each of them weighs at least its lower bound.
        self.left_over = np.max(remainder, axis=0)
        #: Norm of the imbalance, over n, at the start of the steps: |m_o| of the page.
        self.start = np.sqrt(starts)
        #: Least and largest base; 1 where the form has none.
        self.bases = bases_of(form)

    def second_bound(self) -> Array:
        """W2, with or without caps; beside it the cap and what the others leave of the sum."""
        highest = np.minimum(self.left_over, min(self.cap, self.form.dispersion.ends[1]))
        if not self.arms:
            return np.zeros_like(highest)
        if self.form.base is not None or not _equal_weights_fit(self.form):
            return np.asarray(highest * (1.0 + ROUNDING))
        return self._by_two_slopes(highest)

    def base_bound(self) -> Array:
        """W2 of weights with bases and without caps.

        What the others leave is the bound where none is proved.

        It asks that weights in proportion to their bases keep the lower bounds.
        """
        if not self.arms:
            return np.zeros_like(self.left_over)
        least, largest = self.bases
        means = self.total / np.maximum(self.size, 1.0)
        if self.highest_low > float(np.min(means)) * least / largest:
            return np.asarray(self.left_over * (1.0 + ROUNDING))
        return self._by_two_slopes(self.left_over)

    def first_bound(self) -> Array:
        """W1, for the program without caps.

        ``phi'(W) - phi'(wbar) <= (n_b/(n_b - 1)) <zbar_b - z_j, g>`` and ``|g|^2 + h <= <g, m_o>``
        with ``h = (W - c)(phi'(W) - phi'(wbar)) / n``: g lies in a ball of center ``m_o/2``, in
        which an inner product with d is at most ``<d, m_o>/2 + |d| sqrt(|m_o|^2/4 - h)``.
        """
        if not self.arms:
            return np.zeros_like(self.left_over)
        gradients = self.gradients
        dispersion = self.form.dispersion
        distances = np.array([self._distances(arm) for arm in self.arms])
        products = np.array([self._products(arm) for arm in self.arms])
        fewest = np.min(self.size, axis=0)
        # (n_b - 1) / n_b.
        shrinkage = np.maximum(fewest - 1.0, 0.0) / np.maximum(fewest, 1.0)
        resistance = self._resistance()

        def admitted(weight: Array) -> Array:
            mean_of_others = np.maximum(self._mean_of_others(weight), 0.0)
            above = _slopes_before(dispersion, weight)
            difference = above - _slopes_after(dispersion, mean_of_others)
            spread = np.maximum(weight - self.mean, 0.0) * np.maximum(difference, 0.0)
            room = self.start**2 / 4.0 + resistance - spread / self.form.n
            pull = products / 2.0 + distances * np.sqrt(np.maximum(room, 0.0))
            if math.isfinite(gradients.gradient_norm):
                pull = np.minimum(pull, gradients.gradient_norm * distances)
            held = np.any((difference - gradients.linear) * shrinkage <= pull, axis=0)
            return self._admits(weight, (room >= 0.0) & held)

        return _last_admitted(admitted, self.left_over)

    def _by_two_slopes(self, highest: Array) -> Array:
        """W2 below the highest weights.

        Some other record has a weight of at most the mean of the others, so that
        ``phi'(W) - phi'(wbar) <= D |g|``; and ``|g|^2 + h <= |g| |m_o|`` with
        ``h = (W - c)(phi'(W) - phi'(c)) / n``. Beside bases from d_- to d_+ the record of the
        weight W has the base d_+ at worst, and the others d_-.
        """
        gradients = self.gradients
        dispersion = self.form.dispersion
        least, largest = self.bases
        pairs = [(first, second) for first in self.arms for second in self.arms]
        diameter = block_diameter(gradients.smooth, pairs)
        # What linear terms and kinks, whose subgradients are bounded, pull on two records.
        pull = gradients.linear
        for kink, size in zip(gradients.kinks, gradients.kink_sizes, strict=True):
            pull += size * block_diameter([kink], pairs)
        resistance = self._resistance()
        slope_at_mean = _slopes_after(dispersion, self.mean / least)
        even = self.mean * largest / least

        def admitted(weight: Array) -> Array:
            mean_of_others = np.maximum(self._mean_of_others(weight), 0.0)
            above = _slopes_before(dispersion, weight / largest)
            difference = above - _slopes_after(dispersion, mean_of_others / least)
            spread = np.maximum(weight - even, 0.0) * np.maximum(above - slope_at_mean, 0.0)
            room = self.start**2 / 4.0 + resistance - spread / self.form.n
            gradient = self.start / 2.0 + np.sqrt(np.maximum(room, 0.0))
            gradient = np.minimum(gradient, gradients.gradient_norm)
            held = difference <= diameter * gradient + pull
            return self._admits(weight, (room >= 0.0) & held)

        return _last_admitted(admitted, highest)

    def _distances(self, arm: int) -> Array:
        """Bounds (m,) of ``|zbar_b - z_j|`` for a record j of an arm; 0 where it has none."""
        squares = []
        for treated in self.cells:
            squares.append(largest_squares(self.gradients.smooth, self._mean_less(treated, arm)))
        return np.where(self._is_present(arm), np.sqrt(np.max(squares, axis=0)), 0.0)

    def _products(self, arm: int) -> Array:
        """Bounds (m,) of ``<zbar_b - z_j, m_o>``; minus infinity where the arm has no records."""
        products = []
        for treated in self.cells:
            difference = self._mean_less(treated, arm)
            start = _padded(_start_sums(self.form, treated))
            products.append(largest_products(self.gradients.smooth, difference, start))
        largest = np.max(products, axis=0) + self._inside_cells()
        return np.where(self._is_present(arm), largest, -math.inf)

    def _is_present(self, arm: int) -> Array:
        """Whether some dataset of a cell has records of an arm, (m,)."""
        sizes = [arm_size(self.form.n, arm, treated) for treated in self.cells]
        return np.asarray(np.max(sizes, axis=0) >= 1.0)

    def _mean_less(self, treated: Array, arm: int) -> RecordCombinations:
        """The mean row of the block less the row of one of its records, of an arm."""
        share = treated / self.form.n
        factors = np.zeros((len(treated), 3))
        if self.form.sums.kind is SumKind.ALL:
            factors[:, 0] = 1.0 - share
            factors[:, 1] = share
        else:
            factors[:, arm] = 1.0
        factors[:, 2] = -1.0
        arms = np.tile([0, 1, arm], (len(treated), 1))
        return RecordCombinations(factors, np.zeros_like(factors), arms)

    def _inside_cells(self) -> Array:
        """What an inner product of :meth:`first_bound` may exceed its ends by inside a cell.

        With sums by arm it is affine in the share, and nothing. With one sum it is ``<d, m>`` with
        d and m affine: inside a cell of width h it exceeds its chord by at most
        ``-<d', m'> h^2 / 4``, and ``-<d', m'> <= |d'| |m'|``.
        """
        width = (self.cells[1] - self.cells[0]) / self.form.n
        if self.form.sums.kind is not SumKind.ALL:
            return 0.0 * width
        arms = np.array([[0, 1]])
        rows = np.array([[-1.0, 1.0]])
        smooth = self.gradients.smooth
        of_difference = largest_squares(smooth, RecordCombinations(rows, 0.0 * rows, arms))
        of_start = largest_squares(smooth, RecordCombinations(rows, -rows, arms))
        return np.asarray(np.sqrt(of_difference * of_start)[0] * width**2 / 4.0)

    def _resistance(self) -> Array:
        """What the way to equal weights may cost beside curvature and squares, over n.

        Linear terms a_i cost ``sum a_i (c - w_i) <= D_a sum |w_i - c| / 2 <= n D_a``, kinks at most
        their price of the imbalance of equal weights.
        """
        total = np.full_like(self.mean, self.gradients.linear)
        gradients = self.gradients
        for kink, largest in zip(gradients.kinks, gradients.kink_sizes, strict=True):
            total = total + largest * np.sqrt(start_squares(self.form, self.sizes, [kink]))
        return np.asarray(total)

    def _mean_of_others(self, weight: Array) -> Array:
        """Largest mean weight of the others; minus infinity where there are none."""
        means = (self.total - weight) / np.maximum(self.size - 1.0, 1.0)
        return np.asarray(np.max(np.where(self.size > 1.0, means, -math.inf), axis=0))

    def _admits(self, weight: Array, held: Array) -> Array:
        """Whether weights are possible; ``held`` says whether the inequalities hold for them."""
        alone = np.any(self.size <= 1.0, axis=0)
        inside = (weight <= self.left_over) & (held | alone)
        return np.asarray(inside | (weight <= self.mean))


def _last_admitted(admitted: Callable[[Array], Array], highest: Array) -> Array:
    """Upper ends of brackets around the last weights that are admitted, one for each cell."""
    low = np.zeros_like(highest)
    high = highest
    everywhere = admitted(highest)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        holds = admitted(middle)
        low = np.where(holds, middle, low)
        high = np.where(holds, high, middle)
    return np.asarray(np.where(everywhere, highest, high) * (1.0 + ROUNDING))


def _padded(sums: RecordCombinations) -> RecordCombinations:
    """The same sums with a third record that does not count."""
    zeros = np.zeros((len(sums.rows), 1))
    means = None
    if sums.means is not None:
        means = np.hstack([sums.means, zeros])
    return RecordCombinations(
        rows=np.hstack([sums.rows, zeros]),
        targets=np.hstack([sums.targets, zeros]),
        arms=np.hstack([sums.arms, np.zeros((len(sums.arms), 1), dtype=np.int64)]),
        shift=sums.shift,
        means=means,
        public=sums.public,
    )
