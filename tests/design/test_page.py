"""The code on the page about choosing a pipeline runs, and the page names what exists."""

import re
from pathlib import Path

import dp2erm_cvx.design

PAGE = Path(__file__).parents[2] / "docs" / "which_pipeline.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names: dict = {"__name__": __name__}  # a warning of this package about these lines is an error
    for source in blocks:
        exec(compile(source, str(PAGE), "exec"), names)
    assert "pilot study" in capsys.readouterr().out
    assert names["tuned"].private


def test_every_function_named_is_public():
    named = re.findall(r"`~dp2erm_cvx\.design\.(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert set(named) == {"tune", "tune_privately"}
    assert set(named) <= set(dp2erm_cvx.design.__all__)
