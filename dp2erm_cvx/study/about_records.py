"""What a file declares of records alone, for commands that ask no question of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp2erm_cvx.checks import declared_by_name
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.domain_file import (
    RECORDS,
    covariates_of,
    domain_of,
    of_event,
    refuse_gaps,
    refuse_open,
    tables_of_file,
)
from dp2erm_cvx.data.files import CsvLayout
from dp2erm_cvx.data.private_ranges import OpenDomain
from dp2erm_cvx.errors import DeclarationError, placed
from dp2erm_cvx.study.open_ranges import RANGES, read_open_ranges
from dp2erm_cvx.study.reading import (
    own_outcomes,
    put_over,
    question_tables,
    taken_questions,
    without_outcomes,
)


@dataclass(frozen=True)
class RecordsFile:
    """What is public about records.

    Parameters
    ----------
    domain
        What a record may look like.
    layout
        How CSV files are written.
    covariates
        Names of the covariates where the domain does not name them; None where nobody does.
    """

    domain: Domain
    layout: CsvLayout
    covariates: tuple[str, ...] | None


def declared_records(
    path: str | Path | None, changes: Sequence[str] = (), assumed: Mapping[str, Any] | None = None
) -> RecordsFile:
    """The declarations about records of a study or of a domain file.

    Parameters
    ----------
    path
        The file; None where all is declared by ``changes``.
    changes
        What is put over the file, such as ``"outcome_bound=8"`` or ``"ranges.age=[18, 99]"``.
    assumed
        What is taken where neither declares it.

    Raises
    ------
    DeclarationError
        In one line that names the place in the file.
    """
    declared = records_declared(path, changes)
    layout = declared.pop("csv", {})
    whole = {**(assumed or {}), **declared}
    with placed(path or "--set"):
        refuse_open(whole)
    for name in ("covariate_bound", "outcome_bound"):
        follows = name == "covariate_bound" and (whole.get("ranges") or whole.get("levels"))
        if name not in whole and not follows:
            place = "" if path is None else f"{path}: "
            wanted = f"give --set {name}=..., or a --study that declares it"
            raise DeclarationError(f"{place}{name} is not declared: {wanted}")
    with placed(path or "--set"):
        csv = declared_by_name(CsvLayout, "csv", layout)
        return RecordsFile(domain_of(whole), csv, covariates_of(whole))


def records_declared(path: str | Path | None, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The declarations of a file about records and about how they are written, by name.

    Parameters
    ----------
    path
        The file; None where all is declared by ``changes``.
    changes
        What is put over the file.

    Raises
    ------
    DeclarationError
        For a file that cannot be read, for a change of nothing, and for a gap of a draft.
    """
    declared = {} if path is None else tables_of_file(path)
    with placed(path or "--set"):
        questions = list(question_tables(taken_questions(declared)))
        for text in changes:
            put_over(declared, questions, text)
        for name in ("budget", "ledger"):
            declared.pop(name, None)
        refuse_gaps(declared)
    for own in questions:
        if own["kind"] == RANGES:
            # That question says what is known of ranges.
            declared[RANGES] = [_of_one_outcome(own, declared.get("outcome_column"))]
    return without_outcomes(of_event(declared), own_outcomes(questions))


def open_records(declared: Mapping[str, Any]) -> OpenDomain:
    """What the declarations of :func:`records_declared` with ``[[ranges]]`` say.

    Raises
    ------
    DeclarationError
        For what cannot be declared.
    """
    others = {name: value for name, value in declared.items() if name != RANGES}
    (table,) = declared[RANGES]
    ranges, own = read_open_ranges(table, others, [])
    return ranges.question(own)


def _of_one_outcome(table: Mapping[str, Any], column: object) -> dict[str, Any]:
    """The question for ranges less the outcomes that other questions ask about."""
    outcomes = table.get("outcomes")
    if not isinstance(outcomes, Mapping):
        return dict(table)
    own = {name: known for name, known in outcomes.items() if name == column}
    return {**table, "outcomes": own}


def is_about_records(change: str) -> bool:
    """True if a change ``NAME=VALUE`` names something that a file declares of records."""
    name = change.partition("=")[0].strip()
    return name.partition(".")[0].strip() in RECORDS | {"csv"}
