"""The declared problem: compiled once per program and shape, solved by others, and its duality gap."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError, ProgramError, SolverError
from dp2erm_cvx.model.sets import has_unchecked_cones
from dp2erm_cvx.program.declaration import PARAMETER_LIMIT, Compiled
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.solvers import CVXPY_STATUS, SCS, Clarabel, ConicSolver, Status

#: Whose compiled problem the certificate shares.
_JUDGE = "clarabel"
_TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "max_iter": 200}


#: What CVXPY and the solvers below it raise on numbers they cannot deal with.
_FAILURES = (cp.SolverError, ValueError, ArithmeticError)


class Dual(NamedTuple):
    """A lower bound on the optimum, the prices of the declared constraints, and who found them."""

    lower: float
    prices: tuple[Any, ...]
    solver: str


_cache: dict[tuple[object, ...], Compiled] = {}


def compiled_for(instance: Instance, solver: str) -> Compiled:
    """The compiled declaration with the instance's data loaded, kept per program, shape and solver."""
    if Compiled.cost(instance.data) > PARAMETER_LIMIT:
        compiled = Compiled(instance.program.declare, instance.data, embed=True)
        compiled.load(instance.data)
        return compiled
    # one problem per solver, because a change of solver recompiles it
    shapes = tuple((name, np.shape(value)) for name, value in instance.data.items())
    key = (type(instance.program), instance.program, shapes, solver)
    compiled = _cache.pop(key) if key in _cache else Compiled(instance.program.declare, instance.data)
    _cache[key] = compiled  # the last one used stands last
    if len(_cache) > 16:
        del _cache[next(iter(_cache))]
    compiled.load(instance.data)
    return compiled


def solved_with_dual(problem: Any, solver: str, options: dict[str, Any]) -> Dual | None:
    """Solve a loaded problem by ``solver``, a name of CVXPY's, and bound its optimum by the dual point.

    By weak duality in the dual cone, what is left of stationarity charged against the size of the primal
    point: no rigorous bound where the optimum is much larger than that point. None without finite points, or
    where the dual cone cannot be checked.
    """
    data, chain, inverse = problem.get_problem_data(solver, solver_opts=dict(options))
    raw = chain.solve_via_data(problem, data, warm_start=False, verbose=False, solver_opts=dict(options))
    x, z = (raw["x"], raw["y"]) if isinstance(raw, dict) else (raw.x, raw.z)
    if x is None or z is None or not (np.all(np.isfinite(x)) and np.all(np.isfinite(z))):
        return None
    with suppress(cp.SolverError):  # of duals alone, which may not be needed
        problem.unpack_results(raw, chain, inverse)
    prices = tuple(constraint.dual_value for constraint in problem.constraints)
    if has_unchecked_cones(data["dims"]):
        return None
    with suppress(*_FAILURES):
        return Dual(_lower_bound(np.asarray(x), np.asarray(z), data), prices, solver.lower())
    return None


def solved_by_cvxpy(instance: Instance, settings: ConicSolver) -> tuple[Array, Status, int, Dual | None]:
    """As of :func:`~dp2erm_cvx.solve.solve`: a point of the model, its status, iterations, and dual point."""
    compiled = compiled_for(instance, settings.name)
    problem = compiled.problem
    if settings.quadratic_only and not problem.is_qp():
        raise ProgramError(
            f"{settings.name} solves quadratic programs only; {instance.program.name} is not one"
        )
    problem._clear_solution()  # what another solve left is no answer
    dual = None
    try:
        with _silenced():
            if instance.model is None and isinstance(settings, Clarabel | SCS):
                dual = solved_with_dual(problem, settings.cvxpy_name, settings.options())
            else:
                settings.run(problem)
    except _FAILURES:
        raise SolverError(
            f"{settings.name} failed on {instance.program.name}: choose another solver"
        ) from None
    # a function of an author's own need not set one
    status = Status.SOLVED if problem.status is None else CVXPY_STATUS.get(problem.status, Status.FAILED)
    values = compiled.values()
    if values is None:
        if instance.targets is not None:
            instance.targets.refuse_infeasible()
        raise SolverError(
            f"{settings.name} returned no point for {instance.program.name} (status {status.value}): "
            "choose another solver"
        )
    point = instance.program.read(instance, values, compiled.duals())
    iterations = problem.solver_stats.num_iters if problem.solver_stats is not None else None
    return point, status, int(iterations or 0), dual


