"""The benchmarks run, and every point of the library in them is certified. No time is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from whole_fits import LIMITS, LOGISTIC

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_quick_run_measures_every_contender_and_certifies_the_library(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benchmark tables: begin -->old<!-- benchmark tables: end -->\nafter\n")
    words = [sys.executable, str(ROOT / "docs/benchmarks/run.py"), "--quick", "--output-dir", str(tmp_path)]
    words += ["--page", str(page), "--figure", str(tmp_path / "growth.svg")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "benchmarks.json").read_text())
    rows = facts["rows"]
    assert len({row["work"] for row in rows}) == 4
    ours = [row for row in rows if row["contender"].startswith("library")]
    assert len(ours) == 8
    assert all(row["error"] <= 1e-9 for row in ours)
    assert all(row["limit"] > 0 for row in ours if row["contender"] == "library, batch")
    assert {row["contender"] for row in facts["scale"]} == {LOGISTIC, *LIMITS}
    assert all(row["seconds"] > 0 for row in facts["scale"])
    assert all(row["gradient"] <= 1e-9 for row in facts["scale"] if row["gradient"] is not None)
    assert (tmp_path / "growth.svg").stat().st_size > 1000
    assert {"python -c 'import cvxpy'", "dp2erm --help", "dp2erm fit, 200 records"} <= set(facts["startup"])
    assert all(row["error"] <= 1e-9 and row["by_single"] == 0 for row in facts["readings"])
    assert len(facts["audits"]) == 4
    assert all(row["ratio"] <= 1 and row["disagreement"] <= 1 for row in facts["audits"])
    text = page.read_text()
    assert (text[:6], text[-6:], "old" in text) == ("before", "after\n", False)
    assert all(row["contender"] in text for row in [*rows, *facts["scale"]])
