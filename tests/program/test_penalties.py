"""Public penalties of theta: read, solved for every loss as CVXPY alone solves them, and
certified.
"""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.quadratics import Quadratic, WithQuadratic
from dp2erm_cvx.model.sets import Box, ElasticNet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.program import second_stage
from dp2erm_cvx.solve import certify, solve
from tests.helpers import LOSSES, penalized
from tests.rows import one_of

P, N = 4, 40
DOMAIN = Domain(1.0, 1.0)
DIFFERENCES = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
FORM = np.array(
    [[2.0, 0.5, 0.0, 0.0], [0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
)
SHIFT = np.array([0.1, 0.0, 0.2])

#: Penalties whose certificate is that of every model.
SMOOTH = {
    "linear": lambda theta: np.array([0.1, 0.2, -0.1, 0.0]) @ theta,
    "form": lambda theta: cp.quad_form(theta, FORM) + 0.02 * cp.norm1(theta),
    "squares": lambda theta: cp.sum_squares(DIFFERENCES @ theta - SHIFT) / 2,
    "entries": lambda theta: cp.sum(cp.square(theta[1:])) + 0.1 * cp.sum(theta),
}
#: Penalties that a duality gap judges.
KINKED = {
    "groups": lambda theta: 0.03 * cp.norm(theta[:2]) + 0.05 * cp.norm(theta[2:]),
    "overlapping": lambda theta: 0.03 * cp.norm(theta[:3]) + 0.05 * cp.norm(theta[1:]),
    "columns": lambda theta: 0.05 * cp.mixed_norm(cp.reshape(theta, (2, 2), order="F"), 2, 1),
    "fused": lambda theta: 0.05 * cp.norm1(DIFFERENCES @ theta) + 0.02 * cp.norm1(theta),
    "tv": lambda theta: 0.05 * cp.tv(theta),
    "bends": lambda theta: 0.05 * cp.norm1(cp.diff(theta, 2)),
    "largest": lambda theta: 0.1 * cp.norm_inf(theta - 0.1),
    "affine": lambda theta: 0.1 * cp.norm(DIFFERENCES @ theta + SHIFT),
    "huber": lambda theta: 0.3 * cp.sum(cp.huber(theta, 0.1)) + 0.1 * theta[0],
    "all": lambda theta: (
        0.02 * cp.norm(theta[1:]) + cp.quad_form(theta, FORM) - 0.1 * theta[3] + 0.02 * cp.tv(theta)
    ),
}
PENALTIES = SMOOTH | KINKED


def records(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, P))
    X /= np.linalg.norm(X, axis=1)[:, None] * 1.01
    y = X @ np.array([0.6, 0.5, 0.0, 0.0]) + 0.1 * rng.normal(size=n)
    return DOMAIN.records(X, rng.integers(0, 2, n), np.clip(y, -1, 1))


def bound(seed=0):
    """Weights, gamma and noise of a fit."""
    rng = np.random.default_rng(100 + seed)
    weights = rng.uniform(0.5, 1.5, N)
    return {"weights": weights * N / weights.sum(), "gamma": 0.02, "noise": rng.normal(size=P)}


def by_cvxpy(program, data, weights, gamma, noise):
    """Theta of the declared problem with weights, gamma and noise written into its sum, by CVXPY
    alone.
    """
    _, theta, problem = program.resolve(DOMAIN.space).declared_problem(DOMAIN.space, N, P)
    for datum in problem.parameters():
        datum.value = datum.of(data)
    loss, *penalty = problem.objective.args[0].args
    losses = cp.square(loss.args[0]) if type(loss).__name__ == "quad_over_lin" else loss.args[0]
    whole = cp.sum(cp.multiply(weights, losses)) + sum(penalty)
    whole += N * gamma / 2 * cp.sum_squares(theta) + noise @ theta
    cp.Problem(cp.Minimize(whole), problem.constraints).solve(solver="CLARABEL")
    return theta.value


#: Penalties of the terms of others, on other entries.
ALIKE = ("overlapping", "columns", "tv", "bends")
CASES = [
    pytest.param(
        loss, name, marks=() if (i + j) % 4 == 0 and name not in ALIKE else pytest.mark.slow
    )
    for (i, loss), (j, name) in itertools.product(enumerate(LOSSES), enumerate(PENALTIES))
]


@pytest.mark.one_row_in(6)
@pytest.mark.filterwarnings(
    "ignore:Solution may be inaccurate", "ignore:You are solving a parameterized"
)
@pytest.mark.parametrize(("loss", "name"), CASES)
def test_every_solver_certifies_the_minimizer_of_what_is_declared(loss, name):
    program = penalized(LOSSES[loss], PENALTIES[name], columns=P)()
    data, declared = records(), bound()
    instance = program.instance(data, **declared)
    truth = by_cvxpy(program, data, *declared.values())
    solvers = ["clarabel", "scs"]
    if name in SMOOTH:
        assert instance.model is not None
        solvers = ["newton", "projected_gradient", "first_certified"]
    for solver in solvers:
        solution = solve(instance, solver=solver)
        assert solution.certified
        np.testing.assert_allclose(solution.value, truth, atol=1e-4)
        if name in SMOOTH:
            assert solution.certificate.relative_radius <= 1e-9
    # and a point that is off is known to be
    off = solution.point + 1e-3 * np.ones(P)
    assert certify(instance, off).radius >= 2e-3 - solution.certificate.radius


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("theta_set", [L1Ball(0.3), L2Ball(0.2), Box(0.1), WholeSpace()], ids=str)
@pytest.mark.parametrize("loss", one_of(["logistic", "huber"], 2))
def test_kinks_are_certified_in_every_set(loss, theta_set):
    program = penalized(LOSSES[loss], KINKED["fused"], columns=P)(theta_set=theta_set)
    solution = solve(program.instance(records(), **bound()), solver="first_certified")
    assert solution.certified
    assert (
        np.linalg.norm(theta_set.project(solution.value) - solution.value)
        <= solution.certificate.radius
    )


def test_a_setting_takes_the_place_of_the_elastic_net_alone():

    scheme = penalized(
        LOSSES["squares"], lambda theta: 0.1 * cp.norm(theta[1:]) + 0.3 * cp.norm1(theta), columns=P
    )
    data, declared = records(), bound()
    alone = penalized(LOSSES["squares"], lambda theta: 0.1 * cp.norm(theta[1:]), columns=P)()
    other = scheme(regularizer=ElasticNet(l2=0.2))
    more = {**declared, "gamma": declared["gamma"] + 0.2}
    one, two = solve(other.instance(data, **declared)), solve(alone.instance(data, **more))
    np.testing.assert_allclose(one.value, two.value, atol=1e-5)
    universe = Universe(DOMAIN, N, P)
    assert scheme().constants(universe).strong_convexity == 0.0
    assert other.constants(universe).strong_convexity == 0.2


@second_stage(columns=P, price=0.05)
def grouped(theta, records, price):
    """Two groups."""
    loss = cp.sum(cp.logistic(records.signed @ theta)) / records.n
    return cp.Problem(
        cp.Minimize(loss + price * (cp.norm(theta[:2]) + cp.norm(theta[2:]))), [cp.norm(theta) <= 1]
    )


@pytest.mark.slow
def test_a_mean_goes_with_a_penalty_and_a_release_is_made():
    rng = np.random.default_rng(3)
    X, a, y = rng.uniform(-0.5, 0.5, (120, P)), rng.integers(0, 2, 120), rng.uniform(-1, 1, 120)
    model = PrivateTwoStageERM(DOMAIN, Budget(4.0), "uniform", grouped(), seed=1).fit(X, a, y)
    assert model.private_workings_.theta.certified
    other = penalized(LOSSES["logistic"], lambda theta: 1e-6 * cp.norm(theta), columns=P)
    # no price adds noise
    programs = grouped(), other(theta_set=L2Ball(1.0))
    noise = [
        PrivateTwoStageERM(DOMAIN, Budget(4.0), "uniform", one).plan(120, P) for one in programs
    ]
    assert noise[0].main.calibration.scale == pytest.approx(
        noise[1].main.calibration.scale, rel=1e-9
    )


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", ["groups", "form", "linear"])
def test_theorems_without_a_regularizer_refuse_every_penalty(name):
    """Theorems 7 and 8 are of R = 0: a penalty that they did not see would be a wrong claim."""
    program = penalized(LOSSES["squares"], PENALTIES[name], columns=P)()
    with pytest.raises(CalibrationError, match="cover no regularizer"):
        program.unconstrained()
    for method in ("renyi", "output"):
        options = {"calibration": method, "noise": "gaussian" if method == "renyi" else "gamma"}
        with pytest.raises(CalibrationError):
            PrivateTwoStageERM(DOMAIN, Budget(1.0, 1e-6), "uniform", program, **options).plan(
                100, P
            )
    automatic = PrivateTwoStageERM(
        DOMAIN, Budget(1.0, 1e-6), "uniform", program, calibration="auto"
    )
    assert "7" not in automatic.plan(100, P).theorem.split()


def test_a_program_for_so_many_columns_is_refused_at_others():
    with pytest.raises(DeclarationError, match=r"declared for 4 columns of records\.x, here are 3"):
        grouped().at(Universe(DOMAIN, N, 3))
    with pytest.raises(DeclarationError, match="columns = 0"):
        second_stage(columns=0)
    with pytest.raises(DeclarationError, match="coordinates"):
        second_stage(columns=2, coordinates=("a", "b"))


def test_a_quadratic_counts_its_errors():
    """Its gradient is within the stated rounding, and the eigenvalue below the true one."""
    rng = np.random.default_rng(4)
    worst = 0.0
    for _ in range(50):
        root = rng.normal(size=(P, P))
        v = rng.normal(size=P)
        quadratic = Quadratic(rng.normal(size=P), root @ root.T, 0.0, 0.0).times(1 / 3)
        exact = quadratic.linear.astype(np.longdouble) + quadratic.matrix.astype(np.longdouble) @ v
        off = float(np.linalg.norm((quadratic.gradient(v) - exact).astype(float)))
        worst = max(worst, off / quadratic.rounding(v))
        assert quadratic.strong_convexity <= float(np.linalg.eigvalsh(quadratic.matrix)[0])
    assert 1e-3 < worst <= 1.0
    flat = Quadratic(np.zeros(2), np.ones((2, 2)), 0.0, 1e-18)
    assert flat.strong_convexity == 0.0


def test_a_model_with_a_quadratic_has_the_derivatives_of_both():
    program = penalized(LOSSES["logistic"], SMOOTH["form"], columns=P)()
    model = program.instance(records(), **bound()).model
    assert isinstance(model, WithQuadratic)
    v, step = np.array([0.3, -0.2, 0.1, 0.4]), 1e-6
    for k in range(P):
        move = step * np.eye(P)[k]
        slope = (model.value(v + move) - model.value(v - move)) / (2 * step)
        assert slope == pytest.approx(model.gradient(v)[k], rel=1e-6, abs=1e-6)
        bend = (model.gradient(v + move) - model.gradient(v - move)) / (2 * step)
        np.testing.assert_allclose(bend, model.hessian(v)[k], rtol=1e-6, atol=1e-6)
    low, high = model.spectrum(v)
    eigenvalues = np.linalg.eigvalsh(model.hessian(v))
    assert (
        model.ridge
        <= low
        <= eigenvalues[0]
        <= eigenvalues[-1]
        <= high
        <= model.smoothness * (1 + 1e-9)
    )
    assert math.isfinite(model.rounding(v))
