"""Active-set steps for many neighbors of one kernel-balancing problem, by small exchange systems."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve.batch.kernel_members import Index, KernelMembers, KernelPoints
from dp2erm_cvx.solve.batch.pivot import Mask, Pivot

_MAX_STEPS = 20
#: Largest number of weights whose state may differ from the base; beyond, the single solver is used.
_MAX_EXCHANGED = 64
#: Relative size of a bound violation that is rounding.
_SLACK = 1e-12


@dataclass(eq=False)
class _State:
    """Which shared weights are free, and whether the new one is; the rest stand at 0 or at the cap."""

    free: Mask
    value: Array
    new_free: Mask
    new_value: Array


def exchange(pivot: Pivot, members: KernelMembers, ridge: float, cap: float) -> tuple[KernelPoints, Index]:
    """Solve all neighbors; steps taken (m,), 0 where the active set did not settle.

    Every step solves the optimality system of the current free sets exactly. A free set differs from the base
    by a few indices C: with T the base pivot, the unknown inputs at C and the new weight obey a system of
    size |C| + 1, and one product with T gives all other weights and slacks. Weights outside their bounds then
    become fixed and those of wrong slack free (a primal-dual active-set method).
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
    Y0, Yq = pivot.apply(start), pivot.apply(column)
    # what the new weight adds to the rows of the exchange system: a fixed weight sees it directly, too
    toward = -Yq[:, :n]
    toward[:, fixed_columns] += members.coupling[:, fixed_columns]
    fixed = np.zeros((m, n))
    fixed[:, fixed_columns] = start[:, fixed_columns]
    own = members.diagonal + ridge - _dot(column, Yq)
    own_right = members.own_linear - _dot(column, Y0) - _dot(members.coupling, fixed)
    state = _State(np.tile(base_free, (m, 1)), fixed.copy(), np.ones(m, dtype=bool), np.zeros(m))
    state.free[rows, members.index] = False
    found = KernelPoints(np.zeros((m, n)), np.zeros(m), np.zeros((m, pivot.n_groups)))
    steps, live = np.zeros(m, dtype=np.int64), rows
    for step in range(1, _MAX_STEPS + 1):
        live, member, index = _exchanged(state, base_free, live)
        if not len(live):
            break
        every = len(live) == m
        of = slice(None) if every else live
        base, toward_new = Y0[of], toward[of]
        right = members.linear[of][member, index] - base[member, index]
        was_free = base_free[index]
        right[was_free] = (state.value[of][member, index] - base[member, index])[was_free]
        delta, new = _small(
            pivot, member, index, toward_new, right, own[of], own_right[of], state, of, len(live)
        )
        Y = base + pivot.columns(member, index, delta, len(live))
        Y -= new[:, None] * Yq[of]
        value, slack = Y[:, :n].copy(), np.zeros((len(live), n))
        slack[member, index] = delta
        value[:, fixed_columns] = fixed[of][:, fixed_columns] + slack[:, fixed_columns]
        slack[:, fixed_columns] = (
            Y[:, fixed_columns]
            + new[:, None] * members.coupling[of][:, fixed_columns]
            - members.linear[of][:, fixed_columns]
        )
        part = members if every else members.take(live)
        new_slack = _new_slack(part, value, Y[:, n:], new, ridge)
        settled = _advance(state, live, part.index, value, slack, new, new_slack, cap)
        found.shared[of], found.new[of], found.multipliers[of] = value, new, Y[:, n:]
        steps[live[settled]] = step
        live = live[~settled]
    # a fixed weight is its bound exactly, and not what the system gives back for it
    shared = found.shared
    np.copyto(shared, state.value, where=~state.free)
    return KernelPoints(
        shared, np.where(state.new_free, found.new, state.new_value), found.multipliers
    ), steps


def _dot(A: Array, B: Array) -> Array:
    product: Array = np.einsum("ij,ij->i", A, B)
    return product


def _exchanged(state: _State, base_free: Mask, live: Index) -> tuple[Index, Index, Index]:
    """The members that stay within reach of the base, and (member, index) of what they exchange."""
    changed = state.free[live] != base_free
    few = np.sum(changed, axis=1) <= _MAX_EXCHANGED
    member, index = np.nonzero(changed[few])
    return live[few], member, index


