"""Neighbors of one given dataset: one record replaced, in ways that tend to move the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.stability.groups import Universe
from dp2erm_cvx.audit.stability.resolve import Pair, Solved
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import ExponentialModel, FirstStage, MarginModel, Moments
from dp2erm_cvx.solve import solve

#: Ways to choose a neighbor of given data.
STRATEGIES = ("random", "held-out", "extreme", "flips", "each", "ascent")


@dataclass(frozen=True)
class Replacement:
    """Record ``index`` becomes ``covariates`` (d,), scaled and without the intercept, in arm ``arm``."""

    index: int
    covariates: Array
    arm: int
    origin: str


class Base:
    """One dataset, its weights, and the directions in which its fitted coefficient points."""

    def __init__(self, program: FirstStage, universe: Universe, records: Records, pool: Array) -> None:
        self.program, self.universe, self.records, self.pool = program, universe, records, pool
        instance = program.instance(records)
        solution = solve(instance, solver=program.usual_solver, throw=False)
        self.weights = solution.value
        self.solved = Solved(solution.value, solution.certificate.output_radius)
        self.directions = self._directions(instance.model, solution.point)

    def _directions(self, model: object, point: Array) -> list[Array]:
        skip = 1 if self.universe.domain.intercept else 0
        found = []
        if isinstance(model, MarginModel):
            found = [point[skip:]]
        elif isinstance(model, ExponentialModel) and getattr(self.program, "balance", None) == Moments():
            half = len(point) // 2
            found = [point[1:half], point[half + 1 :], point[1:half] - point[half + 1 :]]
        X, a = self.records.covariates, self.records.a
        if 0 < a.sum() < len(a):
            found.append(X[a == 1].mean(axis=0) - X[a == 0].mean(axis=0))
        found.append(np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][0])
        return [u / np.linalg.norm(u) for u in found if len(u) == X.shape[1] and np.linalg.norm(u) > 1e-12]

    def pair(self, change: Replacement) -> Pair | None:
        """The two datasets, or None where the neighbor leaves the universe."""
        X, a = self.records.covariates.copy(), self.records.a.copy()
        if not self.universe.flips and change.arm != a[change.index]:
            return None
        X[change.index], a[change.index] = self.universe.clip(change.covariates), change.arm
        floor = self.universe.domain.arm_floor or 0
        if min(a.sum(), len(a) - a.sum()) < floor:
            return None
        return Pair(self.records, self.universe.records(X, a), change.index, change.origin)


def propose(base: Base, strategy: str, chunk: int, size: int, rng: np.random.Generator) -> list[Replacement]:
    """``size`` replacements of one strategy; ``chunk`` counts how often it was asked before.

    "each" takes the records in turn and sends each to the far end of a coefficient with the other treatment;
    "ascent" proposes only where to begin. Points are vertices of the ball, antipodes, corners or random.
    """
    n, d = base.records.X.shape[0], base.universe.n_features
    X, a, r = base.records.covariates, base.records.a, base.universe.radius
    by_weight = np.argsort(base.weights)
    found = []
    for k in range(size):
        heavy = by_weight[-1 - int(rng.integers(max(1, n // 20)))]
        light = by_weight[int(rng.integers(max(1, n // 20)))]
        j = int(rng.choice([heavy, light, rng.integers(n)]))
        arm = int(rng.integers(0, 2)) if base.universe.flips else int(a[j])
        u = base.directions[int(rng.integers(len(base.directions)))]
        point = r * rng.choice([-1.0, 1.0]) * u
        if strategy == "random":
            point = rng.normal(size=d)
            point *= r * rng.random() ** (1 / d) / np.linalg.norm(point)
        elif strategy == "held-out":
            point = base.pool[int(rng.integers(len(base.pool)))]
        elif strategy == "flips":
            point, arm = X[j], 1 - int(a[j])
        elif strategy == "each":
            j = (chunk * size + k) % n
            arm = 1 - int(a[j]) if base.universe.flips else int(a[j])
            side = (2 * int(a[j]) - 1) * (X[j] @ u)
            point = (r if side * (2 * arm - 1) < 0 else -r) * u
        elif rng.random() < 0.3:
            point = rng.choice([-1.0, 1.0], d) * r / np.sqrt(d)
        elif rng.random() < 0.3 and np.linalg.norm(X[j]) > 0:
            point = -X[j] * r / np.linalg.norm(X[j])
        found.append(Replacement(j, point, arm, strategy))
    return found
