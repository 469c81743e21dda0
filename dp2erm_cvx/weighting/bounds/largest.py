"""The largest weight that a form gives to any record of any dataset (W1 and W2 of the theory)."""

from __future__ import annotations

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
        # the prices of a constraint have no bound, so that only the box is known
        return np.repeat(
            np.minimum(form.cap, float(form.n))[:, None], len(sizes.cells()[0]), axis=1
        )
    if kind is SumKind.ALL:
        blocks = [_Block(form, sizes, gradients, starts, (0, 1))]
    elif kind in (SumKind.CONTROLS, SumKind.TREATED):
        blocks = [_Block(form, sizes, gradients, starts, (0,))]
    else:
        blocks = [
            _Block(form, sizes, gradients, starts, (0,)),
            _Block(form, sizes, gradients, starts, (1,)),
        ]
    bounds = [block.second_bound() for block in blocks]
    apart = None
    if _first_bound_applies(form, gradients):
        apart = [block.first_bound() for block in blocks]
    elif form.base is not None:
        apart = [block.base_bound() for block in blocks]
    if apart is not None:
        # It is that of the program without caps, which solves the program with caps where it keeps
        # them.
        keeps = [own <= block.least_cap for own, block in zip(apart, blocks, strict=True)]
        better = [np.minimum(bound, own) for bound, own in zip(bounds, apart, strict=True)]
        bounds = [
            np.where(np.all(keeps, axis=0), *pair) for pair in zip(better, bounds, strict=True)
        ]
    if kind is SumKind.CONTROLS:
        return np.stack([bounds[0], np.zeros_like(bounds[0])])
    if kind is SumKind.TREATED:
        return np.stack([bounds[0], np.ones_like(bounds[0])])
    return np.stack([np.minimum(bounds[0], form.cap[0]), np.minimum(bounds[-1], form.cap[1])])


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
    # most cells are one size, which begins and ends them: each size once
    ends = np.unique(np.concatenate([first, last]))
    squares = _start_squares(form, imbalances, ends)
    at_first = squares[np.searchsorted(ends, first)]
    at_last = squares[np.searchsorted(ends, last)]
    return np.asarray(np.maximum(at_first, at_last))


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
    held = [even.rows]
    if form.sums.kind is SumKind.ALL:
        held = [np.tile(own, (len(treated), 1)) for own in ([1.0, 0.0], [0.0, 1.0])]
    nothing = np.zeros_like(even.rows)
    arms = np.tile([0, 1, 0, 1], (len(treated), 1))
    targets = np.hstack([nothing, even.targets])
    means = np.hstack([nothing, -np.ones_like(even.rows)])
    sums = []
    for own in held:
        rows = np.hstack([own, nothing])
        sums.append(RecordCombinations(rows, targets, arms, even.shift, means, even.public))
    return sums


def _starts_near_equal_weights(form: WeightingForm, treated: Array) -> list[RecordCombinations]:
    """The same imbalance, as that of equal weights and a mass that moves from some rows to others.

    Shares in proportion to bases differ from equal ones by at most
    ``(sqrt(d_+) - sqrt(d_-)) / (sqrt(d_+) + sqrt(d_-))`` of the mass of a block.
    """
    even = _start_sums(form, treated)
    low, high = (math.sqrt(base) for base in bases_of(form))
    share = (high - low) / (high + low)
    whole = np.ones_like(treated)
    if form.sums.kind is SumKind.ALL:
        blocks = [((first, second), whole) for first in (0, 1) for second in (0, 1)]
        moves = [[block] for block in blocks]
    else:
        moves = [[((0, 0), even.rows[:, 0]), ((1, 1), even.rows[:, 1])]]
    sums = []
    for move in moves:
        rows = [even.rows]
        arms = [np.tile([0, 1], (len(treated), 1))]
        for pair, mass in move:
            rows.append(share * mass[:, None] * np.array([1.0, -1.0]))
            arms.append(np.tile(pair, (len(treated), 1)))
        nothing = np.zeros((len(treated), 2 * len(move)))
        targets = np.hstack([even.targets, nothing])
        means = np.hstack([-np.ones_like(even.rows), nothing])
        every = np.hstack(arms)
        sums.append(
            RecordCombinations(np.hstack(rows), targets, every, even.shift, means, even.public)
        )
    return sums


