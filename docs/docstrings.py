"""Docstrings as the pages show them.

They have numpydoc lists, comments on constants, and what a program states.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

from dp2erm_cvx import display
from dp2erm_cvx.program.stage import fields_of

_LISTS = ("Parameters", "Attributes")
#: What Napoleon takes for the type of an attribute is a sentence with a colon here.
_ATTRIBUTES = ("attribute", "data", "property")
_PROGRAMS = "dp2erm_cvx.problems."

_log = logging.getLogger(__name__)
_before_napoleon: dict[str, list[str]] = {}


def prepared(lines: list[str]) -> list[str]:
    """The docstring with displayed programs, and with lists of attributes as Napoleon reads them.

    Napoleon reads everything up to the next heading as part of a section, so a paragraph after the
    list of parameters would come out as one more parameter: ``Notes`` is put in front of it. What
    follows the colon of an entry describes it and is not its type.
    """
    result: list[str] = []
    listing = ""
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if following and set(following) == {"-"}:
            listing = line if line in _LISTS else ""
        elif listing and line and _is_prose(line, following, lines[number - 1]):
            result += ["Notes", "-----"]
            listing = ""
        if listing and (entry := re.match(r"(\w+(?:, \w+)*) : (.+)", line)):
            result += [entry[1], "    " + entry[2]]
        else:
            result.append(line)
    return _displayed(result)


def _is_prose(line: str, following: str, before: str) -> bool:
    """An unindented line after a blank one that begins no entry of a list.

    An entry has an indented description below it, or is ``name : text``.
    """
    indented = line.startswith(" ") or following.startswith(" ")
    return not before and not indented and " : " not in line and set(line) != {"-"}


def _displayed(lines: list[str]) -> list[str]:
    """Every paragraph that starts with ``minimize`` and spaces as a literal block."""
    result: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("minimize   "):
            result += [".. code-block:: text", "    :class: program", ""]
            inside = True
        inside = inside and bool(line)
        result.append("    " + line if inside else line)
    return result


def _paragraphs(text: str) -> list[str]:
    """Lines of a docstring that was written to be read as it stands."""
    lines = inspect.cleandoc(text).split("\n")
    return [line if line.startswith("    ") else _plain(line) for line in _displayed(lines)]


def _plain(line: str) -> str:
    """Without substitutions, which a bar would start."""
    parts = line.split("``")
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    return "``".join(parts)


def _program(cls: Any) -> Iterator[str]:
    """All that a program states: its file, itself, its settings and its proof.

    The file stands at the first program of a file.
    """
    module, own = (
        inspect.getmodule(cls),
        inspect.cleandoc(cls.__doc__ or "").partition("\nParameters\n")[0],
    )
    of_file = [
        one
        for one in vars(module).values()
        if getattr(one, "formula", "") and one.__module__ == cls.__module__
    ]
    public = next((one for one in of_file if one is not cls and one.__doc__ == cls.__doc__), None)
    if cls is of_file[0]:
        yield from (*_paragraphs(module.__doc__ or ""), "")
    elif public:
        own = f"The weights of ``{public.name}`` by a private coefficient."
    yield from own.split("\n")
    known = display.described_settings(cls)
    yield ""
    for name in fields_of(cls):
        if name not in known:
            _log.warning("%s: no docstring describes %s", cls.__name__, name)
        said, default = known.get(name, ""), cls.defaults.get(name)
        if default and "default" not in said:
            said += f" Default: {default}."
        yield f":param {name}: {_plain(said)}"
    if cls is not of_file[0]:
        yield f":Computes: ``{cls.formula}``"
    yield f":Bound: {_plain(cls.theorem)}"
    if not own.startswith(cls.citation):
        yield f":Source: {cls.citation}"


def _comment(name: str) -> list[str] | None:
    """The ``#:`` comment on a constant, in its own module or in the one it is imported from."""
    home, _, short = name.rpartition(".")
    while True:
        try:
            analyzer = ModuleAnalyzer.for_module(home)
            analyzer.analyze()
        except PycodeError:
            return None
        if ("", short) in analyzer.attr_docs:
            return list(analyzer.attr_docs["", short])
        source = re.search(
            rf"^from (\S+) import (?:\([^)]*|[^(\n]*)\b{short}\b", analyzer.code, re.MULTILINE
        )
        if source is None:
            return None
        home = source[1]


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what in ("class", "function") and name.startswith(_PROGRAMS):
        lines[:] = _program(obj)
        return
    if what == "data":
        comment = _comment(name)
        if comment is None:
            _log.warning("%s has no comment to show", name)
        lines[:] = comment or []
    lines[:] = prepared(lines)
    if what in _ATTRIBUTES:
        _before_napoleon[name] = list(lines)


def _restore(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what in _ATTRIBUTES:
        lines[:] = _before_napoleon.pop(name)


def _spell(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Spell an alias in a union as the call that makes it, and a factory as no Python at all."""
    return _readable(signature), _readable(returned)


def _readable(text: str | None) -> str | None:
    return text and re.sub(r"TypeAliasForwardRef\('([^']+)'\)", r"\1", text).replace(
        "<factory>", "..."
    )


def setup(app: Any) -> dict[str, Any]:
    """Sphinx extension: runs around Napoleon."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-process-docstring", _restore, priority=600)
    app.connect("autodoc-process-signature", _spell)
    return {"parallel_read_safe": True}
