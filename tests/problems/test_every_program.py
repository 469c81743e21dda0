"""What every registered program has to obey, at representative and extreme settings."""

import json
import sys
import warnings
from collections import OrderedDict
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.sets import UserRegularizer
from dp2erm_cvx.program import ClosedFormWeights
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import PublicSample
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import SCS, Clarabel, Newton, solve
from tests.every_program import (
    EXTREMES,
    SETTINGS,
    build,
    cases,
    check_weights,
    declared_at,
    edge_records,
    label,
    lies_between,
    lift,
    solver_names,
    standard_records,
)
from tests.helpers import bind, make_records, output_distance

every_case = pytest.mark.parametrize(
    ("name", "settings"),
    [pytest.param(*case, marks=pytest.mark.slow if lies_between(case[1]) else ()) for case in cases()],
    ids=label,
)
RECORDS = edge_records()
SOLVES: Any = sys.modules["dp2erm_cvx.solve.solving"]


def test_every_program_is_in_the_table():
    assert set(SETTINGS) == set(programs())
    assert set(EXTREMES) <= set(programs())


@every_case
def test_declaration_is_dpp_with_named_parts(name, settings):
    instance = bind(build(name, settings), standard_records())
    compiled = Compiled(instance.program.declare, instance.data)
    assert compiled.problem.is_dcp(dpp=True)
    assert compiled.declaration.variables
    for leaf_name, parameter in compiled.parameters.items():
        assert parameter.name() == leaf_name
    assert all(own.name() == name for name, own in compiled.declaration.variables.items())
    assert json.loads(json.dumps(instance.program.settings())) == instance.program.settings()
    # every datum enters the problem: one that did not would go stale unseen
    assert set(compiled.parameters) == {p.name() for p in compiled.problem.parameters()}


@every_case
def test_solvers_agree_within_their_certificates(name, settings, monkeypatch):
    # a point of a conic solver is judged as it is and after polishing, and found once
    monkeypatch.setattr(SOLVES, "solved_by_cvxpy", cache(SOLVES.solved_by_cvxpy))
    records = standard_records()
    instance = bind(build(name, settings), records)
    result = []
    for solver in solver_names(instance):
        for polish in (False, True):
            solution = solve(instance, solver=solver, polish=polish, throw=False)
            check_weights(instance.program, solution.value, records.n_samples)
            assert np.isfinite(solution.certificate.output_radius)
            if polish:
                assert solution.certified, (solver, solution.status)
            result.append((solver, polish, solution))
    for solver, polish, first in result:
        for other, also, second in result:
            distance = output_distance(instance.program, first.value, second.value)
            allowed = first.certificate.output_radius + second.certificate.output_radius
            assert distance <= allowed, (solver, polish, other, also)


@every_case
def test_declared_objective_is_least_at_the_certified_point(name, settings):
    instance = bind(build(name, settings), standard_records())
    solution = solve(instance, solver="clarabel" if instance.model is None else "newton")
    compiled, objective, violation = declared_at(instance, lift(instance, solution) or solution.point)
    assert violation <= 1e-7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inaccurate is good enough for the tolerance below
        optimum = compiled.problem.solve(solver=Clarabel().cvxpy_name, **Clarabel().options())
    assert objective == pytest.approx(optimum, rel=2e-6, abs=2e-6 * 60)


@every_case
def test_declared_gradient_agrees_with_the_model(name, settings):
    """CVXPY differentiates the declaration; the model's gradient is written by hand."""
    program = build(name, settings)
    instance = bind(program, standard_records())
    primal = ("entropy_balancing_hard", "entropy_balancing_primal", "stable_balancing_hard")
    if instance.model is None or isinstance(program, ClosedFormWeights) or name in primal:
        pytest.skip("the declaration is over other variables than the model; optimality is compared instead")
    model, rng = instance.model, np.random.default_rng(3)
    zero = np.zeros(model.dimension)
    at_zero = declared_at(instance, zero)[1]
    for scale in (1e-3, 1.0):
        point = scale * rng.normal(size=model.dimension)
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
        np.testing.assert_allclose(own + inner, expected, rtol=1e-9, atol=1e-9 * np.linalg.norm(expected))
        # and the values, up to the constant that a declaration may drop
        difference = model.value(point) + model.penalty.value(point) - model.value(zero)
        assert objective - at_zero == pytest.approx(difference, rel=1e-9, abs=1e-9)


