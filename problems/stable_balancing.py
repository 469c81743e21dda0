"""Stable balancing weights with a squared penalty in place of hard balance, on one simplex.

minimize    alpha ( ||G_0'w - t||^2 + ||G_1'w - t||^2 ) + (1 - alpha) ||G_0'w - G_1'w||^2 + n ridge ||w||^2
subject to  sum_i w_i = n,  w >= 0

with rows g(x_i) = (constant, balance(x_i)), G_a those of arm a (the others 0) and t = G'1/2: weights of small
variance whose moments are near those of the sample in either arm. ``stable_balancing_hard`` is the form with
constraints, which no stability bound covers.
"""

from dp2erm_cvx.program.kernel_stage import MomentWeights


class StableBalancing(MomentWeights):
    """Balance of a few moments by weights that stay even.

    Parameters
    ----------
    ridge
        Above 0; default: the squared norm bound of the functions and the constant, so that the
        stability bound does not depend on how covariates are scaled.
    constant
        Holds the arm masses near n/2; default: the norm bound of ``balance``.
    """

    name = "stable_balancing"
    citation = "Zubizarreta (2015), penalized"
