"""Back ends of commands and pages: bounds, solvers, and estimates without privacy side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Calibration, Noise, Objective, calibrate
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
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

#: Stands for the second stage where none is named: its gradient radius and Hessian trace are 1.
UNIT_LOSS = LossConstants(1, 1.0, 1.0, 0.0, None, 1.0, gradient_bound=1.0)

_T = TypeVar("_T")
#: Families of bounds: derived here, or stated by the author of a program.
SHARP = "sharp"
STATED = "stated"
#: Families of bounds of the paper: as printed, as any seller of weights may use it, and of any
#: weights.
PRINTED = "paper, printed alone"
USABLE = "paper, usable"
UNIVERSAL = "universal"


@dataclass(frozen=True)
class BoundRow:
    """One statement about one first stage.

    Parameters
    ----------
    family
        Who states it, and how.
    bound
        The bound; None where it is refused.
    calibration
        The noise that it asks for: by Theorem 1 or 2 for sharp bounds, the paper's as printed for
        the printed bound, with the Gaussian exponent corrected for the other two.
    ratio
        V over the smallest V of the table.
    refusal
        Why there is no bound, or no noise for it.
    """

    family: str
    bound: StabilityBound | None = None
    calibration: Calibration | None = None
    ratio: float = math.nan
    refusal: str | None = None


def statements(
    program: FirstStage, universe: MappedUniverse
) -> Iterator[tuple[str, StabilityBound | str]]:
    """Every family of bounds with its bound, or with the reason that it refuses.

    Raises
    ------
    DeclarationError
        For a setting that is not valid in itself.
    """
    resolved = program.at(universe)
    sharp = _tried(lambda: resolved.stability(universe))
    own = STATED if resolved.uses_stated_bound(universe) else SHARP
    yield own, sharp
    usable = _tried(lambda: usable_bound(resolved, universe))
    printed: StabilityBound | str = usable
    if not isinstance(usable, str):
        printed = printed_bound(resolved, universe)
        yield PRINTED, printed
    yield USABLE, usable
    if resolved.relations:
        largest = _largest_weight(resolved, universe, printed, sharp)
        yield UNIVERSAL, universal_corollary(universe.n_samples, largest)
    else:
        yield UNIVERSAL, str(sharp)


def _largest_weight(
    resolved: FirstStage,
    universe: MappedUniverse,
    printed: StabilityBound | str,
    sharp: StabilityBound | str,
) -> float:
    """The largest weight that the printed bound knows, else the sharp one, else the program."""
    for bound in (printed, sharp):
        if not isinstance(bound, str):
            return bound.w_max
    return _declared_cap(resolved, universe)


def _declared_cap(resolved: FirstStage, universe: MappedUniverse) -> float:
    """The largest weight that a resolved program admits; infinite where that is not known."""
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
    """All statements about a first stage, with the noise scale and gamma that each asks for.

    Parameters
    ----------
    program, universe
        The first stage, and the records that its bounds are for.
    budget
        Of the whole release: a private first stage leaves the second only a part of it, which is
        what is calibrated here.
    loss
        Constants of the second stage.
    noise
        Its kind.
    """
    if isinstance(program, PrivateFirstStage):
        left = 1 - program.share
        budget = Budget(left * budget.epsilon, left * budget.delta)
    bounds = list(statements(program, universe))
    best = min((bound.V for _, bound in bounds if not isinstance(bound, str)), default=math.nan)
    rows = []
    for family, bound in bounds:
        if isinstance(bound, str):
            rows.append(BoundRow(family, refusal=bound))
            continue
        objective = Objective(bound, loss, universe.n_samples, universe.space.relation)
        calibration = _calibration_of(family, objective, budget, noise)
        if isinstance(calibration, str):
            rows.append(BoundRow(family, bound, None, bound.V / best, calibration))
        else:
            rows.append(BoundRow(family, bound, calibration, bound.V / best))
    return rows


def _calibration_of(
    family: str, objective: Objective, budget: Budget, noise: Noise
) -> Calibration | str:
    """The noise that a family of bounds asks for, or why there is none."""
    if family in (SHARP, STATED):
        return _tried(lambda: calibrate(objective, budget, noise=noise))
    printed = family == PRINTED
    return _tried(
        lambda: calibrate_paper(
            objective, budget, noise=noise, corrected=not printed, unsound_ok=printed
        )
    )


def _tried(compute: Callable[[], _T]) -> _T | str:
    """What is computed, or the text of the CalibrationError that it raises."""
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
    settings = [(float(n), program, _at_size(universe, int(n))) for n in sizes]
    return _collected(settings)


def _at_size(universe: MappedUniverse, n: int) -> MappedUniverse:
    """The universe with n records, of which the arm floor has the same share."""
    floor = universe.space.arm_floor
    if floor is not None:
        share = floor / universe.n_samples
        floor = max(1, math.floor(share * n))
    space = replace(universe.space, arm_floor=floor)
    return MappedUniverse(space, n, universe.n_features)


def against_ridge(program: FirstStage, universe: MappedUniverse, points: int = 25) -> BoundCurves:
    """V for ridges up to a factor of 100 from that of the program; empty without a ridge."""
    program = program.at(universe)
    ridge = getattr(program, "ridge", None)
    if not ridge:
        return {}
    settings = []
    for value in ridge * np.geomspace(1e-2, 1e2, points):
        settings.append((float(value), program.with_settings(ridge=float(value)), universe))
    return _collected(settings)


def _collected(settings: Sequence[tuple[float, FirstStage, MappedUniverse]]) -> BoundCurves:
    """Curves over the first entries of settings, of all families that have a bound somewhere."""
    grid = np.array([x for x, _, _ in settings])
    known = [dict(statements(program, universe)) for _, program, universe in settings]
    families: dict[str, None] = {}
    for bounds in known:
        families |= dict.fromkeys(bounds)
    curves = BoundCurves()
    for family in families:
        V = np.array([getattr(bounds.get(family), "V", math.nan) for bounds in known])
        if np.any(np.isfinite(V)):
            curves[family] = grid, np.where(np.isfinite(V), V, math.nan)
    if not curves:
        raise DeclarationError("no family has a bound for these settings: there is nothing to draw")
    return curves


#: Solvers that are compared where none are named.
DEFAULT_SOLVERS = tuple(name for name in SOLVERS if name != "first_certified")
#: What became of a solver that raised an error of a kind.
_FAILURES = {InfeasibleError: "infeasible", ProgramError: "does not apply", SolverError: "failed"}
#: gamma of the second stages compared here; no noise is added.
GAMMA = 0.01


@dataclass(frozen=True)
class CertificateRow:
    """One solver on one program. Private where the data are: the numbers depend on the records.

    Numbers are nan where they do not exist.

    Parameters
    ----------
    program, solver
        Their names.
    status
        What the solver says of its point, or what became of it.
    certified
        Whether the distance to the solution is proved to be within the tolerance.
    objective
        Of the model at the solution.
    duality_gap
        Of the model at the solution.
    raw_radius
        Proved relative distance to the solution of the solver's own point.
    radius
        The same after polishing.
    distance
        Relative distance to the best certified solution.
    seconds
        Time of the solver.
    note
        What became of a solver without a certified solution, and what to try next.
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
        settings: dict[str, Any] = {}
        if name == "ipw_known":
            # a known coefficient has no default: its length is that of the records
            settings["coefficient"] = (0.1,) * n_columns
        built.append(registry.build(registry.first_stages(), name, **settings))
    for name in registry.second_stages():
        built.append(registry.build(registry.second_stages(), name))
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
            yield program.name, _instance_or_error(program, records)
            continue
        if weights is None:
            weights = solve(weighting.instance(records)).value
        yield program.name, program.instance(records, weights, gamma=GAMMA)


