"""The predicted range of the noise: in closed form, and against what releases do."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, TwoStageERM, registry
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.noise_range import noise_range, public_covariates
from dp2erm_cvx.program import Box
from dp2erm_cvx.universe import Universe


def test_noise_range_of_arm_means_in_closed_form():
    domain = Domain(covariate_bound=1.0, outcome_bound=2.0)
    second = registry.build(registry.second_stages(), "arm_means", theta_set=Box(1.0))
    model = PrivateTwoStageERM(domain, Budget(1.0), "uniform", second)
    calibration = model.plan(500, 3).theta.calibration
    found = noise_range(second, Universe(domain, 500, 3), calibration)
    b = simulate_noise(calibration, 200_000, np.random.default_rng(9))
    scale = 500 * (1 + calibration.gamma)
    np.testing.assert_allclose(found.half_width, np.quantile(np.abs(b), 0.95, axis=0) / scale, rtol=0.03)
    assert found.effect == pytest.approx(np.quantile(np.abs(b[:, 1] - b[:, 0]), 0.95) / scale, rel=0.03)
    assert found.shrinkage == pytest.approx(calibration.gamma / (1 + calibration.gamma))
    assert found.bound == 1.0


@pytest.mark.parametrize(
    ("program", "ranges"),
    [
        ("itr", ((0.0, 10.0), (-3.0, 5.0))),
        pytest.param("itr", None, marks=pytest.mark.slow),
        ("arm_means", None),
    ],
)
def test_noise_range_covers_what_releases_do(program, ranges):
    """On records like the assumed ones, 95 % of the releases fall in the range."""
    domain = Domain(covariate_bound=1.5, outcome_bound=1.0, ranges=ranges)
    rng = np.random.default_rng(4)
    n = 2000
    X = public_covariates(domain, 2, n, rng)
    a, y = np.arange(n) % 2, rng.uniform(-0.2, 0.2, n)
    second = registry.build(registry.second_stages(), program, theta_set=Box(50.0))
    plan = PrivateTwoStageERM(domain, Budget(4.0), "uniform", second).plan(n, 2)
    found = noise_range(second, Universe(domain, n, 2), plan.theta.calibration)
    plain = TwoStageERM(domain, "uniform", second, gamma=plan.theta.calibration.gamma).fit(X, a, y).theta_
    moved = np.array(
        [
            PrivateTwoStageERM(domain, Budget(4.0), "uniform", second, seed=seed).fit(X, a, y).theta_ - plain
            for seed in range(200)
        ]
    )
    inside = np.mean(np.abs(moved) <= found.half_width, axis=0)
    assert np.all((inside > 0.90) & (inside < 0.99)), inside
    assert not found.dominates


def test_dominates_compares_with_the_declared_bound():
    domain = Domain(covariate_bound=1.0, outcome_bound=2.0)
    second = registry.build(registry.second_stages(), "arm_means", theta_set=Box(1.0))
    for epsilon, expected in ((0.001, True), (100.0, False)):
        calibration = (
            PrivateTwoStageERM(domain, Budget(epsilon), "uniform", second).plan(500, 3).theta.calibration
        )
        found = noise_range(second, Universe(domain, 500, 3), calibration)
        assert found.dominates is expected
