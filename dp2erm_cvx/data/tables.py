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
#: From here on a whole number has more digits than a double is sure to keep, and is labeled as it
#: is printed.
_LEAST_LONG_NUMBER = 1e15
#: From here on doubles round whole numbers, and an identifier would be another one.
_LEAST_ROUNDED = 2.0**53


@dataclass(frozen=True)
class Table:
    """Named columns that are read one at a time.

    Parameters
    ----------
    source
        What messages call the table.
    names
        Names of the columns.
    column
        Reads the cells (n,) of a column, by its name.
    place
        Words for a row, which is counted from 0 on.
    damage
        For each way in which lines of a file could not be read, as a note to the data holder says
        it, how many there were.
    written
        Reads a column as it is written, where ``column`` makes numbers of texts.
    hint
        Says of a name that no column has where it stands instead, if anywhere.
    """

    source: str
    names: tuple[str, ...]
    column: Callable[[str], Any]
    place: Callable[[int], str] = lambda row: f"row {row + 1}"
    damage: Mapping[str, int] = field(default_factory=dict)
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
        """The cells (n,) of one column.

        Parameters
        ----------
        name
            Its name.
        written
            True for the cells as they are written, where the table distinguishes these.

        Raises
        ------
        DataError
            Where no column has this name, or several have.
        """
        if name not in self._known:
            hint = self.hint(name) or _near_name(name, self.names)
            raise DataError(
                f"{self.source} has no column {brief(name)}; it has: {listed(self.names)}{hint}"
            )
        if name in self.repeated:
            raise DataError(f"{self.source} has two columns named {brief(name)}: rename one")
        if written and self.written is not None:
            return self.written(name)
        return self.column(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """One column (n,) of finite numbers. Raises DataError as :func:`to_numbers` does."""
        return to_numbers(self.cells(name), name, self.place)


def _near_name(name: str, known_names: Sequence[str]) -> str:
    """The end of a message that names the column that is meant, if one is called nearly so."""
    folded = "".join(name.split()).casefold()
    near = [known for known in known_names if "".join(known.split()).casefold() == folded]
    near = near or difflib.get_close_matches(name, known_names, 1)
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
        content = np.ascontiguousarray(cells).tobytes()
    else:
        content = "\0".join(map(_printed, cells.tolist())).encode("utf-8", "backslashreplace")
    return hashlib.sha256(cells.dtype.str.encode() + content).hexdigest()


def _printed(cell: Any) -> str:
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
    """A new array (n,) of finite numbers.

    Parameters
    ----------
    values
        The cells (n,) of a column.
    name
        Its name.
    place
        Words for a row, which is counted from 0 on.

    Raises
    ------
    DataError
        Names the row and the column of the first cell that is no finite number.
    """
    array = as_array(values, f"column {brief(name)}")
    if array.dtype.kind in "mM":
        raise DataError(f"column {brief(name)}: holds dates or durations, not numbers")
    numbers = _numbers(array, _number_unless_text)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        row = int(wrong[0])
        cell = float(numbers[row]) if array.dtype.kind in "buif" else array.astype(object)[row]
        raise DataError(f"{place(row)}, column {brief(name)}: {_complaint(cell)}")
    return numbers


def _number_unless_text(cell: Any) -> float:
    """The number that a cell holds; nan for a text, whatever stands in it."""
    return math.nan if isinstance(cell, _NO_NUMBERS) else _number_in(cell)


def _numbers(array: NDArray[Any], number: Callable[[Any], float]) -> NDArray[np.float64]:
    """A new array of the ``number`` of every cell, which may be nan or infinite."""
    if array.dtype.kind in "buif":
        with np.errstate(over="ignore"):  # extended precision may hold more than a double
            return array.astype(np.float64)
    return np.array([number(cell) for cell in array.astype(object)], dtype=np.float64)


def numbers_or_nan(values: Any, name: str) -> NDArray[np.float64]:
    """A new array (n,) of numbers, each of one cell; nan where a cell is no finite number."""
    array = as_column(values, f"column {brief(name)}")
    if array.dtype.kind in "mM":  # numpy would hand these out as counts of nanoseconds
        return np.full(array.shape, math.nan)
    numbers = _numbers(array, _number_in)
    return np.where(np.isfinite(numbers), numbers, math.nan)


def numbers_of_texts(values: Any, name: str, number: Callable[[str], float]) -> NDArray[np.float64]:
    """A new array (n,) of numbers, each of one cell; nan where a cell is no finite number.

    Parameters
    ----------
    values
        The cells (n,) of a column.
    name
        Its name.
    number
        What a text counts as. It is computed of each text once; other cells hold their numbers.
    """
    array = as_column(values, f"column {brief(name)}")
    if array.dtype.kind in "buifmM":
        return numbers_or_nan(array, name)
    number_of: dict[str, float] = {}
    numbers = np.empty(len(array))
    for row, cell in enumerate(boxed(array)):
        if not isinstance(cell, str):
            numbers[row] = _number_in(cell)
            continue
        if cell not in number_of:
            number_of[str(cell)] = number(str(cell))
        numbers[row] = number_of[cell]
    return np.where(np.isfinite(numbers), numbers, math.nan)


def labels(values: Any, name: str) -> list[str]:
    """The label of every cell of a column, each by itself; of a missing one the empty text."""
    texts, place = distinct_labels(values, name)
    return [texts[k] for k in place.tolist()]


def by_label(values: Any, name: str, value: Callable[[str], Any], kind: Any) -> NDArray[Any]:
    """An array (n,) of what the label of every cell stands for.

    Parameters
    ----------
    values
        The cells (n,) of a column.
    name
        Its name.
    value
        What a label stands for. It is computed of each label once.
    kind
        The type of the array.
    """
    texts, place = distinct_labels(values, name)
    value_of = {text: value(text) for text in set(texts)}
    return np.array([value_of[text] for text in texts], dtype=kind)[place]


def distinct_labels(
    values: Any, name: str, label: Callable[[Any], str] | None = None
) -> tuple[list[str], NDArray[np.intp]]:
    """Labels of a column, each perhaps several times, and the place (n,) of that of every cell.

    Parameters
    ----------
    values
        The cells (n,) of a column.
    name
        Its name.
    label
        The label of a cell; default: :func:`label_of`. It is computed of each number or text once.
    """
    label = label or label_of
    array = as_column(values, f"column {brief(name)}")
    if array.dtype.kind in "buif":  # few of them differ
        distinct, place = np.unique(array, return_inverse=True)
        return [label(cell) for cell in distinct], place.reshape(array.shape)
    texts: list[str] = []
    label_of_text: dict[str, str] = {}
    for cell in boxed(array):
        if type(cell) is not str:
            texts.append(label(cell))
            continue
        if cell not in label_of_text:
            label_of_text[cell] = label(cell)
        texts.append(label_of_text[cell])
    return texts, np.arange(len(array))


def label_of(cell: Any) -> str:
    """The label that a cell holds: the same for 1, 1.0, True and "1"; empty where it is missing.

    A cell that holds several values, such as a list or an array, counts as missing.
    """
    if type(cell) is _Word:
        return " ".join(cell.split())
    number = _number_in(cell)
    if not math.isnan(number):
        is_short = number.is_integer() and abs(number) < _LEAST_LONG_NUMBER
        return str(int(number)) if is_short else repr(number)
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
    if type(cell).__name__ == "Interval":
        return _interval_text(cell)
    time: Any = None
    if isinstance(cell, np.timedelta64 | datetime.timedelta):
        time = np.timedelta64(cell).astype("timedelta64[us]")
    elif isinstance(cell, np.datetime64 | datetime.date) and getattr(cell, "tzinfo", None) is None:
        time = np.datetime64(cell).astype("datetime64[us]")
    if time is None:
        return str(cell)
    return "" if np.isnat(time) else str(time).removesuffix("T00:00:00.000000")


def _interval_text(interval: Any) -> str:
    """An interval of pandas, whose ends become 1.0 beside a missing cell."""
    opening = "[" if interval.closed_left else "("
    closing = "]" if interval.closed_right else ")"
    return f"{opening}{label_of(interval.left)}, {label_of(interval.right)}{closing}"


def _nested(cell: object) -> bool:
    """True if a cell holds several values, which would be written as those of other cells are."""
    kind = type(cell)
    if isinstance(cell, str | bytes):
        return False
    return hasattr(kind, "__iter__") or hasattr(kind, "__len__")


def _number_in(cell: Any) -> float:
    """The number that a cell holds, as text or otherwise; nan where there is none."""
    if type(cell) is float:
        return cell
    if isinstance(cell, str) and not isinstance(cell, _Word):
        cell = cell_of(cell)
    # as all are beside such a cell
    if isinstance(cell, complex | np.complexfloating) and cell.imag == 0:
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

    Raises
    ------
    DataError
        Where they are none.
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
    """Raise DataError for a query that was not run, a path, or a mapping of columns."""
    kind = type(values)
    package = kind.__module__.partition(".")[0]
    reader = _WITHOUT_CELLS.get((package, kind.__name__))
    if reader is not None:
        raise DataError(
            f"{name}: a {kind.__name__} holds no cells before it is read: give those of {reader}"
        )
    if isinstance(values, str | os.PathLike):
        raise DataError(
            f"{name} is a text, and no cells: read the file first, as pandas.read_csv does"
        )
    if isinstance(values, Mapping):
        raise DataError(f"{name} is a mapping: give a data frame, such as pandas.DataFrame({name})")


def as_cells(values: Any, name: str) -> NDArray[Any]:
    """Array of cells, none of which is written as a cell of another type.

    Cells of a list stay what they are. Raises DataError as :func:`as_array` does.
    """
    refuse_without_cells(values, name)
    values = _with_masks(values)
    if not (hasattr(values, "dtype") or _is_column(values)):
        with contextlib.suppress(Exception):  # rows that differ in length are told below
            values = np.asarray(values, dtype=object)
    return as_array(values, name)


def as_column(values: Any, name: str) -> NDArray[Any]:
    """Array (n,) of the cells of one column. A list in a cell is one cell."""
    if isinstance(values, list | tuple):
        return _one_by_one(values, _itself)
    return as_cells(values, name)


def _itself(cell: Any) -> Any:
    return cell


def _with_masks(values: Any) -> Any:
    """The values; a list with masked rows becomes a masked array.

    Numpy would bring back what masks hide.
    """
    if not isinstance(values, list | tuple):
        return values
    if any(isinstance(row, np.ma.MaskedArray) and row.ndim for row in values):
        with contextlib.suppress(Exception):  # rows that differ in length are told below
            return np.ma.array(values, dtype=object)
    return values


def repeated(names: Sequence[str]) -> str | None:
    """The first name that stands there twice, if any does."""
    for name, times in Counter(names).items():
        if times > 1:
            return name
    return None


def listed(names: Sequence[str]) -> str:
    """The first names in one line of a message."""
    texts = [name if name.isprintable() and len(name) <= 40 else brief(name) for name in names[:20]]
    if len(names) > 20:
        texts.append("...")
    return ", ".join(texts)


def column_names(X: Any) -> Sequence[Any] | None:
    """Names of the columns of a table, a data frame, or a table of Arrow; None of anything else."""
    if isinstance(X, Table):
        return X.names
    refuse_without_cells(X, "X")
    names: Sequence[Any] | None = getattr(X, "column_names", getattr(X, "columns", None))
    return names


def read_frame(frame: Any) -> Table:
    """Columns of a data frame of pandas or polars, or of a table of Arrow.

    A :class:`Table` stays what it is. Raises DataError for anything else.
    """
    if isinstance(frame, Table):
        return frame
    refuse_without_cells(frame, "the table")
    keys = column_names(frame)
    if keys is None or not hasattr(frame, "__getitem__"):
        raise DataError(f"{type(frame).__name__} is not a data frame")
    key_of = {str(key): key for key in keys}
    names = tuple(str(key) for key in keys)

    def column(name: str) -> NDArray[Any]:
        return as_cells(frame[key_of[name]], f"column {brief(name)}")

    return Table("the data frame", names, column)


def _is_column(values: Any) -> bool:
    """True for a column of a data frame of pandas or polars, or of a table of Arrow."""
    series = hasattr(values, "dtype") and getattr(values, "ndim", 1) == 1
    return hasattr(values, "to_numpy") and (series or hasattr(values, "type"))


def _frame_cells(column: Any) -> NDArray[Any]:
    """The cells of such a column, none of which is written as a cell of another type."""
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
    except Exception:
        # there is a cell that has no value in Python, such as a time after the year 9999
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
        return _one_by_one(column.to_list(), _itself)
    return np.asarray(column.to_numpy())


def _one_by_one(cells: Any, value: Callable[[Any], Any]) -> NDArray[np.object_]:
    """The values of cells, each by itself; None where there is none."""
    values = np.full(len(cells), None, dtype=object)
    for row, cell in enumerate(cells):
        with contextlib.suppress(Exception):
            values[row] = value(cell)
    return values


class _Word(str):
    """A cell that its file's reader found to be no number, such as 1.234 beside decimal commas."""

    __slots__ = ()


def is_nested(kind: Any) -> bool:
    """True if cells of a type of Arrow hold several values: they count as missing, unread."""
    import pyarrow as pa

    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind)


