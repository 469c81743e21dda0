"""An effect on the command line: one summary, checks before the data, and no neighbor that is refused."""

import csv
import json
from pathlib import Path

import pytest

from dp2erm_cvx import Budget, EffectRelease, Ledger
from dp2erm_cvx.cli import reading
from tests.command_line import COLUMNS, EFFECT, replaced, run, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files()
    return tmp_path


def write_rows(change):
    """The data of the good command, with ``change(k, row)`` made to row k."""
    with open("data.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open("data.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, **change(k, row)} for k, row in enumerate(rows))


def test_json_spells_out_what_may_be_relied_on(folder):
    result = run(*EFFECT, "--json", "--output", "effect.json")
    plain = json.loads(result.stdout)
    release = EffectRelease.from_json(result.stdout)
    assert release == EffectRelease.from_json(Path("effect.json").read_bytes())
    assert list(plain)[:5] == ["private", "standing", "estimand", "estimate", "interval"]
    assert plain["standing"] == plain["guarantee"]["standing"]
    assert plain["interval"]["low"] < plain["estimate"] < plain["interval"]["high"]
    assert plain["interval"]["level"] == 0.95
    assert [step["step"] for step in plain["steps"]] == ["center", "propensity", "score"]
    assert sum(step["epsilon"] for step in plain["steps"]) == pytest.approx(1.0, rel=0.02)
    assert plain["nuisance_noise"] in ("negligible", "not negligible")
    assert plain["columns"] == list(COLUMNS)


@pytest.mark.parametrize("estimand", ["ate", "att", "risks"])
def test_the_text_is_the_summary_of_the_file(folder, estimand, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # a screen of another width fills its lines otherwise
    words = [*EFFECT, "--seed", "2", "--estimand", estimand, "--output", "effect.json"]
    shown = "\n".join(line.rstrip() for line in run(*words).stdout.splitlines())
    # a summary knows the file alone: no number of it was not released
    assert shown == EffectRelease.from_json(Path("effect.json").read_bytes()).summary()
    assert run("show", "effect.json").stdout == run(*words, "--force").stdout
    verified = run("verify", "effect.json", "--domain", "domain.toml")
    assert (verified.exit_code, verified.stdout.splitlines()[0]) == (0, "Verified"), verified.output
    changed = json.loads(Path("effect.json").read_bytes())
    changed["steps"][0]["stability"] = 0.0
    Path("changed.json").write_text(json.dumps(changed))
    refuted = run("verify", "changed.json")
    assert (refuted.exit_code, refuted.stdout.splitlines()[0]) == (1, "REFUTED")
    assert "stability = 0.0, where what is declared gives 2.0" in " ".join(refuted.stdout.split())


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--estimand", "att"],
        ["--set", "propensity=0.5"],
        ["--epsilon", "0.01"],
        ["--epsilon", "100", "--prognostic", "x1"],
        ["--noise", "gaussian", "--delta", "1e-6", "--treatment-cost", "1"],
    ],
)
def test_the_text_says_what_the_interval_is_and_is_not(folder, more):
    result = run(*EFFECT, *more, "--seed", "1")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    for phrase in ("in units of the outcome", "95 % interval", "Noise alone", "sampling alone", "200 records",
                   "clipped by public rule", "whatever those nuisances are", "is an assumption",
                   "beside the interval", "Not covered", "epsilon"):  # fmt: skip
        assert phrase in text, phrase
    assert ("net of the treatment cost" in text) == ("--treatment-cost" in more)
    assert ("public probability 0.5" in text) == ("propensity=0.5" in more)
    assert ("no confounder is unmeasured" in text) == ("propensity=0.5" not in more)
    assert ("naive difference of means may exceed" in text) == ("NOT negligible" in text)


def test_the_noise_of_nuisances_is_told_where_it_matters(folder):
    assert "NOT negligible" in run(*replaced("--epsilon", "0.001", EFFECT)).stdout
    assert "NOT negligible" not in run(*replaced("--epsilon", "1000", EFFECT)).stdout


