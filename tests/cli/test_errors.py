"""Errors without values, streams without Unicode, and what a command imports."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from dp2erm_cvx.cli import main
from dp2erm_cvx.estimators import PrivateTwoStageERM
from tests.command_line import FIT, run

INTERNAL = "internal error: RuntimeError; run with DP2ERM_DEBUG=1 for the traceback"


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [(RuntimeError("secret 42"), 70, INTERNAL), (KeyboardInterrupt(), 130, "\nerror: interrupted")],
)
def test_unexpected_errors_show_no_values(folder, monkeypatch, raised, code, told):
    def fail(self, *args):
        raise raised

    monkeypatch.setattr(PrivateTwoStageERM, "plan", fail)
    result = run(*FIT)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"{told}\n")
    assert ("secret 42" in run(*FIT, env={"DP2ERM_DEBUG": "1"}).stderr) is (code == 70)


def test_a_stream_without_unicode_is_no_error(folder):
    done = CliRunner(charset="ascii").invoke(main, FIT)
    assert done.exit_code == 0, done.output
    assert b"theta" in done.stdout_bytes


#: Of every heavy package something that only its own import brings.
HEAVY = (
    "cvxpy.atoms",
    "pandas.core",
    "sklearn.base",
    "numpy",
    "scipy",
    "rich",
    "pydantic",
    "matplotlib",
)

HELP = f"""
import sys
import dp2erm_cvx
from dp2erm_cvx.cli import main
for words in (["--help"], ["check", "--help"]):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
assert not (found := set({HEAVY}) & sys.modules.keys()), found
"""


def test_the_package_and_the_help_need_nothing_heavy():
    ran = subprocess.run([sys.executable, "-c", HELP], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
