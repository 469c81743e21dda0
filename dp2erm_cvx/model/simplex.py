"""Products of scaled, capped simplices: the feasible sets of direct weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.sets import Projectable


@dataclass(frozen=True, eq=False)
class Simplices(Projectable):
    """``v >= floor``, ``v <= cap``, and ``sum of v over group g = total``, for every group that has members.

    ``group`` (n,) numbers the group of every coordinate. Raises InfeasibleError where the cap leaves too
    little room for the total.
    """

    group: NDArray[np.int64]
    total: float
    cap: float = math.inf
    floor: float = 0.0

    def __post_init__(self) -> None:
        smallest = min(len(members) for members in self.members())
        if smallest * self.cap * (1 + 1e-12) < self.total:
            raise InfeasibleError(
                f"a cap of {self.cap:g} on each weight leaves no room for the total of an arm: raise the cap"
            )

    def members(self) -> list[NDArray[np.int64]]:
        """Indices of every group that has members."""
        return [np.flatnonzero(self.group == g) for g in np.unique(self.group)]

    def totals(self) -> Array:
        """Total of group 0 and of group 1; 0 for a group without members."""
        present = np.isin(np.arange(2), self.group)
        return self.total * present.astype(np.float64)

    def project(self, v: Array) -> Array:
        projected = np.empty_like(v)
        for members in self.members():
            projected[members] = np.clip(v[members] - self._shift(v[members]), self.floor, self.cap)
        return projected

    def _shift(self, v: Array) -> float:
        """The tau with ``sum clip(v - tau, floor, cap) = total``, linear between breakpoints."""
        above = v - self.floor
        breaks = np.sort(above) if math.isinf(self.cap) else np.sort(np.concatenate([above, v - self.cap]))

        def filled(tau: float) -> float:
            return float(np.sum(np.clip(v - tau, self.floor, self.cap)))

        low, high = -1, len(breaks) - 1  # filled falls: at breaks[high] it is at most total
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if filled(breaks[middle]) > self.total else (low, middle)
        anchor = float(breaks[high])
        inside = (above >= anchor) & (v - self.cap < anchor)
        count = int(np.sum(inside)) or 1
        # on the stretch just below the anchor exactly the coordinates in ``inside`` move, each with slope -1
        return anchor - (self.total - filled(anchor)) / count

    def free(self, v: Array) -> NDArray[np.bool_]:
        """Which coordinates (n,) of the projection of ``v`` are at neither end."""
        point = self.project(v)
        inside: NDArray[np.bool_] = (point > self.floor) & (point < self.cap)
        return inside

    def jacobian(self, v: Array) -> Array:
        jacobian = np.zeros((len(v), len(v)))
        inside = self.free(v)
        for members in self.members():
            free = members[inside[members]]
            if len(free):
                jacobian[free, free] = 1.0
                jacobian[np.ix_(free, free)] -= 1.0 / len(free)
        return jacobian

    def rounding(self, dimension: int) -> float:
        return 16.0 + 4.0 * math.log2(dimension + 1)
