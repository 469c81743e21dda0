"""What every registered program has to obey, at representative and extreme settings."""

import contextlib
import json
import math
import re
import sys
import warnings
from collections import OrderedDict
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.sets import Box, ElasticNet, L2Ball, WholeSpace
from dp2erm_cvx.program import ClosedFormWeights, FirstStage
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.kernels import PublicSample
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import SCS, Clarabel, Newton, solve
from tests.every_program import EXTREMES, SETTINGS, P, edge_records
from tests.helpers import bind, make_records, output_distance

STANDARD, RECORDS = make_records(60, P), edge_records()
SOLVES: Any = sys.modules["dp2erm_cvx.solve.solving"]
#: Programs by the names of their rows.
BUILT: dict[str, Any] = {}
_PARTS = (ElasticNet(), ElasticNet(l1=0.2), ElasticNet(l2=0.3))


def built(name, settings, *marks):
    """A program by name; slow if a set is paired with part of a penalty, where others have the
    whole.
    """
    paired = isinstance(settings.get("theta_set"), (L2Ball, Box, WholeSpace))
    slow = [pytest.mark.slow] * (paired and settings.get("regularizer") in _PARTS)
    # a place in memory is another in every process
    named = re.sub(r" at 0x\w+", "", f"{name}-{settings}")
    if named not in BUILT:
        # a program is read where it is built, which takes longer than most of what is shown of it
        BUILT[named] = programs()[name](**settings)
    return pytest.param(BUILT[named], marks=[*marks, *slow], id=named)


def at_ends(table):
    """The first and the last settings of every program; those between are slow."""
    rows = []
    for name, settings in table.items():
        for place, row in enumerate(settings):
            between = [pytest.mark.slow] * (0 < place < len(settings) - 1)
            rows.append(built(name, row, *between))
    return pytest.mark.parametrize("program", rows)


def every(table):
    return pytest.mark.parametrize(
        "program", [built(name, row) for name in table for row in table[name]]
    )


def lift(instance, solution):
    """Values of the declared variables at a solution: ``point`` of the only one, unless it says
    otherwise.
    """
    program, weights = instance.program, {"weights": solution.value}
    other = isinstance(program, ClosedFormWeights)
    return weights if other else solution.point


def declared_at(instance, values):
    """The declaration with its variables set: (compiled, objective, largest violation)."""
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    variables, constraints = (
        compiled.declaration.variables,
        compiled.declaration.constraints.values(),
    )
    if not isinstance(values, dict):
        point, model = values, instance.composite
        values = {name: model.margins(point) if name == "margins" else point for name in variables}
    assert values.keys() == variables.keys()
    for name, value in values.items():
        with warnings.catch_warnings():
            # a sign declared on a variable is checked by its violation
            warnings.simplefilter("ignore")
            variables[name].save_value(value)
    violation = max((float(np.max(c.violation())) for c in constraints), default=0.0)
    return compiled, float(compiled.problem.objective.value), violation


def check_weights(program, solution, missed=1e-13):
    """Nonnegative with sum n, as every theorem assumes, which a solver may miss by a share of n."""
    weights = solution.value
    if isinstance(program, FirstStage):
        assert np.all(np.isfinite(weights))
        assert np.all(weights >= 0)
        assert abs(math.fsum(weights) / len(weights) - 1) < missed


def solver_names(instance):
    """Every solver that applies: conic ones always, OSQP for QPs, first-order and Newton with a
    model.
    """
    is_qp = Compiled(instance.program.declare, instance.data).problem.is_qp()
    own = [] if instance.model is None else ["newton", "projected_gradient"]
    return ["clarabel", "scs", *(["osqp"] if is_qp else []), *own]


def test_every_program_is_in_the_table():
    assert set(SETTINGS) == set(programs())
    assert set(EXTREMES) <= set(programs())


@pytest.mark.one_row_in(6)
@every(SETTINGS)
def test_declaration_is_dpp_with_named_parts(program):
    instance = bind(program, STANDARD)
    compiled = Compiled(instance.program.declare, instance.data)
    assert compiled.problem.is_dcp(dpp=True)
    assert compiled.declaration.variables
    for leaf_name, parameter in compiled.parameters.items():
        assert parameter.name() == leaf_name
    assert all(own.name() == name for name, own in compiled.declaration.variables.items())
    assert json.loads(json.dumps(instance.program.settings())) == instance.program.settings()
    # every datum enters the problem: one that did not would go stale unseen
    inside = {p.name() for p in compiled.problem.parameters()}
    means = [name for name in inside if name.startswith("mean_of(")]
    for name in set(compiled.parameters) - inside:
        # data whose mean enters are not asked for themselves
        assert any(mean.startswith(f"mean_of({name}, ") for mean in means)


