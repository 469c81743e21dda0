"""Kernel balancing weights from few features: nothing of size n x n is ever formed."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.simplex import Simplices
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, product_error, sum_error


class FactoredKernelModel(Composite):
    """f(v) = ||G'v||^2 - 2 <c, v> + ridge ||v||^2 over a product of simplices; weights ``scale * v``.

    ``G`` (n, k), ``c = share F (F'1)``, summed in blocks, with rows of F as long as those of G. An inner
    product of rows is off by at most ``entry_error`` units of roundoff of their lengths, the features' own
    errors included. The start is uniform within each group.
    """

    self_concordance = 0.0

    def __init__(
        self, G: Array, c: Array, ridge: float, feasible: Simplices, scale: float, entry_error: float
    ) -> None:
        self.G, self.c, self.scale, self.entry_error = G, c, scale, entry_error
        self.n = self.dimension = len(c)
        self.half_ridge, self.ridge = ridge, 2 * ridge
        self.feasible, self.penalty = feasible, Penalty(feasible)
        self.sizes: Array = np.linalg.norm(G, axis=1)
        gram = G.T @ G
        error = (product_error(self.n) + 64 * len(gram) * UNIT) * float(np.trace(gram))
        self.smoothness = 2 * (float(np.linalg.eigvalsh(gram)[-1]) + error) * (1 + 1e-9) + self.ridge

    def value(self, v: Array) -> float:
        s = self.G.T @ v
        return float(s @ s) - 2 * float(self.c @ v) + self.half_ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        gradient: Array = 2 * (self.G @ blocked_rmatvec(self.G, v) - self.c) + self.ridge * v
        return gradient

    def hessian(self, v: Array) -> Array:
        hessian: Array = 2 * (self.G @ self.G.T)
        hessian[np.diag_indices(self.n)] += self.ridge
        return hessian

    def spectrum(self, v: Array) -> tuple[float, float]:
        return self.ridge, self.smoothness

    def hessian_rounding(self, v: Array) -> float:
        # an entry of G G' is off by what is known of the features, not by its own rounding alone
        entries = 2 * self.entry_error * UNIT * float(self.sizes @ self.sizes)
        return super().hessian_rounding(v) + entries * (1 + 1e-9)

    def rounding(self, v: Array) -> float:
        # with s = G'v: |s| and the magnitudes summed in it are at most sum_i |v_i| |g_i|; each entry of G s
        # then rounds by |g_i| |s|, and features that are off themselves count once in either product
        error = sum_error(self.n) + (self.entry_error + 16) * UNIT
        moment = float(self.sizes @ np.abs(v)) + float(np.sum(self.sizes))
        products = 2 * error * moment * float(np.linalg.norm(self.sizes)) * (1 + 1e-9)
        return products + 4 * UNIT * self.ridge * float(np.linalg.norm(v))

    def start(self) -> Array:
        return self.penalty.set.project(np.zeros(self.n))

    def output(self, v: Array) -> Array:
        return self.scale * v

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return self.scale * (math.sqrt(self.n) * radius + 4 * UNIT * float(np.sum(np.abs(v))))

    def output_scale(self, v: Array) -> float:
        return float(self.n)

    def newton_direction(self, trial: Array, move: Array, step: float) -> Array:
        """Solve ``(I - P (I - step H)) d = move`` with P the Jacobian of the projection at ``trial``.

        P centers the free coordinates of each group and is 0 elsewhere. There d is ``move``; within a group
        it is the mean of ``move`` plus a centered y with ``step ridge y + 2 step C C'y = P (move - 2 step G
        (G'd_0))``, C the centered free rows of G and d_0 what is known of d: a system of k equations.
        """
        free = self.feasible.free(trial)
        known, rows = move.copy(), self.G.copy()
        rows[~free] = 0.0
        for members in self.feasible.members():
            inside = members[free[members]]
            if len(inside):
                known[inside] = np.mean(move[inside])
                rows[inside] -= np.mean(rows[inside], axis=0)
        right = np.where(free, move - known, 0.0) - 2 * step * (rows @ (self.G.T @ known))
        inner = rows.T @ rows
        inner[np.diag_indices(len(inner))] += self.half_ridge
        for_features = cho_solve(cho_factor(inner), rows.T @ right)
        direction: Array = known + (right - rows @ for_features) / (step * self.ridge)
        return direction