@every_case
def test_model_derivatives_agree_with_differences(name, settings):
    instance = bind(build(name, settings), standard_records())
    if instance.model is None:
        pytest.skip("judged by the duality gap alone")
    model, rng = instance.model, np.random.default_rng(4)
    point = model.start() + 0.3 * rng.normal(size=model.dimension)
    direction = rng.normal(size=model.dimension)
    step = 1e-5
    slope = (model.value(point + step * direction) - model.value(point - step * direction)) / (2 * step)
    assert slope == pytest.approx(float(model.gradient(point) @ direction), rel=1e-6, abs=1e-5)
    bend = (model.gradient(point + step * direction) - model.gradient(point - step * direction)) / (2 * step)
    np.testing.assert_allclose(bend, model.hessian(point) @ direction, rtol=1e-5, atol=1e-5)
    # smoothness is stated over the feasible points
    eigenvalues = np.linalg.eigvalsh(model.hessian(model.penalty.set.project(point)))
    assert eigenvalues[0] >= model.ridge * (1 - 1e-9) - 1e-9
    assert eigenvalues[-1] <= model.smoothness * (1 + 1e-9)


@pytest.mark.parametrize("name", SETTINGS)
def test_resolve_with_new_parameters_equals_a_fresh_solve(name, monkeypatch):
    """Only what CVXPY compiles is kept; how it is compiled depends on the program, not on its settings."""
    program = build(name, SETTINGS[name][0])
    instances = [bind(program, standard_records(seed=k), gamma=0.05 * (k + 1)) for k in (0, 7)]
    for solver in solver_names(instances[0]):
        monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_cache", OrderedDict())
        solve(instances[0], solver=solver, polish=False, throw=False)
        again = solve(instances[1], solver=solver, polish=False, throw=False)
        monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_cache", OrderedDict())
        fresh = solve(instances[1], solver=solver, polish=False, throw=False)
        distance = output_distance(instances[1].program, again.value, fresh.value)
        # the radii alone would not do: a stale point has a large one
        assert distance <= again.certificate.output_radius + fresh.certificate.output_radius
        assert distance <= 1e-6 * np.linalg.norm(fresh.value)


@pytest.mark.parametrize("data", RECORDS, ids=str)
@pytest.mark.parametrize("name", programs())
def test_edge_datasets_are_solved_and_certified(name, data):
    """No dataset of the universe may make a fit refuse: a refusal would depend on private records."""
    records = RECORDS[data]
    for settings in (SETTINGS[name][0], SETTINGS[name][-1]):
        program = build(name, settings)
        if isinstance(getattr(program, "regularizer", None), UserRegularizer):
            solution = solve(bind(program, records), solver="clarabel")
        elif not program.relations:
            # hard constraints may have no solution, which has its own error, or a dual that is flat somewhere
            try:
                solution = solve(bind(program, records), solver="first_certified")
            except InfeasibleError:
                continue
        else:
            solution = solve(bind(program, records))
        check_weights(program, solution.value, records.n_samples)
        assert solution.certified


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, settings) for name, rows in EXTREMES.items() for settings in rows],
    ids=label,
)
def test_extreme_settings_are_certified(name, settings):
    records = standard_records()
    instance = bind(build(name, settings), records)
    # polishing starts from wherever the splitting method has come
    for solver in (Newton(), Clarabel(), *[SCS(max_iterations=2000)] * (settings is EXTREMES[name][0])):
        solution = solve(instance, solver=solver)
        assert solution.certified
        check_weights(instance.program, solution.value, records.n_samples)


#: Size, program, settings and whether conic solvers run; settings between two others are slow, as these are.
#: A dense kernel factor keeps a conic solver busy for seconds at 400 records and for ten minutes at 4000.
KERNELS = [name for name, program in programs().items() if issubclass(program, KernelFirstStage)]
TARGETS = []
for name, rows in SETTINGS.items():
    own = [row for row in rows if not isinstance(row.get("regularizer"), UserRegularizer)]
    for row in own:
        between = () if row in (own[0], own[-1]) else pytest.mark.slow
        TARGETS.append(pytest.param(400, name, row, False, marks=between))
        for n, conic in ((400, True), (4000, name not in KERNELS)):
            TARGETS.append(pytest.param(n, name, row, conic, marks=pytest.mark.slow))


@pytest.mark.parametrize(("n", "name", "settings", "conic"), TARGETS, ids=label)
def test_radius_target(n, name, settings, conic):
    """With ten covariates every solver comes within 1e-9, relative to the size of its solution."""
    if name == "ipw_known":
        settings = settings | {"coefficient": settings["coefficient"] + (0.1,) * 7}
    if isinstance(settings.get("target"), PublicSample):
        settings = settings | {"target": PublicSample(np.random.default_rng(9).normal(size=(20, 10)))}
    instance = bind(build(name, settings), make_records(n, 10))
    solvers = ["newton", "projected_gradient", *(["clarabel", "scs"] if conic else [])]
    if conic and Compiled(instance.program.declare, instance.data, embed=True).problem.is_qp():
        solvers.append("osqp")
    result = {solver: solve(instance, solver=solver, throw=False) for solver in solvers}
    radii = {solver: solution.certificate.relative_radius for solver, solution in result.items()}
    assert max(radii.values()) <= 1e-9, radii
