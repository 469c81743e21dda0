"""The file behind the ledger: one SQLite transaction per operation."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dp2erm_cvx.errors import LedgerError

#: Marks a file as a ledger.
_APPLICATION_ID = 0x64703265
_SCHEMA_VERSION = 3
#: Seconds to wait for other processes.
_PATIENCE = 60.0
#: Seconds of waiting that pass without a word.
_SILENCE = 1.0

# Numbers are text, because the decimal that was declared is what is added up.
_SCHEMA = (
    """CREATE TABLE accounts (
        dataset TEXT PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL,
        relation TEXT NOT NULL, composition TEXT NOT NULL)""",
    """CREATE TABLE charges (
        place INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE,
        dataset TEXT NOT NULL REFERENCES accounts (dataset),
        epsilon TEXT NOT NULL, delta TEXT NOT NULL, note TEXT NOT NULL, charged_at TEXT NOT NULL,
        curve TEXT, unit TEXT NOT NULL)""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)


@contextmanager
def transaction(path: Path, *, create: bool = False) -> Iterator[sqlite3.Connection]:
    """A transaction that no other writer can interleave.

    It is on disk when the block has ended, or undone. A warning names the file that it waits for.

    Parameters
    ----------
    path
        The file.
    create
        Whether the file is made if it is missing.

    Raises
    ------
    LedgerError
        Where the file is missing, is no ledger, has a hard link, stays locked or cannot be written.
    """
    if not create and not os.path.isfile(path):
        raise LedgerError(f"{path}: there is no such ledger: declare a total first")
    if os.path.isfile(path) and os.stat(path).st_nlink > 1:
        # The journal of SQLite has the name of the file: under another name it is not seen, or
        # undone later.
        raise LedgerError(
            f"{path}: has another name (a hard link), so that charges get lost: leave one"
        )
    mode = "rwc" if create else "rw"
    try:
        address = f"{path.as_uri()}?mode={mode}"
        opened = sqlite3.connect(address, timeout=_PATIENCE, uri=True, isolation_level=None)
        with closing(opened) as db:
            # EXTRA is FULL and also syncs the folder, without which a loss of power could undo a
            # commit.
            db.execute("PRAGMA synchronous = EXTRA")
            db.execute("PRAGMA fullfsync = ON")
            db.execute("PRAGMA foreign_keys = ON")
            _begin(db, path)
            try:
                _prepare(db, path)
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        raise LedgerError(
            f"{path}: the ledger cannot be used, so nothing is released: {error}"
        ) from None


def _begin(db: sqlite3.Connection, path: Path) -> None:
    """Wait for whoever writes to the ledger, and say so."""
    try:
        db.execute(f"PRAGMA busy_timeout = {1000 * _SILENCE:.0f}")
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        text = f"{path}: the ledger is in use: waiting up to {_PATIENCE:g} seconds"
        warnings.warn(text, RuntimeWarning, stacklevel=5)
        db.execute(f"PRAGMA busy_timeout = {1000 * _PATIENCE:.0f}")
        db.execute("BEGIN IMMEDIATE")


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Lay out an empty file; refuse one that holds something else, and older ones."""
    (identity,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (identity, version, tables) == (0, 0, 0):
        for statement in _SCHEMA:
            db.execute(statement)
    elif identity != _APPLICATION_ID:
        raise LedgerError(f"{path}: is a database of something else: name another file")
    elif version != _SCHEMA_VERSION:
        known = f"{_SCHEMA_VERSION} is known here (older ones do not say who is protected)"
        raise LedgerError(
            f"{path}: is a ledger of version {version}, and {known}: declare what is left anew"
        )
