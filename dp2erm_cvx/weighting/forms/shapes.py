"""Shapes of prices: the value, the slope, its rounding and the proximal step of each.

Most are functions ``f(r)`` of a size r >= 0: of every entry, or of one norm of all. Their proximal
steps are in section "Norms" of ``docs/theory/weights_as_variable.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
from scipy.special import wrightomega

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, LogSumExpPenalty, Penalty

#: A norm below this is 0 where it divides.
_TINY = 1e-300
#: Ends of the logarithm of what splits a proximal step: beyond, a part of it is less than rounding.
_LEAST_SPLIT, _LARGEST_SPLIT = -70.0, 40.0
#: Most steps in brackets, every fifth of which halves them, and of Newton's method from one side.
_MOST_STEPS, _MOST_NEWTON = 400, 200


def _value_of_size(penalty: ImbalancePenalty, size: Array) -> float:
    """``f`` at sizes of any shape, added up; 0 for a constraint."""
    if penalty.hard:
        return 0.0
    if math.isinf(penalty.factor):
        return penalty.price * float(np.sum(size))
    beyond = np.maximum(size - penalty.tolerance, 0.0)
    near = np.minimum(beyond, penalty.knee)
    return penalty.factor * float(np.sum(near * (2.0 * beyond - near)))


def _slope_of_size(penalty: ImbalancePenalty, size: Array) -> Array:
    """``f'`` at sizes above 0 of any shape; of a kink its price."""
    if math.isinf(penalty.factor):
        return np.full_like(size, penalty.price)
    beyond = np.maximum(size - penalty.tolerance, 0.0)
    return np.asarray(2.0 * penalty.factor * np.minimum(beyond, penalty.knee))


def _curvature_of_size(penalty: ImbalancePenalty, size: Array) -> Array:
    """``f''`` at sizes of any shape, beside its jumps."""
    if math.isinf(penalty.factor):
        return np.zeros_like(size)
    beyond = size - penalty.tolerance
    return np.where((beyond > 0.0) & (beyond < penalty.knee), 2.0 * penalty.factor, 0.0)


def _shrunk_size(penalty: ImbalancePenalty, size: Array, step: float) -> tuple[Array, Array]:
    """``argmin f(r) + (r - size)^2 / (2 step)`` of sizes of any shape, and its slope."""
    tolerance = np.broadcast_to(np.asarray(penalty.tolerance, dtype=np.float64), size.shape)
    if penalty.hard:
        return np.minimum(size, tolerance), np.where(size < tolerance, 1.0, 0.0)
    if math.isinf(penalty.factor):
        beyond = size - step * penalty.price
        return np.maximum(beyond, 0.0), np.where(beyond > 0, 1.0, 0.0)
    # Within the tolerance nothing is priced, and beyond it a square.
    steepness = 1.0 + 2.0 * penalty.factor * step
    by_square = tolerance + (size - tolerance) / steepness
    shrunk = np.where(size <= tolerance, size, by_square)
    slope = np.where(size <= tolerance, 1.0, 1.0 / steepness)
    if math.isinf(penalty.knee):
        return shrunk, slope
    # Beyond the knee of a Huber function its slope is constant.
    beyond_knee = by_square - tolerance > penalty.knee
    by_line = size - 2.0 * penalty.factor * step * penalty.knee
    return np.where(beyond_knee, by_line, shrunk), np.where(beyond_knee, 1.0, slope)


class Shape(ABC):
    """A price of an imbalance (K,).

    Points have any leading axes; steps are one number for all of them.
    """

    @abstractmethod
    def value(self, s: Array) -> float:
        """The price of one imbalance s (K,); 0 for a constraint."""

    @abstractmethod
    def price(self, s: Array, preferred: Array) -> Array:
        """A slope (.., K) at s (.., K): where there are several, one near ``preferred`` (.., K)."""

    @abstractmethod
    def proximal_point(self, y: Array, step: float) -> Array:
        """``argmin price(s) + |s - y|^2 / (2 step)`` (.., K) of y (.., K)."""

    @abstractmethod
    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        """The proximal point (.., K) of y (.., K), and its Jacobian (.., K, K)."""

    def slack(self, s: Array) -> Array:
        """Units of roundoff, in prices, by which the norm of a computed slope may be off.

        They are beside those of its entries.

        One number (..) for every point s (.., K); an entry may be off by K + 8 units of its own
        size anyway.
        """
        return np.zeros(s.shape[:-1])

    def drift(self, s: Array, prices: Array) -> Array:
        """How far (.., K) the point of exactly these ``prices`` (.., K) may be from s (.., K)."""
        return np.zeros_like(s)

    def excess(self, m: Array) -> Array:
        """Sizes of an imbalance m (K,) beyond the tolerance.

        A constraint holds where none is above 0.
        """
        return -np.ones(1)

    def support(self, prices: Array) -> float:
        """Largest ``<prices, s>`` over what a constraint allows, of prices (K,); 0 for a price."""
        return 0.0

    def size_at_kink(self, numbers: Array) -> Array:
        """The norm (..) of numbers (.., K) that the norm of the slopes of a kink is dual to."""
        return np.asarray(np.linalg.norm(numbers, axis=-1))

    def step_units(self, columns: int) -> float:
        """Units of roundoff of a proximal step, relative to the norms of what it is taken of.

        Parameters
        ----------
        columns
            Number of coordinates, or a larger one.
        """
        return 16.0


