"""A first study file: names of columns, and a gap wherever something has to be known without the data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dp2erm_cvx.diagnostics.columns import MOST_LEVELS, holds, key
from dp2erm_cvx.domain_file import EDIT

if TYPE_CHECKING:
    from dp2erm_cvx.csv_layout import CsvLayout
    from dp2erm_cvx.tables import Table

_HEAD = """\
# What a record may look like. Everything here is public: from the codebook, the protocol or earlier papers,
# WITHOUT these data. A range or a level that was read off the data makes the stated epsilon wrong.
# This draft itself was made by looking at the data: which table a column stands in (numbers; at most {most}
# texts; others) and [csv] may rest on a single cell. Correct that from what is public before you publish it.
# Replace every "{edit}". Delete the lines of columns that are no covariates. Numbers that are codes, such as
# 1, 2 and 3, are levels: move their line.

outcome_column = {outcome}
outcome_center = "{edit}"    # the outcome that is expected in general, in its own units
outcome_bound = "{edit}"     # how far from it an outcome may count; beyond is clipped

[treatment]
column = {treatment}
treated = "{edit}"    # its two labels; any other cell counts as missing
control = "{edit}"
"""

_RANGES = "[ranges]    # of numbers: the least and the largest that count; beyond is clipped"
_LEVELS = '\n[levels]    # of categories; "other" takes what is not listed, "" a missing cell'
_TAIL = """
[missing]    # the number that stands for a missing cell, which is marked; else the middle of the range
# severity = 5

# [sampling_weights]    # of a survey: how many a record stands for; beyond "largest" is clipped
# column = "weight"
# largest = 5

[units]
# severity = "points"

[csv]"""
_STUDY = f"""
[budget]
epsilon = "{EDIT}"    # no probability of the answers changes by more than a factor e^epsilon with a record

# [ledger]    # the account that every run is charged to
# file = "book.db"
# dataset = "trial"

[[effect]]    # a question; more of them, and [[rule]], share the budget. See "dp2erm design"
# prognostic = ["age", "severity"]    # adjust for these alone
# residual_scale = 4.0    # how far outcomes of people with the same covariates lie apart (sd), a guess
"""


def drafted(table: Table, layout: CsvLayout, treatment: str | None, outcome: str | None) -> str:
    """The text of a study file for this table, with a gap for every declaration.

    It rests on the data: on the names of columns, on whether one holds numbers, at most 20 or more texts, or
    dates, and on how the file is written. One cell may decide that: a person has to read it before it is made
    public.
    """
    from dp2erm_cvx.tables import labels

    ranges, levels, others = [], [], []
    for name in table.names:
        if name in (treatment, outcome):
            continue
        told = labels(table.cells(name), name)
        kind = holds(told)
        if kind.startswith(("numbers", "0")):
            ranges.append(f'{key(name)} = ["{EDIT}", "{EDIT}"]')
        elif kind == "dates" or len(set(told)) > MOST_LEVELS:
            others.append(
                f"# {key(name)}: {'dates' if kind == 'dates' else 'texts'}, no covariate as it stands"
            )
        else:
            levels.append(f'{key(name)} = ["{EDIT}"]')
    named = [EDIT if name is None else name for name in (treatment, outcome)]
    quoted = [json.dumps(name, ensure_ascii=False) for name in named]
    parts = [_HEAD.format(edit=EDIT, most=MOST_LEVELS, treatment=quoted[0], outcome=quoted[1])]
    parts += [_RANGES, *ranges, _LEVELS, *levels, *others]
    csv = [f"{name} = {json.dumps(getattr(layout, name))}" for name in ("separator", "encoding", "decimal")]
    breaks = ["line_breaks = true"] if layout.line_breaks else []
    return "\n".join([*parts, _TAIL, *csv, *breaks, _STUDY])
