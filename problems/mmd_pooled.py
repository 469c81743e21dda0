"""Pooled maximum-mean-discrepancy weights: one simplex for all records, no overlap assumption.

minimize    alpha ( ||F_0'w - t||^2 + ||F_1'w - t||^2 ) + (1 - alpha) ||F_0'w - F_1'w||^2 + n ridge ||w||^2
subject to  sum_i w_i = n,  w >= 0

with K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0) and t = F'1/2. Arm masses
are free; a constant in the kernel pulls each toward n/2.
"""

from dataclasses import dataclass

from dp2erm_cvx.program import Gaussian, Kernel, PooledKernelStage, setting
from dp2erm_cvx.program.kernels import checked_kernel


@dataclass(frozen=True)
class PooledMMD(PooledKernelStage):
    """Kernel balance over one simplex: an arm may be empty, and a flip moves no constraint.

    Parameters
    ----------
    kernel
        A public kernel on the covariates.
    """

    kernel: Kernel = setting(Gaussian(), checked_kernel)

    name = "mmd_pooled"
    formula = "w = argmin a sum_c |m_c - m/2|^2 + (1-a) |m_0 - m_1|^2 + mu/n |w|^2, sum w = n, w >= 0"
    citation = "after Chen et al. (2024)"
    theorem = "Theorem 6"
