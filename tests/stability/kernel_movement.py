"""Measured movement of MMD weights: an active-set solution of the quadratic program, without the package.

A dataset is a list of groups of equal records with multiplicities; by strict convexity equal records have
equal weights, so the variables are the masses of the groups. The changed record is the last group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Groups:
    """Feature vectors (k, d), arms (k,) and multiplicities (k,) of k groups."""

    features: Array
    arm: NDArray[np.int64]
    count: Array

    @classmethod
    def from_gram(cls, K: Array, arm: NDArray[np.int64], count: Array | None = None) -> "Groups":
        value, vector = np.linalg.eigh(K)
        rows = vector * np.sqrt(np.maximum(value, 0.0))
        return cls(rows, np.asarray(arm), np.ones(len(K)) if count is None else count)


def weights(data: Groups, ridge: float, alpha: float, pooled: bool = False, cap: float = np.inf) -> Array:
    """Weights per record of each group, summing to n over the records."""
    K = data.features @ data.features.T
    n = data.count.sum()
    same = data.arm[:, None] == data.arm[None, :]
    A = np.where(same, 1.0, alpha - 1.0) * K + np.diag(ridge / data.count)
    b = (0.5 if pooled else 1.0) * alpha * K @ (data.count / n)
    rows = (
        np.ones((1, len(b)))
        if pooled
        else np.array([data.arm == 0, data.arm == 1], dtype=np.float64)[np.unique(data.arm)]
    )
    scale = n if pooled else n / 2
    return scale * minimize_on_simplices(A, b, rows, cap * data.count / scale) / data.count


def minimize_on_simplices(A: Array, b: Array, rows: Array, upper: Array) -> Array:
    """Minimize ``u'Au - 2b'u`` subject to ``rows u = 1``, ``0 <= u <= upper``; primal active set.

    ``rows`` are indicators of disjoint blocks that cover all variables. The optimality conditions of the
    result are asserted, so that a wrong solution cannot pass.
    """
    k = len(b)
    block = np.argmax(rows, axis=0)
    if np.isinf(upper).all():
        u = 1.0 / rows.sum(axis=1)[block]
    else:
        u = upper / (rows @ upper)[block]
        assert (rows @ upper >= 1.0).all()
    fixed = np.zeros(k, dtype=np.int64)  # -1 at zero, +1 at its upper bound
    magnitude = max(1.0, float(np.abs(A).max()))
    # the whole system; of free variables and blocks that have some it is solved
    system = np.zeros((k + len(rows), k + len(rows)))
    system[:k, :k], system[k:, :k], system[:k, k:] = A, rows, rows.T
    known = np.concatenate([b, np.ones(len(rows))])
    for _ in range(50 * k + 50):
        is_free = fixed == 0
        free = is_free.nonzero()[0]
        used = (rows @ is_free > 0).nonzero()[0]
        kept = np.concatenate([free, used + k])
        part = system[kept[:, None], kept]
        right = (known - system[:, :k] @ np.where(is_free, 0.0, u))[kept]
        solution = np.linalg.solve(part, right)
        solution += np.linalg.solve(part, right - part @ solution)
        target = solution[: len(free)]
        step = target - u[free]
        room = np.full(len(free), np.inf)
        np.divide(upper[free] - u[free], step, out=room, where=step > 0)
        np.divide(-u[free], step, out=room, where=step < 0)
        stop = int(np.argmin(room))
        if room[stop] < 1.0 - 1e-13:
            u[free] += max(0.0, room[stop]) * step
            index = free[stop]
            fixed[index] = -1 if step[stop] < 0 else 1
            u[index] = 0.0 if step[stop] < 0 else upper[index]
            continue
        u[free] = target
        slope = A @ u - b
        nu = np.full(len(rows), np.nan)
        nu[used] = -solution[len(free) :]
        excess = np.where(is_free, 0.0, -fixed * (slope - nu[block]))
        excess = np.where(np.isnan(excess), 0.0, excess)
        worst = int(np.argmin(excess))
        if excess[worst] >= -1e-12 * magnitude:
            assert np.abs(rows @ u - 1.0).max() <= 1e-11
            assert (u >= -1e-15).all()
            assert np.abs(slope[free] - nu[block[free]]).max() <= 1e-10 * magnitude
            return np.maximum(u, 0.0)
        fixed[worst] = 0
    raise AssertionError("the active set did not settle")


def movement(
    before: Groups, after: Groups, ridge: float, alpha: float, pooled: bool = False
) -> tuple[float, Array, Array]:
    """Coupled variation and both weight vectors per record; the last group is the changed record."""
    w, v = weights(before, ridge, alpha, pooled), weights(after, ridge, alpha, pooled)
    count = before.count[:-1]
    return float(count @ np.abs(w[:-1] - v[:-1]) + w[-1] + v[-1]), w, v
