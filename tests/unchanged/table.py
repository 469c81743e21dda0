"""Bounds, plans and releases as rows.

``python -m tests.unchanged.table`` computes the rows of the committed tables anew. With
``--choose`` it computes all rows first and chooses those that are committed.
"""

import csv
import itertools
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.unchanged import adapter, cases, releases, sampling
from tests.unchanged.sampling import Key

HERE = Path(__file__).parent
#: A row: what identifies it, then what the package answers, numbers still as numbers.
Row = dict[str, Any]


def programs(wanted: Collection[Key] | None = None) -> Iterator[Row]:
    """Programs that the labels of the other tables stand for, or those that are wanted."""
    for name in [*adapter.first_stage_names(), *adapter.second_stage_names()]:
        for stage in cases.stages(name):
            if wanted is None or (stage.label,) in wanted:
                yield {"program": stage.label, "settings": stage.settings}


def bounds(wanted: Collection[Key] | None = None) -> Iterator[Row]:
    """First stages in every universe, at every n and family of bounds, or those that are wanted."""
    stages = [stage for name in adapter.first_stage_names() for stage in cases.stages(name)]
    declared = itertools.product(stages, cases.UNIVERSES, cases.SIZES, adapter.families())
    for stage, where, n, family in declared:
        if wanted is None or (stage.label, where, str(n), family) in wanted:
            key = {"program": stage.label, "universe": where, "n": n, "family": family}
            yield key | _answer(
                adapter.stability_of, stage.program, n, cases.universe(where), cases.P, family
            )


def solved(wanted: Collection[Key] | None = None) -> Iterator[Row]:
    """Weights and parameters of programs at two sizes, or those that are wanted."""
    for name in [*adapter.first_stage_names(), *adapter.second_stage_names()]:
        for stage in cases.stages(name):
            for n in cases.SOLVED:
                if wanted is not None and (stage.label, str(n)) not in wanted:
                    continue
                key = {"program": stage.label, "n": n}
                yield key | _answer(
                    adapter.solved, stage.program, cases.universe("floor"), n, cases.P
                )


def plans(wanted: Collection[Key] | None = None) -> Iterator[Row]:
    """Plans, or those that are wanted."""
    for first, second, where, n, options in cases.plans():
        text = " ".join(f"{name}={value}" for name, value in options.items())
        if wanted is not None and (first.label, second.label, where, str(n), text) not in wanted:
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

#: How many columns decide whether a row is computed: of a release, all rows are or none.
CHOSEN_BY = {name: width for name, (width, _) in TABLES.items()} | {"releases": 1}


def facts_of_bound(row: Mapping[str, str]) -> Iterator[Key]:
    name = row["program"].split()[0]
    yield ("in its family", name, row["family"])
    yield ("assumptions", _without_numbers(row["assumptions"]))
    yield ("refusal", _without_numbers(row["refusal"]))
    for column in ("program", "universe", "n", "theorem", "relations", "private"):
        yield (column, row[column])


def facts_of_plan(row: Mapping[str, str]) -> Iterator[Key]:
    yield ("first", row["first"].split()[0])
    yield ("reason", _without_numbers(row["reason"]))
    yield ("refusal", _without_numbers(row["refusal"]))
    if not row["refusal"]:
        yield ("answered", row["second"].split()[0])
    yield ("standing", row["proven"], row["counted"], row["weights_known"])
    for column in ("second", "universe", "n", "declared", "theorem", "propensity_theorem"):
        yield (column, row[column])


def facts_of_solution(row: Mapping[str, str]) -> Iterator[Key]:
    yield (row["program"].split()[0],)


#: Options of a release that are facts of it, each with its value.
_OPTIONS = "estimand|noise|first_stage|second_stage|calibration|arithmetic|interval|by|where"


def facts_of_quantity(row: Mapping[str, str]) -> Iterator[Key]:
    """Facts of a release that one of its rows has: what is declared, and the field of the row."""
    goal, universe = row["release"].split()[:2]
    yield ("goal", goal)
    yield ("universe", universe)
    yield ("stated", re.sub(r"\.\d+", "", row["quantity"]))
    for option in re.findall(rf"(?:{_OPTIONS})=\S+", row["release"]):
        yield ("declared", option)


#: What a row has that some committed row has to have; programs are all there.
FACTS = {
    "bounds": facts_of_bound,
    "plans": facts_of_plan,
    "solved": facts_of_solution,
    "releases": facts_of_quantity,
}


def _without_numbers(text: str) -> str:
    return re.sub(r"[\d.e+-]+", "#", text)


def chosen(name: str, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of a whole table that are committed, by the rule of `sampling`."""
    if name not in FACTS:
        return rows
    width = CHOSEN_BY[name]
    facts: dict[Key, set[Key]] = {}
    for row in rows:
        facts.setdefault(tuple(row.values())[:width], set()).update(FACTS[name](row))
    kept = sampling.chosen(facts)
    return [row for row in rows if tuple(row.values())[:width] in kept]


def cells(row: Row) -> dict[str, str]:
    """A row as it is written: numbers in 15 digits, nothing for None."""
    return {name: _text(value) for name, value in row.items()}


def path(name: str) -> Path:
    return HERE / f"{name}.csv"


def read(name: str) -> list[dict[str, str]]:
    with path(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(name: str, *, choose: bool = False) -> None:
    """Write a table: the rows that it has, or those that are chosen of all rows."""
    rows_of = TABLES[name][1]
    if choose:
        computed = [cells(row) for row in rows_of()]
    else:
        wanted = {tuple(row.values())[: CHOSEN_BY[name]] for row in read(name)}
        computed = [cells(row) for row in rows_of(wanted)]
    columns = list(dict.fromkeys(column for row in computed for column in row))
    rows = [{column: row.get(column, "") for column in columns} for row in computed]
    if choose:
        rows = chosen(name, rows)
    with path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
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
    names = [word for word in sys.argv[1:] if word != "--choose"]
    for table in names or TABLES:
        write(table, choose="--choose" in sys.argv)