def _small(
    pivot: Pivot,
    member: Index,
    index: Index,
    toward: Array,
    right: Array,
    own: Array,
    own_right: Array,
    state: _State,
    of: Index | slice,
    m: int,
) -> tuple[Array, Array]:
    """Inputs at the exchanged (member, index), and the new weights (m,)."""
    counts = np.bincount(member, minlength=m)
    s = int(np.max(counts, initial=0))
    slot = np.arange(len(member)) - np.repeat(np.cumsum(counts) - counts, counts)
    padded = np.zeros((m, s), dtype=np.int64)
    used, rhs = np.zeros((m, s), dtype=bool), np.zeros((m, s + 1, 1))
    padded[member, slot], used[member, slot], rhs[member, slot, 0] = index, True, right
    A = np.zeros((m, s + 1, s + 1))
    A[:, :s, :s] = np.where(used[:, :, None] & used[:, None, :], pivot.block(padded), 0.0)
    A[:, np.arange(s), np.arange(s)] += ~used
    edge = np.where(used, np.take_along_axis(toward, padded, axis=1), 0.0)
    # T is symmetric up to the sign of its mixed blocks, and so is the row of the new weight
    free_new = state.new_free[of]
    A[:, :s, s] = edge
    A[:, s, :s] = np.where(pivot.free[padded], -edge, edge)
    A[~free_new, s, :s] = 0.0
    A[:, s, s] = np.where(free_new, own, 1.0)
    rhs[:, s, 0] = np.where(free_new, own_right, state.new_value[of])
    try:
        solution = np.asarray(np.linalg.solve(A, rhs)[:, :, 0], dtype=np.float64)
    except np.linalg.LinAlgError:
        solution = np.full((m, s + 1), np.nan)  # settles for no member
    return solution[member, slot], solution[:, s]


def _new_slack(members: KernelMembers, value: Array, multipliers: Array, new: Array, ridge: float) -> Array:
    pull = _dot(members.coupling, value) + (members.diagonal + ridge) * new
    own = np.take_along_axis(multipliers, members.group[:, None], axis=1)[:, 0]
    slack: Array = pull + own - members.own_linear
    return slack


def _advance(
    state: _State,
    live: Index,
    index: Index,
    value: Array,
    slack: Array,
    new: Array,
    new_slack: Array,
    cap: float,
) -> Mask:
    """Move every weight of ``live`` to the state that its value or slack asks for; whether none moved."""
    rows = np.arange(len(live))
    value[rows, index] = slack[rows, index] = 0.0  # the record that left keeps weight 0
    size, pull = np.max(np.abs(value), axis=1), np.max(np.abs(slack), axis=1)
    value_tol, slack_tol = _SLACK * size + 1e-300, _SLACK * (pull + size) + 1e-300
    new_free, new_value = state.new_free[live], state.new_value[live]
    new_free, new_value, moved = _moved(new_free, new_value, new, new_slack, cap, value_tol, slack_tol)
    state.new_free[live], state.new_value[live] = new_free, new_value
    free, fixed, shifted = _moved(
        state.free[live], state.value[live], value, slack, cap, value_tol[:, None], slack_tol[:, None]
    )
    still = ~np.any(shifted, axis=1)
    left = live[~still]
    state.free[left], state.value[left] = free[~still], fixed[~still]
    settled: Mask = still & ~moved & np.isfinite(size) & np.isfinite(pull)
    return settled


def _moved(
    free: Mask, fixed: Array, value: Array, slack: Array, cap: float, value_tol: Array, slack_tol: Array
) -> tuple[Mask, Array, Mask]:
    low = free & (value < -value_tol)
    wrong = ~free & (slack < -slack_tol)
    if math.isinf(cap):
        return (free & ~low) | wrong, fixed, low | wrong
    wrong = ~free & np.where(fixed > 0, slack > slack_tol, slack < -slack_tol)
    high = free & (value > cap + value_tol)
    target = np.where(high, cap, np.where(low | wrong, 0.0, fixed))
    return (free & ~low & ~high) | wrong, target, low | high | wrong
