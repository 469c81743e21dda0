"""Kernel mean matching: a quadratic over the simplex of the source records, toward a public sample."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, sum_error
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.program.schemes.kernel_model import KernelModel


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

    K is the Gram matrix of the ``source`` (m, p), c n times the mean kernel with the ``target`` (T, p).
    The output is v at the rows ``where`` of n records and 0 at the others. ``error`` is that of an entry of
    the kernel.
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
