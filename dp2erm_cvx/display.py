"""Sentences and tables for readers: on a screen, as text, as HTML, and as a data frame."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, Self

from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    #: A sentence, a heading or a table.
    Block = str | Text | Table

#: Width of what is written to a file or a pipe.
WIDTH = 100
#: Digits of a privacy parameter where it is read, rounded up. Accounts compare all that a double
#: has.
READ_DIGITS = 6


def plain_console(stream: IO[str], width: int | None, **options: Any) -> Console:
    """A console that takes text as it is: column names may hold brackets."""
    from rich.console import Console

    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, **options)


def heading(title: str, *, frame: bool = False) -> Text | Table:
    """A line in bold, or some of them within a frame."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    text = Text(title, style="bold")
    if not frame:
        return text
    table = Table(box=box.HORIZONTALS, show_header=False)
    table.add_row(text)
    return table


def grid(
    *headers: str, left: int = 1, wrap: bool = True, rows: Iterable[Sequence[str]] = ()
) -> Table:
    """A plain table of ``rows``; the first ``left`` columns are text, the others are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, header in enumerate(headers):
        side: Literal["left", "right"] = "left" if place < left else "right"
        table.add_column(header, justify=side, overflow="fold", no_wrap=not wrap)
    for row in rows:
        table.add_row(*row)
    return table


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """A table without a header: what, and what there is to say of it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(*row)
    return table


def digits_of(number: float, digits: int = 10, *, left: bool = False) -> str:
    """A privacy parameter to so many of its 15 digits, never below it.

    Its digits are those of the nearest decimal number: a sum such as .1 + .2 is not rounded up for
    its last bit.

    Parameters
    ----------
    number
        The parameter.
    digits
        Number of digits.
    left
        Whether it is what is left of a parameter: the text is then never above it.
    """
    # Every command imports this file, and few need decimals.
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context

    context = Context(prec=digits, rounding=ROUND_FLOOR if left else ROUND_CEILING)
    return f"{float(context.create_decimal(f'{number:.15g}')):.{digits}g}"


def plural(noun: str, count: int) -> str:
    """A noun as it stands after a number."""
    if count == 1:
        return noun
    return f"{noun}s"


def law_text(spent: Any, *, zero: bool = False, digits: int = 10) -> str:
    """``"epsilon = 1, delta = 1e-05"`` of a budget or a guarantee, rounded up.

    Parameters
    ----------
    spent
        What has an ``epsilon`` and a ``delta``.
    zero
        Whether a delta of 0 is named.
    digits
        How many digits of either are shown: :data:`READ_DIGITS` for readers.
    """
    epsilon = f"epsilon = {digits_of(spent.epsilon, digits)}"
    if not spent.delta and not zero:
        return epsilon
    return f"{epsilon}, delta = {digits_of(spent.delta, digits)}"


class Shown:
    """A report: text where it is printed, paragraphs and tables in a notebook.

    What has neither :meth:`blocks` nor a text of its own shows what is declared.
    """

    def blocks(self) -> Iterator[Block]:
        """Report, block by block."""
        if type(self).__str__ is not Shown.__str__:
            yield from str(self).splitlines()
            return
        yield heading(type(self).__name__)
        yield pairs(list(_entries(self.to_dict())))  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return as_text(self.blocks())

    def _repr_html_(self) -> str:
        return as_html(self.blocks())


def _entries(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every declared value of a nested mapping, with the names that lead to it."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _entries(entry, f"{name}.{key}".lstrip("."))
    elif value not in (None, [], ()):
        yield name, str(value)


def as_text(blocks: Iterable[Block], width: int = WIDTH) -> str:
    """Text for a screen of this width."""
    stream = io.StringIO()
    screen = plain_console(stream, width)
    for block in blocks:
        screen.print(block)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def as_html(blocks: Iterable[Block]) -> str:
    """Paragraphs and tables of HTML, for a notebook."""
    return "\n".join(_element(block) for block in blocks if str(block))


def _element(block: Block) -> str:
    """A sentence, a heading or a table as HTML."""
    import html

    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Table):
        return _html_table(block)
    text = html.escape(str(block))
    if isinstance(block, Text):
        return f"<p><b>{text}</b></p>"
    return f"<p>{text}</p>"


def _html_table(table: Table) -> str:
    """A table as HTML.

    On a narrow page the cells of a wide one stand below each other, each beside its header.
    """
    import html

    headers = [html.escape(str(column.header)) for column in table.columns]
    wide = table.show_header and len(headers) > 3
    beside = [f' data-of="{header}"' if wide else "" for header in headers]
    rows = []
    if table.show_header:
        rows.append(_html_row("th", headers, beside))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        rows.append(_html_row("td", [html.escape(str(cell)) for cell in row], beside))
    attribute = " class=wide" if wide else ""
    return f"<table{attribute}>{''.join(rows)}</table>"


def _html_row(kind: str, cells: Sequence[str], attributes: Sequence[str]) -> str:
    """A row of HTML of this ``kind`` of cells, with the attributes of each."""
    made = [
        f"<{kind}{attribute}>{cell}</{kind}>"
        for cell, attribute in zip(cells, attributes, strict=True)
    ]
    return f"<tr>{''.join(made)}</tr>"


def described(docstring: str | None) -> dict[str, str]:
    """Texts by field from the lists of a docstring, each on one line.

    What refers to another class is left out. This is the one text of a setting: the reference, the
    help of commands and the tables of pages repeat it.
    """
    texts: dict[str, str] = {}
    entries = r"^(\w+(?:, \w+)*)\n((?:    .+(?:\n|$))+)"
    for listed, entry in re.findall(entries, inspect.cleandoc(docstring or ""), flags=re.MULTILINE):
        text = " ".join(entry.split())
        if not text.startswith("As in "):
            texts |= dict.fromkeys(listed.split(", "), text)
    return texts


def described_settings(made: Any) -> dict[str, str]:
    """Texts on each setting of a class, or of a scheme, those of its bases included."""
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
    """``"3"`` as 3, ``"0.5"``, ``"inf"`` and what is beyond floats as a float, else the text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if abs(number) < 1e300:
            return number
        return float(text)
    return text


class Written:
    """A family of frozen dataclasses; those with a word are written ``WORD:SIZE:SIZE``."""

    #: What stands before the sizes, which are the fields in their order.
    word: ClassVar[str]

    @classmethod
    def from_text(cls, text: str, name: str) -> Self:
        """The member that ``text`` writes; sizes that have a default may be left out.

        Parameters
        ----------
        text
            Such as ``"l1:2"``.
        name
            Name of the setting, for messages.

        Raises
        ------
        DeclarationError
            For what writes none.
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
