"""A rule on the command line: one summary, checks before the data, recommendations from the file alone."""

import json
from pathlib import Path

import pytest

from dp2erm_cvx import RuleRelease
from tests.command_line import COLUMNS, EFFECT, done, replaced, run, write_files

RULE = ["rule", *EFFECT[1:]]
#: Where the covariates lie, released first where there are records enough.
CORRECTED = ["mean", "spread", "center", "propensity", "rule"]
WORTH = ["sides", "arms", "value"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # a screen of another width fills its lines otherwise
    write_files()
    return tmp_path


def test_json_spells_out_what_may_be_relied_on():
    result = run(*RULE, "--json", "--output", "rule.json")
    plain = json.loads(result.stdout)
    assert RuleRelease.from_json(result.stdout) == RuleRelease.from_json(Path("rule.json").read_bytes())
    assert list(plain)[:3] == ["private", "standing", "theta"]
    assert plain["private"] is True
    assert plain["columns"] == list(COLUMNS)
    assert sum(step["epsilon"] for step in plain["steps"]) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    ("more", "said", "steps"),
    [
        (["--epsilon", "0.5"], "half of the records are treated", ["rule"]),
        (["--epsilon", "1"], "of the outcome on covariates", ["center", "rule"]),
        (["--epsilon", "50"], "or the released propensity, is right", CORRECTED),
        (["--set", "propensity=0.5", "--treatment-cost", "1"], "public probability", ["center", "rule"]),
        (["--epsilon", "0.5", "--expected", "main effect"], "regression of the outcome", ["center", "rule"]),
        (["--set", "center_share=none"], "half of the records", ["rule"]),
        (["--set", "propensity=0.5", "--set", "value_share=0.2"], "cut of so few records", ["rule", *WORTH]),
        (["--epsilon", "50", "--set", "value_share=0.2"], "treating everybody", [*CORRECTED, *WORTH]),
        (["--noise", "gaussian", "--delta", "1e-6", "--outcome-scale", "3"], "is right", ["center", "rule"]),
        (["--noise", "box", "--outcome-scale", "3"], "outcome regression", ["center", "rule"]),
    ],
)
def test_the_text_says_what_the_rule_is_and_is_not(more, said, steps):
    words = [*replaced("--epsilon", more[1], RULE), *more[2:]] if more[0] == "--epsilon" else [*RULE, *more]
    result = done(*words, "--seed", "1", "--output", "rule.json")
    text = " ".join(result.stdout.split())
    release = RuleRelease.from_json(Path("rule.json").read_bytes())
    assert [step.step for step in release.steps] == steps
    for phrase in ("Treat where", "in units of the outcome", "of the decisions", "public guesses", said,
                   "200 records", "is an assumption", "Not covered", "opposite directions"):  # fmt: skip
        assert phrase in text, phrase
    assert ("net of the treatment cost" in text) == ("--treatment-cost" in more)
    assert ("The noise dominates" in text) == (release.flipped_share >= 0.25)
    # a summary knows the file alone: no number of it was not released
    assert "\n".join(line.rstrip() for line in result.stdout.splitlines()) == release.summary()
    assert run("show", "rule.json").stdout == result.stdout
