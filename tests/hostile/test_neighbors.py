"""Of two tables that differ in one cell, all other records are read alike, and releases state the
same.
"""

import csv
import decimal
import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain_file import declared_layout, load_domain
from dp2erm_cvx.data.files import PLAIN, read_parquet, read_table
from dp2erm_cvx.data.pieces import file_pieces, frame_pieces
from dp2erm_cvx.data.tables import labels, numbers_or_nan, read_frame
from tests.command_line import done

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

INTEGERS = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
)
TIMES = [
    pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "Europe/Berlin")
]
TIMES += [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]
WORDS = ["1", "1.0", " a  b", "\x00", "é"]
BYTES = [one.encode() for one in WORDS]
#: A type, five cells, and what stands in place of the third.
COLUMNS: list[tuple[Any, list[Any], list[Any]]] = [
    *((kind, [1, 0, 7, 127, 2], [None, 0, 99]) for kind in INTEGERS),
    (pa.int64(), [2**53 + 1, 2**53 + 3, 0, 10**15, 10**15 - 1], [None, 2**62]),
    *((kind, [1.0, 0.1, 0.0, 2048.0, -0.0], [None, np.nan, np.inf]) for kind in (pa.float32(),
    pa.float64())),
    (pa.float16(), [np.float16(one) for one in (1, 0.1, 0, 2, -0.0)], [None, np.float16("inf")]),
    (pa.bool_(), [True, False, True, False, True], [None]),
    *((kind, WORDS, [None, "", "x" * 200_000, "\ufeff"]) for kind in (pa.string(),
    pa.large_string())),
    *((kind, BYTES, [None, b"\xff" * 20]) for kind in (pa.string(), pa.binary(),
    pa.large_binary())),
    (pa.date32(), [0, 1, -1, 18_000, 40_000], [None, 2**31 - 1, -(2**31), 3_000_000]),
    *((kind, [0, 1, -1, 10**9, 1_234_567], [None, 2**63 - 1, -(2**63) + 1]) for kind in TIMES),
    (pa.time32("s"), [0, 1, 5, 86_399, 7], [None, 86_400, -1]),
    (pa.time64("ns"), [0, 1000, 5000, 86_399_000, 7000], [None, 1, 2**62]),
    *(
        (kind, [*map(decimal.Decimal, ("1", "2", "10", "0", "-3"))], [None, decimal.Decimal(9**7)])
        for kind in (pa.decimal128(10, 2), pa.decimal256(50, 4))
    ),
    (pa.null(), [None] * 5, [None]),
    *((pa.dictionary(pa.int32(), kind), cells, [None]) for kind, cells in (
        (pa.string(), WORDS), (pa.int64(), [1, 2, 3, 2**53 + 1, 1]), (pa.bool_(), [True,
        False] * 2 + [True]),
        (pa.timestamp("ns"), [1, 2, 3, 10**15, 1]),
    )),
    (pa.list_(pa.int64()), [[1], [2], [3], [4], [5]], [None, [None], [], [1, 2]]),
    (pa.large_list(pa.string()), [["1"]] * 5, [None, [None], ["é", "\r"]]),
    (pa.list_(pa.int64(), 1), [[1], [2], [3], [4], [5]], [[None]]),  # not all of Arrow write None
    (pa.list_(pa.list_(pa.int64())), [[[1]]] * 5, [None, [None], [[None]]]),
    (pa.struct([("a", pa.int64())]), [{"a": k} for k in range(5)], [None, {"a": None}]),
    (pa.map_(pa.string(), pa.int64()), [[("a", k)] for k in range(5)], [None, [("a", None)], []]),
]  # fmt: skip


def arrow(kind: Any, cells: list[Any]) -> Any:
    """A column of any cells, those that its library would not make among them."""
    if pa.types.is_dictionary(kind):
        return pa.array(cells, kind.value_type).dictionary_encode()
    plain = None
    if pa.types.is_temporal(kind):
        plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    elif kind == pa.string() and isinstance(cells[0], bytes):
        plain = pa.binary()
    made = pa.array(cells, plain or kind)
    return made if plain is None else pa.Array.from_buffers(kind, len(made), made.buffers())


def by_rows(rows: int, whole: bool) -> Callable[..., Any]:
    """A reader of a Parquet file of groups of so many rows, at once or in blocks."""

    def read(path: Path, column: Any) -> Any:
        parquet.write_table(pa.table({"x": column, "y": range(5)}), path, row_group_size=rows)
        table = (
            read_parquet(path)
            if whole
            else next(iter(file_pieces(path, PLAIN).tables(["x"]).each()))
        )
        return table.cells("x")

    return read


