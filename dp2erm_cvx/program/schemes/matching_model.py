"""Kernel mean matching: a quadratic over the simplex of the source records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.simplex import Simplices
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, sum_error
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.program.schemes.kernel_model import KernelModel


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
