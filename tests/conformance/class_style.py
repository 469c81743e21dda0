"""Programs written as classes, of which more than a declaration says is their author's word."""

EXPONENTIAL = '''"""Mine: weights of a fitted coefficient.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n ridge/2 ||lam||^2,   z_i = (2 a_i - 1) x_i
subject to  ||lam||_2 <= radius
"""

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.program import SeparableFirstStage
from dp2erm_cvx.program.log_weights import LogWeight, Operation

POSITIVE_PART = LogWeight().at_most(LogWeight(Operation.CONSTANT, number=0.0)).times(-1.0)


@dataclass(frozen=True)
class Mine(SeparableFirstStage):
    """Log weights max(0, -s)."""

    name = "mine"
    formula = "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2;  w_i ~ exp(max(0, -z_i'lam))"
    citation = "your paper"
    theorem = "Theorems 22 and 23"
    examples = ({}, {"ridge": 0.05, "radius": 0.5})
    log_weight = POSITIVE_PART

    def row_bound(self, domain):
        return domain.covariate_bound
'''

LOSS = '''"""Mine: a linear rule by a log-cosh loss.

minimize    sum_i w_i log cosh(<x_i, theta> - o_i) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.program import Curve, L1Ball, MarginRows, Part, RowBounds, WeightedMarginLoss
from dp2erm_cvx.program.atoms import Line, Logistic

LOG_COSH = Curve((Part(1.0, Logistic(), 2.0), Part(-1.0, Line())))


@dataclass(frozen=True)
class Mine(WeightedMarginLoss):
    """<x, theta> estimates the effect at x."""

    name = "mine"
    formula = "theta = argmin sum w_i log cosh(x_i'theta - o_i) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    cone = "exponential"
    citation = "your paper"
    theorem = "Theorems 1 and 2"
    examples = ({}, {"theta_set": L1Ball(0.5)})
    loss = LOG_COSH

    def rows(self, records):
        o = 2.0 * (2 * records.a - 1) * records.y
        return MarginRows(self.covariates(records.domain, records.X), o, np.ones(len(o)))

    def row_bounds(self, universe):
        z = 2 * universe.domain.outcome_bound
        return RowBounds(self.row_norm(universe.domain), (-z, z))
'''
