"""The code on the page about audits runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "audits.md"


def test_the_example_runs(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for source in blocks:
        exec(compile(source, str(PAGE), "exec"), {})
    assert "not exceeded" in capsys.readouterr().out
