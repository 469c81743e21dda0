"""A release by every method, end to end: private, storable, and without noise the non-private fit."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Release, TwoStageERM
from dp2erm_cvx.calibration import RenyiCalibration
from dp2erm_cvx.problems.arm_means import arm_means, plug_in_ate
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.mmd import MMD, PooledMMD
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.program import WholeSpace
from tests.plan.changed import changed, unproven


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    a = (rng.uniform(size=n) < special.expit(X[:, 0])).astype(int)
    return X, a, 0.5 * (2 * a - 1) * X[:, 1] + 0.1 * rng.normal(size=n)


DOMAIN = Domain(math.sqrt(2), 1.0, arm_floor=15)
BIG = Budget(1e5, 0.5)
SMALL = EntropyBalancing(ridge=0.2, radius=0.5, scaling="paper", arm_mass="proportional")


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        ("sharp", MMD(ridge=1.0), itr()),
        ("sharp", ipw_private(radius=1.0), itr()),
        ("paper", SMALL, arm_means()),
        ("paper-corrected", SMALL, itr()),
        ("renyi", PooledMMD(ridge=1.0), itr()),
        ("renyi", ipw_private(radius=1.0), arm_means()),
        ("output", ipw_logistic(ridge=0.2), plug_in_ate()),
        ("output", ipw_private(radius=1.0), plug_in_ate()),
        ("auto", EntropyBalancing(), plug_in_ate()),
        ("auto", EntropyBalancing(), itr()),
    ],
    ids=lambda v: v if isinstance(v, str) else v.name,
)
def test_end_to_end(method, first, second):
    """A private release that survives JSON; with no noise left it is the non-private fit."""
    model = PrivateTwoStageERM(DOMAIN, Budget(1.0, 1e-3), first, second, calibration=method).fit(*data())
    release = model.release_
    assert release.private
    assert Release.from_json(release.to_json()) == release
    assert release.guarantee.epsilon <= 1.0
    assert release.guarantee.delta <= 1e-3
    assert (release.step("propensity") is None) == (first.name != "ipw_private")
    feasible = second.feasible(DOMAIN)
    np.testing.assert_allclose(feasible.project(model.theta_), model.theta_, atol=1e-9)

    # the paper's Gamma noise is linear in 1/epsilon, so that any method needs but a large epsilon
    plain = TwoStageERM(DOMAIN, first, second, gamma=1e-7).fit(*data()).theta_
    rich = PrivateTwoStageERM(DOMAIN, BIG, first, second, calibration=method, seed=0).fit(*data()).theta_
    if not isinstance(model.plan(60, 2).main.calibration, RenyiCalibration):
        np.testing.assert_allclose(rich, plain, atol=5e-3)
    else:  # tau limits gamma from below: compare with the same ridge
        gamma = model.set_params(budget=BIG).plan(60, 2).main.calibration.gamma
        kept = dataclasses.replace(second, theta_set=WholeSpace())
        plain = TwoStageERM(DOMAIN, first, kept, gamma=gamma).fit(*data()).theta_
        np.testing.assert_allclose(rich, feasible.project(plain), atol=2e-2)
    assert isinstance(release.theta[0], float)


def test_output_perturbation_adds_laplace_noise_to_the_weighted_mean():
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), Uniform(), plug_in_ate(), calibration="output", seed=5)
    model.fit(*data())
    _, a, y = data()
    mean = float(np.mean(2 * (2 * a - 1) * np.clip(y, -1, 1)))
    noise = model.private_workings_.noise[0]
    assert model.theta_[0] == pytest.approx(np.clip(mean + noise, -2, 2), abs=1e-7)
    # V = 2 and twice the error of computed weights
    V = 2.0 + 2 * model.tolerance * 60
    assert model.release_.mechanism.scale == pytest.approx(2 * 1.0 * V / 60 / 2.0, rel=1e-9)
    assert model.release_.mechanism.perturbed == "output"


def test_a_plan_that_is_not_proven_is_never_released_as_private(monkeypatch):
    rng = np.random.default_rng(0)
    X, a, y = rng.uniform(-1, 1, (60, 2)), rng.integers(0, 2, 60), rng.uniform(-1, 1, 60)
    model = PrivateTwoStageERM(Domain(1.5, 1.0), Budget(1.0), Uniform(), arm_means())
    proven = model.plan(60, 2)
    for one in (
        unproven(proven),
        changed(proven, calibration=dataclasses.replace(proven.main.calibration, private=False)),
    ):
        monkeypatch.setattr(model, "plan", lambda *_, found=one: found)
        release = model.fit(X, a, y).release_
        assert not release.private
        assert "not proven" in release.guarantee.standing


def test_seeds_do_not_link_the_noise_of_the_two_stages():
    rng = np.random.default_rng(1)
    X, a, y = rng.uniform(-1, 1, (60, 2)), rng.integers(0, 2, 60), rng.uniform(-1, 1, 60)
    noises = []
    for seed in range(4):
        model = PrivateTwoStageERM(Domain(1.5, 1.0), Budget(1.0), ipw_private(), arm_means(), seed=seed)
        workings = model.fit(X, a, y).private_workings_
        noises += [workings.noise, workings.propensity.noise]
    directions = np.array([noise / np.linalg.norm(noise) for noise in noises])
    overlap = np.abs(directions @ directions.T) - np.eye(len(noises))
    assert np.max(overlap) < 1 - 1e-9
