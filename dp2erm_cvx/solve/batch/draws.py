"""Solve one second stage under many draws of its noise, and certify every one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError, ProgramError, SolverError
from dp2erm_cvx.model.sets import Box, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve.batch.quadratics import Gram, solve_in_ball
from dp2erm_cvx.solve.batch.supports import solve_supported
from dp2erm_cvx.solve.solve import TOLERANCE, solve

#: Draws solved at a time: their systems stay in the cache.
_TILE = 512


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
    certified: NDArray[np.bool_] = field(repr=False)
    iterations: NDArray[np.int64] = field(repr=False)
    by_single: NDArray[np.bool_] = field(repr=False)

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
    if type(model) is not LeastSquaresModel:
        raise ProgramError(
            f"{instance.program.name}: draws are solved together for weighted least squares without a user's "
            "own regularizer; solve the instances one by one"
        )
    drawn = np.array(noises, dtype=np.float64, ndmin=2)
    if drawn.ndim != 2 or drawn.shape[1] != model.dimension or not np.all(np.isfinite(drawn)):
        raise DeclarationError(f"noises: must be finite and have {model.dimension} columns")
    gram = Gram(model)
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


def _fast(model: LeastSquaresModel, gram: Gram, noises: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    m, chosen, l1 = len(noises), model.penalty.set, model.penalty.l1
    steps, price, pressure = np.ones(m, dtype=np.int64), np.full(m, l1), np.zeros(m)
    bound, l1_radius = np.inf, np.inf
    if not gram.values[0] > 0 or gram.curvature <= 0:
        return np.zeros_like(noises), np.full(m, np.inf), steps
    if type(chosen) is WholeSpace and l1 == 0:
        thetas = gram.solve(-(gram.linear + noises))
    elif type(chosen) is L2Ball and l1 == 0:
        thetas, pressure = solve_in_ball(gram, noises, chosen.radius)
    elif type(chosen) in (WholeSpace, Box, L1Ball):
        bound = chosen.bound if isinstance(chosen, Box) else np.inf
        l1_radius = chosen.radius if isinstance(chosen, L1Ball) else np.inf
        found = solve_supported(gram, noises, l1, bound=bound, l1_radius=l1_radius)
        thetas, price, steps = np.clip(found.points, -bound, bound), found.price, found.steps
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


def _radius(gram: Gram, theta: Array, noises: Array, price: Array, pressure: Array, bound: float) -> Array:
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
    instance: Instance, model: LeastSquaresModel, noise: Array, tolerance: float
) -> tuple[Array, float, bool, int]:
    alone = LeastSquaresModel(model.blocks, model.weights, model.ridge, noise, model.penalty)
    try:
        found = solve(
            dataclasses.replace(instance, model=alone), solver="newton", tolerance=tolerance, throw=False
        )
    except SolverError:
        return np.zeros(len(noise)), np.inf, False, 0
    return found.value, found.certificate.output_radius, found.certified, found.stats.iterations
