"""Public penalties of theta beside a loss.

They are linear and quadratic terms, and convex functions with kinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, UNIT, Array
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.affine import gamma
from dp2erm_cvx.model.quadratics import Quadratic
from dp2erm_cvx.model.supports import READ, LoadedFunction, SupportedFunction, refuse_other_values
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import printed

#: A matrix below this share of its norm under 0 is not positive semidefinite by more than its
#: rounding.
_BENT_DOWN = 1e-9


@dataclass(frozen=True, eq=False)
class PublicPenalty:
    """A public convex function of theta as it was declared, ``factor`` times the sum of its terms.

    Parameters
    ----------
    theta
        The variable (p,) of the terms.
    terms
        Coefficients and convex expressions of theta without data.
    kinks
        The terms that are neither linear nor quadratic.
    quadratic
        The other terms.
    factor
        A number > 0 that the terms are multiplied by.
    """

    theta: cp.Variable
    terms: tuple[tuple[float, Any], ...]
    kinks: tuple[tuple[float, Any], ...]
    quadratic: Quadratic
    factor: float = 1.0
    _loaded: dict[float, SupportedFunction] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(terms: Sequence[tuple[float, Any]], theta: cp.Variable) -> PublicPenalty:
        """Reading of terms without data.

        Raises DeclarationError for a term that is not read.
        """
        p = theta.size
        quadratic = Quadratic(np.zeros(p), np.zeros((p, p)))
        kinks: list[tuple[float, Any]] = []
        for coefficient, node in terms:
            term = _quadratic(node, theta)
            if term is None:
                kinks.append((coefficient, node))
            elif coefficient < 0:
                # only a linear term is convex then, which is the negative of another one
                negative = replace(term, linear=-term.linear)
                quadratic = quadratic.plus(negative.times(-coefficient))
            else:
                quadratic = quadratic.plus(term.times(coefficient))
        penalty = PublicPenalty(theta, tuple(terms), tuple(kinks), quadratic)
        penalty.refuse_unread()
        return penalty

    def refuse_unread(self) -> None:
        """Raise DeclarationError naming a term with unread kinks or other values."""
        points = [np.cos(np.arange(self.theta.size) + 3.0 * k) for k in range(3)]
        for _, node in self.kinks:
            try:
                function = SupportedFunction(node, self.theta, {})
            except ProgramError:
                raise DeclarationError(
                    f"{printed(node)}: no penalty that is read: linear and quadratic terms, and "
                    f"{READ} of theta; a set of theta is declared as a constraint"
                ) from None
            refuse_other_values(function.at({}), node, self.theta, points)

    @property
    def strong_convexity(self) -> float:
        """Lower bound on mu_R, the least eigenvalue of the quadratic terms.

        It is 0 where it is within rounding.
        """
        return self.factor * self.quadratic.strong_convexity * (1 - 4 * UNIT)

    def times(self, n: int) -> Quadratic:
        """``n`` times the linear and quadratic terms."""
        return self.quadratic.times(self.factor).times(float(n))

    def scaled(self, factor: float) -> PublicPenalty:
        """The penalty times a number > 0."""
        return replace(self, factor=self.factor * factor)

    def function(self, l1: float) -> SupportedFunction | None:
        """Terms with kinks, and ``l1 ||theta||_1`` in their units; None where there is neither."""
        if not self.kinks:
            return None
        if l1 not in self._loaded:
            parts = [c * node for c, node in self.kinks]
            if l1:
                parts.append(l1 * cp.norm1(self.theta))
            self._loaded[l1] = SupportedFunction(sum(parts), self.theta, {})
        return self._loaded[l1]

    @property
    def is_curved(self) -> bool:
        """True if there are linear or quadratic terms."""
        return bool(np.any(self.quadratic.linear) or np.any(self.quadratic.matrix))

    def loaded_kinks(self, n: float) -> LoadedFunction | None:
        """``n`` times the terms with kinks; None where there are none."""
        return self.loaded(0.0, n) if self.kinks else None

    def loaded(self, l1: float, n: float) -> LoadedFunction:
        """``n`` times the terms with kinks and ``l1 ||theta||_1``."""
        function = self.function(l1 / self.factor)
        assert function is not None
        return function.at({}, n * self.factor)

    def value(self, v: Array) -> float:
        """R at v (p,)."""
        value = self.quadratic.value(v)
        function = self.function(0.0)
        if function is not None:
            value += float(function.at({}).values(v, np.zeros_like(v))[0][0])
        return self.factor * value

    def slope(self, v: Array) -> Array:
        """A subgradient (p,) of R at v."""
        slope = self.quadratic.gradient(v)
        function = self.function(0.0)
        if function is not None:
            at = function.at({})
            slope = slope + at.plane(v, np.zeros_like(v), at.slopes_at(v), np.ones(1)).slope
        return self.factor * slope

    def expression(self, theta: cp.Variable) -> Any:
        """R as an expression of CVXPY of another variable."""
        total = sum(c * _of_other(node, self.theta, theta) for c, node in self.terms)
        return self.factor * total

    def near(self, other: PublicPenalty | None) -> bool:
        """True if another penalty has the same values, or is of other columns.

        Nothing is said of other columns.
        """
        if other is None:
            return False
        p = self.theta.size
        if p != other.theta.size:
            return True
        angles = np.linspace(0.3, 2.9, 5 * p).reshape(5, p)
        points = np.cos(angles * np.arange(1, p + 1))
        values = [self.value(v) for v in points]
        other_values = [other.value(v) for v in points]
        return bool(np.allclose(values, other_values, rtol=1e-9, atol=0.0))


def _of_other(e: Any, theta: cp.Variable, other: cp.Variable) -> Any:
    """An expression with another variable in the place of theta."""
    if e is theta:
        return other
    if not e.variables():
        return e
    return e.copy([_of_other(part, theta, other) for part in e.args])


def _quadratic(node: Any, theta: cp.Variable) -> Quadratic | None:
    """A linear or quadratic term without its constant; None for any other."""
    # CVXPY calls a form whose matrix is 0 affine
    if node.is_affine() and type(node).__name__ != "QuadForm":
        affine = _Affine.of(node, theta)
        linear_error = affine.error * float(np.linalg.norm(affine.size))
        p = theta.size
        return Quadratic(affine.matrix[0], np.zeros((p, p)), linear_error)
    weighted = _argument_and_weight(node)
    if weighted is None:
        return None
    inner, weight = weighted
    if not inner.is_affine():
        return None
    return _quadratic_of(_Affine.of(inner, theta), weight)


def _argument_and_weight(node: Any) -> tuple[Any, Array] | None:
    """The argument x (k,) and the matrix W (k, k) of a term ``x' W x``; None for another term."""
    name = type(node).__name__
    if name == "QuadForm":
        return node.args[0], _semidefinite(node)
    if name == "quad_over_lin" and not node.args[1].variables():
        argument, divisor = node.args
        return argument, np.eye(argument.size) / float(np.ravel(divisor.value)[0])
    squares = node.args[0] if name == "Sum" and node.axis is None else node
    if not _is_square(squares):
        return None
    argument = squares.args[0]
    return argument, np.eye(argument.size)


