"""Kernel mean matching: weights under which a source sample looks like a target sample.

minimize    || sum_i w_i phi(x_i) - n mean_j phi(t_j) ||^2 + n ridge ||w||^2
subject to  sum over the source of w_i = n,  w >= 0

phi the features of the kernel, t_j the target: n^2 times the squared discrepancy of both samples.
For transfer of a regression to a population with other covariates (covariate shift), with
``regression`` as the second stage.
"""

from __future__ import annotations

from typing import Any

from dp2erm_cvx.checks import public_size
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import Gaussian, scheme, setting
from dp2erm_cvx.program.kernels import Kernel, PublicSample, declared_sample


@scheme(
    target=setting(None, declared_sample),
    ridge=setting(1.0, public_size),
    kernel=Gaussian(),
    kinks=False,
)
def kernel_mean_matching(
    w: cp.Variable, records: Any, target: PublicSample | None, ridge: float, kernel: Kernel
) -> cp.Problem:
    """Transfer to a population with other covariates (Huang et al. 2006; Gretton et al. 2009).

    Parameters
    ----------
    target
        A public sample, and every record is a source; or None: the treated records are the target.
        These are private data as well, and get weight 0; the domain's ``arm_floor`` then bounds how
        far their mean moves.
    ridge
        Above 0; keeps the weights even, and stable.
    kernel
        A public kernel on the covariates.
    """
    n = records.n
    features = records.features(kernel)
    if target is None:
        source = records.features(kernel, "controls")
        goal = records.mean_of(features, "treated")
        controls, treated = records.arms[:, 0], records.arms[:, 1]
        sets = [controls @ w == n, cp.multiply(treated, w) == 0, w >= 0]
    else:
        source = features
        goal = records.mean_of(features, target)
        sets = [cp.sum(w) == n, w >= 0]
    distance = cp.sum_squares(source.T @ w - n * goal)
    return cp.Problem(cp.Minimize(distance + n * ridge * cp.sum_squares(w)), sets)
