"""From a TOML file, and what is put over it, to the declarations of a study."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dp2erm_cvx.checks import declared_by_name, one_line, public_number
from dp2erm_cvx.data.dataset import Public
from dp2erm_cvx.data.domain_file import (
    RECORDS,
    asks_ranges,
    covariates_of,
    domain_of,
    of_event,
    refuse_gaps,
    tables_of_file,
)
from dp2erm_cvx.data.files import CsvLayout
from dp2erm_cvx.errors import DeclarationError, brief, known_names, placed
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.study.open_ranges import RANGES, DeclaredRanges, OpenRanges, read_open_ranges
from dp2erm_cvx.study.questions import OUTCOME, QUESTIONS, Beside, Question, files_of, settings_of
from dp2erm_cvx.study.study import StudyFile

#: Tables and values of a file beside its questions.
PLACES = RECORDS | {"budget", "ledger", "csv"}
#: What a text in these places stands for, where ``--set`` puts a value beside it.
_SHORT = {"first_stage": "name", "second_stage": "name", "weights": "name", "treatment": "column"}


def read_study(path: str | Path, changes: Sequence[str] = ()) -> StudyFile:
    """The study of a TOML file.

    Parameters
    ----------
    path
        The file. Programs and target samples that it names are found from its folder; a program's
        file is executed.
    changes
        What is put over the file, such as ``"budget.epsilon=2"``, ``"ranges.age=[18, 99]"`` or
        ``"average.settings.propensity=0.5"``. They may fill the gaps of a draft.

    Raises
    ------
    DeclarationError
        In one line that names the place in the file.
    """
    declared = tables_of_file(path)
    with placed(path):
        return _study(declared, changes, Path(path))


def _study(declared: dict[str, Any], changes: Sequence[str], path: Path) -> StudyFile:
    """The study of the tables of a file, ``changes`` put over them."""
    questions = list(question_tables(taken_questions(declared)))
    for text in changes:
        put_over(declared, questions, text)
    refuse_gaps(declared)
    for own in questions:
        with placed(own["name"]):
            refuse_gaps(own)
    declared = of_event(declared)
    account = declared.pop("ledger", None)
    spent = declared.pop("budget", None)
    _refuse_other_tables(declared)
    if not questions:
        raise DeclarationError(f"asks nothing: add a table [[{']], [['.join(QUESTIONS)}]]")
    if spent is None:
        raise DeclarationError("no [budget] is declared: add epsilon = ...")
    # In the order of the file, which is that of the covariates.
    plain = {**declared, "budget": spent, "ledger": account, "questions": questions}
    files = files_of(questions, path.parent)
    if files:
        plain["files"] = files
    layout = declared_by_name(CsvLayout, "csv", declared.pop("csv", {}))
    beside = Beside(path.parent, layout)
    asked = _Asked(questions, declared, beside)
    domain, listed, resting = asked.everything()
    return StudyFile(
        domain=domain,
        budget=_budget(_table("budget", spent)),
        questions=listed,
        resting=resting,
        account=None if account is None else _account(_table("ledger", account), path.parent),
        digest=hashlib.sha256(json.dumps(plain, default=str).encode()).hexdigest(),
        source=str(path),
        layout=layout,
        programs=tuple(beside.programs.values()),
    )


def _refuse_other_tables(declared: Mapping[str, Any]) -> None:
    """Raise DeclarationError for an array of tables that is no question."""
    for name, tables in declared.items():
        if isinstance(tables, list) and any(isinstance(own, dict) for own in tables):
            raise DeclarationError(f"[[{name}]]: no question; {known_names(name, QUESTIONS)}")


def question_tables(file: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every question as one table, with its name and kind; ``file`` holds the tables by kind."""
    names: set[str] = set()
    for kind, tables in file.items():
        several = tables if isinstance(tables, list) else [tables]
        for number, table in enumerate(several, 1):
            own = dict(_table(kind, table))
            if kind == RANGES and (len(several) > 1 or "name" in own):
                raise DeclarationError(
                    "[[ranges]]: one alone, without a name, releases ranges for all others"
                )
            unnamed = kind if len(several) == 1 else f"{kind}_{number}"
            name = _checked_name(kind, own.pop("name", unnamed), names)
            if "kind" in own:
                raise DeclarationError(f"{name}: kind: is said by the table [[{kind}]]")
            names.add(name.lower())
            yield {"name": name, "kind": kind, **own}


