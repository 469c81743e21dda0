"""Kernel balancing weights: a strongly convex quadratic over a product of simplices."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, sum_error
from dp2erm_cvx.program.kernels import ENTRY_ERROR


class SimplexQuadratic(Composite):
    """What quadratics with a ridge over a product of simplices share; the weights are ``scale * v``."""

    self_concordance = 0.0
    n: int
    scale: float

    def spectrum(self, v: Array) -> tuple[float, float]:
        # the eigenvalues of a Hessian of this size would cost more than the solve
        return self.ridge, self.smoothness

    def start(self) -> Array:
        return self.penalty.set.project(np.zeros(self.n))

    def output(self, v: Array) -> Array:
        return self.scale * v

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return self.scale * (math.sqrt(self.n) * radius + 4 * UNIT * float(np.sum(np.abs(v))))

    def output_scale(self, v: Array) -> float:
        return float(self.n)


class KernelModel(SimplexQuadratic):
    """f(v) = <v, Q v> - 2 <c, v> + ridge ||v||^2 over a product of simplices; weights ``scale * v``.

    ``Q`` (n, n) positive semidefinite, ``c`` (n,). The start is uniform within each group. ``entry_error`` is
    that of :meth:`~dp2erm_cvx.program.Kernel.entry_error`.
    """

    def __init__(
        self,
        Q: Array,
        c: Array,
        ridge: float,
        feasible: Simplices,
        scale: float,
        entry_error: float = ENTRY_ERROR,
    ) -> None:
        self.Q, self.c, self.scale, self.entry_error = Q, c, scale, entry_error
        self.n = self.dimension = len(c)
        self.half_ridge, self.ridge = ridge, 2 * ridge
        self.penalty = Penalty(feasible)
        self.row_sums: Array = np.sum(np.abs(Q), axis=1)
        # a Schur test bounds the largest eigenvalue by the largest absolute row sum
        self.smoothness = 2 * float(np.max(self.row_sums)) * (1 + 1e-9) + self.ridge

    def value(self, v: Array) -> float:
        return float(v @ (self.Q @ v)) - 2 * float(self.c @ v) + self.half_ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        gradient: Array = 2 * (blocked_rmatvec(self.Q, v) - self.c) + self.ridge * v
        return gradient

    def hessian(self, v: Array) -> Array:
        hessian: Array = 2 * self.Q
        hessian[np.diag_indices(self.n)] += self.ridge
        return hessian

    def hessian_rounding(self, v: Array) -> float:
        # the entries of Q are off by more than their own rounding: a kernel of random features turns the
        # error of an angle, which may be large, into one of its entries
        entries = 2 * self.entry_error * UNIT * float(np.sum(np.maximum(np.diag(self.Q), 0.0)))
        return super().hessian_rounding(v) + entries * (1 + 1e-9)

    def rounding(self, v: Array) -> float:
        error = sum_error(self.n) + 16 * UNIT
        terms = 2 * error * (np.abs(self.Q) @ np.abs(v) + self.row_sums) + 4 * UNIT * self.ridge * np.abs(v)
        # the entries of Q themselves, and c as a sum of such entries
        size = np.sqrt(np.maximum(np.diag(self.Q), 0.0))
        entries = 2 * self.entry_error * UNIT * float(size @ np.abs(v) + np.sum(size))
        return float(np.linalg.norm(terms)) + entries * float(np.linalg.norm(size))
