"""Individualized treatment rules, linear in the covariates, by four losses.

minimize    sum_i w_i loss_i(theta) + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with y the centered net outcome and z_i = 2 (2 a_i - 1) y_i. The rule treats where <x, theta> > 0.

``itr`` has (z_i - <x_i, theta>)^2: n times equation weighted_convex_opt_itr of the paper with
objective perturbation. ``itr_huber`` has H(z_i - <x_i, theta>), H(r) = r^2 up to |r| = threshold
and 2 threshold |r| - threshold^2 beyond: a gradient of at most 2 M threshold whatever Theta is,
which a squared loss needs a small Theta for.

``itr_logistic`` has |y_i| log(1 + exp(-sign(y_i) (2 a_i - 1) <x_i, theta>)), a convex surrogate of
the outcome lost by recommending against a treatment that did well (or for one that did badly).
There <x, theta> is a score, not an effect: its sign is the recommendation. The gradient is bounded
whatever Theta is.

``itr_saturating`` has phi(z_i - <x_i, theta>) with the phi of ``saturating_regression``, over all
of R^p. It may be fitted to what a released center leaves of the outcome.
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import bounded_influence, second_stage


@second_stage()
def itr(theta: cp.Variable, records: Any) -> cp.Problem:
    """The linear rule (Tian et al. 2014; Chen et al. 2017; Lee & Chen 2026, Corollary ITR).

    Theta defaults to the l2 ball of radius M'/M, over which no predicted effect exceeds M'. The l1
    ball of the same radius is inside it and costs the same noise; it is for few coefficients that
    are not 0.
    """
    loss = cp.sum_squares(records.x @ theta - records.response)
    return cp.Problem(
        cp.Minimize(loss), [cp.norm(theta) <= records.outcome_bound / records.space.covariate_bound]
    )


@second_stage(threshold="outcome_bound")
def itr_huber(theta: cp.Variable, records: Any, threshold: float) -> cp.Problem:
    """The rule of ``itr`` with less pull from outliers (Huber 1964; Xiao, Zhang & Lu 2019).

    Less noise where the threshold is small. Theta defaults to the l2 ball of radius M'/M, over
    which no predicted effect exceeds M'.

    Parameters
    ----------
    threshold
        In units of the outcome; default: M', half the largest ``|z|``.
    """
    loss = cp.huber(records.x @ theta - records.response, threshold)
    return cp.Problem(
        cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= records.outcome_bound / records.M]
    )


@second_stage()
def itr_logistic(theta: cp.Variable, records: Any) -> cp.Problem:
    """Outcome-weighted learning by a logistic loss (Zhao et al. 2012; Chen et al. 2017).

    Theta defaults to the l2 ball of radius 4/M: no score exceeds 4, a probability of 0.98.
    """
    loss = cp.logistic(-(records.favored @ theta))
    return cp.Problem(cp.Minimize(records.outcome_size @ loss), [cp.norm(theta) <= 4 / records.M])


@second_stage(slope="outcome_bound")
def itr_saturating(theta: cp.Variable, records: Any, slope: float) -> cp.Problem:
    """The rule of ``itr`` by bounded influence (Tian et al. 2014; Huber & Ronchetti 2009).

    No outcome pulls with more than a public slope. It has the sign of the effect where arms are
    balanced or the outcome is well centered, unless residuals are skewed in opposite directions in
    the arms: a larger slope then helps.

    Parameters
    ----------
    slope
        S, in units of the response; default: half of the largest one.
    """
    loss = bounded_influence(records.x @ theta - records.response, slope)
    return cp.Problem(cp.Minimize(cp.sum(loss)))
