"""The file of the ledger: what is refused as none."""

import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.errors import DeclarationError, LedgerError
from dp2erm_cvx.ledger import Ledger, store
from dp2erm_cvx.ledger.ledger import decode, encode
from dp2erm_cvx.privacy import RenyiCurve


def altered(ledger: Ledger, statement: str, *values: object) -> Ledger:
    with closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute(statement, values)
    return ledger


CURVE = RenyiCurve((1.5, 2.0, 1e6), (1 / 3, 0.5, float("inf")))


def test_files_that_are_no_ledger(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger(tmp_path / "none.db").charge("trial", Budget(0.1))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "no folder" / "a.db").declare("trial", Budget(1.0))
    (tmp_path / "text").write_text("not a database, but long enough to look at\n" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(tmp_path / "text").declare("trial", Budget(1.0))
    for number, (change, message) in enumerate(
        [
            ("PRAGMA application_id = 1", "something else"),
            *(
                (f"PRAGMA user_version = {k}", f"version {k}, and 3 is known")
                for k in (0, -1, 2, 4, 2**31 - 1)
            ),
            *((f"UPDATE charges SET {one} = '-1'", "damaged") for one in ("epsilon", "delta")),
            *((f"UPDATE charges SET {one}", "damaged") for one in ("epsilon = 'inf'", "delta = 'x'")),
        ]
    ):
        other = Ledger(tmp_path / str(number))
        other.declare("trial", Budget(1.0))
        other.charge("trial", Budget(0.1))
        before = altered(other, change).path.read_bytes()
        with pytest.raises(LedgerError, match=message):
            other.charge("trial", Budget(0.1))
        assert other.path.read_bytes() == before
    for path in ("", "a\0b", None, 3):
        with pytest.raises(DeclarationError, match="path of a file"):
            Ledger(path)


def test_curves_are_read_back_to_the_last_bit_and_a_damaged_one_stops_the_ledger(ledger: Ledger) -> None:
    assert (decode(encode(CURVE)), decode(encode(None))) == (CURVE, None)
    assert "Infinity" not in (encode(CURVE) or "")
    ledger.charge("trial", Budget(0.1), curve=CURVE)
    pairs = ("[2.0]", "[NaN]"), ("[2.0]", "[-1]"), ("[1.0]", "[1]"), ("[null]", "[1]"), ("[3, 2]", "[1, 1]")
    for text in (
        *("", "x", b"\xff", "[" * 100_000, '{"orders": [2.0]}'),
        '{"orders": [2.0], "divergences": [1.0], "more": 1}',
        *(f'{{"orders": {orders}, "divergences": {bounds}}}' for orders, bounds in pairs),
    ):
        altered(ledger, "UPDATE charges SET curve = ?", text)
        for use in (ledger.accounts, lambda: ledger.charge("trial", Budget(0.1))):
            with pytest.raises(LedgerError, match="damaged") as caught:
                use()
            assert "\n" not in str(caught.value)


def test_who_waits_says_so_and_for_whom(ledger, monkeypatch):
    """And a ledger that stays locked is not charged."""
    monkeypatch.setattr(store, "_SILENCE", 0.01)
    told = []
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other, warnings.catch_warnings():
        other.execute("BEGIN IMMEDIATE")

        def heard(message, *place, **more):
            told.append(str(message))
            other.execute("ROLLBACK")

        monkeypatch.setattr(warnings, "showwarning", heard)
        warnings.simplefilter("always")
        ledger.charge("trial", Budget(0.5))
    assert len(told) == 1
    assert f"{ledger.path}: the ledger is in use" in told[0]
    if Path("/proc/locks").exists() and "by process" in told[0]:
        assert f"by process {os.getpid()}: waiting" in told[0]
    assert ledger.account("trial").spent.epsilon == 0.5
    monkeypatch.undo()
    monkeypatch.setattr(store, "_SILENCE", 0.01)
    monkeypatch.setattr(store, "_PATIENCE", 0.01)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(RuntimeWarning, match="waiting"), pytest.raises(LedgerError, match="locked"):
            ledger.charge("trial", Budget(0.5))
    assert len(ledger.account("trial").receipts) == 1
