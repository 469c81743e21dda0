"""Every program against every solver: what is proved about the points they return."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import Dp2ermError, InfeasibleError, ProgramError, SolverError
from dp2erm_cvx.program import FirstStage, Instance, SecondStage
from dp2erm_cvx.program.balance import refuse_infeasible
from dp2erm_cvx.solve import SOLVERS, Solution, Solver, solve

#: Solvers that are compared where none are named.
DEFAULT_SOLVERS = tuple(name for name in SOLVERS if name != "first_certified")
#: gamma of the second stages compared here; no noise is added.
GAMMA = 0.01


@dataclass(frozen=True)
class CertificateRow:
    """One solver on one program. Private where the data are: the numbers depend on the records.

    ``objective`` is the smooth-plus-prox objective at the solution (of the dual, for closed-form
    weights and entropy balancing);
    ``raw_radius`` and ``radius`` are the relative certified radii of the solver's own point and after
    polishing; ``distance`` is the relative distance to the best certified solution of the same program.
    Numbers are nan where they do not exist. ``note`` says why nothing was solved, or that no weights meet the
    constraints of the program.
    """

    program: str
    solver: str
    status: str
    certified: bool = False
    objective: float = math.nan
    duality_gap: float = math.nan
    raw_radius: float = math.nan
    radius: float = math.nan
    distance: float = math.nan
    seconds: float = math.nan
    note: str = ""


def simulated(n_samples: int, seed: int = 0) -> tuple[Dataset, Domain]:
    """Records of the paper's linear scenario and a domain that holds their covariates."""
    data = simulate("linear", n_samples, rng=seed).dataset
    ranges = dict.fromkeys(data.columns, (-1.0, 1.0))
    width = math.sqrt(len(data.columns) + 1)
    return data, Domain(covariate_bound=width, outcome_bound=10.0, ranges=ranges, intercept=1.0)


def default_programs(n_columns: int) -> list[FirstStage | SecondStage]:
    """Every registered program at its default settings; ``n_columns`` counts the intercept."""
    built: list[FirstStage | SecondStage] = []
    for name in registry.first_stages():
        # a known coefficient has no default: its length is that of the records
        given: dict[str, Any] = {"coefficient": (0.1,) * n_columns} if name == "ipw_known" else {}
        built.append(registry.build(registry.first_stages(), name, **given))
    built += [registry.build(registry.second_stages(), name) for name in registry.second_stages()]
    return built


def instances(
    programs: Iterable[FirstStage | SecondStage], data: Dataset, domain: Domain
) -> Iterator[tuple[str, Instance | InfeasibleError]]:
    """Bind programs to data; second stages get the weights of default entropy balancing.

    The error stands for the instance where hard constraints can already be seen to have no solution.
    """
    records = domain.records(data.X, data.a, data.y)
    weighting = registry.build(registry.first_stages(), "entropy_balancing")
    weights = None
    for program in programs:
        if isinstance(program, FirstStage):
            try:
                instance: Instance | InfeasibleError = program.instance(records)
            except InfeasibleError as error:
                instance = error
            yield program.name, instance
            continue
        if weights is None:
            weights = solve(weighting.instance(records)).value
        yield program.name, program.instance(records, weights, gamma=GAMMA)


def certificates(
    name: str, instance: Instance | InfeasibleError, solvers: Sequence[str | Solver]
) -> list[CertificateRow]:
    """One row per solver for one program. A solver that does not apply, or fails, is a row too."""
    labels = [solver if isinstance(solver, str) else solver.name for solver in solvers]
    if isinstance(instance, InfeasibleError):
        return [CertificateRow(name, label, _failure(instance), note=str(instance)) for label in labels]
    rows: list[CertificateRow] = []
    found: list[Solution | None] = []
    for solver, label in zip(solvers, labels, strict=True):
        try:
            solution = solve(instance, solver=solver, throw=False)
        except Dp2ermError as error:
            rows.append(CertificateRow(name, label, _failure(error), note=str(error)))
            found.append(None)
            continue
        note = "" if solution.certified else _infeasible(instance)
        rows.append(replace(_row(name, label, instance, solution), note=note))
        found.append(solution)
    certified = [solution for solution in found if solution is not None and solution.certified]
    if not certified:
        return rows
    best = min(certified, key=lambda solution: solution.certificate.relative_radius)
    return [
        row if solution is None else replace(row, distance=_distance(instance, solution, best))
        for row, solution in zip(rows, found, strict=True)
    ]


def _infeasible(instance: Instance) -> str:
    """Why hard moment targets have no solution, empty where they have one: not every solver finds out."""
    if instance.targets is None:
        return ""
    try:
        refuse_infeasible(instance.targets)
    except InfeasibleError as error:
        return str(error)
    return ""


def _row(name: str, label: str, instance: Instance, solution: Solution) -> CertificateRow:
    certificate, raw, model = solution.certificate, solution.stats.raw, instance.model
    objective = math.nan
    if model is not None:
        objective = model.value(solution.point) + model.penalty.value(solution.point)
    return CertificateRow(
        name,
        label,
        status=solution.status.value,
        certified=solution.certified,
        objective=objective,
        duality_gap=math.nan if certificate.duality_gap is None else certificate.duality_gap,
        raw_radius=math.nan if raw is None else raw.relative_radius,
        radius=certificate.relative_radius,
        seconds=solution.stats.seconds,
    )


def _distance(instance: Instance, solution: Solution, best: Solution) -> float:
    """In the norm of the certificate: l1 over n for weights, l2 over the norm of theta."""
    moved = solution.value - best.value
    if isinstance(instance.program, FirstStage):
        return float(np.sum(np.abs(moved))) / len(moved)
    return float(np.linalg.norm(moved)) / max(float(np.linalg.norm(best.value)), 1e-300)


def _failure(error: Dp2ermError) -> str:
    if isinstance(error, InfeasibleError):
        return "infeasible"
    if isinstance(error, ProgramError):
        return "does not apply"
    return "failed" if isinstance(error, SolverError) else type(error).__name__
