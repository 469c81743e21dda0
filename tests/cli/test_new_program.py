"""Commands that write and check a program, and a distribution that brings one."""

import ast
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from dp2erm_cvx.conformance import Subject, program_template
from tests.command_line import refused
from tests.command_line import run as command

ROOT = Path(__file__).parents[2]


def test_the_commands_write_check_and_refuse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dp2erm_cvx.conformance.run.Subject", partial(Subject, larger=(101,)))
    assert command("new-program", "mine", "--kind", "exponential").exit_code == 0
    for words, message in (
        (("overlap",), "installed already"),
        (("mine",), "exists already"),
        (("numpy",), "hides the installed module 'numpy'"),
        (("string",), "hides the installed module 'string'"),
        (("yours", "--output", "cvxpy.py"), "hides the installed module 'cvxpy'"),
        (("yours", "--output", "yours.txt"), "ends in .py"),
    ):
        assert message in refused("new-program", *words, "--kind", "direct")
    assert [path.name for path in Path.cwd().iterdir()] == ["mine.py"]
    fine = command("check-program", "mine.py", "--solves", "20")
    assert fine.exit_code == 0
    assert fine.stdout.count("all checks passed") == 1
    # a declaration has nothing to state wrong but a bound
    text = program_template("mine", "direct").replace("import scheme", "import Bound, scheme")
    text += "\n\n@mine.bound\ndef _(n):\n    return Bound.from_l2(0.01, w_max=1.001)\n"
    Path("mine.py").write_text(text, encoding="utf-8")
    found = command("check-program", "mine.py", "--solves", "20", "--json")
    assert found.exit_code == 1
    (only,) = json.loads(found.stdout)
    assert next(o["check"] for o in only["outcomes"] if o["status"] == "failed") == "movement"
    assert command("check-program", "absent.py").exit_code == 2


def test_a_program_of_another_distribution_is_found_listed_checked_fitted_and_audited(tmp_path):
    """In an interpreter of its own, from a package installed beside the library."""
    site = tmp_path / "site"
    metadata = site / "matching_weights-1.0.dist-info"
    metadata.mkdir(parents=True)
    text = program_template("matching_plugin", "exponential")
    (site / "matching_weights.py").write_text(text, encoding="utf-8")
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: matching-weights\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[dp2erm_cvx.problems]\nmatching = matching_weights\n", encoding="utf-8"
    )
    options = ["--program", "matching_plugin", "--ridge", "0.1", "--covariate-bound", "1"]
    plain = ["--no-page", "--no-tightness", "--json"]
    commands = [
        ["programs", "--json"],
        ["check-program", "matching_plugin", "--solves", "20"],
        ["audit", *options, "--n", "60", "--solves", "100", *plain],
        ["bounds", *options, "--n", "100"],
    ]
    code = (
        f"from tests.command_line import run\nfor words in {commands}:\n    print(repr(run(*words).stdout))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    programs, checked, audit, bounds = (ast.literal_eval(line) for line in done.stdout.splitlines())
    listed = {row["name"]: row for row in json.loads(programs)}
    assert listed["matching_plugin"]["stage"] == "first"
    assert checked.count("all checks passed") == 1
    audited = json.loads(audit)
    assert audited["resolved"] > 0
    assert not any(verdict["violated"] for verdict in audited["verdicts"])
    assert "Theorems 22 and 23" in bounds