def in_pandas(path: Path, column: Any) -> Any:
    return read_frame(
        pd.DataFrame({"x": pd.Series(column, dtype=pd.ArrowDtype(column.type))})
    ).cells("x")


def in_dask(path: Path, column: Any) -> Any:
    dask = pytest.importorskip("dask.dataframe")
    categories = pa.types.is_dictionary(column.type)  # Dask makes no example of some of Arrow
    series = (
        column.to_pandas() if categories else pd.Series(column, dtype=pd.ArrowDtype(column.type))
    )
    (table,) = (
        frame_pieces(dask.from_pandas(pd.DataFrame({"x": series}), npartitions=2))
        .tables(["x"])
        .each()
    )
    return table.cells("x")


def others(cells: Any) -> list[tuple[str, str]]:
    """What the records besides the third are read as."""
    told = zip(labels(cells, "x"), map(repr, numbers_or_nan(cells, "x").tolist()), strict=True)
    return [one for row, one in enumerate(told) if row != 2]


@pytest.mark.one_row_in(9)
@pytest.mark.parametrize("read", [by_rows(5, True), by_rows(2, False), in_pandas, in_dask])
@pytest.mark.parametrize(
    ("kind", "cells", "hostile"), COLUMNS, ids=[f"{one[0]}" for one in COLUMNS]
)
def test_no_cell_of_a_column_of_arrow_changes_another(
    tmp_path: Path, read: Callable[..., Any], kind: Any, cells: list[Any], hostile: list[Any]
) -> None:
    clean = others(read(tmp_path / "a.parquet", arrow(kind, cells)))
    for cell in hostile:
        spoiled = arrow(kind, [*cells[:2], cell, *cells[3:]])
        assert others(read(tmp_path / "b.parquet", spoiled)) == clean, cell
    if pa.types.is_nested(kind):
        assert clean == [("", "nan")] * 4


def in_polars(kind: Any, cells: Sequence[Any]) -> Any:
    """A column of this type; times are given as counts of their unit."""
    polars = pytest.importorskip("polars")
    if kind.is_temporal() and cells[0] == 0:
        return polars.Series("x", cells, dtype=polars.Int64).cast(kind)
    return polars.Series("x", cells, dtype=kind)


def polars_columns() -> list[tuple[Any, list[Any]]]:
    """A type of polars, and cells of it of which none may change the reading of another."""
    pl = pytest.importorskip("polars")
    whole = [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32]
    columns: list[tuple[Any, list[Any]]] = [(kind, [0, 1, 100, None]) for kind in whole]
    columns += [(pl.Int64, [1, 2**53 + 1, -(2**63), None]), (pl.UInt64, [1, 2**64 - 1, None])]
    columns += [(pl.Int128, [1, 2**126, None]), (pl.UInt128, [1, 2**128 - 1, None])]
    columns += [(kind, [0.0, 0.1, np.inf, np.nan, None]) for kind in (pl.Float32, pl.Float64)]
    columns += [(pl.Decimal(38, 2), [decimal.Decimal("1.00"), decimal.Decimal(10**30), None])]
    columns += [(pl.Boolean, [True, False, None]), (pl.Null, [None, None])]
    columns += [(kind, ["1", "a", "", None]) for kind in (pl.String, pl.Categorical)]
    columns += [(pl.Binary, [b"1", b"\xff", None]), (pl.Object, [1, "a", [1], object, None])]
    for unit in ("ms", "us", "ns"):
        columns += [
            (pl.Datetime(unit, zone), [0, 1, 2**62, None]) for zone in (None, "Europe/Berlin")
        ]
        columns += [(pl.Duration(unit), [0, 1, 2**62, None])]
    columns += [(pl.List(pl.Int64), [[1], [], None]), (pl.Array(pl.Int64, 2), [[1, 2], None])]
    columns += [(pl.Struct({"a": pl.Int64}), [{"a": 1}, {"a": None}, None])]
    return columns


