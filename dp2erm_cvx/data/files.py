"""Tables out of files: CSV by its lines, Parquet, a sheet of a workbook, Stata and SAS."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import importlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.checks import check_settings, setting, true_or_false
from dp2erm_cvx.data.listing import has_pattern
from dp2erm_cvx.data.opening import FileMark, opened, opening
from dp2erm_cvx.data.tables import Table, arrow_cells, cell_of, is_nested, listed, read_frame
from dp2erm_cvx.errors import DataError, DeclarationError

#: What pandas makes of a zero of SAS transport files: the least number of IBM's format.
_XPORT_ZERO = 16.0**-65
#: Whole numbers of fewer bits than this are surely no larger than a double may be.
_BITS_OF_DOUBLE = 1000
#: Endings of the files that are no text.
BINARY = (".parquet", ".pq", ".xlsx", ".dta", ".sas7bdat", ".xpt")


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is written: a record is one line, which ends at a line feed and nowhere else.

    Parameters
    ----------
    separator
        What stands between the cells of a CSV file.
    encoding
        Encoding of a CSV file, such as utf-8 or latin-1.
    decimal
        Decimal sign of a CSV file: a point or a comma.
    line_breaks
        Whether quoted cells may go on in the next line; every quote is then closed.

    Raises
    ------
    DeclarationError
        Names what no file can have.
    """

    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    line_breaks: bool = setting(False, true_or_false, title="csv: ")

    def __post_init__(self) -> None:
        check_settings(self)
        is_character = isinstance(self.separator, str) and len(self.separator) == 1
        if not is_character or self.separator in '"\r\n':
            raise DeclarationError(f"csv: separator = {self.separator!r}: must be one character")
        try:
            # raises, or encodes no text, or one line by another
            name = codecs.lookup(self.encoding).name
            "a".encode("none" if name == "punycode" else name)
        except (LookupError, TypeError, ValueError):
            text = f"csv: encoding = {self.encoding!r}: is not known; such as utf-8 or latin-1"
            raise DeclarationError(text) from None
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise DeclarationError(
                f"csv: decimal = {self.decimal!r}: must be . or , and not the separator"
            )

    def lines(self, raw: bytes, *, ragged: bool, first: bool = True) -> list[str]:
        """The lines of a part of a file, without their ends, each decoded by itself.

        Where a line feed is not one byte, as in UTF-16, the file is decoded as a whole.

        Parameters
        ----------
        raw
            The bytes of the part.
        ragged
            True where what is no text is marked by U+FFFD.
        first
            True for the part that the file begins with.

        Raises
        ------
        UnicodeError
            For what is no text, unless ``ragged``.
        """
        encoding = self.encoding
        if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
            encoding = "utf-8"
            if first:  # a mark elsewhere is part of a cell
                raw = raw.removeprefix(codecs.BOM_UTF8)
        if "\n".encode(encoding) != b"\n":
            text = raw.decode(encoding, "replace" if ragged else "strict")
            return [line.rstrip("\r") for line in text.split("\n")]
        return [_decoded(line.rstrip(b"\r"), encoding, ragged) for line in raw.split(b"\n")]


#: Commas, UTF-8 and decimal points.
PLAIN = CsvLayout()
#: Bytes of a file by which its layout is guessed.
_GUESSED = 2**24
#: What files that gzip packed begin with.
_GZIP = b"\x1f\x8b"


def is_text(path: str) -> bool:
    """True if a name is that of a CSV file which is not packed."""
    if os.path.isdir(path) or has_pattern(path):
        return False
    return not path.lower().endswith((*BINARY, ".gz"))


