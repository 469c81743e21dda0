"""Bounds, plans and refusals are what the committed table says: a change of one is a change of a
claim.

A change that is meant is committed with the table that ``python -m tests.unchanged.table`` writes.
"""

import math

import pytest

from tests.rows import slow_rows
from tests.unchanged import adapter, cases
from tests.unchanged.sampling import is_sampled
from tests.unchanged.table import CHOSEN_BY, FACTS, TABLES, cells, read

#: Elementary functions differ by their last digits between machines.
RELATIVE = 1e-12
#: Minimizers are where an iteration ended, and sums of theirs may cancel: relative to their length.
#: A user's regularizer is judged by a gap alone, which leaves half of the digits to the build of a
#: conic solver.
SOLVED, BY_GAP = 1e-10, 1e-6
#: Programs of that kind, by their labels.
BY_A_GAP = {stage.label for stage in cases.stages("itr") if "group" in stage.settings}


#: Tables of which the default tests compute one row of so many, or one release of so many.
EVERY = {"bounds": 18, "plans": 14, "releases": 6}


@pytest.mark.parametrize("name", slow_rows(TABLES, "solved"))
def test_the_package_answers_as_a_sample_of_the_table_says(name: str) -> None:
    refuse_changes(name, EVERY.get(name, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_package_answers_as_the_table_says(name: str) -> None:
    refuse_changes(name, 1)


def refuse_changes(name: str, every: int) -> None:
    """Fail where one of ``every`` rows of a table is not what the package answers."""
    width, rows = TABLES[name]
    part = CHOSEN_BY[name]
    committed = [row for row in read(name) if is_sampled(tuple(row.values())[:part], every)]
    assert committed
    columns = list(committed[0])
    wanted = {tuple(row.values())[:part] for row in committed}
    # of programs all rows are committed, so that a new one is missed
    computed = [cells(row) for row in (rows(wanted) if name in FACTS else rows())]
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
        if not _same(
            row[column], now[key].get(column, ""), _apart(row) if name == "solved" else 0.0
        )
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