def test_declarations_are_judged_before_the_data_and_the_ledger(folder, monkeypatch):
    Ledger("book.db").declare("trial", Budget(5.0))
    book = ["--ledger", "book.db", "--dataset", "trial"]

    def read(*_):
        raise AssertionError("the data were read")

    with monkeypatch.context() as patched:
        patched.setattr(reading, "read_data", read)
        for flag, value in (
            ("--level", "2"),
            ("--set", "cap=1"),
            ("--set", "nope=1"),
            ("--prognostic", "x9"),
            ("--residual-scale", "-1"),
            ("--estimand", "late"),
            ("--epsilon", "nan"),
            ("--noise", "laplace"),
            ("--solver", "nope"),
            ("--seed", "-3"),
            ("--numerical-share", "2"),
        ):
            result = run(*replaced(flag, value, EFFECT), *book)
            assert result.exit_code == 2, (flag, result.output)
    assert Ledger("book.db").account("trial").spent.epsilon == 0.0
    assert "charged to 'trial'" in run(*EFFECT, *book).stderr
    assert Ledger("book.db").account("trial").spent.epsilon == pytest.approx(1.0)


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
@pytest.mark.parametrize("more", [[], ["--estimand", "att"], ["--epsilon", "20"]], ids=["ate", "att", "rich"])
def test_no_data_are_refused(folder, change, more):
    write_rows(change)
    result = run(*EFFECT, *more, "--json")
    assert result.exit_code == 0, result.output
    assert (
        EffectRelease.from_json(result.stdout).standing
        == EffectRelease.from_json(run(*EFFECT, *more, "--json").stdout).standing
    )


@pytest.mark.parametrize("value", ["nan", "", "ann", "inf"])
@pytest.mark.parametrize("column", ["y", "a", "x1"])
def test_what_is_no_number_counts_as_missing(folder, column, value):
    write_rows(lambda k, row: {column: value} if k == 3 else {})
    result = run(*EFFECT, "--json", "--seed", "1")
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1), result.output  # what a seed does
    # by the public rule: the middle of a range, the center of the outcome, or a whole record
    fixed = {column: 0.0} if column != "a" else dict.fromkeys(("a", "y", "x1", "x2", "x3"), 0)
    write_rows(lambda k, row: fixed if k == 3 else {})
    assert json.loads(run(*EFFECT, "--json", "--seed", "1").stdout) == json.loads(result.stdout)


def test_names_are_found_without_ranges(folder):
    words = [*EFFECT[:6], "--covariate-bound", "2", "--outcome-bound", "8", "--epsilon", "1", "--json"]
    chosen = [*words, "--covariates", "x1,x2,x3"]
    assert json.loads(run(*chosen, "--prognostic", "x3,x1").stdout)["columns"] == ["x3", "x1"]
    assert "x9" in run(*chosen, "--prognostic", "x9").stderr
    Path("flat.toml").write_text("covariate_bound = 2\noutcome_bound = 8\nranges = [[-1, 1], [-1, 1]]\n")
    flat = [*EFFECT[:6], "--domain", "flat.toml", "--epsilon", "1", "--covariates", "x1,x2", "--json"]
    assert json.loads(run(*flat, "--prognostic", "x2").stdout)["columns"] == ["x2"]


def test_a_seed_is_told_and_charges_nothing(folder):
    one, other = (run(*EFFECT, "--json", "--seed", "5") for _ in range(2))
    assert one.stdout == other.stdout
    assert json.loads(one.stdout)["standing"].startswith("not private")
    assert "NOT PRIVATE" in one.stderr


def test_an_effect_recommends_nothing(folder):
    run(*EFFECT, "--output", "effect.json")
    result = run("predict", "effect.json", "data.csv")
    assert result.exit_code == 2
    assert "states an average effect" in result.stderr


def test_cells_are_declared_by_cuts_and_by_numbers(folder):
    first, *others = COLUMNS
    more = [f"{name}:1" for name in others]
    words = [*EFFECT, *(word for text in (f"{first}=-0.5,0,0.25", *more) for word in ("--cells", text))]
    release = EffectRelease.from_json(run(*words, "--json").stdout)
    assert [step.step for step in release.steps] == ["cells", "score"]
    assert release.settings["cells"][first] == pytest.approx([-0.5, 0.0, 0.25])
    for wrong in ("x", "x=", "x=low", "=0.5", "x:1,low"):
        assert "must look like age=30,50" in run(*EFFECT, "--cells", wrong).stderr
    assert "given twice" in run(*EFFECT, *["--cells", f"{first}=0"] * 2).stderr
