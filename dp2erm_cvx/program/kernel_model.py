"""Kernel weights: quadratics with a ridge over products of simplices, by a Gram matrix or by features."""

from __future__ import annotations

import hashlib
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from dp2erm_cvx.blocks import Blocks, tree_sum, whole
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.composite import SimplexModel
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, product_error, row_products, sum_error
from dp2erm_cvx.program.kernels import ENTRY_ERROR, Kernel


class KernelModel(SimplexModel):
    """f(v) = <v, Q v> - 2 <c, v> + ridge ||v||^2 over a product of simplices; weights ``scale * v``.

    ``Q`` (n, n) positive semidefinite, ``c`` (n,); ``entry_error`` as in
    :meth:`~dp2erm_cvx.program.kernels.Kernel.entry_error`.
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
        super().__init__(feasible)
        self.half_ridge, self.ridge = ridge, 2 * ridge
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


class FactoredKernelModel(SimplexModel):
    """f(v) = ||G'v||^2 - 2 <c, v> + ridge ||v||^2 over a product of simplices; weights ``scale * v``.

    ``rows`` G (n, k) may come in blocks, ``c = share F (F'1)``, with rows of F as long as those of G. An
    inner product of rows is off by at most ``entry_error`` units of roundoff of their lengths, the features'
    own errors included.
    """

    def __init__(
        self,
        rows: Array | Blocks[Array],
        c: Array,
        ridge: float,
        feasible: Simplices,
        scale: float,
        entry_error: float,
    ) -> None:
        self.blocks = rows if isinstance(rows, Blocks) else whole(rows, len(rows))
        self.c, self.scale, self.entry_error = c, scale, entry_error
        super().__init__(feasible)
        self.half_ridge, self.ridge, self.feasible = ridge, 2 * ridge, feasible
        parts = self.blocks.map(_extent)
        self.sizes: Array = np.concatenate([sizes for sizes, _ in parts])
        gram = tree_sum([gram for _, gram in parts])
        error = (product_error(self.n) + 64 * len(gram) * UNIT) * float(np.trace(gram))
        self.smoothness = 2 * (float(np.linalg.eigvalsh(gram)[-1]) + error) * (1 + 1e-9) + self.ridge

    @cached_property
    def G(self) -> Array:
        """The rows (n, k), in memory."""
        return np.concatenate(self.blocks.each())

    def value(self, v: Array) -> float:
        s = self._sum(v)
        return float(s @ s) - 2 * float(self.c @ v) + self.half_ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        products = np.concatenate(self.blocks.map(partial(row_products, v=self._sum(v))))
        gradient: Array = 2 * (products - self.c) + self.ridge * v
        return gradient

    def hessian(self, v: Array) -> Array:
        hessian: Array = 2 * (self.G @ self.G.T)
        hessian[np.diag_indices(self.n)] += self.ridge
        return hessian

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

    def newton_direction(self, trial: Array, move: Array, step: float) -> Array:
        """Solve ``(I - P (I - step H)) d = move`` with P the Jacobian of the projection at ``trial``.

        P centers the free coordinates of each group and is 0 elsewhere. There d is ``move``; within a group
        it is the mean of ``move`` plus a centered y with ``step ridge y + 2 step C C'y = P (move - 2 step G
        (G'd_0))``, C the centered free rows of G and d_0 what is known of d: a system of k equations.
        """
        free = self.feasible.free(trial)
        # by the number of the group of a free coordinate, from 1; 0 for all others
        group, known = np.zeros(self.n, dtype=np.int64), move.copy()
        for number, members in enumerate(self.feasible.members(), start=1):
            inside = members[free[members]]
            if len(inside):
                group[inside], known[inside] = number, np.mean(move[inside])
        sums = tree_sum(self.blocks.map(partial(_group_sums, groups=number), group))
        means = sums / np.maximum(np.bincount(group, minlength=number + 1), 1)[:, None]
        pull = 2 * step * self._sum(known)
        parts = self.blocks.map(partial(_centered, means=means, pull=pull), group, move - known)
        right = np.concatenate([part for part, _, _ in parts])
        inner = tree_sum([part for _, part, _ in parts])
        inner[np.diag_indices(len(inner))] += self.half_ridge
        for_features = cho_solve(cho_factor(inner), tree_sum([part for _, _, part in parts]))
        spread = np.concatenate(
            self.blocks.map(partial(_shares, means=means, coefficient=for_features), group)
        )
        direction: Array = known + (right - spread) / (step * self.ridge)
        return direction

    def _sum(self, v: Array) -> Array:
        """G'v (k,)."""
        return tree_sum(self.blocks.map(blocked_rmatvec, v))


class PublicSample:
    """Raw covariates (m, k) that are public: published microdata, or a population that was simulated.

    No guarantee covers them. Raises DeclarationError unless they are a finite matrix with a row.
    """

    def __init__(self, X: ArrayLike) -> None:
        try:
            rows = np.array(X, dtype=np.float64, ndmin=2)
        except (TypeError, ValueError):
            raise DeclarationError("public sample: must be a matrix of numbers") from None
        if rows.ndim != 2 or not rows.size or not np.all(np.isfinite(rows)):
            raise DeclarationError("public sample: must be a matrix of finite numbers with at least one row")
        rows.flags.writeable = False
        self.X: Array = rows
        self.digest = hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicSample) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PublicSample({self.X.shape[0]} x {self.X.shape[1]}, sha256 {self.digest[:12]})"

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release: its size and its digest, not its rows."""
        return {"rows": self.X.shape[0], "columns": self.X.shape[1], "sha256": self.digest}


class MatchingModel(KernelModel):
    """f(v) = <v, K v> - 2 <c, v> + ridge ||v||^2, v >= 0 with sum n, over m source records.

    K is the Gram matrix of the ``source`` (m, p), c n times the mean kernel with the ``target`` (T, p). The
    output is v at the rows ``where`` of n records and 0 elsewhere; ``error`` is that of an entry of the
    kernel.
    """

    def __init__(
        self,
        kernel: Kernel,
        source: Array,
        target: Array,
        ridge: float,
        where: NDArray[np.int64],
        n: int,
        error: float,
    ) -> None:
        m, T = len(source), len(target)
        cross = kernel.cross(source, target)
        c = (n / T) * blocked_rmatvec(cross.T, np.ones(T))
        feasible = Simplices(np.zeros(m, dtype=np.int64), float(n))
        super().__init__(kernel.matrix(source), c, ridge, feasible, 1.0, error)
        self.where, self.n_samples = where, n
        size = np.sqrt(np.maximum(kernel.diagonal(source), 0.0))
        far = float(np.sqrt(np.max(np.maximum(kernel.diagonal(target), 0.0))))
        # c sums T entries of a kernel between two samples, which the base class knows nothing of
        units = 2 * (error * UNIT + sum_error(T) + 16 * UNIT)
        self.cross_error = units * n * far * float(np.linalg.norm(size))

    def rounding(self, v: Array) -> float:
        return super().rounding(v) + self.cross_error

    def output(self, v: Array) -> Array:
        weights = np.zeros(self.n_samples)
        weights[self.where] = v
        return weights

    def output_scale(self, v: Array) -> float:
        return float(self.n_samples)


def _extent(rows: Array) -> tuple[Array, Array]:
    return np.linalg.norm(rows, axis=1), rows.T @ rows


def _group_sums(rows: Array, group: NDArray[np.int64], *, groups: int) -> Array:
    return np.array([rows[group == number].sum(axis=0) for number in range(groups + 1)])


def _inside(rows: Array, group: NDArray[np.int64], means: Array) -> Array:
    """Free rows less the mean of their group; 0 for the others."""
    centered = rows - means[group]
    centered[group == 0] = 0.0
    return centered


def _centered(
    rows: Array, group: NDArray[np.int64], move: Array, *, means: Array, pull: Array
) -> tuple[Array, Array, Array]:
    """The right side (n,) of the centered system, the matrix C'C, and its product with the right side."""
    C = _inside(rows, group, means)
    right = np.where(group > 0, move, 0.0) - C @ pull
    return right, C.T @ C, C.T @ right


def _shares(rows: Array, group: NDArray[np.int64], *, means: Array, coefficient: Array) -> Array:
    shares: Array = _inside(rows, group, means) @ coefficient
    return shares
