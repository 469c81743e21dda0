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
    """The text of a study file whose ``question`` is of this kind and has these settings over its
    own.

    Remarks and all other lines stay. Without a question one is added, and the budget where none is
    declared. Raises DeclarationError where it cannot be added.
    """
    import tomlkit

    file = tomlkit.parse(Path(path).read_text(encoding="utf-8"))
    questions = taken_questions(dict(file))
    tables = [
        (key, each)
        for key, of in questions.items()
        for each in (of if isinstance(of, list) else [of])
    ]
    names = [each["name"] for each in question_tables(questions)]
    before, table = (None, tomlkit.table()) if question is None else tables[names.index(question)]
    if before not in (None, kind):  # another estimator: only the name and the share stay
        several, old = file[before], table
        if isinstance(several, list) and len(several) > 1:
            several.remove(old)
        else:
            file.remove(before)
        table = tomlkit.table()
        table.update({"name": question} | ({"share": old["share"]} if "share" in old else {}))
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


def filled(text: str, changes: Sequence[str]) -> str:
    """The text of a study file with these changes put into it, its remarks and all other lines as
    they are.

    Parameters
    ----------
    text
        The file, in which a gap is left for what is not declared.
    changes
        As of :func:`~dp2erm_cvx.study.read_study`, such as ``"outcome_bound=8"``.

    Raises DeclarationError where a change names nothing that a study declares.
    """
    import tomlkit

    file = tomlkit.parse(text)
    plain = file.unwrap()
    questions = list(question_tables(taken_questions(plain)))
    for change in changes:
        put_over(plain, questions, change)
        first, *inside = keys = parsed_change(change)[0]
        asked = [own for own in questions if own["name"] == first and inside]
        table: Any = file
        if asked:
            table = file[asked[0]["kind"]]
            table = table[0] if isinstance(table, list) else table
            keys = inside
        value: Any = asked[0] if asked else plain
        for key in keys[:-1]:
            value = value[key]
            if not isinstance(table.get(key), dict):
                table[key] = tomlkit.table()
            table = table[key]
        table[keys[-1]] = written(value[keys[-1]])
    return tomlkit.dumps(file)


def written(value: Any) -> Any:
    """A setting as TOML writes it, which has no None."""
    import tomlkit

    if isinstance(value, Mapping):
        inside = tomlkit.inline_table()
        inside.update({name: written(item) for name, item in value.items()})
        return inside
    return "none" if value is None else list(value) if isinstance(value, tuple) else value
