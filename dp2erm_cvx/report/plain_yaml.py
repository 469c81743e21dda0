"""Mappings, lists, texts and numbers as YAML that every reader takes for the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def yaml_lines(value: Mapping[str, Any], indent: int = 0) -> Iterator[str]:
    """The lines of a mapping whose names are plain words.

    Texts of one line are quoted, so that no reader takes one for a date or a number; longer ones keep their
    lines.
    """
    before = " " * indent
    for name, one in value.items():
        if isinstance(one, Mapping):
            yield f"{before}{name}:"
            yield from yaml_lines(one, indent + 2)
        elif isinstance(one, Sequence) and not isinstance(one, str):
            yield f"{before}{name}:"
            for entry in one:
                if isinstance(entry, Mapping):
                    first, *rest = yaml_lines(entry, indent + 4)
                    yield f"{before}  - {first.strip()}"
                    yield from rest
                else:
                    yield f"{before}  - {_scalar(entry)}"
        elif isinstance(one, str) and "\n" in one and _fits_block(one):
            yield f"{before}{name}: |"
            yield from (f"{before}  {line}".rstrip() for line in one.rstrip("\n").split("\n"))
        else:
            yield f"{before}{name}: {_scalar(one)}"


def _fits_block(text: str) -> bool:
    lines = text.split("\n")
    fine = all(line.isprintable() and line == line.rstrip() for line in lines)
    return fine and bool(lines[0]) and not lines[0].startswith(" ")


def _scalar(value: str | float) -> str:
    if not isinstance(value, str):
        text = repr(value)
        # without a point, readers of YAML 1.1 take 1e-05 for a text
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
