"""Audits of complete releases: output perturbation, and a private first stage with what follows it."""

import math

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.problems.arm_means import PlugInATE
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.solve import solve
from tests.audit.pairs import aligned, heavy, lone, neighbors

N = 6
DOMAIN = Domain(1.0, 1.0)
MEAN = PlugInATE(WholeSpace())
KINDS = (neighbors, aligned, lone, heavy)


def release(first, second=MEAN, epsilon=1.0, delta=0.0, **settings):
    return PrivateTwoStageERM(DOMAIN, Budget(epsilon, delta), first, second, **settings)


def effects(data):
    return 2 * (2 * data[1] - 1) * data[2]


# output perturbation


@pytest.mark.parametrize(
    "first", [Uniform(), ipw_logistic(), EntropyBalancing()], ids=lambda stage: stage.name
)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_of_a_mean_is_its_shift_over_the_scale(first, kind):
    pair = kind(np.random.default_rng(3), N)
    model = release(first, calibration="output")
    means = [
        solve(first.instance(DOMAIN.records(*data)), tolerance=1e-6).value @ effects(data) / N
        for data in pair
    ]
    found = audit_density(model, *pair, starts=1)
    expected = abs(means[0] - means[1]) / model.plan(N, 2).theta.calibration.scale
    assert found.loss == pytest.approx(expected, abs=2e-6)
    assert found.theta_loss == found.loss <= found.epsilon <= 1.0
    assert found.numerical_error < 1e-6
    assert list(found.outputs) == ["theta"]


def test_the_law_of_a_mean_is_that_of_the_fit():
    pair = neighbors(np.random.default_rng(7), N)
    model = release(EntropyBalancing(), calibration="output", seed=1).fit(*pair[0])
    _, (law, _) = audited_laws(model, pair)
    center = law.given["theta"]({}).center
    np.testing.assert_allclose(center, model.private_workings_.theta.value, rtol=1e-9)


# a private first stage


LINE = ipw_private(share=0.4, ridge=0.05, trim=2.5, radius=math.inf)


def log_density(data, plan, lam, theta):
    """Log density of (coefficient, theta), both of one dimension, less a constant common to all data."""
    X, a, _ = data
    z = (2 * a - 1) * X[:, 0]
    ridge = N * (LINE.ridge + plan.propensity.calibration.gamma)
    s = z * lam
    b = special.expit(-s) @ z - ridge * lam
    slope = (special.expit(s) * special.expit(-s)) @ z**2 + ridge
    f = np.minimum(1 + np.exp(-s), LINE.trim)
    pull = N * (2 * (theta - f / f.sum() @ effects(data)) + plan.theta.calibration.gamma * theta)
    return (
        math.log(slope)
        - abs(b) / plan.propensity.calibration.scale
        - abs(pull) / plan.theta.calibration.scale
    )


@pytest.mark.parametrize(
    "kind", [neighbors, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (aligned, lone)), heavy]
)
def test_the_joint_loss_is_that_of_the_closed_form(kind):
    pair = kind(np.random.default_rng(2), N, 1)
    model = release(LINE)
    plan = model.plan(N, 1)
    found = audit_density(model, *pair, starts=1)

    def loss(lam, theta):
        one, other = (log_density(data, plan, lam, theta) for data in pair)
        return one - other

    side = 1 if found.direction == "first over second" else -1
    assert found.loss == pytest.approx(
        side * loss(*found.outputs["propensity"], *found.outputs["theta"]), abs=1e-8
    )
    grid = [t for k in range(-3, 3) for t in (10.0**k, -(10.0**k), 3 * 10.0**k, -3 * 10.0**k)]
    assert max(abs(loss(lam, theta)) for lam in grid for theta in grid) <= found.loss + 1e-6
    assert found.loss <= found.epsilon <= 1.0
    assert found.theta_loss == -math.inf
    assert not found.exceeds
    assert not found.theta_exceeds


def test_the_joint_density_integrates_to_one():
    pair = neighbors(np.random.default_rng(5), N, 1)
    model = release(LINE)
    plan, (law, _) = audited_laws(model, pair)
    axes = [np.linspace(-18 * unit, 16 * unit, 121) for unit in law.units]
    total = sum(
        math.exp(law.log_density(law.place(np.array([lam, theta])))) for lam in axes[0] for theta in axes[1]
    )
    total *= math.prod(axis[1] - axis[0] for axis in axes)
    assert total == pytest.approx(
        4 * plan.propensity.calibration.scale * plan.theta.calibration.scale, rel=0.02
    )


@pytest.mark.parametrize("second", ["itr", "arm_means"])
def test_the_joint_law_is_that_of_the_fit(second):
    first = ipw_private(radius=1.0)
    pair = neighbors(np.random.default_rng(7), N)
    for seed in range(3):
        model = release(first, second, seed=seed, arithmetic="assumed").fit(*pair[0])
        _, (law, _) = audited_laws(model, pair)
        workings = model.private_workings_
        propensity = law.given["propensity"]({})
        u = propensity.at_noise(workings.propensity.noise)
        coefficient = propensity.place(u).theta
        np.testing.assert_allclose(coefficient, workings.weights.point, rtol=1e-6, atol=1e-8)
        given = law.given["theta"]({"propensity": coefficient}).at_noise(workings.noise)
        outputs = law.place(np.concatenate([u, given]))
        np.testing.assert_allclose(outputs["theta"].theta, model.theta_, rtol=1e-6, atol=1e-7)


def test_the_joint_law_nearly_spends_the_budget():
    found = audit_density(release(LINE), *heavy(np.random.default_rng(0), 4, 1), starts=1)
    assert 0.7 < found.loss <= found.epsilon


def test_gaussian_noise_in_either_stage_is_sampled():
    pair = heavy(np.random.default_rng(0), N, 1)
    for settings in ({"noise": "gaussian"}, {"calibration": "renyi"}):
        found = audit_density(release(LINE, delta=0.05, **settings), *pair, draws=100)
        assert found.hockey_stick.low <= found.delta <= 0.05
        assert not found.exceeds
        assert len(found.outputs["propensity"]) == 1


# two hundred complete releases


def pair_and_model(seed):
    rng = np.random.default_rng(1000 + seed)
    trimmed, capped = (
        ipw_private(ridge=0.05, trim=2.5),
        ipw_private(share=0.5, ridge=0.02, radius=1.5),
    )
    first = (Uniform(), ipw_logistic(), EntropyBalancing(), trimmed, capped)[seed % 5]
    output = seed % 3 == 0
    second = MEAN if output else ("plug_in_ate", "arm_means", "itr")[rng.integers(3)]
    method = {"calibration": "output"} if output else {}
    model = release(first, second, float(10 ** rng.uniform(-1, 1)), **method)
    return model, KINDS[rng.integers(4)](rng, int(rng.integers(4, 30)), int(rng.integers(1, 3)))


def check(seeds):
    losses = []
    for seed in seeds:
        model, pair = pair_and_model(seed)
        found = audit_density(model, *pair, seed=seed, starts=2)
        assert found.loss <= found.epsilon <= model.budget.epsilon, (seed, found)
        losses.append(found.loss / found.epsilon)
    return losses


def test_a_few_complete_releases():
    assert max(check(range(5))) > 0.2


@pytest.mark.slow
def test_two_hundred_complete_releases():
    losses = check(range(200))
    print(f"loss over epsilon: median {np.median(losses):.3f}, largest {max(losses):.3f}")
    assert max(losses) > 0.8