def _instance_or_error(program: FirstStage, records: Records) -> Instance | InfeasibleError:
    """A first stage at records, or why its constraints have no solution there."""
    try:
        instance = program.instance(records)
        instance.composite.refuse_infeasible()
    except InfeasibleError as error:
        return error
    return instance


def certificates(
    name: str,
    instance: Instance | InfeasibleError,
    solvers: Sequence[str | Solver],
    seconds: float | None = SECONDS,
    keep: Callable[[Instance, Solution], None] | None = None,
) -> list[CertificateRow]:
    """One row per solver for one program. A solver that does not apply, or fails, is a row too.

    Parameters
    ----------
    name
        Of the program.
    instance
        The program at records, or why it has no solution there.
    solvers
        Their names, or solvers.
    seconds
        What a solver that is reached through CVXPY has, in a process of its own that is ended then;
        None for no limit.
    keep
        Is handed every solution.
    """
    rows: list[CertificateRow] = []
    solutions: dict[int, Solution] = {}
    for number, solver in enumerate(solvers):
        label = solver if isinstance(solver, str) else solver.name
        if isinstance(instance, InfeasibleError):
            rows.append(_failed(name, label, instance))
            continue
        try:
            solution = solve(instance, solver=solver, throw=False, seconds=seconds)
        except Dp2ermError as error:
            rows.append(_failed(name, label, error))
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
    if certified and isinstance(instance, Instance):
        best = min(certified, key=lambda solution: solution.certificate.proved)
        for number, solution in solutions.items():
            rows[number] = replace(rows[number], distance=_distance(instance, solution, best))
    return rows


def _failed(name: str, label: str, error: Dp2ermError) -> CertificateRow:
    """The row of a solver that raised an error."""
    failure = _FAILURES.get(type(error), type(error).__name__)
    return CertificateRow(name, label, failure, note=str(error))


def _row(name: str, label: str, instance: Instance, solution: Solution) -> CertificateRow:
    """The row of a solver that has a point."""
    certificate = solution.certificate
    model = instance.model
    objective = math.nan
    gap = math.nan
    if model is not None:
        objective = model.value(solution.point) + model.penalty.value(solution.point)
        gap = fenchel_gap(model, solution.point)
    elif certificate.strong_convexity > 0:
        gap = 0.5 * certificate.strong_convexity * certificate.radius * certificate.radius
    raw_radius = math.nan
    if solution.raw is not None:
        raw_radius = solution.raw.proved
    note = ""
    if not solution.certified:
        note = _unproved(label, solution)
    return CertificateRow(
        name,
        label,
        status=solution.status.value,
        certified=solution.certified,
        objective=objective,
        duality_gap=gap,
        raw_radius=raw_radius,
        radius=certificate.proved,
        seconds=solution.seconds,
        note=note,
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
    """Gap between ``f0 + g`` at a point and its Fenchel dual at ``-grad f0`` there.

    ``g = h + m/2 ||.||^2``, where h is the penalty of the model and m its ridge.

    Parameters
    ----------
    model
        ``f0 + g``.
    point
        (d,), which is projected to the set of the penalty.

    Returns
    -------
    The gap, at least 0; nan where the ridge is 0.
    """
    m = model.ridge
    penalty = model.penalty
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
    size = max(float(np.linalg.norm(best.value)), 1e-300)
    return float(np.linalg.norm(moved)) / size
