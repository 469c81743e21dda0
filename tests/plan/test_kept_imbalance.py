"""What the weights will not do, predicted without data."""

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.plan.predict import kept_imbalance
from dp2erm_cvx.problems.arm_means import arm_means
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)


def kept(first, n=1000, epsilon=1.0):
    return kept_imbalance(make_plan(Study(first, arm_means(), Universe(DOMAIN, n, 3), Budget(epsilon))))


def test_a_ridge_decides_how_much_stays():
    for scheme in (EntropyBalancing, ipw_logistic):
        shares = [kept(scheme(ridge=ridge)) for ridge in (1e-6, 0.1, 10.0, 1e5)]
        assert shares == sorted(shares)
        assert shares[0] < 0.25
        assert shares[-1] == pytest.approx(1.0, abs=1e-3)
    assert kept(Uniform()) == 1.0


def test_noise_in_a_propensity_leaves_an_imbalance_of_its_own():
    many, few = (kept(ipw_private(ridge=1e-3), n) for n in (100_000, 300))
    assert many < 0.3 < 0.5 < few


def test_a_release_says_it_and_warns():
    rng = np.random.default_rng(0)
    X, a = rng.uniform(-0.7, 0.7, (200, 2)), rng.integers(0, 2, 200)
    for ridge, warned in ((1e-3, False), (2.0, True)):
        model = PrivateTwoStageERM(DOMAIN, Budget(1.0), ipw_logistic(ridge=ridge), arm_means())
        release = model.fit(X, a, X[:, 0]).release_
        text = " ".join(release.summary().split())
        assert f"About {100 * release.kept_imbalance:.0f} % of the difference between the arms" in text
        assert ("The weights hardly balance" in text) is warned
        assert type(release).from_json(release.to_json()) == release
