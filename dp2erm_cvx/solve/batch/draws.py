"""Solve one second stage under many draws of its noise, and certify every one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError, ProgramError, SolverError
from dp2erm_cvx.model.sets import Box, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.model.sums import UNIT, dot_error, sum_error
from dp2erm_cvx.program.curves import SQUARE
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve.batch.replacements import Index, Mask
from dp2erm_cvx.solve.solve import TOLERANCE, solve

#: Draws solved at a time: their systems stay in the cache.
_TILE = 512
_MAX_STEPS = 40
_MAX_CHANGES = 30


@dataclass(frozen=True, eq=False)
class DrawSolutions:
    """theta under m draws of the noise, with certificates. Private where the records are.

    Attributes
    ----------
    thetas : (m, p)
    radius : (m,) bounds on ``||theta_hat - theta||_2``
    certified : (m,) whether the radius is within ``tolerance`` relative to the norm of theta
    iterations : (m,) linear systems solved, or iterations of the single solver
    by_single : (m,) whether the fast path did not certify the draw, which was then solved alone
    """

    thetas: Array = field(repr=False)
    radius: Array = field(repr=False)
    certified: Mask = field(repr=False)
    iterations: Index = field(repr=False)
    by_single: Mask = field(repr=False)

    def __len__(self) -> int:
        return len(self.radius)


def solve_draws(instance: Instance, noises: ArrayLike, *, tolerance: float = TOLERANCE) -> DrawSolutions:
    """Solve for theta under every row of ``noises`` (m, p), in place of the noise of the instance.

    All draws share one factorization of the Gram matrix. A draw that the fast path does not certify is solved
    alone by ``solver="newton"`` and marked: an l1 term within an l2 ball always is.

    Raises ProgramError where the instance is no weighted least squares with a prox-friendly form,
    DeclarationError for an invalid ``tolerance`` or noises of another shape.
    """
    tolerance = public_number("tolerance", tolerance, above=0)
    model = instance.model
    if not isinstance(model, MarginModel) or model.loss != SQUARE:
        raise ProgramError(
            f"{instance.program.name}: draws are solved together for weighted least squares without a user's "
            "own regularizer; solve the instances one by one"
        )
    drawn = np.array(noises, dtype=np.float64, ndmin=2)
    if drawn.ndim != 2 or drawn.shape[1] != model.dimension or not np.all(np.isfinite(drawn)):
        raise DeclarationError(f"noises: must be finite and have {model.dimension} columns")
    gram = _Gram(model)
    parts = [_fast(model, gram, drawn[k : k + _TILE]) for k in range(0, max(len(drawn), 1), _TILE)]
    thetas, radius, iterations = (np.concatenate(found) for found in zip(*parts, strict=True))
    scale = np.sqrt(np.sum(thetas * thetas, axis=1))
    for k in np.flatnonzero(scale == 0):
        # a relative radius is then stated in a gradient step from 0, as for one instance
        first = -(gram.linear + drawn[k]) / (gram.smoothness or 1.0)
        scale[k] = float(np.linalg.norm(model.penalty.set.project(first)))
    by_single = ~(radius <= tolerance * scale)
    certified = ~by_single
    for k in np.flatnonzero(by_single):
        thetas[k], radius[k], certified[k], iterations[k] = _single(instance, model, drawn[k], tolerance)
    return DrawSolutions(thetas, radius, certified, iterations, by_single)


def _fast(model: MarginModel, gram: _Gram, noises: Array) -> tuple[Array, Array, Index]:
    m, chosen, l1 = len(noises), model.penalty.set, model.penalty.l1
    steps, price, pressure = np.ones(m, dtype=np.int64), np.full(m, l1), np.zeros(m)
    bound, l1_radius = np.inf, np.inf
    if not gram.values[0] > 0 or gram.curvature <= 0:
        return np.zeros_like(noises), np.full(m, np.inf), steps
    if type(chosen) is WholeSpace and l1 == 0:
        thetas = gram.solve(-(gram.linear + noises))
    elif type(chosen) is L2Ball and l1 == 0:
        thetas, pressure = _in_ball(gram, noises, chosen.radius)
    elif type(chosen) in (WholeSpace, Box, L1Ball):
        bound = chosen.bound if isinstance(chosen, Box) else np.inf
        l1_radius = chosen.radius if isinstance(chosen, L1Ball) else np.inf
        thetas, price, steps = _on_supports(gram, noises, l1, bound=bound, l1_radius=l1_radius)
        thetas = np.clip(thetas, -bound, bound)
    else:
        return np.zeros_like(noises), np.full(m, np.inf), steps
    radius = _radius(gram, thetas, noises, price, pressure, bound)
    size = np.sum(np.abs(thetas), axis=1) if np.isfinite(l1_radius) else np.sqrt(np.sum(thetas**2, axis=1))
    limit = chosen.radius if isinstance(chosen, L1Ball | L2Ball) else np.inf
    binds = (pressure > 0) | (price > l1)
    # where a ball binds, the bounds are about the exact point of its surface next to this one
    gap = np.where(binds, np.abs(size - limit), np.maximum(size - limit, 0.0)) if np.isfinite(limit) else 0.0
    gap = gap + (16 * model.dimension * UNIT * limit if np.isfinite(limit) else 0.0)
    radius = (radius + gap * (1 + (gram.smoothness + pressure) / gram.curvature)) * (1 + 1e-9)
    return thetas, np.where((steps > 0) & np.isfinite(radius), radius, np.inf), steps


def _radius(gram: _Gram, theta: Array, noises: Array, price: Array, pressure: Array, bound: float) -> Array:
    """Norm of the least subgradient, plus rounding, over the curvature: as ``certify``, for (m, p) points."""
    slope = gram.gradient(theta, noises) + pressure[:, None] * theta
    cost = price[:, None]
    at_zero = np.sign(slope) * np.maximum(np.abs(slope) - cost, 0.0)
    residual = np.where(theta == 0, at_zero, slope + cost * np.sign(theta))
    residual = np.where(theta >= bound, np.maximum(residual, 0.0), residual)
    residual = np.where(theta <= -bound, np.minimum(residual, 0.0), residual)
    norm = np.sqrt(np.sum(theta * theta, axis=1)) * (1 + 1e-12)
    size = np.sqrt(np.sum(residual * residual, axis=1)) * (1 + 1e-12) + 1e-150
    rounding = gram.slope_error * norm + gram.offset_error
    rounding += 8 * UNIT * (np.sqrt(np.sum(noises * noises, axis=1)) + pressure * norm)
    rounding += 8 * UNIT * np.sqrt(gram.dimension) * price
    radius: Array = (size + rounding) / gram.curvature
    return radius


def _single(
    instance: Instance, model: MarginModel, noise: Array, tolerance: float
) -> tuple[Array, float, bool, int]:
    alone = MarginModel(
        model.blocks, SQUARE, model.ridge, model.penalty, multipliers=model.multipliers, linear=noise
    )
    try:
        found = solve(
            dataclasses.replace(instance, model=alone), solver="newton", tolerance=tolerance, throw=False
        )
    except SolverError:
        return np.zeros(len(noise)), np.inf, False, 0
    return found.value, found.certificate.output_radius, found.certified, found.stats.iterations


class _Gram:
    """``f(theta) = theta' H theta / 2 + <linear + noise, theta>`` with one factorization for all noises.

    ``slope_error`` and ``offset_error`` bound the error of a computed gradient as
    ``slope_error ||theta|| + offset_error``, up to the noise; ``curvature`` is a lower bound on the
    eigenvalues of H, ``smoothness`` an upper one.
    """

    def __init__(self, model: MarginModel) -> None:
        X, w, z = model.Z, model.multipliers, model.whole.offsets
        self.dimension, self.ridge = model.dimension, model.ridge
        self.H: Array = 2 * _in_blocks(X, X * w[:, None]) + model.ridge * np.eye(model.dimension)
        self.linear: Array = -2 * _in_blocks(X, (w * z)[:, None])[:, 0]
        self.values, self.vectors = np.linalg.eigh(self.H)
        error = sum_error(model.n) + 8 * UNIT
        norms = model.row_norms * (1 + 1e-12)
        wrong = 2 * error * float(w @ norms**2) + 4 * UNIT * model.ridge
        size = float(np.linalg.norm(self.H)) * (1 + 1e-9)
        self.slope_error = (wrong + dot_error(model.dimension) * size) * (1 + 1e-9)
        self.offset_error = (2 * error * float(w @ (norms * np.abs(z)))) * (1 + 1e-9)
        self.offset_error += 8 * UNIT * float(np.linalg.norm(self.linear))
        lost = wrong + 64 * model.dimension * UNIT * float(self.values[-1])
        self.curvature = max(float(self.values[0]) - lost, model.ridge)
        self.smoothness = (float(self.values[-1]) + lost) * (1 + 1e-9)

    def solve(self, right: Array) -> Array:
        """``H^-1 right_k`` for the rows of right (m, p)."""
        solved: Array = (right @ self.vectors / self.values) @ self.vectors.T
        return solved

    def gradient(self, theta: Array, noises: Array) -> Array:
        """Gradients (m, p) at theta (m, p) under noises (m, p)."""
        gradient: Array = theta @ self.H + self.linear + noises
        return gradient


def _in_ball(gram: _Gram, noises: Array, radius: float) -> tuple[Array, Array]:
    """Points (m, p) and multipliers (m,) of ``min f`` over ``||theta|| <= radius``.

    ``theta = -(H + nu I)^-1 (linear + noise)`` with the nu >= 0 for which the norm is the radius. Newton's
    method on 1/||theta|| - 1/radius, which is concave and increasing in nu: from nu = 0 no step overshoots.
    """
    q = (gram.linear + noises) @ gram.vectors
    multiplier = np.zeros(len(q))
    for _ in range(_MAX_STEPS):
        shifted = gram.values + multiplier[:, None]
        square = (q / shifted) ** 2
        norm = np.sqrt(np.sum(square, axis=1))
        slope = np.sum(square / shifted, axis=1)
        step = (norm - radius) / radius * norm**2 / np.where(slope > 0, slope, 1.0)
        step = np.where(slope > 0, step, 0.0)
        following = np.maximum(multiplier + step, 0.0)
        if np.all(np.abs(following - multiplier) <= 4e-16 * (following + gram.values[-1])):
            break
        multiplier = following
    theta = -(q / (gram.values + multiplier[:, None])) @ gram.vectors.T
    norm = np.sqrt(np.sum(theta * theta, axis=1))
    scale = np.where(norm > radius, radius / np.where(norm > 0, norm, 1.0), 1.0)
    return theta * scale[:, None], multiplier


def _on_supports(
    gram: _Gram, noises: Array, l1: float, *, bound: float, l1_radius: float
) -> tuple[Array, Array, Index]:
    """Minimize ``f + l1 ||theta||_1`` over ``|theta_k| <= bound`` and ``||theta||_1 <= l1_radius``.

    Returns points (m, p), the price of the l1 norm at each of them (m,), and steps taken (m,).

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
    return theta, price, steps


def _on_states(
    gram: _Gram, noises: Array, state: Array, price: Array, l1: float, bound: float, l1_radius: float
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


def _in_blocks(X: Array, Y: Array) -> Array:
    """``X.T @ Y`` in blocks of 128 rows whose results are added pairwise."""
    n = len(X) // 128 * 128
    head = np.matmul(
        X[:n].reshape(-1, 128, X.shape[1]).transpose(0, 2, 1), Y[:n].reshape(-1, 128, Y.shape[1])
    )
    parts = np.concatenate([head, (X[n:].T @ Y[n:])[None]])
    while len(parts) > 1:
        half = len(parts) // 2
        paired = parts[:half] + parts[half : 2 * half]
        parts = np.concatenate([paired, parts[2 * half :]])
    total: Array = parts[0]
    return total
