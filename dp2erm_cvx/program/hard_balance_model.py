"""Dual of weights of least variance under hard moment bounds: piecewise quadratic, with an l1 penalty."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sums import (
    UNIT,
    blocked_rmatvec,
    dot_error,
    exact_sum,
    product_error,
    sum_error,
)


@dataclass(frozen=True, eq=False)
class WeightedL1(Penalty):
    """``h(v) = sum_k price_k |v_k|``."""

    price: Array = field(default_factory=lambda: np.zeros(0))

    def value(self, v: Array) -> float:
        return float(self.price @ np.abs(v))

    def jacobian(self, v: Array, step: float) -> Array:
        return np.diag((np.abs(v) > step * self.price).astype(np.float64))

    def _shrink(self, v: Array, step: float) -> Array:
        return np.sign(v) * np.maximum(np.abs(v) - step * self.price, 0.0)


class HardBalanceModel(Composite):
    """f(v) = sum_i max(0, <b_i, v>)^2 / 2 - n <t, v>, plus ``n sum_k s_k |v_k|``; weights ``max(0, B v)``.

    The dual of ``minimize ||w||^2 / 2`` subject to ``|B'w/n - t| <= s`` and ``w >= 0``, with ``B`` (n, d),
    ``t`` and ``s`` (d,). The weights are unique; v is where the rows of positive weights span R^d.
    """

    ridge = 0.0
    self_concordance = math.inf

    def __init__(self, B: Array, target: Array, tolerance: Array) -> None:
        self.B, self.target, self.tolerance = B, target, tolerance
        self.n, self.dimension = len(B), int(B.shape[1])
        self.penalty = WeightedL1(price=self.n * tolerance)
        self.row_norms: Array = np.linalg.norm(B, axis=1)
        self.largest = float(np.linalg.norm(B, 2)) * (1 + 1e-9)
        self.smoothness = self.largest**2 * (1 + 1e-9) + 1e-300

    def value(self, v: Array) -> float:
        w = np.maximum(self.B @ v, 0.0)
        return 0.5 * float(w @ w) - self.n * float(self.target @ v)

    def gradient(self, v: Array) -> Array:
        return blocked_rmatvec(self.B, np.maximum(self.B @ v, 0.0)) - self.n * self.target

    def hessian(self, v: Array) -> Array:
        held = self.B[self.B @ v > 0]
        return held.T @ held

    def spectrum(self, v: Array) -> tuple[float, float]:
        return 0.0, self.smoothness

    def lowest_within(self, v: Array, distance: float) -> float:
        # a multiplier at 0 whose price is not reached anywhere near stays there, whatever the others do
        slack = self.n * self.tolerance - np.abs(self.gradient(v)) - self.rounding(v)
        free = ~((v == 0.0) & (slack > self.smoothness * distance))
        if not np.any(free):
            return self.smoothness
        margin = self.B @ v - self.row_norms * (distance + dot_error(self.dimension) * np.linalg.norm(v))
        held = self.B[margin > 0][:, free]
        error = (64 * self.dimension * UNIT + product_error(self.n)) * float(np.sum(self.row_norms**2))
        return max(float(np.linalg.eigvalsh(held.T @ held)[0]) - error, 0.0)

    def rounding(self, v: Array) -> float:
        size = self.row_norms * float(np.linalg.norm(v))
        error = (dot_error(self.dimension) + sum_error(self.n)) * float(size @ self.row_norms)
        return error + 4 * UNIT * self.n * float(np.linalg.norm(self.target))

    def output(self, v: Array) -> Array:
        weights: Array = np.maximum(self.B @ v, 0.0)
        total = exact_sum(weights)
        # off the minimizer the totals are met only nearly
        return weights * (self.n / total) if total > 0 else np.ones(self.n)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        products = dot_error(self.dimension) * float(np.sum(self.row_norms)) * float(np.linalg.norm(v))
        # twice, because rescaling to the right sum moves by at most the same distance again
        return 2 * (math.sqrt(self.n) * self.largest * radius + products) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)
