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
def test_the_examples_of_densities_run(capsys, slow):
    assert len(BLOCKS) == 9
    run(BLOCKS[:2] if slow else BLOCKS[:1])
    assert all("not exceeded" in density for density in capsys.readouterr().out.splitlines())


@pytest.mark.slow
def test_the_other_searches_run(capsys):
    """Every example asserts what it shows."""
    assert all("\nassert " in block for block in BLOCKS[2:])
    run(BLOCKS[2:])
    assert capsys.readouterr().out.count("no proof") >= 3
