"""A release by every method, end to end: private, storable, and without noise the non-private fit."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.problems.arm_means import arm_means, plug_in_ate
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.known_weights import Uniform
from tests.plan.changed import changed, unproven


def data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    a = (rng.uniform(size=n) < special.expit(X[:, 0])).astype(int)
    return X, a, 0.5 * (2 * a - 1) * X[:, 1] + 0.1 * rng.normal(size=n)


DOMAIN = Domain(math.sqrt(2), 1.0, arm_floor=15)


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
        monkeypatch.setattr(model, "plan", lambda *_, result=one: result)
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
