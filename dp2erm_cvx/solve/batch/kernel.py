"""Neighbors of a kernel-balancing problem: one factorization of the base, small updates for each."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.simplex import Simplices
from dp2erm_cvx.program.schemes.kernel_model import KernelModel
from dp2erm_cvx.program.schemes.kernel_stage import KernelFirstStage
from dp2erm_cvx.solve.batch.exchange import exchange
from dp2erm_cvx.solve.batch.fast_path import FastPath, FastSolutions
from dp2erm_cvx.solve.batch.kernel_judge import judge_kernel
from dp2erm_cvx.solve.batch.kernel_members import KernelMembers, KernelPoints
from dp2erm_cvx.solve.batch.pivot import Pivot, pivot
from dp2erm_cvx.solve.batch.replacements import Replacements


class KernelPath(FastPath):
    """Direct weights by a quadratic program: per arm or pooled, capped or not."""

    def __init__(self, program: KernelFirstStage, model: KernelModel, records: Records, base: Pivot) -> None:
        self.program, self.model, self.records, self.pivot = program, model, records, base
        simplices = model.penalty.set
        assert isinstance(simplices, Simplices)
        self.simplices = simplices
        self.gram = program.kernel.matrix(records.covariates)
        self.sizes = np.bincount(simplices.group, minlength=base.n_groups)

    @classmethod
    def build(
        cls, program: KernelFirstStage, model: KernelModel, records: Records, point: Array
    ) -> KernelPath | None:
        """The path, or None where the base solution leaves an arm without a free weight."""
        simplices = model.penalty.set
        assert isinstance(simplices, Simplices)
        if len(np.unique(simplices.group)) != (1 if program.pooled else 2):
            return None  # one arm alone holds the total of both
        base = pivot(model, point)
        return None if base is None else cls(program, model, records, base)

    def members(self, part: Replacements) -> KernelMembers:
        """Kernel columns of the new records."""
        program, new, rows = self.program, part.records(), np.arange(len(part))
        K = program.kernel.cross(new.covariates, self.records.covariates)
        own = program.kernel.diagonal(new.covariates)
        share = program.target_share
        linear = self.model.c + share * (K - self.gram[part.index])
        K[rows, part.index] = 0.0
        own_linear = share * (np.sum(K, axis=1) + own)
        same = new.a[:, None] == self.records.a[None, :]
        coupling = np.where(same, K, (program.alpha - 1.0) * K)
        group = np.zeros(len(part), dtype=np.int64) if program.pooled else new.a
        return KernelMembers(part.index, coupling, linear, own, own_linear, group)

    def solve(self, part: Replacements, goal: float) -> FastSolutions:
        """Exchange steps for all of them at once, then one product with Q to certify."""
        members = self.members(part)
        model, cap, rows = self.model, self.simplices.cap, np.arange(len(part))
        found, steps = exchange(self.pivot, members, model.half_ridge, cap)
        with np.errstate(invalid="ignore"):
            points = KernelPoints(
                np.clip(found.shared, 0.0, cap), np.clip(found.new, 0.0, cap), found.multipliers
            )
        radius = np.where(steps > 0, judge_kernel(model, members, points), np.inf)
        # an arm that loses its last record leaves its total to the other
        left = self.simplices.group[part.index]
        radius[(self.sizes[left] == 1) & (members.group != left)] = np.inf
        V = points.shared
        V[rows, part.index] = points.new
        return FastSolutions(model.scale * V, radius, steps, V)
