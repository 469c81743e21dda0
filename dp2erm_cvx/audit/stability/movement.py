"""How far the weights moved between two neighbors, with an interval from the two certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.audit.stability.claims import Quantity
from dp2erm_cvx.domain import Array
from dp2erm_cvx.program.sums import UNIT


@dataclass(frozen=True)
class Interval:
    """An interval that holds the exact value."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"[{self.low:.6g}, {self.high:.6g}]"


def movements(w: Array, v: Array, changed: int, w_radius: float, v_radius: float) -> dict[Quantity, Interval]:
    """Every movement between computed weights ``w``, ``v`` (n,), as intervals.

    The exact weights are within ``w_radius`` and ``v_radius`` of them in the 1-norm, hence in any other norm
    and each weight by itself. ``changed`` is the record that differs.
    """
    n = len(w)
    error = (w_radius + v_radius) * (1 + 1e-9) + 16 * n * UNIT * float(np.sum(w) + np.sum(v))
    each = max(w_radius, v_radius) * (1 + 1e-9)
    gap = np.abs(w - v)
    common = float(np.sum(np.delete(gap, changed)))
    moved = common + float(gap[changed])
    norm = float(np.linalg.norm(gap))
    both = float(np.max(np.minimum(w, v)))
    low_product = float(np.max(np.maximum(w - w_radius, 0.0) * np.maximum(v - v_radius, 0.0)))
    high_product = float(np.max((w + w_radius) * (v + v_radius)))
    differ = int(np.count_nonzero(gap > error))
    low_norm = max(norm - error, 0.0)
    return {
        Quantity.V: _around(common + float(w[changed]) + float(v[changed]), error),
        Quantity.L1: _around(moved, error),
        Quantity.L2: _around(norm, error),
        Quantity.L0: Interval(differ, n),
        Quantity.W1: _around(moved + 2 * both, error + 2 * each),
        Quantity.W2: Interval(
            np.sqrt((low_norm**2 + 2 * low_product) * (1 + differ)) * (1 - 1e-12),
            np.sqrt(((norm + error) ** 2 + 2 * high_product) * (1 + n)) * (1 + 1e-12),
        ),
        Quantity.LARGEST: _around(float(max(np.max(w), np.max(v))), each),
    }


def _around(value: float, error: float) -> Interval:
    return Interval(max(value - error, 0.0), value + error)


def of_groups(w: Array, v: Array, count: Array) -> dict[Quantity, Array]:
    """The movements (b,) of b pairs of groups: ``w``, ``v`` weights per record and ``count`` (b, m).

    The last group is the changed record. Not certified: for searching.
    """
    gap = np.abs(w - v)
    moved = np.sum(count * gap, axis=1)
    present = count > 0
    squares = np.sum(count * gap**2, axis=1)
    differ = np.sum(count * (gap > 1e-7), axis=1)
    product = np.max(w * v * present, axis=1)
    return {
        Quantity.V: moved + 2 * np.minimum(w[:, -1], v[:, -1]),
        Quantity.L1: moved,
        Quantity.L2: np.sqrt(squares),
        Quantity.L0: differ,
        Quantity.W1: moved + 2 * np.max(np.minimum(w, v) * present, axis=1),
        Quantity.W2: np.sqrt((squares + 2 * product) * (1 + differ)),
        Quantity.LARGEST: np.max(np.maximum(w, v) * present, axis=1),
    }
