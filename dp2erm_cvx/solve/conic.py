"""Duality gap of a declared problem at a given point, for programs without a prox-friendly form."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.model.sets import has_unchecked_cones
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.stage import Instance

_TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12, "max_iter": 200}


def numerical_failures() -> tuple[type[Exception], ...]:
    """What CVXPY and the solvers below it raise on numbers they cannot deal with."""
    # asked for where they are caught, so that an import of this file needs nothing of CVXPY
    return (cp.SolverError, ValueError, ArithmeticError)


def conic_gap(instance: Instance, point: Array) -> float:
    """Duality gap of a feasible ``point`` (d,) of the declared problem.

    The objective at the point, with what its constraints are violated by at their prices, minus a lower bound
    on the optimum. The lower bound is weak duality at a
    dual point, found by an interior-point solve and then checked here: put into the dual cone, with what is
    left of dual stationarity charged against the size of the primal point. It is therefore no
    rigorous bound where the optimum is much larger than that point.

    ``inf`` where no lower bound was found, which may depend on the data. Raises CertificateError where the
    dual cone is not one this file can check, which does not: it is the declared problem's.
    """
    compiled = Compiled(instance.program.declare, instance.data, embed=True)
    compiled.load(instance.data)
    try:
        with silenced():
            lower = _lower_bound(compiled.problem)
    except numerical_failures():
        return math.inf
    (variable,) = compiled.declaration.variables.values()
    variable.value = point
    value = float(compiled.problem.objective.value) + _price_of_violations(compiled.problem)
    if not math.isfinite(value - lower):
        return math.inf
    rounding = 1e-14 * (abs(value) + abs(lower))
    return max(value - lower, 0.0) + rounding


def _lower_bound(problem: Any) -> float:
    """A lower bound on the optimum, ``-inf`` where none was found."""
    data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=dict(_TIGHT))
    _refuse_unchecked_cones(data["dims"])
    raw = chain.solve_via_data(problem, data, warm_start=False, verbose=False, solver_opts=dict(_TIGHT))
    x, z = np.asarray(raw.x), np.asarray(raw.z)
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(z))):
        return -math.inf
    with suppress(cp.SolverError):  # for the duals of the declared constraints, which may not be needed
        problem.unpack_results(raw, chain, inverse)
    z = _into_dual_cone(z, data["dims"])
    quadratic = data["P"] @ x if data.get("P") is not None else np.zeros_like(x)
    stationarity = quadratic + data["c"] + data["A"].T @ z
    # for every feasible u: objective(u) >= -x'Px/2 - b'z + stationarity'u
    lower = -0.5 * float(x @ quadratic) - float(data["b"] @ z)
    lower -= float(np.linalg.norm(stationarity)) * (1 + 2 * float(np.linalg.norm(x)))
    return lower + float(np.sum(data.get("offset", 0.0)))


def _price_of_violations(problem: Any) -> float:
    """What the point may lie below the optimum because it violates constraints, to first order."""
    price = 0.0
    for constraint in problem.constraints:
        violation, dual = np.abs(constraint.violation()), constraint.dual_value
        if np.max(violation, initial=0.0) <= 0.0:
            continue
        if dual is None:
            return math.inf
        price += float(np.linalg.norm(np.ravel(dual)) * np.linalg.norm(np.ravel(violation)))
    return price


def _refuse_unchecked_cones(dims: Any) -> None:
    if has_unchecked_cones(dims):
        raise CertificateError(
            "the duality gap can be checked for quadratic and second-order cone programs only: state the "
            "objective or regularizer by quadratics, norms and absolute values, without atoms of other cones "
            "that are not read (weights by entropy: a program of kind exponential)"
        )


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
def silenced() -> Iterator[None]:
    """Nothing printed through ``sys.stdout`` or ``sys.stderr`` gets out, nor does a warning.

    SCS writes residuals to ``sys.stdout`` whatever its ``verbose`` is, and CVXPY warns of inaccuracy, which
    the certificate measures. Clarabel and OSQP print nothing.
    """
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
