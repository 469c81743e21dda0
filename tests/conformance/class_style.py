"""Programs of classes, or that change a declaration: more than it says is their author's word."""

EXPONENTIAL = '''"""Mine: weights of a fitted coefficient.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n ridge/2 ||lam||^2,   z_i = (2 a_i - 1) x_i
subject to  ||lam||_2 <= radius
"""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.program import scheme


@scheme.separable(ridge="0.1 * G**2")
def positive_part(s):
    """Your paper."""
    return cp.logistic(-s), cp.maximum(-s, 0)


@dataclass(frozen=True)
class Mine(positive_part):
    """Log weights max(0, -s)."""

    name = "mine"
    theorem = "Theorems 22 and 23"
    examples = ({}, {"ridge": 0.05, "radius": 0.5})

    def row_bound(self, domain):
        return domain.covariate_bound


del positive_part
'''

LOSS = '''"""Mine: a linear rule by a log-cosh loss.

minimize    sum_i w_i log cosh(<x_i, theta> - o_i) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta
"""

import dataclasses
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx.program import L1Ball, MarginRows, second_stage
from dp2erm_cvx.program.margin_rows import RowBounds


@second_stage()
def log_cosh(theta, records):
    """Your paper."""
    residual, radius = records.x @ theta - records.response, records.outcome_bound / records.M
    return cp.Problem(cp.Minimize(cp.sum(cp.logistic(2 * residual) - residual)), [cp.norm(theta) <= radius])


@dataclass(frozen=True)
class Mine(log_cosh):
    """<x, theta> estimates the effect at x."""

    name = "mine"
    examples = ({}, {"theta_set": L1Ball(0.5)})

    def rows(self, records):
        o = 2.0 * (2 * records.a - 1) * records.y
        return MarginRows(self.covariates(records.domain, records.X), o, np.ones(len(o)))

    def row_bounds(self, universe):
        z = 2 * universe.domain.outcome_bound
        return RowBounds(self.row_norm(universe.domain), (-z, z))


del log_cosh
'''

DIRECT = '''"""Mine: balanced weights near 1.

minimize    sum_i (w_i - 1)^2 + penalty sum_k | sum_i w_i (2 a_i - 1) x_ik |
subject to  sum_i w_i = n,  w >= 0
"""

from dataclasses import dataclass
from typing import Any

import cvxpy as cp

from dp2erm_cvx.program import Array, DirectFirstStage, Leaves, Records
from dp2erm_cvx.program.declaration import Value


@dataclass(frozen=True)
class Mine(DirectFirstStage):
    """``penalty`` trades balance for equal weights."""

    penalty: float = 1.0

    name = "mine"
    formula = "w = argmin sum (w_i - 1)^2 + penalty sum_k |sum_i w_i (2 a_i - 1) x_ik|, sum w = n, w >= 0"
    citation = "your paper"
    theorem = "none: universal corollary"
    # settings that `dp2erm check-program` tries, on three covariates and an intercept
    examples = ({}, {"penalty": 0.1})

    def data(self, records: Records) -> dict[str, Value]:
        signed: Array = (2 * records.a - 1)[:, None] * records.X
        # a product of two Parameters is not DPP, so the penalty goes into one of them
        return {"Z": self.penalty * signed}

    def objective(self, leaf: Leaves, weights: cp.Variable) -> Any:
        return cp.sum_squares(weights - 1) + cp.norm1(leaf("Z").T @ weights)

    def strong_convexity(self, records: Records) -> float:
        return 2.0  # of the sum of squares
'''


def direct(name: str) -> str:
    """A direct program of another name."""
    return DIRECT.replace('"mine"', f'"{name}"').replace("Mine", name.title().replace("_", ""))
