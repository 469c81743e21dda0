"""Stable balancing weights with a squared penalty in place of hard balance, on one simplex.

minimize    alpha ( ||G_0'w - t||^2 + ||G_1'w - t||^2 ) + (1 - alpha) ||G_0'w - G_1'w||^2 + n ridge ||w||^2
subject to  sum_i w_i = n,  w >= 0

with rows g(x_i) = (constant, balance(x_i)), G_a those of arm a (the others 0) and t = G'1/2: weights of small
variance whose moments are near those of the sample in either arm. ``stable_balancing_hard`` is the form with
constraints, which no stability bound covers.
"""

from dataclasses import dataclass
from types import MappingProxyType

from dp2erm_cvx.program import setting
from dp2erm_cvx.program.first_stage import BalancedStage
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import BalanceKernel
from dp2erm_cvx.public import public_size


@dataclass(frozen=True)
class StableBalancing(BalancedStage, KernelFirstStage):
    """Balance of a few moments by weights that stay even.

    Parameters
    ----------
    ridge
        Above 0; default: the squared norm bound of the functions and the constant, so that the
        stability bound does not depend on how covariates are scaled.
    constant
        Holds the arm masses near n/2; default: the norm bound of ``balance``.
    """

    alpha: float = setting(1.0, at_least=0)
    ridge: float | None = setting(None, public_size)

    pooled = True
    name = "stable_balancing"
    formula = "w = argmin a sum_c |G_c'w - t|^2 + (1-a) |G_0'w - G_1'w|^2 + n mu |w|^2, sum w = n, w >= 0"
    citation = "Zubizarreta (2015), penalized"
    theorem = "Theorem 6 with the kernel c^2 + <g, g'>"
    formulas = MappingProxyType({"constant": "G_x", "ridge": "c**2 + G_x**2"})
    defaults = MappingProxyType({"constant": "G", "ridge": "squared norm bound of (constant, g)"})

    @property
    def kernel(self) -> BalanceKernel:
        return BalanceKernel(self.balance, self.number("constant"))