@pytest.mark.one_row_in(36)
@at_ends(SETTINGS)
def test_solvers_agree_within_their_certificates(program, monkeypatch):
    # a point of a conic solver is judged as it is and after polishing, and found once
    monkeypatch.setattr(SOLVES, "solved_by_cvxpy", cache(SOLVES.solved_by_cvxpy))
    instance = bind(program, STANDARD)
    result = []
    for solver in solver_names(instance):
        for polish in (False, True):
            solution = solve(instance, solver=solver, polish=polish, throw=False)
            # weights that a conic solver left as they are have the sum that it left
            as_left = instance.model is not None and instance.model.solves_itself and not polish
            check_weights(program, solution, 1e-8 if as_left else 1e-13)
            assert np.isfinite(solution.certificate.proved)
            if polish:
                assert solution.certified, (solver, solution.status)
            result.append((solver, polish, solution))
    for solver, polish, first in result:
        for other, also, second in result:
            distance = output_distance(program, first.value, second.value)
            allowed = first.certificate.output_radius + second.certificate.output_radius
            if not program.relations and also and polish:
                # a backward error is no distance; these records are well-conditioned
                allowed = 1e-8 * 60
            assert distance <= allowed, (solver, polish, other, also)


@pytest.mark.one_row_in(12)
@at_ends(SETTINGS)
def test_declared_objective_is_least_at_the_certified_point(program):
    if getattr(program, "smoothing", None):
        pytest.skip("the declaration has the kink, and the weights are those of its envelope")
    instance = bind(program, STANDARD)
    solution = solve(instance, solver="clarabel" if instance.model is None else "newton")
    compiled, objective, violation = declared_at(instance, lift(instance, solution))
    assert violation <= 1e-7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inaccurate is good enough for the tolerance below
        optimum = compiled.problem.solve(solver=Clarabel().cvxpy_name, **Clarabel().options())
    assert objective == pytest.approx(optimum, rel=2e-6, abs=2e-6 * 60)


@pytest.mark.one_row_in(12)
@at_ends(SETTINGS)
def test_declared_gradient_agrees_with_the_model(program):
    """CVXPY differentiates the declaration; the model's gradient is written by hand."""
    instance = bind(program, STANDARD)
    if instance.model is None or isinstance(program, ClosedFormWeights):
        pytest.skip(
            "the declaration is over other variables than the model; optimality is compared instead"
        )
    if getattr(program, "smoothing", None):
        pytest.skip("the declaration has the kink, and the model is of its envelope")
    model, rng = instance.model, np.random.default_rng(3)
    zero = np.zeros(model.dimension)
    if model.solves_itself:
        zero = model.start()
    at_zero = declared_at(instance, zero)[1]
    for scale in (1e-3, 1.0):
        point = scale * rng.normal(size=model.dimension)
        if model.solves_itself:
            # logarithms of weights are asked for inside of their box alone
            point = zero + scale * rng.uniform(-0.5, 0.5, model.dimension)
        compiled, objective, _ = declared_at(instance, point)
        gradients = compiled.problem.objective.args[0].grad
        flat = {}
        for key, variable in compiled.declaration.variables.items():
            own = gradients.get(variable, np.zeros(variable.size))
            flat[key] = np.ravel(own.toarray() if scipy.sparse.issparse(own) else own)
        # margins are an affine map of theta
        inner = np.asarray(instance.data["Z"]).T @ flat.pop("margins") if "margins" in flat else 0.0
        (own,) = flat.values()
        expected = model.gradient(point) + model.penalty.l1 * np.sign(point)
        np.testing.assert_allclose(
            own + inner, expected, rtol=1e-9, atol=1e-9 * np.linalg.norm(expected)
        )
        # and the values, up to the constant that a declaration may drop
        difference = model.value(point) + model.penalty.value(point) - model.value(zero)
        assert objective - at_zero == pytest.approx(difference, rel=1e-9, abs=1e-9)


@pytest.mark.one_row_in(6)
@every(SETTINGS)
def test_model_derivatives_agree_with_differences(program):
    instance = bind(program, STANDARD)
    if instance.model is None:
        pytest.skip("judged by the duality gap alone")
    model, rng = instance.model, np.random.default_rng(4)
    point = model.start() + 0.3 * rng.normal(size=model.dimension)
    direction = rng.normal(size=model.dimension)
    step = 1e-5
    slope = (model.value(point + step * direction) - model.value(point - step * direction)) / (
        2 * step
    )
    assert slope == pytest.approx(float(model.gradient(point) @ direction), rel=1e-6, abs=1e-5)
    if model.solves_itself:
        return  # solved in its dual, without a Hessian of the weights
    bend = (model.gradient(point + step * direction) - model.gradient(point - step * direction)) / (
        2 * step
    )
    np.testing.assert_allclose(bend, model.hessian(point) @ direction, rtol=1e-5, atol=1e-5)
    # smoothness is stated over the feasible points
    eigenvalues = np.linalg.eigvalsh(model.hessian(model.penalty.set.project(point)))
    assert eigenvalues[0] >= model.ridge * (1 - 1e-9) - 1e-9
    assert eigenvalues[-1] <= model.smoothness * (1 + 1e-9)


