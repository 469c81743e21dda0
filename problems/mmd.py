"""Three-way maximum-mean-discrepancy weights: one simplex per arm, or one for all records; energy balancing.

minimize    alpha ( ||F_0'v - t||^2 + ||F_1'v - t||^2 ) + (1 - alpha) ||F_0'v - F_1'v||^2 + n ridge ||v||^2
subject to  sum over arm a of v_i = n for a = 0, 1,  0 <= v <= 2 cap

then w = v/2. With K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0) and t = F'1:
n^2 times equation MMD_weight_def of the paper, whose lambda_MMD is ``n ridge``; its cap R_MMD is on w.
``mmd_pooled`` has w itself for v, t = F'1/2 and the constraint ``sum_i w_i = n, w >= 0``: arm masses are free
and overlap is not assumed; a constant in the kernel pulls each mass toward n/2.

``energy_balancing`` has the kernel ``||x|| + ||x'|| - ||x - x'||``, which is positive semidefinite where the
distance itself is only conditionally so. With p_a the law of weights v_i / n on arm a, q the uniform law on
all records and E the energy distance, n^2 times its objective is ``alpha ( E(p_0, q) + E(p_1, q) ) + (1 -
alpha) E(p_0, p_1) + (ridge / n) ||v||^2``. ``alpha = 1/2`` weighs the three distances equally: the "improved"
weights of Huling & Mak (2024) with a ridge. The kernel lies in [0, 2 M], so the constants are those of an
unsigned one.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily
from dp2erm_cvx.program import Domain, Gaussian, StabilityBound, Universe, setting
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import CHOICES, Energy, Kernel
from dp2erm_cvx.public import declared_choice, public_size


@dataclass(frozen=True)
class MMD(KernelFirstStage):
    """Kernel balance within each arm: needs a declared arm floor.

    Parameters
    ----------
    kernel
        A public kernel on the covariates.
    cap
        Public bound R_MMD on every weight; ``inf`` for none.
    """

    kernel: Kernel = setting(Gaussian(), declared_choice, kinds=CHOICES)
    cap: float = setting(math.inf, above=0, infinite=True)

    name = "mmd"
    formula = (
        "w = argmin a sum_c |m_c - m|^2 + (1-a) |m_0 - m_1|^2 + 4 mu/n |w|^2, sum_c w = n/2, 0 <= w <= cap"
    )
    citation = "Chen et al. (2024); Lee & Chen (2026), eq. MMD_weight_def"
    theorem = "Theorem 5 (needs an arm floor)"

    def stability(self, universe: Universe, family: BoundFamily = BoundFamily.SHARP) -> StabilityBound:
        n, floor = universe.n_samples, universe.domain.arm_floor or 0
        if family is BoundFamily.PAPER and math.isfinite(self.cap) and 2 * self.cap * floor < n:
            # to fail on a small arm would depend on the data
            raise CalibrationError(
                f"cap = {self.cap:g}: an arm of fewer than n / (2 cap) records cannot hold half the weight; "
                "declare an arm_floor or a larger cap"
            )
        return super().stability(universe, family)

    def printed_bound(self, universe: Universe) -> StabilityBound:
        constants, relation = self.constants(universe), universe.domain.relation
        return stability.paper_kernel_balancing(
            universe.n_samples, constants.kernel_bound, constants.ridge, self.cap, relation=relation
        )


@dataclass(frozen=True)
class PooledMMD(KernelFirstStage):
    """Kernel balance over one simplex: an arm may be empty, and a flip moves no constraint.

    Parameters
    ----------
    kernel
        A public kernel on the covariates.
    """

    kernel: Kernel = setting(Gaussian(), declared_choice, kinds=CHOICES)

    pooled = True
    name = "mmd_pooled"
    formula = "w = argmin a sum_c |m_c - m/2|^2 + (1-a) |m_0 - m_1|^2 + mu/n |w|^2, sum w = n, w >= 0"
    citation = "after Chen et al. (2024)"
    theorem = "Theorem 6"


@dataclass(frozen=True)
class EnergyBalancing(KernelFirstStage):
    """Balance of whole distributions within each arm, without a bandwidth to choose.

    Parameters
    ----------
    ridge
        Above 0; default: the kernel's bound, so that the stability bound does not depend on scaling.
    """

    ridge: float | None = setting(None, public_size)

    name = "energy_balancing"
    formula = "w = argmin a sum_c E(p_c, q) + (1-a) E(p_0, p_1) + 4 mu/n |w|^2, sum_c w = n/2, w >= 0"
    citation = "Huling & Mak (2024)"
    theorem = "Theorem 5 (needs an arm floor)"
    formulas = MappingProxyType({"ridge": "C"})
    defaults = MappingProxyType({"ridge": "2 M, the bound of the kernel"})
    kernel = Energy()

    def public_numbers(self, domain: Domain) -> dict[str, float]:
        return super().public_numbers(domain) | {"C": self.kernel.bound(domain.features_bound)}
