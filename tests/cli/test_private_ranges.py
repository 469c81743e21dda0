"""Ranges that a file leaves to be released: who releases them, what it may leave out, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, PrivateEffect, Treatment
from dp2erm_cvx.domain_file import private_ranges_of, read_declared
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.private_ranges import PrivateRanges, Within
from dp2erm_cvx.study_file import read_study
from tests.command_line import RECORDS, facts, refused, sets, shown, study_of

STUDY = """treatment = "a"
outcome_column = "y"
outcome = "private"
[ranges]
x = "private"
z = { within = [-5, 5] }
[budget]
epsilon = 2
[[effect]]
private_ranges = 0.2
"""


def test_an_effect_of_a_study_releases_ranges_as_the_estimator_does(folder):
    rng, n = np.random.default_rng(0), 2000
    x, z, a = rng.normal(50, 9, n), rng.uniform(0, 1, n), rng.integers(0, 2, n)
    table = pd.DataFrame({"x": x, "z": z, "a": a, "y": 3 * x + 20 * a + rng.normal(0, 9, n)})
    table.to_csv("wide.csv", index=False)
    Path("study.toml").write_text(STUDY)
    told = facts("run", "study.toml", "wide.csv", "--seed", "1")
    known = PrivateRanges(0.2, {"x": None, "z": Within(-5, 5)}, codebook=Codebook(Treatment("a"), "y"))
    table = pd.read_csv("wide.csv", float_precision="round_trip")
    model = PrivateEffect(known, Budget(2.0), seed=1).fit(table, table["a"], table["y"])
    assert json.loads(model.release_.to_json())["released"] == told["released"]
    assert [one["released"] for one in told["ranges"]] == [True, True, True]
    assert shown("verify", "releases/effect.json", "--study", "study.toml").startswith("Verified")
    assert facts("run", "study.toml", "--plan", "2000")["guarantee"]["epsilon"] == 2.0


def test_ranges_of_one_effect_are_not_those_of_another(folder):
    Path("study.toml").write_text(STUDY + '[[effect]]\nestimand = "att"\nprivate_ranges = 0.2\n')
    study = read_study("study.toml")
    plans = study.plans(study.models(), 3000)
    assert all(not plan.study.before for plan in plans.values())
    assert sum(plan.guarantee.epsilon for plan in plans.values()) <= 2.0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("private_ranges = 0.2\n", "", "effect: leaves ranges to be released: declare private_ranges"),
        ("[[effect]]", "[[rule]]", "rule: private_ranges: only an effect releases ranges first"),
        ("private_ranges = 0.2", "private_ranges = 2", "effect: private ranges: share = 2"),
        ("[ranges]", "intercept = 1.0\n[ranges]", "effect: private_ranges: intercept cannot be declared"),
    ],
)
def test_a_study_says_who_releases_ranges(folder, old, new, told):
    Path("study.toml").write_text(STUDY.replace(old, new))
    assert told in refused("run", "study.toml", "--plan", "2000")


def asked(text="", share=0.1):
    """The public ranges of a file."""
    Path("domain.toml").write_text(text)
    return private_ranges_of(read_declared("domain.toml"), share)


def test_the_file_says_what_is_known_of_each_column(folder):
    text = 'relation = "replace-one"\noutcome_bound = 3\noutcome_center = 1\n'
    table = '[ranges]\nx = [0, 100]\nz = {within = [0, 9]}\nw = "private"\n'
    ranges = {"x": (0, 100), "z": Within(0, 9), "w": None}
    assert asked(text + table) == PrivateRanges(ranges=ranges, outcome=(-2.0, 4.0))
    chosen = 'covariates = ["z", "x", "v"]\n'
    assert asked(chosen + table).known(3) == (Within(0, 9), (0.0, 100.0), None, None)
    assert asked("outcome = {within = [0, 1]}").outcome == Within(0, 1)
    assert asked(share=0.3) == PrivateRanges(0.3)


def test_nothing_has_to_be_declared_and_a_change_may_say_who_releases(folder):
    records = 'treatment = "a"\noutcome_column = "y"\noutcome = "private"\ncovariates = ["x", "z"]\n'
    Path("study.toml").write_text(study_of("[[effect]]\n", records, 2))
    rng, n = np.random.default_rng(0), 3000
    x, z, a = rng.normal(50, 9, n), rng.uniform(0, 1, n), rng.integers(0, 2, n)
    rows = np.column_stack([x, z, a, 3 * x + 20 * a + rng.normal(0, 9, n)])
    np.savetxt("wide.csv", rows, delimiter=",", header="x,z,a,y", comments="")
    words = ["run", "study.toml", "wide.csv", "--seed", "1", "--force", *sets("effect.private_ranges=0.2")]
    plain = facts(*words)
    assert plain["interval"]["low"] < 20 < plain["interval"]["high"]
    assert [one["column"] for one in plain["ranges"]] == ["x", "z", "y"]
    assert "Ranges were released for epsilon = 0.4" in shown(*words)


def test_a_check_reads_a_file_whose_ranges_are_to_be_released(folder):
    released = RECORDS.replace("x1 = [-1, 1]", 'x1 = "private"').replace("intercept = 1.0\n", "")
    Path("private.toml").write_text(released)
    assert "200 records" in shown("check", "data.csv", "--study", "private.toml")


@pytest.mark.parametrize(
    ("text", "share", "message"),
    [
        ("intercept = 1", 0.1, "intercept cannot be declared"),
        ("treatment_cost = 1", 0.1, "treatment_cost cannot be declared"),
        ("ranges = [[0, 1]]", 0.1, "must have names"),
        ("[ranges]\nx = {inside = [0, 1]}", 0.1, "must be {within"),
        ("[ranges]\nx = {within = [1, 0]}", 0.1, "low must be below high"),
        ("outcome_center = 1", 0.1, "needs an outcome_bound"),
        ("outcome = [0, 1]\noutcome_bound = 1", 0.1, "not both"),
        ("", 2, "private ranges: share"),
        ("", "much", "private ranges: share"),
    ],
)
def test_what_cannot_be_declared(folder, text, share, message):
    with pytest.raises(DeclarationError, match=message):
        asked(text, share)
