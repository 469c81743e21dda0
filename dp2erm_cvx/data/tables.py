"""Columns of cells: what numbers and labels they hold, with the place of whatever is not a number.

Row 1 is the first record.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import difflib
import hashlib
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import DataError, brief

_BOOLEANS = {"true": 1.0, "false": 0.0}
#: Types of missing values, by name: pandas is optional, and its NA refuses to be compared.
_MISSING = ("NoneType", "NAType", "NaTType", "MaskedConstant")
#: Cells that no declared number is written in.
_NO_NUMBERS = (str, bytes, complex)


@dataclass(frozen=True)
class Table:
    """Named columns that are read one at a time; ``place`` turns a 0-based row into words.

    ``damage`` counts lines of a file that could not be read, by what a note says of them to the
    data holder. Columns of one name are an error where that is asked for. ``hint`` says of a name
    that no column has where it stands instead, if anywhere.
    """

    source: str
    names: tuple[str, ...]
    column: Callable[[str], Any]
    place: Callable[[int], str] = lambda row: f"row {row + 1}"
    damage: Mapping[str, int] = field(default_factory=dict)
    #: Columns as they are written, where ``column`` makes numbers of texts.
    written: Callable[[str], Any] | None = None
    hint: Callable[[str], str] = lambda name: ""
    _known: frozenset[str] = field(init=False, repr=False, default=frozenset())
    #: Names that several columns have.
    repeated: frozenset[str] = field(init=False, repr=False, default=frozenset())

    def __post_init__(self) -> None:
        times = Counter(self.names)
        object.__setattr__(self, "_known", frozenset(times))
        twice = frozenset(name for name, count in times.items() if count > 1)
        object.__setattr__(self, "repeated", twice)

    def cells(self, name: str, *, written: bool = False) -> Any:
        """One column, as it is ``written`` or as it is read.

        Raises DataError where none has this name.
        """
        if name not in self._known:
            hint = self.hint(name) or _near_name(name, self.names)
            raise DataError(
                f"{self.source} has no column {brief(name)}; it has: {listed(self.names)}{hint}"
            )
        if name in self.repeated:
            raise DataError(f"{self.source} has two columns named {brief(name)}: rename one")
        return (self.written if written and self.written else self.column)(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """One column as finite float64.

        Raises DataError naming the row and the column otherwise.
        """
        return to_numbers(self.cells(name), name, self.place)


def _near_name(name: str, known: Sequence[str]) -> str:
    """The end of a message that names the column that is meant, if one is called nearly so."""
    alike = [
        one for one in known if "".join(one.split()).casefold() == "".join(name.split()).casefold()
    ]
    near = alike or difflib.get_close_matches(name, known, 1)
    return f"; did you mean {brief(near[0])}?" if near else ""


def cells_digest(cells: NDArray[Any]) -> str:
    """Digest of the cells of a column in their order, the same in every process.

    Parameters
    ----------
    cells
        The column (n,). Of cells of other types than texts, numbers, times and missing values it
        tells the types alone: some print differently in every process.
    """
    if cells.dtype != object:
        told = np.ascontiguousarray(cells).tobytes()
    else:
        told = "\0".join(map(_told, cells.tolist())).encode("utf-8", "backslashreplace")
    return hashlib.sha256(cells.dtype.str.encode() + told).hexdigest()


def _told(cell: Any) -> str:
    return repr(cell) if isinstance(cell, _PRINTED) else type(cell).__name__


#: Types whose texts are the same in every process.
_PRINTED = (
    str,
    bytes,
    int,
    float,
    complex,
    decimal.Decimal,
    np.generic,
    datetime.date,
    datetime.time,
)


def to_numbers(
    values: Any, name: str, place: Callable[[int], str] = lambda row: f"row {row + 1}"
) -> NDArray[np.float64]:
    """A new (n,) float64 array of finite numbers.

    Raises DataError at the first value that is not one.
    """
    array = as_array(values, f"column {brief(name)}")
    if array.dtype.kind in "mM":
        raise DataError(f"column {brief(name)}: holds dates or durations, not numbers")
    numbers = _numbers(
        array, lambda cell: _number_in(None if isinstance(cell, _NO_NUMBERS) else cell)
    )
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        row = int(wrong[0])
        cell = float(numbers[row]) if array.dtype.kind in "buif" else array.astype(object)[row]
        raise DataError(f"{place(row)}, column {brief(name)}: {_complaint(cell)}")
    return numbers


def _numbers(array: NDArray[Any], number: Callable[[Any], float]) -> NDArray[np.float64]:
    """A new array of the ``number`` of every cell, which may be nan or infinite."""
    if array.dtype.kind in "buif":
        with np.errstate(over="ignore"):  # extended precision may hold more than a double
            return array.astype(np.float64)
    return np.array([number(cell) for cell in array.astype(object)], dtype=np.float64)


def numbers_or_nan(values: Any, name: str) -> NDArray[np.float64]:
    """A new (n,) float64 array, nan where a cell is no finite number: of each cell by itself."""
    array = as_column(values, f"column {brief(name)}")
    if array.dtype.kind in "mM":  # numpy would hand these out as counts of nanoseconds
        return np.full(array.shape, math.nan)
    numbers = _numbers(array, _number_in)
    return np.where(np.isfinite(numbers), numbers, math.nan)


def numbers_of_texts(values: Any, name: str, number: Callable[[str], float]) -> NDArray[np.float64]:
    """A new (n,) float64 array: the ``number`` of every text, and what other cells hold.

    Each cell is read by itself.

    A cell that is no finite number is nan.
    """
    array = as_column(values, f"column {brief(name)}")
    if array.dtype.kind in "buifmM":
        return numbers_or_nan(array, name)
    known: dict[str, float] = {}
    numbers = np.empty(len(array))
    for row, cell in enumerate(boxed(array)):
        if not isinstance(cell, str):
            numbers[row] = _number_in(cell)
            continue
        if cell not in known:
            known[str(cell)] = number(str(cell))
        numbers[row] = known[cell]
    return np.where(np.isfinite(numbers), numbers, math.nan)


def labels(values: Any, name: str) -> list[str]:
    """The cells of a column as labels, of each cell by itself; a missing one is the empty text."""
    known, place = distinct_labels(values, name)
    return [known[k] for k in place.tolist()]


def by_label(values: Any, name: str, value: Callable[[str], Any], kind: Any) -> NDArray[Any]:
    """An array (n,) of this ``kind``: the ``value`` of the label of every cell.

    It is computed of each label once.
    """
    texts, place = distinct_labels(values, name)
    known = {text: value(text) for text in set(texts)}
    return np.array([known[text] for text in texts], dtype=kind)[place]


def distinct_labels(
    values: Any, name: str, label: Callable[[Any], str] | None = None
) -> tuple[list[str], NDArray[np.intp]]:
    """Labels of a column, each perhaps several times, and the place (n,) of that of every cell."""
    label = label or label_of
    array = as_column(values, f"column {brief(name)}")
    if array.dtype.kind in "buif":  # few of them differ
        distinct, place = np.unique(array, return_inverse=True)
        return [label(cell) for cell in distinct], place.reshape(array.shape)
    cells = boxed(array)
    known = {
        cell: label(cell) for cell in {text for text in cells if type(text) is str}
    }  # again and again
    return [known[text] if type(text) is str else label(text) for text in cells], np.arange(
        len(array)
    )


def label_of(cell: Any) -> str:
    """The label that a cell holds: the same for 1, 1.0, True and "1"; empty where it is missing.

    A cell that holds several values, such as a list or an array, counts as missing.
    """
    if type(cell) is _Word:
        return " ".join(cell.split())
    number = _number_in(cell)
    if not math.isnan(number):
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "replace")
    if type(cell).__name__ in _MISSING or isinstance(cell, float | np.floating) or _nested(cell):
        return ""
    try:
        return " ".join(_text(cell).split())
    except Exception:  # a whole number of thousands of digits, or whatever a foreign object raises
        return ""


def _text(cell: Any) -> str:
    """A cell in words: times and intervals in one way, whatever type or unit their column has."""
    if type(cell).__name__ == "Interval":  # of pandas, whose ends become 1.0 beside a missing cell
        ends = f"{label_of(cell.left)}, {label_of(cell.right)}"
        return f"{'[' if cell.closed_left else '('}{ends}{']' if cell.closed_right else ')'}"
    time: Any = None
    if isinstance(cell, np.timedelta64 | datetime.timedelta):
        time = np.timedelta64(cell).astype("timedelta64[us]")
    elif isinstance(cell, np.datetime64 | datetime.date) and getattr(cell, "tzinfo", None) is None:
        time = np.datetime64(cell).astype("datetime64[us]")
    if time is None:
        return str(cell)
    return "" if np.isnat(time) else str(time).removesuffix("T00:00:00.000000")


def _nested(cell: object) -> bool:
    """True if a cell holds several values.

    How they are written would depend on those of other cells.
    """
    kind = type(cell)
    return not isinstance(cell, str | bytes) and (
        hasattr(kind, "__iter__") or hasattr(kind, "__len__")
    )


def _number_in(cell: Any) -> float:
    """The number that a cell holds, as text or otherwise; nan where there is none."""
    if type(cell) is float:
        return cell
    if isinstance(cell, str) and not isinstance(cell, _Word):
        cell = cell_of(cell)
    if (
        isinstance(cell, complex | np.complexfloating) and cell.imag == 0
    ):  # as all are beside such a cell
        cell = cell.real
    # numpy would make numbers of durations and of arrays with one entry
    kinds = str | bytes | complex | np.complexfloating | np.datetime64 | np.timedelta64
    if isinstance(cell, kinds) or _nested(cell):
        return math.nan
    try:
        return float(cell)
    except Exception:  # whatever a foreign object raises
        return math.nan


def boxed(array: NDArray[Any]) -> NDArray[np.object_]:
    """Cells as objects: those of a column of times are numpy's own, not their counts of a unit."""
    if array.dtype.kind not in "mM":
        return array.astype(object)
    return np.fromiter(array.flat, dtype=object, count=array.size).reshape(array.shape)


