"""A small evolution strategy with an adapted covariance: maximizes without derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dp2erm_cvx.domain import Array

#: Maps candidates (b, d) to values (b,); NaN or -inf where a candidate is not admitted.
Objective = Callable[[Array], Array]


def evolve(
    objective: Objective,
    start: Array,
    step: float,
    evaluations: int,
    rng: np.random.Generator,
    *,
    patience: int = 30,
) -> tuple[Array, float, int]:
    """The best candidate (d,) met, its value, and how many were tried, at most ``evaluations``.

    (mu/mu_w, lambda)-CMA-ES from ``start`` (d,) with initial ``step`` (Hansen 2016, The CMA evolution
    strategy: a tutorial, with its default constants). It ends early after ``patience`` generations that gain
    less than 1e-6 of the value.
    """
    d = len(start)
    size = 4 + int(3 * math.log(d))
    parents = size // 2
    weights = math.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mass = 1.0 / float(np.sum(weights**2))
    c_path = (4 + mass / d) / (d + 4 + 2 * mass / d)
    c_step = (mass + 2) / (d + mass + 5)
    c_one = 2 / ((d + 1.3) ** 2 + mass)
    c_many = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + c_step
    expected = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
    mean, covariance = start.copy(), np.eye(d)
    path, step_path = np.zeros(d), np.zeros(d)
    best, found, spent, gained, generation = start, -math.inf, 0, 0, 0
    while spent + size <= evaluations and generation - gained < patience and 1e-9 < step < 1e4:
        generation += 1
        scale, basis = np.linalg.eigh(covariance)
        root = basis * np.sqrt(np.maximum(scale, 1e-20))
        normal = rng.standard_normal((size, d))
        moves = normal @ root.T
        values = objective(mean + step * moves)
        spent += size
        values = np.where(np.isfinite(values), values, -math.inf)
        order = np.argsort(-values, kind="stable")[:parents]
        top = float(values[order[0]])
        if top > found:
            if not top <= found + 1e-6 * abs(found):
                gained = generation
            best, found = mean + step * moves[order[0]], top
        shift = weights @ moves[order]
        mean = mean + step * shift
        step_path = (1 - c_step) * step_path + math.sqrt(c_step * (2 - c_step) * mass) * (
            basis @ (weights @ normal[order])
        )
        length = float(np.linalg.norm(step_path))
        usual = length / math.sqrt(1 - (1 - c_step) ** (2 * generation)) < (1.4 + 2 / (d + 1)) * expected
        path = (1 - c_path) * path + usual * math.sqrt(c_path * (2 - c_path) * mass) * shift
        chosen = moves[order]
        covariance = (
            (1 - c_one - c_many) * covariance
            + c_one * (np.outer(path, path) + (1 - usual) * c_path * (2 - c_path) * covariance)
            + c_many * (chosen.T * weights) @ chosen
        )
        covariance = 0.5 * (covariance + covariance.T)
        step *= math.exp(min(1.0, c_step / damping * (length / expected - 1)))
    return best, found, spent
