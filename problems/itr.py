"""Individualized treatment rule by weighted least squares.

minimize    sum_i w_i (z_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = 2 (2 a_i - 1) y_i, y the centered net outcome: n times equation weighted_convex_opt_itr of the
paper with objective perturbation. The rule treats where <x, theta> > 0.
"""

from dataclasses import dataclass

from dp2erm_cvx.program import LinearLeastSquares


@dataclass(frozen=True)
class TreatmentRule(LinearLeastSquares):
    """The linear rule over all covariates, or over a public choice of them.

    Theta defaults to the l2 ball of radius M'/M, over which no predicted effect exceeds M'.
    """

    name = "itr"
    formula = (
        "theta = argmin sum w_i (2(2a_i-1)y_i - x_i'theta)^2 + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    citation = "Tian et al. (2014); Chen et al. (2017); Lee & Chen (2026), Corollary ITR"