class _OfEntries(Shape):
    """Prices of every entry by itself, on both sides or where it is above 0.

    Parameters
    ----------
    penalty
        The price.
    """

    def __init__(self, penalty: ImbalancePenalty) -> None:
        self.penalty = penalty

    def size(self, s: Array) -> Array:
        """Sizes (.., K) that are priced."""
        if self.penalty.sided:
            return np.maximum(s, 0.0)
        return np.abs(s)

    def value(self, s: Array) -> float:
        return _value_of_size(self.penalty, self.size(s))

    def price(self, s: Array, preferred: Array) -> Array:
        penalty = self.penalty
        if penalty.hard and penalty.sided:
            return np.maximum(preferred, 0.0)
        if penalty.hard:
            # A price of the other sign is rounding, but where the constraint is an equation.
            same_sign = np.sign(s) * preferred > 0.0
            equation = np.asarray(penalty.tolerance) == 0.0
            return np.where(same_sign | equation, preferred, 0.0)
        if not math.isinf(penalty.factor):
            return np.asarray(np.sign(s) * _slope_of_size(penalty, self.size(s)))
        least = -penalty.price
        if penalty.sided:
            least = 0.0
        at_kink = np.clip(preferred, least, penalty.price)
        below = np.full_like(s, least)
        return np.where(s > 0.0, penalty.price, np.where(s < 0.0, below, at_kink))

    def proximal_point(self, y: Array, step: float) -> Array:
        shrunk, _ = self._shrunk(y, step)
        return shrunk

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        shrunk, along = self._shrunk(y, step)
        return shrunk, along[..., None] * np.eye(y.shape[-1])

    def _shrunk(self, y: Array, step: float) -> tuple[Array, Array]:
        """The proximal step of every entry, and its slope."""
        size = self.size(y)
        shrunk, along = _shrunk_size(self.penalty, size, step)
        if self.penalty.sided:
            above = y > 0.0
            return np.where(above, shrunk, y), np.where(above, along, 1.0)
        across = np.where(size > 0, shrunk / np.maximum(size, _TINY), along)
        return across * y, along

    def excess(self, m: Array) -> Array:
        if self.penalty.sided:
            return np.asarray(m - self.penalty.tolerance)
        return np.asarray(np.abs(m) - self.penalty.tolerance)

    def drift(self, s: Array, prices: Array) -> Array:
        if not self.penalty.hard:
            return np.zeros_like(s)
        tolerance = np.asarray(self.penalty.tolerance, dtype=np.float64)
        at_end = np.abs(s - np.sign(prices) * tolerance)
        return np.where(prices != 0.0, at_end, np.maximum(self.size(s) - tolerance, 0.0))

    def support(self, prices: Array) -> float:
        return float(np.sum(self.penalty.tolerance * np.abs(prices)))

    def size_at_kink(self, numbers: Array) -> Array:
        return np.asarray(np.sum(np.abs(numbers), axis=-1))


