import json
import re
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import Release, registry
from dp2erm_cvx.estimators import PrivateTwoStageERM
from tests.command_line import EFFECT, FIT, done, refused, run

BARE = "--covariate-bound 1.5 --outcome-bound 8 --covariates"
MMD = "--program mmd --arm-floor 20 --ridge 5 --set cap=50 --set alpha=1 --set kernel="
#: A command with its data, flags behind it, and what the release then states, by place.
STATED = [
    (
        FIT,
        "--outcome-bound 4 --range x2=-2:2 --relation replace-one-keep-treatment",
        {"outcome_bound": 4.0, "covariate_bound": 2.0, "relation": "replace-one-keep-treatment"}
        | {"ranges.x1": [-1.0, 1.0], "ranges.x2": [-2.0, 2.0], "ranges.x3": [-1.0, 1.0]},
    ),
    (FIT, "--covariates x3,x1", {"columns": ["x3", "x1"]}),
    (FIT[:6], f"{BARE} x2,x3 --second-set features=x3", {"columns": ["x2", "x3"], "parameters": ["x3"]}),
    (
        FIT,
        "--program ipw_logistic --ridge 2 --set trim=4 --set radius=inf --noise gaussian --delta 1e-6"
        " --split 0.5 --second-set theta_set=l2:3 --second-set l1=0.1 --second-set l2=0.2"
        " --second-set features=x2 --second-set features_bound=0.5",
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
    (FIT, f"{MMD}laplace:0.5", {"declared.first.settings.kernel": {"Laplace": {"bandwidth": 0.5}}}),
    (FIT, f"{MMD}gaussian", {"declared.first.settings.kernel": {"Gaussian": {"bandwidth": 1.0}}}),
    (FIT, f"{MMD}linear", {"declared.first.settings.alpha": 1, "declared.first.settings.cap": 50}),
    (EFFECT[:6], f"{BARE} x1,x2,x3 --prognostic x3,x1", {"columns": ["x3", "x1"]}),
    (EFFECT[:6], "--domain flat.toml --covariates x1,x2 --prognostic x2", {"columns": ["x2"]}),
]


@pytest.mark.parametrize(("command", "flags", "wanted"), STATED)
def test_what_flags_declare_is_in_the_release(folder, command, flags, wanted):
    Path("flat.toml").write_text("covariate_bound = 2\noutcome_bound = 8\nranges = [[-1, 1], [-1, 1]]\n")
    release = json.loads(done(*command, "--epsilon", "1", *flags.split(), "--json", "--yes").stdout)
    for place, value in wanted.items():
        stated = release | release["domain"]
        for name in place.split("."):
            stated = stated[int(name) if name.isdigit() else name]
        assert stated == value, place


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--calibration", "renyi", "--delta", "1e-6"],
            ("Theorem 7", "projected afterwards", "was declared"),
        ),
        (["--calibration", "output", "--second-stage", "plug_in_ate"], ("Theorem 8", "Laplace")),
        (["--calibration", "auto", "--second-stage", "plug_in_ate"], ("Theorem 8", "predicted error")),
        (
            ["--calibration", "paper", "--program", "ipw_logistic", "--radius", "1"],
            ("universal corollary", "DP_guarnatee (i)"),
        ),
        (
            [
                *("--calibration", "paper-corrected", "--program", "ipw_logistic", "--radius", "1"),
                *("--noise", "gaussian", "--delta", "1e-6"),
            ],
            ("(ii), corrected",),
        ),
    ],
)
def test_calibrations_are_named_with_their_reason(folder, words, told):
    result = done(*FIT, *words)
    shown = " ".join(result.stdout.split())
    for phrase in told:
        assert phrase in shown
    assert shown.count("private") >= 1


def test_an_unused_delta_is_told(folder):
    assert "--delta is not used" in run(*FIT, "--delta", "1e-6").stderr
    assert "--delta is not used" not in run(*FIT, "--delta", "1e-6", "--calibration", "renyi").stderr


def test_a_flag_supplies_what_the_domain_file_lacks(folder):
    whole = Path("domain.toml").read_text()
    Path("domain.toml").write_text(whole.replace("outcome_bound = 8.0\n", ""))
    assert "outcome_bound is not declared" in run(*FIT).stderr
    release = Release.from_json(run(*FIT, "--outcome-bound", "8", "--json").stdout)
    assert release.domain["outcome_bound"] == 8.0
    Path("domain.toml").write_text(whole.replace("8.0", "-1"))
    assert run(*FIT).stderr.startswith("error: domain.toml: outcome_bound = -1")


