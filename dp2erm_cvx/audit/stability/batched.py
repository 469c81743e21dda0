"""Small convex programs solved side by side: Newton in a ball, and quadratics over simplices."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array

#: Maps points (b, d) to values (b,), gradients (b, d) and Hessians (b, d, d) of b functions.
Smooth = Callable[[Array], tuple[Array, Array, Array]]

_ITERATIONS = 80


def minimize_in_ball(smooth: Smooth, batch: int, dimension: int, radius: float) -> Array:
    """Minimizers (b, d) of strongly convex functions over ``||v|| <= radius``; NaN where not converged.

    Each step minimizes the quadratic model over the ball and is halved until the value falls.
    """
    v = np.zeros((batch, dimension))
    value, gradient, hessian = smooth(v)
    done = np.zeros(batch, dtype=bool)
    for _ in range(_ITERATIONS):
        step = _model_minimizer(v, gradient, hessian, radius) - v
        slope = np.sum(gradient * step, axis=1)
        size = np.sum(np.abs(step), axis=1)
        done = size <= 1e-11 * (1.0 + np.sum(np.abs(v), axis=1))
        if done.all():
            break
        share = np.ones(batch)
        for _ in range(30):
            trial = v + share[:, None] * step
            found = smooth(trial)
            # below rounding the value decides nothing, and Newton's method needs no guard
            short = found[0] > value + 1e-4 * share * slope + 1e-13 * (1.0 + np.abs(value))
            if not short.any():
                break
            share = np.where(short, 0.5 * share, share)
        v, (value, gradient, hessian) = trial, found
    v[~done] = np.nan
    return v


def _model_minimizer(v: Array, gradient: Array, hessian: Array, radius: float) -> Array:
    """Minimizers over the ball of the quadratics with this gradient and Hessian at ``v``."""
    if math.isinf(radius):
        newton: Array = v - np.linalg.solve(hessian, gradient[..., None])[..., 0]
        return newton
    curvature, basis = np.linalg.eigh(hessian)
    pull = np.einsum("bij,bi->bj", basis, np.einsum("bij,bj->bi", hessian, v) - gradient)
    extra = np.zeros((len(v), 1))
    for _ in range(60):
        # Newton on 1/norm - 1/radius in the multiplier, concave and increasing: no step overshoots
        shifted = curvature + extra
        norm = np.maximum(np.linalg.norm(pull / shifted, axis=1, keepdims=True), 1e-300)
        outside = norm > radius * (1 + 1e-14)
        if not outside.any():
            break
        fall = np.sum(pull**2 / shifted**3, axis=1, keepdims=True)
        extra = np.where(outside, extra + (norm / radius - 1.0) * norm**2 / np.maximum(fall, 1e-300), extra)
    point: Array = np.einsum("bij,bj->bi", basis, pull / (curvature + extra))
    norm = np.linalg.norm(point, axis=1, keepdims=True)
    inside: Array = point * np.minimum(1.0, radius / np.maximum(norm, 1e-300))
    return inside


def minimize_on_simplices(Q: Array, c: Array, block: NDArray[np.int64], upper: Array) -> Array:
    """Minimizers (b, m) of ``u'Qu - 2 c'u`` with ``sum of u over a block = 1`` and ``0 <= u <= upper``.

    ``block`` (b, m) holds 0 or 1; ``upper`` 0 takes a variable out. Active sets by exchange: bounds that are
    violated are added, those whose multiplier is of the wrong sign released. NaN where that does not settle.
    """
    b, m = c.shape
    fixed = np.where(upper > 0, 0, -1)
    settled = np.zeros(b, dtype=bool)
    u = np.zeros((b, m))
    for attempt in range(6 * m):
        todo = np.flatnonzero(~settled)
        if not len(todo):
            break
        point, slope = _equality(Q[todo], c[todo], block[todo], upper[todo], fixed[todo])
        free, absent = fixed[todo] == 0, upper[todo] <= 0
        scale = 1e-12 * (1.0 + np.max(np.abs(slope), axis=1, keepdims=True))
        wrong = np.where(
            free,
            np.maximum(-point, point - upper[todo]),
            np.where(absent, 0.0, np.where(fixed[todo] < 0, -slope, slope) * 1e-3),
        )
        bad = wrong > np.where(free, 1e-13, scale)
        good = ~bad.any(axis=1) & np.isfinite(point).all(axis=1)
        u[todo[good]] = point[good]
        settled[todo[good]] = True
        change = bad
        if attempt >= m:  # one at a time, because exchanging many may cycle
            change = bad & (wrong == np.max(np.where(bad, wrong, -np.inf), axis=1, keepdims=True))
        below = np.where(point < 0, -1, 1)
        fixed[todo] = np.where(change, np.where(free, below, 0), fixed[todo])
    u[~settled] = np.nan
    return u


def _equality(
    Q: Array, c: Array, block: NDArray[np.int64], upper: Array, fixed: Array
) -> tuple[Array, Array]:
    """The point with ``fixed`` variables at their bounds, and how fast the Lagrangian grows in each."""
    b, m = c.shape
    free = fixed == 0
    bounds = np.where(fixed > 0, upper, 0.0)
    rows = np.stack([block == 0, block == 1], axis=1).astype(np.float64)
    A = np.zeros((b, m + 2, m + 2))
    A[:, :m, :m] = np.where(free[:, :, None], Q, np.eye(m))
    A[:, :m, m:] = np.where(free[:, :, None], rows.transpose(0, 2, 1), 0.0)
    A[:, m:, :m] = rows
    right = np.concatenate([np.where(free, c, bounds), np.ones((b, 2))], axis=1)
    # a block whose variables are all fixed has no multiplier to solve for
    empty = ~(rows * free[:, None, :]).any(axis=2)
    for side in (0, 1):
        A[empty[:, side], m + side] = np.eye(m + 2)[m + side]
        right[empty[:, side], m + side] = 0.0
    try:
        solution = np.linalg.solve(A, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        solution = np.full((b, m + 2), np.nan)
    point = solution[:, :m]
    multiplier = np.take_along_axis(solution[:, m:], block, axis=1)
    slope = np.einsum("bij,bj->bi", Q, point) - c + multiplier
    return point, slope
