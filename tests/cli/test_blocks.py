"""Data files in blocks on the command line: audits of them, and large files without being asked to."""

from pathlib import Path

import pandas as pd

from dp2erm_cvx.cli import reading
from tests.command_line import EFFECT, done, facts, run


def test_blocks_are_audited(folder):
    Path("many").mkdir()
    for k in range(2):
        pd.read_csv("data.csv")[100 * k : 100 * k + 100].to_parquet(f"many/{k}.parquet")
    words = ["audit", "many", *EFFECT[2:8], "--program", "ipw_logistic", "--ridge", "0.1", "--solves", "100"]
    actual = facts(*words)
    assert actual["check"]["solver"] == "first_certified"
    assert not any(verdict["violated"] for verdict in actual["verdicts"])
    assert "read in blocks" in Path("output/audit.html").read_text(encoding="utf-8")
    assert "two whole datasets" in run(*words, "--save", "pair").stderr


def test_large_files_are_read_in_blocks_without_being_asked_to(folder, monkeypatch):
    pd.read_csv("data.csv").to_parquet("data.parquet", row_group_size=33)
    asked, words = [], ["effect", "data.parquet", *EFFECT[2:]]
    monkeypatch.setattr(reading, "_connect", asked.append)
    done(*words)
    monkeypatch.setattr(reading, "LARGE", 1e-9 * 8 * 200)
    persons = Path("domain.toml").read_text() + '[unit]\ncolumn = "who"\nnumber = 9\n'
    Path("persons.toml").write_text(persons)  # whose rows are private
    done(*words, "--domain", "persons.toml")
    done(*words, "--blocks", "never")
    assert not asked
    done(*words)
    assert asked
