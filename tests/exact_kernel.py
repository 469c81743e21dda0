"""Kernel weights to 50 digits, from the records alone; accepted only if their optimality conditions
hold.
"""

from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

from dp2erm_cvx.program import Gaussian, Moments
from dp2erm_cvx.program.kernels import Energy, Laplace, Linear, RandomFourier
from tests.exact import Vector, to_mp

_TINY = mp.mpf(10) ** -40


#: Programs of squared imbalances of features, by arm or under one sum.
BALANCING = ("mmd", "mmd_pooled", "energy_balancing", "stable_balancing")


@dataclass(frozen=True)
class BalanceKernel:
    """``c^2 + <g(x), g(x')>``, g moments and c a constant."""

    balance: Moments
    constant: float


@dataclass(frozen=True)
class Quadratic:
    """``v'Qv/2 + linear'v`` over ``0 <= v <= cap``, every group summing to ``total``."""

    Q: list[Vector]
    linear: Vector
    groups: list[list[int]]
    total: Any
    cap: Any

    def gradient(self, v):
        return [c + mp.fdot(row, v) for c, row in zip(self.linear, self.Q, strict=True)]


def kernel(program, records, near):
    """Weights of a kernel program; ``near`` tells which of them (n,) are at 0 and at the cap."""
    scale = 1 if _pooled(program) else 2
    v = _minimizer(balancing(program, records), scale * near)
    return [value / scale for value in v]


def kernel_of(program):
    """The kernel of the features that a program balances."""
    if program.name == "energy_balancing":
        return Energy()
    if program.name == "stable_balancing":
        return BalanceKernel(program.balance, program.constant)
    return program.kernel


def balancing(program, records):
    """Objective of the v of a kernel program: its weights, or twice of them where each arm has
    half.
    """
    K, a = gram(kernel_of(program), records.covariates), records.a
    n, alpha, pooled = len(a), mp.mpf(program.alpha), _pooled(program)
    groups = (
        [list(range(n))] if pooled else [[i for i in range(n) if a[i] == arm] for arm in (0, 1)]
    )
    groups = [group for group in groups if group]
    total = mp.mpf(n) if pooled else 2 * mp.mpf(n) / len(groups)
    linear = [-alpha * (1 if pooled else 2) * mp.fsum(row) for row in K]
    Q = [[2 * K[i][j] * (1 if a[i] == a[j] else alpha - 1) for j in range(n)] for i in range(n)]
    for i in range(n):
        Q[i][i] += 2 * n * mp.mpf(program.ridge)
    return Quadratic(Q, linear, groups, total, 2 * mp.mpf(getattr(program, "cap", mp.inf)))


def _pooled(program):
    return program.name in ("mmd_pooled", "stable_balancing")


def matching(program, records, near):
    """Weights of kernel mean matching; ``near`` tells which of them (n,) are at 0."""
    source, _ = _samples(program, records)
    v = _minimizer(mean_matching(program, records), near[source])
    weights = [mp.mpf(0)] * records.n_samples
    for i, value in zip(source, v, strict=True):
        weights[i] = value
    return weights


def mean_matching(program, records):
    """Objective of the weights of the source records in kernel mean matching."""
    source, target = _samples(program, records)
    n, m, X = records.n_samples, len(source), records.covariates[source]
    Q = [[2 * value for value in row] for row in gram(program.kernel, X)]
    for i in range(m):
        Q[i][i] += 2 * n * mp.mpf(program.ridge)
    linear = [-2 * n * mp.fsum(row) / len(target) for row in gram(program.kernel, X, target)]
    return Quadratic(Q, linear, [list(range(m))], mp.mpf(n), mp.inf)


def _samples(program, records):
    """The source records, and the covariates of the target."""
    everyone = list(range(records.n_samples))
    if program.target is not None:
        skipped = 1 if records.space.intercept else 0
        return everyone, records.space.features(program.target.X)[:, skipped:]
    source = [i for i in everyone if records.a[i] == 0]
    if not 0 < len(source) < len(everyone):
        return everyone, records.covariates
    return source, records.covariates[records.a == 1]


def _minimizer(problem, near):
    Q, linear, groups = problem.Q, problem.linear, problem.groups
    n, total, cap = len(Q), problem.total, problem.cap
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
            matrix[rank, rank] = (
                1  # every weight of this arm is at its cap: no multiplier is needed
            )
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
    return v


def gram(kind, X, other=None):
    """The kernel between the rows of X and of ``other``, X itself by default."""
    left, right = features(kind, X), features(kind, X if other is None else other)
    return [[entry(kind, x, y) for y in right] for x in left]


def features(kind, X):
    """Rows that :func:`entry` takes for those of X: themselves, or the features of a kernel that
    has few.
    """
    rows = to_mp(X)
    if isinstance(kind, RandomFourier):
        rng = np.random.default_rng([kind.seed, kind.frequencies, X.shape[1]])
        drawn = to_mp(rng.standard_normal((kind.frequencies, X.shape[1])) / kind.bandwidth)
        angles = [[mp.fdot(omega, x) for omega in drawn] for x in rows]
        root = mp.sqrt(kind.frequencies)
        return [[f(t) / root for f in (mp.cos, mp.sin) for t in row] for row in angles]
    if isinstance(kind, BalanceKernel):
        assert isinstance(kind.balance, Moments)
        powers = range(1, kind.balance.degree + 1)
        return [[mp.mpf(kind.constant), *(value**k for k in powers for value in x)] for x in rows]
    return rows


def entry(kind, x, other):
    """The kernel of two rows of :func:`features`."""
    if isinstance(kind, RandomFourier | BalanceKernel):
        return mp.fdot(x, other)
    if isinstance(kind, Linear):
        return mp.mpf(kind.offset) + mp.fdot(x, other)
    apart = mp.sqrt(mp.fsum((s - t) ** 2 for s, t in zip(x, other, strict=True)))
    if isinstance(kind, Gaussian):
        return mp.exp(-(apart**2) / (2 * mp.mpf(kind.bandwidth) ** 2))
    if isinstance(kind, Laplace):
        return mp.exp(-apart / mp.mpf(kind.bandwidth))
    assert isinstance(kind, Energy)
    return mp.norm(x) + mp.norm(other) - apart
