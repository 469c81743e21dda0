"""Rules in experiments: theta has the law of a release, and settings are tuned as the pages say."""

import figure1
import numpy as np
import pytest
from rules import Constants, Trial, Weights, choose, draw_thetas, in_force, plan_rule

from dp2erm_cvx import Budget, PrivateTwoStageERM
from dp2erm_cvx.datasets import simulate

CONSTANTS = Constants(1.0, 2.0, arm_floor=0.25)
IPW = {"program": "ipw_logistic", "settings": {"ridge": 1.0, "radius": 1.0}}
UNTUNED = {"settings": {}, "constants": {}}
SMALL = figure1.FULL | figure1.VARIANTS["quick"] | {"scenarios": ["linear"], "replicates": 1, "n_test": 500}


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


def test_a_loss_of_bounded_slope_needs_less_noise_and_tuning_leaves_its_constants():
    for noise, theorem in (("gamma", "Theorem 15"), ("gaussian", "Theorem 16")):
        budget = Budget(0.5, 1 / 400 if noise == "gaussian" else 0.0)
        chosen = in_force(SMALL, "w = 1", "saturating", UNTUNED)
        assert chosen[1] == SMALL["saturating"]
        found = plan_rule(*chosen, "saturating", noise, budget, (400, 10))
        assert found.facts()["theorem"].startswith(theorem)
    assert found.facts()["split"] == 1.0
    tuning = {"bootstraps": 1, "candidates": {}, "constants": [{"covariate_bound": 0.5}]}
    design = SMALL | {"tuning": tuning, "epsilons": [1.0], "noises": ["gamma"]}
    sample = simulate("linear", 100, rng=0)
    assert choose(design, sample, "w = 1", "saturating")["constants"] == {}
    assert choose(design, sample, "w = 1", "sharp")["constants"] == {"covariate_bound": 0.5}


def test_families_that_do_not_apply_say_why():
    kernel = {"program": "mmd", "settings": {"ridge": 10.0}, "paper": {"cap": 2.0}}
    reason = plan_rule(kernel, Constants(1.0, 1.0), "sharp", "gamma", Budget(1.0), (100, 2))
    assert "arm" in reason
    kept = plan_rule(kernel, CONSTANTS, "paper", "gamma", Budget(1.0), (100, 2))
    assert kept.note == "neighbors keep their treatment"
    printed = plan_rule(IPW, CONSTANTS, "composition-printed", "gamma", Budget(1.0), (100, 2))
    assert printed.note == "not private as argued"


def test_rules_are_judged_as_they_would_be_applied():
    """Beside an intercept the shrinking of a record matters: a rule is judged on records that are shrunk."""
    sample = simulate("linear", 400, rng=3)
    test, constants = sample.dataset, Constants(1.2, 2.0, intercept=1.0)
    domain, theta = constants.domain(400), np.array([0.5, *test.X[0]])
    treated = constants.second_stage().resolve(domain).effect(theta, domain, test.X) > 0
    row = Trial(sample, sample, [1.0])._judged((theta[None], 1.0, True), constants)
    assert row["accuracy"] == np.mean(treated == sample.optimal_rule)
    unshrunk = np.column_stack([np.ones(400), test.X]) @ theta > 0
    assert np.mean(unshrunk != treated) > 0.02
