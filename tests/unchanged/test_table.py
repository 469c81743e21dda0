"""Bounds, plans and refusals are what the committed table says: a change of one is a change of a claim.

A change that is meant is committed with the table that ``python -m tests.unchanged.table`` writes.
"""

import math

import pytest

from tests.unchanged import adapter, cases
from tests.unchanged.table import TABLES, cells, read

#: Elementary functions differ by their last digits between machines.
RELATIVE = 1e-12
#: Minimizers are where an iteration ended, and sums of theirs may cancel: relative to their length. A user's
#: regularizer is judged by a gap alone, which leaves half of the digits to the build of a conic solver.
SOLVED, BY_GAP = 1e-10, 1e-6
#: Programs of that kind, by their labels.
BY_A_GAP = {stage.label for stage in cases.stages("itr") if "group" in stage.settings}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TABLES)
def test_the_package_answers_as_the_table_says(name: str, every: int) -> None:
    """By default of a seventh of bounds, plans and releases: prime, so that no family is passed over."""
    width, rows = TABLES[name]
    committed, computed = read(name), [cells(row) for row in rows(every)]
    columns, whole = list(committed[0]), len(committed)
    if every > 1:
        part = 1 if name == "releases" else width  # of a release all numbers
        answered = {tuple(row.values())[:part] for row in computed}
        committed = [row for row in committed if tuple(row.values())[:part] in answered]
        assert every * len(committed) > 0.8 * whole
    keys = [tuple(row[column] for column in columns[:width]) for row in committed]
    now = {tuple(row.get(column, "") for column in columns[:width]): row for row in computed}
    assert len(set(keys)) == len(keys)
    assert len(now) == len(computed)
    assert now.keys() == set(keys)
    assert {column for row in computed for column in row} <= set(columns)
    changed = [
        f"{', '.join(key)}: {column} was {row[column]!r}, is {now[key].get(column, '')!r}"
        for key, row in zip(keys, committed, strict=True)
        for column in columns[width:]
        if not _same(row[column], now[key].get(column, ""), _apart(row) if name == "solved" else 0.0)
    ]
    assert not changed, "\n".join([f"{len(changed)} cells of {name} differ", *changed[:40]])


def test_every_program_and_every_calibration_is_in_the_table() -> None:
    bounded = {row["program"].split()[0] for row in read("bounds")}
    plans = [row for row in read("plans") if not row["refusal"]]
    assert bounded == set(adapter.first_stage_names())
    assert {row["second"].split()[0] for row in plans} == set(adapter.second_stage_names())
    for method in adapter.calibrations():
        assert any(f"method={method}" in row["declared"].split() for row in plans)


def _apart(row: dict[str, str]) -> float:
    share = BY_GAP if row["program"] in BY_A_GAP else SOLVED
    return share * float(row["length"]) if row["length"] else 0.0


def _same(was: str, now: str, apart: float) -> bool:
    if was == now:
        return True
    try:
        return math.isclose(float(was), float(now), rel_tol=RELATIVE, abs_tol=apart)
    except ValueError:
        return False
