"""Effects and rules on the command line: one summary, checks before the data, no neighbor that is refused."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import Budget, EffectRelease, Ledger, RuleRelease
from dp2erm_cvx.cli import main
from tests.command_line import COLUMNS, EFFECT, done, replaced, run


def write_rows(change):
    """The data of the good command, with ``change(k, row)`` made to row k."""
    with open("data.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open("data.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, **change(k, row)} for k, row in enumerate(rows))


def test_json_begins_with_what_may_be_relied_on(folder):
    for command in ("effect", "rule"):
        plain = json.loads(done(command, *EFFECT[1:], "--json").stdout)
        assert list(plain)[:3] == ["private", "standing", "estimand" if command == "effect" else "theta"]
        assert (plain["private"], plain["standing"]) == (True, plain["guarantee"]["standing"])
        assert plain["columns"] == list(COLUMNS)
        assert sum(step["epsilon"] for step in plain["steps"]) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--estimand", "att"],
        ["--set", "propensity=0.5"],
        ["--epsilon", "0.01"],
        ["--noise", "gaussian", "--delta", "1e-6", "--treatment-cost", "1"],
    ],
)
def test_the_text_says_what_the_interval_is_and_is_not(folder, more):
    result = done(*EFFECT, *more, "--seed", "1")
    text = " ".join(result.stdout.split())
    # of 200 records the noise of that epsilon leaves nothing, their number included
    trial, treated = "propensity=0.5" in more, "att" in more
    widths = ("An end is unbounded",) if "0.01" in more else ("privacy noise alone", "sampling ±")
    about = f"The interval is for the effect{' among the treated' if treated else ''}."
    rests = "whatever the covariates" if trial else "rests on outcomes"
    for phrase in ("units of the outcome", "95 % CI", *widths, "200 records",
                   "clipped by public rule", about, rests, "Not covered", "epsilon"):  # fmt: skip
        assert phrase in text, phrase
    assert ("net of the treatment cost" in text) == ("--treatment-cost" in more)
    assert ("public probability 0.5" in text) == ("propensity=0.5" in more)
    assert ("a bias of up to" in text) is not trial


def test_a_weak_guarantee_is_a_caveat_wherever_the_release_is_told(folder):
    words = ["--noise", "gaussian", "--delta", "0.006", "--output", "weak.json"]
    shown = " ".join(run("fit", *replaced("--epsilon", "11", EFFECT)[1:], *words).stdout.split())
    assert "epsilon = 11, above 10, hardly limits what is learned of a record" in shown
    assert "delta = 0.006, above 1/n = 0.005, would allow to publish a whole record" in shown
    stated = json.loads(Path("weak.json").read_text())
    assert stated["caveats"][:2] == ["weak-epsilon", "weak-delta"]
    assert run("verify", "weak.json").exit_code == 0
    for command in (EFFECT, ["rule", *EFFECT[1:]], ["fit", *EFFECT[1:]]):
        for epsilon, weak in (("10", False), ("10.5", True)):
            words = replaced("--epsilon", epsilon, command)
            stated = json.loads(run(*words, "--json").stdout)
            assert ("A weak guarantee: " in run(*words, "--plan", "300").stdout) is weak
            assert ("weak-epsilon" in stated["caveats"]) is weak


def test_the_ledger_names_treatment_outcome_estimand_and_file(folder):
    book = Ledger("book.db")
    book.declare("trial", Budget(5.0))
    common = ["--ledger", "book.db", "--dataset", "trial", "--output", "out.json", "--force"]
    for command in (EFFECT, ["rule", *EFFECT[1:]], ["fit", *EFFECT[1:]]):
        assert run(*command, *common).exit_code == 0
    assert run(*EFFECT, *common[:4], "--estimand", "overlap").exit_code == 0
    assert [one.note for one in book.account("trial").receipts] == [
        "effect (ate) of a on y, to out.json",
        "treatment rule of a on y, to out.json",
        "entropy_balancing, then itr of a on y, to out.json",
        "effect (overlap) of a on y",
    ]


def test_a_help_fits_a_screen_and_all_of_it_is_there_on_request():
    for command in main.commands:
        text = run(command, "--help").stdout
        assert len(text.splitlines()) <= 56, command
        assert "\n  Example:\n  dp2erm " in text, command
    for command in ("effect", "rule", "fit"):
        short, whole = (run(command, word).stdout for word in ("--help", "--help-all"))
        assert len(short.splitlines()) < len(whole.splitlines())
        assert short.count("--numerical-share") == whole.count("--numerical-share NUMBER") == 1
        assert "--epsilon NUMBER" in short


@pytest.mark.parametrize(
    "change",
    [
        lambda k, row: {"a": 1},
        lambda k, row: {"a": 0},
        lambda k, row: {"a": int(k > 0)},
        lambda k, row: {"y": 3.0},
        lambda k, row: {"y": 1e300 * (-1) ** k},
        lambda k, row: {"x1": 0.0, "x2": 0.0, "x3": 0.0},
        lambda k, row: {"x1": 1e308, "a": int(float(row["x1"]) > 0)},
    ],
    ids=["all treated", "none treated", "all but one treated", "constant outcome", "outliers",
         "constant covariates", "separable"],
)  # fmt: skip
@pytest.mark.parametrize("more", [[], ["--estimand", "att"]], ids=["ate", "att"])
def test_no_data_are_refused_to_a_person_who_says_so(folder, change, more):
    write_rows(change)
    result = done(*EFFECT, *more, "--json", "--yes")
    assert (
        EffectRelease.from_json(result.stdout).standing
        == EffectRelease.from_json(run(*EFFECT, *more, "--json", "--yes").stdout).standing
    )


@pytest.mark.parametrize(("column", "value"), [("y", "nan"), ("a", ""), ("x1", "ann"), ("x1", "inf")])
def test_what_is_no_number_counts_as_missing(folder, column, value):
    write_rows(lambda k, row: {column: value} if k == 3 else {})
    result = run(*EFFECT, "--json", "--seed", "1")
    # what was read, and what a seed does
    assert (result.exit_code, result.stderr.count("\n")) == (0, 2), result.output
    assert f"Cells that hold nothing declared: {column} 1." in result.stderr
    # by the public rule: the middle of a range, or nothing of a record without treatment or outcome
    fixed = {"x1": 0.0} if column == "x1" else {"a": "", "y": 9.0, "x1": -1.0, "x2": 0.5, "x3": ""}
    write_rows(lambda k, row: fixed if k == 3 else {})
    assert json.loads(run(*EFFECT, "--json", "--seed", "1").stdout) == json.loads(result.stdout)


GROUPED = """\
outcome_bound = 40.0
outcome_column = "y"
[treatment]
column = "a"
[ranges]
x = [-3, 3]
[levels]
ward = ["A", "B"]
sex = ["F", "M"]
"""


def write_groups(n=1500):
    Path("groups.toml").write_text(GROUPED)
    rng = np.random.default_rng(4)
    with open("groups.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("x", "ward", "sex", "a", "y"))
        for x in rng.normal(size=n):
            ward, sex, a = rng.choice(["A", "B"]), rng.choice(["F", "M"]), rng.integers(2)
            writer.writerow((x, ward, sex, a, x + 3 * a * (ward == "B") + rng.normal()))


def test_groups_are_asked_for_by_flags(folder):
    write_groups()
    words = ["effect", "groups.csv", "--domain", "groups.toml", "--epsilon", "4", "--residual-scale", "1"]
    result = done(*words, "--by", "ward", "--where", "sex=F", "--seed", "1", "--output", "groups.json")
    assert "Private average effect by ward" in result.stdout
    release = EffectRelease.from_json(Path("groups.json").read_bytes())
    assert [one.group for one in release.groups] == ["A", "B"]
    assert release.groups[1].interval.low < 3.0 < release.groups[1].interval.high
    assert release.counted == pytest.approx(750, abs=80)
    assert release.domain["codebook"]["where"] == {"sex": "F"}
    assert run("verify", "groups.json", "--domain", "groups.toml").exit_code == 0
    done("report", "groups.json", "--output", "page.html")
    assert "ward: B" in Path("page.html").read_text()


RULE = ["rule", *EFFECT[1:]]
#: Where the covariates lie, released first where there are records enough.
CORRECTED = ["mean", "spread", "center", "propensity", "rule"]
WORTH = ["sides", "arms", "value"]


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
def test_the_text_says_what_the_rule_is_and_is_not(folder, monkeypatch, more, said, steps):
    monkeypatch.delenv("COLUMNS", raising=False)  # a screen of another width fills its lines otherwise
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
