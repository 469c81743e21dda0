"""A ledger of one dataset."""

from pathlib import Path

import pytest

from dp2erm_cvx import Budget, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(1.0, 1e-6))
    return book
