"""Bad input in one line, errors without values, and what a command imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dp2erm_cvx.cli import main
from dp2erm_cvx.estimators import PrivateTwoStageERM
from tests.command_line import EFFECT, FIT, replaced, run


@pytest.fixture
def folder(folder):
    for name, text in HOSTILE.items():
        Path(name).write_text(text)
    return folder


HOSTILE = {
    "twice.json": '{"private": true, "private": false}',
    "deep.json": "[" * 100_000,
    "infinite.json": '{"theta": [Infinity]}',
    "digits.toml": "covariate_bound = " + "9" * 5000,
}


#: What the table of hostile inputs has not: each names what is wrong.
BAD = {
    "no treatment named": ([*FIT[:2], *FIT[4:]], "--treatment"),
    "no epsilon": (FIT[:-2], "--epsilon"),
    "gaussian without delta": (replaced("--noise", "gaussian"), "delta"),
    "a second stage as program": (replaced("--program", "itr"), "itr"),
    "program without a bound": (replaced("--program", "entropy_balancing_hard"), "no stability bound"),
    "solver that does not apply": (replaced("--solver", "osqp"), "quadratic"),
    "setting twice": ([*FIT, "--set", "ridge=1", "--ridge", "2"], "twice"),
    "degree of text": (replaced("--degree", "two"), "degree"),
    "no domain": ([*FIT[:6], *FIT[8:]], "--covariate-bound"),
    "covariate without range": (replaced("--covariates", "x1,gap"), "gap"),
    "unbounded theta": (replaced("--second-set", "theta_set=whole"), "unbounded"),
    "seed of text": (replaced("--seed", "abc"), "seed"),
    "calibration that does not cover": (replaced("--calibration", "paper"), "scaling"),
    "output perturbation of a rule": (replaced("--calibration", "output"), "plug_in_ate"),
    "split of a calibration": ([*replaced("--calibration", "auto"), "--split", "0.5"], "split"),
    "mmd without an arm floor": (replaced("--program", "mmd"), "arm_floor"),
    "effect: beyond the cap": (
        [*replaced("--set", "propensity=0.05", EFFECT), "--set", "cap=9"],
        "larger cap",
    ),
    "effect: half a ledger": (replaced("--ledger", "book.db", EFFECT), "--dataset"),
    "show: no JSON": (["show", "bad.toml"], "bad.toml is no release: give the JSON file"),
    "certify: domain without data": (["certify", "--domain", "domain.toml"], "data file"),
    "certify: settings for many": (["certify", "--ridge", "1"], "--program"),
    "predict: a name twice": (["predict", "twice.json", "data.csv"], "a name stands twice"),
    "predict: brackets without end": (["predict", "deep.json", "data.csv"], "deep.json is no release"),
    "predict: infinity": (["predict", "infinite.json", "data.csv"], "Infinity is not a finite number"),
    "fit: domain of brackets": (replaced("--domain", "deep.json"), "TOML"),
    "fit: number without end": (replaced("--domain", "digits.toml"), "that this reader can hold"),
    "a word that is too long": ([*FIT, "x" * 5000], "xxx ... xxx"),
    "no data and no plan": ([*FIT[:1], *FIT[2:]], "--plan N"),
    "a plan of one record": ([*FIT, "--plan", "1"], "--plan"),
    "a plan without covariates": (
        ["fit", "--plan", "9", "--covariate-bound", "1", "--outcome-bound", "1", "--epsilon", "1"],
        "--covariates",
    ),
    "certify: more records than memory": (["certify", "--n", "1e18"], "must be at most 1e+06"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(folder, case):
    args, told = BAD[case]
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    *before, line = result.stderr.strip().splitlines()
    assert len(before) == (case == "solver that does not apply")  # which the solver finds out
    assert len(line) < 600
    assert line.startswith("error: ")
    assert told in line


def test_unexpected_errors_show_no_values_and_an_interrupt_ends_with_130(folder, monkeypatch):
    def fail(self, *args):
        raise raised

    raised = RuntimeError("secret 42")
    monkeypatch.setattr(PrivateTwoStageERM, "fit_announced", fail)
    result = run(*FIT)
    assert result.exit_code == 70
    assert result.stderr == "internal error: RuntimeError; run with DP2ERM_DEBUG=1 for the traceback\n"
    assert "secret 42" in run(*FIT, env={"DP2ERM_DEBUG": "1"}).stderr
    raised = KeyboardInterrupt
    assert run(*FIT).exit_code == 130


def test_a_stream_without_unicode_is_no_error(folder):
    done = CliRunner(charset="ascii").invoke(main, FIT)
    assert done.exit_code == 0, done.output
    assert b"theta" in done.stdout_bytes


#: Of every heavy package something that only its own import brings.
HEAVY = ("cvxpy.atoms", "pandas.core", "sklearn.base", "numpy", "scipy", "rich", "pydantic", "matplotlib")

HELP = f"""
import sys
import dp2erm_cvx
from dp2erm_cvx.cli import main
for words in (["--help"], ["check", "--help"]):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
assert not (found := {HEAVY!r} & sys.modules.keys()), found
""".replace(repr(HEAVY), repr(set(HEAVY)))


def test_the_package_and_the_help_need_nothing_heavy():
    ran = subprocess.run([sys.executable, "-c", HELP], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
