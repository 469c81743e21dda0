"""Public linear and quadratic terms of a variable, and a smooth function that they are added to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, UNIT, Array, dot_error
from dp2erm_cvx.model.composite import Composite, Sizes


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
    least
        Lower bound on the least eigenvalue of the exact P where it is known; None: it is computed.
    """

    linear: Array
    matrix: Array
    linear_error: float = 0.0
    matrix_error: float = 0.0
    least: float | None = None

    @property
    def size(self) -> float:
        """Frobenius norm of P, which no spectral norm exceeds."""
        return float(np.linalg.norm(self.matrix))

    @property
    def strong_convexity(self) -> float:
        """Lower bound on the least eigenvalue of the exact P: the computed one less rounding.

        It is at least 0.
        """
        if self.least is not None:
            return self.least
        if not np.any(self.matrix):
            return 0.0
        eigenvalues = np.linalg.eigvalsh(self.matrix)
        rounding = 64 * len(self.linear) * UNIT * float(np.max(np.abs(eigenvalues)))
        return max(float(eigenvalues[0]) - rounding - self.matrix_error, 0.0)

    @property
    def smoothness(self) -> float:
        """Bound on the spectral norms of P, of the exact one and of the computed one."""
        return (self.size + self.matrix_error) * ROUND_UP_SUMS

    @property
    def slope(self) -> float:
        """Bound on the norms of the linear term, of the exact one and of the computed one."""
        return (float(np.linalg.norm(self.linear)) + self.linear_error) * ROUND_UP_SUMS

    def with_ridge(self, ridge: float) -> float:
        """Strong convexity of the terms and ``ridge/2 ||v||^2`` together, rounded down."""
        return (ridge + self.strong_convexity) * (1 - 4 * UNIT)

    def times(self, factor: float) -> Quadratic:
        """The terms times a number >= 0, with the rounding of the products.

        The least eigenvalue is multiplied, and not computed anew: with every factor it is the same
        but for its own rounding, however small it is beside the largest.
        """
        linear_error = self.linear_error + UNIT * float(np.linalg.norm(self.linear))
        matrix_error = self.matrix_error + UNIT * self.size
        up = factor * ROUND_UP_SUMS
        least = factor * self.strong_convexity * (1 - 4 * UNIT)
        linear = factor * self.linear
        return Quadratic(linear, factor * self.matrix, up * linear_error, up * matrix_error, least)

    def plus(self, other: Quadratic) -> Quadratic:
        """The sum of both, with the rounding of the additions."""
        linear = self.linear + other.linear
        matrix = self.matrix + other.matrix
        linear_error = self.linear_error + other.linear_error + UNIT * float(np.linalg.norm(linear))
        matrix_error = self.matrix_error + other.matrix_error + UNIT * float(np.linalg.norm(matrix))
        return Quadratic(linear, matrix, linear_error * ROUND_UP_SUMS, matrix_error * ROUND_UP_SUMS)

    def value(self, v: Array) -> float:
        """The value at v (d,)."""
        return float(self.linear @ v) + 0.5 * float(v @ self.matrix @ v)

    def gradient(self, v: Array) -> Array:
        """The gradient (d,) at v."""
        gradient: Array = self.linear + self.matrix @ v
        return gradient

    def rounding(self, v: Array) -> float:
        """Bound on the norm of the error of :meth:`gradient`."""
        fixed, growing = self._rounding
        return (fixed + growing * float(np.linalg.norm(v))) * ROUND_UP_SUMS

    @property
    def _rounding(self) -> tuple[float, float]:
        """Bound of the error of :meth:`gradient` at 0, and what a unit of length of v adds."""
        fixed = self.linear_error + 2 * UNIT * float(np.linalg.norm(self.linear))
        growing = self.matrix_error + (dot_error(len(self.linear)) + 2 * UNIT) * self.size
        return fixed, growing

    def added_to(self, sizes: Sizes) -> Sizes:
        """Sizes of a sum that these terms are added to, as :class:`WithQuadratic` adds them.

        Parameters
        ----------
        sizes
            Those of the sum without these terms, but for its strong convexity and the norm of its
            minimizer, which count them.

        Returns
        -------
        Sizes
            With the slope, the smoothness and the rounding of these terms (page on solving).
        """
        fixed, growing = self._rounding
        # and both gradients, of whose sum every entry is rounded
        fixed += 2 * UNIT * (sizes.slope + self.slope)
        growing += 2 * UNIT * (sizes.smoothness + self.smoothness)
        return replace(
            sizes,
            smoothness=sizes.smoothness + self.smoothness,
            slope=sizes.slope + self.slope,
            rounding=sizes.rounding + fixed * ROUND_UP_SUMS,
            rounding_growth=sizes.rounding_growth + growing * ROUND_UP_SUMS,
        )


class WithQuadratic(Composite):
    """``f + q`` for a composite f with its penalty, and a :class:`Quadratic` q that is convex.

    Third derivatives are those of f, and the Hessian is larger, so that f's self-concordance holds.
    """

    def __init__(self, base: Composite, quadratic: Quadratic) -> None:
        self.base = base
        self.quadratic = quadratic
        self.dimension = base.dimension
        self.penalty = base.penalty
        self.ridge = quadratic.with_ridge(base.ridge)
        self.smoothness = base.smoothness + quadratic.smoothness
        self.self_concordance = base.self_concordance
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0
        origin = np.zeros(self.dimension)
        first_step = -self.gradient(origin) / self.smoothness
        self.least_scale = float(np.linalg.norm(self.penalty.set.project(first_step)))

    def prepare(self, v: Array) -> None:
        self.base.prepare(v)

    def value(self, v: Array) -> float:
        return self.base.value(v) + self.quadratic.value(v)

    def gradient(self, v: Array) -> Array:
        return self.base.gradient(v) + self.quadratic.gradient(v)

    def hessian(self, v: Array) -> Array:
        return self.base.hessian(v) + self.quadratic.matrix

    def spectrum(self, v: Array) -> tuple[float, float]:
        if math.isinf(self.self_concordance):
            # the Hessian at one point says nothing about the next
            return self.ridge, self.smoothness
        return super().spectrum(v)

    def lowest_within(self, v: Array, distance: float) -> float:
        return self.quadratic.with_ridge(self.base.lowest_within(v, distance))

    def hessian_rounding(self, v: Array) -> float:
        added = UNIT * float(np.linalg.norm(self.hessian(v)))
        return (self.base.hessian_rounding(v) + self.quadratic.matrix_error + added) * ROUND_UP_SUMS

    def rounding(self, v: Array) -> float:
        sizes = float(np.linalg.norm(self.base.gradient(v))) + float(
            np.linalg.norm(self.quadratic.gradient(v))
        )
        return self.base.rounding(v) + self.quadratic.rounding(v) + 2 * UNIT * sizes

    def output_scale(self, v: Array) -> float:
        return max(float(np.linalg.norm(v)), self.least_scale) or 1.0
