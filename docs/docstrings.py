"""Let plain paragraphs follow a numpydoc section.

Napoleon reads everything up to the next heading as part of a section, so a paragraph after the list of
parameters would come out as one more parameter. A heading is put in front of such a paragraph.
"""

from __future__ import annotations

from typing import Any

_LISTS = ("Parameters", "Attributes")


def separate(lines: list[str]) -> list[str]:
    """The docstring with ``Notes`` in front of the first paragraph after each list of parameters."""
    result: list[str] = []
    listing = False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if following and set(following) == {"-"}:
            listing = line in _LISTS
        elif listing and line and _is_prose(line, following, lines[number - 1]):
            result += ["Notes", "-----"]
            listing = False
        result.append(line)
    return result


def _is_prose(line: str, following: str, before: str) -> bool:
    """An unindented line after a blank one, without an indented description and not ``name : text``."""
    indented = line.startswith(" ") or following.startswith(" ")
    return not before and not indented and " : " not in line and set(line) != {"-"}


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = separate(lines)


def setup(app: Any) -> dict[str, Any]:
    """Sphinx extension: runs before Napoleon."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}
