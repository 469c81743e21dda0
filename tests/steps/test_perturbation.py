"""From records to theta: certification, one draw for every solver, and noise that covers the
arithmetic.
"""

import importlib
import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Release, Universe, read_release
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.errors import DeclarationError, SolverError
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.noise import Draw
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.problems.arm_means import plug_in_ate
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.itr import itr_logistic
from dp2erm_cvx.program import WholeSpace, scheme, second_stage
from dp2erm_cvx.solve import SCS, Clarabel, FirstCertified, Newton, ProjectedGradient, solve
from dp2erm_cvx.steps import step as module
from dp2erm_cvx.steps.fit import coefficient_bound
from tests.plan.changed import changed, unproven

DOMAIN = Domain(1.0, 2.0)


def data(n=150, p=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, p)), rng.integers(0, 2, n), rng.uniform(-2, 2, n)


def fitted(**changes):
    settings = {"first_stage": entropy_balancing(ridge=2.0), "second_stage": "itr", **changes}
    model = PrivateTwoStageERM(DOMAIN, Budget(1.0, 1e-4), **settings)
    return model.fit(*data(), conditional=True)


def one_treated(n=400, p=10):
    rng = np.random.default_rng(0)
    X, a = rng.uniform(-1, 1, (n, p)), np.zeros(n, dtype=int)
    a[np.argmax(X[:, 0])] = 1
    return X, a, rng.normal(size=n)


CHAIN = FirstCertified((Newton(max_iterations=99), ProjectedGradient()))


@pytest.mark.one_row_in(22)
@pytest.mark.parametrize(
    ("settings", "private"),
    [
        ({"first_stage": "mmd_pooled"}, True), ({"first_stage": "ipw_private", "noise": "gaussian"},
        True),
        *(({"first_stage": one, "calibration": "renyi"}, True) for one in ("ipw_logistic",
        "ipw_private")),
        ({"second_stage": "arm_means"}, True),
        ({"first_stage": "ipw_private", "second_stage": "plug_in_ate", "calibration": "output"},
        True),
        ({"first_stage": "uniform", "second_stage": "plug_in_ate", "calibration": "auto"}, True),
        *(({"solver": name}, True) for name in ("newton", "clarabel", "first_certified")),
        ({"second_stage": itr_logistic(L2Ball(2.0))}, True),
        # without a public radius, or by a solver that is not known to reach it on every dataset
        ({"second_stage": itr_logistic(WholeSpace())}, False),
        *(({"solver": one}, False) for one in (Newton(), Clarabel(), CHAIN)),
    ],
)  # fmt: skip
def test_the_standing_of_a_counted_release_is_that_of_public_settings(settings, private) -> None:
    model = fitted(**settings)
    release = model.release_
    assert model.private_workings_.certified()
    assert release.guarantee.standing is (Standing.PRIVATE if private else Standing.CONDITIONAL)
    assert any("not known to" in one for one in release.guarantee.assumptions) is not private
    step, composed = release.step("propensity"), settings.get("first_stage") == "ipw_private"
    assert (step is not None) == composed
    parts = (release.mechanism, step)[: 1 + composed]
    assert not private or all(one.numerical is not None for one in parts)
    theta, feasible = np.array(release.theta), model.resolved_second_stage().feasible(DOMAIN.space)
    assert np.allclose(feasible.project(theta), theta, rtol=1e-12)
    assert math.fsum(model.private_workings_.weights.value) == 150
    assert read_release(release.to_json(), Release) == release


