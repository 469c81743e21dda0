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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.checks import check_settings, setting, true_or_false
from dp2erm_cvx.data.listing import has_pattern
from dp2erm_cvx.data.opening import FileMark, opened, opening
from dp2erm_cvx.data.tables import Table, arrow_cells, cell_of, is_nested, listed, read_frame
from dp2erm_cvx.errors import DataError, DeclarationError

#: What pandas makes of a zero of SAS transport files: the least number of IBM's format.
_XPORT_ZERO = 16.0**-65
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

    Raises DeclarationError naming what no file can have.
    """

    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    line_breaks: bool = setting(False, true_or_false, title="csv: ")

    def __post_init__(self) -> None:
        check_settings(self)
        if (
            not isinstance(self.separator, str)
            or len(self.separator) != 1
            or self.separator in '"\r\n'
        ):
            raise DeclarationError(f"csv: separator = {self.separator!r}: must be one character")
        try:
            name = codecs.lookup(
                self.encoding
            ).name  # raises, or encodes no text, or one line by another
            "a".encode("none" if name == "punycode" else name)
        except (LookupError, TypeError, ValueError):
            text = f"csv: encoding = {self.encoding!r}: is not known; such as utf-8 or latin-1"
            raise DeclarationError(text) from None
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise DeclarationError(
                f"csv: decimal = {self.decimal!r}: must be . or , and not the separator"
            )

    def lines(self, raw: bytes, *, ragged: bool, first: bool = True) -> list[str]:
        """The lines of the ``first`` part of a file or of another.

        Each is decoded by itself, without ends.

        What is no text is marked by U+FFFD where the file may be ``ragged``, and refused by
        UnicodeError otherwise. Where a line feed is not one byte, as in UTF-16, the file is decoded
        as a whole.
        """
        encoding = self.encoding
        if codecs.lookup(encoding).name in (
            "utf-8",
            "utf-8-sig",
        ):  # a mark elsewhere is part of a cell
            raw, encoding = raw.removeprefix(codecs.BOM_UTF8 if first else b""), "utf-8"
        if "\n".encode(encoding) != b"\n":
            whole = raw.decode(encoding, "replace" if ragged else "strict")
            return [line.rstrip("\r") for line in whole.split("\n")]
        return [_decoded(line.rstrip(b"\r"), encoding, ragged) for line in raw.split(b"\n")]


#: Commas, UTF-8 and decimal points.
PLAIN = CsvLayout()
#: Bytes of a file by which its layout is guessed, and what packed ones begin with.
_GUESSED, _GZIP = 2**24, b"\x1f\x8b"


def is_text(path: str) -> bool:
    """True if a name is that of a CSV file which is not packed."""
    several = os.path.isdir(path) or has_pattern(path)
    return not (path.lower().endswith((*BINARY, ".gz")) or several)


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
    for known, kind in _FOREIGN:
        if begin.startswith(known):
            raise DataError(f"{source}: is {kind}: save the table as CSV, .xlsx or Parquet")


def _without_separator_line(source: str, lines: list[str], layout: CsvLayout) -> list[str]:
    """The lines of a file with a blank one in the place of ``sep=;`` above the header.

    Raises DataError where that names another separator than is declared.
    """
    place = next((number for number, line in enumerate(lines) if line), 0)
    found = _SEPARATOR_LINE.fullmatch(lines[place]) if lines else None
    if found is None:
        return lines
    if found[1] != layout.separator:
        raise DataError(
            f"{source}: its first line says that {found[1]!r} separates cells: declare [csv] "
            f"separator = {json.dumps(found[1])}"
        )
    return [*lines[:place], "", *lines[place + 1 :]]


#: Lines of a file in which a column is looked for that its header lacks.
_ABOVE = 30


def _where_named(lines: Sequence[str], layout: CsvLayout) -> Callable[[str], str]:
    """What says where a column stands that a header lacks.

    It stands in another line, or behind other separators.
    """
    filled = [(number, line) for number, line in enumerate(lines[:_ABOVE], 1) if line]

    def hint(name: str) -> str:
        wanted = name.strip()
        for number, line in filled:
            for separator in dict.fromkeys((layout.separator, *",;\t|")):
                cells = [cell.strip().strip('"').strip() for cell in line.split(separator)]
                if len(cells) == 1 or wanted not in cells:
                    continue
                told = f"; line {number} names it"
                if separator != layout.separator:
                    told += (
                        f", and {_SEPARATORS[separator]} separate its cells: declare [csv] "
                        "separator = "
                    )
                    told += json.dumps(separator)
                if number > filled[0][0]:
                    told += ": delete the lines above it"
                return told
        return ""

    return hint


_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def guessed_layout(path: str) -> CsvLayout:
    """How the file seems to be written, by 16 MB.

    It is for the data holder, not for a release. Raises DataError.
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
    try:
        text, encoding = raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = raw.decode("latin-1"), "latin-1"
    first, _, below = text.removeprefix("\ufeff").partition("\n")
    named = _SEPARATOR_LINE.fullmatch(first.strip("\r"))
    if named is not None:
        text = below
    separator = named[1] if named is not None else max(",;\t|", key=first.count)
    cell = rf"(?<![^{re.escape(separator)}\n])-?\d+{{}}\d+(?![^{re.escape(separator)}\r\n])"
    commas, points = (len(re.findall(cell.format(sign), text)) for sign in (",", r"\."))
    decimal = "," if separator != "," and commas > points else "."
    return CsvLayout(separator, encoding, decimal, _breaks(text, separator))


