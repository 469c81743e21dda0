"""Kernel weights to 50 digits, from the records alone; accepted only if their optimality conditions hold."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import Gaussian, KernelFirstStage, Laplace
from tests.exact import Vector, to_mp

_TINY = mp.mpf(10) ** -40


def kernel(program: KernelFirstStage, records: Records, near: Array) -> tuple[Vector, Vector]:
    """(v, weights) of a kernel program; ``near`` tells which of v (n,) are at 0 and at the cap."""
    K, a = gram(program, records), records.a
    n, alpha, pooled = len(a), mp.mpf(program.alpha), program.name == "mmd_pooled"
    scale = mp.mpf(1) if pooled else mp.mpf(1) / 2
    cap = mp.inf if pooled or np.isinf(program.cap) else 2 * mp.mpf(program.cap)  # type: ignore[attr-defined]
    groups = [list(range(n))] if pooled else [[i for i in range(n) if a[i] == arm] for arm in (0, 1)]
    groups = [group for group in groups if group]
    total = mp.mpf(n) if pooled else 2 * mp.mpf(n) / len(groups)
    linear = [-alpha / scale * mp.fsum(row) for row in K]
    Q = [[2 * K[i][j] * (1 if a[i] == a[j] else alpha - 1) for j in range(n)] for i in range(n)]
    for i in range(n):
        Q[i][i] += 2 * n * mp.mpf(program.ridge)
    top = [i for i in range(n) if near[i] >= cap * (1 - mp.mpf(10) ** -9)]
    free = [i for i in range(n) if near[i] > 1e-9 and i not in top]
    v = [cap if i in top else mp.mpf(0) for i in range(n)]
    size = len(free) + len(groups)
    matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
    for r, i in enumerate(free):
        for c, j in enumerate(free):
            matrix[r, c] = Q[i][j]
        right[r] = -linear[i] - mp.fdot(Q[i], v)
    for g, group in enumerate(groups):
        rank = len(free) + g
        for r, i in enumerate(free):
            matrix[r, rank] = matrix[rank, r] = mp.mpf(i in group)
        right[rank] = total - mp.fsum(v[i] for i in group)
        if not any(i in group for i in free):
            matrix[rank, rank] = 1  # every weight of this arm is at its cap: no multiplier is needed
            assert mp.fabs(right[rank]) < _TINY
    solved = mp.lu_solve(matrix, right)
    for r, i in enumerate(free):
        v[i] = solved[r]
        assert 0 < v[i] < cap
    for g, group in enumerate(groups):
        if not any(i in group for i in free):
            continue
        for i in group:
            slope = linear[i] + mp.fdot(Q[i], v) + solved[len(free) + g]
            assert slope <= _TINY * n if i in top else slope >= -_TINY * n
    return v, [scale * value for value in v]


def gram(program: KernelFirstStage, records: Records) -> list[Vector]:
    """The kernel matrix."""
    rows, kind = to_mp(records.covariates), program.kernel

    def entry(x: Vector, other: Vector) -> Any:
        squared = mp.fsum((s - t) ** 2 for s, t in zip(x, other, strict=True))
        if isinstance(kind, Gaussian):
            return mp.exp(-squared / (2 * mp.mpf(kind.bandwidth) ** 2))
        if isinstance(kind, Laplace):
            return mp.exp(-mp.sqrt(squared) / mp.mpf(kind.bandwidth))
        return mp.mpf(kind.offset) + mp.fdot(x, other)  # type: ignore[attr-defined]

    return [[entry(x, other) for other in rows] for x in rows]
