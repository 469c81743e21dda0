"""The examples of the gallery run, are short, and each has its picture on the page."""

import runpy
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[2] / "docs/gallery"
PAGE = (GALLERY / "index.md").read_text(encoding="utf-8")
EXAMPLES = sorted(path.stem for path in GALLERY.glob("*.py"))


def test_every_example_is_on_the_page_with_its_picture():
    assert len(EXAMPLES) == 12
    assert {path.stem for path in GALLERY.glob("*.svg")} == set(EXAMPLES)
    for name in EXAMPLES:
        assert f"]({name}.svg)" in PAGE
        assert f"{{literalinclude}} {name}.py" in PAGE


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_draws_its_picture(name, tmp_path, monkeypatch):
    assert len((GALLERY / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60
    drawn = tmp_path / f"{name}.svg"
    monkeypatch.setattr(sys, "argv", [name, str(drawn)])
    runpy.run_path(str(GALLERY / f"{name}.py"), run_name="__main__")
    assert drawn.stat().st_size > 2000
