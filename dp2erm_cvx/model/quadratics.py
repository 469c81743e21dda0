"""Public linear and quadratic terms of a variable, and a smooth function that they are added to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sums import UNIT, dot_error


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``<linear, v> + v'Pv / 2`` with public numbers, each known to within a stated error.

    The exact P is positive semidefinite.

    Parameters
    ----------
    linear
        The linear term (d,).
    matrix
        P (d, d), symmetric.
    linear_error
        Bound on the norm of the error of the linear term.
    matrix_error
        Bound on the spectral norm of the error of P.
    """

    linear: Array
    matrix: Array
    linear_error: float = 0.0
    matrix_error: float = 0.0

    @property
    def size(self) -> float:
        """Frobenius norm of P, which no spectral norm exceeds."""
        return float(np.linalg.norm(self.matrix))

    @property
    def strong_convexity(self) -> float:
        """Lower bound on the least eigenvalue of the exact P: the computed one less every rounding, or 0."""
        if not np.any(self.matrix):
            return 0.0
        eigenvalues = np.linalg.eigvalsh(self.matrix)
        rounding = 64 * len(self.linear) * UNIT * float(np.max(np.abs(eigenvalues)))
        return max(float(eigenvalues[0]) - rounding - self.matrix_error, 0.0)

    def times(self, factor: float) -> Quadratic:
        """The terms times a number >= 0, with the rounding of the products."""
        linear_error = self.linear_error + UNIT * float(np.linalg.norm(self.linear))
        matrix_error = self.matrix_error + UNIT * self.size
        up = factor * (1 + 1e-9)
        return Quadratic(factor * self.linear, factor * self.matrix, up * linear_error, up * matrix_error)

    def plus(self, other: Quadratic) -> Quadratic:
        """The sum of both, with the rounding of the additions."""
        linear = self.linear + other.linear
        matrix = self.matrix + other.matrix
        linear_error = self.linear_error + other.linear_error + UNIT * float(np.linalg.norm(linear))
        matrix_error = self.matrix_error + other.matrix_error + UNIT * float(np.linalg.norm(matrix))
        return Quadratic(linear, matrix, linear_error * (1 + 1e-9), matrix_error * (1 + 1e-9))

    def value(self, v: Array) -> float:
        """The value at v (d,)."""
        return float(self.linear @ v) + 0.5 * float(v @ self.matrix @ v)

    def gradient(self, v: Array) -> Array:
        """The gradient (d,) at v."""
        gradient: Array = self.linear + self.matrix @ v
        return gradient

    def rounding(self, v: Array) -> float:
        """Bound on the norm of the error of :meth:`gradient`."""
        length = float(np.linalg.norm(v))
        product = (dot_error(len(v)) + 2 * UNIT) * self.size * length
        added = 2 * UNIT * float(np.linalg.norm(self.linear))
        return (self.linear_error + self.matrix_error * length + product + added) * (1 + 1e-9)


class WithQuadratic(Composite):
    """``f + q`` for a composite f with its penalty, and a :class:`Quadratic` q that is convex.

    Third derivatives are those of f, and the Hessian is larger, so that f's self-concordance holds.
    """

    def __init__(self, base: Composite, quadratic: Quadratic) -> None:
        self.base = base
        self.quadratic = quadratic
        self.dimension = base.dimension
        self.penalty = base.penalty
        self.ridge = (base.ridge + quadratic.strong_convexity) * (1 - 4 * UNIT)
        self.smoothness = base.smoothness + (quadratic.size + quadratic.matrix_error) * (1 + 1e-9)
        self.self_concordance = base.self_concordance
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0
        origin = np.zeros(self.dimension)
        first_step = -self.gradient(origin) / self.smoothness
        self.least_scale = float(np.linalg.norm(self.penalty.set.project(first_step)))

    def look(self, v: Array) -> None:
        self.base.look(v)

    def value(self, v: Array) -> float:
        return self.base.value(v) + self.quadratic.value(v)

    def gradient(self, v: Array) -> Array:
        return self.base.gradient(v) + self.quadratic.gradient(v)

    def hessian(self, v: Array) -> Array:
        return self.base.hessian(v) + self.quadratic.matrix

    def spectrum(self, v: Array) -> tuple[float, float]:
        if math.isinf(self.self_concordance):
            return self.ridge, self.smoothness  # the Hessian at one point says nothing about the next
        return super().spectrum(v)

    def lowest_within(self, v: Array, distance: float) -> float:
        return (self.base.lowest_within(v, distance) + self.quadratic.strong_convexity) * (1 - 4 * UNIT)

    def hessian_rounding(self, v: Array) -> float:
        added = UNIT * float(np.linalg.norm(self.hessian(v)))
        return (self.base.hessian_rounding(v) + self.quadratic.matrix_error + added) * (1 + 1e-9)

    def rounding(self, v: Array) -> float:
        sizes = float(np.linalg.norm(self.base.gradient(v))) + float(
            np.linalg.norm(self.quadratic.gradient(v))
        )
        return self.base.rounding(v) + self.quadratic.rounding(v) + 2 * UNIT * sizes

    def output_scale(self, v: Array) -> float:
        return max(float(np.linalg.norm(v)), self.least_scale) or 1.0
