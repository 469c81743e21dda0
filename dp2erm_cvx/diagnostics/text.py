"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence

#: Stands in the first line of every text of this package.
NOT_PRIVATE = "not private: for the data holder only"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row: the first column to the left, the others to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
