"""``--plan N`` of the commands that release: the plan of the release that follows, without its data."""

import json

import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM, registry
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.plan.predict import noise_range
from tests.command_line import EFFECT, FIT, done, refused, run

DECLARED = ["--covariate-bound", "2", "--outcome-bound", "10", "--covariates", "x1", "--epsilon", "2"]
IPW = ["fit", *DECLARED, "--program", "ipw_logistic", "--second-stage", "arm_means"]


def planned(*words):
    result = done(*words, "--json")
    return json.loads(result.stdout)


def test_a_plan_is_what_the_estimator_plans():
    told = planned(*IPW, "--plan", "900", "--ridge", "0.5")
    domain = Domain(2.0, 10.0)
    first = registry.build(registry.first_stages(), "ipw_logistic", ridge=0.5)
    plan = PrivateTwoStageERM(domain, Budget(2.0), first, "arm_means").plan(900, 1)
    assert (told["n_samples"], told["predicted"]["V"]) == (900, plan.bound.V)
    second = registry.build(registry.second_stages(), "arm_means").resolve(domain)
    moved = noise_range(second, Universe(domain, 900, 1), plan.main.calibration)
    assert told["predicted"]["noise_half_width"] == pytest.approx(moved.effect, rel=1e-2)
    assert told["predicted"]["shrinkage"] == pytest.approx(moved.shrinkage)


def test_an_effect_is_planned_with_its_half_width(folder):
    told = planned("effect", *EFFECT[6:], "--residual-scale", "1", "--plan", "5000")
    domain = Domain(2.0, 8.0, intercept=1.0, ranges=dict.fromkeys(("x1", "x2", "x3"), (-1.0, 1.0)))
    plan = PrivateEffect(domain, Budget(1.0), residual_scale=1.0).plan(5000, 3)
    assert told["predicted"]["half_width"] ** 2 == pytest.approx(1.96**2 * plan.study.predicted_error)
    wider = planned("effect", *EFFECT[6:], "--residual-scale", "1", "--plan", "500")
    assert wider["predicted"]["half_width"] > told["predicted"]["half_width"]


def test_no_data_are_read_and_nothing_is_written(folder):
    words = ["absent.csv" if word == "data.csv" else word for word in FIT]
    result = run(*words, "--plan", "200", "--output", "release.json")
    assert (result.exit_code, (folder / "release.json").exists()) == (0, False), result.output
    assert "No data were read; nothing is spent." in result.stdout


def test_a_plan_for_any_number_of_records_stores_none_of_them():
    for program in ("entropy_balancing", "ipw_logistic", "overlap", "uniform"):
        told = planned("fit", *DECLARED, "--program", program, "--plan", str(10**18))
        assert 2 <= told["predicted"]["V"] <= 2e18, program
    whole = refused("fit", *DECLARED, "--program", "stable_balancing", "--plan", str(10**18))
    assert "a matrix of 2 features with its working copies needs" in whole