def as_array(values: Any, name: str) -> NDArray[Any]:
    """The values as one array, in which masked entries are None.

    Raises DataError where they are none.
    """
    refuse_without_cells(values, name)
    values = _with_masks(values)
    if isinstance(values, np.ma.MaskedArray):
        # a plain conversion would bring back what the mask hides, and filled(None) a fill value
        cells = boxed(values.data)
        cells[np.ma.getmaskarray(values)] = None
        return cells
    try:
        if _is_column(values):
            return _frame_cells(values)
        with warnings.catch_warnings():
            # a masked entry in a list becomes NaN, which is refused by place
            warnings.simplefilter("ignore")
            return np.asarray(values)
    except Exception:  # whatever the conversion of a foreign object raises
        raise DataError(f"{name}: is not an array, or its rows differ in length") from None


#: What holds no cells yet, by the first part of its module and its name, and what reads them.
_WITHOUT_CELLS = {
    ("polars", "LazyFrame"): ".collect()",
    ("pyspark", "DataFrame"): ".toPandas()",
    ("duckdb", "DuckDBPyRelation"): ".df()",
    ("_duckdb", "DuckDBPyRelation"): ".df()",
    ("ibis", "Table"): ".to_pandas()",
    ("ibis", "Column"): ".to_pandas()",
}


