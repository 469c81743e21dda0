"""The default split against a direct minimization of the predicted error."""

import dataclasses
import math

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.calibration import Noise, Objective, calibrate
from dp2erm_cvx.calibration.objective import GRID
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, RowBox, StabilityBound
from dp2erm_cvx.problems.itr import itr, itr_huber
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe

BOUND = StabilityBound(V=6.0, theorem="a test", assumptions=(), relations=frozenset(Neighboring), w_max=3.0)
BOX = RowBox((1.0, 0.5, 0.5, 0.5, 0.2), 7.0)


def predicted(loss, n, calibration):
    """``rho/2`` times the squared distance by the noise and by the pull on a theta of usual size."""
    rho = loss.strong_convexity + loss.hessian_trace / loss.n_parameters
    usual = loss.outcome_bound * math.sqrt(2 / loss.hessian_trace) / 8
    pull = calibration.gamma * min(loss.theta_bound or math.inf, usual)
    return ((calibration.expected_noise / n) ** 2 + pull**2) / (2 * rho)


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("strong_convexity", [0.0, 0.3])
@pytest.mark.parametrize(("n", "epsilon"), [(400, 1.0), (10_000, 0.1), (50, 20.0)])
@pytest.mark.parametrize("size", [0.05, None])
def test_default_is_the_best_share_of_the_grid(noise, strong_convexity, n, epsilon, size):
    loss = LossConstants(5, 10.0, 2.0, strong_convexity, size, 1.0, box=BOX)
    budget = Budget(epsilon, 1e-5)
    chosen = calibrate(Objective(BOUND, loss, n), budget, noise=noise)
    costs = [
        predicted(loss, n, calibrate(Objective(BOUND, loss, n), budget, noise=noise, split=q))
        for q in GRID[::7]
    ]
    # the prediction inside uses a coarser grid of chi_p: equal within a tenth of a percent
    assert predicted(loss, n, chosen) <= min(costs) * 1.001


def test_a_ridge_that_suffices_leaves_epsilon_to_the_noise():
    loss = LossConstants(5, 10.0, 2.0, 10.0, 2.0, 1.0)
    calibration = calibrate(Objective(BOUND, loss, 10_000), Budget(1.0))
    jacobian = 5 * math.log1p(2.0 * 6.0 / (2 * 5 * 10_000 * 10.0))
    assert calibration.gamma == pytest.approx(1e-8 * 2.0, rel=1e-3)
    assert calibration.split == pytest.approx(1 - jacobian, abs=1e-6)
    assert calibration.split > 0.9999 * (1 - jacobian) > 0.999


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 10.0])
def test_over_all_coefficients_a_share_is_left_to_the_curvature(noise, epsilon):
    # Huber's loss of ten covariates: .9 to .97 served best in simulations
    box = RowBox((0.4,) * 10, 2.0)
    loss = LossConstants(10, 2.0, 2.0, 0.0, None, 2.0, box=box)
    found = calibrate(Objective(BOUND, loss, 4000), Budget(epsilon, 1e-5), noise=noise)
    assert 0.9 <= found.split <= 0.97
    ridged = dataclasses.replace(loss, strong_convexity=1.0)
    found = calibrate(Objective(BOUND, ridged, 4000), Budget(epsilon, 1e-5), noise=noise)
    jacobian = 10 * math.log1p(2.0 * 6.0 / (2 * 10 * 4000 * 1.0))
    assert found.split == pytest.approx(1 - jacobian / epsilon, abs=1e-6)


@pytest.mark.parametrize("rule", [itr_huber(theta_set=WholeSpace()), itr_huber(), itr()], ids=str)
@pytest.mark.parametrize("epsilon", [0.3, 5.0])
def test_no_declared_split_is_much_better_than_the_default(rule, epsilon):
    """Accuracy in the linear scenario, averaged over datasets and draws of the noise."""
    n, domain, test = 400, Domain(1.0, 2.0), simulate("linear", 2000, rng=1)
    stage, rows = rule.resolve(domain), domain.features(test.dataset.X)
    loss = stage.loss_constants(Universe(domain, n, 10))
    samples = [simulate("linear", n, rng=[2, k]).dataset for k in range(4)]
    records = [domain.records(data.X, data.a, data.y) for data in samples]

    def accuracy(split):
        uniform = dataclasses.replace(BOUND, V=2.0)
        found = calibrate(Objective(uniform, loss, n), Budget(epsilon), split=split)
        noises = simulate_noise(found, 4, np.random.default_rng(3))
        thetas = [
            solve(stage.instance(data, np.ones(n), gamma=found.gamma, noise=noise), throw=False).value
            for data in records
            for noise in noises
        ]
        return np.mean([test.accuracy(rows @ theta > 0) for theta in thetas])

    assert accuracy(None) > max(accuracy(split) for split in (0.5, 0.7, 0.85, 0.99)) - 0.02


def test_split_is_respected():
    loss = LossConstants(5, 10.0, 2.0, 0.0, 2.0, 1.0)
    calibration = calibrate(Objective(BOUND, loss, 400), Budget(2.0), split=0.25)
    assert calibration.split == 0.25
    assert calibration.scale == pytest.approx(10.0 * 6.0 / 0.5)
