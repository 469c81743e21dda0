"""Public convex regularizers R(theta) of the second stage."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp

from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.public import public_size


@dataclass(frozen=True)
class ElasticNet:
    """``R(theta) = l1 ||theta||_1 + l2/2 ||theta||_2^2``; both 0 is no regularizer. mu_R = l2."""

    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "l1", public_size("l1", self.l1, zero=True))
        object.__setattr__(self, "l2", public_size("l2", self.l2, zero=True))

    @property
    def strong_convexity(self) -> float:
        """mu_R."""
        return self.l2


@dataclass(frozen=True)
class UserRegularizer:
    """A user's own convex R: ``expression(theta)`` maps a CVXPY variable (p,) to a DCP scalar.

    It must be closed, convex, proper and must not depend on the data (Theorem 1). Its strong
    convexity is not credited (mu_R = 0), and its solutions are certified by the duality gap alone.
    """

    expression: Callable[[Any], Any]
    name: str = "custom"

    @property
    def strong_convexity(self) -> float:
        """mu_R, not credited: a wrong claim would be a wrong privacy claim."""
        return 0.0

    def declared(self, theta: Any) -> Any:
        """The CVXPY expression. Raises ProgramError unless it is a convex scalar."""
        expression = self.expression(theta)
        if not isinstance(expression, cp.Expression):
            expression = cp.Constant(expression)  # a number is one as well
        if not (expression.is_scalar() and expression.is_convex()):
            raise ProgramError(f"regularizer {self.name!r}: must be a convex scalar CVXPY expression")
        return expression

    def refuse_unchecked(self, n_parameters: int) -> None:
        """Refuse, without any data, what no duality gap can be measured for over R^n_parameters.

        Raises ProgramError for an expression that is no convex scalar, that CVXPY cannot compile, or that
        needs exponential, power or semidefinite cones.
        """
        theta = cp.Variable(n_parameters)
        problem = cp.Problem(cp.Minimize(self.declared(theta) + cp.sum_squares(theta)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # CVXPY comments on how it approximates powers
                dims = problem.get_problem_data(cp.CLARABEL)[0]["dims"]
        except Exception as error:  # of the user's expression, of which any kind may come
            raise ProgramError(
                f"regularizer {self.name!r}: CVXPY cannot compile it ({type(error).__name__})"
            ) from None
        if has_unchecked_cones(dims):
            raise ProgramError(
                f"regularizer {self.name!r}: state it without exponential, power or semidefinite atoms; the "
                "duality gap can be checked for quadratic and second-order cones only"
            )

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"custom": self.name}


def has_unchecked_cones(dims: Any) -> bool:
    """Whether a problem in conic form (CVXPY's ``ConeDims``) has cones that no gap is measured for."""
    return bool(dims.exp or dims.psd or dims.p3d or getattr(dims, "pnd", ()))