@pytest.mark.one_row_in(15)
@every({name: rows[:1] for name, rows in SETTINGS.items()})
def test_resolve_with_new_parameters_equals_a_fresh_solve(program, monkeypatch):
    """Only what CVXPY compiles is kept; how it is compiled depends on the program, not on its
    settings.
    """
    instances = [bind(program, make_records(60, P, k), gamma=0.05 * (k + 1)) for k in (0, 7)]
    for solver in solver_names(instances[0]):
        monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_COMPILED", OrderedDict())
        solve(instances[0], solver=solver, polish=False, throw=False)
        again = solve(instances[1], solver=solver, polish=False, throw=False)
        monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_COMPILED", OrderedDict())
        fresh = solve(instances[1], solver=solver, polish=False, throw=False)
        distance = output_distance(program, again.value, fresh.value)
        # the radii alone would not do: a stale point has a large one
        assert distance <= again.certificate.output_radius + fresh.certificate.output_radius
        assert distance <= 1e-6 * np.linalg.norm(fresh.value)


#: Programs with weights, or a target, of either arm: a declared arm floor rules out an empty one.
BOTH_ARMS = ("att_balancing", "mmd", "energy_balancing", "kernel_mean_matching")


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("data", RECORDS)
@every({name: rows[:1] for name, rows in SETTINGS.items()})
def test_edge_datasets_are_solved_and_certified(program, data):
    """No dataset of the universe may make a fit refuse: a refusal would depend on private
    records.
    """
    if program.name in BOTH_ARMS and len(set(RECORDS[data].a)) < 2:
        pytest.skip("the domain's arm floor rules out an empty arm")
    # hard constraints may have no solution, which has its own error
    with contextlib.nullcontext() if program.relations else contextlib.suppress(InfeasibleError):
        solution = solve(bind(program, RECORDS[data]))
        check_weights(program, solution)
        assert solution.certified


@pytest.mark.one_row_in(24)
@every(EXTREMES)
def test_extreme_settings_are_certified(program):
    instance, settings = bind(program, STANDARD), EXTREMES[program.name][0]
    # polishing starts from wherever the splitting method has come
    first = program == programs()[program.name](**settings)
    for solver in (Newton(), Clarabel(), *[SCS(max_iterations=2000)] * first):
        solution = solve(instance, solver=solver)
        assert solution.certified
        check_weights(program, solution)


#: A dense kernel factor keeps a conic solver busy for seconds at 400 records and for ten minutes at
#: 4000.
KERNELS = ("mmd", "mmd_pooled", "energy_balancing", "stable_balancing")
#: Size, program, settings, and whether conic solvers run; settings between two others are slow, as
#: these are.
TARGETS = []
for name, rows in SETTINGS.items():
    for row in rows:
        between = () if row in (rows[0], rows[-1]) else pytest.mark.slow
        TARGETS.append(pytest.param(400, name, row, False, marks=between))
        for n, conic in ((400, True), (4000, name not in KERNELS)):
            TARGETS.append(pytest.param(n, name, row, conic, marks=pytest.mark.slow))


@pytest.mark.one_row_in(10)
@pytest.mark.parametrize(("n", "name", "settings", "conic"), TARGETS)
def test_every_solver_comes_within_the_target_radius(n, name, settings, conic):
    """With ten covariates every solver comes within 1e-9, relative to the size of its solution."""
    if name == "ipw_known":
        settings = settings | {"coefficient": settings["coefficient"] + (0.1,) * 7}
    if isinstance(settings.get("target"), PublicSample):
        settings = settings | {
            "target": PublicSample(np.random.default_rng(9).normal(size=(20, 10)))
        }
    instance = bind(programs()[name](**settings), make_records(n, 10))
    solvers = ["newton", "projected_gradient", *(["clarabel", "scs"] if conic else [])]
    if conic and Compiled(instance.program.declare, instance.data, embed=True).problem.is_qp():
        solvers.append("osqp")
    result = {solver: solve(instance, solver=solver, throw=False) for solver in solvers}
    radii = {solver: solution.certificate.proved for solver, solution in result.items()}
    assert max(radii.values()) <= 1e-9, radii
