"""Public penalties of theta beside a loss.

They are linear and quadratic terms, and convex functions with kinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import UNIT, Array
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
        for c, node in terms:
            part = _quadratic(node, theta)
            if part is None:
                kinks.append((c, node))
            elif c < 0:
                turned = replace(part, linear=-part.linear)
                quadratic = quadratic.plus(turned.times(-c))
            else:
                quadratic = quadratic.plus(part.times(c))
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
        rng = np.linspace(0.3, 2.9, 5 * p).reshape(5, p)
        points = np.cos(rng * np.arange(1, p + 1))
        values = [[penalty.value(v) for v in points] for penalty in (self, other)]
        return bool(np.allclose(values[0], values[1], rtol=1e-9, atol=0.0))


def _of_other(e: Any, theta: cp.Variable, other: cp.Variable) -> Any:
    """An expression with another variable in the place of theta."""
    if e is theta:
        return other
    if not e.variables():
        return e
    return e.copy([_of_other(part, theta, other) for part in e.args])


def _quadratic(node: Any, theta: cp.Variable) -> Quadratic | None:
    """A linear or quadratic term without its constant; None for any other."""
    p = theta.size
    name = type(node).__name__
    # CVXPY calls a form whose matrix is 0 affine
    if node.is_affine() and name != "QuadForm":
        matrix, _, size, _, error = _affine(node, theta)
        linear_error = error * float(np.linalg.norm(size))
        return Quadratic(matrix[0], np.zeros((p, p)), linear_error)
    inner: Any = None
    weight = np.ones((1, 1))
    if name == "quad_over_lin" and not node.args[1].variables():
        inner = node.args[0]
        weight = np.eye(inner.size) / float(np.ravel(node.args[1].value)[0])
    elif name == "QuadForm":
        inner = node.args[0]
        weight = _semidefinite(node)
    elif name == "Sum" and node.axis is None and _is_square(node.args[0]):
        inner = node.args[0].args[0]
        weight = np.eye(inner.size)
    elif _is_square(node):
        inner = node.args[0]
        weight = np.eye(inner.size)
    if inner is None or not inner.is_affine():
        return None
    matrix, offset, size, offset_size, error = _affine(inner, theta)
    heavy = 2.0 * weight
    largest = np.abs(heavy)
    # each of the products of three numbers is off by its own roundings and by those of its factors
    error = 2.0 * error + gamma(3 * inner.size + 8)
    P = matrix.T @ heavy @ matrix
    linear = matrix.T @ heavy @ offset
    matrix_error = error * float(np.linalg.norm(size.T @ largest @ size))
    linear_error = error * float(np.linalg.norm(size.T @ largest @ offset_size))
    return Quadratic(linear, (P + P.T) / 2, linear_error * (1 + 1e-9), matrix_error * (1 + 1e-9))


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


def _affine(e: Any, theta: cp.Variable) -> tuple[Array, Array, Array, Array, float]:
    """A (k, p) and b (k,) of an affine expression, with majorants and relative error."""
    function = SupportedFunction(e, theta, {}).at({})
    outer = function.outer
    return outer.A.toarray(), outer.b, outer.M.toarray(), outer.c, gamma(outer.count)