class _OfEuclideanNorm(Shape):
    """Prices of the Euclidean norm.

    Parameters
    ----------
    penalty
        The price.
    """

    def __init__(self, penalty: ImbalancePenalty) -> None:
        self.penalty = penalty

    @staticmethod
    def size(s: Array) -> Array:
        """The norm, (.., 1)."""
        return np.asarray(np.sqrt(np.sum(s * s, axis=-1, keepdims=True)))

    def value(self, s: Array) -> float:
        return _value_of_size(self.penalty, self.size(s))

    def price(self, s: Array, preferred: Array) -> Array:
        penalty = self.penalty
        if penalty.hard:
            return preferred
        size = self.size(s)
        if math.isinf(penalty.factor):
            direction = s / np.maximum(size, _TINY)
            length = self.size(preferred)
            at_kink = preferred * (penalty.price / np.maximum(length, penalty.price))
            return np.where(size > 0, penalty.price * direction, at_kink)
        return np.asarray(_slope_of_size(penalty, size) / np.maximum(size, _TINY) * s)

    def slack(self, s: Array) -> Array:
        penalty = self.penalty
        if not math.isfinite(penalty.factor):
            return np.zeros(s.shape[:-1])
        # A size less its tolerance loses digits; beyond the knee the size no longer matters.
        size = np.minimum(self.size(s)[..., 0], float(penalty.tolerance) + 2.0 * penalty.knee)
        return np.asarray((s.shape[-1] + 8.0) * penalty.smoothness * size)

    def proximal_point(self, y: Array, step: float) -> Array:
        size = self.size(y)
        shrunk, along = _shrunk_size(self.penalty, size, step)
        return np.asarray(self._across(size, shrunk, along) * y)

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        size = self.size(y)
        shrunk, along = _shrunk_size(self.penalty, size, step)
        across = self._across(size, shrunk, along)
        direction = y / np.maximum(size, _TINY)
        outer = direction[..., :, None] * direction[..., None, :]
        jacobian = across[..., None] * np.eye(y.shape[-1]) + (along - across)[..., None] * outer
        return across * y, jacobian

    @staticmethod
    def _across(size: Array, shrunk: Array, along: Array) -> Array:
        """The factor that a proximal step shrinks the norm by."""
        return np.where(size > 0, shrunk / np.maximum(size, _TINY), along)

    def excess(self, m: Array) -> Array:
        return np.asarray(self.size(m) - self.penalty.tolerance)

    def drift(self, s: Array, prices: Array) -> Array:
        if not self.penalty.hard:
            return np.zeros_like(s)
        tolerance = float(self.penalty.tolerance)
        # t lambda / |lambda|.
        at_edge = self.penalty.tolerance * prices / np.maximum(self.size(prices), _TINY)
        return _drift_of_norm(s, self.size(s), at_edge, tolerance, s.shape[-1] + 16.0)

    def support(self, prices: Array) -> float:
        return float(self.penalty.tolerance) * float(self.size(prices)[..., 0])

    def step_units(self, columns: int) -> float:
        return 4.0 * (columns + 16.0)


class _OfLargestEntry(Shape):
    """Kinks and squares of the largest size of an entry.

    A proximal step cuts sizes at a threshold t: what is cut off adds up to ``step f'(t)``.

    Parameters
    ----------
    penalty
        The price, without tolerance and knee.
    """

    def __init__(self, penalty: ImbalancePenalty) -> None:
        self.penalty = penalty

    @staticmethod
    def size(s: Array) -> Array:
        """The largest size, (.., 1)."""
        return np.asarray(np.max(np.abs(s), axis=-1, keepdims=True, initial=0.0))

    def value(self, s: Array) -> float:
        return _value_of_size(self.penalty, self.size(s))

    def price(self, s: Array, preferred: Array) -> Array:
        """Shares of the entries of exactly the largest size, in proportion to ``preferred``."""
        penalty = self.penalty
        size = self.size(s)
        is_largest = (np.abs(s) == size) & (size > 0.0)
        pushed = np.where(is_largest, np.maximum(np.sign(s) * preferred, 0.0), 0.0)
        total = np.sum(pushed, axis=-1, keepdims=True)
        count = np.maximum(np.sum(is_largest, axis=-1, keepdims=True), 1)
        in_proportion = pushed / np.maximum(total, _TINY)
        shares = np.where(total > 0.0, in_proportion, is_largest / count)
        price = np.sign(s) * _slope_of_size(penalty, size) * shares
        if not math.isinf(penalty.factor):
            return np.asarray(price)
        summed = np.sum(np.abs(preferred), axis=-1, keepdims=True)
        at_kink = preferred * (penalty.price / np.maximum(summed, penalty.price))
        return np.asarray(np.where(size > 0.0, price, at_kink))

    def proximal_point(self, y: Array, step: float) -> Array:
        threshold = self._threshold(np.abs(y), step)
        return np.clip(y, -threshold, threshold)

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        threshold = self._threshold(np.abs(y), step)
        is_cut = (np.abs(y) > threshold) & (threshold > 0.0)
        signs = np.where(is_cut, np.sign(y), 0.0)
        bend = step * _curvature_of_size(self.penalty, threshold)
        count = np.sum(is_cut, axis=-1, keepdims=True) + bend
        kept = np.where(is_cut | (threshold <= 0.0), 0.0, 1.0)
        # Entries that are cut move together, with the threshold.
        outer = signs[..., :, None] * signs[..., None, :]
        together = outer / np.maximum(count, _TINY)[..., None]
        jacobian = kept[..., None] * np.eye(y.shape[-1]) + together
        return np.clip(y, -threshold, threshold), jacobian

    def _threshold(self, size: Array, step: float) -> Array:
        """The threshold (.., 1) of sizes (.., K), by Newton's steps from 0, which never pass it."""
        penalty = self.penalty
        if math.isfinite(penalty.factor):
            return _threshold_of_sizes(size, 0.0, 2.0 * penalty.factor * step)
        return _threshold_of_sizes(size, step * penalty.price, 0.0)

    def size_at_kink(self, numbers: Array) -> Array:
        return np.asarray(np.max(np.abs(numbers), axis=-1, initial=0.0))

    def step_units(self, columns: int) -> float:
        # A sum of K sizes is the threshold of every one of them.
        return 8.0 * math.pow(columns + 16.0, 1.5)


