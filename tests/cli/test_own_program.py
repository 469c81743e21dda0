"""Programs of the user's own: files that are written and checked, used as they stand, or
installed.
"""

import hashlib
import io
import json
import sys
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from rich.console import Console

from dp2erm_cvx.cli import screen
from dp2erm_cvx.conformance import Subject, program_template
from dp2erm_cvx.program import registry
from dp2erm_cvx.program.registry import available, programs
from tests.command_line import FIT, done, facts, refused, run, sets, shown

OWN = ("--program", "weights.py", *sets("covariate_bound=2"))
FIRST, SECOND = "two_stage.first_stage", "two_stage.second_stage"


@pytest.fixture(autouse=True)
def files(folder):
    weights = program_template("my_weights", "exponential")
    second = weights[weights.index("@scheme") :].replace("my_weights", "another")
    texts = {
        "weights": weights,
        "loss": program_template("my_loss", "loss"),
        "two": f"{weights}\n\n{second}",
    }
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_a_release_by_programs_of_two_files(tmp_path):
    stages = sets(
        f"{FIRST}=weights.py", f"{FIRST}.radius=2", f"{FIRST}.ridge=0.3", f"{SECOND}=loss.py"
    )
    written = done(*FIT, *stages, "--json", "--output", "release.json").stdout
    release = json.loads(written)
    assert release["private"]
    first = release["declared"]["first"]
    (source,) = first.pop("source").items()
    assert source == ("weights.py", hashlib.sha256(Path("weights.py").read_bytes()).hexdigest())
    assert sorted(first.pop("read")) == ["log weight", "loss"]
    assert first == {"name": "my_weights", "settings": {"ridge": 0.3, "radius": 2}}
    assert release["declared"]["second"]["name"] == "my_loss"
    # both declarations use the library's data alone: nothing rests on their author's word
    assert not [text for text in release["guarantee"]["assumptions"] if "author" in text]
    assert str(tmp_path) not in written
    # what is not installed is unknown once the command has ended
    assert dict(available()) == programs()
    files = ("--program", "weights.py", "--program", "loss.py")
    digests = {
        name: hashlib.sha256(Path(f"{name}.py").read_bytes()).hexdigest()
        for name in ("weights", "loss")
    }
    readers = {
        "show": ("show", "release.json"),
        "report": ("report", "release.json", "--output", "page.html", "--force"),
        "predict": ("predict", "release.json", "data.csv"),
        "verify": ("verify", "release.json"),
    }
    for reader in readers.values():
        # every reader names the file that is missing, by the program in it and its digest, in one
        # line
        for given, name in ((files[2:], "weights"), (files[:2], "loss")):
            told = run(*reader, *given).stderr
            assert f"the program 'my_{name}' is not known here: give its file, of SHA-256" in told
            assert digests[name] in told
            assert told.count("\n") == 1
    assert "my_weights" in shown(*readers["show"], *files)
    done(*readers["report"], *files)
    assert "my_weights" in Path("page.html").read_text(encoding="utf-8")
    assert len(done(*readers["predict"], *files).stdout.splitlines()) == 201
    assert "Verified" in shown(*readers["verify"], *files)
    changed = Path("weights.py").read_text(encoding="utf-8").replace("cp.", "1.0 * cp.", 1)
    Path("weights.py").write_text(changed, encoding="utf-8")
    for reader in readers.values():
        told = run(*reader, *files).stderr
        assert (
            f"is that of a file of SHA-256 {digests['weights']!r}, and the one known here is of"
            in told
        )


@pytest.mark.slow
def test_a_plan_and_the_bounds_of_a_file():
    Path("study.toml").write_text(
        'covariate_bound = 2\noutcome_bound = 2\ncovariates = ["x1", "x2"]\n[budget]\nepsilon = 1\n'
        '[[two_stage]]\nfirst_stage = { name = "weights.py", ridge = 0.5 }\nsecond_stage = '
        '"loss.py"\n'
    )
    words = ("run", "study.toml", "--plan", "100")
    tight, wide = (facts(*words, *sets(f"{FIRST}.ridge={r}"))["predicted"]["V"] for r in (0.5, 1))
    assert tight > wide
    asked = facts("bounds", "--study", "study.toml", "--n", "100")
    named = ("--second-stage", "loss.py", *sets("outcome_bound=2", "ridge=0.5"))
    assert asked == facts("bounds", *OWN, *named, "--n-features", "2", "--n", "100")
    assert asked[0]["V"] == pytest.approx(tight, rel=1e-3)
    chosen = shown("bounds", "--program", "two.py:another", *sets("covariate_bound=1"))
    assert "Stability of another" in chosen
    assert available() == programs()


def test_an_audit_of_a_file_and_its_worst_pair():
    done("audit", *OWN, *sets("ridge=0.2"), "--n", "40", "--solves", "100", "--no-page", "--save",
    "pair",
         "--workers", "2")  # fmt: skip
    assert "unknown program 'my_weights'" in run("audit", "--replay", "pair").stderr
    assert "not violated" in shown("audit", "--replay", "pair", "--program", "weights.py")


@pytest.fixture
def installed(monkeypatch):
    """Forgets what was found of installed programs, before and after."""

    def forget():
        for cached in (registry._sound, registry.programs):
            cached.cache_clear()

    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


@pytest.mark.filterwarnings("default")
def test_a_broken_distribution_does_not_stop_the_others(installed):
    entries = [
        *entry_points(group=registry.GROUP),
        EntryPoint("absent", "absent_module", registry.GROUP),
    ]
    installed.setattr(registry, "entry_points", lambda group: entries)
    fine = done(*FIT, *sets(f"{FIRST}=uniform"))
    assert fine.stderr.startswith("warning: left out: entry point absent = absent_module")
    for words in (["programs"], ["check-program", "uniform"], [*FIT, *sets(f"{FIRST}=absent")]):
        result = run(*words)
        assert result.exit_code == 2
        assert "entry point absent = absent_module cannot be imported" in result.stderr


