"""Two-stage releases on the command line: what is declared, how noise is calibrated, what is
shown.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Release, read_release
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.program import registry
from tests.command_line import (
    FIT,
    QUESTIONS,
    RECORDS,
    done,
    facts,
    refused,
    run,
    sets,
    shown,
    study_of,
)

BARE = ("covariate_bound=1.5", "outcome_bound=8")
FIRST, SECOND = "two_stage.first_stage", "two_stage.second_stage"
MMD = (f"{FIRST}=mmd", "arm_floor=20", f"{FIRST}.ridge=5", f"{FIRST}.cap=50", f"{FIRST}.alpha=1")
#: Records without ranges, and records whose ranges have no names.
PLAIN = 'covariate_bound = 2.0\noutcome_bound = 8.0\ntreatment = "a"\noutcome_column = "y"\n'
FLAT = PLAIN + "ranges = [[-1, 1], [-1, 1]]\n"
#: A kind of question, its records, changes, and what the release then states, by place.
STATED = [
    (
        *("fit", RECORDS),
        ("outcome_bound=4", "ranges.x2=[-2, 2]", "relation=replace-one-keep-treatment"),
        {"outcome_bound": 4.0, "covariate_bound": 2.0, "relation": "replace-one-keep-treatment"}
        | {"ranges.x1": [-1.0, 1.0], "ranges.x2": [-2.0, 2.0], "ranges.x3": [-1.0, 1.0]},
    ),
    ("fit", RECORDS, ('covariates=["x3", "x1"]',), {"columns": ["x3", "x1"]}),
    (
        *("fit", PLAIN, (*BARE, 'covariates=["x2", "x3"]', f'{SECOND}.features=["x3"]')),
        {"columns": ["x2", "x3"], "parameters": ["x3"]},
    ),
    (
        *("fit", RECORDS),
        (
            *(
                f"{FIRST}=ipw_logistic",
                f"{FIRST}.ridge=2",
                f"{FIRST}.trim=4",
                f"{FIRST}.radius=inf",
            ),
            *("two_stage.noise=gaussian", "budget.delta=1e-6", "two_stage.split=0.5"),
            *(f"{SECOND}.theta_set=l2:3", f"{SECOND}.l1=0.1", f"{SECOND}.l2=0.2"),
            *(f'{SECOND}.features=["x2"]', f"{SECOND}.features_bound=0.5"),
        ),
        {
            "declared.first.name": "ipw_logistic",
            "declared.first.settings": {"ridge": 2.0, "radius": "inf", "trim": 4.0},
            "declared.second.settings.theta_set": {"L2Ball": {"radius": 3.0}},
            "declared.second.settings.regularizer": {"ElasticNet": {"l1": 0.1, "l2": 0.2}},
            "declared.second.settings.features": ["x2"],
            "declared.second.settings.features_bound": 0.5,
            "parameters": ["intercept", "x2"],
            "steps.0.noise": "gaussian",
            "steps.0.split": 0.5,
            "guarantee.delta": 1e-6,
        },
    ),
    (
        *("fit", RECORDS, (*MMD, f"{FIRST}.kernel=laplace:0.5")),
        {"declared.first.settings.kernel": {"Laplace": {"bandwidth": 0.5}}},
    ),
    (
        *("fit", RECORDS, (*MMD, f"{FIRST}.kernel=gaussian")),
        {"declared.first.settings.kernel": {"Gaussian": {"bandwidth": 1.0}}},
    ),
    (
        *("fit", RECORDS, (*MMD, f"{FIRST}.kernel=linear")),
        {"declared.first.settings.alpha": 1, "declared.first.settings.cap": 50},
    ),
    (
        *(
            "effect",
            PLAIN,
            (*BARE, 'covariates=["x1", "x2", "x3"]', 'effect.prognostic=["x3", "x1"]'),
        ),
        {"columns": ["x3", "x1"]},
    ),
    (
        *("effect", FLAT, ('covariates=["x1", "x2"]', 'effect.prognostic=["x2"]')),
        {"columns": ["x2"]},
    ),
]


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(("kind", "records", "changes", "wanted"), STATED)
def test_what_is_declared_is_in_the_release(folder, kind, records, changes, wanted):
    Path("study.toml").write_text(study_of(QUESTIONS[kind], records))
    release = facts("run", "study.toml", "data.csv", "--yes", *sets(*changes))
    for place, value in wanted.items():
        stated = release | release["domain"]
        for name in place.split("."):
            stated = stated[int(name) if name.isdigit() else name]
        assert stated == value, place


IPW = (f"{FIRST}=ipw_logistic", f"{FIRST}.radius=1")
SCALAR = (f"{SECOND}=plug_in_ate",)
#: A calibration with changes beside it, and what is told of it.
CALIBRATIONS = {
    "renyi": (("budget.delta=1e-6",), ("Theorem 7", "projected afterwards", "was declared")),
    "output": (SCALAR, ("Theorem 8", "Laplace")),
    "auto": (SCALAR, ("Theorem 8", "predicted error")),
    "paper": (IPW, ("universal corollary", "DP_guarnatee (i)")),
    "paper-corrected": (
        (*IPW, "two_stage.noise=gaussian", "budget.delta=1e-6"),
        ("(ii), corrected",),
    ),
    "sharp": (("budget.delta=1e-6",), ("private",)),
}


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", CALIBRATIONS)
def test_calibrations_are_named_with_their_reason(folder, name):
    changes, phrases = CALIBRATIONS[name]
    result = done(*FIT, *sets(f"two_stage.calibration={name}", *changes))
    text = " ".join(result.stdout.split())
    for phrase in phrases:
        assert phrase in text
    assert ("delta is not used" in result.stderr) is (name == "sharp")


def test_a_change_supplies_what_the_file_lacks(folder):
    whole = Path("fit.toml").read_text()
    Path("fit.toml").write_text(whole.replace("outcome_bound = 8.0\n", ""))
    assert "outcome_bound is missing" in refused(*FIT)
    assert facts(*FIT, "--set", "outcome_bound=8")["domain"]["outcome_bound"] == 8.0
    Path("fit.toml").write_text(whole.replace("8.0", "-1"))
    assert refused(*FIT).startswith("error: fit.toml: outcome_bound = -1")


def test_a_damaged_release_is_refused(folder):
    plain = facts(*FIT)
    features = {"name": "itr", "settings": {"features": 5}}
    for change in ({"second_stage": {}}, {"second_stage": features}, {"theta": [1.0]}):
        Path("r.json").write_text(json.dumps(plain | change))
        assert "release JSON" in refused("predict", "r.json", "data.csv")


def test_nothing_private_is_printed(folder, monkeypatch):
    runs = []
    run_plan = PrivateTwoStageERM.run_plan

    def kept(*words):
        runs.append(run_plan(*words))
        return runs[-1]

    monkeypatch.setattr(PrivateTwoStageERM, "run_plan", kept)
    for words in ([], ["--json"], ["--balance"]):
        result = done(*FIT, *words)
        weights, theta = runs[-1].result.weights, runs[-1].result.steps["theta"]
        hidden = np.concatenate([weights.value[:20], weights.point, theta.noise])
        for value in hidden:
            assert repr(float(value)) not in result.output
            assert f"{value:.6g}" not in result.output
        release = json.loads(result.stdout) if "--json" in words else {}
        assert not {"weights", "noise_vector", "b", "dual", "certificate"} & set(release)


@pytest.mark.slow
def test_balance_and_plot_are_for_the_data_holder(folder):
    result = done(*FIT, "--balance", "--love-plot", "love.png", "--json")
    assert read_release(result.stdout, Release).private
    assert "NOT PRIVATE" in result.stderr
    assert "SMD before" in result.stderr
    assert Path("love.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_programs_lists_everything():
    listed = facts("programs")
    assert [program["name"] for program in listed] == list(registry.programs())
    assert all(program["formula"] and program["theorem"] for program in listed)
    text = run("programs", env={"COLUMNS": "80"}).stdout
    assert all(name in text for name in registry.programs())
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
def test_certify_covers_solvers_and_programs():
    rows = facts("certify", "--n", "60")
    assert {row["program"] for row in rows} == set(registry.programs())
    for row in rows:
        if row["status"] == "does not apply":
            assert row["solver"] == "osqp"
        else:
            assert row["certified"]
            assert row["radius"] <= 1e-9
            assert row["distance"] <= 2e-9


def test_weights_of_another_solver_are_certified(folder):
    frame = pd.read_csv("data.csv")
    pd.DataFrame({"w": np.ones(len(frame))}).to_csv("weights.csv", index=False)
    words = ["certify", "data.csv", "--study", "domain.toml", "--program", "stable_balancing"]
    result = done(*words, "--weights", "weights.csv")
    assert "NOT PRIVATE" in result.stderr
    told = " ".join(result.stdout.split())
    assert "to the exact weights of stable_balancing, proved at most" in told
    found = facts(*words, "--weights", "weights.csv")
    assert found["total"] == len(frame)
    assert 0.0 < found["distance"] < found["radius"] <= found["distance"] + 1e-6
    pd.DataFrame({"w": np.ones(len(frame)) / 7}).to_csv("weights.csv", index=False)
    assert "multiply those of the file" in " ".join(
        shown(*words, "--weights", "weights.csv").split()
    )


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--program", "uniform"], "name DATA"),
        (["data.csv", "--study", "domain.toml"], "one --program"),
        (["data.csv", "--study", "domain.toml", "--program", "itr"], "second stage"),
        (["data.csv", "--study", "domain.toml", "--program", "uniform"], "one column of weights"),
    ],
)
def test_weights_of_another_solver_need_their_program_and_data(folder, words, says):
    result = run("certify", *words, "--weights", "data.csv")
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stable_balancing_hard", "entropy_balancing_hard"])
def test_certify_says_why_no_weights_exist(folder, name):
    words = ["certify", "arms.csv", "--study", "domain.toml", "--program", name]
    words += [word for solver in ("newton", "clarabel", "scs") for word in ("--solver", solver)]
    frame = pd.read_csv("data.csv")
    frame.assign(a=1 * (frame["x1"] > 0.5)).to_csv("arms.csv", index=False)
    # what is found about a program is a result, as it is of a solver that does not apply
    result = done(*words)
    assert "NOT PRIVATE" in result.stdout
    assert "NOT PRIVATE" in result.stderr
    told = " ".join(result.stdout.split())
    assert told.count("no weights meet the targets") == 1
    assert re.search(rf"{name}: no weights .* x1 \(\w+\).* 0\.\d+ or more", told)
    rows = facts(*words)
    assert len(rows) == 3
    assert all("x1" in row["note"] and not row["certified"] for row in rows)
    frame.assign(a=0).to_csv("arms.csv", index=False)
    assert shown(*words).count(f"{name}: an arm without records") == 1
