"""The default split against a direct minimization of the predicted error."""

import dataclasses
import math

import pytest

from dp2erm_cvx.calibration import Noise, Objective, calibrate
from dp2erm_cvx.calibration.sharp import GRID
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, RowBox, StabilityBound

BOUND = StabilityBound(V=6.0, theorem="a test", assumptions=(), relations=frozenset(Neighboring), w_max=3.0)
BOX = RowBox((1.0, 0.5, 0.5, 0.5, 0.2), 7.0)


def predicted(loss, n, calibration):
    gamma, rho = calibration.gamma, loss.strong_convexity
    return (calibration.expected_noise / n + gamma * loss.theta_bound) ** 2 / (2 * (rho + 2 * gamma))


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("strong_convexity", [0.0, 0.3])
@pytest.mark.parametrize(("n", "epsilon"), [(400, 1.0), (10_000, 0.1), (50, 20.0)])
def test_default_is_the_best_share_of_the_grid(noise, strong_convexity, n, epsilon):
    loss = LossConstants(5, 10.0, 2.0, strong_convexity, 2.0, 1.0, box=BOX)
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
def test_over_all_coefficients_a_share_is_left_to_the_curvature(noise):
    loss = LossConstants(5, 10.0, 2.0, 0.0, None, 1.0, box=BOX)
    found = calibrate(Objective(BOUND, loss, 400), Budget(1.0, 1e-5), noise=noise)
    assert found.split == 0.85
    ridged = calibrate(
        Objective(BOUND, dataclasses.replace(loss, strong_convexity=1.0), 400), Budget(1.0, 1e-5)
    )
    jacobian = 5 * math.log1p(2.0 * 6.0 / (2 * 5 * 400 * 1.0))
    assert ridged.split == pytest.approx(1 - jacobian, abs=1e-6)


def test_split_is_respected():
    loss = LossConstants(5, 10.0, 2.0, 0.0, 2.0, 1.0)
    calibration = calibrate(Objective(BOUND, loss, 400), Budget(2.0), split=0.25)
    assert calibration.split == 0.25
    assert calibration.scale == pytest.approx(10.0 * 6.0 / 0.5)