def test_no_cell_of_a_column_of_polars_changes_another() -> None:
    for kind, cells in polars_columns():
        column = in_polars(kind, cells)
        known = list(
            zip(labels(column, "x"), map(repr, numbers_or_nan(column, "x").tolist()), strict=True)
        )
        for left_out in range(len(cells)):
            rest = [cell for place, cell in enumerate(cells) if place != left_out]
            fewer = in_polars(kind, rest)
            read = zip(
                labels(fewer, "x"), map(repr, numbers_or_nan(fewer, "x").tolist()), strict=True
            )
            expected = [one for place, one in enumerate(known) if place != left_out]
            assert list(read) == expected, (kind, cells[left_out])
        if kind.is_nested():
            assert {label for label, _ in known} == {""}


@pytest.mark.parametrize(
    "cells", [[[1], [2], [3]], [[1], [2], 3.0], [[1, 2], [3], [4, 5]], [(1,), [], {}]]
)
def test_a_list_in_every_cell_is_read_as_one_in_some(cells: list[Any]) -> None:
    expected = ["3" if cell == 3.0 else "" for cell in cells]
    assert labels(cells, "x") == expected
    book = Codebook({"column": "a", "treated": "1", "control": "0"}, "y")
    domain = Domain(1.0, 1.0, ranges={"x": (-1.0, 1.0)}, codebook=book)
    dataset = Dataset.declared(domain, np.zeros((3, 1)), [0, 1, 0], cells)
    assert dataset.n_samples == 3


def test_cells_of_several_values_are_missing_one_by_one() -> None:
    several = (
        [1],
        (1,),
        {1: 2},
        {1},
        frozenset([1]),
        np.array([1]),
        np.array(1.0),
        bytearray(b"1"),
        pd.Series([1.0]),
        range(1),
        np.zeros(1, dtype="i8,i8")[0],
        pa.scalar([1]),
    )
    for cell in several:
        column = pd.Series(["yes", 1.0, cell, True], dtype=object)
        assert labels(read_frame(pd.DataFrame({"x": column})).cells("x"), "x") == [
            "yes",
            "1",
            "",
            "1",
        ], cell
        assert np.isnan(numbers_or_nan(column, "x")).tolist() == [True, False, True, False], cell


def test_no_cell_of_a_column_of_pandas_changes_another() -> None:
    times = [
        pd.Series(pd.to_datetime([0, 1, last], unit="ns", utc=True)) for last in (2, 2**63 - 1)
    ]
    intervals = pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3])
    kinds = ("Int8", "UInt64", "Float32", "boolean", "category", object)
    pairs: list[list[pd.Series]] = [
        [
            pd.Series(pd.cut([1, 50, age], [0, 30, 99])) for age in (20, 200)
        ],  # an age out of the bins
        [pd.Series(intervals), pd.Series([*intervals[:2], None])],
        [one.dt.tz_convert("Europe/Berlin") for one in times],
        *([pd.Series([1, 0, last], dtype=kind) for last in (1, None)] for kind in kinds),
        [pd.Series(["1.0", "a", last], dtype="string") for last in ("b", None)],
    ]
    for clean, spoiled in pairs:
        assert labels(clean, "x")[:2] == labels(spoiled, "x")[:2], clean.dtype
        assert "" not in labels(clean, "x")
    assert labels(pairs[0][1], "x") == ["(0, 30]", "(30, 99]", ""]


def test_blocks_of_several_types_keep_their_times() -> None:
    """A partition in which one cell is text stands in a block beside one of times."""
    dask = pytest.importorskip("dask.dataframe").dask
    told = [f"2020-01-0{k}" for k in (1, 2, 3, 4)]
    days = pd.Series(pd.to_datetime(told)).astype("M8[ns]")
    parts = [days[:2], days[2:].astype(object)]
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dask.dataframe.from_map(
            lambda k: pd.DataFrame({"x": parts[k]}), [0, 1], meta={"x": object}
        )
        (table,) = frame_pieces(frame).tables(["x"]).each()
    assert labels(table.cells("x"), "x") == told


DOMAIN = """\
outcome_column = "y"
outcome_bound = 2
[treatment]
column = "a"
treated = "[1]"
control = "[0]"
[ranges]
x = [-1, 1]
[levels]
note = ["N", "S"]
"""
#: A question of each kind.
QUESTIONS = {
    "effect": '[[effect]]\nsettings = { propensity = "logistic" }\n',
    "rule": "[[rule]]\n",
    "two_stage": '[[two_stage]]\nfirst_stage = "ipw_private"\n',
}
#: What noise was added to, and what is computed of it.
NOISED = {"estimate", "low", "high", "released", "theta", "coefficient", "effect_center",
"flipped_share",
          "own_units", "standard_deviation", "sampling_half_width", "noise_half_width", "bias",
          "counted", "capped"}  # fmt: skip