def refuse_without_cells(values: Any, name: str) -> None:
    """Raise DataError for what has no cells.

    That is a query that was not run, a path, or a mapping of columns.
    """
    kind = type(values)
    reads = _WITHOUT_CELLS.get((kind.__module__.partition(".")[0], kind.__name__))
    if reads is not None:
        raise DataError(
            f"{name}: a {kind.__name__} holds no cells before it is read: give those of {reads}"
        )
    if isinstance(values, str | os.PathLike):
        raise DataError(
            f"{name} is a text, and no cells: read the file first, as pandas.read_csv does"
        )
    if isinstance(values, Mapping):
        raise DataError(f"{name} is a mapping: give a data frame, such as pandas.DataFrame({name})")


def as_cells(values: Any, name: str) -> NDArray[Any]:
    """Array of cells; those of a list stay what they are.

    No cell is written as another one asks for.
    """
    refuse_without_cells(values, name)
    values = _with_masks(values)
    if not (hasattr(values, "dtype") or _is_column(values)):
        with contextlib.suppress(Exception):  # rows that differ in length are told below
            values = np.asarray(values, dtype=object)
    return as_array(values, name)


def as_column(values: Any, name: str) -> NDArray[Any]:
    """Array (n,) of the cells of one column.

    A list in a cell is one cell, whatever the others hold.
    """
    if isinstance(values, list | tuple):
        return _one_by_one(values, lambda cell: cell)
    return as_cells(values, name)


