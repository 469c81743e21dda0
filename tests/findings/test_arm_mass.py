"""Arm sums of n_a bias the regression of 2Y(2A-1) where the arms differ in size."""

import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx import Domain, TwoStageERM
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.itr import itr


def study(n, seed, mean):
    """The linear scenario with about a quarter treated and ``mean`` added to every outcome."""
    drawn = simulate("linear", n, rng=seed)
    rng = np.random.default_rng(seed + 1000)
    X = drawn.dataset.X
    a = (rng.uniform(size=n) < expit(0.3 * X[:, 0] - 0.5 * X[:, 1] - 1.05)).astype(np.int64)
    y = mean + drawn.main_effect + (a - 0.5) * drawn.contrast + np.sqrt(2) * rng.standard_normal(n)
    return X, a, y


def accuracy(arm_mass, mean):
    test = simulate("linear", 4000, rng=99)
    domain = Domain(np.sqrt(11.0), 60.0, intercept=1.0)
    first = EntropyBalancing(ridge=0.1, arm_mass=arm_mass)
    found = []
    for seed in range(5):
        X, a, y = study(2000, seed, mean)
        model = TwoStageERM(domain, first, itr(theta_set=L2Ball(100.0))).fit(X, a, y)
        found.append(test.accuracy(model.predict(test.dataset.X)))
    return float(np.mean(found)), float(np.mean(a))


@pytest.mark.parametrize(("mean", "found"), [(5.0, 0.785), (20.0, 0.515)])
def test_equal_arm_mass_finds_the_rule_and_proportional_does_not(mean, found):
    proportional, treated = accuracy("proportional", mean)
    equal, _ = accuracy("equal", mean)
    assert 0.2 < treated < 0.3
    assert proportional == pytest.approx(found, abs=0.03)
    assert equal > 0.90
