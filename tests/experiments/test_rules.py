"""Rules in experiments: theta has the law of a release, and settings are tuned as the pages say."""

import numpy as np
import pytest
from rules import Constants, Weights, draw_thetas, plan_rule

from dp2erm_cvx import Budget, PrivateTwoStageERM
from dp2erm_cvx.datasets import simulate

CONSTANTS = Constants(1.0, 2.0, arm_floor=0.25)
IPW = {"program": "ipw_logistic", "settings": {"ridge": 1.0, "radius": 1.0}}


@pytest.mark.parametrize(
    ("family", "noise"),
    [
        ("sharp", "gamma"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("sharp", "gaussian"), ("auto", "gaussian"), ("saturating", "gamma"))
        ),
    ],
)
def test_theta_has_the_law_of_a_release(family, noise):
    data, domain = simulate("linear", 120, rng=0).dataset, CONSTANTS.domain(120)
    budget = Budget(1.0, 1e-3 if noise == "gaussian" else 0.0)
    rule = plan_rule(IPW, CONSTANTS, family, noise, budget, (120, 10))
    weights = Weights(domain.records(data.X, data.a, data.y))
    many, _, _ = draw_thetas(rule, weights, 1000, np.random.default_rng(1))
    study, released = rule.plan.study, []
    how = {"calibration": study.calibration, "noise": noise, "arithmetic": "assumed"}
    for seed in range(40):
        model = PrivateTwoStageERM(domain, budget, study.first, study.second, seed=seed, **how)
        released.append(model.fit(data.X, data.a, data.y).theta_)
    assert model.plan(120, 10).main.calibration == rule.plan.main.calibration
    released = np.array(released)
    spread = many.std(axis=0) / np.sqrt(40)
    assert np.all(np.abs(released.mean(axis=0) - many.mean(axis=0)) < 4.5 * spread)
    assert np.all(np.abs(np.log(released.std(axis=0) / many.std(axis=0))) < 0.4)