def _threshold_of_sizes(size: Array, cut_off: float, bend: float) -> Array:
    """The t >= 0 with ``sum_k max(size_k - t, 0) = cut_off + bend t``.

    It is 0 where even t = 0 cuts off less.

    The difference of both sides is convex and piecewise linear, so that Newton's steps from 0 rise
    to it and end after as many pieces as there are.

    Parameters
    ----------
    size
        Sizes (.., K).
    cut_off, bend
        Numbers at least 0.

    Returns
    -------
    Array
        The thresholds (.., 1).
    """
    threshold = np.zeros((*size.shape[:-1], 1))
    for _ in range(size.shape[-1] + 1):
        above = size > threshold
        count = np.sum(above, axis=-1, keepdims=True) + bend
        total = np.sum(np.where(above, size, 0.0), axis=-1, keepdims=True)
        # Where nothing is above the threshold nothing of it moves.
        new = np.maximum((total - cut_off) / np.where(count > 0.0, count, 1.0), threshold)
        if np.all(new == threshold):
            break
        threshold = new
    return threshold


class _WithinSumOfSizes(Shape):
    """The constraint that the sizes of all entries add up to a tolerance at most.

    Parameters
    ----------
    penalty
        The constraint.
    """

    def __init__(self, penalty: ImbalancePenalty) -> None:
        self.penalty = penalty

    def value(self, s: Array) -> float:
        return 0.0

    def price(self, s: Array, preferred: Array) -> Array:
        # Entries that are not 0 have one size of price, in doubles as well.
        largest = np.max(np.abs(preferred), axis=-1, keepdims=True, initial=0.0)
        return np.where(s != 0.0, np.sign(s) * largest, preferred)

    def proximal_point(self, y: Array, step: float) -> Array:
        size = np.abs(y)
        threshold = _threshold_of_sizes(size, float(self.penalty.tolerance), 0.0)
        return np.asarray(np.sign(y) * np.maximum(size - threshold, 0.0))

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        s = self.proximal_point(y, step)
        signs = np.sign(s)
        kept = np.abs(signs)
        identity = np.eye(y.shape[-1])
        is_outside = np.sum(np.abs(y), axis=-1, keepdims=True) > float(self.penalty.tolerance)
        count = np.maximum(np.sum(kept, axis=-1, keepdims=True), 1.0)
        # Entries that are not 0 move together, with the threshold.
        together = signs[..., :, None] * signs[..., None, :] / count[..., None]
        return s, np.where(is_outside[..., None], kept[..., None] * identity - together, identity)

    def excess(self, m: Array) -> Array:
        return np.array([np.sum(np.abs(m))]) - self.penalty.tolerance

    def drift(self, s: Array, prices: Array) -> Array:
        tolerance = float(self.penalty.tolerance)
        size = np.sum(np.abs(s), axis=-1, keepdims=True)
        at_edge = s * (self.penalty.tolerance / np.maximum(size, _TINY))
        at_edge = np.where(np.any(prices != 0.0, axis=-1, keepdims=True), at_edge, 0.0)
        return _drift_of_norm(s, size, at_edge, tolerance, s.shape[-1] + 16.0)

    def support(self, prices: Array) -> float:
        return float(self.penalty.tolerance) * float(np.max(np.abs(prices), initial=0.0))