def _start_squares(
    form: WeightingForm, imbalances: Sequence[ScaledImbalance], treated: Array
) -> Array:
    if not imbalances:
        return np.zeros(len(treated))
    if form.base is None:
        return largest_squares(imbalances, _start_sums(form, treated))
    bounds = []
    for starts in (_starts_of_bases(form, treated), _starts_near_equal_weights(form, treated)):
        bounds.append(np.max([largest_squares(imbalances, sums) for sums in starts], axis=0))
    return np.asarray(np.min(bounds, axis=0))


def block_diameter(
    imbalances: Sequence[ScaledImbalance], pairs: Sequence[tuple[int, int]]
) -> float:
    """Largest distance of the rows of two records, of the given pairs of arms."""
    if not imbalances:
        return 0.0
    arms = np.array(pairs)
    factors = np.tile([1.0, -1.0], (len(arms), 1))
    return float(
        np.sqrt(
            np.max(largest_squares(imbalances, RecordCombinations(factors, 0.0 * factors, arms)))
        )
    )


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
    fine = form.dispersion.concave_slope and form.base is None and not gradients.kinks
    return fine and bool(gradients.smooth) and _equal_weights_fit(form)


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
        others = np.where(self.size >= 1.0, self.total - self.low * (self.size - 1.0), 0.0)
        #: What the others leave of the sum, as each of them weighs at least its lower bound.
        self.left_over = np.max(others, axis=0)
        self.start = np.sqrt(starts)
        #: Least and largest base; 1 where the form has none.
        self.bases = bases_of(form)

    def rest(self, weight: Array) -> Array:
        """Largest mean weight of the others; minus infinity where there are none."""
        others = (self.total - weight) / np.maximum(self.size - 1.0, 1.0)
        return np.asarray(np.max(np.where(self.size > 1.0, others, -math.inf), axis=0))

    def admits(self, weight: Array, held: Array) -> Array:
        """Whether weights are possible; ``held`` says whether the inequalities hold for them."""
        alone = np.any(self.size <= 1.0, axis=0)
        inside = (weight <= self.left_over) & (held | alone)
        return np.asarray(inside | (weight <= self.mean))

    def resistance(self) -> Array:
        """What the way to equal weights may cost beside curvature and squares, over n.

        Linear terms a_i cost ``sum a_i (c - w_i) <= D_a sum |w_i - c| / 2 <= n D_a``, kinks at most
        their price of the imbalance of equal weights.
        """
        total = np.full_like(self.mean, self.gradients.linear)
        for own, largest in zip(self.gradients.kinks, self.gradients.kink_sizes, strict=True):
            total = total + largest * np.sqrt(start_squares(self.form, self.sizes, [own]))
        return np.asarray(total)

    def second_bound(self) -> Array:
        """W2, with or without caps; beside it the cap and what the others leave of the sum."""
        highest = np.minimum(self.left_over, min(self.cap, self.form.dispersion.ends[1]))
        if not self.arms:
            return np.zeros_like(highest)
        if self.form.base is not None or not _equal_weights_fit(self.form):
            return np.asarray(highest * (1.0 + ROUNDING))
        return self.by_two_slopes(highest)

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
        return self.by_two_slopes(self.left_over)

    def by_two_slopes(self, highest: Array) -> Array:
        """W2 below the highest weights.

        Some other record has a weight of at most the mean of the others, so that
        ``phi'(W) - phi'(wbar) <= D |g|``; and ``|g|^2 + h <= |g| |m_o|`` with
        ``h = (W - c)(phi'(W) - phi'(c)) / n``. Beside bases from d_- to d_+ the record of the
        weight W has the base d_+ at worst, and the others d_-.
        """
        gradients = self.gradients
        least, largest = self.bases
        pairs = [(first, second) for first in self.arms for second in self.arms]
        diameter = block_diameter(gradients.smooth, pairs)
        # What linear terms and kinks, whose subgradients are bounded, pull on two records.
        pull = gradients.linear
        for own, size in zip(gradients.kinks, gradients.kink_sizes, strict=True):
            pull += size * block_diameter([own], pairs)
        resistance = self.resistance()
        slope_at_mean = _slopes_after(self.form.dispersion, self.mean / least)
        even = self.mean * largest / least

        def admitted(weight: Array) -> Array:
            above = _slopes_before(self.form.dispersion, weight / largest)
            rest = np.maximum(self.rest(weight), 0.0) / least
            steps = above - _slopes_after(self.form.dispersion, rest)
            spread = np.maximum(weight - even, 0.0) * np.maximum(above - slope_at_mean, 0.0)
            room = self.start**2 / 4.0 + resistance - spread / self.form.n
            gradient = np.minimum(
                self.start / 2.0 + np.sqrt(np.maximum(room, 0.0)), gradients.gradient_norm
            )
            return self.admits(weight, (room >= 0.0) & (steps <= diameter * gradient + pull))

        return _last_admitted(admitted, highest)

    def first_bound(self) -> Array:
        """W1, for the program without caps.

        ``phi'(W) - phi'(wbar) <= (n_b/(n_b - 1)) <zbar_b - z_j, g>`` and ``|g|^2 + h <= <g, m_o>``
        with ``h = (W - c)(phi'(W) - phi'(wbar)) / n``: g lies in a ball of center ``m_o/2``, in
        which an inner product with d is at most ``<d, m_o>/2 + |d| sqrt(|m_o|^2/4 - h)``.
        """
        gradients = self.gradients
        if not self.arms:
            return np.zeros_like(self.left_over)
        distances = []
        products = []
        for arm in self.arms:
            apart = [self.mean_less_own(treated, arm) for treated in self.cells]
            starts = [_padded(_start_sums(self.form, treated)) for treated in self.cells]
            present = (
                np.max([arm_size(self.form.n, arm, treated) for treated in self.cells], axis=0)
                >= 1.0
            )
            squared = [largest_squares(gradients.smooth, own) for own in apart]
            inner = [
                largest_products(gradients.smooth, *own) for own in zip(apart, starts, strict=True)
            ]
            product = np.max(inner, axis=0) + self.between()
            distances.append(np.where(present, np.sqrt(np.max(squared, axis=0)), 0.0))
            products.append(np.where(present, product, -math.inf))
        distance = np.array(distances)
        product = np.array(products)
        fewest = np.min(self.size, axis=0)
        shrinkage = np.maximum(fewest - 1.0, 0.0) / np.maximum(fewest, 1.0)
        resistance = self.resistance()

        def admitted(weight: Array) -> Array:
            above = _slopes_before(self.form.dispersion, weight)
            steps = above - _slopes_after(self.form.dispersion, np.maximum(self.rest(weight), 0.0))
            spread = np.maximum(weight - self.mean, 0.0) * np.maximum(steps, 0.0)
            room = self.start**2 / 4.0 + resistance - spread / self.form.n
            gain = product / 2.0 + distance * np.sqrt(np.maximum(room, 0.0))
            if math.isfinite(gradients.gradient_norm):
                gain = np.minimum(gain, gradients.gradient_norm * distance)
            held = np.any((steps - gradients.linear) * shrinkage <= gain, axis=0)
            return self.admits(weight, (room >= 0.0) & held)

        return _last_admitted(admitted, self.left_over)

    def mean_less_own(self, treated: Array, arm: int) -> RecordCombinations:
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

    def between(self) -> Array:
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
        apart = largest_squares(self.gradients.smooth, RecordCombinations(rows, 0.0 * rows, arms))
        moved = largest_squares(self.gradients.smooth, RecordCombinations(rows, -rows, arms))
        return np.asarray(np.sqrt(apart * moved)[0] * width**2 / 4.0)


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
    arms = np.hstack([sums.arms, np.zeros((len(sums.arms), 1), dtype=np.int64)])
    means = None if sums.means is None else np.hstack([sums.means, zeros])
    rows = np.hstack([sums.rows, zeros])
    targets = np.hstack([sums.targets, zeros])
    return RecordCombinations(rows, targets, arms, sums.shift, means, sums.public)
