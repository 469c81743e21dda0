"""Commands about a release that is in a file: its page."""

import json
from pathlib import Path

import pytest

from dp2erm_cvx import EffectRelease
from dp2erm_cvx.report import release_page
from tests.command_line import EFFECT, done, refused, run, write_files


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> str:
    """The JSON of one effect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("made"))
        write_files()
        return run(*EFFECT, "--json").stdout


@pytest.fixture
def folder(tmp_path, monkeypatch, published):
    monkeypatch.chdir(tmp_path)
    Path("effect.json").write_text(published)
    return tmp_path


def test_a_page_goes_beside_its_release_and_overwrites_nothing(folder, published) -> None:
    first = run("report", "effect.json")
    assert (first.exit_code, first.stdout) == (0, "wrote effect.html\n")
    page = Path("effect.html").read_text(encoding="utf-8")
    assert page == release_page(EffectRelease.from_json(published), source="effect.json")
    Path("effect.html").write_text("mine")
    assert refused("report", "effect.json") == "error: effect.html: exists: choose another file, or --force\n"
    assert Path("effect.html").read_text() == "mine"
    assert run("report", "effect.json", "--force").exit_code == 0
    assert run("report", "effect.json", "--output", "other.html").exit_code == 0
    assert (
        Path("effect.html").read_text(encoding="utf-8")
        == Path("other.html").read_text(encoding="utf-8")
        == page
    )


def test_what_does_not_follow_is_neither_shown_nor_registered(folder, published) -> None:
    plain = json.loads(published)
    plain["steps"][0]["stability"] = 0.0
    Path("changed.json").write_text(json.dumps(plain))
    for command in ("show", "report", "datasheet"):
        message = refused(command, "changed.json")
        assert "changed.json: " in message
        assert "steps.0.stability: 0.0 stated" in message
    assert not Path("changed.html").exists()


def test_a_record_for_a_registry_is_written_with_marks(folder) -> None:
    shown = done("datasheet", "effect.json", "--set", "name=A = B")
    assert '\n    name: "A = B"\n' in shown.stdout
    assert "17 of 18 fields" in shown.stderr
    assert shown.stdout.partition("url_slug")[2].count("TODO") == 17
    written = run("datasheet", "effect.json", "--set", "name=A = B", "--output", "record.yaml")
    assert (written.exit_code, written.stdout) == (0, "")
    assert Path("record.yaml").read_text(encoding="utf-8") == shown.stdout
