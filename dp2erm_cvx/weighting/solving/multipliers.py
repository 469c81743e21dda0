"""The multiplier of the sum of every block: one increasing equation in one unknown each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.curves.inverse_slope import InverseSlope
from dp2erm_cvx.weighting.solving.dataset import SumOfBlock, WeightingData, blocked_total, sum_units

#: A sum is met where it is within so many units of roundoff of its size.
SUM_UNITS = 4.0
#: Most steps, of which every third halves the bracket; brackets of doubles are exhausted before.
_MOST_STEPS = 4000
#: Doublings of a bracket that an infinite slope leaves open.
_MOST_DOUBLINGS = 1100


def met_sums(data: WeightingData, price: Array, start: Array) -> tuple[Array, Array, Array]:
    """Weights that meet their sums at given prices of the imbalance.

    Parameters
    ----------
    data
        The dataset.
    price
        What the slope of every record is without the multiplier of its block (n,).
    start
        A guess of the multipliers, one per block.

    Returns
    -------
    tuple
        Weights (n,), their derivatives by the price (n,), and the multipliers:
        ``w_i = h_i(price_i - nu)``.
    """
    weights, rates = data.curve.at(price, slice(None))
    multipliers = start.copy()
    for number, block in enumerate(data.blocks):
        equation = _Block(data, block, price[block.members])
        multiplier = equation.root(float(start[number]))
        block_weights, block_rates = equation.at(multiplier)
        weights[block.members] = block_weights
        rates[block.members] = block_rates
        multipliers[number] = multiplier
    return weights, rates, multipliers


def weights_at(data: WeightingData, price: Array, multipliers: Array) -> tuple[Array, Array]:
    """Weights (n,) and the computed arguments (n,) of the inverse slopes, at given multipliers."""
    argument = price.copy()
    for number, block in enumerate(data.blocks):
        argument[block.members] = price[block.members] - multipliers[number]
    weights, _ = data.curve.at(argument, slice(None))
    return weights, argument


def nearest_weights(data: WeightingData, point: Array) -> Array:
    """Weights (n,) in their boxes, with the sums of their blocks, nearest to a point.

    Parameters
    ----------
    data
        The dataset.
    point
        The point (n,); it is returned where its sums are met up to rounding.

    Returns
    -------
    Array
        The weights.
    """
    rounding = sum_units(len(point)) * UNIT
    off = []
    for block in data.blocks:
        missed = abs(blocked_total(point[block.members]) - block.total)
        off.append(not missed <= rounding * block.total)
    if not any(off):
        return point
    squares = Dispersion((DispersionPart("square", 0.5),))
    curve = InverseSlope(squares, data.curve.low, data.curve.cap)
    return met_sums(replace(data, curve=curve), point, np.zeros(len(data.blocks)))[0]


class _Block:
    """The sum of the weights of one block, as a decreasing function of its multiplier.

    Parameters
    ----------
    data
        The dataset.
    block
        The block.
    price
        What the slopes of its records are without the multiplier (m,).
    """

    def __init__(self, data: WeightingData, block: SumOfBlock, price: Array) -> None:
        self.data = data
        self.block = block
        self.price = price
        self.rising = data.form.dispersion.family in ("entropy", "log")

    def at(self, multiplier: float) -> tuple[Array, Array]:
        """Weights (m,) and their derivatives at a multiplier."""
        return self.data.curve.at(self.price - multiplier, self.block.members)

    def root(self, start: float) -> float:
        """The multiplier, to a few units of the sum or to the rounding of the prices."""
        total = self.block.total
        low, high = self.bracket()
        price_rounding = UNIT * float(np.max(np.abs(self.price), initial=0.0))
        here = (low + high) / 2.0
        if low < start < high:
            here = start
        best = here
        least_off = math.inf
        for step in range(_MOST_STEPS):
            weights, rates = self.at(here)
            summed = blocked_total(weights)
            off = summed - total
            if abs(off) < least_off:
                best = here
                least_off = abs(off)
            if abs(off) <= SUM_UNITS * UNIT * total:
                break
            if off > 0:
                low = here
            else:
                high = here
            new = here + self._newton(off, summed, float(np.sum(rates)))
            middle = low + (high - low) / 2.0
            if not low < new < high or step % 4 == 3:
                new = middle
            narrow = high - low <= price_rounding + 2.0 * UNIT * abs(middle)
            if narrow or not low < new < high:
                break
            here = new
        return best

    def bracket(self) -> tuple[float, float]:
        """Ends that the multiplier lies between (Theorem 34 (c) of the page).

        At ``c_i = low_i + theta (cap_i - low_i)``, which have the sum of the block, a multiplier
        below all of ``price_i - phi_i'(c_i)`` leaves no weight below c_i, one above all of them no
        weight above.
        """
        members = self.block.members
        curve = self.data.curve
        base = np.ones(1)
        if curve.base is not None:
            base = curve.base[members]
        level = self.price - curve.dispersion.slope(self._bracketing_weights() / base)
        first = float(np.min(level))
        last = float(np.max(level))
        slack = 16.0 * UNIT * (1.0 + abs(first) + abs(last) + float(np.max(np.abs(self.price))))
        return self._widened(first - slack, -1.0, slack), self._widened(last + slack, 1.0, slack)

    def _bracketing_weights(self) -> Array:
        """Weights ``c = low + theta (cap - low)`` (m,) that have the sum of the block."""
        low = self.data.curve.low[self.block.members]
        cap = self.data.curve.cap[self.block.members]
        total = self.block.total
        # No weight exceeds the sum, to which a cap that may be infinite is cut.
        width = np.minimum(cap, max(total, float(np.max(low)))) - low
        missing = total - blocked_total(low)
        # 1e-300 is in the place of boxes without any width.
        theta = min(missing / max(blocked_total(width), 1e-300), 1.0)
        return np.asarray(low + theta * width)

    def _widened(self, end: float, sign: float, slack: float) -> float:
        """An end that lies beyond the root, in doubles as well."""
        step = slack
        for _ in range(_MOST_DOUBLINGS):
            beyond = sign * (blocked_total(self.at(end)[0]) - self.block.total) <= 0.0
            if beyond or not math.isfinite(end + sign * step):
                break
            end += sign * step
            step *= 2.0
        return end

    def _newton(self, off: float, summed: float, slope: float) -> float:
        """Newton's step, or that of the logarithm of the sum where weights are steep."""
        if slope <= 0.0:
            return math.inf
        if self.rising and self.block.total > 0.0 and summed > 0.0:
            return math.log(summed / self.block.total) * summed / slope
        return off / slope
