"""How a CSV file is written."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dp2erm_cvx.errors import DataError, DeclarationError, shown
from dp2erm_cvx.public import declared_by_name


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is written: what separates cells, its encoding, and the decimal sign of numbers.

    A record is one line, which ends at a line feed and nowhere else, so that no cell reaches into the next
    record. ``line_breaks`` declares that quoted cells may go on in the next line, and that every quote is
    closed. Raises DeclarationError naming what no file can have.
    """

    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    line_breaks: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or len(self.separator) != 1 or self.separator in '"\r\n':
            raise DeclarationError(f"csv: separator = {self.separator!r}: must be one character")
        try:
            "a".encode(self.encoding)  # raises for codecs that are no encodings of text as well
        except (LookupError, TypeError, ValueError):
            raise DeclarationError(
                f"csv: encoding = {self.encoding!r}: is not known; such as utf-8 or latin-1"
            ) from None
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise DeclarationError(f"csv: decimal = {self.decimal!r}: must be . or , and not the separator")
        if not isinstance(self.line_breaks, bool):
            raise DeclarationError(f"csv: line_breaks = {shown(self.line_breaks)}: must be true or false")

    def lines(self, raw: bytes, *, ragged: bool) -> list[str]:
        """The lines of a file without their ends, each decoded by itself.

        What is no text is marked by U+FFFD where the file may be ``ragged``, and refused by UnicodeError
        otherwise. Where a line feed is not one byte, as in UTF-16, the file is decoded as a whole.
        """
        encoding = self.encoding
        if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):  # a mark elsewhere is part of a cell
            raw, encoding = raw.removeprefix(codecs.BOM_UTF8), "utf-8"
        if "\n".encode(encoding) != b"\n":
            whole = raw.decode(encoding, "replace" if ragged else "strict")
            return [line.rstrip("\r") for line in whole.split("\n")]
        return [_decoded(line.rstrip(b"\r"), encoding, ragged) for line in raw.split(b"\n")]

    @classmethod
    def from_dict(cls, declared: object) -> CsvLayout:
        """Layout from a table ``[csv]``. Raises DeclarationError."""
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"csv = {shown(declared)}: must be a table [csv]")
        return declared_by_name(cls, "csv", declared)


