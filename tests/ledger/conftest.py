"""A ledger of one dataset, and a folder with one for the command line."""

from pathlib import Path

import pytest

from dp2erm_cvx import Budget, Ledger
from tests.command_line import done, write_files


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(1.0, 1e-6))
    return book


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data, a domain, and 9 of epsilon in ``b.db``."""
    monkeypatch.chdir(tmp_path)
    write_files()
    done("ledger", "b.db", "--dataset", "trial", "--declare-epsilon", "9")
    return tmp_path