def _quadratic_of(affine: _Affine, weight: Array) -> Quadratic:
    """``x' W x`` without its constant, of ``x = A theta + b``, with bounds on its rounding.

    It is ``theta' A'WA theta + 2 b'WA theta``.
    """
    A = affine.matrix
    b = affine.offset
    double_weight = 2.0 * weight
    P = A.T @ double_weight @ A
    linear = A.T @ double_weight @ b
    # each of the products of three numbers is off by its own roundings and by those of its factors
    error = 2.0 * affine.error + gamma(3 * len(weight) + 8)
    sizes = affine.size.T @ np.abs(double_weight)
    matrix_error = error * float(np.linalg.norm(sizes @ affine.size))
    linear_error = error * float(np.linalg.norm(sizes @ affine.offset_size))
    return Quadratic(
        linear, (P + P.T) / 2, linear_error * ROUND_UP_SUMS, matrix_error * ROUND_UP_SUMS
    )


def _is_square(node: Any) -> bool:
    """True for squares of entries."""
    if type(node).__name__ not in ("power", "Power", "PowerApprox"):
        return False
    return float(getattr(node.p, "value", node.p)) == 2


def _semidefinite(node: Any) -> Array:
    """The matrix of a quadratic form. Raises DeclarationError where it bends down."""
    value = node.args[1].value
    dense = np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64)
    weight: Array = (dense + dense.T) / 2
    eigenvalues = np.linalg.eigvalsh(weight)
    largest = float(np.max(np.abs(eigenvalues)))
    if eigenvalues[0] < -_BENT_DOWN * largest:
        raise DeclarationError(
            f"{printed(node)}: its matrix has a negative eigenvalue, so it is not convex"
        )
    least = float(eigenvalues[0]) - 64 * len(weight) * UNIT * largest
    if least < 0:
        # a multiple of the identity of the size of a rounding makes what was declared convex for
        # sure
        weight = weight - 2.0 * least * np.eye(len(weight))
    return weight


@dataclass(frozen=True, eq=False)
class _Affine:
    """An affine expression ``A theta + b`` of k entries.

    Parameters
    ----------
    matrix, offset
        A (k, p) and b (k,).
    size, offset_size
        Bounds on the sizes of the terms that the entries of A and b were computed of.
    error
        The error of every entry, relative to these.
    """

    matrix: Array
    offset: Array
    size: Array
    offset_size: Array
    error: float

    @staticmethod
    def of(e: Any, theta: cp.Variable) -> _Affine:
        """Coefficients of an expression of theta."""
        outer = SupportedFunction(e, theta, {}).at({}).outer
        return _Affine(outer.A.toarray(), outer.b, outer.M.toarray(), outer.c, gamma(outer.count))
