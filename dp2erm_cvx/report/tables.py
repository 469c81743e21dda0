"""Back ends of commands and pages: bounds, solvers, and estimates without privacy side by side."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Calibration, Noise, Objective, calibrate
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import (
    CalibrationError,
    DeclarationError,
    Dp2ermError,
    InfeasibleError,
    ProgramError,
    SolverError,
)
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.paper import calibrate_paper, printed_bound, universal_corollary, usable_bound
from dp2erm_cvx.privacy import Budget, StabilityBound
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage, SecondStage, registry
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.solve import SOLVERS, Solution, Solver, Status, solve
from dp2erm_cvx.solve.apart import SECONDS
from dp2erm_cvx.weighting.forms.form import SumKind

#: Stands for the second stage where none is named: one parameter, gradient radius 1, Hessian trace
#: 1.
UNIT_LOSS = LossConstants(1, 1.0, 1.0, 0.0, None, 1.0, gradient_bound=1.0)

_T = TypeVar("_T")
SHARP, STATED = "sharp", "stated"
PRINTED, USABLE, UNIVERSAL = "paper, printed alone", "paper, usable", "universal"


@dataclass(frozen=True)
class BoundRow:
    """One statement about one first stage. ``refusal`` says why there is no bound, or no noise for
    it.

    ``ratio`` is V over the smallest V of the table. ``calibration`` is by Theorem 1 or 2 for the
    sharp ones, the paper's as printed for the printed bound, with the Gaussian exponent corrected
    for the other two.
    """

    family: str
    bound: StabilityBound | None = None
    calibration: Calibration | None = None
    ratio: float = math.nan
    refusal: str | None = None


def statements(
    program: FirstStage, universe: MappedUniverse
) -> Iterator[tuple[str, StabilityBound | str]]:
    """(family, bound) for every family, or (family, reason) where it refuses; "stated" is its
    author's.

    Raises DeclarationError for a setting that is not valid in itself.
    """
    resolved = program.at(universe)
    sharp = _tried(lambda: resolved.stability(universe))
    yield STATED if resolved.uses_stated_bound(universe) else SHARP, sharp
    usable = _tried(lambda: usable_bound(resolved, universe))
    printed: StabilityBound | str = usable
    if not isinstance(usable, str):
        printed = printed_bound(resolved, universe)
        yield PRINTED, printed
    yield USABLE, usable
    if not resolved.relations:
        yield UNIVERSAL, str(sharp)
        return
    known = [bound.w_max for bound in (printed, sharp) if not isinstance(bound, str)]
    largest = known[0] if known else _declared_cap(resolved, universe)
    yield UNIVERSAL, universal_corollary(universe.n_samples, largest)


def _declared_cap(resolved: FirstStage, universe: MappedUniverse) -> float:
    """The largest weight that the box of a resolved program admits; infinite where that is not
    known.
    """
    if not isinstance(resolved, WeightsProgram):
        return math.inf
    form = resolved.form(universe)
    if isinstance(form, str) or form.sums.kind is SumKind.TREATED:
        return math.inf
    return float(np.max(form.cap))


def bound_rows(
    program: FirstStage,
    universe: MappedUniverse,
    budget: Budget,
    *,
    loss: LossConstants = UNIT_LOSS,
    noise: Noise = Noise.GAMMA,
) -> list[BoundRow]:
    """All statements with the noise scale and gamma that each asks for.

    A private first stage leaves the second only a part of the budget, which is what is calibrated
    here.
    """
    if isinstance(program, PrivateFirstStage):
        budget = Budget((1 - program.share) * budget.epsilon, (1 - program.share) * budget.delta)
    bounds = list(statements(program, universe))
    best = min((bound.V for _, bound in bounds if not isinstance(bound, str)), default=math.nan)
    rows = []
    for family, bound in bounds:
        if isinstance(bound, str):
            rows.append(BoundRow(family, refusal=bound))
            continue
        objective = Objective(bound, loss, universe.n_samples, universe.space.relation)
        calibrated, how = partial(calibrate, objective, budget, noise=noise), {}
        if family not in (SHARP, STATED):
            calibrated = partial(calibrate_paper, objective, budget, noise=noise)
            how = {"corrected": family != PRINTED, "unsound_ok": family == PRINTED}
        result = _tried(partial(calibrated, **how))
        refusal = result if isinstance(result, str) else None
        calibration = None if isinstance(result, str) else result
        rows.append(BoundRow(family, bound, calibration, bound.V / best, refusal))
    return rows


def _tried(compute: Callable[[], _T]) -> _T | str:
    try:
        return compute()
    except CalibrationError as error:
        return str(error)


#: Sample sizes of the figures.
SIZES = (100, 1_000_000)


#: By family of bounds x (m,) and V (m,), nan where it refuses.
BoundCurves = dict[str, tuple[Array, Array]]


def against_n(program: FirstStage, universe: MappedUniverse, points: int = 25) -> BoundCurves:
    """V for n in ``SIZES`` at fixed settings.

    An arm floor stays the share of the records that it is.
    """
    sizes = np.unique(np.round(np.geomspace(*SIZES, points)).astype(int))
    space = universe.space
    share = None if space.arm_floor is None else space.arm_floor / universe.n_samples

    def sized(n: int) -> MappedUniverse:
        floor = None if share is None else max(1, math.floor(share * n))
        return MappedUniverse(dataclasses.replace(space, arm_floor=floor), n, universe.n_features)

    return _collected((float(n), program, sized(int(n))) for n in sizes)


def against_ridge(program: FirstStage, universe: MappedUniverse, points: int = 25) -> BoundCurves:
    """V for ridges up to a factor of 100 from that of the program; empty for a program without
    ridge.
    """
    program = program.at(universe)
    ridge = getattr(program, "ridge", None)
    if not ridge:
        return {}
    grid = ridge * np.geomspace(1e-2, 1e2, points)
    return _collected(
        (float(value), program.with_settings(ridge=float(value)), universe) for value in grid
    )


def _collected(settings: Iterable[tuple[float, FirstStage, MappedUniverse]]) -> BoundCurves:
    known = [(x, dict(statements(program, universe))) for x, program, universe in settings]
    grid, curves = np.array([x for x, _ in known]), BoundCurves()
    for family in dict.fromkeys(family for _, bounds in known for family in bounds):
        V = np.array([getattr(bounds.get(family), "V", math.nan) for _, bounds in known])
        if np.any(np.isfinite(V)):
            curves[family] = grid, np.where(np.isfinite(V), V, math.nan)
    if not curves:
        raise DeclarationError("no family has a bound for these settings: there is nothing to draw")
    return curves


#: Solvers that are compared where none are named.
DEFAULT_SOLVERS = tuple(name for name in SOLVERS if name != "first_certified")
_FAILURES = {InfeasibleError: "infeasible", ProgramError: "does not apply", SolverError: "failed"}
#: gamma of the second stages compared here; no noise is added.
GAMMA = 0.01


@dataclass(frozen=True)
class CertificateRow:
    """One solver on one program. Private where the data are: the numbers depend on the records.

    ``objective`` is that of the model at the solution; ``raw_radius`` and ``radius`` are relative,
    of the solver's own point and after polishing; ``distance`` is that to the best certified
    solution. Numbers are nan where they do not exist. ``note`` says in words what became of a
    solver without a certified solution, and what to try next.
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
        settings: dict[str, Any] = (
            {"coefficient": (0.1,) * n_columns} if name == "ipw_known" else {}
        )
        built.append(registry.build(registry.first_stages(), name, **settings))
    built += [registry.build(registry.second_stages(), name) for name in registry.second_stages()]
    return built