def _checked_name(kind: str, name: object, taken: set[str]) -> str:
    """The name of a question of this kind.

    Raises
    ------
    DeclarationError
        For what is no name, and for one that is ``taken``.
    """
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise DeclarationError(f"{kind}: name = {brief(name)}: letters, digits, - and _ alone")
    if name.lower() in taken or (name in PLACES and kind != RANGES):
        raise DeclarationError(f"{kind}: name = {brief(name)}: is taken: choose another")
    return name


def own_outcomes(questions: Sequence[Mapping[str, Any]]) -> set[str]:
    """Columns of outcomes that questions have of their own."""
    columns = [own.get("outcome_column") for own in questions]
    return {column for column in columns if isinstance(column, str)}


@dataclass(frozen=True)
class _Asked:
    """What a file asks, and of which records.

    Parameters
    ----------
    questions
        The tables of all questions.
    declared
        What the study declares of its records.
    beside
        The files that questions may name.
    """

    questions: Sequence[dict[str, Any]]
    declared: Mapping[str, Any]
    beside: Beside

    @property
    def outcomes(self) -> set[str]:
        """Columns of outcomes that questions have of their own."""
        return own_outcomes(self.questions)

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares of the budget by question; what none declares is divided evenly.

        Raises
        ------
        DeclarationError
            Where they add up to more than 1, or leave nothing to a question.
        """
        declared: dict[str, float] = {}
        for own in self.questions:
            if own.get("share") is not None:
                place = f"{own['name']}: share"
                declared[own["name"]] = public_number(place, own["share"], above=0.0)
        left = 1.0 - sum(declared.values())
        n_open = len(self.questions) - len(declared)
        if left < -1e-12 or (n_open and left <= 1e-12):
            wanted = f"share: {1.0 - left:g} of the budget is asked for"
            raise DeclarationError(f"{wanted}: at most 1 for all together, and something for each")
        even = left / max(n_open, 1)
        return {own["name"]: declared.get(own["name"], even) for own in self.questions}

    @property
    def others(self) -> list[dict[str, Any]]:
        """The questions that need ranges."""
        return [table for table in self.questions if table["kind"] != RANGES]

    def everything(
        self,
    ) -> tuple[
        Public, tuple[Question, ...], Callable[[RangesRelease], tuple[Question, ...]] | None
    ]:
        """What is known of the records, all questions, and those that rest on released ranges.

        The last are made once the ranges are released; None where all ranges are declared.
        """
        table = next((own for own in self.questions if own["kind"] == RANGES), None)
        if table is None:
            domain = domain_of(without_outcomes(self.declared, self.outcomes))
            return domain, self.at(DeclaredRanges()), None
        first, open_ranges = self.first(table)

        def resting(release: RangesRelease) -> tuple[Question, ...]:
            return self.at(open_ranges.at(release))

        return first.domain, (first, *self.at(open_ranges)), resting

    def at(self, ranges: DeclaredRanges) -> tuple[Question, ...]:
        """The questions that need ranges, with these."""
        listed = []
        for table in self.others:
            share = self.shares[table["name"]]
            with placed(table["name"]):
                listed.append(self._question(table, share, ranges))
        return tuple(listed)

    def _question(self, table: Mapping[str, Any], share: float, ranges: DeclaredRanges) -> Question:
        """One question in the domain of these ranges."""
        own = _own(table, self.declared, self.outcomes)
        ranges.check(table, own)
        domain = ranges.domain(own)
        covariates = covariates_of(own)
        return Question(
            name=table["name"],
            kind=table["kind"],
            share=share,
            settings=settings_of(table, self.beside, domain, domain.columns or covariates),
            domain=domain,
            known=ranges.known(own),
            covariates=covariates,
        )

    def first(self, table: Mapping[str, Any]) -> tuple[Question, OpenRanges]:
        """The question that releases ranges, and those that it leaves open."""
        owns = []
        for other in self.others:
            with placed(other["name"]):
                owns.append(_own(other, self.declared, self.outcomes))
        with placed(RANGES):
            ranges, own = read_open_ranges(table, self.declared, owns)
            known = ranges.question(
                without_outcomes(own, self.outcomes | {str(self.declared.get("outcome_column"))})
            )
        return Question(RANGES, RANGES, self.shares[RANGES], {}, known, known), ranges


def taken_questions(declared: dict[str, Any]) -> dict[str, Any]:
    """The tables of questions by kind, taken out of what a file declares."""
    kinds = [kind for kind in QUESTIONS if kind in declared]
    if RANGES in kinds and not asks_ranges(declared):
        kinds.remove(RANGES)
    return {kind: declared.pop(kind) for kind in kinds}


def without_outcomes(declared: Mapping[str, Any], outcomes: set[str]) -> dict[str, Any]:
    """A declaration less the missing values of ``outcomes`` that are not the declared one."""
    missing = declared.get("missing")
    if not isinstance(missing, Mapping):
        return dict(declared)
    others = outcomes - {declared.get("outcome_column")}
    left = {name: value for name, value in missing.items() if name not in others}
    return {**declared, "missing": left}


def _own(
    table: Mapping[str, Any], declared: Mapping[str, Any], outcomes: set[str]
) -> dict[str, Any]:
    """The declaration of the study with the outcome and the covariates of a question."""
    own = {name: table[name] for name in OUTCOME if name in table}
    if "outcome_column" in own:
        # Center and cost of the outcome of the study are in other units.
        own = of_event(own)
        outcomes = outcomes | {str(declared.get("outcome_column"))}
        declared = {name: value for name, value in declared.items() if name not in OUTCOME}
    if "covariates" in table:
        own["covariates"] = table["covariates"]
    return without_outcomes({**declared, **own}, outcomes)


def _budget(table: Mapping[str, Any]) -> Budget:
    """Epsilon and delta of all questions together."""
    for name, value in table.items():
        if isinstance(value, str):  # a number on a command line, and none in a file
            raise DeclarationError(f"budget: {name} = {brief(value)}: must be a number")
    with placed("budget"):
        return declared_by_name(Budget, "budget", table)


def _account(table: Mapping[str, Any], folder: Path) -> tuple[Path, str]:
    """The file, by its place beside the study, and the name of the data set."""
    for name in table:
        if name not in ("file", "dataset"):
            raise DeclarationError(
                f"ledger: unknown name {brief(name)}; {known_names(name, ('dataset', 'file'))}"
            )
    file = table.get("file")
    dataset = table.get("dataset")
    if not isinstance(file, str) or not isinstance(dataset, str):
        raise DeclarationError("ledger: must have two texts, file and dataset")
    return folder / file, one_line("dataset", dataset)


def put_over(declared: dict[str, Any], questions: Sequence[dict[str, Any]], text: str) -> None:
    """Put ``NAME=VALUE`` or ``TABLE.NAME=VALUE``, as TOML writes them, over what the file says.

    Parameters
    ----------
    declared
        What the file declares beside its questions; changed in place.
    questions
        The tables of its questions; changed in place.
    text
        The change.

    Raises
    ------
    DeclarationError
        For a change of nothing that a study declares.
    """
    keys, value = parsed_change(text)
    tables = {own["name"]: own for own in questions}
    first, *inside = keys
    if first in tables and inside:
        if inside[0] in ("name", "kind"):
            raise DeclarationError(
                f"{text!r}: what a question is called is declared in the file alone"
            )
        _put(tables[first], inside, value, text)
    elif first in PLACES and first not in tables:
        _put(declared, keys, value, text)
    else:
        raise DeclarationError(f"{text!r}: {known_names(first, sorted({*tables, *PLACES}))}")


def _put(table: dict[str, Any], keys: Sequence[str], value: Any, text: str) -> None:
    """Put a value into a table, or into tables inside of it; messages quote the whole ``text``."""
    *outer, name = keys
    for key in outer:
        known = table.get(key, {})
        if isinstance(known, str) and key in _SHORT:
            known = {_SHORT[key]: known}
        if not isinstance(known, dict):
            raise DeclarationError(f"{text!r}: {key} = {brief(known)} is no table")
        table[key] = dict(known)
        table = table[key]
    table[name] = value


def parsed_change(text: str) -> tuple[list[str], Any]:
    """The names, from the outermost, and the value of ``TABLE.NAME=VALUE``.

    What is no TOML is a text.
    """
    place, separator, written = text.partition("=")
    wanted = f"{text!r}: must look like TABLE.NAME=VALUE, for instance budget.epsilon=2"
    if not (separator and written.strip()):
        raise DeclarationError(wanted)
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        value = written.strip()
    try:
        inside: Any = tomllib.loads(f"{place.strip()} = 0")
    except tomllib.TOMLDecodeError:
        raise DeclarationError(wanted) from None
    keys = []
    while isinstance(inside, dict):
        ((key, inside),) = inside.items()
        keys.append(key)
    return keys, value


def _table(name: str, value: Any) -> dict[str, Any]:
    """A table of a file. Raises DeclarationError for anything else."""
    if not isinstance(value, dict):
        raise DeclarationError(f"{name} = {brief(value)}: must be a table [{name}]")
    return value
