"""A public domain written down in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp2erm_cvx.csv_layout import CsvLayout
from dp2erm_cvx.declared_domain import domain_of
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import WrittenNumber

#: What stands in a drafted file where something has to be declared.
EDIT = "EDIT"
#: Tables of a study beside its domain, see :mod:`dp2erm_cvx.study_file`.
STUDY = ("budget", "ledger", "effect", "rule", "weights")


def load_domain(path: str | Path) -> Domain:
    """Read a :class:`~dp2erm_cvx.domain.Domain` from a TOML file.

    The names are those of the Domain's fields, at the top level or in a table ``[domain]``; ``ranges``
    may be a table ``[ranges]`` or ``[domain.ranges]`` of ``column = [low, high]``. The tables
    ``[treatment]``, ``[levels]``, ``[missing]``, ``[units]``, ``[cells]`` and ``[sampling_weights]``,
    ``outcome_column`` and ``eligible`` make a :class:`~dp2erm_cvx.codebook.Codebook`. Where ranges or levels
    are declared, ``covariate_bound`` may be left out: it is then the norm that no record inside them exceeds.
    A table ``[csv]`` says how the data file is written.

    Raises DeclarationError, in one line, for a file that cannot be read and for any invalid value.
    """
    try:
        return domain_of(read_declared(path))
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def read_declared(path: str | Path) -> dict[str, Any]:
    """What the file declares of records, by name; the values are not judged yet.

    Raises DeclarationError for a file that cannot be read, or whose table ``[csv]`` is wrong.
    """
    declared = read_tables(path)
    declared_layout(path)
    return {name: value for name, value in declared.items() if name not in ("csv", *STUDY)}


def declared_layout(path: str | Path) -> CsvLayout:
    """What the table ``[csv]`` of a domain file says. Raises DeclarationError."""
    try:
        return CsvLayout.from_dict(read_tables(path).get("csv", {}))
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def read_tables(path: str | Path) -> dict[str, Any]:
    """All that the file says, by name. Raises DeclarationError for one that cannot be read or is a draft."""
    try:
        with open(path, "rb") as file:
            declared = tomllib.load(file, parse_float=WrittenNumber)
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: is not UTF-8 text, so not a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise DeclarationError(f"{path}: is not a TOML file: {str(error).splitlines()[0]}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets within brackets
        raise DeclarationError(f"{str(path)!r}: is not a TOML file that this reader can hold") from None
    if "domain" in declared:
        beside = [name for name in declared if name not in ("domain", *STUDY)]
        if beside:
            raise DeclarationError(f"{path}: {beside[0]!r} stands outside the table [domain]: move it inside")
        inside = declared.pop("domain")
        if not isinstance(inside, dict):
            raise DeclarationError(f"{path}: domain = {inside!r}: must be a table [domain]")
        declared |= inside
    if (name := _placeholder(declared)) is not None:
        raise DeclarationError(
            f'{path}: {name} still says "{EDIT}": type in what is known without the data, or delete the line'
        )
    return declared


def _placeholder(declared: Mapping[str, Any]) -> str | None:
    """The first name that a draft left open."""
    for name, value in declared.items():
        if isinstance(value, Mapping):
            if (inside := _placeholder(value)) is not None:
                return f"{name}: {inside}"
        elif value == EDIT or (isinstance(value, list) and EDIT in value):
            return str(name)
    return None
