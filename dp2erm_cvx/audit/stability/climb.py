"""One round of the search over base datasets: many starts, the best few refined by an evolution strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.stability.claims import Quantity
from dp2erm_cvx.audit.stability.evolution import evolve
from dp2erm_cvx.audit.stability.groups import CLUSTERS, Groups, admitted, joined
from dp2erm_cvx.audit.stability.scout import Scout
from dp2erm_cvx.audit.stability.starts import structured_starts
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
    scout: Scout,
    height: Height,
    elite: Groups | None,
    budget: int,
    rng: np.random.Generator,
) -> tuple[Groups, int]:
    """The pairs at the ends of the ascents of one round, and how many pairs were tried, at most ``budget``.

    ``elite`` are pairs of earlier rounds, one of which is refined again with small steps.
    """
    effort = COSTLY if scout.exact else CHEAP
    starts = structured_starts(scout.universe, min(effort.starts, budget), rng)
    spent = len(starts)
    values = _finite(height(scout.movements(starts)))
    chosen = [
        starts.take(np.array([index])) for index in np.argsort(-values, kind="stable")[: effort.refined]
    ]
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

    first = np.concatenate(
        [
            start.points[0, rows].ravel() / universe.domain.features_bound,
            np.log(np.maximum(start.count[0, active], 0.3)),
        ]
    )
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
    finite: Array = np.where(np.isfinite(values), values, -np.inf)
    return finite
