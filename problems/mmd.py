"""Three-way maximum-mean-discrepancy weights, one simplex per arm.

minimize    alpha ( ||F_0'v - t||^2 + ||F_1'v - t||^2 ) + (1 - alpha) ||F_0'v - F_1'v||^2 + n ridge ||v||^2
subject to  sum over arm a of v_i = n for a = 0, 1,  0 <= v <= 2 cap

then w = v/2. With K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0) and t = F'1:
n^2 times equation MMD_weight_def of the paper, whose lambda_MMD is ``n ridge``; its cap R_MMD is on w.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Domain,
    FactoredKernelModel,
    Instance,
    KernelFirstStage,
    KernelModel,
    Leaves,
    Records,
    Simplices,
    StabilityBound,
    Value,
    public_number,
)


@dataclass(frozen=True)
class MMD(KernelFirstStage):
    """``cap`` is a public bound on every weight. An arm without records leaves all weight to the other."""

    cap: float = math.inf

    name = "mmd"
    formula = (
        "w = argmin a sum_c |m_c - m|^2 + (1-a) |m_0 - m_1|^2 + 4 mu/n |w|^2, sum_c w = n/2, 0 <= w <= cap"
    )
    cone = "QP"
    citation = "Chen et al. (2024); Lee & Chen (2026), eq. MMD_weight_def"
    theorem = "Theorem 5 (needs an arm floor)"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cap", public_number("cap", self.cap, above=0, infinite=True))

    def feasible(self, records: Records) -> Simplices:
        """The doubled weights: every arm that has records gets n, or 2n where it is alone."""
        total = 2 * records.n_samples / len(np.unique(records.a))
        return Simplices(records.a, total, 2 * self.cap)

    def data(self, records: Records) -> dict[str, Value]:
        features = self.features(records)
        sample = np.asarray(features["F0"]) + np.asarray(features["F1"])
        data = features | {
            "target": sample.sum(axis=0),
            "treated": records.a.astype(np.float64),
            "totals": self.feasible(records).totals(),
        }
        return data if math.isinf(self.cap) else data | {"cap": 2 * self.cap}

    def declare(self, leaf: Leaves) -> Declaration:
        treated, totals = leaf("treated"), leaf("totals", nonneg=True)
        v = cp.Variable(treated.shape[0], name="doubled_weights", nonneg=True)
        constraints = {"treated_total": treated @ v == totals[1], "total": cp.sum(v) == cp.sum(totals)}
        if not math.isinf(self.cap):
            constraints["cap"] = v <= leaf("cap", nonneg=True)
        return Declaration(self.imbalance(leaf, v), {"doubled_weights": v}, constraints)

    def model(self, records: Records) -> KernelModel | FactoredKernelModel:
        return self.balancing_model(records, self.feasible(records))

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model = instance.model
        assert isinstance(model, KernelModel | FactoredKernelModel)
        # a solver meets the totals only approximately; weights must sum to n
        return model.penalty.set.project(values["doubled_weights"])

    def bound(self, n_samples: int, domain: Domain) -> StabilityBound:
        return stability.kernel_balancing(
            n_samples,
            self.kernel.bound(domain.features_bound),
            n_samples * self.ridge,
            domain.arm_floor,
            alpha=self.alpha,
            signed=self.kernel.signed,
            weight_cap=self.cap,
            relation=domain.relation,
        )

    def paper_bound(self, n_samples: int, domain: Domain) -> StabilityBound:
        if 2 * self.cap * (domain.arm_floor or 0) < n_samples and math.isfinite(self.cap):
            # to fail on a small arm would depend on the data
            raise CalibrationError(
                f"cap = {self.cap:g}: an arm of fewer than n / (2 cap) records cannot hold half the weight; "
                "declare an arm_floor or a larger cap"
            )
        return stability.paper_kernel_balancing(
            n_samples,
            self.kernel.bound(domain.features_bound),
            n_samples * self.ridge,
            self.cap,
            relation=domain.relation,
        )
