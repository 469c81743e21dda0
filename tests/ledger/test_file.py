"""The file of the ledger: what is refused as none, and how an older one is upgraded."""

import os
import sqlite3
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.errors import DeclarationError, LedgerError
from dp2erm_cvx.ledger import Composition, Ledger, store
from dp2erm_cvx.ledger.ledger import decode, encode
from dp2erm_cvx.privacy import RenyiCurve

# the layout of version 1, and what that version wrote
VERSION_1 = """
CREATE TABLE accounts (
    dataset TEXT PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
    relation TEXT NOT NULL, composition TEXT NOT NULL);
CREATE TABLE charges (
    place INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE,
    dataset TEXT NOT NULL REFERENCES accounts (dataset),
    epsilon TEXT NOT NULL, delta TEXT NOT NULL, note TEXT NOT NULL, charged_at TEXT NOT NULL);
PRAGMA application_id = 1685074533;
PRAGMA user_version = 1;
INSERT INTO accounts VALUES ('trial', '1.0', '1e-06', 'replace-one', 'basic');
INSERT INTO charges (number, dataset, epsilon, delta, note, charged_at)
VALUES ('5f0c', 'trial', '0.4', '1e-07', 'a note', '2026-09-01T10:00:00+00:00');
"""
CURVE = RenyiCurve((1.5, 2.0, 1e6), (1 / 3, 0.5, float("inf")))


@pytest.fixture
def old(tmp_path: Path) -> Ledger:
    db = sqlite3.connect(tmp_path / "old.db")
    db.executescript(VERSION_1)
    db.close()
    return Ledger(tmp_path / "old.db")


def test_files_that_are_no_ledger(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger(tmp_path / "none.db").charge("trial", Budget(0.1))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "no folder" / "a.db").declare("trial", Budget(1.0))
    (tmp_path / "text").write_text("not a database, but long enough to look at\n" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(tmp_path / "text").declare("trial", Budget(1.0))
    for statement, message in (
        ("PRAGMA application_id = 1", "something else"),
        ("PRAGMA user_version = 9", "version 9"),
    ):
        other = Ledger(tmp_path / message)
        other.declare("trial", Budget(1.0))
        db = sqlite3.connect(other.path)
        db.execute(statement)
        db.close()
        with pytest.raises(LedgerError, match=message):
            other.charge("trial", Budget(0.1))
    for damage in ("epsilon = 'inf'", "epsilon = '-1'", "delta = 'x'", "curve = 'x'"):
        other = Ledger(tmp_path / damage)
        other.declare("trial", Budget(1.0))
        other.charge("trial", Budget(0.1))
        db = sqlite3.connect(other.path)
        db.execute(f"UPDATE charges SET {damage}")
        db.commit()
        db.close()
        with pytest.raises(LedgerError, match="damaged"):
            other.charge("trial", Budget(0.1))
    for path in ("", "a\0b", None, 3):
        with pytest.raises(DeclarationError, match="path of a file"):
            Ledger(path)


def version(ledger: Ledger) -> int:
    db = sqlite3.connect(ledger.path)
    (number,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return number


def test_a_file_of_version_1_is_upgraded_in_place(old: Ledger) -> None:
    with pytest.raises(LedgerError, match=r"epsilon = 0\.6, delta = 9e-07 is left"):
        old.charge("trial", Budget(0.7))
    assert version(old) == 1  # an upgrade belongs to its transaction, and this one was undone
    charged = old.charge("trial", Budget(0.2, 1e-7), curve=CURVE)
    assert version(old) == 2
    first, second = Ledger(old.path).account("trial").receipts
    assert (first.number, first.budget, first.note, first.curve) == (
        "5f0c",
        Budget(0.4, 1e-7),
        "a note",
        None,
    )
    assert second == charged
    assert second.curve == CURVE
    old.declare("other", Budget(1.0, 1e-6), composition="renyi")
    assert old.account("other").composition is Composition.RENYI


def test_an_upgrade_happens_once_among_several_writers(old: Ledger) -> None:
    with ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(lambda _: old.charge("trial", Budget(0.05), curve=CURVE), range(8)))
    assert len({one.number for one in receipts}) == 8
    assert [one.curve for one in old.account("trial").receipts] == [None, *[CURVE] * 8]


@pytest.mark.parametrize("number", [0, -1, 3, 2**31 - 1])
def test_unknown_versions_are_refused(ledger: Ledger, number: int) -> None:
    db = sqlite3.connect(ledger.path)
    db.execute(f"PRAGMA user_version = {number}")
    db.close()
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match=f"version {number}, and 2 is known"):
        ledger.charge("trial", Budget(0.1))
    assert ledger.path.read_bytes() == before


def test_curves_are_read_back_to_the_last_bit() -> None:
    assert decode(encode(CURVE)) == CURVE
    assert decode(encode(None)) is None
    assert "Infinity" not in (encode(CURVE) or "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"orders": [2.0]}',
        '{"orders": [2.0], "divergences": [1.0], "more": 1}',
        '{"orders": [2.0], "divergences": [NaN]}',
        '{"orders": [2.0], "divergences": [-1]}',
        '{"orders": [1.0], "divergences": [1]}',
        '{"orders": [null], "divergences": [1]}',
        '{"orders": [3, 2], "divergences": [1, 1]}',
        b"\xff",
    ],
)
def test_a_damaged_curve_stops_the_ledger(ledger: Ledger, text: object) -> None:
    ledger.charge("trial", Budget(0.1), curve=CURVE)
    db = sqlite3.connect(ledger.path)
    db.execute("UPDATE charges SET curve = ?", (text,))
    db.commit()
    db.close()
    for use in (ledger.accounts, lambda: ledger.charge("trial", Budget(0.1))):
        with pytest.raises(LedgerError, match="damaged") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_who_waits_says_so_and_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_SILENCE", 0.01)
    ledger = Ledger(tmp_path / "in use.db")
    ledger.declare("trial", Budget(1.0))
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


def test_a_ledger_that_stays_locked_is_not_charged(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_SILENCE", 0.01)
    monkeypatch.setattr(store, "_PATIENCE", 0.01)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.declare("trial", Budget(1.0))
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(RuntimeWarning, match="waiting"), pytest.raises(LedgerError, match="locked"):
            ledger.charge("trial", Budget(0.5))
    assert ledger.account("trial").receipts == ()