class _OfNorm(Shape):
    """Prices of the norm of an order between 1 and infinity.

    A proximal step splits every size y into ``s + a`` with ``a = mu s^(q-1)``, and mu is where the
    dual norm of a is ``step f'(|s|_q)``; the one rises with mu, the other falls.

    Parameters
    ----------
    penalty
        The price.
    """

    def __init__(self, penalty: ImbalancePenalty) -> None:
        assert penalty.norm is not None
        self.penalty = penalty
        self.order = penalty.norm
        self.power = penalty.norm - 1.0
        self.dual = penalty.norm / self.power

    def size(self, s: Array) -> Array:
        """The norm, (.., 1)."""
        return _norm_of_order(s, self.order)

    def value(self, s: Array) -> float:
        return _value_of_size(self.penalty, self.size(s))

    def price(self, s: Array, preferred: Array) -> Array:
        penalty = self.penalty
        if penalty.hard:
            return preferred
        size = self.size(s)
        price = _slope_of_size(penalty, size) * self._direction(s, size)
        if not math.isinf(penalty.factor):
            return np.asarray(price)
        length = _norm_of_order(preferred, self.dual)
        at_kink = preferred * (penalty.price / np.maximum(length, penalty.price))
        return np.asarray(np.where(size > 0.0, price, at_kink))

    def _direction(self, s: Array, size: Array) -> Array:
        """The slope (.., K) of the norm, 0 at 0."""
        return np.asarray(np.sign(s) * (np.abs(s) / np.maximum(size, _TINY)) ** self.power)

    def slack(self, s: Array) -> Array:
        penalty = self.penalty
        if penalty.hard:
            return np.zeros(s.shape[:-1])
        coordinates = s.shape[-1]
        size = self.size(s)[..., 0]
        # The norm is off by K + 6 units, an entry over it by two more, and its power by as many
        # times that.
        units = self.power * (coordinates + 16.0) + coordinates + 24.0
        spread = coordinates ** max(1.0 / self.order - 0.5, 0.0)
        slack = 1.01 * units * spread * _slope_of_size(penalty, size)
        if math.isfinite(penalty.factor):
            least = np.minimum(size, float(penalty.tolerance) + 2.0 * penalty.knee)
            slack = slack + (coordinates + 8.0) * spread * 2.0 * penalty.factor * least
        return np.asarray(slack)

    def proximal_point(self, y: Array, step: float) -> Array:
        s, _ = self._split(y, step)
        return s

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        s, a = self._split(y, step)
        size = self.size(s)
        direction = self._direction(s, size)
        # y = s + a with a = mu s^(q - 1): at a fixed mu an entry of s moves by a share of y.
        with np.errstate(divide="ignore", invalid="ignore"):
            steepness = np.where(a > 0.0, self.power * a / np.abs(s), 0.0)
        kept = 1.0 / (1.0 + steepness)
        moved = kept * direction
        along = np.sum(direction * moved, axis=-1, keepdims=True)
        factor = self._factor_along(size, along, step)
        outer = moved[..., :, None] * moved[..., None, :]
        jacobian = kept[..., None] * np.eye(y.shape[-1]) - factor[..., None] * outer
        # Where all of y is split off nothing moves, and where nothing is everything does.
        jacobian = np.where((size > 0.0)[..., None], jacobian, 0.0)
        is_free = np.all(a == 0.0, axis=-1)[..., None, None]
        return s, np.where(is_free, np.eye(y.shape[-1]), jacobian)

    def _factor_along(self, size: Array, along: Array, step: float) -> Array:
        """What the norm of a proximal point takes off its Jacobian, (.., 1).

        Parameters
        ----------
        size
            The norm (.., 1); where it is 0 any number will do.
        along
            How fast it moves with mu held fixed, (.., 1).
        step
            The step.
        """
        penalty = self.penalty
        some = size > 0.0
        if penalty.hard:
            return np.asarray(1.0 / np.where(some, along, 1.0))
        length = np.where(some, size, 1.0)
        curvature = _curvature_of_size(penalty, length)
        bend = curvature - self.power * _slope_of_size(penalty, length) / length
        return np.asarray(step * bend / (1.0 + step * bend * along))

    def _split(self, y: Array, step: float) -> tuple[Array, Array]:
        """The proximal point (.., K) of y (.., K), and the sizes (.., K) of what was taken off."""
        scale = np.maximum(np.max(np.abs(y), axis=-1, keepdims=True, initial=0.0), _TINY)
        size = np.abs(y) / scale
        guess = self._guess(size, scale, step)
        s, a = self._rooted(size, scale, step, guess)
        is_absorbed = self._is_absorbed(y, step)
        s = np.where(is_absorbed, 0.0, s)
        a = np.where(is_absorbed, size, a)
        is_free = self._is_free(y)
        s = np.where(is_free, size, s)
        a = np.where(is_free, 0.0, a)
        # Within the tolerance a point stays what it is, in doubles as well.
        return np.where(is_free, y, np.sign(y) * s * scale), a * scale

    def _is_absorbed(self, y: Array, step: float) -> Array:
        """Whether (.., 1) a kink takes all of y: its dual norm is at most ``step price``."""
        penalty = self.penalty
        if penalty.hard or not math.isinf(penalty.factor):
            return np.zeros((*y.shape[:-1], 1), dtype=bool)
        return np.asarray(_norm_of_order(y, self.dual) <= step * penalty.price)

    def _is_free(self, y: Array) -> Array:
        """Whether (.., 1) y is within the tolerance."""
        penalty = self.penalty
        if math.isinf(penalty.factor) and not penalty.hard:
            return np.zeros((*y.shape[:-1], 1), dtype=bool)
        return np.asarray(self.size(y) <= penalty.tolerance)

    def _guess(self, size: Array, scale: Array, step: float) -> Array:
        """A first logarithm (.., 1) of mu: that of one entry of this norm."""
        norm = _norm_of_order(size, self.order)
        shrunk, _ = _shrunk_size(self.penalty, norm * scale, step)
        shrunk = np.maximum(shrunk / scale, 1e-12)
        taken_off = np.maximum(norm - shrunk, 1e-12)
        return np.asarray(np.log(taken_off) - self.power * np.log(shrunk))

    def _rooted(self, size: Array, scale: Array, step: float, guess: Array) -> tuple[Array, Array]:
        """Sizes s and a (.., K) of sum ``size`` (.., K), in units of ``scale``.

        They are found by steps of Newton's for the logarithm of mu, in brackets.
        """
        low = np.full(scale.shape, _LEAST_SPLIT)
        high = np.full(scale.shape, _LARGEST_SPLIT * max(self.power, 1.0))
        here = np.clip(guess, low, high)
        for count in range(_MOST_STEPS):
            s, a = _split_sizes(size, np.exp(here), self.power)
            gap, newton = self._gap(s, a, scale, step)
            low = np.where(gap < 0.0, here, low)
            high = np.where(gap >= 0.0, here, high)
            by_newton = here - newton
            usable = np.isfinite(by_newton) & (by_newton > low) & (by_newton < high)
            if count % 5 == 4:
                usable[:] = False
            new = np.where(usable, by_newton, (low + high) / 2.0)
            if np.all(np.abs(new - here) <= 4.0 * UNIT * np.maximum(np.abs(here), 1.0)):
                break
            here = new
        return s, a

    def _gap(self, s: Array, a: Array, scale: Array, step: float) -> tuple[Array, Array]:
        """Excess of the dual norm of a over ``step f'(|s|)`` (.., 1), and Newton's step.

        The step is that of its logarithm. Of a constraint the excess is that of the tolerance over
        the norm of s.
        """
        penalty = self.penalty
        size = _norm_of_order(s, self.order)
        moved = a * s / np.maximum(s + self.power * a, _TINY)
        shares = s / np.maximum(size, _TINY)
        falling = np.sum(shares**self.power * moved, axis=-1, keepdims=True)
        with np.errstate(all="ignore"):
            if penalty.hard:
                rising_side = np.full_like(size, float(penalty.tolerance)) / scale
                falling_side = size
                rate = falling / size
            else:
                rising_side = _norm_of_order(a, self.dual)
                falling_side = step * _slope_of_size(penalty, size * scale) / scale
                rate = np.sum(shares * moved, axis=-1, keepdims=True) / rising_side
                curvature = step * _curvature_of_size(penalty, size * scale)
                rate = rate + curvature * falling / falling_side
            newton = (np.log(rising_side) - np.log(falling_side)) / rate
        return rising_side - falling_side, newton

    def excess(self, m: Array) -> Array:
        return np.asarray(self.size(m) - self.penalty.tolerance)

    def drift(self, s: Array, prices: Array) -> Array:
        if not self.penalty.hard:
            return np.zeros_like(s)
        # t sign(lambda_k) (|lambda_k| / |lambda|_q')^(q' - 1).
        tolerance = float(self.penalty.tolerance)
        shares = np.abs(prices) / np.maximum(_norm_of_order(prices, self.dual), _TINY)
        at_edge = tolerance * np.sign(prices) * shares ** (self.dual - 1.0)
        units = (self.dual - 1.0) * (s.shape[-1] + 16.0) + s.shape[-1] + 24.0
        return _drift_of_norm(s, self.size(s), at_edge, tolerance, units)

    def support(self, prices: Array) -> float:
        return float(self.penalty.tolerance) * float(_norm_of_order(prices, self.dual)[..., 0])

    def size_at_kink(self, numbers: Array) -> Array:
        return np.asarray(self.size(numbers)[..., 0])

    def step_units(self, columns: int) -> float:
        return 8.0 * math.pow(columns + 16.0, 1.5) * (self.order + 1.0 / self.power)


