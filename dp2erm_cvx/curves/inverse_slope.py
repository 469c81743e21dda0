"""Weights from their prices: the inverse of the slope of a dispersion on the box of a weight.

The weight of a record at the price x is ``h_i(x)``, the minimizer of ``phi_i(w) - x w`` over its
box. It is computed by a formula where the dispersion has one, else by safeguarded Newton steps.
What is computed is then *enclosed*: slopes on both sides of it prove how far the exact weight may
be, whatever the formula was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.curves.dispersion import ATOMS, Dispersion, DispersionPart

#: Ends of the arguments of an exponential function: weights beyond have met any cap, or are 0 to
#: 299 digits.
_LEAST_EXPONENT = -690.0
_LARGEST_EXPONENT = 300.0
#: Ends of powers, beyond which weights have met any end of their box that a public radius is stated
#: for.
LEAST_POWER = 1e-120
_LARGEST_POWER = 1e120
#: Ends of the logarithms of their arguments.
_LEAST_LOGARITHM = -230.0
LARGEST_LOGARITHM = 100.0
#: Most steps of the safeguarded iteration; every sixth halves the bracket, which a public radius
#: counts on.
_MOST_STEPS = 400
#: Times that a radius is doubled before all that the box says is taken.
_DOUBLINGS = 6


@dataclass(frozen=True)
class InverseSlope:
    """The functions h_i of n records.

    Parameters
    ----------
    dispersion
        phi, the same for every record.
    low, cap
        Ends of the box of every weight (n,), finite.
    base
        The numbers d_i (n,) of ``d_i phi(w / d_i)``, above 0; None for 1.
    """

    dispersion: Dispersion
    low: Array
    cap: Array
    base: Array | None = None

    def at(self, price: Array, index: slice | NDArray[np.intp]) -> tuple[Array, Array]:
        """Weights of some records at their prices, and how fast they rise with the price.

        Parameters
        ----------
        price
            Prices x (m,).
        index
            The records, as an index of n.

        Returns
        -------
        tuple
            Weights (m,) within their boxes, and their derivatives (m,), 0 at the ends of a box.
        """
        low = self.low[index]
        cap = self.cap[index]
        if self.base is None:
            weight, rate = self._free(price, low, cap)
        else:
            base = self.base[index]
            weight, rate = self._free(price, low / base, cap / base)
            weight = base * weight
            rate = base * rate
        inside = (weight > low) & (weight < cap)
        return np.clip(weight, low, cap), np.where(inside, rate, 0.0)

    def radii(self, weight: Array, price: Array, price_error: Array) -> Array:
        """Proved distances of computed weights from the exact weights at exact prices.

        Parameters
        ----------
        weight
            Computed weights (n,) within their boxes, however they were found.
        price
            Computed prices (n,).
        price_error
            Bounds (n,) of the distance of computed from exact prices.

        Returns
        -------
        Array
            Radii r_i (n,) with ``|weight_i - h_i(x_i)| <= r_i`` for every x_i within the error of
            the price. They are the width of the box where nothing better is proved.
        """
        widest = (self.cap - self.low) * (1.0 + 4.0 * UNIT)
        slack = self._slack(weight)
        radius = np.minimum(self._first_radii(weight, price, price_error), widest)
        proved = np.minimum(radius + slack, widest)
        open_rows = np.flatnonzero(self.cap > self.low)
        for _ in range(_DOUBLINGS):
            open_rows = open_rows[~self._encloses(weight, price, price_error, radius, open_rows)]
            if not len(open_rows):
                return np.where(self.cap > self.low, proved, 0.0)
            radius[open_rows] *= 4.0
            proved[open_rows] = np.minimum(radius[open_rows] + slack[open_rows], widest[open_rows])
        proved[open_rows] = widest[open_rows]
        return np.where(self.cap > self.low, proved, 0.0)

    def arguments_off(self, weight: Array, price: Array, price_error: Array) -> Array:
        """Proved distances of exact prices to prices that ask for exactly these weights.

        Parameters
        ----------
        weight
            Weights (n,) within their boxes.
        price, price_error
            As of :meth:`radii`.

        Returns
        -------
        Array
            Bounds (n,) of ``|xi_i|`` with ``weight_i = h_i(x_i + xi_i)``, for every x_i within the
            error of the price. Infinite where a weight is too near an infinite slope, and at least
            the jump at a kink.
        """
        base = self._bases(weight)
        slack = 2.0 * self._slack(weight)
        first, last = self.dispersion.ends
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # Slopes are computed at weights that are surely below and surely above these.
            low_slope, low_error = self._slope(np.clip((weight - slack) / base, first, last))
            high_slope, high_error = self._slope(np.clip((weight + slack) / base, first, last))
            rounding = price_error + 4.0 * UNIT * np.abs(price)
            above = price - low_slope + low_error + 4.0 * UNIT * np.abs(low_slope)
            below = high_slope - price + high_error + 4.0 * UNIT * np.abs(high_slope)
        # At an end of its box a weight stays, however far beyond that end the price would have it.
        above = np.where(weight >= self.cap, 0.0, above + rounding)
        below = np.where(weight <= self.low, 0.0, below + rounding)
        off = np.maximum(np.maximum(above, below), 0.0)
        off = np.where(np.isnan(off), np.inf, off)
        return np.where(self.cap > self.low, off, 0.0)

    def _free(self, price: Array, low: Array, cap: Array) -> tuple[Array, Array]:
        """Weights without a base; they may leave the box, which only the iteration needs."""
        formulas = {
            "square": _square,
            "entropy": _entropy,
            "log": _log,
            "power": _power,
            "logit": _logit,
        }
        flat = _line_slope(self.dispersion)
        curved = [part for part in self.dispersion.parts if part.atom != "line"]
        formula = formulas.get(self.dispersion.family)
        if formula is None:
            return _general(self.dispersion, price, low, cap)
        return formula(curved, price - flat)

    def _first_radii(self, weight: Array, price: Array, price_error: Array) -> Array:
        """Radii (n,) that are tried first, by the curvature at the weights; nothing is proved."""
        base = self._bases(weight)
        ratio = weight / base
        slack = self._slack(weight)
        _, slope_error = self._slope(ratio)
        curvature = self.dispersion.curvature(ratio) / base
        beyond = price - self.dispersion.slope(ratio)
        # At an end of its box a weight stays, however far beyond that end the price would have it.
        beyond = np.where(weight >= self.cap, np.minimum(beyond, 0.0), beyond)
        beyond = np.where(weight <= self.low, np.maximum(beyond, 0.0), beyond)
        distance = np.abs(beyond)
        for kink in self.dispersion.kinks:
            # The slope is given as the mean of both sides, and every price in between asks for the
            # kink.
            beyond_jump = np.maximum(distance - _jump(self.dispersion, kink), 0.0)
            distance = np.where(np.abs(ratio - kink) <= slack / base, beyond_jump, distance)
        spread = price_error + slope_error + distance
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            radius = 2.0 * spread / curvature + 2.0 * slack
        return np.where(np.isfinite(radius), radius, math.inf)

    def _encloses(
        self, weight: Array, price: Array, error: Array, radius: Array, rows: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Whether slopes prove that exact weights lie within the radius, of some records."""
        base = self._bases(weight)[rows]
        start = weight[rows] - radius[rows]
        end = weight[rows] + radius[rows]
        first, last = self.dispersion.ends
        start_slope, start_error = self._slope(np.clip(start / base, first, last))
        end_slope, end_error = self._slope(np.clip(end / base, first, last))
        least = price[rows] - error[rows]
        largest = price[rows] + error[rows]
        above_start = (start <= self.low[rows]) | (start_slope + start_error <= least)
        below_end = (end >= self.cap[rows]) | (end_slope - end_error >= largest)
        return np.asarray(above_start & below_end, dtype=np.bool_)

    def _bases(self, weight: Array) -> Array:
        """Base weights (n,); 1 where there are none."""
        if self.base is None:
            return np.ones_like(weight)
        return self.base

    def _slack(self, weight: Array) -> Array:
        """How far the argument of a slope may be from its weight (n,)."""
        base = self._bases(weight)
        return self._shift(weight / base) * base

    def _shift(self, ratio: Array) -> Array:
        """How far an argument of a slope may be from its weight, in units of weights.

        ``factor * w + offset`` is computed as that of a weight within three units of
        ``|w| + |offset / factor|``; a division by the base adds one.
        """
        largest_offset = 0.0
        for part in self.dispersion.parts:
            largest_offset = max(largest_offset, abs(part.offset / part.factor))
        return np.asarray(8.0 * UNIT * (np.abs(ratio) + largest_offset))

    def _slope(self, ratio: Array) -> tuple[Array, Array]:
        """Computed slopes, and bounds of their error at the arguments of :meth:`_shift`."""
        total = np.zeros_like(ratio)
        size = np.zeros_like(ratio)
        for part in self.dispersion.parts:
            inner = part.factor * ratio + part.offset
            slope = part.scale * part.factor * ATOMS[part.atom].slope(inner, part.number)
            total += slope
            size += _relative_error(part, inner) * np.abs(slope)
            if part.atom == "entropy":
                # The logarithm is exact to units of its own size, which 1 may cancel.
                size += 24.0 * abs(part.scale * part.factor)
        return total, size * (len(self.dispersion.parts) + 1.0) * UNIT