def instances(
    programs: Iterable[FirstStage | SecondStage], data: Dataset, domain: Domain
) -> Iterator[tuple[str, Instance | InfeasibleError]]:
    """Bind programs to data; second stages get the weights of default entropy balancing.

    The error stands for the instance where hard constraints have no solution: not every solver
    finds out.
    """
    records = domain.records(data.X, data.a, data.y)
    weighting = registry.build(registry.first_stages(), "entropy_balancing")
    weights = None
    for program in programs:
        if isinstance(program, FirstStage):
            try:
                instance = program.instance(records)
                instance.composite.refuse_infeasible()
                yield program.name, instance
            except InfeasibleError as error:
                yield program.name, error
            continue
        if weights is None:
            weights = solve(weighting.instance(records)).value
        yield program.name, program.instance(records, weights, gamma=GAMMA)


def certificates(
    name: str,
    instance: Instance | InfeasibleError,
    solvers: Sequence[str | Solver],
    seconds: float | None = SECONDS,
    keep: Callable[[Instance, Solution], None] | None = None,
) -> list[CertificateRow]:
    """One row per solver for one program. A solver that does not apply, or fails, is a row too.

    A solver that is reached through CVXPY has so many ``seconds``, in a process of its own that is
    ended then; None for no limit. Every solution is handed to ``keep``, if there is one.
    """
    rows: list[CertificateRow] = []
    solutions: dict[int, Solution] = {}
    for number, solver in enumerate(solvers):
        label = solver if isinstance(solver, str) else solver.name
        try:
            if isinstance(instance, InfeasibleError):
                raise instance
            solution = solve(instance, solver=solver, throw=False, seconds=seconds)
        except Dp2ermError as error:
            failure = _FAILURES.get(type(error), type(error).__name__)
            rows.append(CertificateRow(name, label, failure, note=str(error)))
            continue
        if solution.substituted:
            note = "; ".join(solution.failures) or f"{label} does not apply: choose another solver"
            rows.append(CertificateRow(name, label, "failed", note=note))
            continue
        solutions[number] = solution
        if keep is not None:
            keep(instance, solution)
        rows.append(_row(name, label, instance, solution))
    certified = [solution for solution in solutions.values() if solution.certified]
    best = min(certified, key=lambda solution: solution.certificate.proved, default=None)
    if best is not None and isinstance(instance, Instance):
        for number, solution in solutions.items():
            rows[number] = replace(rows[number], distance=_distance(instance, solution, best))
    return rows