@pytest.mark.slow
def test_a_program_of_another_distribution_is_found_listed_checked_fitted_and_audited(
    tmp_path, installed
):
    metadata = tmp_path / "site" / "matching_weights-1.0.dist-info"
    metadata.mkdir(parents=True)
    Path("site/matching_weights.py").write_text(program_template("matching_plugin", "exponential"))
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: matching-weights\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[dp2erm_cvx.problems]\nmatching = matching_weights\n"
    )
    installed.syspath_prepend(tmp_path / "site")
    installed.setitem(sys.modules, "matching_weights", None)  # which is forgotten afterwards
    del sys.modules["matching_weights"]
    options = ["--program", "matching_plugin", *sets("ridge=0.1", "covariate_bound=1")]
    listed = {row["name"]: row for row in facts("programs")}
    assert listed["matching_plugin"]["stage"] == "first"
    assert (
        shown("check-program", "matching_plugin", "--solves", "20").count("all checks passed") == 1
    )
    audited = facts("audit", *options, "--n", "60", "--solves", "100", "--no-page")
    assert audited["resolved"] > 0
    assert not any(verdict["violated"] for verdict in audited["verdicts"])
    assert "Theorems 22 and 23" in shown("bounds", *options, "--n", "100")


def test_the_commands_write_and_check(monkeypatch):
    monkeypatch.setattr("dp2erm_cvx.conformance.run.Subject", partial(Subject, larger=(101,)))
    done("new-program", "mine", "--kind", "exponential")
    text = shown("check-program", "mine.py", "--solves", "20")
    assert text.count("all checks passed") == 1
    assert text.index("declaration") < text.index("other settings") < text.index("mine (")
    # a declaration has nothing to state wrong but a bound
    text = program_template("mine", "direct").replace("import scheme", "import Bound, scheme")
    text = text.replace(
        "cp.sum_squares(w - 1) / 2", "cp.sum_squares(w - 1) + 1e-6 * cp.norm(w - 1)"
    )
    text += "\n\n@mine.bound\ndef _(n):\n    return Bound.from_l2(0.01, w_max=1.001)\n"
    Path("mine.py").write_text(text, encoding="utf-8")
    result = run("check-program", "mine.py", "--solves", "20", "--json")
    assert result.exit_code == 1
    (only,) = json.loads(result.stdout)
    assert next(o["check"] for o in only["outcomes"] if o["status"] == "failed") == "movement"


def test_checks_are_counted_on_a_terminal(monkeypatch):
    stream = io.StringIO()
    terminal = Console(file=stream, force_terminal=True, width=100)
    monkeypatch.setattr(screen, "console", lambda stderr=False: terminal)
    done("check-program", "uniform", "--solves", "20")
    assert "uniform: " in stream.getvalue()


def test_a_scheme_is_a_release_after_two_commands():
    declared = sets(
        *("outcome_bound=8", "outcome_center=0", "budget.epsilon=1", "treatment.treated=1"),
        *("treatment.control=0", *(f"ranges.{name}=[-1, 1]" for name in ("x1", "x2", "x3"))),
        *('levels.who=["ann"]', "two_stage.second_stage=loss.py"),
    )
    columns = ("--treatment", "a", "--outcome", "y")
    drafted = ("check", "data.csv", *columns, "--draft", "study.toml", "--program", "weights.py")
    assert "study.toml: written" in shown(*drafted)
    draft = Path("study.toml").read_text(encoding="utf-8")
    assert 'first_stage = { name = "weights.py" }' in draft
    assert 'still says "EDIT"' in refused("run", "study.toml", "data.csv")
    release = facts("run", "study.toml", "data.csv", *declared, "--seed", "1")
    assert release["declared"]["first"]["name"] == "my_weights"
    assert release["declared"]["second"]["name"] == "my_loss"
    assert (release["domain"]["outcome_bound"], release["guarantee"]["epsilon"]) == (8.0, 1.0)
    # what is set when the draft is made stands in the file, whose remarks stay
    Path("study.toml").unlink()
    done(*drafted, *declared)
    filled = Path("study.toml").read_text(encoding="utf-8")
    assert "# Program of the weights" in filled
    assert "EDIT" not in filled.partition("\n\n")[2]
    assert facts("run", "study.toml", "data.csv", "--seed", "1", "--force") | {
        "study": ""
    } == release | {"study": ""}


def test_a_draft_asks_with_a_program_that_is_found_from_its_folder(folder):
    (folder / "studies").mkdir()
    words = ("check", "data.csv", "--draft", "studies/study.toml")
    done(*words, "--program", "two.py:another")
    assert '"../two.py:another"' in Path("studies/study.toml").read_text(encoding="utf-8")
    done("check", "data.csv", "--draft", "loss.toml", "--program", "loss.py")
    assert 'second_stage = { name = "loss.py" }' in Path("loss.toml").read_text(encoding="utf-8")
    done("check", "data.csv", "--draft", "known.toml", "--program", "ipw_logistic")
    assert 'first_stage = { name = "ipw_logistic" }' in Path("known.toml").read_text(
        encoding="utf-8"
    )
    new = ("check", "data.csv", "--draft", "new.toml")
    assert "name the draft as well" in refused("check", "data.csv", "--program", "weights.py")
    assert "choose one of two.py:another" in refused(*new, "--program", "two.py")
    assert "--program 'nobody': known: arm_means" in refused(*new, "--program", "nobody")
    assert "outcome_bund" in refused(*new, *sets("outcome_bund=1"))
    assert not Path("new.toml").exists()
