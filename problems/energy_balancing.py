"""Energy balancing weights: each arm as near to the whole sample as energy distance can tell.

minimize    alpha ( E(p_0, q) + E(p_1, q) ) + (1 - alpha) E(p_0, p_1) + (ridge / n) ||v||^2
subject to  sum over arm a of v_i = n for a = 0, 1,  v >= 0

then w = v/2; p_a is the law with weights v_i / n on arm a, q the uniform law on all records, E the energy
distance. ``alpha = 1/2`` weighs the three distances equally: the "improved" weights of Huling & Mak (2024)
with a ridge. E is the squared discrepancy of the kernel ``||x|| + ||x'|| - ||x - x'||``, which is positive
semidefinite where the distance itself is only conditionally so: n^2 times the objective is that of the
three-way discrepancy weights. The kernel lies in [0, 2 M], so the constants are those of an unsigned one.
"""

from dataclasses import dataclass
from types import MappingProxyType

from dp2erm_cvx.program import Domain, setting
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import Energy
from dp2erm_cvx.public import public_size


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