def _breaks(text: str, separator: str) -> bool:
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

    No record has a say in how another one is read. One that cannot be parsed has no cells; it is
    refused where ``ragged`` is false, and quoted cells then go on in the next line, declared or
    not.
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
    """The cells of every record and the number of its first line.

    There are none where its quotes do not match.

    The module csv would end a record at a carriage return, and refuse all of them for a long cell
    of one.
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
    """The texts of the cells of one record.

    There are none where a quote stands within a cell that is not doubled.
    """
    texts = []
    for cell in cells:
        if cell.startswith('"'):
            inner = cell[1:-1]
            if not cell.endswith('"') or '"' in inner.replace('""', ""):
                return []
            cell = inner.replace('""', '"')
        texts.append(cell)
    return texts


def read_table(path: str, layout: CsvLayout = PLAIN, *, ragged: bool = False) -> Table:
    """Read a file by the ending of its name: Parquet, one sheet of .xlsx, Stata, SAS, else CSV.

    Codes of value labels, and dates of Stata in days since 1960, stay numbers. Raises
    DeclarationError where the reader is not installed, DataError where the file is none of its
    kind.
    """
    ending = Path(path).suffix.lower()
    if ending not in BINARY:
        return read_csv(path, layout, ragged=ragged)
    if ending in (".parquet", ".pq"):
        return read_parquet(path)
    try:
        module: Any = importlib.import_module("openpyxl" if ending == ".xlsx" else "pandas")
    except ImportError as error:
        raise DeclarationError(
            f"{ending} needs {error.name}: pip install 'dp2erm-cvx[data]'"
        ) from None
    try:
        if ending == ".xlsx":
            return _sheet(path, module.load_workbook(path, read_only=True, data_only=True))
        if ending == ".dta":
            frame = module.read_stata(path, convert_dates=False, convert_categoricals=False)
        else:
            with module.read_sas(path, iterator=True) as reader:
                frame = _with_texts(
                    reader.read(), layout.encoding, getattr(reader, "inferred_encoding", "")
                )
        return replace(read_frame(frame), source=path)
    except DataError:
        raise
    except Exception as error:  # whatever a reader of such files raises
        why = getattr(error, "strerror", None) or f"is it a {ending} file?"
        raise DataError(f"{path}: cannot be read: {why}") from None


def _with_texts(frame: Any, encoding: str, own: str) -> Any:
    """A frame of SAS, each text decoded by itself.

    It is decoded by its ``own`` encoding if no other is declared.
    """
    with contextlib.suppress(LookupError):  # many a file states none, or one without a name
        encoding = codecs.lookup(own).name if encoding == PLAIN.encoding else encoding
    texts = frame.select_dtypes(object).map(
        lambda x: str(x, encoding, "replace") if type(x) is bytes else x
    )
    return frame.assign(**texts).replace(_XPORT_ZERO, 0.0)


def _sheet(path: str, book: Any) -> Table:
    """The only sheet of a workbook: a record is a row below the first, which names the columns."""
    if len(book.sheetnames) != 1:
        raise DataError(
            f"{path}: has the sheets {listed(book.sheetnames)}: save one of them by itself"
        )
    (sheet,) = book.worksheets
    sheet.reset_dimensions()  # which some programs write, and not as they are
    head, *rows = list(sheet.iter_rows(values_only=True)) or [()]
    places = {str(name).strip(): place for place, name in enumerate(head) if name is not None}
    names = tuple(str(name).strip() for name in head if name is not None)

    def column(name: str) -> NDArray[np.object_]:
        place = places[name]
        cells = (row[place] if place < len(row) else None for row in rows)
        # whole numbers are rounded to doubles
        floats = (float(x) if type(x) is int and x.bit_length() < 1000 else x for x in cells)
        return np.array([*floats], dtype=object)

    def hint(name: str) -> str:
        for number, row in enumerate(rows[:_ABOVE], 2):
            if name in [str(cell).strip() for cell in row]:
                return f"; row {number} names it: delete the rows above it"
        return ""

    return Table(path, names, column, hint=hint)


def read_csv(path: str | Path, layout: CsvLayout = PLAIN, *, ragged: bool = False) -> Table:
    """Rows of a CSV file with a header, kept as text; blank lines are skipped.

    ``ragged``: no record is refused, and none moves another. A record is one line, which ends at a
    line feed; what is no text of the encoding becomes a mark in its cell; a line that cannot be
    parsed, or has more or fewer cells than the header, is a record of empty cells. Only where the
    layout declares ``line_breaks`` may a quoted cell go on in the next line. Raises DataError for
    what is no such file, and where ``ragged`` is false for a row that is none.
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
    (_, head), *records = _records(source, lines, layout, ragged)
    for row, (line, cells) in enumerate(records):
        if len(cells) != len(head) and not ragged:
            raise DataError(
                f"row {row + 1} (line {line}) of {source} has {len(cells)} cells, the header "
                f"{len(head)}"
            )
    made = _columns(source, _stripped(head), [cells for _, cells in records], lines, layout)
    return replace(made, place=lambda row: f"row {row + 1} (line {records[row][0]})")


