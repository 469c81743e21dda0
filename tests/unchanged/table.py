"""Bounds and plans as rows: ``python -m tests.unchanged.table`` writes the committed tables
anew.
"""

import csv
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.unchanged import adapter, cases, releases, sampling

HERE = Path(__file__).parent
#: A row: what identifies it, then what the package answers, numbers still as numbers.
Row = dict[str, Any]


def programs(every: int = 1) -> Iterator[Row]:
    """Programs that the labels of the other two tables stand for."""
    for name in [*adapter.first_stage_names(), *adapter.second_stage_names()]:
        for stage in cases.stages(name):
            yield {"program": stage.label, "settings": stage.settings}


def bounds(every: int = 1) -> Iterator[Row]:
    """Every first stage in every universe, at every n and family of bounds; one of ``every`` of
    them.
    """
    stages = [stage for name in adapter.first_stage_names() for stage in cases.stages(name)]
    declared = itertools.product(stages, cases.UNIVERSES, cases.SIZES, adapter.families())
    for stage, where, n, family in declared:
        if sampling.is_sampled((stage.label, where, str(n), family), every):
            key = {"program": stage.label, "universe": where, "n": n, "family": family}
            yield key | _answer(
                adapter.stability_of, stage.program, n, cases.universe(where), cases.P, family
            )


def solved(every: int = 1) -> Iterator[Row]:
    """Weights and parameters of every program at two sizes."""
    for name in [*adapter.first_stage_names(), *adapter.second_stage_names()]:
        for stage in cases.stages(name):
            for n in cases.SOLVED:
                key = {"program": stage.label, "n": n}
                yield key | _answer(
                    adapter.solved, stage.program, cases.universe("floor"), n, cases.P
                )


def plans(every: int = 1) -> Iterator[Row]:
    """The plans of the table, or one of ``every`` of them."""
    for first, second, where, n, options in cases.plans():
        text = " ".join(f"{name}={value}" for name, value in options.items())
        if not sampling.is_sampled((first.label, second.label, where, str(n), text), every):
            continue
        key = {
            "first": first.label,
            "second": second.label,
            "universe": where,
            "n": n,
            "declared": text,
        }
        declared = cases.BUDGET | options
        yield key | _answer(
            adapter.plan_of,
            first.program,
            second.program,
            cases.universe(where),
            n,
            cases.P,
            **declared,
        )


#: How many columns identify a row, and what computes the rows, by the name of the file.
TABLES: dict[str, tuple[int, Callable[..., Iterator[Row]]]] = {
    "programs": (1, programs),
    "bounds": (4, bounds),
    "plans": (5, plans),
    "solved": (2, solved),
    "releases": (2, releases.rows),
}

#: How many columns decide whether a row is in the sample of the default tests; of a release, all
#: rows are.
SAMPLED = {"bounds": 4, "plans": 5, "releases": 1}


def cells(row: Row) -> dict[str, str]:
    """A row as it is written: numbers in 15 digits, nothing for None."""
    return {name: _text(value) for name, value in row.items()}


def path(name: str) -> Path:
    return HERE / f"{name}.csv"


def read(name: str) -> list[dict[str, str]]:
    with path(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(name: str) -> None:
    rows = [cells(row) for row in TABLES[name][1]()]
    columns = dict.fromkeys(column for row in rows for column in row)
    with path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _answer(ask: Callable[..., Row], *args: Any, **options: Any) -> Row:
    """Answer of the package, or why it refuses."""
    try:
        return ask(*args, **options)
    except adapter.Refusal as refusal:
        return {"refusal": f"{type(refusal).__name__}: {refusal}"}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    for table in sys.argv[1:] or TABLES:
        write(table)