def _drift_of_norm(s: Array, size: Array, at_edge: Array, tolerance: float, units: float) -> Array:
    """How far (.., K) a constrained imbalance s (.., K) is from one that has its prices exactly.

    Parameters
    ----------
    s
        Imbalances (.., K).
    size
        Their norms (.., 1), within ``units`` of roundoff.
    at_edge
        Imbalances (.., K) of the largest norm that have the prices, within ``units``; 0 without
        prices.
    tolerance
        The largest norm.
    units
        Units of roundoff.
    """
    outside = np.maximum(1.0 - tolerance / np.maximum(size, _TINY), 0.0) * np.abs(s)
    priced = np.any(at_edge != 0.0, axis=-1, keepdims=True)
    rounding = units * UNIT * (np.abs(s) + np.abs(at_edge))
    return np.where(priced, np.abs(s - at_edge), outside) + rounding


def _norm_of_order(numbers: Array, order: float) -> Array:
    """The norm (.., 1) of numbers (.., K) of an order above 1, without overflow."""
    largest = np.max(np.abs(numbers), axis=-1, keepdims=True, initial=0.0)
    shares = np.abs(numbers) / np.maximum(largest, _TINY)
    return np.asarray(largest * np.sum(shares**order, axis=-1, keepdims=True) ** (1.0 / order))