def _stripped(head: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for name in head)


def _columns(
    source: str,
    names: tuple[str, ...],
    rows: Sequence[list[str]],
    lines: Sequence[str],
    layout: CsvLayout,
) -> Table:
    """The columns of rows of texts; a row of another length is one of empty cells."""
    places = {name: where for where, name in enumerate(names)}
    advice = "if cells hold line breaks, declare [csv] line_breaks = true"
    if layout.line_breaks:
        advice = "a quote within a quoted cell has to be doubled"
    encoding = (
        f"Lines with bytes that are no {layout.encoding.upper()} text: {{:,}}; see [csv] encoding."
    )
    length = (
        "Lines with another number of cells than the header: {:,}; each counts as an empty record."
    )
    damage = {
        encoding: sum("\ufffd" in line for line in lines),
        f"Lines with quotes that do not match: {{:,}}; {advice}.": sum(not cells for cells in rows),
        length: sum(len(cells) != len(names) for cells in rows),
    }

    def written(name: str) -> NDArray[Any]:
        where = places[name]
        return np.array(
            [cells[where] if len(cells) == len(names) else "" for cells in rows], dtype=object
        )

    def column(name: str) -> NDArray[Any]:
        own = [cell_of(text, layout.decimal) for text in written(name)]
        # numbers alone take an eighth of the room
        return np.array(
            own, dtype=np.float64 if all(type(cell) is float for cell in own) else object
        )

    hint = _where_named(lines, layout)
    return Table(source, names, column, damage=damage, written=written, hint=hint)


#: Names of the columns of a file in parts, the records of every part, and what reads one.
Parts = tuple[tuple[str, ...], list[int], list[Callable[[], Table]]]
#: Bytes of a CSV file that are parsed together: their cells take about 20 times as many.
PART = 2**20


