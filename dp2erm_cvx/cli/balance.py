"""Tables for the data holder: balance, and the columns of a raw table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dp2erm_cvx.cli.screen import NOT_PRIVATE, console
from dp2erm_cvx.display import grid, heading

if TYPE_CHECKING:
    from dp2erm_cvx.diagnostics import BalanceTable
    from dp2erm_cvx.diagnostics.columns import ColumnReport, RecordCounts
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.domain import Array
    from dp2erm_cvx.sampling import SamplingWeights


def show_balance(table: BalanceTable, *, stderr: bool) -> None:
    """Print a balance table, marked as not private."""
    screen = console(stderr=stderr)
    for block in table.blocks():
        screen.print(block)


def column_blocks(report: Sequence[ColumnReport]) -> Iterator[Block]:
    """What the columns of a raw table hold, and what to declare, marked as not private."""
    yield heading(f"Columns of the table: {NOT_PRIVATE}, for the data holder only")
    shown = grid("column", "declared as", "holds", "missing", "not as declared", "out of range", left=3)
    for one in report:
        counts = (f"{count:,}" if count else "" for count in (one.missing, one.odd, one.outside))
        shown.add_row(one.name, one.declared, one.holds, *counts)
    yield shown
    for one in report:
        for note in one.notes:
            yield f"{one.name}: {note}"


def record_line(counts: RecordCounts) -> str:
    """The records by arm."""
    lost, silent = counts.missing, counts.silent
    told = f"{counts.treated + counts.controls + lost + silent:,} records: {counts.treated:,} treated, "
    told += f"{counts.controls:,} controls" + (f", {lost:,} without a treatment" if lost else "")
    return f"{told}, {silent:,} not eligible." if silent else f"{told}."


def announcement(counts: RecordCounts) -> str:
    """What becomes of the records, in one line before a release is paid for; marked as not private."""
    told = [f"{NOT_PRIVATE}, for the data holder only: {record_line(counts)}"]
    if cells := [f"{name} {count:,}" for name, count in counts.unreadable.items() if count]:
        told.append(f"Cells that hold nothing declared: {', '.join(cells)}.")
    if counts.clipped:
        told.append(f"Outcomes that are clipped: {counts.clipped:,}.")
    return " ".join(told)


def sampling_lines(weights: Array | None, declared: SamplingWeights | None) -> Iterator[str]:
    """What sampling weights (n,) average to, and how many equal ones they are worth (Kish 1965)."""
    if weights is None or declared is None:
        return
    mean = max(float(weights.mean()), 1e-300)
    worth = mean**2 / max(float((weights**2).mean()), 1e-300)
    yield (
        f"Sampling weights average {mean:.4g} after clipping ({declared.mean:g} is declared), from 0 to "
        f"{declared.largest:g}. For sampling error the records are worth {worth * len(weights):,.0f} of "
        f"equal weight; noise is {declared.largest / mean:.3g} times as large."
    )
