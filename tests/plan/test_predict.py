"""What is predicted without data: what rules and weights leave of a confounder, how far noise
reaches.
"""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateRule, PrivateTwoStageERM, TwoStageERM, Universe
from dp2erm_cvx.data.domain_file import domain_of
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.noise import simulate_noise
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.plan.predict import (
    DIFFERENCE,
    MISSING,
    noise_range,
    public_covariates,
    residual_bias,
    residual_imbalance,
)
from dp2erm_cvx.problems.arm_means import arm_means
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.program import Box, registry

DOMAIN, NARROW = (Domain(covariate_bound=1.5, outcome_bound=bound) for bound in (12.0, 4.0))


def rule(n, epsilon=1.0, **settings):
    model = PrivateRule(DOMAIN, Budget(epsilon), outcome_scale=2.0, settings=settings)
    return residual_bias(model.plan(n, 2))


def confounded(n, seed):
    """A covariate well inside the domain, apart by the declared difference, that moves the outcome
    by 2.
    """
    rng = np.random.default_rng(seed)
    a, z = np.arange(n) % 2, rng.standard_normal(n)
    z += DIFFERENCE * (a - 0.5)
    X = np.column_stack([0.25 * z, 0.25 * rng.standard_normal(n)])
    return X, a, 2.0 * (z + rng.standard_normal(n))


def test_the_prediction_is_what_fits_leave():
    """Whole fits with their noise, of which the prediction knows n and public guesses alone."""
    model, effects = PrivateRule(DOMAIN, Budget(1.0), outcome_scale=2.0, arithmetic="assumed"), []
    for seed in range(40):
        X, a, y = confounded(400, seed)
        constant, *slopes = model.set_params(seed=seed).fit(X, a, y).release_.theta
        effects.append(constant + np.mean(X @ np.array(slopes)))
    stays = np.mean(effects) / (2.0 * DIFFERENCE)
    error = np.std(effects) / np.sqrt(len(effects)) / (2.0 * DIFFERENCE)
    assert stays == pytest.approx(rule(400), abs=3.0 * error + 0.05)
    assert error < 0.08 < 0.2 < stays
    assert rule(60) > 0.3 > 0.05 > rule(100_000)
    assert rule(400, propensity=[0.1, 0.2, 0.3]) is None  # nothing is confounded


def kept(first, n=1000, epsilon=1.0):
    return residual_imbalance(
        make_plan(Study(first, arm_means(), Universe(NARROW, n, 3), Budget(epsilon)))
    )


def test_what_cannot_be_predicted_fails_no_release(monkeypatch):
    def refused(*_):
        raise DeclarationError("no such records")

    plan = make_plan(Study(Uniform(), arm_means(), Universe(Domain(1.5, 7.0), 100, 2), Budget(1.0)))
    monkeypatch.setattr(Domain, "records", refused)
    assert residual_imbalance(plan) is None


@pytest.mark.slow
def test_a_ridge_and_noise_in_a_propensity_decide_how_much_stays():
    for scheme in (entropy_balancing, ipw_logistic):
        shares = [kept(scheme(ridge=ridge)) for ridge in (1e-6, 0.1, 1e5)]
        assert shares == sorted(shares)
        assert shares[0] < 0.25
        assert shares[-1] == pytest.approx(1.0, abs=1e-3)
    assert kept(Uniform()) == 1.0
    many, few = (kept(ipw_private(ridge=1e-3), n) for n in (100_000, 300))
    assert many < 0.3 < 0.5 < few


def test_noise_range_of_arm_means_in_closed_form():
    domain = Domain(covariate_bound=1.0, outcome_bound=2.0)
    second = registry.build(registry.second_stages(), "arm_means", theta_set=Box(1.0))
    model = PrivateTwoStageERM(domain, Budget(1.0), "uniform", second)
    calibration = model.plan(500, 3).main.calibration
    result = noise_range(second, Universe(domain, 500, 3), calibration)
    b = simulate_noise(calibration, 200_000, np.random.default_rng(9))
    scale = 500 * (1 + calibration.gamma)
    np.testing.assert_allclose(
        result.half_width, np.quantile(np.abs(b), 0.95, axis=0) / scale, rtol=0.03
    )
    assert result.effect == pytest.approx(
        np.quantile(np.abs(b[:, 1] - b[:, 0]), 0.95) / scale, rel=0.03
    )
    assert result.shrinkage == pytest.approx(calibration.gamma / (1 + calibration.gamma))
    assert result.bound == 1.0


def test_noise_range_covers_what_releases_do():
    """On records like the assumed ones, 95 % of the releases fall in the range."""
    domain, n = (
        Domain(covariate_bound=1.5, outcome_bound=1.0, ranges=((0.0, 10.0), (-3.0, 5.0))),
        2000,
    )
    rng = np.random.default_rng(4)
    X = public_covariates(domain, 2, n, rng)
    data = X, np.arange(n) % 2, rng.uniform(-0.2, 0.2, n)
    second = registry.build(registry.second_stages(), "itr", theta_set=Box(50.0))
    model = PrivateTwoStageERM(domain, Budget(4.0), "uniform", second)
    calibration = model.plan(n, 2).main.calibration
    result = noise_range(second, Universe(domain, n, 2), calibration)
    plain = TwoStageERM(domain, "uniform", second, gamma=calibration.gamma).fit(*data).theta_
    moved = np.array([model.set_params(seed=seed).fit(*data).theta_ - plain for seed in range(100)])
    inside = np.mean(np.abs(moved) <= result.half_width, axis=0)
    # three standard errors on both sides, of 100 releases
    assert np.all((inside > 0.88) & (inside < 1.0)), inside
    assert not result.dominates


def test_public_covariates_of_a_codebook_are_levels_and_gaps():
    ranges, levels = {"age": [30, 80], "dose": [0, 10]}, {"region": ["N", "S", "W"]}
    domain = domain_of(
        {"outcome_bound": 1.0, "ranges": ranges, "levels": levels, "missing": {"dose": 2.0}}
    )
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