#: The line that some spreadsheets write above the header, and read as what separates cells.
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?')
#: How files of other kinds begin, and what they are.
_FOREIGN = (
    ((b"$FL2", b"$FL3"), "a file of SPSS"),
    ((b"RDX", b"RDA", b"X\n\x00", b"A\n2\n", b"A\n3\n"), "a file of R"),
    ((b"\xd0\xcf\x11\xe0",), "an old Excel workbook (.xls)"),
    ((b"PK\x03\x04",), "a workbook or another zip archive"),
    ((b"PAR1",), "a Parquet file, and not called .parquet"),
    ((b"ARROW1", b"FEA1"), "an Arrow file"),
    ((b"SQLite format 3",), "a database of SQLite"),
    ((b"%PDF",), "a PDF"),
    ((b"\x89HDF",), "an HDF5 file"),
    ((b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"), "packed, and not by gzip"),
    ((b"<html", b"<!DOCTYPE", b"<!doctype", b"<table", b"<?xml"), "a page of HTML or XML"),
    ((b"[{", b'{"', b"[\n", b"{\n"), "JSON"),
)


def _refuse_foreign(source: str, raw: bytes) -> None:
    """Raise DataError for the first bytes of a file that is no table of text."""
    begin = raw.removeprefix(codecs.BOM_UTF8).lstrip(b" \r\n\t")[:64]
    for begins, kind in _FOREIGN:
        if begin.startswith(begins):
            raise DataError(f"{source}: is {kind}: save the table as CSV, .xlsx or Parquet")


def _without_separator_line(source: str, lines: list[str], layout: CsvLayout) -> list[str]:
    """The lines of a file with a blank one in the place of ``sep=;`` above the header.

    Raises
    ------
    DataError
        Where that names another separator than is declared.
    """
    place = next((number for number, line in enumerate(lines) if line), 0)
    match = _SEPARATOR_LINE.fullmatch(lines[place]) if lines else None
    if match is None:
        return lines
    separator = match[1]
    if separator != layout.separator:
        raise DataError(
            f"{source}: its first line says that {separator!r} separates cells: declare [csv] "
            f"separator = {json.dumps(separator)}"
        )
    return [*lines[:place], "", *lines[place + 1 :]]


#: Lines of a file in which a column is looked for that its header lacks.
_ABOVE = 30


def _where_named(lines: Sequence[str], layout: CsvLayout) -> Callable[[str], str]:
    """What says of a column that a header lacks which line names it, and by which separators."""
    numbered = [(number, line) for number, line in enumerate(lines[:_ABOVE], 1) if line]

    def hint(name: str) -> str:
        for number, line in numbered:
            for separator in dict.fromkeys((layout.separator, *_SEPARATORS)):
                if not _names(line, separator, name.strip()):
                    continue
                text = f"; line {number} names it"
                if separator != layout.separator:
                    text += (
                        f", and {_SEPARATORS[separator]} separate its cells: declare [csv] "
                        f"separator = {json.dumps(separator)}"
                    )
                if number > numbered[0][0]:
                    text += ": delete the lines above it"
                return text
        return ""

    return hint


def _names(line: str, separator: str, name: str) -> bool:
    """True if several cells stand in a line, and one of them is the name."""
    cells = [cell.strip().strip('"').strip() for cell in line.split(separator)]
    return len(cells) > 1 and name in cells


#: What separates cells, and how a message calls several of it.
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def guessed_layout(path: str) -> CsvLayout:
    """How a file seems to be written, by its first 16 MB; for the data holder, not for a release.

    Raises
    ------
    DataError
        Where it cannot be read.
    """
    if path.lower().endswith(BINARY):
        return CsvLayout()
    with opening(path), open(path, "rb") as file:
        raw = file.read(_GUESSED)
        if raw.startswith(_GZIP):
            raw += file.read()
        elif len(raw) == _GUESSED:
            raw = raw[: raw.rfind(b"\n") + 1]
    raw = _unpacked(path, raw)
    _refuse_foreign(path, raw)
    encoding = "utf-8"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin-1"
        text = raw.decode(encoding)
    first, _, below = text.removeprefix("\ufeff").partition("\n")
    separator_line = _SEPARATOR_LINE.fullmatch(first.strip("\r"))
    if separator_line is None:
        separator = max(_SEPARATORS, key=first.count)
    else:
        separator = separator_line[1]
        text = below
    decimal = _guessed_decimal(text, separator)
    return CsvLayout(separator, encoding, decimal, _has_line_breaks(text, separator))


def _guessed_decimal(text: str, separator: str) -> str:
    """The decimal sign of most cells that are numbers with one."""
    if separator == ",":
        return "."
    separator = re.escape(separator)
    number = rf"(?<![^{separator}\n])-?\d+{{}}\d+(?![^{separator}\r\n])"
    n_commas = len(re.findall(number.format(","), text))
    n_points = len(re.findall(number.format(r"\."), text))
    return "," if n_commas > n_points else "."


def _has_line_breaks(text: str, separator: str) -> bool:
    """True if cells go on in the next line.

    With such cells all quotes are closed, and all rows are as long as the header.
    """
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
        return gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    except (OSError, EOFError, zlib.error):
        raise DataError(f"{source}: is damaged: gzip cannot unpack it") from None


def _records(
    source: str, lines: list[str], layout: CsvLayout, ragged: bool
) -> list[tuple[int, list[str]]]:
    """Cells of the header and of every record, with the number of the first line of each.

    No record has a say in how another one is read.

    Parameters
    ----------
    source
        What messages call the file.
    lines
        Its lines.
    layout
        How it is written.
    ragged
        True where a record that cannot be parsed has no cells. It is refused otherwise, and quoted
        cells then go on in the next line, declared or not.

    Raises
    ------
    DataError
        For what is no CSV file.
    """
    header = next(filter(None, lines), "")
    if "\r" in header:
        raise DataError(
            f"{source}: the header holds a carriage return: records end at line feeds, so write "
            "the file anew with line feeds"
        )
    if ragged and "\ufffd" in header:
        raise DataError(f"{source}: the header {_no_text(layout)}")
    rows = list(_rows(source, lines, layout.separator, layout.line_breaks or not ragged))
    if not rows:
        raise DataError(f"{source}: is empty: a header line is needed")
    torn = next((number for number, cells in rows if not cells), None)
    if torn == rows[0][0]:
        text = f"{source}: line {torn} is no header: its quotes do not match"
        raise DataError(text + _other_separator(header, layout))
    if torn and not ragged:
        raise DataError(f"{source}: is not a CSV file: line {torn}: its quotes do not match")
    return rows


def _other_separator(header: str, layout: CsvLayout) -> str:
    """The end of a message, where quotes of a header match at another separator."""
    for separator, plural in _SEPARATORS.items():
        if separator == layout.separator or separator not in header:
            continue
        rows = list(_rows("", [header], separator, False))
        if rows[0][1]:
            return (
                f"; if {plural} separate its cells, declare [csv] separator = "
                f"{json.dumps(separator)}"
            )
    return ""


def _no_text(layout: CsvLayout) -> str:
    """The end of a message about bytes that are no text."""
    return f"is not {layout.encoding.upper()} text: declare its encoding, such as latin-1"


def _decoded(line: bytes, encoding: str, ragged: bool) -> str:
    """A line as text, never empty where it holds anything: it would count as blank."""
    try:
        text = line.decode(encoding, "replace" if ragged else "strict")
    except UnicodeError:
        if not ragged:
            raise
        text = line.decode("ascii", "replace")  # of a codec that marks nothing
    return text or ("\ufffd" if line else "")


def _rows(
    source: str, lines: list[str], separator: str, breaks: bool
) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line of every record, and its cells.

    A record has no cells where its quotes do not match. The module csv would end a record at a
    carriage return, and refuse all of them for a long cell of one.

    Parameters
    ----------
    source
        What messages call the file.
    lines
        Its lines.
    separator
        What stands between cells.
    breaks
        True where a quoted cell may go on in the next line.
    """
    cells: list[str] = []
    open_cell: list[str] = []  # pieces of a quoted one that is not closed yet
    n_quotes = 0
    first = 0
    for number, line in enumerate(lines, 1):
        if not open_cell:
            if '"' not in line:
                if line:
                    yield number, line.split(separator)
                continue
            first = number
        glue = "\n"
        for piece in line.split(separator):
            if open_cell:
                open_cell += [glue, piece]
                n_quotes += piece.count('"')
            else:
                open_cell = [piece]
                n_quotes = piece.count('"') if piece.startswith('"') else 0
            if n_quotes % 2 == 0:
                cells.append("".join(open_cell))
                open_cell = []
            glue = separator
        if open_cell and breaks:
            continue
        yield first, [] if open_cell else _unquoted(cells)
        cells = []
        open_cell = []
    if open_cell:
        raise DataError(f"{source}: is not a CSV file: line {first}: a quote is never closed")


def _unquoted(cells: list[str]) -> list[str]:
    """The texts of the cells of one record; none where a quote within a cell is not doubled."""
    texts = []
    for cell in cells:
        if not cell.startswith('"'):
            texts.append(cell)
            continue
        inner = cell[1:-1]
        if not cell.endswith('"') or '"' in inner.replace('""', ""):
            return []
        texts.append(inner.replace('""', '"'))
    return texts


def read_table(path: str, layout: CsvLayout = PLAIN, *, ragged: bool = False) -> Table:
    """Read a file by the ending of its name: Parquet, one sheet of .xlsx, Stata, SAS, else CSV.

    Codes of value labels, and dates of Stata in days since 1960, stay numbers.

    Parameters
    ----------
    path
        The file.
    layout
        How a CSV file is written.
    ragged
        As of :func:`read_csv`.

    Raises
    ------
    DeclarationError
        Where the reader is not installed.
    DataError
        Where the file is none of its kind.
    """
    ending = Path(path).suffix.lower()
    if ending not in BINARY:
        return read_csv(path, layout, ragged=ragged)
    if ending in (".parquet", ".pq"):
        return read_parquet(path)
    try:
        reader: Any = importlib.import_module("openpyxl" if ending == ".xlsx" else "pandas")
    except ImportError as error:
        raise DeclarationError(
            f"{ending} needs {error.name}: pip install 'dp2erm-cvx[data]'"
        ) from None
    try:
        if ending == ".xlsx":
            return _sheet(path, reader.load_workbook(path, read_only=True, data_only=True))
        if ending == ".dta":
            frame = reader.read_stata(path, convert_dates=False, convert_categoricals=False)
        else:
            with reader.read_sas(path, iterator=True) as sas:
                texts = sas.read()
                stated = getattr(sas, "inferred_encoding", "")
            frame = _with_texts(texts, layout.encoding, stated)
        return replace(read_frame(frame), source=path)
    except DataError:
        raise
    except Exception as error:  # whatever a reader of such files raises
        why = getattr(error, "strerror", None) or f"is it a {ending} file?"
        raise DataError(f"{path}: cannot be read: {why}") from None


def _with_texts(frame: Any, declared: str, stated: str) -> Any:
    """A frame of SAS, each text decoded by itself.

    Parameters
    ----------
    frame
        The frame, whose texts are bytes.
    declared
        Encoding of the layout, which counts where it is not the default.
    stated
        Encoding that the file states, if it does.
    """
    encoding = declared
    if declared == PLAIN.encoding:
        with contextlib.suppress(LookupError):  # many a file states none, or one without a name
            encoding = codecs.lookup(stated).name

    def decoded(cell: Any) -> Any:
        return str(cell, encoding, "replace") if type(cell) is bytes else cell

    texts = frame.select_dtypes(object).map(decoded)
    return frame.assign(**texts).replace(_XPORT_ZERO, 0.0)


def _sheet(path: str, book: Any) -> Table:
    """The only sheet of a workbook: a record is a row below the first, which names the columns."""
    if len(book.sheetnames) != 1:
        raise DataError(
            f"{path}: has the sheets {listed(book.sheetnames)}: save one of them by itself"
        )
    (sheet,) = book.worksheets
    sheet.reset_dimensions()  # which some programs write, and not as they are
    header, *rows = list(sheet.iter_rows(values_only=True)) or [()]
    places = {str(name).strip(): place for place, name in enumerate(header) if name is not None}
    names = tuple(str(name).strip() for name in header if name is not None)

    def column(name: str) -> NDArray[np.object_]:
        place = places[name]
        cells = [_sheet_cell(row[place]) if place < len(row) else None for row in rows]
        return np.array(cells, dtype=object)

    def hint(name: str) -> str:
        for number, row in enumerate(rows[:_ABOVE], 2):
            if name in [str(cell).strip() for cell in row]:
                return f"; row {number} names it: delete the rows above it"
        return ""

    return Table(path, names, column, hint=hint)


def _sheet_cell(cell: Any) -> Any:
    """A cell of a workbook, where whole numbers are rounded to doubles."""
    if type(cell) is int and cell.bit_length() < _BITS_OF_DOUBLE:
        return float(cell)
    return cell


def read_csv(path: str | Path, layout: CsvLayout = PLAIN, *, ragged: bool = False) -> Table:
    """Rows of a CSV file with a header, kept as text; blank lines are skipped.

    Parameters
    ----------
    path
        The file.
    layout
        How it is written. Only where it declares ``line_breaks`` may a quoted cell of a ragged file
        go on in the next line.
    ragged
        True where no record is refused, and none moves another. A record is one line, which ends at
        a line feed; what is no text of the encoding becomes a mark in its cell; a line that cannot
        be parsed, or has more or fewer cells than the header, is a record of empty cells.

    Raises
    ------
    DataError
        For what is no such file, and for a row that is none unless ``ragged``.
    """
    source = str(path)
    with opening(source), opened(source) as file:
        raw = file.read()
    raw = _unpacked(source, raw)
    _refuse_foreign(source, raw)
    try:
        lines = layout.lines(raw, ragged=ragged)
    except UnicodeError:
        raise DataError(f"{source}: {_no_text(layout)}") from None
    lines = _without_separator_line(source, lines, layout)
    (_, header), *records = _records(source, lines, layout, ragged)
    if not ragged:
        _refuse_other_lengths(source, len(header), records)
    rows = [cells for _, cells in records]
    table = _columns(source, _stripped(header), rows, lines, layout)
    return replace(table, place=lambda row: f"row {row + 1} (line {records[row][0]})")


def _refuse_other_lengths(
    source: str, n_columns: int, records: Sequence[tuple[int, list[str]]]
) -> None:
    """Raise DataError where a record has more or fewer cells than the header."""
    for row, (line, cells) in enumerate(records):
        if len(cells) != n_columns:
            raise DataError(
                f"row {row + 1} (line {line}) of {source} has {len(cells)} cells, the header "
                f"{n_columns}"
            )


def _stripped(header: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for name in header)


def _columns(
    source: str,
    names: tuple[str, ...],
    rows: Sequence[list[str]],
    lines: Sequence[str],
    layout: CsvLayout,
) -> Table:
    """The columns of rows of texts; a row of another length is one of empty cells."""
    places = {name: place for place, name in enumerate(names)}

    def written(name: str) -> NDArray[Any]:
        place = places[name]
        cells = [row[place] if len(row) == len(names) else "" for row in rows]
        return np.array(cells, dtype=object)

    def column(name: str) -> NDArray[Any]:
        cells = [cell_of(text, layout.decimal) for text in written(name)]
        # numbers alone take an eighth of the room
        are_numbers = all(type(cell) is float for cell in cells)
        return np.array(cells, dtype=np.float64 if are_numbers else object)

    damage = _damage(len(names), rows, lines, layout)
    hint = _where_named(lines, layout)
    return Table(source, names, column, damage=damage, written=written, hint=hint)


def _damage(
    n_columns: int, rows: Sequence[list[str]], lines: Sequence[str], layout: CsvLayout
) -> dict[str, int]:
    """How many lines could not be read, by what a note to the data holder says of them."""
    advice = "if cells hold line breaks, declare [csv] line_breaks = true"
    if layout.line_breaks:
        advice = "a quote within a quoted cell has to be doubled"
    encoding = layout.encoding.upper()
    no_text = f"Lines with bytes that are no {encoding} text: {{:,}}; see [csv] encoding."
    no_match = f"Lines with quotes that do not match: {{:,}}; {advice}."
    other_length = (
        "Lines with another number of cells than the header: {:,}; each counts as an empty record."
    )
    return {
        no_text: sum("\ufffd" in line for line in lines),
        no_match: sum(not cells for cells in rows),
        other_length: sum(len(cells) != n_columns for cells in rows),
    }


#: Names of the columns of a file in parts, the records of every part, and what reads one.
Parts = tuple[tuple[str, ...], list[int], list[Callable[[], Table]]]
#: Bytes of a CSV file that are parsed together: their cells take about 20 times as many.
PART = 2**20


def table_parts(path: str, layout: CsvLayout = PLAIN) -> list[Callable[[], Table]]:
    """Readers of the parts of a table.

    These are plain lines of CSV or row groups of Parquet, else the whole table.
    """
    parts: list[Callable[[], Table]] = []
    if path.lower().endswith((".parquet", ".pq")):
        _, _, parts = parquet_parts(path)
    elif is_text(path) and os.path.exists(path):
        # refused where it is packed, or cells go on in the next line
        with contextlib.suppress(DeclarationError):
            _, n_records, readers = csv_parts(path, layout)
            parts = [read for n, read in zip(n_records, readers, strict=True) if n]
    return parts or [partial(read_table, path, layout, ragged=True)]


@dataclass(frozen=True)
class CsvSpans:
    """A CSV file in parts of about ``PART`` bytes, each of the lines that begin there.

    Parameters
    ----------
    mark
        The file.
    names
        Of its columns.
    ends
        The first byte of every part, and that behind it.
    layout
        How the file is written.
    """

    mark: FileMark
    names: tuple[str, ...]
    ends: tuple[tuple[int, int], ...]
    layout: CsvLayout

    def counters(self) -> list[Callable[[], int]]:
        """For every part what counts its records."""
        return [partial(_count, self.mark, begin, end) for begin, end in self.ends]

    def readers(self) -> list[Callable[[], Table]]:
        """For every part what reads it, as :func:`read_csv` reads ragged lines."""
        return [
            partial(_part, self.mark, begin, end, self.layout, self.names)
            for begin, end in self.ends
        ]


def csv_parts(path: str | Path, layout: CsvLayout) -> Parts:
    """The parts of :func:`csv_spans`, counted. Raises the same."""
    spans = csv_spans(path, layout)
    return spans.names, [count() for count in spans.counters()], spans.readers()


def csv_spans(path: str | Path, layout: CsvLayout) -> CsvSpans:
    """A CSV file in parts, of which the header alone is read.

    A line feed ends a record wherever it stands.

    Parameters
    ----------
    path
        The file.
    layout
        How it is written.

    Raises
    ------
    DeclarationError
        Where a line feed may stand within a record: cells with line breaks, UTF-16, gzip.
    DataError
        For what is no CSV file.
    """
    source = str(path)
    mark = FileMark.of(source)
    with opening(source), opened(source) as file:
        is_packed = file.read(2) == _GZIP
        file.seek(0)
        is_plain = (
            not is_packed and not layout.line_breaks and "\n".encode(layout.encoding) == b"\n"
        )
        header, begin = _header_line(source, file, layout) if is_plain else (b"", 0)
        end = file.seek(0, 2)
    if not is_plain:
        raise DeclarationError(
            f"{source}: only plain lines are read in blocks: unpack it, write it in UTF-8 without "
            "line breaks in cells, or read it into memory (--blocks never)"
        )
    (_, cells), *_ = _records(source, layout.lines(header, ragged=True), layout, True)
    ends = tuple((first, min(first + PART, end)) for first in range(begin, end, PART))
    return CsvSpans(mark, _stripped(cells), ends, layout)


def _header_line(source: str, file: BinaryIO, layout: CsvLayout) -> tuple[bytes, int]:
    """The line of the header, and the first byte below it."""
    above = b""
    header = b""
    for line in file:
        texts = layout.lines(line, ragged=True, first=not above)
        above += line
        if any(_without_separator_line(source, texts, layout)):
            header = line
            break
    return header, file.tell()


def _count(mark: FileMark, begin: int, end: int) -> int:
    """The records of a part, which are its lines that are not blank."""
    mark.check()
    lines = _lines(mark.source, begin, end).split(b"\n")
    return sum(bool(line.rstrip(b"\r")) for line in lines)


def _part(mark: FileMark, begin: int, end: int, layout: CsvLayout, names: tuple[str, ...]) -> Table:
    """The table of a part."""
    mark.check()
    lines = layout.lines(_lines(mark.source, begin, end), ragged=True, first=False)
    rows = [cells for _, cells in _rows(mark.source, lines, layout.separator, False)]
    return _columns(mark.source, names, rows, lines, layout)


def _lines(source: str, begin: int, end: int) -> bytes:
    """The lines that begin at these bytes, of which none is the first."""
    with opening(source), opened(source) as file:
        file.seek(begin - 1)
        file.readline()  # to the end of the line before, which may be at once
        raw = file.read(max(end - file.tell(), 0))
        return raw if not raw or raw.endswith(b"\n") else raw + file.readline()


def parquet_parts(path: str | Path) -> Parts:
    """The row groups of a Parquet file. Raises DataError where it is none, DeclarationError."""
    mark, names, rows = _parquet_facts(str(path))
    return names, rows, [partial(_row_groups, mark, names, [group]) for group in range(len(rows))]


def _parquet_facts(source: str) -> tuple[FileMark, tuple[str, ...], list[int]]:
    """The mark of a Parquet file, its columns, and the records of its row groups."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise DeclarationError(
            "reading Parquet needs pyarrow: pip install 'dp2erm-cvx[data]'"
        ) from None
    mark = FileMark.of(source)
    try:
        with opened(source) as file:
            metadata = parquet.read_metadata(file)
    except OSError as error:
        raise DataError(
            f"{source}: cannot be read: {error.strerror or 'is it a Parquet file?'}"
        ) from None
    except pa.ArrowException:
        raise DataError(f"{source}: is not a Parquet file") from None
    names = tuple(metadata.schema.to_arrow_schema().names)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return mark, names, [int(group.num_rows) for group in groups]


def read_parquet(path: str | Path) -> Table:
    """Columns of a Parquet file, read when asked for. Raises as :func:`parquet_parts`."""
    mark, names, rows = _parquet_facts(str(path))
    return _row_groups(mark, names, range(len(rows)))


def _row_groups(mark: FileMark, names: tuple[str, ...], groups: Sequence[int]) -> Table:
    """The table of some row groups of a Parquet file, whose columns are read when asked for."""
    import pyarrow as pa
    from pyarrow import parquet

    source = mark.source
    mark.check()

    def cells(file: Any, name: str) -> Any:
        if is_nested(file.schema_arrow.field(name).type):
            n_rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            return np.full(n_rows, None, dtype=object)
        table = file.read_row_groups(groups, [name], use_threads=False)
        return arrow_cells(table.column(name))

    def column(name: str) -> Any:
        mark.check()
        try:
            with opened(source) as raw, parquet.ParquetFile(raw) as file:
                return cells(file, name)
        except (OSError, KeyError, pa.ArrowException) as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise DataError(f"{source}: column {name!r} cannot be read: {why}") from None

    return Table(source, names, column)
