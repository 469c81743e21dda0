"""The code on the page about audits runs; the audit of an effect, which takes a minute, is slow."""

import re
from pathlib import Path

import pytest
from joblib import parallel_config

PAGE = (Path(__file__).parents[2] / "docs" / "audits.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(blocks):
    names = {}
    for source in blocks:
        # the same searches, and shorter
        source = source.replace("evaluations=4000", "evaluations=200").replace("(25)", "(12)")
        with parallel_config(backend="threading"):
            exec(compile(source, "audits.md", "exec"), names)


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_examples_run(capsys, slow):
    assert len(BLOCKS) == 9
    run(BLOCKS[:4] if slow else [BLOCKS[0], *BLOCKS[2:4]])
    *densities, noise, repeats = capsys.readouterr().out.splitlines()
    assert all("not exceeded" in density for density in densities)
    assert "500 draws" in noise
    assert "of 20 releases counted" in repeats


def test_the_other_searches_run(capsys):
    """Every example asserts what it shows."""
    assert all("\nassert " in block for block in BLOCKS[4:])
    run(BLOCKS[4:])
    assert capsys.readouterr().out.count("no proof") >= 3
