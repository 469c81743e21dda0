"""Many quadratic programs with one Hessian over a box or an l1 ball: exact solves on guessed supports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve.batch.quadratics import Gram

Mask = NDArray[np.bool_]
_MAX_CHANGES = 30


@dataclass(frozen=True, eq=False)
class Supported:
    """Points (m, p), the price of the l1 norm at each of them (m,), and steps taken (m,)."""

    points: Array
    price: Array
    steps: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Supported({len(self.steps)})"


def solve_supported(gram: Gram, noises: Array, l1: float, *, bound: float, l1_radius: float) -> Supported:
    """Minimize ``f + l1 ||theta||_1`` over ``|theta_k| <= bound`` and ``||theta||_1 <= l1_radius``.

    Only one of the two bounds may be finite. A coordinate is 0, at the bound, or free with a sign; the free
    ones then solve a linear system, in which the price of the l1 norm is one more unknown where the ball
    binds. A scaled prox-gradient step tells the next states (a primal-dual active-set method). ``steps`` is 0
    where the states did not settle.
    """
    m = len(noises)
    diagonal = np.diag(gram.H)
    theta = gram.solve(-(gram.linear + noises))
    price, steps = np.full(m, l1), np.zeros(m, dtype=np.int64)
    state = np.sign(theta)  # 0: at 0; 1, -1: free with that sign; 2, -2: at the bound
    state = np.where(np.abs(theta) > bound, 2 * state, state)
    live = np.arange(m)
    for step in range(1, _MAX_CHANGES + 1):
        found, cost = _on_states(gram, noises[live], state[live], price[live], l1, bound, l1_radius)
        slope = gram.gradient(found, noises[live])
        trial = found - slope / diagonal
        shrunk = np.sign(trial) * np.maximum(np.abs(trial) - cost[:, None] / diagonal, 0.0)
        following = np.where(np.abs(shrunk) > bound, 2 * np.sign(shrunk), np.sign(shrunk))
        settled = np.all(following == state[live], axis=1) & np.all(np.isfinite(found), axis=1)
        theta[live], price[live] = found, cost
        steps[live[settled]] = step
        state[live] = following
        live = live[~settled]
        if not len(live):
            break
    return Supported(theta, price, steps)


def _on_states(
    gram: Gram, noises: Array, state: Array, price: Array, l1: float, bound: float, l1_radius: float
) -> tuple[Array, Array]:
    free = np.abs(state) == 1
    sign = np.where(free, state, 0.0)
    fixed = (
        np.where(np.abs(state) == 2, 0.5 * state * bound, 0.0) if np.isfinite(bound) else np.zeros_like(state)
    )
    linear = gram.linear + noises
    if free.all():
        # the first guess as a rule: one factorization serves all
        return _at_price(gram.solve(-linear), gram.solve(sign), sign, price, l1, l1_radius)
    A = np.where(free[:, :, None] & free[:, None, :], gram.H, 0.0)
    p = A.shape[1]
    A[:, np.arange(p), np.arange(p)] += ~free
    right = np.empty((len(state), p, 2))
    right[:, :, 0] = np.where(free, -linear - fixed @ gram.H, fixed)
    right[:, :, 1] = sign
    solved = np.asarray(np.linalg.solve(A, right), dtype=np.float64)
    return _at_price(solved[:, :, 0], solved[:, :, 1], sign, price, l1, l1_radius)


def _at_price(
    base: Array, toward: Array, sign: Array, price: Array, l1: float, l1_radius: float
) -> tuple[Array, Array]:
    """The points ``base - price * toward`` at the price that the ball asks for, and that price."""
    cost = np.full(len(base), l1)
    if np.isfinite(l1_radius):
        # the price at which the l1 norm is the radius; below l1 the ball does not bind
        reach = np.sum(sign * toward, axis=1)
        needed = (np.sum(sign * base, axis=1) - l1_radius) / np.where(reach > 0, reach, 1.0)
        cost = np.where(reach > 0, np.maximum(needed, l1), np.maximum(price, l1))
    return base - cost[:, None] * toward, cost