def guessed_layout(path: str) -> CsvLayout:
    """How the file seems to be written, by all that is in it. Not private: for the data holder.

    A release takes nothing from here: how its file is written is declared. Raises DataError.
    """
    if path.lower().endswith((".parquet", ".pq")):
        return CsvLayout()
    try:
        raw = _unpacked(path, Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        text, encoding = raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = raw.decode("latin-1"), "latin-1"
    separator = max(",;\t|", key=text.partition("\n")[0].count)
    cell = rf"(?<![^{re.escape(separator)}\n])-?\d+{{}}\d+(?![^{re.escape(separator)}\r\n])"
    commas, points = (len(re.findall(cell.format(sign), text)) for sign in (",", r"\."))
    decimal = "," if separator != "," and commas > points else "."
    return CsvLayout(separator, encoding, decimal, _breaks(text, separator))


def _breaks(text: str, separator: str) -> bool:
    """True if cells go on in the next line: all quotes are closed, and all rows are as long as the header."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if all(cells for _, cells in _rows("", lines, separator, False)):
        return False
    try:
        rows = [cells for _, cells in _rows("", lines, separator, True)]
    except DataError:
        return False
    return [] not in rows and len({len(cells) for cells in rows}) == 1


def _unpacked(source: str, raw: bytes) -> bytes:
    """The bytes of a file that gzip packed, as its first two say; of any other the same."""
    try:
        return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error):
        raise DataError(f"{source}: is damaged: gzip cannot unpack it") from None


def records_of_lines(
    source: str, raw: bytes, layout: CsvLayout, *, ragged: bool
) -> tuple[list[tuple[int, list[str]]], tuple[str, ...]]:
    """The cells of every record, with the number of its first line, and what the data holder should know.

    No record has a say in how another one is read. One that cannot be parsed has no cells; it is refused
    where ``ragged`` is false, and quoted cells then go on in the next line, declared or not. What gzip packed
    is unpacked. Raises DataError where it cannot be, where the header is none, or where such a quote is never
    closed; UnicodeError where the file has no text of the encoding.
    """
    lines = layout.lines(_unpacked(source, raw), ragged=ragged)
    header = next(filter(None, lines), "")
    if "\r" in header:
        raise DataError(
            f"{source}: the header holds a carriage return: records end at line feeds, so write the file "
            "anew with line feeds"
        )
    if ragged and "\ufffd" in header:
        told = f"the header is not {layout.encoding.upper()} text: declare its encoding, such as latin-1"
        raise DataError(f"{source}: {told}")
    rows = list(_rows(source, lines, layout.separator, layout.line_breaks or not ragged))
    torn = [number for number, cells in rows if not cells]
    if torn and torn[0] == rows[0][0]:
        raise DataError(f"{source}: line {torn[0]} is no header: its quotes do not match")
    if torn and not ragged:
        raise DataError(f"{source}: is not a CSV file: line {torn[0]}: its quotes do not match")
    marked = sum("\ufffd" in line for line in lines)
    advice = "if cells hold line breaks, declare [csv] line_breaks = true"
    if layout.line_breaks:
        advice = "a quote within a quoted cell has to be doubled"
    notes = [
        *damage(f"bytes that are no {layout.encoding.upper()} text", marked, "see [csv] encoding"),
        *damage("quotes that do not match", len(torn), advice),
    ]
    return rows, tuple(notes)


def damage(what: str, count: int, advice: str) -> Iterator[str]:
    """A note on lines that could not be read as they stand, if there are any."""
    if count:
        yield f"Lines with {what}: {count:,}; {advice}."


def _decoded(line: bytes, encoding: str, ragged: bool) -> str:
    """A line as text, never empty where it holds anything: it would count as blank."""
    try:
        text = line.decode(encoding, "replace" if ragged else "strict")
    except UnicodeError:
        if not ragged:
            raise
        text = line.decode("ascii", "replace")  # of a codec that marks nothing
    return text or ("\ufffd" if line else "")


def _rows(source: str, lines: list[str], separator: str, breaks: bool) -> Iterator[tuple[int, list[str]]]:
    """The cells of every record and the number of its first line; none where its quotes do not match.

    The module csv would end a record at a carriage return, and refuse all of them for a long cell of one.
    """
    cells: list[str] = []
    cell: list[str] = []  # pieces of a quoted one that is not closed yet
    first = quotes = 0
    for number, line in enumerate(lines, 1):
        if not cell:
            if '"' not in line:
                if line:
                    yield number, line.split(separator)
                continue
            first = number
        glue = "\n"
        for piece in line.split(separator):
            if cell:
                cell += [glue, piece]
                quotes += piece.count('"')
            else:
                cell, quotes = [piece], piece.count('"') if piece.startswith('"') else 0
            if quotes % 2 == 0:
                cells.append("".join(cell))
                cell = []
            glue = separator
        if not (cell and breaks):
            yield first, [] if cell else _unquoted(cells)
            cells, cell = [], []
    if cell:
        raise DataError(f"{source}: is not a CSV file: line {first}: a quote is never closed")


def _unquoted(cells: list[str]) -> list[str]:
    """The texts of the cells of one record; none where a quote stands within a cell that is not doubled."""
    found = []
    for cell in cells:
        if cell.startswith('"'):
            inner = cell[1:-1]
            if not cell.endswith('"') or '"' in inner.replace('""', ""):
                return []
            cell = inner.replace('""', '"')
        found.append(cell)
    return found


#: Commas, UTF-8 and decimal points.
PLAIN = CsvLayout()