def arrow_cells(column: Any) -> NDArray[Any]:
    """The cells (n,) of a column of Arrow, by its type alone, which is public.

    Those of a nested type are missing. Arrow by itself would write all cells as one of them asks
    for, and refuse a column for one that Python cannot hold.
    """
    import pyarrow as pa

    kind = column.type
    chunks = getattr(column, "chunks", [column])
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        return _one_by_one(column, _python_value)
    if isinstance(kind, pa.BaseExtensionType):
        stored = [chunk.storage for chunk in chunks]
        return arrow_cells(pa.chunked_array(stored, kind.storage_type))
    if pa.types.is_dictionary(kind):
        decoded = [chunk.dictionary_decode() for chunk in chunks]
        return arrow_cells(pa.chunked_array(decoded, kind.value_type))
    if is_nested(kind):
        return np.full(len(column), None, dtype=object)
    return _simple_cells(pa.chunked_array(chunks, kind))


def _simple_cells(column: Any) -> NDArray[Any]:
    """The cells (n,) of a column of Arrow whose type is neither stored as another nor nested."""
    import pyarrow as pa

    types = pa.types
    kind = column.type
    if types.is_integer(kind):
        return _arrow_integers(column)
    is_time = types.is_timestamp(kind) or types.is_date(kind) or types.is_duration(kind)
    is_float = types.is_float32(kind) or types.is_float64(kind)
    if is_time or is_float or types.is_boolean(kind):
        return np.asarray(column.to_numpy())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _one_by_one(column.cast(pa.large_binary()).to_numpy(), _decoded)
    return _one_by_one(column, _python_value)


