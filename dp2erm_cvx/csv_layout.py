"""How a CSV file is written."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from dp2erm_cvx.errors import DataError, DeclarationError, known_names, shown


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is written: what separates cells, its encoding, and the decimal sign of numbers.

    A record is one line, so that no cell reaches into the next record. ``line_breaks`` declares that quoted
    cells may go on in the next line, and that every quote is closed. Raises DeclarationError naming what no
    file can have.
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

    @property
    def codec(self) -> str:
        """The encoding, under which a mark of UTF-8 at the start of a file is no text."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding

    def texts(self, raw: bytes) -> list[str]:
        """The lines of a file, each decoded by itself; what is no text is marked by U+FFFD.

        Where a line does not end in one byte, as in UTF-16, the file is decoded as a whole. Raises
        UnicodeError for a file that has no such text at all.
        """
        if "\n".encode(self.encoding) != b"\n":
            whole = raw.decode(self.codec, "replace")
            return whole.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return [self._text(line) for line in raw.splitlines()]

    def _text(self, line: bytes) -> str:
        try:
            return line.decode(self.codec, "replace")
        except UnicodeError:  # of a codec that marks nothing
            return line.decode("ascii", "replace")

    @classmethod
    def from_dict(cls, declared: object) -> CsvLayout:
        """Of a table ``[csv]``. Raises DeclarationError."""
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"csv = {shown(declared)}: must be a table [csv]")
        known = [one.name for one in fields(cls)]
        for name in declared:
            if name not in known:
                raise DeclarationError(f"csv: unknown name {shown(name)}; {known_names(name, known)}")
        return cls(**declared)


def guessed_layout(path: str) -> CsvLayout:
    """How the file seems to be written, by all that is in it. Not private: for the data holder.

    A release takes nothing from here: how its file is written is declared. Raises DataError.
    """
    if path.lower().endswith((".parquet", ".pq")):
        return CsvLayout()
    try:
        raw = Path(path).read_bytes()
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
    """Whether cells go on in the next line: all quotes are closed, and all rows are as long as the header."""
    lines = [one for one in text.splitlines() if one]
    if not any('"' in one and not _cells(one, separator) for one in lines):
        return False
    try:
        rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if row
        ]
    except csv.Error:
        return False
    return len({len(row) for row in rows}) == 1


def records_of_lines(
    source: str, raw: bytes, layout: CsvLayout
) -> tuple[list[tuple[int, list[str]]], tuple[str, ...]]:
    """The cells of every line that is not blank, with its number, and what the data holder should know.

    No line has a say in how another one is read. One that cannot be parsed has no cells. Raises DataError
    where the header cannot, UnicodeError where the file has no text of the encoding.
    """
    texts = [(number, text) for number, text in enumerate(layout.texts(raw), 1) if text]
    lines = [(number, _cells(text, layout.separator)) for number, text in texts]
    if lines and not lines[0][1]:
        raise DataError(f"{source}: line {lines[0][0]} is no header: its quotes do not match")
    if texts and "\ufffd" in texts[0][1]:
        told = f"the header is not {layout.encoding.upper()} text: declare its encoding, such as latin-1"
        raise DataError(f"{source}: {told}")
    marked = sum("\ufffd" in text for _, text in texts)
    torn = sum(not cells for _, cells in lines)
    notes = [
        *damage(f"bytes that are no {layout.encoding.upper()} text", marked, "see [csv] encoding"),
        *damage(
            "quotes that do not match", torn, "if cells hold line breaks, declare [csv] line_breaks = true"
        ),
    ]
    return lines, tuple(notes)


def damage(what: str, count: int, advice: str) -> Iterator[str]:
    """A note on lines that could not be read as they stand, if there are any."""
    if count:
        yield f"Lines with {what}: {count:,}; {advice}."


def _cells(text: str, separator: str) -> list[str]:
    """The cells of one line; none where its quotes do not match."""
    if '"' not in text:
        return text.split(separator)
    try:
        (found,) = csv.reader([text], delimiter=separator, strict=True)
    except (csv.Error, ValueError):
        return []
    return found


#: Commas, UTF-8 and decimal points.
PLAIN = CsvLayout()