def _relative_error(part: DispersionPart, inner: Array) -> Array | float:
    """Units of roundoff of its size by which the slope of a part may be off at a given argument."""
    if part.atom == "power":
        logarithm = np.abs(np.log(np.maximum(inner, 1e-300)))
        return np.asarray(16.0 + 4.0 * (1.0 + abs(part.number)) * logarithm)
    return 16.0


def _line_slope(dispersion: Dispersion) -> float:
    """Slope of the lines in a dispersion."""
    return sum(part.scale * part.factor for part in dispersion.parts if part.atom == "line")


def _square(curved: list[DispersionPart], price: Array) -> tuple[Array, Array]:
    """``phi'(w) = a w + b``."""
    curvature = sum(2.0 * part.scale * part.factor**2 for part in curved)
    constant = sum(2.0 * part.scale * part.factor * part.offset for part in curved)
    return (price - constant) / curvature, np.full_like(price, 1.0 / curvature)


def _entropy(curved: list[DispersionPart], price: Array) -> tuple[Array, Array]:
    """``phi'(w) = s k (log(k w + c) + 1)``."""
    part = curved[0]
    exponent = price / (part.scale * part.factor) - 1.0
    inner = np.exp(np.clip(exponent, _LEAST_EXPONENT, _LARGEST_EXPONENT))
    return (inner - part.offset) / part.factor, inner / (part.scale * part.factor**2)


