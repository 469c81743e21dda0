"""What a problem of n records needs in memory, which is refused before anything is made of it."""

from __future__ import annotations

import os

from dp2erm_cvx.errors import DeclarationError

#: Matrices of doubles that a solve holds at a time.
COPIES = 6
#: Bytes that are taken to be there where the system does not say.
_UNKNOWN = 16e9


def refuse_size(n_samples: int, columns: int, what: str, remedy: str = "") -> None:
    """Raise DeclarationError where matrices of n rows do not fit into the memory of this machine.

    Parameters
    ----------
    n_samples
        Number of rows n.
    columns
        Number of columns of one of the matrices.
    what
        What a matrix is, in words.
    remedy
        What to do instead, in words.
    """
    needed = COPIES * 8.0 * n_samples * columns
    there = memory()
    if needed <= there:
        return
    advice = f": {remedy}" if remedy else ""
    raise DeclarationError(
        f"n = {n_samples:,}: {what} with its working copies needs {needed / 1e9:,.1f} GB, this "
        f"machine has {there / 1e9:,.1f}{advice}"
    )


def memory() -> float:
    """Bytes of memory of this machine."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * float(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN
