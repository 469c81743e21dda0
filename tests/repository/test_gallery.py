"""The examples of the gallery run, are short, and each has its picture on the page."""

import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[2] / "docs/gallery"
PAGE = (GALLERY / "index.md").read_text(encoding="utf-8")
#: By example: numbers of records, runs and releases that are enough to see that it runs.
SHORTER = {
    "blocks": {"60_000": "6_000", "10_000": "1_000", "range(5)": "range(2)"},
    "planted_bug": {"runs=4000": "runs=400"},
}
EXAMPLES = sorted(path.stem for path in GALLERY.glob("*.py"))


def test_every_example_is_on_the_page_with_its_picture():
    assert len(EXAMPLES) == 12
    assert {path.stem for path in GALLERY.glob("*.svg")} == set(EXAMPLES)
    for name in EXAMPLES:
        assert f"]({name}.svg)" in PAGE
        assert f"{{literalinclude}} {name}.py" in PAGE


@pytest.mark.one_row_in(7)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_draws_its_picture(name, tmp_path, monkeypatch):
    assert len((GALLERY / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60
    drawn = tmp_path / f"{name}.svg"
    source = (GALLERY / f"{name}.py").read_text(encoding="utf-8")
    for many, few in SHORTER.get(name, {}).items():
        assert many in source
        source = source.replace(many, few)
    monkeypatch.setattr(sys, "argv", [name, str(drawn)])
    exec(compile(source, f"{name}.py", "exec"), {"__name__": "__main__"})
    assert drawn.stat().st_size > 2000