def _row(name: str, label: str, instance: Instance, solution: Solution) -> CertificateRow:
    certificate, raw, model = solution.certificate, solution.raw, instance.model
    objective = gap = math.nan
    if model is not None:
        objective = model.value(solution.point) + model.penalty.value(solution.point)
        gap = fenchel_gap(model, solution.point)
    elif certificate.strong_convexity > 0:
        gap = 0.5 * certificate.strong_convexity * certificate.radius * certificate.radius
    return CertificateRow(
        name,
        label,
        status=solution.status.value,
        certified=solution.certified,
        objective=objective,
        duality_gap=gap,
        raw_radius=math.nan if raw is None else raw.proved,
        radius=certificate.proved,
        seconds=solution.seconds,
        note="" if solution.certified else _unproved(label, solution),
    )


#: What a solver claims, in words.
_CLAIMS = {
    Status.SOLVED: "says that it solved the problem",
    Status.INACCURATE: "says that its solution is inaccurate",
    Status.INFEASIBLE: "says that no point meets the constraints",
    Status.UNBOUNDED: "says that the objective has no least value",
    Status.LIMIT: "reached its limit of iterations",
    Status.FAILED: "says that it failed",
}


def _unproved(label: str, solution: Solution) -> str:
    """What a solver claims, what is proved of its point, and what to try next."""
    proved = "nothing is proved about its point"
    if math.isfinite(solution.error):
        proved = (
            f"its relative error is proved to be at most {solution.error:.1e}, and not "
            f"{solution.tolerance:g}"
        )
    return (
        f"{label} {_CLAIMS[solution.status]}; {proved}: raise the ridge, or try more iterations or "
        "another solver"
    )


def fenchel_gap(model: Composite, point: Array) -> float:
    """Gap of ``f0 + g`` at the projection of ``point`` (d,) and its Fenchel dual at ``-grad f0``
    there.

    ``g = h + m/2 ||.||^2``, m the ridge; nan where that is 0.
    """
    m, penalty = model.ridge, model.penalty
    if m <= 0:
        return math.nan
    point = penalty.set.project(point)
    slope = model.gradient(point) - m * point
    other = penalty.prox(-slope / m, 1 / m)
    gap = penalty.value(point) - penalty.value(other) + float(slope @ (point - other))
    gap += 0.5 * m * float((point - other) @ (point + other))
    return max(gap, 0.0)


def _distance(instance: Instance, solution: Solution, best: Solution) -> float:
    """In the norm of the certificate: l1 over n for weights, l2 over the norm of theta."""
    moved = solution.value - best.value
    if isinstance(instance.program, FirstStage):
        return float(np.sum(np.abs(moved))) / len(moved)
    return float(np.linalg.norm(moved)) / max(float(np.linalg.norm(best.value)), 1e-300)
