"""kill -9 at random points: no release is shown uncharged, and no total is exceeded."""

import math
import os
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from dp2erm_cvx.ledger import Ledger

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.mark.parametrize("kills", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_kill_at_random_points(kills: int, tmp_path: Path) -> None:
    path, shown = tmp_path / "ledger.db", tmp_path / "shown"
    shown.mkdir()
    worker = [sys.executable, "-W", "ignore", ROOT / "tests/ledger/worker.py", path, shown, str(kills), "7"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(list(map(str, worker)), env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr

    accounts = Ledger(path).accounts()
    charged = {}
    for account in accounts:
        total = sum(Fraction(repr(one.budget.epsilon)) for one in account.receipts)
        assert total <= Fraction(repr(account.total.epsilon))
        for one in account.receipts:
            charged[one.number] = (account.dataset, one.budget.epsilon)
    releases: dict[str, tuple[str, float]] = {}
    for file in shown.iterdir():
        for line in file.read_text().splitlines():
            number, dataset, epsilon, theta = line.split()
            assert number not in releases
            releases[number] = (dataset, float(epsilon))
            assert math.isfinite(float(theta))
    assert len(releases) >= kills
    assert {number: charged.get(number) for number in releases} == releases
    assert len(accounts) > 1  # a process goes to the next data set after a refusal only
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