def own_dual(instance: Instance) -> Dual | None:
    """A dual point of the declared problem by an interior-point solve to the last digits.

    Raises CertificateError where its cones cannot be checked, whatever the data are.
    """
    problem = compiled_for(instance, _JUDGE).problem
    try:
        with _silenced():
            if has_unchecked_cones(problem.get_problem_data(cp.CLARABEL)[0]["dims"]):
                raise CertificateError(
                    "the duality gap can be checked for quadratic and second-order cone programs only: state "
                    "the objective or regularizer by quadratics, norms and absolute values, without atoms of "
                    "other cones that are not read (weights by entropy: a program of kind exponential)"
                )
            dual = solved_with_dual(problem, cp.CLARABEL, _TIGHT)
    except _FAILURES:
        return None
    return None if dual is None else dual._replace(solver="certificate")


def conic_gap(instance: Instance, point: Array, dual: Dual | None) -> float:
    """Duality gap of a feasible ``point`` (d,) of the declared problem, with its violations at their prices.

    ``inf`` where no lower bound is known, which may depend on the data.
    """
    if dual is None:
        return math.inf
    # no solver is called here: the problem that is loaded already serves
    compiled = compiled_for(instance, _JUDGE if dual.solver == "certificate" else dual.solver)
    (variable,) = compiled.declaration.variables.values()
    variable.value = point
    price = _price_of_violations(compiled.problem, dual.prices)
    value = float(compiled.problem.objective.value) + price
    if not math.isfinite(value - dual.lower):
        return math.inf
    rounding = 1e-14 * (abs(value) + abs(dual.lower))
    return max(value - dual.lower, 0.0) + rounding


def _lower_bound(x: Array, z: Array, data: Any) -> float:
    z = _into_dual_cone(z, data["dims"])
    quadratic = data["P"] @ x if data.get("P") is not None else np.zeros_like(x)
    stationarity = quadratic + data["c"] + data["A"].T @ z
    # for every feasible u: objective(u) >= -x'Px/2 - b'z + stationarity'u
    lower = -0.5 * float(x @ quadratic) - float(data["b"] @ z)
    lower -= float(np.linalg.norm(stationarity)) * (1 + 2 * float(np.linalg.norm(x)))
    return lower + float(np.sum(data.get("offset", 0.0)))


def _price_of_violations(problem: Any, prices: tuple[Any, ...]) -> float:
    """Amount that the point may lie below the optimum because it violates constraints, to first order."""
    price = 0.0
    for constraint, dual in zip(problem.constraints, prices, strict=True):
        violation = np.abs(constraint.violation())
        if np.max(violation, initial=0.0) <= 0.0:
            continue
        if dual is None:
            return math.inf
        price += float(np.linalg.norm(np.ravel(dual)) * np.linalg.norm(np.ravel(violation)))
    return price


def _into_dual_cone(z: Array, dims: Any) -> Array:
    z = z.copy()
    position = dims.zero
    z[position : position + dims.nonneg] = np.maximum(z[position : position + dims.nonneg], 0.0)
    position += dims.nonneg
    for size in dims.soc:
        z[position] = max(z[position], float(np.linalg.norm(z[position + 1 : position + size])))
        position += size
    if position != len(z):
        raise CertificateError("the dual point does not match the cones of the declared problem")
    return z


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Nothing gets out: SCS prints residuals at any setting, and CVXPY warns of inaccuracy."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