def test_the_same_noise_meets_every_solver_of_the_list(monkeypatch) -> None:
    drawn = []
    sample = module.draw_within

    def counting(*args, **kwargs):
        drawn.append(sample(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr(module, "draw_within", counting)
    model = fitted(
        solver=FirstCertified(
            (Newton(max_iterations=0), SCS(max_iterations=3), Newton(), ProjectedGradient())
        )
    )
    assert model.release_.private
    assert len(drawn) == 1
    assert np.array_equal(drawn[0].value, model.private_workings_.noise)


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize(
    ("lengths", "distance", "private"),
    # noise too far from the ideal, and noise of any length: within the reach it certifies
    [(None, 1e-6, False), (1e2, 0.0, True), (1e3, 0.0, True), (1e9, 0.0, False)],
)
def test_any_noise_is_kept_and_what_is_not_covered_is_said(
    monkeypatch, lengths, distance, private
) -> None:
    sample = module.draw_within

    def drawn(calibration, error, *, seed=None):
        value = sample(calibration, error, seed=seed).value
        if lengths:
            value = np.full(calibration.n_parameters, -lengths * calibration.scale / math.sqrt(3))
        rounding = 2.0**-53 * float(np.linalg.norm(value))
        return Draw(value, error + rounding + distance * calibration.scale)

    monkeypatch.setattr(module, "draw_within", drawn)
    release = fitted().release_
    assert release.guarantee.standing is (Standing.PRIVATE if private else Standing.CONDITIONAL)
    assert np.linalg.norm(release.theta) <= 2.0 * (1 + 1e-12)


@pytest.mark.slow
def test_certification_does_not_depend_on_how_hard_the_data_are() -> None:
    # a single treated record certifies to 1e-6; one Newton step does not
    X, a, y = one_treated()
    domain = Domain(covariate_bound=math.sqrt(10), outcome_bound=1.0)
    model = PrivateTwoStageERM(domain, Budget(1.0), entropy_balancing(ridge=10.0), "arm_means")
    assert model.plan(400, 10).bound.V < 2 * 400
    assert model.fit(X, a, y).release_.private
    hasty = (
        model.set_params(solver=Newton(max_iterations=1)).fit(X, a, y, conditional=True).release_
    )
    assert hasty.guarantee.standing is Standing.CONDITIONAL
    assert any("1e-06" in assumption for assumption in hasty.guarantee.assumptions)


@pytest.mark.one_row_in(2)
@pytest.mark.filterwarnings("ignore:.*no solver found a solution:UserWarning")
@pytest.mark.parametrize("solver", [Clarabel(), SCS()])
def test_a_solver_without_a_point_makes_the_release_conditional(monkeypatch, solver) -> None:
    # whether a conic solver finds a point may depend on the records, so it must not decide about an
    # error
    def fails(*args, **kwargs):
        raise SolverError("no point")

    monkeypatch.setattr(
        importlib.import_module("dp2erm_cvx.solve.solving"), "solved_by_cvxpy", fails
    )
    for settings in ({}, {"first_stage": "ipw_private"}, {"arithmetic": "assumed"}):
        release = fitted(solver=solver, **settings).release_
        assert release.guarantee.standing is Standing.CONDITIONAL
        assert all(map(math.isfinite, release.theta))
    # a name stands for the solver, then those that certify by design
    assert fitted(solver=solver.name).release_.private


def test_an_unknown_solver_and_an_unreachable_tolerance_are_refused_before_anything_is_drawn() -> (
    None
):
    with pytest.raises(SolverError, match="unknown solver"):
        fitted(solver="simplex")
    for tolerance in (1e-15, 1e-5):
        with pytest.raises(DeclarationError, match="from 1e-08 to 1e-06"):
            fitted(tolerance=tolerance)


def test_weights_of_a_private_coefficient_without_bound_are_covered_whatever_it_is() -> None:
    """The noise that hides its arithmetic may be so large that weights at it round: V is then
    2n.
    """
    free = ipw_private(radius=math.inf)
    exact = free.stability(Universe(DOMAIN, 150, 2)).V
    for share, V in ((0.005, pytest.approx(exact, rel=1e-3)), (1e-25, 2 * 150)):
        model = PrivateTwoStageERM(DOMAIN, Budget(1.0, 1e-4), free, numerical_share=share)
        assert model.plan(150, 3).bound.V == V
        for _ in range(5):
            assert model.fit(*data()).release_.private
    assert not model.private_workings_.weights.certified


def test_a_coefficient_whose_loss_falls_below_0_is_within_its_stated_norm() -> None:
    @scheme.separable(ridge=0.01, radius=2.0)
    def leaning(s):
        return cp.logistic(-s) - 0.3 * s, cp.minimum(-s, 0.0)

    program = leaning(ridge=0.001, radius=math.inf).private().resolve(DOMAIN.space)
    alike = DOMAIN.records(np.ones((50, 1)), np.ones(50, dtype=int), np.zeros(50))
    result = solve(program.perturbed(alike, 0.0, np.zeros(1))).point
    assert (
        299.0
        < abs(result[0])
        <= program.loss_constants(Universe(DOMAIN, 50, 1)).theta_bound
        < 301.0
    )


def test_no_certificate_is_needed_where_the_bound_covers_all_weights(monkeypatch) -> None:
    solves = importlib.import_module("dp2erm_cvx.solve.solving")
    # which does not get there in any number of iterations
    by_gradient = solves.minimize_by_gradient
    monkeypatch.setattr(solves, "minimize_by_gradient", lambda *args: by_gradient(*args[:2], 50))
    X, a, y = one_treated(60, 3)
    domain = Domain(covariate_bound=math.sqrt(3), outcome_bound=1.0)
    balanced = entropy_balancing(ridge=1e-9, cap=math.inf)
    model = PrivateTwoStageERM(domain, Budget(1.0), balanced, "arm_means", tolerance=1e-8)
    assert model.plan(60, 3).bound.V == 2 * 60
    release = model.fit(X, a, y).release_
    assert release.private
    assert not any("exact minimizer" in assumption for assumption in release.guarantee.assumptions)
    assert not model.private_workings_.weights.certified


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    "settings",
    [{}, {"first_stage": "ipw_private"}, {"second_stage": "plug_in_ate", "calibration": "output"}],
)
def test_seeded_runs_repeat_every_draw_and_no_two_draws_are_linked(settings) -> None:
    first, second, third = (fitted(seed=seed, **settings) for seed in (3, 3, 4))
    assert first.release_ == second.release_
    assert not first.release_.private
    noises = []
    for workings in (first.private_workings_, third.private_workings_):
        noises += (
            [workings.noise]
            if workings.propensity is None
            else [workings.noise, workings.propensity.noise]
        )
    directions = np.array([noise / np.linalg.norm(noise) for noise in noises if len(noise) > 1])
    assert (
        directions.size == 0
        or np.max(np.abs(directions @ directions.T) - np.eye(len(directions))) < 1 - 1e-9
    )
    assert first.release_.theta != third.release_.theta


def test_output_perturbation_adds_laplace_noise_to_the_weighted_mean() -> None:
    model = fitted(first_stage="uniform", second_stage="plug_in_ate", calibration="output")
    _, a, y = data()
    noise, expected = model.private_workings_.noise[0], float(np.mean(2 * (2 * a - 1) * y))
    assert model.theta_[0] == pytest.approx(np.clip(expected + noise, -4, 4), abs=1e-7)
    # V = 2 and twice the error of computed weights
    V = 2.0 + 2 * model.tolerance * 150
    assert model.release_.mechanism.scale == pytest.approx(2 * 2.0 * V / 150 / 1.0, rel=1e-9)
    assert model.release_.mechanism.perturbed == "output"


def test_a_plan_that_is_not_proven_is_never_released_as_private(monkeypatch) -> None:
    model = PrivateTwoStageERM(DOMAIN, Budget(1.0), "uniform", "arm_means")
    proven = model.plan(150, 3)
    stated = changed(proven, calibration=replace(proven.main.calibration, private=False))
    for one in (unproven(proven), stated):
        monkeypatch.setattr(model, "plan", lambda *_, result=one: result)
        release = model.fit(*data(), conditional=True).release_
        assert not release.private
        assert "not proven" in release.guarantee.standing


def test_every_released_vector_of_a_counted_fit_meets_its_own_grid_noise(monkeypatch) -> None:
    # the coefficient of a private first stage too: weights are computed from what was released of
    # it
    met = []
    perturb_on_grid = module.perturb_on_grid

    def seen(values, noise, *, seed=None):
        met.append((noise, perturb_on_grid(values, noise, seed=seed)))
        return met[-1][1]

    monkeypatch.setattr(module, "perturb_on_grid", seen)
    model = fitted(first_stage="ipw_private", numerical_share=1e-9)
    plan = model.plan(150, 3)
    assert [noise for noise, _ in met] == [
        plan.step("propensity").precision.grid,
        plan.main.precision.grid,
    ]
    first, workings = model.resolved_first_stage(), model.private_workings_
    # noise so large leaves the ball once in a hundred times
    released = L2Ball(first.radius).project(met[0][1])
    assert np.allclose(workings.weights.point, released, rtol=1e-12)
    # a tiny share makes this noise large: weights at the minimizer itself would be far off
    gamma = plan.step("propensity").calibration.gamma
    instance = first.perturbed(workings.records, gamma, workings.propensity.noise)
    assert np.allclose(workings.weights.value, instance.model.output(released), atol=1e-6)
    assert np.max(np.abs(workings.weights.value - solve(instance, throw=False).value)) > 1e-3
    assert model.release_.private


def test_theorem_8_goes_by_the_bound_on_the_response() -> None:
    # a mean of a larger response needs larger noise, whatever the outcome bound is
    @second_stage(coordinates=("effect",))
    def tenfold(theta, records):
        """The mean of ten times the response."""
        loss = cp.sum_squares(records.ones @ theta - 10 * records.response)
        return cp.Problem(cp.Minimize(loss), [cp.abs(theta) <= 2 * records.outcome_bound])

    for method in ("output", "auto"):
        plain = fitted(second_stage=plug_in_ate(), calibration=method, first_stage="uniform").plan(
            150, 3
        )
        large = fitted(second_stage=tenfold(), calibration=method, first_stage="uniform").plan(
            150, 3
        )
        assert large.main.calibration.scale == pytest.approx(10 * plain.main.calibration.scale)
        grids = [result.main.precision.grid for result in (large, plain)]
        assert grids[0].scale == pytest.approx(10 * grids[1].scale, rel=0.01)


def test_theta_is_certified_only_where_its_weights_are() -> None:
    model, (X, a, y) = fitted(), data()
    step, records = model.plan(150, 3).main, DOMAIN.records(X, a, y)
    weights = solve(entropy_balancing(ridge=2.0).resolve(DOMAIN.space).instance(records))
    wrong = replace(weights, tolerance=0.0)  # no certificate is as good as that
    dataset, execution = Dataset.from_arrays(X, a, y), module.Execution("newton", 1e-6, seed=1)
    results = [
        step.run(module.Inputs(dataset, records, one), {}, execution) for one in (weights, wrong)
    ]
    assert [one.certified for one in results] == [True, False]


def test_the_bound_on_a_private_coefficient_counts_both_of_its_noises() -> None:
    step = next(
        s for s in fitted(first_stage="ipw_private").plan(150, 3).steps if s.name == "propensity"
    )
    calibration, loss, grid = step.calibration, step.loss, step.precision.grid
    curvature = 150 * (loss.strong_convexity + calibration.gamma)
    linear = [np.linalg.norm(module.draw(calibration, seed=seed)) / curvature for seed in range(99)]
    added = [np.linalg.norm(step.precision.on_grid(np.zeros(3), seed)) for seed in range(99)]
    without = coefficient_bound(calibration, loss, 150, None)
    assert loss.theta_bound + max(linear) < without
    assert 0.0 < max(added) < coefficient_bound(calibration, loss, 150, grid) - without