def _split_sizes(size: Array, mu: Array, power: float) -> tuple[Array, Array]:
    """Sizes s and a (.., K) with ``s + a = size`` and ``a = mu s^power``.

    For powers of at least 1 the sum is convex in s, and Newton's steps from above fall to it; for
    others a is such a power of s.

    Parameters
    ----------
    size
        Sizes (.., K), at least 0.
    mu
        Factors (.., 1) above 0.
    power
        The power, above 0.

    Returns
    -------
    tuple
        The sizes s and a.
    """
    if power < 1.0:
        a, s = _split_sizes(size, mu ** (-1.0 / power), 1.0 / power)
        return s, a
    with np.errstate(over="ignore", under="ignore"):
        s = np.minimum(size, (size / mu) ** (1.0 / power))
        for _ in range(_MOST_NEWTON):
            steepness = mu * s ** (power - 1.0)
            new = s - (s + steepness * s - size) / (1.0 + power * steepness)
            new = np.clip(new, 0.0, s)
            done = np.all(s - new <= 2.0 * UNIT * s)
            s = new
            if done:
                break
        return s, mu * s**power


class _Envelope(Shape):
    """The Moreau envelope of a price.

    With ``u`` the proximal point of s, its slope at s is a slope of the price at u, and
    ``s = u + e slope``.

    Parameters
    ----------
    whole
        The price.
    parameter
        e, above 0.
    """

    def __init__(self, whole: Shape, parameter: float) -> None:
        self.whole = whole
        self.parameter = parameter

    def value(self, s: Array) -> float:
        u = self.whole.proximal_point(s, self.parameter)
        return self.whole.value(u) + float(np.sum(np.square(s - u))) / (2.0 * self.parameter)

    def price(self, s: Array, preferred: Array) -> Array:
        u = self.whole.proximal_point(s, self.parameter)
        return self.whole.price(u, (s - u) / self.parameter)

    def slack(self, s: Array) -> Array:
        return self.whole.slack(self.whole.proximal_point(s, self.parameter))

    def drift(self, s: Array, prices: Array) -> Array:
        u = self.whole.proximal_point(s, self.parameter)
        added = self.parameter * prices
        units = (s.shape[-1] + 16.0) * UNIT
        rounding = units * (np.abs(s) + np.abs(u) + np.abs(added))
        of_price = self.parameter * UNIT * self.whole.slack(u)[..., None]
        return np.asarray(np.abs(s - u - added) + rounding + of_price)

    def proximal_point(self, y: Array, step: float) -> Array:
        total = step + self.parameter
        u = self.whole.proximal_point(y, total)
        return np.asarray((self.parameter / total) * y + (step / total) * u)

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        total = step + self.parameter
        u, jacobian = self.whole.prox(y, total)
        identity = np.eye(y.shape[-1])
        s = (self.parameter / total) * y + (step / total) * u
        return s, (self.parameter / total) * identity + (step / total) * jacobian

    def step_units(self, columns: int) -> float:
        return 2.0 * self.whole.step_units(columns) + 16.0


