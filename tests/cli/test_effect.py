"""Effects and rules on the command line: one summary, checks before the data, no neighbor that is
refused.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, EffectRelease, Ledger, read_release
from dp2erm_cvx.cli import main
from tests.command_line import EFFECT, FIT, RULE, done, facts, refused, run, sets, shown

#: Where the covariates lie, released first where there are records enough, and what a rule is
#: worth.
CORRECTED = ["mean", "spread", "center", "propensity", "rule"]
WORTH = ["sides", "arms", "value"]
SETTING = "rule.settings"
ATT = sets("effect.estimand=att")


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("effect.estimand=att",),
        ("effect.settings.propensity=0.5",),
        ("budget.epsilon=0.01",),
        ("effect.noise=gaussian", "budget.delta=1e-6", "treatment_cost=1"),
    ],
)
def test_the_text_says_what_the_interval_is_and_is_not(folder, more):
    text = shown(*EFFECT, *sets(*more), "--seed", "1")
    # of 200 records the noise of that epsilon leaves nothing, their number included
    trial, treated = "effect.settings.propensity=0.5" in more, "effect.estimand=att" in more
    widths = (
        ("An end is unbounded",)
        if "budget.epsilon=0.01" in more
        else ("privacy noise alone", "sampling alone ±")
    )
    about = f"The interval is for the effect{' among the treated' if treated else ''}."
    rests = "whatever the covariates" if trial else "rests on outcomes"
    for phrase in (*widths, about, rests, "95 % CI", "200 records", "Not covered"):
        assert phrase in text, phrase
    assert ("net of the treatment cost of 1" in text) == ("treatment_cost=1" in more)
    assert ("public probability 0.5" in text) == trial
    assert ("a bias of up to" in text) is not trial


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("more", "said", "steps"),
    [
        (["budget.epsilon=0.5"], "half of the records are treated", ["rule"]),
        (["budget.epsilon=1"], "of the outcome on covariates", ["center", "rule"]),
        (["budget.epsilon=50"], "or the released propensity, is right", CORRECTED),
        (
            [f"{SETTING}.propensity=0.5", "treatment_cost=1"],
            "public probability",
            ["center", "rule"],
        ),
        (
            ["budget.epsilon=0.5", 'rule.expected=["main effect"]'],
            *("regression of the outcome", ["center", "rule"]),
        ),
        ([f"{SETTING}.center_share=none"], "half of the records", ["rule"]),
        (
            [f"{SETTING}.propensity=0.5", f"{SETTING}.value_share=0.2"],
            *("cut of so few records", ["rule", *WORTH]),
        ),
        (
            ["budget.epsilon=50", f"{SETTING}.value_share=0.2"],
            "treating everybody",
            [*CORRECTED, *WORTH],
        ),
        (
            ["rule.noise=gaussian", "budget.delta=1e-6", "rule.outcome_scale=3"],
            *("is right", ["center", "rule"]),
        ),
        (["rule.noise=box", "rule.outcome_scale=3"], "outcome regression", ["center", "rule"]),
    ],
)
def test_the_text_says_what_the_rule_is_and_is_not(folder, monkeypatch, more, said, steps):
    # a screen of another width fills its lines otherwise
    monkeypatch.delenv("COLUMNS", raising=False)
    text = shown(*RULE, *sets(*more), "--seed", "1", "--output", "rule.json")
    release = json.loads(Path("rule.json").read_bytes())
    assert [step["step"] for step in release["steps"]] == steps
    for phrase in ("Treat where", "200 records", "is an assumption", "opposite directions", said):
        assert phrase in text, phrase
    assert ("net of the treatment cost of 1" in text) == ("treatment_cost=1" in more)
    assert ("The noise dominates" in text) == (release["flipped_share"] >= 0.25)


@pytest.mark.slow
def test_a_weak_guarantee_is_a_caveat_wherever_the_release_is_told(folder):
    changes = ("budget.epsilon=11", "budget.delta=0.006", "two_stage.noise=gaussian")
    text = shown(*FIT, *sets(*changes), "--output", "weak.json")
    assert "epsilon = 11, above 10, hardly limits what is learned of a record" in text
    assert "delta = 0.006, above 1/n = 0.005, would allow to publish a whole record" in text
    assert json.loads(Path("weak.json").read_text())["caveats"][:2] == [
        "weak-epsilon",
        "weak-delta",
    ]
    done("verify", "weak.json")
    for command, epsilon, weak in ((EFFECT, 10, False), (RULE, 10.5, True), (FIT, 10, False)):
        words = [*command, *sets(f"budget.epsilon={epsilon}")]
        assert ("The guarantee is weak: " in shown(*words, "--plan", "300")) is weak
        assert ("weak-epsilon" in facts(*words)["caveats"]) is weak


def test_the_ledger_names_treatment_outcome_estimand_and_file(folder):
    book = Ledger("book.db")
    book.declare("trial", Budget(5.0))
    charged = sets("ledger.file=book.db", "ledger.dataset=trial")
    for words in (EFFECT, RULE, FIT, [*EFFECT, *sets("effect.estimand=overlap")]):
        done(*words, *charged)
    notes = [one.note.partition(", study ") for one in book.account("trial").receipts]
    assert [note for note, _, _ in notes] == [
        "effect (ate) of a on y",
        "rule of a on y",
        "two_stage (weighted) of a on y",
        "effect (overlap) of a on y",
    ]
    assert len({digest for _, _, digest in notes}) == 4


def test_a_help_fits_a_screen_and_all_of_it_is_there_on_request():
    for command in main.commands:
        text = run(command, "--help").stdout
        assert len(text.splitlines()) <= 42, command
        assert "\n  Example:\n  dp2erm " in text, command
    for command in ("run", "audit", "design"):
        short, whole = (run(command, word).stdout for word in ("--help", "--help-all"))
        assert len(short.splitlines()) < len(whole.splitlines())
        assert short.count("--json") == whole.count("--json ") == 1


def test_words_that_were_commands_say_where_their_question_is_asked(folder):
    for word, table in (("effect", "effect"), ("rule", "rule"), ("fit", "two_stage")):
        assert word not in main.commands
        for more in ([], ["data.csv", "--epsilon", "1"]):
            told = refused(word, *more)
            assert f"[[{table}]]" in told
            assert "dp2erm check DATA --draft study.toml" in told


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("change", "more"),
    [
        (lambda k, row: {"a": 1}, []),
        (lambda k, row: {"a": 0}, ATT),
        (lambda k, row: {"a": int(k > 0)}, []),
        (lambda k, row: {"a": int(k == 0)}, ATT),
        (lambda k, row: {"y": 3.0}, []),
        (lambda k, row: {"y": 1e300 * (-1) ** k}, ATT),
        (lambda k, row: {"x1": 0.0, "x2": 0.0, "x3": 0.0}, []),
        (lambda k, row: {"x1": 1e308, "a": int(float(row["x1"]) > 0)}, ATT),
    ],
    ids=["all treated", "none treated", "all but one treated", "one treated", "constant outcome",
    "outliers",
         "constant covariates", "separable"],
)  # fmt: skip
def test_no_data_are_refused_to_a_person_who_says_so(folder, change, more):
    standing = read_release(done(*EFFECT, *more, "--json").stdout, EffectRelease).standing
    with open("data.csv", newline="") as file:
        rows = [{**row, **change(k, row)} for k, row in enumerate(csv.DictReader(file))]
    pd.DataFrame(rows).to_csv("data.csv", index=False)
    told = done(*EFFECT, *more, "--json", "--yes").stdout
    assert read_release(told, EffectRelease).standing == standing


def test_groups_are_asked_for_by_a_question(folder):
    Path("groups.toml").write_text(
        'outcome_bound = 40.0\noutcome_column = "y"\n[treatment]\ncolumn = "a"\n[ranges]\nx = [-3, '
        "3]\n"
        '[levels]\nward = ["A", "B"]\nsex = ["F", "M"]\n[budget]\nepsilon = 4\n'
        '[[effect]]\nresidual_scale = 1\nby = "ward"\nwhere = { sex = "F" }\n'
    )
    rng, n = np.random.default_rng(4), 1500
    frame = pd.DataFrame({"x": rng.normal(size=n), "ward": rng.choice(["A", "B"], n)})
    frame = frame.assign(sex=rng.choice(["F", "M"], n), a=rng.integers(0, 2, n))
    frame["y"] = frame["x"] + 3 * frame["a"] * (frame["ward"] == "B") + rng.normal(size=n)
    frame.to_csv("groups.csv", index=False)
    words = ["run", "groups.toml", "groups.csv", "--seed", "1", "--output", "groups.json"]
    assert "Private average effect by ward" in shown(*words)
    release = read_release(Path("groups.json").read_bytes(), EffectRelease)
    assert [one.group for one in release.groups] == ["A", "B"]
    assert release.groups[1].interval.low < 3.0 < release.groups[1].interval.high
    assert release.counted == pytest.approx(750, abs=80)
    assert release.domain["codebook"]["where"] == {"sex": "F"}
    done("verify", "groups.json", "--domain", "groups.toml")
    done("report", "groups.json", "--output", "page.html")
    assert "ward: B" in Path("page.html").read_text()
