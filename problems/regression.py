"""Weighted linear regression of the outcome, for transfer to another population.

minimize    sum_i w_i (y_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with y the centered outcome. Under the weights of ``kernel_mean_matching`` it predicts in the target
population (covariate shift). What the estimator calls an effect is here
the predicted outcome less its public center.
"""

from dataclasses import dataclass

from dp2erm_cvx.program import LinearLeastSquares


@dataclass(frozen=True)
class Regression(LinearLeastSquares):
    """Linear prediction. Theta defaults to the l2 ball of radius M'/M: no prediction exceeds M'."""

    name = "regression"
    formula = "theta = argmin sum w_i (y_i - x_i'theta)^2 + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    citation = "Shimodaira (2000); Lee & Chen (2026), transfer learning"
    contrast = False