def table_parts(path: str, layout: CsvLayout = PLAIN) -> list[Callable[[], Table]]:
    """Readers of a table's parts.

    Parts are plain lines of CSV or row groups of Parquet, else all of it at once.
    """
    parts: list[Callable[[], Table]] = []
    if path.lower().endswith((".parquet", ".pq")):
        parts = parquet_parts(path)[2]
    elif is_text(path) and os.path.exists(path):
        with contextlib.suppress(
            DeclarationError
        ):  # packed, or with cells that go on in the next line
            _, lengths, readers = csv_parts(path, layout)
            parts = [read for length, read in zip(lengths, readers, strict=True) if length]
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
        """Of every part what counts its records."""
        return [partial(_count, self.mark, *own) for own in self.ends]

    def readers(self) -> list[Callable[[], Table]]:
        """Of every part what reads it, as :func:`read_csv` reads ragged lines."""
        return [partial(_part, self.mark, *own, self.layout, self.names) for own in self.ends]


def csv_parts(path: str | Path, layout: CsvLayout) -> Parts:
    """The parts of :func:`csv_spans`, counted. Raises the same."""
    spans = csv_spans(path, layout)
    return spans.names, [count() for count in spans.counters()], spans.readers()


def csv_spans(path: str | Path, layout: CsvLayout) -> CsvSpans:
    """A CSV file in parts, of which the header alone is read.

    A line feed ends a record wherever it stands. Raises DeclarationError where that is not so:
    cells with line breaks, UTF-16, gzip.
    """
    source = str(path)
    mark = FileMark.of(source)
    with opening(source), opened(source) as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        plain = not packed and not layout.line_breaks and "\n".encode(layout.encoding) == b"\n"
        above = b""
        head = b""
        for line in file if plain else ():
            texts = layout.lines(line, ragged=True, first=not above)
            above += line
            if any(_without_separator_line(source, texts, layout)):
                head = line
                break
        begin, end = file.tell(), file.seek(0, 2)
    if not plain:
        raise DeclarationError(
            f"{source}: only plain lines are read in blocks: unpack it, write it in UTF-8 without "
            "line breaks in cells, or read it into memory (--blocks never)"
        )
    names = _stripped(_records(source, layout.lines(head, ragged=True), layout, True)[0][1])
    ends = tuple((first, min(first + PART, end)) for first in range(begin, end, PART))
    return CsvSpans(mark, names, ends, layout)


def _count(mark: FileMark, begin: int, end: int) -> int:
    mark.check()
    return sum(bool(line.rstrip(b"\r")) for line in _lines(mark.source, begin, end).split(b"\n"))


def _part(mark: FileMark, begin: int, end: int, layout: CsvLayout, names: tuple[str, ...]) -> Table:
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
            known = parquet.read_metadata(file)
    except OSError as error:
        raise DataError(
            f"{source}: cannot be read: {error.strerror or 'is it a Parquet file?'}"
        ) from None
    except pa.ArrowException:
        raise DataError(f"{source}: is not a Parquet file") from None
    names, groups = tuple(known.schema.to_arrow_schema().names), range(known.num_row_groups)
    rows = [int(known.row_group(group).num_rows) for group in groups]
    return mark, names, rows


def read_parquet(path: str | Path) -> Table:
    """Columns of a Parquet file, read when asked for. Raises as :func:`parquet_parts`."""
    mark, names, rows = _parquet_facts(str(path))
    return _row_groups(mark, names, range(len(rows)))


def _row_groups(mark: FileMark, names: tuple[str, ...], groups: Sequence[int]) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    source = mark.source
    mark.check()

    def column(name: str) -> Any:
        mark.check()
        try:
            with opened(source) as raw, parquet.ParquetFile(raw) as file:
                if is_nested(file.schema_arrow.field(name).type):
                    rows = sum(file.metadata.row_group(group).num_rows for group in groups)
                    return np.full(rows, None, dtype=object)
                return arrow_cells(
                    file.read_row_groups(groups, [name], use_threads=False).column(name)
                )
        except (OSError, KeyError, pa.ArrowException) as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise DataError(f"{source}: column {name!r} cannot be read: {why}") from None

    return Table(source, names, column)