class _OfLogSumExp(Shape):
    """``factor * log(sum_k exp(m_k))``.

    A proximal step takes off ``x_k = step price_k`` with
    ``x_k + log x_k = log(step factor) + y_k - level``, where the level is such that all x_k add up
    to ``step factor``.

    Parameters
    ----------
    penalty
        The price.
    """

    def __init__(self, penalty: LogSumExpPenalty) -> None:
        self.penalty = penalty

    def value(self, s: Array) -> float:
        largest = float(np.max(s))
        return self.penalty.factor * (largest + math.log(float(np.sum(np.exp(s - largest)))))

    def price(self, s: Array, preferred: Array) -> Array:
        return self.penalty.factor * _shares(s)

    def slack(self, s: Array) -> Array:
        # An exponential is off by as many units as its argument has, and t exp(-t) is below .37.
        return np.full(s.shape[:-1], (2.0 * s.shape[-1] + 24.0) * self.penalty.factor)

    def proximal_point(self, y: Array, step: float) -> Array:
        return np.asarray(y - self._taken_off(y, step))

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        taken_off = self._taken_off(y, step)
        kept = 1.0 / (1.0 + taken_off)
        moved = kept * taken_off
        total = np.sum(moved, axis=-1)[..., None, None]
        outer = moved[..., :, None] * moved[..., None, :] / np.maximum(total, _TINY)
        return y - taken_off, kept[..., None] * np.eye(y.shape[-1]) + outer

    def _taken_off(self, y: Array, step: float) -> Array:
        """The numbers x (.., K), by Newton's steps in the level.

        They rise to it, as the sum is convex.
        """
        weight = step * self.penalty.factor
        largest = np.max(y, axis=-1, keepdims=True)
        argument = math.log(weight) + y - largest
        level = np.full(largest.shape, -weight)
        for _ in range(_MOST_NEWTON):
            x = wrightomega(argument - level)
            excess = np.sum(x, axis=-1, keepdims=True) - weight
            new = level + excess / np.sum(x / (1.0 + x), axis=-1, keepdims=True)
            done = np.all(new - level <= 8.0 * UNIT * np.maximum(np.abs(level), 1.0))
            level = np.maximum(new, level)
            if done:
                break
        return np.asarray(x)

    def step_units(self, columns: int) -> float:
        return 8.0 * math.pow(columns + 16.0, 1.5)


def _shares(s: Array) -> Array:
    """``exp(s_k) / sum_l exp(s_l)``, (.., K)."""
    powers = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return np.asarray(powers / np.sum(powers, axis=-1, keepdims=True))


def shape_of(penalty: Penalty) -> Shape:
    """The shape of a penalty.

    Parameters
    ----------
    penalty
        The penalty.

    Returns
    -------
    Shape
    """
    if isinstance(penalty, LogSumExpPenalty):
        return _OfLogSumExp(penalty)
    if penalty.envelope:
        return _Envelope(shape_of(replace(penalty, envelope=0.0)), penalty.envelope)
    # Entries of at most t are a largest entry of at most t.
    if penalty.norm is None or (penalty.hard and math.isinf(penalty.norm)):
        return _OfEntries(penalty)
    if penalty.norm == 2.0:
        return _OfEuclideanNorm(penalty)
    if math.isinf(penalty.norm):
        return _OfLargestEntry(penalty)
    if penalty.norm == 1.0:
        return _WithinSumOfSizes(penalty)
    return _OfNorm(penalty)