def test_a_damaged_release_is_refused(folder):
    plain = json.loads(run(*FIT, "--json").stdout)
    for change in (
        {"second_stage": {}},
        {"second_stage": {"name": "itr", "settings": {"features": 5}}},
        {"theta": [1.0]},
    ):
        Path("r.json").write_text(json.dumps(plain | change))
        assert "release JSON" in refused("predict", "r.json", "data.csv")


def test_nothing_private_is_printed(folder, monkeypatch):
    kept = {}
    fitted = PrivateTwoStageERM.fit_announced

    def keep(self, *args):
        model = fitted(self, *args)
        kept["workings"] = model.private_workings_
        return model

    monkeypatch.setattr(PrivateTwoStageERM, "fit_announced", keep)
    for words in ([], ["--json"], ["--balance"]):
        result = run(*FIT, *words)
        workings = kept["workings"]
        shown = result.stdout + result.stderr
        hidden = np.concatenate([workings.weights.value[:20], workings.weights.point, workings.noise])
        for value in hidden:
            assert repr(float(value)) not in shown
            assert f"{value:.6g}" not in shown
        release = json.loads(result.stdout) if "--json" in words else {}
        assert not {"weights", "noise_vector", "b", "dual", "certificate"} & set(release)


def test_balance_and_plot_are_for_the_data_holder(folder):
    result = run(*FIT, "--balance", "--love-plot", "love.png", "--json")
    assert Release.from_json(result.stdout).private
    assert "NOT PRIVATE" in result.stderr
    assert "SMD before" in result.stderr
    assert Path("love.png").read_bytes().startswith(b"\x89PNG")


def test_programs_lists_everything():
    listed = json.loads(run("programs", "--json").stdout)
    assert [program["name"] for program in listed] == list(registry.programs())
    for program in listed:
        assert program["formula"]
        assert program["theorem"]
    text = run("programs", env={"COLUMNS": "80"}).stdout
    assert all(name in text for name in registry.programs())
    assert max(map(len, text.splitlines())) <= 80


def test_certify_covers_solvers_and_programs():
    rows = json.loads(run("certify", "--n", "60", "--json").stdout)
    assert {row["program"] for row in rows} == set(registry.programs())
    for row in rows:
        if row["status"] == "does not apply":
            assert row["solver"] == "osqp"
            continue
        assert row["certified"]
        assert row["radius"] <= 1e-9
        assert row["distance"] <= 2e-9


def test_certify_on_data_says_that_it_is_private(folder):
    words = ["certify", *FIT[1:8], "--program", "entropy_balancing", "--ridge", "5", "--solver", "newton"]
    result = done(*words)
    assert "NOT PRIVATE" in result.stdout
    assert "NOT PRIVATE" in result.stderr


@pytest.mark.parametrize("name", ["stable_balancing_hard", "entropy_balancing_hard"])
def test_certify_says_why_no_weights_exist(folder, name):
    solvers = ("newton", "clarabel", "scs")
    text = Path("data.csv").read_text().splitlines()
    header = text[0].split(",")
    x1, a = header.index("x1"), header.index("a")

    def with_arms(treated):
        rows = [line.split(",") for line in text[1:]]
        lines = [[*row[:a], str(int(treated(float(row[x1])))), *row[a + 1 :]] for row in rows]
        Path("arms.csv").write_text("\n".join(",".join(row) for row in [header, *lines]) + "\n")

    words = ["certify", "arms.csv", *FIT[2:8], "--program", name, "--covariates", "x1,x2,x3"]
    words += [word for solver in solvers for word in ("--solver", solver)]
    with_arms(lambda x: x > 0.5)
    result = run(*words)
    # what is found about a program is a result, as it is of a solver that does not apply
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert told.count("no weights meet the targets") == 1
    assert re.search(rf"{name}: no weights .* x1 \(\w+\).* 0\.\d+ or more", told)
    rows = json.loads(run(*words, "--json").stdout)
    assert len(rows) == len(solvers)
    assert all("x1" in row["note"] and not row["certified"] for row in rows)
    with_arms(lambda x: False)
    result = done(*words)
    assert " ".join(result.stdout.split()).count(f"{name}: an arm without records") == 1
