"""Neighbors of a kernel-balancing problem: one factorization of the base, small updates for each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.sums import UNIT, product_error
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import KernelModel
from dp2erm_cvx.solve.batch.rows import Batch, Claims, FastPath, Index, Mask, Replacements, dot

_MAX_STEPS = 20
#: Largest number of weights whose state may differ from the base; beyond, the single solver is used.
_MAX_EXCHANGED = 64
#: Relative size of a bound violation that is rounding.
_SLACK = 1e-12


def kernel_path(
    program: KernelFirstStage, model: KernelModel, records: Records, point: Array
) -> FastPath | None:
    """Neighbors of weights by a quadratic program; None where ``point`` (n,) leaves an arm no free weight."""
    simplices = model.feasible
    if len(np.unique(simplices.group)) != (1 if program.pooled else 2):
        return None  # one arm alone holds the total of both
    pivot = _pivoted(model, point)
    if pivot is None:
        return None
    gram = program.kernel.cross(records.covariates, records.covariates)
    sizes, cap = np.bincount(simplices.group, minlength=pivot.n_groups), simplices.cap

    def solved(part: Replacements, goal: float) -> Claims:
        """Exchange steps for all of them at once, then one product with Q to certify."""
        members = _members(program, model, records, gram, part)
        points, multipliers, steps = _exchange(pivot, members, model.half_ridge, cap)
        with np.errstate(invalid="ignore"):
            V, new = np.clip(points[:, :-1], 0.0, cap), np.clip(points[:, -1], 0.0, cap)
        radius = np.where(steps > 0, _judged(model, members, V, new, multipliers), np.inf)
        # an arm that loses its last record leaves its total to the other
        left = simplices.group[part.index]
        radius[(sizes[left] == 1) & (members.group != left)] = np.inf
        V[np.arange(len(part)), part.index] = new
        return Claims.held(model.scale * V, radius, steps, V, part.index)

    return solved


@dataclass(frozen=True, eq=False, repr=False)
class _Members(Batch):
    """m neighbors: record ``index[k]`` leaves, and a new one comes in as one more variable.

    ``coupling`` (m, n) are its entries of Q with the shared records (0 at the one that left), ``linear``
    (m, n) their linear terms, ``diagonal``, ``own_linear`` (m,) its own entries, ``group`` (m,) its simplex.
    """

    coupling: Array
    linear: Array
    diagonal: Array
    own_linear: Array
    group: Index


def _members(
    program: KernelFirstStage, model: KernelModel, records: Records, gram: Array, part: Replacements
) -> _Members:
    """Kernel columns of the new records; ``gram`` (n, n) is the kernel of the old ones."""
    new, rows, share = part.records(), np.arange(len(part)), program.target_share
    K = program.kernel.cross(new.covariates, records.covariates)
    own = program.kernel.diagonal(new.covariates)
    linear = model.c + share * (K - gram[part.index])
    K[rows, part.index] = 0.0
    own_linear = share * (np.sum(K, axis=1) + own)
    same = new.a[:, None] == records.a[None, :]
    coupling = np.where(same, K, (program.alpha - 1.0) * K)
    group = np.zeros(len(part), dtype=np.int64) if program.pooled else new.a
    return _Members(part.index, coupling, linear, own, own_linear, group)


@dataclass(frozen=True, eq=False, repr=False)
class _Pivot:
    """The principal pivot transform T (N, N) of ``W = [[Q + h I, A'], [A, 0]]`` on the ``free`` weights (N,).

    With ``W z = r``: T maps ``(r on the free, z on the fixed)`` to ``(z on the free, r on the fixed)``.
    Multipliers of the totals stand last, always free. ``start`` (N,) are fixed values and totals.
    """

    transposed: Array
    free: Mask
    start: Array
    n_groups: int

    def columns(self, member: Index, index: Index, inputs: Array, m: int) -> Array:
        """T x for m vectors x whose only entries are ``inputs`` at (member, index), (m, N)."""
        if len(member) == m and np.array_equal(member, np.arange(m)):
            Y: Array = self.transposed[index]
            Y *= inputs[:, None]
            return Y
        X = np.zeros((m, len(self.free)))
        X[member, index] = inputs
        return np.asarray(X @ self.transposed)


def _pivoted(model: KernelModel, point: Array) -> _Pivot | None:
    """The transform at the solution ``point`` (n,) of the base model; None where a group has none free."""
    simplices = model.feasible
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
    return _Pivot(np.ascontiguousarray(T.T), free, start, n_groups)


def _exchange(pivot: _Pivot, members: _Members, ridge: float, cap: float) -> tuple[Array, Array, Index]:
    """Values (m, n + 1), the new one last, multipliers of totals (m, groups), and steps (m,), 0 if unsettled.

    A primal-dual active-set method. A free set differs from the base by a few indices C: the unknown inputs
    at C and the new weight obey a system of size |C| + 1, and a product with T gives all other weights and
    slacks. Weights outside their bounds then become fixed and those of wrong slack free.
    """
    m, n = members.coupling.shape
    rows, base_free = np.arange(m), pivot.free[:n]
    fixed_columns = np.flatnonzero(~base_free)
    start, column = np.empty((m, n + pivot.n_groups)), np.zeros((m, n + pivot.n_groups))
    start[:, :n], start[:, n:] = members.linear, pivot.start[n:]
    start[:, fixed_columns] = pivot.start[fixed_columns]
    start[rows, members.index] = 0.0
    column[:, :n] = members.coupling
    column[:, fixed_columns] = 0.0
    column[rows, n + members.group] = 1.0
    Y0, Yq = start @ pivot.transposed, column @ pivot.transposed
    # what the new weight adds to the rows of the exchange system: a fixed weight sees it directly, too
    toward = -Yq[:, :n]
    toward[:, fixed_columns] += members.coupling[:, fixed_columns]
    fixed = np.zeros((m, n))
    fixed[:, fixed_columns] = start[:, fixed_columns]
    own = members.diagonal + ridge - dot(column, Yq)
    own_right = members.own_linear - dot(column, Y0) - dot(members.coupling, fixed)
    #: Which of the shared weights and the new one, (m, n + 1), are free; others stand at 0 or at the cap.
    free, values = np.tile(np.append(base_free, True), (m, 1)), np.column_stack([fixed, np.zeros(m)])
    free[rows, members.index] = False
    points, multipliers = np.zeros((m, n + 1)), np.zeros((m, pivot.n_groups))
    steps, live = np.zeros(m, dtype=np.int64), rows
    for step in range(1, _MAX_STEPS + 1):
        changed = free[live, :-1] != base_free
        few = np.sum(changed, axis=1) <= _MAX_EXCHANGED
        live, (member, index) = live[few], np.nonzero(changed[few])
        if not len(live):
            break
        base, part = Y0[live], members if len(live) == m else members.take(live)
        right = members.linear[live[member], index] - base[member, index]
        was_free = base_free[index]
        right[was_free] = (values[live[member], index] - base[member, index])[was_free]
        new_free = free[live, n]
        new_right = np.where(new_free, own_right[live], values[live, n])
        delta, new = _small(pivot, member, index, toward[live], right, own[live], new_right, new_free)
        Y = base + pivot.columns(member, index, delta, len(live))
        Y -= new[:, None] * Yq[live]
        value, slack = np.column_stack([Y[:, :n], new]), np.zeros((len(live), n + 1))
        slack[member, index] = delta
        value[:, fixed_columns] = fixed[np.ix_(live, fixed_columns)] + slack[:, fixed_columns]
        slack[:, fixed_columns] = (
            Y[:, fixed_columns]
            + new[:, None] * part.coupling[:, fixed_columns]
            - part.linear[:, fixed_columns]
        )
        pull = dot(part.coupling, value[:, :n]) + (part.diagonal + ridge) * new
        slack[:, n] = pull + Y[np.arange(len(live)), n + part.group] - part.own_linear
        settled = _advance((free, values), live, part.index, value, slack, cap)
        points[live], multipliers[live] = value, Y[:, n:]
        steps[live[settled]] = step
        live = live[~settled]
    # a fixed weight is its bound exactly, and not what the system gives back for it
    np.copyto(points, values, where=~free)
    return points, multipliers, steps


def _judged(model: KernelModel, members: _Members, V: Array, t: Array, multipliers: Array) -> Array:
    """Bound (m,) on the l1 error of the weights: an element of half the subdifferential over the ridge.

    Totals that rounding missed are charged as a step to the exact set along one free weight.
    """
    simplices = model.feasible
    n, m = model.n, len(members)
    rows = np.arange(m)
    half = V @ model.Q
    half += members.coupling * t[:, None] - members.linear + model.half_ridge * V
    half += multipliers[:, simplices.group]
    half = _inside_cone(half, V, simplices.cap)
    half[rows, members.index] = 0.0
    own = np.sum(members.coupling * V, axis=1) + (members.diagonal + model.half_ridge) * t
    own += multipliers[rows, members.group] - members.own_linear
    own = _inside_cone(own, t, simplices.cap)
    residual = np.sqrt(np.sum(half * half, axis=1) + own * own) * (1 + 1e-12) + 1e-150

    size = np.sqrt(np.maximum(np.diag(model.Q), 0.0))
    new_size = np.sqrt(np.maximum(members.diagonal, 0.0))
    moment = V @ size + t * new_size + float(np.sum(size)) + new_size
    length = np.sqrt(float(size @ size) + members.diagonal)
    multiplier = np.sum(np.abs(multipliers), axis=1)
    total = np.sum(V, axis=1) + t
    # entries of the kernel are wrong by their share of sqrt(K_ii K_jj); sums over them by less, where most
    # are small: | |Q| v | is at most the largest row sum times |v|, and the new row and column come on top
    entries = (24 + model.entry_error) * UNIT * length * moment
    summed = float(np.max(model.row_sums)) * np.sqrt(np.sum(V * V, axis=1)) + float(np.linalg.norm(model.c))
    summed += new_size * (length * (t + 2) + moment) + length * float(np.max(size))
    linear = model.half_ridge * total + math.sqrt(n) * multiplier
    rounding = entries + product_error(n) * summed * (1 + 1e-9) + 8 * UNIT * linear

    pairwise = (64 + math.log2(n)) * UNIT  # numpy adds contiguous rows pairwise, from blocks of 128
    missed = np.zeros(m)
    roomy = np.ones(m, dtype=bool)
    for group in range(multipliers.shape[1]):
        inside = simplices.group == group
        mine = members.group == group
        mass = np.ascontiguousarray(V[:, inside])
        amount = np.sum(mass, axis=1) + np.where(mine, t, 0.0)
        gap = np.abs(amount - simplices.total) + pairwise * (amount + simplices.total)
        missed += gap
        room = mass if math.isinf(simplices.cap) else np.minimum(mass, simplices.cap - mass)
        roomy &= np.max(room, axis=1, initial=0.0) > 2 * gap
    # a bordered semidefinite matrix has at most the largest eigenvalue plus the new diagonal entry
    smoothness = 0.5 * model.smoothness + members.diagonal
    radius = (residual + rounding + smoothness * missed) / model.half_ridge + missed
    bound = model.scale * (math.sqrt(n) * radius + 8 * UNIT * total) * (1 + 1e-9)
    return np.where(roomy & np.isfinite(bound), bound, np.inf)


def _small(
    pivot: _Pivot,
    member: Index,
    index: Index,
    toward: Array,
    right: Array,
    own: Array,
    new_right: Array,
    new_free: Mask,
) -> tuple[Array, Array]:
    """Inputs at the exchanged (member, index), and the new weights (m,)."""
    m = len(toward)
    counts = np.bincount(member, minlength=m)
    s = int(np.max(counts, initial=0))
    slot = np.arange(len(member)) - np.repeat(np.cumsum(counts) - counts, counts)
    padded = np.zeros((m, s), dtype=np.int64)
    used, rhs = np.zeros((m, s), dtype=bool), np.zeros((m, s + 1, 1))
    padded[member, slot], used[member, slot], rhs[member, slot, 0] = index, True, right
    A, block = np.zeros((m, s + 1, s + 1)), pivot.transposed[padded[:, None, :], padded[:, :, None]]
    A[:, :s, :s] = np.where(used[:, :, None] & used[:, None, :], block, 0.0)
    A[:, np.arange(s), np.arange(s)] += ~used
    edge = np.where(used, np.take_along_axis(toward, padded, axis=1), 0.0)
    # T is symmetric up to the sign of its mixed blocks, and so is the row of the new weight
    A[:, :s, s] = edge
    A[:, s, :s] = np.where(pivot.free[padded], -edge, edge)
    A[~new_free, s, :s] = 0.0
    A[:, s, s] = np.where(new_free, own, 1.0)
    rhs[:, s, 0] = new_right
    try:
        solution = np.asarray(np.linalg.solve(A, rhs)[:, :, 0], dtype=np.float64)
    except np.linalg.LinAlgError:
        solution = np.full((m, s + 1), np.nan)  # settles for no member
    return solution[member, slot], solution[:, s]


def _advance(
    state: tuple[Mask, Array], live: Index, index: Index, value: Array, slack: Array, cap: float
) -> Mask:
    """Move every weight of ``live`` to the state that its value or slack asks for; whether none moved."""
    rows, n = np.arange(len(live)), value.shape[1] - 1
    value[rows, index] = slack[rows, index] = 0.0  # the record that left keeps weight 0
    size, pull = np.max(np.abs(value[:, :n]), axis=1), np.max(np.abs(slack[:, :n]), axis=1)
    value_tol = (_SLACK * size + 1e-300)[:, None]
    slack_tol = (_SLACK * (pull + size) + 1e-300)[:, None]
    free, fixed = state[0][live], state[1][live]
    low, wrong = free & (value < -value_tol), ~free & (slack < -slack_tol)
    if math.isinf(cap):
        moved = low | wrong
    else:
        wrong = ~free & np.where(fixed > 0, slack > slack_tol, slack < -slack_tol)
        high = free & (value > cap + value_tol)
        moved = low | wrong | high
        fixed = np.where(high, cap, np.where(low | wrong, 0.0, fixed))
    still = ~np.any(moved, axis=1)
    left = live[~still]
    # what moves is free where it was fixed, and fixed where it was free
    state[0][left], state[1][left] = (free ^ moved)[~still], fixed[~still]
    settled: Mask = still & np.isfinite(size) & np.isfinite(pull)
    return settled


def _inside_cone(r: Array, v: Array, cap: float) -> Array:
    """Rest of r where the normal cone adds any amount: nonpositive at 0, nonnegative at the cap."""
    left: Array = np.where(v <= 0, np.minimum(r, 0.0), np.where(v >= cap, np.maximum(r, 0.0), r))
    return left
