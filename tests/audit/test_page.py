"""The code on the page about audits runs."""

import re
from pathlib import Path

import pytest
from joblib import parallel_config

PAGE = Path(__file__).parents[2] / "docs" / "audits.md"


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_examples_run(capsys, slow):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names = {}
    # the audit of an effect searches over five coordinates for a minute
    for source in blocks if slow else [blocks[0], *blocks[2:]]:
        with parallel_config(backend="threading"):
            exec(compile(source, str(PAGE), "exec"), names)
    *densities, noise, repeats = capsys.readouterr().out.splitlines()
    assert all("not exceeded" in density for density in densities)
    assert "500 draws" in noise
    assert "of 20 releases counted" in repeats


@pytest.mark.parametrize("page", ["audits_stability.md", "audits_blackbox.md"])
def test_the_examples_of_the_other_pages_run(page):
    path = PAGE.parent / page
    blocks = re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    names = {}
    for source in blocks:
        with parallel_config(backend="threading"):
            exec(compile(source, str(path), "exec"), names)
