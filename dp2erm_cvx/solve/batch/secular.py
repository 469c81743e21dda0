"""Many quadratic programs with one Hessian over an l2 ball: the secular equation in its eigenbasis."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve.batch.gram import Gram

_MAX_STEPS = 40


def solve_in_ball(gram: Gram, noises: Array, radius: float) -> tuple[Array, Array]:
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
