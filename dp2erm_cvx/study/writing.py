"""The text of a study file, written with other settings for a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.study.reading import parsed_change, put_over, question_tables, taken_questions


def study_with(
    path: str | Path, question: str | None, kind: str, settings: Mapping[str, Any], budget: Budget
) -> str:
    """The text of a study file with other settings for a question.

    Remarks and all other lines stay.

    Parameters
    ----------
    path
        The study file.
    question
        Name of the question; None to add one.
    kind
        What it asks from now on. Of a question of another kind only the name and the share stay.
    settings
        What is put over its own settings.
    budget
        The budget, where the file declares none.

    Raises
    ------
    DeclarationError
        Where a question cannot be added.
    """
    import tomlkit

    file = tomlkit.parse(Path(path).read_text(encoding="utf-8"))
    before = None
    table: Any = tomlkit.table()
    if question is not None:
        before, table = _found(file, question)
        if before != kind:
            table = _renewed(file, before, table, question)
    table.update({name: written(value) for name, value in settings.items()})
    if "budget" not in file:
        file["budget"] = {name: value for name, value in vars(budget).items() if value}
    if before != kind:
        if not isinstance(file.setdefault(kind, tomlkit.aot()), list):
            raise DeclarationError(
                f"{path}: [{kind}]: write [[{kind}]], so that another one can be added"
            )
        file[kind].append(table)
    return tomlkit.dumps(file)


def _found(file: Any, question: str) -> tuple[str, Any]:
    """The kind and the table of a question of a file."""
    questions = taken_questions(dict(file))
    tables: list[tuple[str, Any]] = []
    for kind, several in questions.items():
        listed = several if isinstance(several, list) else [several]
        tables += [(kind, table) for table in listed]
    names = [own["name"] for own in question_tables(questions)]
    return tables[names.index(question)]


def _renewed(file: Any, kind: str, old: Any, question: str) -> Any:
    """A new table for a question of this ``kind``, whose ``old`` one is taken out of the file."""
    import tomlkit

    several = file[kind]
    if isinstance(several, list) and len(several) > 1:
        several.remove(old)
    else:
        file.remove(kind)
    table = tomlkit.table()
    table["name"] = question
    if "share" in old:
        table["share"] = old["share"]
    return table


def filled(text: str, changes: Sequence[str]) -> str:
    """The text of a study file with these changes put into it.

    Its remarks and all other lines stay as they are.

    Parameters
    ----------
    text
        The file, in which a gap is left for what is not declared.
    changes
        As of :func:`~dp2erm_cvx.study.read_study`, such as ``"outcome_bound=8"``.

    Raises
    ------
    DeclarationError
        Where a change names nothing that a study declares.
    """
    import tomlkit

    file = tomlkit.parse(text)
    plain = file.unwrap()
    tables_by_kind = taken_questions(plain)
    questions = list(question_tables(tables_by_kind))
    # the same questions in the same order, as the file writes them
    written_questions: list[Any] = []
    for kind in tables_by_kind:
        tables: Any = file[kind]
        written_questions += tables if isinstance(tables, list) else [tables]
    places = {question["name"]: place for place, question in enumerate(questions)}
    for change in changes:
        put_over(plain, questions, change)
        keys, _ = parsed_change(change)
        first, *inside = keys
        if first in places and inside:
            place = places[first]
            _copy(questions[place], written_questions[place], inside)
        else:
            _copy(plain, file, keys)
    return tomlkit.dumps(file)


def _copy(plain: Any, table: Any, keys: Sequence[str]) -> None:
    """Copy a value, by its names from the outermost on, from plain tables into one of tomlkit."""
    import tomlkit

    *outer, name = keys
    for key in outer:
        plain = plain[key]
        if not isinstance(table.get(key), dict):
            table[key] = tomlkit.table()
        table = table[key]
    table[name] = written(plain[name])


def written(value: Any) -> Any:
    """A setting as TOML writes it, which has no None."""
    import tomlkit

    if isinstance(value, Mapping):
        inside = tomlkit.inline_table()
        inside.update({name: written(item) for name, item in value.items()})
        return inside
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return list(value)
    return value
