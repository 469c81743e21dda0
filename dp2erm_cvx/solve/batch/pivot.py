"""The optimality system of kernel weights, pivoted on the free weights of the base solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.simplex import Simplices
from dp2erm_cvx.program.schemes.kernel_model import KernelModel

Mask = NDArray[np.bool_]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pivot:
    """The principal pivot transform T of ``W = [[Q + h I, A'], [A, 0]]`` on the free weights.

    With ``W z = r``: T maps ``(r on the free, z on the fixed)`` to ``(z on the free, r on the fixed)``. The
    multipliers of the group totals stand last and are always free. ``transposed`` is (N, N), N the number of
    weights and groups; ``free`` (N,); ``start`` (N,) are the fixed values, 0 or the cap, and the totals.
    """

    transposed: Array
    free: Mask
    start: Array
    n_groups: int

    def __repr__(self) -> str:
        return f"Pivot(n_groups={self.n_groups})"

    def apply(self, X: Array) -> Array:
        """T x for the rows x of X (m, N)."""
        Y: Array = X @ self.transposed
        return Y

    def columns(self, member: Index, index: Index, inputs: Array, m: int) -> Array:
        """T x for m vectors x whose only entries are ``inputs`` at (member, index), (m, N)."""
        if len(member) == m and np.array_equal(member, np.arange(m)):
            Y: Array = self.transposed[index]
            Y *= inputs[:, None]
            return Y
        X = np.zeros((m, len(self.free)))
        X[member, index] = inputs
        return self.apply(X)

    def block(self, index: Index) -> Array:
        """T restricted to the indices (m, s) of every member, (m, s, s)."""
        entries: Array = self.transposed[index[:, None, :], index[:, :, None]]
        return entries


def pivot(model: KernelModel, point: Array) -> Pivot | None:
    """The transform at the solution ``point`` (n,) of the base model; None where a group has none free."""
    simplices = model.penalty.set
    assert isinstance(simplices, Simplices)
    n, groups = model.n, simplices.group
    n_groups = len(np.unique(groups))
    free = np.append((point > 0) & (point < simplices.cap), np.ones(n_groups, dtype=bool))
    if any(not np.any(free[:n][groups == g]) for g in range(n_groups)):
        return None
    N = n + n_groups
    W = np.zeros((N, N))
    W[:n, :n] = model.Q
    W[np.arange(n), np.arange(n)] += model.half_ridge
    W[n + groups, np.arange(n)] = W[np.arange(n), n + groups] = 1.0
    F, Z = np.flatnonzero(free), np.flatnonzero(~free)
    try:
        inverse = np.linalg.inv(W[np.ix_(F, F)])
    except np.linalg.LinAlgError:
        return None
    T = np.empty((N, N))
    T[np.ix_(F, F)] = inverse
    T[np.ix_(F, Z)] = -inverse @ W[np.ix_(F, Z)]
    T[np.ix_(Z, F)] = W[np.ix_(Z, F)] @ inverse
    T[np.ix_(Z, Z)] = W[np.ix_(Z, Z)] + W[np.ix_(Z, F)] @ T[np.ix_(F, Z)]
    start = np.append(np.where(free[:n], 0.0, point), np.full(n_groups, simplices.total))
    return Pivot(np.ascontiguousarray(T.T), free, start, n_groups)
