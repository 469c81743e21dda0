"""Pages of the reference that are made from the code: commands, and fields of the JSON.

A page has a comment ``<!-- made of the commands -->`` or ``<!-- made of the releases -->``, and
what is made takes the place of the comment when the page is read.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

from dp2erm_cvx import EffectRelease, RangesRelease, Release, RuleRelease
from dp2erm_cvx.cli import main
from dp2erm_cvx.display import described, described_settings
from dp2erm_cvx.release.reading import json_schema

#: The kinds of releases, with the heading of each.
KINDS = {
    "An effect": EffectRelease,
    "A rule": RuleRelease,
    "A two-stage release": Release,
    "Released ranges": RangesRelease,
}
#: Names of the types of JSON Schema, as a page says them.
TYPES = {
    "number": "number",
    "integer": "whole number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}
#: Codes of what limits a result, which no field holds: they are worked out when it is written.
CAVEATS = (
    "Codes of [what limits the result]"
    "(../after_release.md#when-an-interval-is-no-confidence-interval)."
)


def markdown(text: str) -> str:
    """A text of a docstring as Markdown of one line."""
    text = " ".join(text.split())
    text = re.sub(r":(\w+):`([^`]+)`", r"{py:\1}`\2`", text)
    return text.replace("``", "`").replace("|", r"\|")


def prose(text: str) -> str:
    """A text of the help as Markdown: options are code, and nothing is a tag."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", markdown(text)).replace("<", r"\<")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Lines of a table in Markdown."""
    yield ""
    for row in (header, ("---",) * len(header), *rows):
        yield "| " + " | ".join(row) + " |"
    yield ""


def usage_of(name: str, command: click.Command) -> str:
    """The line that says how a command is called."""
    context = click.Context(command, info_name=f"dp2erm {name}")
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def options_of(command: click.Command) -> list[tuple[str, ...]]:
    """One row for each option of a command: how it is written, and what its help says."""
    context = click.Context(command, show_default=True)
    rows = []
    for option in command.params:
        if isinstance(option, click.Argument) or "--help-all" in option.opts:
            continue
        record = option.get_help_record(context)
        if record is not None:
            rows.append((markdown(f"`{record[0]}`"), prose(record[1])))
    return rows


def commands() -> Iterator[str]:
    """Every command: how it is called, its help, and a table of its options."""
    for name, command in sorted(main.commands.items()):
        yield from ("", f"## `dp2erm {name}`", "", "```text", usage_of(name, command), "```", "")
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            if paragraph.startswith("\b"):
                yield from ("```text", *paragraph.splitlines()[1:], "```", "")
            else:
                yield from (prose(paragraph), "")
        rows = options_of(command)
        if rows:
            yield from table(("option", "meaning"), rows)


def type_of(schema: dict[str, Any]) -> str:
    """The type of an entry in words; other objects are linked."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        items = schema.get("items") or schema.get("prefixItems", [{}])[0]
        return f"list of {type_of(items)}".replace("number", "numbers").replace("text", "texts")
    return TYPES.get(schema.get("type", ""), "any value")


def json_words(text: str) -> str:
    """A text of a docstring in the words of JSON."""
    return re.sub(r"\bNone\b", "null", markdown(text))


def rows_of(schema: dict[str, Any], texts: dict[str, str]) -> list[tuple[str, ...]]:
    """One row for each entry of an object. Raises KeyError for one that no docstring describes."""
    return [
        (f"`{name}`", type_of(entry), json_words(texts[name]))
        for name, entry in schema["properties"].items()
    ]


def texts_of(kind: Any) -> dict[str, str]:
    """Texts on every entry of a release: its fields, and what follows from them."""
    texts = described_settings(kind)
    for name in (*kind.spelled, *kind.derived):
        texts[name] = CAVEATS if name == "caveats" else inspect.getdoc(getattr(kind, name)) or ""
    return texts


def summary_of(docstring: str) -> str:
    """What a docstring says before its lists."""
    return markdown(re.split(r"\n\w+\n-+\n", docstring)[0])


def releases() -> Iterator[str]:
    """Every kind of release, and every object within one, with a table of its entries."""
    header = ("entry", "type", "meaning")
    parts: dict[str, Any] = {}
    for heading, kind in KINDS.items():
        schema = json_schema(kind)
        parts |= schema["$defs"]
        yield from ("", f"## {heading}", "", summary_of(inspect.getdoc(kind) or ""), "")
        yield from table(header, rows_of(schema, texts_of(kind)))
    yield from ("", "## Parts", "", "Objects and words within the releases above.", "")
    for name, part in sorted(parts.items()):
        yield from (f"### {name}", "", summary_of(part.get("description", "")), "")
        if "enum" in part:
            words = ", ".join(f"`{word}`" for word in part["enum"])
            yield from (f"One of {words}.", "")
        elif "properties" in part:
            yield from table(header, rows_of(part, described(part["description"])))


#: What takes the place of a comment, by its words.
MADE = {"the commands": commands, "the releases": releases}


def made(text: str) -> str:
    """A page with what is made in place of its comments."""
    return re.sub(
        r"^<!-- made of ([\w ]+) -->$",
        lambda comment: "\n".join(MADE[comment[1]]()),
        text,
        flags=re.MULTILINE,
    )


def _read(app: Any, name: str, source: list[str]) -> None:
    source[0] = made(source[0])


def setup(app: Any) -> dict[str, Any]:
    """Sphinx extension: fills pages when they are read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