def _with_masks(values: Any) -> Any:
    """Array of cells, a list of masked rows as one masked array.

    Numpy would bring back what they hide.
    """
    if isinstance(values, list | tuple) and any(
        isinstance(value, np.ma.MaskedArray) and value.ndim for value in values
    ):
        with contextlib.suppress(Exception):  # rows that differ in length are told below
            return np.ma.array(values, dtype=object)
    return values


def repeated(names: Sequence[str]) -> str | None:
    """The first name that stands there twice, if any does."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def listed(names: Sequence[str]) -> str:
    """The first names in one line of a message."""
    text = ", ".join(
        name if name.isprintable() and len(name) <= 40 else brief(name) for name in names[:20]
    )
    return text + (", ..." if len(names) > 20 else "")


def column_names(X: Any) -> Sequence[Any] | None:
    """Names of the columns of a table, a data frame, or a table of Arrow.

    They are None where ``X`` has none.
    """
    if isinstance(X, Table):
        return X.names
    refuse_without_cells(X, "X")
    names: Sequence[Any] | None = getattr(X, "column_names", getattr(X, "columns", None))
    return names


def read_frame(frame: Any) -> Table:
    """Columns of a data frame of pandas or polars, or of a table of Arrow.

    A table stays what it is.
    """
    if isinstance(frame, Table):
        return frame
    refuse_without_cells(frame, "the table")
    if (columns := column_names(frame)) is None or not hasattr(frame, "__getitem__"):
        raise DataError(f"{type(frame).__name__} is not a data frame")
    keys = {str(key): key for key in columns}
    names = tuple(str(key) for key in columns)
    return Table(
        "the data frame", names, lambda name: as_cells(frame[keys[name]], f"column {brief(name)}")
    )


def _is_column(values: Any) -> bool:
    """True for a column of a data frame of pandas or polars, or of a table of Arrow."""
    series = hasattr(values, "dtype") and getattr(values, "ndim", 1) == 1
    return hasattr(values, "to_numpy") and (series or hasattr(values, "type"))


def _frame_cells(column: Any) -> NDArray[Any]:
    """The cells of such a column, none of them written as another one asks for."""
    kind = getattr(column, "dtype", None)
    if kind is None:
        return arrow_cells(column)
    if hasattr(kind, "pyarrow_dtype") or getattr(kind, "storage", None) == "pyarrow":
        return arrow_cells(column.array.__arrow_array__())
    if type(column).__module__.startswith("polars"):
        return _polars_cells(column)
    if type(kind).__name__ == "CategoricalDtype" and column.isna().any():
        levels = [*boxed(as_cells(kind.categories, "")), None]
        return _one_by_one(getattr(column, "cat", column).codes, levels.__getitem__)
    if hasattr(kind, "numpy_dtype") and kind.kind in "iu" and column.isna().any():
        return np.asarray(column.to_numpy(dtype=object))
    try:
        return np.asarray(column.to_numpy())
    except (
        Exception
    ):  # there is a cell that has no value in Python, such as a time after the year 9999
        return _one_by_one(range(len(column)), column.array.__getitem__)


#: Types of polars for which numpy has no type of its own, by name: their cells are read as Python
#: has them.
_ONLY_IN_POLARS = frozenset({"Int128", "UInt128", "Decimal", "Object"})


def _polars_cells(column: Any) -> NDArray[Any]:
    """The cells of a column of polars, by its type alone, which is public; nested ones are missing.

    Parameters
    ----------
    column
        A series of any type.

    Returns
    -------
    cells
        One cell for every row, (n,). Whole numbers of at most 64 bits are an array of numbers where
        none is missing and objects otherwise, because polars would write them as floats, which
        rounds large ones: both have the same labels and the same numbers.
    """
    kind = column.dtype
    if kind.is_nested():
        return np.full(len(column), None, dtype=object)
    boxed_whole = kind.is_integer() and column.null_count() > 0
    if boxed_whole or kind.base_type().__name__ in _ONLY_IN_POLARS:
        return _one_by_one(column.to_list(), lambda cell: cell)
    return np.asarray(column.to_numpy())


def _one_by_one(cells: Any, value: Callable[[Any], Any]) -> NDArray[np.object_]:
    """The values of cells, each by itself; None where there is none."""
    values = np.full(len(cells), None, dtype=object)
    for row, cell in enumerate(cells):
        with contextlib.suppress(Exception):
            values[row] = value(cell)
    return values


class _Word(str):
    """A cell that the reader of its file found to be no number.

    An example is 1.234 beside decimal commas.
    """

    __slots__ = ()


def is_nested(kind: Any) -> bool:
    """True if cells of a type of Arrow hold several values.

    They count as missing, and need not be read.
    """
    import pyarrow as pa

    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind)


def arrow_cells(column: Any) -> NDArray[Any]:
    """The cells of a column of Arrow, by its type alone, which is public.

    Those of a nested type are missing.

    Arrow would write all cells as one of them asks for, and refuse a column for one that Python
    cannot hold.
    """
    import pyarrow as pa

    kind, is_a, chunks = column.type, pa.types, getattr(column, "chunks", [column])
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        return _one_by_one(column, lambda cell: cell.as_py())
    if isinstance(kind, pa.BaseExtensionType):
        return arrow_cells(pa.chunked_array([chunk.storage for chunk in chunks], kind.storage_type))
    if is_a.is_dictionary(kind):
        decoded = [chunk.dictionary_decode() for chunk in chunks]
        return arrow_cells(pa.chunked_array(decoded, kind.value_type))
    if is_nested(kind):
        return np.full(len(column), None, dtype=object)
    whole = pa.chunked_array(chunks, kind)
    if is_a.is_integer(kind):
        if not whole.null_count:
            return np.asarray(whole.to_numpy())
        with contextlib.suppress(
            pa.ArrowInvalid
        ):  # where floats would round a number, it stays what it is
            numbers = np.asarray(whole.cast(pa.float64()).to_numpy())
            if not np.any(np.abs(numbers) >= 2.0**53):  # an identifier there is none as a float
                return numbers
        return np.array(whole.to_pylist(), dtype=object)
    times = is_a.is_timestamp(kind) or is_a.is_date(kind) or is_a.is_duration(kind)
    if times or is_a.is_boolean(kind) or is_a.is_float32(kind) or is_a.is_float64(kind):
        return np.asarray(whole.to_numpy())
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        texts = whole.cast(pa.large_binary()).to_numpy()
        return _one_by_one(texts, lambda cell: cell.decode("utf-8", "replace"))
    return _one_by_one(whole, lambda cell: cell.as_py())


def cell_of(text: str, decimal: str = ".") -> float | _Word:
    """A cell of a CSV file as a number where it is one, else as it stands."""
    stripped = text.strip()
    if stripped.lower() in _BOOLEANS:
        return _BOOLEANS[stripped.lower()]
    # float("1_000") is 1000.0, which no CSV file means; a point beside decimal commas separates
    # thousands
    if "_" in stripped or (decimal != "." and "." in stripped):
        return _Word(stripped)
    try:
        return float(stripped.replace(decimal, "."))
    except ValueError:
        return _Word(stripped)


def _complaint(value: Any) -> str:
    if isinstance(value, str | bytes):
        text = f"{brief(value)} is text, not a number"
        return text if value.strip() else "the cell is empty; nothing is imputed"
    nan = isinstance(value, float | np.floating) and math.isnan(value)
    if nan or type(value).__name__ in _MISSING:
        return "the value is missing (NaN); nothing is imputed"
    if isinstance(value, float) and math.isinf(value):
        return f"{value} is not finite"
    return f"a value of type {type(value).__name__} is not a number"
