"""One round of the search over base datasets: many starts, the best refined by an evolution strategy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.groups import CLUSTERS, Groups, admitted, joined, structured_starts
from dp2erm_cvx.audit.movement import Quantity
from dp2erm_cvx.audit.scouts import Scout
from dp2erm_cvx.domain import Array
from dp2erm_cvx.universe import Universe

#: What a round maximizes, from the movements of b pairs to (b,).
Height = Callable[[dict[Quantity, Array]], Array]


@dataclass(frozen=True)
class Effort:
    """Starts of a round, how many of the best are refined, and pairs tried in each refinement."""

    starts: int
    refined: int
    evaluations: int


#: Where movements are cheap, and where each takes two full solves.
CHEAP, COSTLY = Effort(280, 3, 1500), Effort(35, 1, 150)


def most(scout: Scout) -> int:
    """Pairs that a round tries at most."""
    effort = COSTLY if scout.exact else CHEAP
    return effort.starts + (effort.refined + 1) * effort.evaluations


def climb(
    scout: Scout, height: Height, elite: Groups | None, budget: int, rng: np.random.Generator
) -> tuple[Groups, int]:
    """The pairs at the ends of the ascents of one round, and how many pairs were tried, at most ``budget``.

    ``elite`` are pairs of earlier rounds, one of which is refined again with small steps.
    """
    effort = COSTLY if scout.exact else CHEAP
    starts = structured_starts(scout.universe, min(effort.starts, budget), rng)
    spent = len(starts)
    values = _finite(height(scout.movements(starts)))
    highest = np.argsort(-values, kind="stable")[: effort.refined]
    chosen = [starts.take(np.array([index])) for index in highest]
    steps = [0.3] * len(chosen)
    if elite is not None and len(elite):
        pick = int(rng.integers(len(elite)))
        chosen.append(_mutated(scout.universe, elite.take(np.array([pick])), rng))
        steps.append(0.1)
    ends = []
    for start, step in zip(chosen, steps, strict=True):
        end, tried = _refined(scout, height, start, step, min(effort.evaluations, budget - spent), rng)
        spent += tried
        ends.append(end)
    return joined([starts.take(np.array([int(np.argmax(values))])), *ends]), spent


def _refined(
    scout: Scout, height: Height, start: Groups, step: float, evaluations: int, rng: np.random.Generator
) -> tuple[Groups, int]:
    universe = scout.universe
    active = np.flatnonzero(np.nan_to_num(start.count[0]) > 0)
    rows = np.concatenate([active, [CLUSTERS, CLUSTERS + 1]]).astype(np.int64)
    d = universe.n_features

    def pairs(u: Array) -> Groups:
        points = np.repeat(start.points, len(u), axis=0)
        points[:, rows] = u[:, : len(rows) * d].reshape(len(u), len(rows), d) * universe.domain.features_bound
        share = np.zeros((len(u), CLUSTERS))
        share[:, active] = np.exp(np.clip(u[:, len(rows) * d :], -30.0, 30.0))
        return admitted(universe, points, np.repeat(start.arm, len(u), axis=0), share)

    points = start.points[0, rows].ravel() / universe.domain.features_bound
    first = np.concatenate([points, np.log(np.maximum(start.count[0, active], 0.3))])
    best, found, tried = evolve(lambda u: height(scout.movements(pairs(u))), first, step, evaluations, rng)
    return (pairs(best[None]) if np.isfinite(found) else start), tried


def _mutated(universe: Universe, pair: Groups, rng: np.random.Generator) -> Groups:
    """The same pair with, half of the time, one arm changed."""
    arm = pair.arm.copy()
    if rng.random() < 0.5:
        place = int(rng.integers(CLUSTERS + 2))
        arm[0, place] = 1 - arm[0, place]
    return admitted(universe, pair.points, arm, pair.count)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, -np.inf)


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
        values = _finite(objective(mean + step * moves))
        spent += size
        order = np.argsort(-values, kind="stable")[:parents]
        top = float(values[order[0]])
        if top > found:
            if not top <= found + 1e-6 * abs(found):
                gained = generation
            best, found = mean + step * moves[order[0]], top
        shift = weights @ moves[order]
        mean = mean + step * shift
        turned = basis @ (weights @ normal[order])
        step_path = (1 - c_step) * step_path + math.sqrt(c_step * (2 - c_step) * mass) * turned
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
