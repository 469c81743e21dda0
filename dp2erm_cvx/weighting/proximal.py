"""Prices of imbalances: the proximal step of a penalty, its slope at a point, and its value.

All penalties are ``f(r)`` of a size r >= 0: of every entry, or of the Euclidean norm of all. A kink is the
limit of steep squares, a constraint that of steep kinks, and all of them share one proximal step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.form import ImbalancePenalty

#: A norm below this is 0 where it divides.
_TINY = 1e-300


@dataclass(frozen=True)
class PricedColumns:
    """The coordinates of one imbalance and their penalty.

    Parameters
    ----------
    penalty
        The penalty.
    columns
        Where its coordinates stand among all.

    Raises
    ------
    DeclarationError
        For a norm that is neither 2 nor infinity, and for a kink of the largest entry.
    """

    penalty: ImbalancePenalty
    columns: slice

    def __post_init__(self) -> None:
        norm = self.penalty.norm
        if norm not in (None, 2, 2.0, math.inf):
            raise DeclarationError(f"imbalance priced by its {norm:g}-norm: write cp.norm(.., 2) or squares")
        if self.penalty.kinked and np.any(self.penalty.tolerance):
            raise DeclarationError("kink beyond a tolerance: write cp.sum_squares(cp.pos(cp.abs(m) - t))")
        if norm == math.inf and not self.penalty.hard:
            raise DeclarationError(
                "imbalance priced by its largest entry: no proximal step is known; write cp.sum_squares, "
                "cp.norm(.., 1) or cp.norm(.., 2)"
            )

    @property
    def by_norm(self) -> bool:
        """Whether the Euclidean norm is priced; entries at most t are a largest entry at most t."""
        return self.penalty.norm == 2

    @property
    def largest_price(self) -> float:
        """Largest size of a price (of an entry, or the norm of all): infinite for plain squares."""
        if self.penalty.kinked:
            return self.penalty.price
        if self.penalty.hard:
            return math.inf
        return self.penalty.smoothness * self.penalty.knee

    def size(self, s: Array) -> Array:
        """Sizes that are priced: (.., K) of entries, or (.., 1) of the norm."""
        if self.by_norm:
            return np.asarray(np.sqrt(np.sum(s * s, axis=-1, keepdims=True)))
        return np.abs(s)

    def value(self, s: Array) -> float:
        """The penalty at s (K,); 0 for a constraint."""
        penalty = self.penalty
        if penalty.hard:
            return 0.0
        if penalty.kinked:
            return penalty.price * float(np.sum(self.size(s)))
        beyond = np.maximum(self.size(s) - penalty.tolerance, 0.0)
        near = np.minimum(beyond, penalty.knee)
        return penalty.factor * float(np.sum(near * (2.0 * beyond - near)))

    def price(self, s: Array, otherwise: Array) -> Array:
        """A slope lambda (.., K) of the penalty at s (.., K): at a kink the one nearest ``otherwise``."""
        penalty = self.penalty
        if penalty.hard:
            return otherwise
        size = self.size(s)
        if penalty.kinked:
            largest = self.size(otherwise)
            inside = otherwise * (penalty.price / np.maximum(largest, penalty.price))
            direction = s / np.maximum(size, _TINY)
            return np.where(size > 0, penalty.price * direction, inside)
        slope = penalty.smoothness * np.minimum(np.maximum(size - penalty.tolerance, 0.0), penalty.knee)
        if self.by_norm:
            return np.asarray(slope / np.maximum(size, _TINY) * s)
        return np.sign(s) * slope

    def price_slack(self, s: Array) -> Array:
        """Units of roundoff, in prices, by which the norm of a computed price may be off beside its size.

        One number for every point: s (.., K) has the slack (..).
        """
        penalty = self.penalty
        if not self.by_norm or not math.isfinite(penalty.factor):
            return np.zeros(s.shape[:-1])
        # A size less its tolerance loses digits; beyond the knee the size no longer matters.
        size = np.minimum(self.size(s)[..., 0], float(penalty.tolerance) + 2.0 * penalty.knee)
        return np.asarray((s.shape[-1] + 8.0) * penalty.smoothness * size)

    def proximal_point(self, y: Array, step: float) -> Array:
        """``argmin penalty(s) + |s - y|^2 / (2 step)`` (.., K) of y (.., K)."""
        size = self.size(y)
        shrunk, along = self._shrunk(size, step)
        return np.asarray(self._across(size, shrunk, along) * y)

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        """The proximal point (.., K) of y (.., K), and its Jacobian (.., K, K)."""
        size = self.size(y)
        shrunk, along = self._shrunk(size, step)
        across = self._across(size, shrunk, along)
        s = across * y
        identity = np.eye(y.shape[-1])
        if not self.by_norm:
            return s, along[..., None] * identity
        direction = y / np.maximum(size, _TINY)
        outer = direction[..., :, None] * direction[..., None, :]
        jacobian = across[..., None] * identity + (along - across)[..., None] * outer
        return s, jacobian

    @staticmethod
    def _across(size: Array, shrunk: Array, along: Array) -> Array:
        """The factor that a proximal step shrinks sizes by."""
        return np.where(size > 0, shrunk / np.maximum(size, _TINY), along)

    def _shrunk(self, size: Array, step: float) -> tuple[Array, Array]:
        """The proximal step of sizes, and its slope."""
        penalty = self.penalty
        tolerance = np.broadcast_to(np.asarray(penalty.tolerance, dtype=np.float64), size.shape)
        if penalty.hard:
            return np.minimum(size, tolerance), np.where(size < tolerance, 1.0, 0.0)
        if penalty.kinked:
            beyond = size - step * penalty.price
            return np.maximum(beyond, 0.0), np.where(beyond > 0, 1.0, 0.0)
        steepness = 1.0 + penalty.smoothness * step
        curved = tolerance + (size - tolerance) / steepness
        shrunk = np.where(size <= tolerance, size, curved)
        along = np.where(size <= tolerance, 1.0, 1.0 / steepness)
        if math.isinf(penalty.knee):
            return shrunk, along
        straight = curved - tolerance > penalty.knee
        far = size - penalty.smoothness * step * penalty.knee
        return np.where(straight, far, shrunk), np.where(straight, 1.0, along)

    def misses(self, m: Array) -> float:
        """How far an imbalance m (K,) is beyond its tolerance at most; 0 where it is no constraint."""
        if not self.penalty.hard:
            return 0.0
        return float(np.max(np.maximum(self.size(m) - self.penalty.tolerance, 0.0), initial=0.0))
