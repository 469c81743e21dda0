"""Kernel balancing with one simplex per arm, or with one for all records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.schemes.kernel_stage import KernelFirstStage, projected
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.stability import kernel_balancing, pooled_kernel_balancing
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class ArmKernelStage(KernelFirstStage):
    """One simplex per arm.

    minimize    alpha (||F_0'v - t||^2 + ||F_1'v - t||^2) + (1 - alpha) ||F_0'v - F_1'v||^2 + n ridge ||v||^2
    subject to  sum over arm a of v_i = n for a = 0, 1,  0 <= v <= 2 weight_cap

    then w = v/2. With K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0), t = F'1. An
    arm without records leaves all weight to the other.
    """

    # Theorem 5 takes the changed record out, which leaves both datasets the same two simplices
    moving: ClassVar[frozenset[str]] = frozenset({"treated", "totals"})

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 5."""
        domain = universe.domain
        return kernel_balancing(
            universe.n_samples, self.constants(universe), domain.arm_floor, self.weight_cap, domain.relation
        )

    def feasible(self, records: Records) -> Simplices:
        """The doubled weights: every arm that has records gets n, or 2n where it is alone."""
        arms = np.concatenate(records.rows(attrgetter("a")).each())
        total = 2 * records.n_samples / len(np.unique(arms))
        return Simplices(arms, total, 2 * self.weight_cap)

    def data(self, records: Records) -> dict[str, Value]:
        arms = {"treated": records.a.astype(np.float64), "totals": self.feasible(records).totals()}
        data = self.features(records) | arms
        return data if math.isinf(self.weight_cap) else data | {"cap": 2 * self.weight_cap}

    def declare(self, leaf: Leaves) -> Declaration:
        treated, totals = leaf("treated"), leaf("totals", nonneg=True)
        v = cp.Variable(treated.shape[0], name="doubled_weights", nonneg=True)
        constraints = {"treated_total": treated @ v == totals[1], "total": cp.sum(v) == cp.sum(totals)}
        if not math.isinf(self.weight_cap):
            constraints["cap"] = v <= leaf("cap", nonneg=True)
        return Declaration(self.imbalance(leaf, v), {"doubled_weights": v}, constraints)

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return projected(instance, values["doubled_weights"])


@dataclass(frozen=True)
class PooledKernelStage(KernelFirstStage):
    """One simplex for all records: no overlap assumption, an arm may be empty.

    minimize    alpha (||F_0'w - t||^2 + ||F_1'w - t||^2) + (1 - alpha) ||F_0'w - F_1'w||^2 + n ridge ||w||^2
    subject to  sum_i w_i = n,  w >= 0

    with K = F F' the kernel matrix, F_a its factor's rows of arm a (the others 0) and t = F'1/2. Arm masses
    are free; a constant in the kernel pulls each toward n/2.
    """

    pooled: ClassVar[bool] = True

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 6."""
        return pooled_kernel_balancing(universe.n_samples, self.constants(universe))

    def feasible(self, records: Records) -> Simplices:
        n = records.n_samples
        return Simplices(np.zeros(n, dtype=np.int64), float(n))

    def data(self, records: Records) -> dict[str, Value]:
        return self.features(records)

    def declare(self, leaf: Leaves) -> Declaration:
        n = leaf("F0").shape[0]
        w = cp.Variable(n, name="weights", nonneg=True)
        return Declaration(self.imbalance(leaf, w), {"weights": w}, {"total": cp.sum(w) == n})

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return projected(instance, values["weights"])