def _decoded(cell: bytes) -> str:
    """A text of Arrow; bytes that are no UTF-8 are replaced, as none may fail."""
    return cell.decode("utf-8", "replace")


def _python_value(cell: Any) -> Any:
    """A cell of Arrow as Python has it."""
    return cell.as_py()


def _arrow_integers(column: Any) -> NDArray[Any]:
    """Whole numbers (n,) of Arrow: as they are, or as floats where some are missing.

    Where floats would round one of them all are objects.
    """
    import pyarrow as pa

    if not column.null_count:
        return np.asarray(column.to_numpy())
    # where floats would round a number, it stays what it is
    with contextlib.suppress(pa.ArrowInvalid):
        numbers = np.asarray(column.cast(pa.float64()).to_numpy())
        if not np.any(np.abs(numbers) >= _LEAST_ROUNDED):
            return numbers
    return np.array(column.to_pylist(), dtype=object)


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


def _complaint(cell: Any) -> str:
    """Why a cell is no finite number."""
    if isinstance(cell, str | bytes):
        if cell.strip():
            return f"{brief(cell)} is text, not a number"
        return "the cell is empty; nothing is imputed"
    is_nan = isinstance(cell, float | np.floating) and math.isnan(cell)
    if is_nan or type(cell).__name__ in _MISSING:
        return "the value is missing (NaN); nothing is imputed"
    if isinstance(cell, float) and math.isinf(cell):
        return f"{cell} is not finite"
    return f"a value of type {type(cell).__name__} is not a number"
