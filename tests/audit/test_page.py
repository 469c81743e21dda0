"""The code on the page about audits runs."""

import re
from pathlib import Path

from joblib import parallel_config

PAGE = Path(__file__).parents[2] / "docs" / "audits.md"


def test_the_examples_run(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 9
    names = {}
    for source in blocks[:4]:
        with parallel_config(backend="threading"):
            exec(compile(source, str(PAGE), "exec"), names)
    *densities, noise, repeats = capsys.readouterr().out.splitlines()
    assert all("not exceeded" in density for density in densities)
    assert "500 draws" in noise
    assert "of 20 releases counted" in repeats


def test_the_other_searches_run():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names = {}
    for source in blocks[4:]:
        with parallel_config(backend="threading"):
            exec(compile(source, str(PAGE), "exec"), names)
