"""Maximum-mean-discrepancy weights by arm or with one sum, and energy balancing.

minimize    alpha ( ||F_0'w - t||^2 + ||F_1'w - t||^2 )
            + (1 - alpha) ||F_0'w - F_1'w||^2 + n ridge ||w||^2
subject to  sum over arm a of w_i = n/2 for a = 0, 1,  0 <= w <= cap

With K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0) and t = F'1/2: in v =
2 w it is n^2 times equation MMD_weight_def of the paper, whose lambda_MMD is ``n ridge``; its cap
R_MMD is on w. ``mmd_pooled`` has the constraint ``sum_i w_i = n, w >= 0`` alone: arm masses are
free and overlap is not assumed; a constant in the kernel pulls each mass toward n/2.

``energy_balancing`` has the kernel ``||x|| + ||x'|| - ||x - x'||``, which is positive semidefinite
where the distance itself is only conditionally so. With p_a the law of weights 2 w_i / n on arm a,
q the uniform law on all records and E the energy distance, 4 n^-2 times its objective is
``alpha ( E(p_0, q) + E(p_1, q) ) + (1 - alpha) E(p_0, p_1) + 4 (ridge / n) ||w||^2``.
``alpha = 1/2`` weighs the three distances equally: the "improved" weights of Huling & Mak (2024)
with a ridge. The kernel lies in [0, 2 M], so that its constants are those of an unsigned one.
"""

from __future__ import annotations

import math
from typing import Any

from dp2erm_cvx.checks import declared_choice, public_size
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program import Gaussian, scheme, setting
from dp2erm_cvx.program.kernels import CHOICES, Energy, Kernel


def imbalance(w: cp.Variable, records: Any, kernel: Kernel, alpha: float) -> cp.Expression:
    """Squared discrepancies of both arms with the sample, and of the arms with each other."""
    half = cp.sum(records.features(kernel), axis=0) / 2
    controls = records.features(kernel, "controls").T @ w
    treated = records.features(kernel, "treated").T @ w
    to_sample = cp.sum_squares(controls - half) + cp.sum_squares(treated - half)
    return alpha * to_sample + (1 - alpha) * cp.sum_squares(treated - controls)


@scheme(
    alpha=setting(0.5, at_least=0, at_most=1),
    ridge=setting(1.0, public_size),
    kernel=setting(Gaussian(), declared_choice, kinds=CHOICES),
    cap=setting(math.inf, above=0, infinite=True),
    kinks=False,
)
def mmd(
    w: cp.Variable, records: Any, alpha: float, ridge: float, kernel: Kernel, cap: float
) -> cp.Problem:
    """Kernel balance within each arm (Chen et al. 2024; Lee & Chen 2026, eq. MMD_weight_def).

    It needs a declared arm floor.

    Parameters
    ----------
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    ridge
        Above 0: lambda_MMD over n. At a fixed ridge the stability bound stays bounded in n.
    kernel
        A public kernel on the covariates.
    cap
        Public bound R_MMD on every weight; ``inf`` for none.
    """
    n = records.n
    objective = imbalance(w, records, kernel, alpha) + n * ridge * cp.sum_squares(w)
    constraints = [records.arms.T @ w == n / 2, w >= 0]
    if math.isfinite(cap):
        constraints.append(w <= cap)
    return cp.Problem(cp.Minimize(objective), constraints)


@scheme(
    alpha=setting(0.5, at_least=0, at_most=1),
    ridge=setting(1.0, public_size),
    kernel=setting(Gaussian(), declared_choice, kinds=CHOICES),
    kinks=False,
)
def mmd_pooled(
    w: cp.Variable, records: Any, alpha: float, ridge: float, kernel: Kernel
) -> cp.Problem:
    """Kernel balance under one sum (after Chen et al. 2024): an arm may be empty.

    Parameters
    ----------
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    ridge
        Above 0. At a fixed ridge the stability bound stays bounded in n.
    kernel
        A public kernel on the covariates.
    """
    n = records.n
    objective = imbalance(w, records, kernel, alpha) + n * ridge * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == n, w >= 0])


@scheme(
    alpha=setting(0.5, at_least=0, at_most=1), ridge=setting("2 * M_x", public_size), kinks=False
)
def energy_balancing(w: cp.Variable, records: Any, alpha: float, ridge: float) -> cp.Problem:
    """Balance of whole distributions within each arm, without a bandwidth (Huling & Mak 2024).

    It needs a declared arm floor.

    Parameters
    ----------
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    ridge
        Above 0; default: the kernel's bound, so that the stability bound does not depend on
        scaling.
    """
    n = records.n
    objective = imbalance(w, records, Energy(), alpha) + n * ridge * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(objective), [records.arms.T @ w == n / 2, w >= 0])
