"""Data files in blocks on the command line: large ones without being asked to."""

import pandas as pd

from dp2erm_cvx.cli import reading
from tests.command_line import EFFECT, done, sets


def test_large_files_are_read_in_blocks_without_being_asked_to(folder, monkeypatch):
    pd.read_csv("data.csv").to_parquet("data.parquet", row_group_size=33)
    asked = []
    words = [*EFFECT[:2], "data.parquet", "--force", "--yes"]
    monkeypatch.setattr(reading, "_connect", lambda *named: asked.append(named))
    done(*words)
    monkeypatch.setattr(reading, "LARGE", 1e-9 * 8 * 200)
    done(*words, *sets("unit.column=who", "unit.number=9"))  # whose rows are private
    done(*words, "--blocks", "never")
    assert not asked
    done(*words)
    assert asked