#: Cells of the third record, none of which is a declared level.
TEXTS = (
    "a\rb", "\r", "a\r", "\ufeff", "\ufeff\r", '"', 'a"b,', "\x00\x0b\x0c\x1c\x85\u2028\u2029",
    '\r"\r',
    "x" * 140_000 + '"', "\x1a", ",,,,", "  ",
)  # fmt: skip
BROKEN = (
    "a\nb",
    "\n",
    "\n\ufeff\n",
    "\r\n\r\n",
    'a\n"\n",\n',
    '"\n' * 99,
    ("x" * 70_000 + "\n") * 2,
)


def records(note: str) -> list[list[Any]]:
    rows = [["NS"[k % 2], k / 12 - 1, f"[{int(k % 3 > 0)}]", k % 5 - 2] for k in range(24)]
    rows[2][0] = note
    return [["note", "x", "a", "y"], *rows]


def by_csv(rows: Sequence[Sequence[Any]], end: str = "\n") -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator=end).writerows(rows)
    return file.getvalue().encode()


def by_pandas(rows: Sequence[Sequence[Any]]) -> bytes:
    return pd.DataFrame(rows[1:], columns=rows[0]).to_csv(index=False).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(DOMAIN)
    Path("many.toml").write_text(DOMAIN + "[csv]\nline_breaks = true\n")
    return tmp_path


def released(question: str, content: Any, domain: str = "one.toml", *more: str) -> Any:
    """The release of a study of the bytes of a CSV file, or of a table of Arrow."""
    data = "data.csv" if isinstance(content, bytes) else "data.parquet"
    Path(data).write_bytes(content) if isinstance(content, bytes) else parquet.write_table(
        content, data
    )
    declared = Path(domain).read_text()
    # top-level names and tables stand before the tables of questions
    Path("study.toml").write_text(f"{declared}[budget]\nepsilon = 1\n{QUESTIONS[question]}")
    words = ["run", "study.toml", data, "--seed", "1", "--force"]
    release = json.loads(done(*words, "--json", "--yes", *more).stdout)
    return {name: value for name, value in release.items() if name != "study"}


def public(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: public(one) for name, one in told.items() if name not in NOISED}
    return [public(one) for one in told] if isinstance(told, list) else told


@pytest.mark.parametrize("domain", ["one.toml", "many.toml"])
@pytest.mark.parametrize("write", [by_csv, partial(by_csv, end="\r\n"), by_pandas])
def test_no_text_of_a_cell_moves_a_record(
    folder: Path, domain: str, write: Callable[[list[list[Any]]], bytes]
) -> None:
    layout, declared = declared_layout(domain), load_domain(domain)

    def read(note: str) -> Dataset:
        Path("data.csv").write_bytes(write(records(note)))
        table = read_table("data.csv", layout, ragged=True)
        return Dataset.coded(declared, table, table.cells("a"), table.cells("y"))

    clean = read("Q")
    for text in (*TEXTS, *(BROKEN if layout.line_breaks else ())):
        spoiled = read(text)
        for (
            name
        ) in "Xay":  # of its own record as well: the text is another level that is not declared
            np.testing.assert_array_equal(
                getattr(clean, name), getattr(spoiled, name), repr(text[:20])
            )


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("question", QUESTIONS)
def test_hostile_cells_in_full_fits(folder: Path, question: str) -> None:
    plain, clean = (released(question, by_pandas(records(note))) for note in "NQ")
    assert clean != plain
    texts = (
        ("one.toml", "a\rb"),
        ("one.toml", "\ufeff"),
        ("many.toml", "a\rb\n\n" + "x" * 140_000 + '"'),
    )
    for domain, text in texts:
        told = released(question, by_pandas(records(text)), domain)
        assert told == clean
        assert public(told) == public(plain)
    header, *rows = records("N")
    columns = {name: [row[k] for row in rows] for k, name in enumerate(header)}
    nested = {
        "a": ([[int(k % 3 > 0)] for k in range(24)], [None]),
        "note": ([{"u": 1}] * 24, {"u": None}),
    }
    for blocks in ("never", "always"):
        for column, (cells, hostile) in nested.items():
            tables = (
                pa.table(columns | {column: one})
                for one in (cells, [*cells[:2], hostile, *cells[3:]])
            )
            clean, spoiled = (
                released(question, one, "one.toml", "--blocks", blocks) for one in tables
            )
            assert clean == spoiled
