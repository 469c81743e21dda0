"""``dp2erm settings``, and a help that fits a screen."""

from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from dp2erm_cvx import PrivateEffect, PrivateRule
from dp2erm_cvx.checks import setting, wanted, whole_number
from dp2erm_cvx.cli import main
from dp2erm_cvx.display import as_plain, described_settings
from dp2erm_cvx.plan import EffectSettings, RuleSettings
from dp2erm_cvx.program.registry import available
from dp2erm_cvx.study import QUESTIONS
from tests.command_line import facts, refused, sets, shown


def by_name(*words):
    return {one["name"]: one for one in facts("settings", *words)}


@pytest.mark.parametrize(
    ("kind", "estimator", "rule"),
    [("effect", PrivateEffect, EffectSettings), ("rule", PrivateRule, RuleSettings)],
)
def test_a_question_has_all_settings_of_its_estimator_and_of_its_rule(kind, estimator, rule):
    told = by_name(kind)
    beside = {"domain", "budget", "seed", "ledger", "dataset", "settings"}
    own = {one.name for one in fields(estimator) if one.init} - beside
    assert own <= told.keys()
    assert {f"settings.{one.name}" for one in fields(rule)} <= told.keys()
    texts = described_settings(estimator)
    assert all(told[name]["text"] == as_plain(texts[name]) for name in own)


def test_every_program_and_question_can_be_asked_about():
    for name in (*QUESTIONS, "budget", *available()):
        for one in facts("settings", name):
            assert one["text"], (name, one)


def test_a_setting_says_what_it_accepts():
    assert by_name("effect")["collinearity"] == {
        "name": "collinearity",
        "default": "1.0",
        "wanted": "must be a number, above 0, at most 1",
        "text": "Public guess: the least variance of a combination of standardized covariates, 1 "
        "where they are independent. Less makes the interval wider.",
    }
    assert by_name("itr", "theta_set")["theta_set"]["wanted"].endswith(
        "l1:RADIUS, l2:RADIUS, box:BOUND"
    )
    assert by_name("ipw_known")["coefficient"]["default"] is None
    assert shown("settings", "budget", "epsilon").startswith(
        "epsilon: required; must be a number, above 0"
    )
    assert shown("settings", "uniform") == "uniform has no settings"


def test_words_for_what_is_accepted_follow_from_the_check():
    def everything(name, value):
        return value

    known = setting(3, whole_number, at_least=1, at_most=10).metadata["check"]
    assert wanted(*known) == "must be a whole number, at least 1, at most 10"
    assert wanted(everything, {}) == ""


def test_unknown_names_are_refused_in_one_line(folder):
    assert "residual_scale" in refused("settings", "effect", "residual_scal")
    assert "known: effect, rule" in refused("settings", "nothing")
    assert "base_measure = 3: must have one entry per record" in refused(
        *(
            "bounds",
            "--program",
            "paper_entropy_balancing",
            *sets("covariate_bound=1", "base_measure=3"),
        )
    )


def test_the_settings_of_a_program_in_a_file_are_listed():
    file = Path(__file__).parents[1] / "plugins" / "robust.py"
    assert by_name(file)["cap"]["default"] == "3.0"


def test_the_help_of_run_fits_a_screen():
    text = CliRunner().invoke(main, ["run", "--help"], env={"COLUMNS": "80"}).stdout
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    whole = CliRunner().invoke(main, ["run", "--help-all"], env={"COLUMNS": "80"}).stdout
    flags = [max(one.opts, key=len) for one in main.commands["run"].params]
    assert all(flag in whole for flag in flags if flag.startswith("--"))
