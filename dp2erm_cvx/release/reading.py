"""The strict reader of releases: nothing is read that does not follow.

Every entry but the released numbers has to follow from the declaration and those numbers, as
``verify`` computes it again: to a millionth, and predicted shares to 2 %. Taken over as they
stand are the standing of the run, the study file, the version of the package, and the level and
the target of an interval.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, overload

from dp2erm_cvx.errors import DeclarationError, Dp2ermError, brief, known_names
from dp2erm_cvx.release.declaration import NotAtHandError
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.release.record import SCHEMA_VERSION, BaseRelease, release_adapter
from dp2erm_cvx.release.rule import RuleRelease
from dp2erm_cvx.release.two_stage import Release
from dp2erm_cvx.release.verify import verify

P = TypeVar("P", bound=BaseRelease)

#: Kinds of releases, by what was asked for as their declaration names it.
KINDS: dict[str, type[BaseRelease]] = {
    kind.goal: kind for kind in (EffectRelease, RuleRelease, Release, RangesRelease)
}


@overload
def read_release(text: str | bytes, kind: None = None) -> BaseRelease: ...


@overload
def read_release(text: str | bytes, kind: type[P]) -> P: ...


def read_release(text: str | bytes, kind: type[BaseRelease] | None = None) -> BaseRelease:
    """Read a release back from its JSON.

    What the text declares is planned again. It is refused where it does not fit the schema, where a
    program that it names is not known here (:func:`~dp2erm_cvx.program.registry.known_meanwhile`),
    and where an entry does not follow from what was declared and released.

    Parameters
    ----------
    text
        What ``to_json`` wrote.
    kind
        The class of releases that is expected; None for the one that the text declares.

    Returns
    -------
    BaseRelease
        Of the expected kind.

    Raises
    ------
    NotAtHandError
        Where a program or a function of an author's own is not known here or is another one, so
        that nothing can be planned again.
    DeclarationError
        If it is refused, in one line.
    """
    if kind is None:
        kind = _kind_of(text)
    return checked(parsed(text, kind), text)


def read_release_file(path: str | Path, *, check: bool = True) -> BaseRelease:
    """The release of a file: a two-stage release, an effect, a rule or ranges.

    Parameters
    ----------
    path
        The JSON file.
    check
        Whether what does not follow is refused. Without it the file is parsed alone, for ``verify``
        to say all that does not follow.

    Raises
    ------
    NotAtHandError
        Where a program or a function of an author's own is not known here or is another one, so
        that nothing can be planned again.
    DeclarationError
        Where the file is refused, in one line.
    """
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise DeclarationError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not text.lstrip().startswith(b"{"):
        raise DeclarationError(
            f"{path} is no release: give the JSON file that effect, rule, fit or run wrote"
        )
    try:
        release = parsed(text, _kind_of(text))
        if check:
            checked(release, text)
        return release
    except NotAtHandError as error:
        raise NotAtHandError(f"{path}: {error}") from None
    except DeclarationError as error:
        raise DeclarationError(f"{path}: is not as a command writes a release: {error}") from None


def json_schema(kind: type[BaseRelease] = Release) -> dict[str, Any]:
    """JSON Schema of ``to_json`` of this kind of release."""
    schema: dict[str, Any] = release_adapter(kind).json_schema()
    types = {
        "private": {"type": "boolean"},
        "standing": {"$ref": "#/$defs/Standing"},
        "own_units": {"type": "object"},
        "digest": {"type": "string"},
        "caveats": {"type": "array", "items": {"type": "string"}},
    }
    schema["properties"] = {name: types[name] for name in kind.spelled} | schema["properties"]
    schema["properties"] |= {name: types[name] for name in kind.derived}
    schema["required"] = [*kind.spelled, *schema["required"]]
    return schema


def parsed(text: str | bytes, kind: type[P]) -> P:
    """A release of this kind from ``to_json``, by its schema alone.

    Raises
    ------
    DeclarationError
        Where the text does not fit, in one line.
    """
    from pydantic import ValidationError

    plain = _loaded(text)
    if _goal(plain) != kind.goal:
        raise DeclarationError(f"release JSON: declared.goal: must be {kind.goal}")
    besides = {name: plain.pop(name, None) for name in (*kind.spelled, *kind.derived)}
    try:
        release: P = release_adapter(kind).validate_python(plain)
    except ValidationError as error:
        raise DeclarationError(f"release JSON: {_fault(error.errors()[0], kind)}") from None
    for name in release.spelled:
        # A number or another type is not what was spelled out, even where it compares equal.
        if type(besides[name]) not in (bool, str) or besides[name] != getattr(release, name):
            raise DeclarationError(f"release JSON: {name} does not agree with guarantee.standing")
    if release.n_samples < 2 or not release.columns:
        raise DeclarationError(
            "release JSON: n_samples and columns: at least 2 records and 1 covariate"
        )
    return release


def _fault(error: Mapping[str, Any], kind: type[BaseRelease]) -> str:
    """One error of pydantic, with the entry that it is about."""
    where = _line(".".join(str(part) for part in error["loc"]))
    if error["type"] == "missing":
        return f"{where}: is missing"
    if error["type"] == "unexpected_keyword_argument":
        hint = ""
        if len(error["loc"]) == 1:
            hint = f"; {known_names(where, [field.name for field in fields(kind)])}"
        return f"{where}: is no entry of a release{hint}"
    return f"{where} = {brief(error['input'])}: {error['msg']}"


def checked(release: P, text: str | bytes) -> P:
    """The release of a text, unless an entry does not follow from what was declared and released.

    Raises
    ------
    NotAtHandError
        Where a program or a function of an author's own is not known here or is another one, so
        that nothing can be planned again.
    DeclarationError
        For the first entry that does not follow, in one line.
    """
    try:
        refuted = verify(release, text=text).refuted
    except NotAtHandError:
        raise
    except Dp2ermError as error:
        raise DeclarationError(f"release JSON: {_line(error)}") from None
    for line in refuted:
        raise DeclarationError(f"release JSON: {_line(line)}")
    return release


def _kind_of(text: str | bytes) -> type[BaseRelease]:
    """The kind of release that a text declares. Raises DeclarationError for none."""
    goal = _goal(_loaded(text))
    if not isinstance(goal, str) or goal not in KINDS:
        raise DeclarationError(f"release JSON: declared.goal: must be one of {', '.join(KINDS)}")
    return KINDS[goal]


def _goal(plain: dict[str, Any]) -> object:
    """The question, as the JSON of a release declares it."""
    declared = plain.get("declared")
    if not isinstance(declared, dict):
        return None
    return declared.get("goal")


def _loaded(text: str | bytes) -> dict[str, Any]:
    """The JSON object of a release of this schema. Raises DeclarationError."""
    try:
        plain = json.loads(
            text, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_named_once
        )
    except (TypeError, ValueError, UnicodeDecodeError) as error:
        raise DeclarationError(f"release JSON: {_line(error)}") from None
    except RecursionError:
        raise DeclarationError("release JSON: brackets within brackets without end") from None
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version in (2, 3):
        raise DeclarationError(
            f"release JSON: schema_version {version}: such files do not hold all that was "
            "declared, and are read no longer"
        )
    if not isinstance(plain, dict) or type(version) is not int or version != SCHEMA_VERSION:
        raise DeclarationError(f"release JSON: schema_version: must be {SCHEMA_VERSION}")
    return plain


def _refused(constant: str) -> Any:
    """Raise ValueError for a number that is not finite."""
    raise ValueError(f"{constant} is not a finite number")


def _finite(text: str) -> float:
    """A number of the JSON, unless it is too large for a float."""
    number = float(text)
    if not math.isfinite(number):
        _refused(text[:20])
    return number


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the JSON, unless a name stands twice in it.

    Of two statements about one name, one reader could see the first and another the second.
    """
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return named


def _line(message: object) -> str:
    """At most one line of a message that quotes the file."""
    line = " ".join(str(message).split())
    if len(line) > 200:
        return line[:197] + "..."
    return line
