"""Neighbors of one kernel-balancing problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KernelMembers:
    """m neighbors: record ``index[k]`` leaves, and a new one comes in as one more variable.

    ``coupling`` (m, n) are its entries of Q with the shared records (0 at the one that left), ``linear``
    (m, n) the linear terms of the shared records, ``diagonal``, ``own_linear`` (m,) its own entries,
    ``group`` (m,) its simplex.
    """

    index: Index
    coupling: Array
    linear: Array
    diagonal: Array
    own_linear: Array
    group: Index

    def take(self, chosen: Index) -> Self:
        """Those neighbors alone."""
        parts = (self.index, self.coupling, self.linear, self.diagonal, self.own_linear, self.group)
        return type(self)(*(part[chosen] for part in parts))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"KernelMembers({len(self)})"


@dataclass(frozen=True, eq=False)
class KernelPoints:
    """m trial solutions: shared values (m, n) with 0 for the record that left, the new value (m,).

    ``multipliers`` (m, groups) belong to the totals.
    """

    shared: Array
    new: Array
    multipliers: Array

    def __repr__(self) -> str:
        return f"KernelPoints({len(self.new)})"
