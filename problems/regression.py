"""Weighted linear regression of the outcome: by a squared loss, or by one without curvature at full slope.

minimize    sum_i w_i phi(z_i - <x_i, theta>) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = y_i, the centered outcome. ``regression`` has phi(s) = s^2: under the weights of
``kernel_mean_matching`` it predicts in the target population (covariate shift). What the estimator calls an
effect is here the predicted outcome less its public center.

``saturating_regression`` has phi(s) = S |s| + S^2 (exp(-|s|/S) - 1) over all of R^p: s^2/2 near 0, S |s| far
out. No record pulls with more than S, and one that does adds no curvature: under pure noise the whole epsilon
buys noise (Theorem 15), and neither Theta nor the bound on the outcome enters it. ``itr_saturating`` has
z_i = 2 (2 a_i - 1) y_i, for a rule; it may be fitted to what a released center leaves of the outcome.
"""

from dataclasses import dataclass
from types import MappingProxyType

from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.program import Curve, Domain, LinearStage, Part, WholeSpace, setting
from dp2erm_cvx.program.atoms import Saturating
from dp2erm_cvx.program.linear_stage import LinearLeastSquares
from dp2erm_cvx.program.stage import resolved
from dp2erm_cvx.public import public_size


@dataclass(frozen=True)
class Regression(LinearLeastSquares):
    """Linear prediction. Theta defaults to the l2 ball of radius M'/M: no prediction exceeds M'."""

    name = "regression"
    formula = "theta = argmin sum w_i (y_i - x_i'theta)^2 + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    citation = "Shimodaira (2000); Lee & Chen (2026), transfer learning"
    contrast = False


@dataclass(frozen=True)
class SaturatingRegression(LinearStage):
    """Linear prediction, between that of the mean (large slope) and that of the median (small slope).

    Parameters
    ----------
    slope
        S, in units of the response; 1 to 1.5 times the usual size of a residual serves well. Default: half of
        the largest response, too large where the bound on the outcome is generous.
    """

    slope: float | None = setting(None, public_size)

    contrast = False
    name = "saturating_regression"
    formula = "theta = argmin sum w_i phi(y_i - x_i'theta) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    cone = "exponential (and second-order over an l2 ball)"
    citation = "Huber & Ronchetti (2009), bounded influence"
    theorem = "Theorem 15: slope S, curvature 1 - |phi'|/S; Theorems 1 and 2: zeta_c <= M S, trace M^2"
    formulas = MappingProxyType({"slope": "outcome_bound / 2"})
    defaults = MappingProxyType({"theta_set": "R^p", "slope": "half of the bound on z"})
    default_kind = WholeSpace()

    def default_set(self, domain: Domain) -> ConvexSet:
        return WholeSpace()

    @property
    def loss(self) -> Curve:
        return Curve((Part(1.0, Saturating(resolved("slope", self.slope))),))


@dataclass(frozen=True)
class SaturatingRule(SaturatingRegression):
    """The rule of ``itr`` over R^p, where no outcome pulls with more than a public slope.

    It has the sign of the effect where arms are balanced or the outcome is well centered, unless residuals
    are skewed in opposite directions in the arms: a larger slope then helps.
    """

    contrast = True
    formulas = MappingProxyType({"slope": "outcome_bound"})
    name = "itr_saturating"
    formula = (
        "theta = argmin sum w_i phi(2(2a_i-1)y_i - x_i'theta) + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    citation = "Tian et al. (2014); Huber & Ronchetti (2009), bounded influence"
