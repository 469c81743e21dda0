"""Settings as text: what is said of them, numbers, and members of a family such as ``gaussian:1.0``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Self

from dp2erm_cvx.errors import DeclarationError


def described(docstring: str | None) -> dict[str, str]:
    """Texts by field from the lists of a docstring, on one line; what refers to another class is left out.

    This is the one text of a setting: the reference, the help of commands and the tables of pages repeat it.
    """
    texts: dict[str, str] = {}
    entries = r"^(\w+(?:, \w+)*)\n((?:    .+(?:\n|$))+)"
    for listed, entry in re.findall(entries, inspect.cleandoc(docstring or ""), flags=re.MULTILINE):
        text = " ".join(entry.split())
        if not text.startswith("As in "):
            texts |= dict.fromkeys(listed.split(", "), text)
    return texts


def described_settings(made: Any) -> dict[str, str]:
    """Texts on each setting: by a class, by one that it inherits from, or by a scheme and its class."""
    kind = made if isinstance(made, type) else made.family
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        texts |= described(base.__doc__)
    return texts | described(made.__doc__)


def as_plain(text: str) -> str:
    """A text of a docstring without its markup: code as it stands, references by their names."""
    named = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return named.replace("``", "")


def number_or_text(text: str) -> int | float | str:
    """``"3"`` -> 3, ``"0.5"``, ``"inf"`` and what is beyond floats -> float, anything else as it stands."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) < 1e300 else float(text)
    return text


class Written:
    """A family of frozen dataclasses; those with a word are written ``WORD:SIZE:SIZE``."""

    #: What stands before the sizes, which are the fields in their order.
    word: ClassVar[str]

    @classmethod
    def from_text(cls, text: str, name: str) -> Self:
        """The member that ``text`` writes; sizes that have a default may be left out.

        ``name`` is that of the setting. Raises DeclarationError.
        """
        members = {member.word: member for member in written_members(cls)}
        word, *sizes = text.strip().lower().split(":")
        known = fields(members[word]) if word in members else ()
        needed = sum(size.default is MISSING for size in known)
        if word not in members or not needed <= len(sizes) <= len(known) or "" in sizes:
            *kinds, last = map(written_form, members.values())
            raise DeclarationError(f"{name} = {text!r}: must be {', '.join(kinds)} or {last}")
        member: Self = members[word](*map(number_or_text, sizes))
        return member


def written_members(family: type[Any]) -> Iterator[type[Any]]:
    """The members of a family that have a word."""
    for member in family.__subclasses__():
        if "word" in vars(member):
            yield member
        yield from written_members(member)


def written_form(member: type[Any]) -> str:
    """How a member of a family is written, such as ``l1:RADIUS``."""
    return ":".join([member.word, *(size.name.upper() for size in fields(member))])
