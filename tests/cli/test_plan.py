import json

import click
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, registry
from dp2erm_cvx.cli.app import main
from dp2erm_cvx.plan.predict import noise_range
from dp2erm_cvx.release import Release
from dp2erm_cvx.universe import Universe
from tests.command_line import run

PLAN = ["plan", "--second-stage", "arm_means", "--covariate-bound", "2", "--outcome-bound", "10"]
IPW = [*PLAN, "--program", "ipw_logistic"]


def rows(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_grid_is_complete_and_in_order():
    words = ["--n", "400,1600", "--ridge", "0.1,1", "--trim", "4,10", "--epsilon", "0.5,1,2"]
    found = rows(*IPW, *words)
    assert len(found) == 24
    assert [row["epsilon"] for row in found[:3]] == [0.5, 1, 2]
    assert (found[0]["ridge"], found[0]["trim"], found[0]["n_samples"]) == (0.1, 4, 400)
    assert (found[-1]["ridge"], found[-1]["trim"], found[-1]["n_samples"]) == (1, 10, 1600)
    for low, high in zip(found[::3], found[2::3], strict=True):
        assert low["V"] == high["V"]
        assert low["predicted_error"] > high["predicted_error"]


def test_a_row_is_what_the_estimator_plans():
    (row,) = rows(*IPW, "--n", "900", "--ridge", "0.5", "--calibration", "sharp", "--epsilon", "2")
    domain = Domain(2.0, 10.0)
    first = registry.build(registry.first_stages(), "ipw_logistic", ridge=0.5)
    model = PrivateTwoStageERM(domain, Budget(2.0), first, "arm_means")
    plan = model.plan(900, 1)
    assert row["V"] == plan.bound.V
    assert row["scale"] == plan.theta.calibration.scale
    assert row["gamma"] == plan.theta.calibration.gamma
    second = registry.build(registry.second_stages(), "arm_means").resolve(domain)
    moved = noise_range(second, Universe(domain, 900, 1), plan.theta.calibration)
    assert row["spread"] == pytest.approx(moved.effect)
    assert row["shrinkage"] == pytest.approx(moved.shrinkage)


def test_a_plan_is_asked_for_as_a_release_is():
    """What two commands share has one default, or the plan would be of another release."""
    commands = {name: main.commands[name] for name in ("effect", "rule", "fit", "plan")}
    options = {
        name: {
            one.name: (one.default, one.type.name) for one in command.params if isinstance(one, click.Option)
        }
        for name, command in commands.items()
    }
    shared = set(options["fit"]) & set(options["plan"])
    assert {"calibration", "noise", "split", "value_share", "arithmetic", "second_stage"} <= shared
    lists = {"epsilon", "ridge", "radius", "trim"}
    for one in options.values():
        for other in options.values():
            for name in set(one) & set(other) - lists:
                assert one[name] == other[name], name


@pytest.mark.parametrize(
    "words",
    [["--value-share", "0.2", "--second-stage", "itr"], ["--split", "0.7"], ["--arithmetic", "assumed"]],
)
def test_a_plan_is_of_the_release_that_follows(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    table = np.column_stack([X, np.arange(60) % 2, X[:, 0]])
    np.savetxt("data.csv", table, delimiter=",", header="u,v,a,y", comments="")
    fit = [
        "fit",
        "data.csv",
        "--treatment",
        "a",
        "--outcome",
        "y",
        *IPW[1:],
        "--epsilon",
        "2",
        *words,
        "--json",
    ]
    released = run(*fit)
    assert released.exit_code == 0, released.output
    theta = Release.from_json(released.stdout).mechanism
    (row,) = rows(*IPW, "--n", "60", "--n-features", "2", "--epsilon", "2", *words)
    assert (row["scale"], row["gamma"], row["V"]) == (theta.scale, theta.gamma, theta.stability)


def test_a_plan_for_any_number_of_records_stores_none_of_them():
    for program in ("entropy_balancing", "ipw_logistic", "overlap", "uniform", "stable_balancing"):
        (row,) = rows(*PLAN, "--program", program, "--n", str(10**18), "--n-features", "2")
        assert 2 <= row["V"] <= 2e18, program


def test_auto_is_named_and_is_the_best():
    words = [*PLAN, "--n", "1600", "--delta", "1e-6"]
    words[2] = "plug_in_ate"
    (auto,) = rows(*words, "--calibration", "auto")
    assert "Theorem 8" in auto["theorem"]
    for method in ("sharp", "renyi", "output"):
        (other,) = rows(*words, "--calibration", method)
        assert other["predicted_error"] >= auto["predicted_error"]
        assert "Theorem 8" in other["automatic"]
    assert run(*words, "--calibration", "sharp").stdout.splitlines()[3].split()[-1] == "8"


def test_a_private_propensity_is_planned_with_what_it_leaves():
    words = [*PLAN, "--program", "ipw_private", "--n", "1600", "--trim", "4", "--n-features", "3"]
    costly, cheap = (rows(*words, "--set", f"share={share}")[0] for share in (0.6, 0.2))
    assert costly["V"] == cheap["V"]
    assert costly["scale"] / cheap["scale"] == pytest.approx(0.8 / 0.4, rel=0.05)


def test_refused_cells_stay_with_their_reason():
    words = [*IPW, "--n", "400", "--ridge", "0,1"]
    refused, kept = rows(*words)
    assert "ridge = 0" in refused["refusal"]
    assert refused["V"] is None
    assert kept["refusal"] is None
    text = run(*words, env={"COLUMNS": "80"}).stdout
    assert "refused [1]" in text
    assert "[1] ridge = 0" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_the_paper_may_be_planned_too():
    words = [*IPW, "--n", "400", "--radius", "1"]
    (paper,) = rows(*words, "--calibration", "paper")
    (sharp,) = rows(*words, "--calibration", "sharp")
    assert paper["V"] > 50 * sharp["V"]
    assert "Theorem 1" in paper["automatic"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (IPW, "--n"),
        ([*IPW, "--n", "a"], "--n"),
        ([*IPW, "--n", ","], "--n"),
        ([*IPW, "--n", "1"], "at least 2"),
        ([*IPW, "--n", "40", "--ridge", "x"], "--ridge"),
        ([*IPW, "--n", "40", "--ridge", "-1"], "ridge"),
        ([*IPW, "--n", "40", "--ridge", "1", "--set", "ridge=2"], "twice"),
        ([*IPW, "--n", "40", "--epsilon", "1,0"], "epsilon"),
        ([*IPW, "--n", "40", "--calibration", "best"], "best"),
        ([*PLAN, "--program", "uniform", "--n", "40", "--trim", "4"], "trim"),
        ([*PLAN, "--n", "40", "--program", "ipw_private"], "--n-features"),
        ([*PLAN[:5], "--n", "40"], "outcome_bound"),
        (["plan", "--covariate-bound", "1", "--outcome-bound", "1", "--n", "40"], "--n-features"),
    ],
)
def test_bad_input_is_one_line(words, told):
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.strip().splitlines()) == 1
    assert told in result.stderr
