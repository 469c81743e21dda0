"""Programs of the user's own: files that are written and checked, used as they stand, or installed."""

import ast
import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from dp2erm_cvx.cli import screen
from dp2erm_cvx.conformance import Subject, program_template
from dp2erm_cvx.registry import available, programs
from tests.command_line import FIT, done, run, write_files

_NO_DATA = ("--covariate-bound", "2", "--outcome-bound", "2")
_FEATURES = ("--n-features", "2")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files()
    weights, loss = program_template("my_weights", "exponential"), program_template("my_loss", "loss")
    Path("weights.py").write_text(weights, encoding="utf-8")
    Path("loss.py").write_text(loss, encoding="utf-8")
    second = weights[weights.index("@scheme") :].replace("my_weights", "another")
    Path("two.py").write_text(f"{weights}\n\n{second}", encoding="utf-8")


def test_a_release_by_programs_of_two_files(tmp_path):
    words = (
        *FIT, "--program", "weights.py", "--set", "radius=2", "--ridge", "0.3", "--second-stage", "loss.py",
    )  # fmt: skip
    written = done(*words, "--json", "--output", "release.json").stdout
    release = json.loads(written)
    assert release["private"]
    first = release["declared"]["first"]
    assert len(first.pop("digest")) == 64
    assert first == {"name": "my_weights", "settings": {"ridge": 0.3, "radius": 2}}
    assert release["declared"]["second"]["name"] == "my_loss"
    # both declarations use the library's data alone: nothing rests on their author's word
    assert not [text for text in release["guarantee"]["assumptions"] if "author" in text]
    assert str(tmp_path) not in written
    # what is not installed is unknown once the command has ended
    assert dict(available()) == programs()
    assert "unknown program 'my_loss'" in run("predict", "release.json", "data.csv").stderr
    table = done("predict", "release.json", "data.csv", "--second-stage", "loss.py").stdout
    assert len(table.splitlines()) == 201
    own = ("--program", "weights.py", "--program", "loss.py")
    assert "'my_weights' is not known here" in run("verify", "release.json").stderr
    assert "Verified" in done("verify", "release.json", *own).stdout
    changed = Path("weights.py").read_text(encoding="utf-8").replace("cp.", "1.0 * cp.", 1)
    Path("weights.py").write_text(changed, encoding="utf-8")
    assert "is not the one known here" in run("verify", "release.json", *own).stderr


def test_a_plan_and_the_bounds_of_a_file():
    words = ("--program", "weights.py", *_NO_DATA, "--second-stage", "loss.py")
    more = ("--plan", "100", "--covariates", "x1,x2", "--epsilon", "1", "--json")
    plans = [json.loads(done("fit", *words, "--ridge", ridge, *more).stdout) for ridge in (0.5, 1)]
    tight, wide = (plan["predicted"]["V"] for plan in plans)
    assert tight > wide
    (sharp, *_) = json.loads(
        done("bounds", *words, *_FEATURES, "--n", "100", "--ridge", "0.5", "--json").stdout
    )
    assert sharp["V"] == pytest.approx(tight, rel=1e-3)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_audit_of_a_file_and_its_worst_pair(workers):
    words = [
        "--program", "weights.py", "--ridge", "0.2", "--covariate-bound", "1", "--n", "40", "--solves",
        "100",
    ]  # fmt: skip
    words += ["--no-page", "--save", "pair", "--workers", workers]
    done("audit", *words)
    assert "unknown program 'my_weights'" in run("audit", "--replay", "pair").stderr
    assert "not violated" in done("audit", "--replay", "pair", "--program", "weights.py").stdout


def test_one_of_several_is_chosen():
    chosen = done("bounds", "--program", "two.py:another", "--covariate-bound", "1")
    assert "Stability of another" in chosen.stdout
    assert available() == programs()


@pytest.mark.filterwarnings("default")
def test_a_broken_distribution_does_not_stop_the_others(monkeypatch):
    from importlib.metadata import EntryPoint, entry_points

    from dp2erm_cvx import registry

    entries = [*entry_points(group=registry.GROUP), EntryPoint("absent", "absent_module", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    for cached in (registry._sound, registry.programs):
        cached.cache_clear()
    try:
        fine = done(*FIT, "--program", "uniform")
        assert fine.stderr.startswith("warning: left out: entry point absent = absent_module")
        for words in (["programs"], ["check-program", "uniform"], [*FIT, "--program", "absent"]):
            result = run(*words)
            assert result.exit_code == 2
            assert "entry point absent = absent_module cannot be imported" in result.stderr
    finally:
        for cached in (registry._sound, registry.programs):
            cached.cache_clear()


ROOT = Path(__file__).parents[2]


def test_the_commands_write_and_check(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr("dp2erm_cvx.conformance.run.Subject", partial(Subject, larger=(101,)))
    assert run("new-program", "mine", "--kind", "exponential").exit_code == 0
    fine = run("check-program", "mine.py", "--solves", "20")
    assert fine.exit_code == 0
    assert fine.stdout.count("all checks passed") == 1
    # a declaration has nothing to state wrong but a bound
    text = program_template("mine", "direct").replace("import scheme", "import Bound, scheme")
    text += "\n\n@mine.bound\ndef _(n):\n    return Bound.from_l2(0.01, w_max=1.001)\n"
    Path("mine.py").write_text(text, encoding="utf-8")
    result = run("check-program", "mine.py", "--solves", "20", "--json")
    assert result.exit_code == 1
    (only,) = json.loads(result.stdout)
    assert next(o["check"] for o in only["outcomes"] if o["status"] == "failed") == "movement"


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
    plain = ["--no-page", "--json"]
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


def test_checks_are_counted_on_a_terminal(monkeypatch):
    stream = io.StringIO()
    terminal = Console(file=stream, force_terminal=True, width=100)
    monkeypatch.setattr(screen, "console", lambda stderr=False: terminal)
    done("check-program", "uniform", "--solves", "20")
    assert "uniform: " in stream.getvalue()
