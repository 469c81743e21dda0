"""The predicted range of the noise: in closed form, and against what releases do."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, TwoStageERM, registry
from dp2erm_cvx.domain_file import domain_of
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.predict import MISSING, noise_range, public_covariates
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


def test_public_covariates_of_a_codebook_are_levels_and_gaps():
    declared = {
        "outcome_bound": 1.0,
        "ranges": {"age": [30, 80], "dose": [0, 10]},
        "levels": {"region": ["N", "S", "W"]},
        "missing": {"dose": 2.0},
    }
    domain = domain_of(declared)
    assert domain.columns == ("age", "dose", "dose=missing", "region=N", "region=S", "region=W")
    X = public_covariates(domain, 6, 20_000, np.random.default_rng(0))
    assert np.all(X[:, 3:].sum(axis=1) == 1.0)
    assert X[:, 3:].mean(axis=0) == pytest.approx(1 / 3, abs=0.02)
    gaps = X[:, 2] == 1.0
    assert gaps.mean() == pytest.approx(MISSING, abs=0.01)
    assert np.all(X[gaps, 1] == 2.0)
    assert X[:, 0].std() == pytest.approx(25 / 3, rel=0.03)
    chosen = domain.restricted([0, 2])  # an indicator without its number
    assert public_covariates(chosen, 2, 100, np.random.default_rng(0)).shape == (100, 2)