def _log(curved: list[DispersionPart], price: Array) -> tuple[Array, Array]:
    """``phi'(w) = -s k / (k w + c)``; prices of 0 or more ask for the largest weight."""
    part = curved[0]
    size = part.scale * part.factor
    inner = size / np.maximum(-price, 1e-130 * size)
    return (inner - part.offset) / part.factor, inner / (part.scale * part.factor**2) * inner


def _power(curved: list[DispersionPart], price: Array) -> tuple[Array, Array]:
    """``phi'(w) = +- s k p (k w + c)^(p - 1)``, with a minus for p between 0 and 1."""
    part = curved[0]
    exponent = part.number
    sign = 1.0
    if 0.0 < exponent < 1.0:
        sign = -1.0
    leading = sign * exponent * part.scale * part.factor
    # Prices of the other sign ask for the least weight of a rising slope, or the largest of one
    # below 0.
    power = np.clip(price / leading, LEAST_POWER, _LARGEST_POWER)
    logarithm = np.clip(np.log(power) / (exponent - 1.0), _LEAST_LOGARITHM, LARGEST_LOGARITHM)
    inner = np.exp(logarithm)
    rate = inner / power / (leading * (exponent - 1.0) * part.factor)
    return (inner - part.offset) / part.factor, rate


def _logit(curved: list[DispersionPart], price: Array) -> tuple[Array, Array]:
    """``phi'(w) = f (log(k w + c) - log(k' w + c'))`` with k > 0 > k'."""
    rising, falling = sorted(curved, key=lambda part: -part.factor)
    low = -rising.offset / rising.factor
    high = -falling.offset / falling.factor
    size = rising.scale * rising.factor
    ratio = math.log(rising.factor / -falling.factor)
    exponent = np.clip(price / size - ratio, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    share = 1.0 / (1.0 + np.exp(-exponent))
    complement = 1.0 / (1.0 + np.exp(exponent))
    # Near its upper end a weight is that end less a small number, not a number near 1 times the
    # width.
    weight = np.where(exponent > 0, high - (high - low) * complement, low + (high - low) * share)
    return weight, (high - low) * share * complement / size


def _jump(dispersion: Dispersion, kink: float) -> float:
    """Half of the jump of the slope at a kink."""
    jump = 0.0
    for part in dispersion.parts:
        if part.atom == "size" and -part.offset / part.factor == kink:
            jump += part.scale * abs(part.factor)
    return jump


def _general(dispersion: Dispersion, price: Array, low: Array, cap: Array) -> tuple[Array, Array]:
    """Safeguarded Newton steps in brackets; weights at kinks are exact.

    Brackets and their ends are those of "Brackets" in section "Powers and brackets" of
    ``docs/theory/weights_certificate.md``.
    """
    first, last = dispersion.ends
    left = np.maximum(low, first)
    right = np.minimum(cap, last)
    weight = (left + right) / 2.0
    kinked = np.zeros(len(price), dtype=bool)
    for kink in dispersion.kinks:
        # At a kink the slope is given as the mean of both sides.
        middle = float(dispersion.slope(np.array([kink]))[0])
        at_kink = np.abs(price - middle) <= _jump(dispersion, kink)
        at_kink &= (left <= kink) & (kink <= right)
        weight = np.where(at_kink, kink, weight)
        kinked |= at_kink
    with np.errstate(over="ignore"):
        # The slope of a power below 0 is minus infinity at 0.
        at_left = ~kinked & (dispersion.slope(left) >= price)
    at_right = ~kinked & (dispersion.slope(right) <= price)
    weight = np.where(at_left, left, np.where(at_right, right, weight))
    searching = np.flatnonzero(~(kinked | at_left | at_right))
    weight[searching] = _bracketed(
        dispersion, price[searching], weight[searching], left[searching], right[searching]
    )
    with np.errstate(divide="ignore"):
        rate = 1.0 / dispersion.curvature(weight)
    # No weight moves at a kink; where phi is straight no rate exists, and such dispersions are
    # refused.
    rate = np.where(kinked | ~np.isfinite(rate), 0.0, rate)
    return weight, rate


def _bracketed(
    dispersion: Dispersion, price: Array, start: Array, left: Array, right: Array
) -> Array:
    """Weights (m,) whose slopes are prices, by Newton's steps in brackets.

    They end where a bracket is as narrow as two units of roundoff of the weight, or a step as
    short.

    Parameters
    ----------
    dispersion
        The dispersion.
    price
        Prices (m,).
    start
        First weights (m,).
    left, right
        Ends (m,) of the brackets.
    """
    weight = start.copy()
    left = left.copy()
    right = right.copy()
    searching = np.arange(len(price))
    unit = 2.0 * UNIT
    for step in range(_MOST_STEPS):
        if not len(searching):
            break
        here = weight[searching]
        with np.errstate(all="ignore"):
            missing = price[searching] - dispersion.slope(here)
            newton = here + missing / dispersion.curvature(here)
        left[searching] = np.where(missing >= 0, here, left[searching])
        right[searching] = np.where(missing <= 0, here, right[searching])
        usable = (newton > left[searching]) & (newton < right[searching])
        if step % 6 == 5:
            usable[:] = False
        middle = (left[searching] + right[searching]) / 2.0
        new = np.where(usable, newton, middle)
        narrow = right[searching] - left[searching] <= unit * np.abs(new)
        still = np.abs(newton - here) <= unit * np.abs(here)
        weight[searching] = np.where(still, here, new)
        searching = searching[~(narrow | still)]
    return weight
