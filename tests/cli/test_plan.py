"""``--plan N`` of the commands that release: the plan of the release that follows, without its
data.
"""

import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.plan.predict import noise_range
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.program.registry import second_stages
from tests.command_line import COLUMNS, EFFECT, FIT, facts, refused, sets, shown

FIRST, SECOND = "two_stage.first_stage", "two_stage.second_stage"


@pytest.fixture
def bare(folder):
    """A study of one covariate without ranges."""
    (folder / "bare.toml").write_text(
        'covariate_bound = 2\noutcome_bound = 10\ncovariates = ["x1"]\n[budget]\nepsilon = '
        "2\n[[two_stage]]\n"
    )
    return ["run", "bare.toml"]


def test_a_plan_is_what_the_estimator_plans(bare):
    changes = sets(f"{FIRST}=ipw_logistic", f"{FIRST}.ridge=0.5", f"{SECOND}=arm_means")
    told = facts(*bare, "--plan", "900", *changes)
    domain = Domain(2.0, 10.0)
    plan = PrivateTwoStageERM(domain, Budget(2.0), ipw_logistic(ridge=0.5), "arm_means").plan(
        900, 1
    )
    assert (told["n_samples"], told["predicted"]["V"]) == (900, plan.bound.V)
    second = second_stages()["arm_means"]().resolve(domain.space)
    moved = noise_range(second, Universe(domain, 900, 1), plan.main.calibration)
    assert told["predicted"]["noise_half_width"] == pytest.approx(moved.effect, rel=1e-2)
    assert told["predicted"]["shrinkage"] == pytest.approx(moved.shrinkage)


def test_an_effect_is_planned_with_its_half_width(folder):
    domain = Domain(2.0, 8.0, intercept=1.0, ranges=dict.fromkeys(COLUMNS, (-1.0, 1.0)))
    widths = []
    for n in (5000, 500):
        plan = PrivateEffect(domain, Budget(1.0), residual_scale=1.0).plan(n, 3)
        told = facts(*EFFECT[:2], *sets("effect.residual_scale=1"), "--plan", n)
        widths.append(told["predicted"]["half_width"])
        assert widths[-1] ** 2 == pytest.approx(1.96**2 * plan.study.predicted_error)
    assert widths[0] < widths[1]


def test_no_data_are_read_and_nothing_is_written(folder):
    told = shown(*FIT[:2], "absent.csv", "--plan", "200", "--output", "release.json")
    assert "No data were read; nothing is spent." in told
    assert not (folder / "release.json").exists()


def test_a_plan_for_any_number_of_records_stores_none_of_them(bare):
    for program in ("ipw_logistic", "overlap", "uniform"):
        told = facts(*bare, *sets(f"{FIRST}={program}"), "--plan", 10**18)
        assert 2 <= told["predicted"]["V"] <= 2e18, program
    for program, columns in {"entropy_balancing": 12, "stable_balancing": 11}.items():
        whole = refused(*bare, *sets(f"{FIRST}={program}"), "--plan", 10**18)
        assert f"{columns} columns of data with its working copies needs" in whole


@pytest.mark.slow
def test_a_conditional_run_stops_without_a_consent_of_its_own(folder):
    """``--yes`` is for findings on data: it consents to nothing that follows from the
    declaration.
    """
    (folder / "kinked.py").write_text(
        "import cvxpy as cp\nfrom dp2erm_cvx.program import scheme\n\n\n"
        "@scheme(cap=3.0)\ndef kinked(w, records, cap):\n"
        "    price = cp.norm(records.signed.T @ w)\n"
        "    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + price), [w <= cap])\n"
    )
    changes = sets(f"{FIRST}=kinked.py", f"{SECOND}=arm_means")
    words = ["run", "fit.toml", "data.csv", *changes, "--output", "release.json"]
    assert facts(*words, "--plan", "200")["standing"] == "conditional on certification"
    assert "conditional: do not publish" in shown(*words, "--plan", "200")
    stopped = refused(*words, "--yes")
    assert "no public number bounds the numerical error of the weights of kinked" in stopped
    assert "Nothing was charged; --conditional releases all the same" in stopped
    assert not (folder / "release.json").exists()
    assert not facts(*words, "--yes", "--conditional")["private"]
