"""A public domain written down in a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError


def load_domain(path: str | Path) -> Domain:
    """Read a :class:`~dp2erm_cvx.domain.Domain` from a TOML file.

    The names are those of the Domain's fields, at the top level or in a table ``[domain]``; ``ranges``
    may be a table ``[ranges]`` or ``[domain.ranges]`` of ``column = [low, high]``.
    Raises DeclarationError, in one line, for a file that cannot be read and for any invalid value.
    """
    declared = read_declared(path)
    try:
        return Domain.from_dict(declared)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}") from None


def read_declared(path: str | Path) -> dict[str, Any]:
    """What the file declares, by the names of the Domain's fields; the values are not judged yet.

    Raises DeclarationError for a file that cannot be read.
    """
    try:
        with open(path, "rb") as file:
            declared = tomllib.load(file)
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: is not UTF-8 text, so not a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise DeclarationError(f"{path}: is not a TOML file: {str(error).splitlines()[0]}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets within brackets
        raise DeclarationError(f"{str(path)!r}: is not a TOML file that this reader can hold") from None
    if "domain" in declared:
        beside = [name for name in declared if name != "domain"]
        if beside:
            raise DeclarationError(f"{path}: {beside[0]!r} stands outside the table [domain]: move it inside")
        declared = declared["domain"]
        if not isinstance(declared, dict):
            raise DeclarationError(f"{path}: domain = {declared!r}: must be a table [domain]")
    return declared
