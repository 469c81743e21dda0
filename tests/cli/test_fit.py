import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import Domain, Release, registry
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.privacy import Budget
from tests.command_line import COLUMNS, FIT, done, refused, run

#: What the files and the flags of the good command declare.
DECLARED = Domain(
    2.0,
    8.0,
    intercept=1.0,
    ranges=dict.fromkeys(COLUMNS, (-1, 1)),
    codebook=Codebook(Treatment("a"), outcome="y"),
)


def test_a_release_comes_back_from_json(folder):
    result = done(*FIT, "--json", "--output", "release.json")
    release = Release.from_json(result.stdout)
    assert release == Release.from_json(Path("release.json").read_bytes())
    assert release.private
    assert release.guarantee.epsilon == 1.0
    assert release.columns == COLUMNS
    assert release.domain == DECLARED.to_dict()


def test_flags_override_the_domain_file(folder):
    words = ["--outcome-bound", "4", "--range", "x2=-2:2", "--relation", "replace-one-keep-treatment"]
    domain = json.loads(run(*FIT, *words, "--json", "--yes").stdout)["domain"]
    assert domain["outcome_bound"] == 4.0
    assert domain["covariate_bound"] == 2.0
    assert domain["ranges"] == {"x1": [-1.0, 1.0], "x2": [-2.0, 2.0], "x3": [-1.0, 1.0]}
    assert domain["relation"] == "replace-one-keep-treatment"


def test_covariates_choose_among_the_ranges(folder):
    release = Release.from_json(run(*FIT, "--covariates", "x3,x1", "--json").stdout)
    assert release.columns == ("x3", "x1")
    assert list(release.domain["ranges"]) == ["x3", "x1"]


def test_names_are_kept_without_a_domain_file(folder):
    words = [*FIT[:6], "--covariates", "x2,x3", "--covariate-bound", "1.5", "--outcome-bound", "8"]
    result = run(*words, "--epsilon", "1", "--second-set", "features=x3", "--json", "--output", "r.json")
    release = Release.from_json(result.stdout)
    assert release.columns == ("x2", "x3")
    assert release.parameters == ("x3",)
    assert run("predict", "r.json", "data.csv").exit_code == 0


def test_settings_reach_the_programs(folder):
    words = ["--program", "ipw_logistic", "--ridge", "2", "--set", "trim=4", "--set", "radius=inf"]
    for setting in ("theta_set=l2:3", "l1=0.1", "l2=0.2", "features=x2", "features_bound=0.5"):
        words += ["--second-set", setting]
    plain = json.loads(
        run(*FIT, *words, "--noise", "gaussian", "--delta", "1e-6", "--split", "0.5", "--json").stdout
    )
    assert plain["declared"]["first"] == {
        "name": "ipw_logistic",
        "settings": {"ridge": 2.0, "radius": "inf", "trim": 4.0},
    }
    settings = plain["declared"]["second"]["settings"]
    assert settings["theta_set"] == {"L2Ball": {"radius": 3.0}}
    assert settings["regularizer"] == {"ElasticNet": {"l1": 0.1, "l2": 0.2}}
    assert (settings["features"], settings["features_bound"]) == (["x2"], 0.5)
    assert plain["parameters"] == ["intercept", "x2"]
    assert plain["steps"][0]["noise"] == "gaussian"
    assert plain["steps"][0]["split"] == 0.5
    assert plain["guarantee"]["delta"] == 1e-6


@pytest.mark.parametrize(
    ("kernel", "kept"), [("laplace:0.5", "Laplace(bandwidth=0.5)"), ("gaussian", "Gaussian(bandwidth=1.0)")]
)
def test_kernels_reach_the_programs(folder, kernel, kept):
    words = [*FIT, "--program", "mmd", "--arm-floor", "20", "--ridge", "5", "--set", f"kernel={kernel}"]
    result = done(*words, "--set", "cap=50", "--set", "alpha=1", "--json")
    settings = json.loads(result.stdout)["declared"]["first"]["settings"]
    assert settings["alpha"] == 1
    assert settings["cap"] == 50
    name, field = kept.rstrip(")").split("(bandwidth=")
    assert settings["kernel"] == {name: {"bandwidth": float(field)}}


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
    assert release.domain == DECLARED.to_dict()
    Path("domain.toml").write_text(whole.replace("8.0", "-1"))
    assert run(*FIT).stderr.startswith("error: domain.toml: outcome_bound = -1")


@pytest.mark.parametrize("program", ["itr", "arm_means", "plug_in_ate"])
def test_predictions_agree_with_the_estimator(folder, program):
    assert run(*FIT, "--second-stage", program, "--seed", "3", "--output", "r.json").exit_code == 0
    result = run("predict", "r.json", "data.csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    data = simulate("linear", 200, rng=0).dataset
    domain = Domain(2.0, 8.0, intercept=1.0, ranges=dict.fromkeys(COLUMNS, (-1.0, 1.0)))
    model = PrivateTwoStageERM(domain, Budget(1.0), second_stage=program, seed=3)
    model.fit(data.X[:, :3], data.a, data.y)
    assert [float(row["effect"]) for row in rows] == list(model.predict_effect(data.X[:, :3]))
    assert [int(row["treatment"]) for row in rows] == list(model.predict(data.X[:, :3]))
    assert "NOT PRIVATE" in result.stderr


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
