"""Neighbors solved in full and certified, and solved again through the declared problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dp2erm_cvx.audit.stability.claims import Quantity
from dp2erm_cvx.audit.stability.movement import Interval, movements
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import InfeasibleError, SolverError
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import Solver, solve


@dataclass(frozen=True)
class NeighborPair:
    """Two neighbors that differ in record ``changed``, and where they come from."""

    first: Records = field(repr=False)
    second: Records = field(repr=False)
    changed: int = field(repr=False)
    origin: str


@dataclass(frozen=True)
class Solved:
    """Weights (n,) within ``radius`` of the exact ones in the 1-norm."""

    weights: Array = field(repr=False)
    radius: float


@dataclass(frozen=True)
class Resolved:
    """A pair with its certified movements."""

    pair: NeighborPair
    movements: dict[Quantity, Interval]
    solved: tuple[Solved, Solved] = field(repr=False)

    @property
    def radius(self) -> float:
        """What both certificates allow the weights to be off by together, in the 1-norm."""
        return self.solved[0].radius + self.solved[1].radius


@dataclass(frozen=True)
class SolverCheck:
    """How many datasets were solved again by ``solver``, and its largest disagreement.

    ``disagreement`` is ``||w - w~||_1`` over the sum of both radii: at most 1 if both certificates are right.
    ``radius`` is the largest that its own points were certified to: how much the comparison can tell.
    ``unsolved`` counts datasets for which it returned no point.
    """

    solver: str
    datasets: int = 0
    disagreement: float = 0.0
    radius: float = 0.0
    unsolved: int = 0

    def plus(self, other: SolverCheck) -> SolverCheck:
        """Both counts together."""
        return SolverCheck(
            self.solver,
            self.datasets + other.datasets,
            max(self.disagreement, other.disagreement),
            max(self.radius, other.radius),
            self.unsolved + other.unsolved,
        )


def _weights_of(
    program: FirstStage, datasets: Iterable[Records], solver: str | Solver
) -> list[Solved | None]:
    """Certified weights of each dataset, None where hard constraints cannot be met."""
    found: list[Solved | None] = []
    for records in datasets:
        try:
            solution = solve(program.instance(records), solver=solver, throw=False)
        except InfeasibleError:
            found.append(None)
        else:
            found.append(Solved(solution.value, solution.certificate.output_radius))
    return found


def resolve(
    program: FirstStage, pairs: list[NeighborPair], solver: str | Solver | None = None
) -> list[Resolved]:
    """Certified movements of every pair whose datasets have weights; a dataset they share is solved once.

    ``solver`` is that of the program by default.

    Raises SolverError where the solver returns no point.
    """
    unique = {id(end): end for pair in pairs for end in (pair.first, pair.second)}
    chosen = program.usual_solver if solver is None else solver
    solved = dict(zip(unique, _weights_of(program, unique.values(), chosen), strict=True))
    found = []
    for pair in pairs:
        w, v = solved[id(pair.first)], solved[id(pair.second)]
        if w is None or v is None:
            continue
        moved = movements(w.weights, v.weights, pair.changed, w.radius, v.radius)
        found.append(Resolved(pair, moved, (w, v)))
    return found


def check(program: FirstStage, resolved: list[Resolved], solver: str, *, base: bool = True) -> SolverCheck:
    """Solve the datasets of every pair through the declared CVXPY problem, without any polishing.

    A dataset that pairs share is solved once; ``base=False`` leaves out the first of each pair.
    """
    total = SolverCheck(solver)
    ends = {}
    for item in resolved:
        for place in (0, 1) if base else (1,):
            records = (item.pair.first, item.pair.second)[place]
            ends[id(records)] = (records, item.solved[place])
    for records, known in ends.values():
        try:
            other = solve(program.instance(records), solver=solver, polish=False, throw=False)
        except SolverError:
            total = total.plus(SolverCheck(solver, 1, unsolved=1))
            continue
        apart = float(np.sum(np.abs(other.value - known.weights)))
        radius = other.certificate.output_radius
        ratio = apart / (known.radius + radius) if apart > 0 else 0.0
        total = total.plus(SolverCheck(solver, 1, ratio, radius))
    return total
