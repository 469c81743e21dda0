"""Pooled maximum-mean-discrepancy weights: one simplex for all records, no overlap assumption.

minimize    alpha ( ||F_0'w - t||^2 + ||F_1'w - t||^2 ) + (1 - alpha) ||F_0'w - F_1'w||^2 + n ridge ||w||^2
subject to  sum_i w_i = n,  w >= 0

with K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0) and t = F'1/2. Arm masses
are free; a constant in the kernel pulls each toward n/2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx import stability
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
)


@dataclass(frozen=True)
class PooledMMD(KernelFirstStage):
    """Kernel balance over one simplex: an arm may be empty, and a flip moves no constraint."""

    pooled = True

    name = "mmd_pooled"
    formula = "w = argmin a sum_c |m_c - m/2|^2 + (1-a) |m_0 - m_1|^2 + mu/n |w|^2, sum w = n, w >= 0"
    cone = "QP"
    citation = "after Chen et al. (2024)"
    theorem = "Theorem 6"

    def data(self, records: Records) -> dict[str, Value]:
        features = self.features(records)
        sample = np.asarray(features["F0"]) + np.asarray(features["F1"])
        return features | {"target": sample.sum(axis=0) / 2}

    def declare(self, leaf: Leaves) -> Declaration:
        n = leaf("F0").shape[0]
        w = cp.Variable(n, name="weights", nonneg=True)
        return Declaration(self.imbalance(leaf, w), {"weights": w}, {"total": cp.sum(w) == n})

    def model(self, records: Records) -> KernelModel | FactoredKernelModel:
        n = records.n_samples
        return self.balancing_model(records, Simplices(np.zeros(n, dtype=np.int64), float(n)))

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model = instance.model
        assert isinstance(model, KernelModel | FactoredKernelModel)
        # a solver meets the totals only approximately; weights must sum to n
        return model.penalty.set.project(values["weights"])

    def bound(self, n_samples: int, domain: Domain) -> StabilityBound:
        return stability.pooled_kernel_balancing(
            n_samples,
            self.kernel.bound(domain.features_bound),
            n_samples * self.ridge,
            alpha=self.alpha,
            signed=self.kernel.signed,
        )
