"""Identifiers of persons: the same ones from every reader, and no two persons one unit."""

from __future__ import annotations

import uuid
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect
from dp2erm_cvx.blocked.pieces import csv_pieces, frame_pieces, parquet_pieces
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.files import PLAIN, read_table, table_parts
from dp2erm_cvx.sampling import Unit
from dp2erm_cvx.steps import IntegerSums
from dp2erm_cvx.tables import Table, labels, numbers_or_nan, read_frame

#: Texts with the person that each of them is; None is nobody.
WORDS = ["007", "7", "1e5", "100000", "12e45678", "34e90123", "true", "True", "1", "1.0", "+1", "-1", "-0",
         "0", "inf", "1_0", "10", "p q", "p  q", "é", "e\u0301", "A", "a", "0x10", str(2**53 + 1),
         str(2**53 + 2), str(uuid.UUID(int=7)), *(str(10**17 + k) for k in range(5))]  # fmt: skip
TEXTS = [*((one, one) for one in WORDS), (" 7\t", "7"), ("  é", "é"), ("", None), ("  ", None), ("NaN", None)]
WHOLE = [7, 0, -1, 2**53 + 1, 2**53 + 2, 2**63 - 1, *(10**17 + k for k in range(5)), 7]
INTEGERS = [*((one, str(one)) for one in WHOLE), (None, None)]


def persons(cells):
    unit = Unit("id", 100)
    return unit.of([unit.labels(cells)])


def numbers(pairs):
    names = sorted({name for _, name in pairs if name is not None})
    return [-1 if name is None else names.index(name) for _, name in pairs]


def in_file(tmp_path, frame, ending):
    path = str(tmp_path / f"t.{ending}")
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "xlsx":
        frame.to_excel(path, index=False)
    elif ending == "dta":
        frame.to_stata(path, write_index=False, version=118)
    else:
        parquet.write_table(pa.table({"id": pa.array(frame.id, from_pandas=True)}), path, row_group_size=7)
    tables = [read_table(path, ragged=True)]
    if ending in ("csv", "parquet"):
        pieces = csv_pieces(path, PLAIN) if ending == "csv" else parquet_pieces(path)
        (blocks,) = pieces.tables(["id"], "id").each()
        parts = [part().cells("id", written=True) for part in table_parts(path)]
        tables += [blocks, Table("parts", ("id",), lambda name: [one for part in parts for one in part])]
    return [one.cells("id", written=True) for one in tables]


def readers(cells, tmp_path):
    polars, dask = pytest.importorskip("polars"), pytest.importorskip("dask.dataframe")
    text = isinstance(cells[0], str)
    yield cells
    yield np.array(cells, dtype=object)
    if text:
        yield np.array(cells)
        yield [one.encode() for one in cells]
    for kind in (object, "category", *(("string",) if text else ("Int64",))):
        frame = pd.DataFrame({"id": pd.Series(cells, dtype=kind)})
        yield read_frame(frame).cells("id", written=True)
        (table,) = frame_pieces(dask.from_pandas(frame, npartitions=3)).tables(["id"], "id").each()
        yield table.cells("id")
    arrow = pa.array(cells)
    for column in (arrow, arrow.dictionary_encode()):
        yield column
        yield read_frame(pd.DataFrame({"id": pd.Series(column, dtype=pd.ArrowDtype(column.type))})).cells(
            "id"
        )
    yield read_frame(polars.DataFrame({"id": cells})).cells("id")
    plain = object if text else "Int64"
    for ending in ("csv", "parquet", *(("xlsx", "dta") if text else ())):
        yield from in_file(tmp_path, pd.DataFrame({"id": pd.Series(cells, dtype=plain)}), ending)


@pytest.mark.parametrize("pairs", [TEXTS, INTEGERS], ids=["texts", "integers"])
def test_every_reader_finds_the_same_persons(tmp_path, pairs):
    wanted = numbers(pairs)
    for place, cells in enumerate(readers([cell for cell, _ in pairs], tmp_path)):
        assert persons(cells).tolist() == wanted, (place, cells)


def test_the_types_of_numbers_say_the_same(tmp_path):
    for ending in ("xlsx", "dta"):  # whose numbers are floats
        (cells,) = in_file(tmp_path, pd.DataFrame({"id": [12, np.nan, 7, 2**53 + 1]}), ending)
        assert persons(cells).tolist() == [0, -1, 1, -1]
    floats = [7.0, np.nan, 12.0, 0.5, -0.0, 2.0**53 - 1, 2.0**53, np.inf, 7.0]
    names = ["7", None, "12", None, "0", str(2**53 - 1), None, None, "7"]
    wanted = numbers([*enumerate(names)])
    for cells in (floats, np.array(floats), np.array(floats) + 0j, pd.Series(floats), pa.array(floats)):
        assert persons(cells).tolist() == wanted
    assert persons(np.array([2.0**24 - 1, 2.0**24], dtype=np.float32)).tolist() == [0, -1]
    others = [Decimal("7.00"), Decimal(10**17 + 1), uuid.UUID(int=7), np.int8(7), np.uint64(2**64 - 1), b"7"]
    names = ["7", str(10**17 + 1), str(uuid.UUID(int=7)), "7", str(2**64 - 1), "7"]
    nobody = [10**5000, True, np.False_, np.timedelta64(7), pd.Timestamp(7), [7], pd.NA, pd.NaT,
              Decimal("NaN"), Decimal("1E+99999"), b"\xff", "M\ufffdller", 7 + 1j]  # fmt: skip
    assert persons([*others, *nobody]).tolist() == numbers([*enumerate(names + [None] * len(nobody))])
    assert len(set(persons([f"x{'0' * k}" for k in range(50)] + ["x\0y", "x\0z"]).tolist())) == 52
    assert persons(["a", "a\0", "a\0 "]).tolist() == [0, 0, 0]


def test_a_complex_cell_changes_no_other():
    for cells in (pd.Series([1.0, 2.0, 3 + 0j, 4 + 1j]), np.array([1, 2, 3, 4 + 1j], dtype=np.complex64)):
        assert np.array_equal(numbers_or_nan(cells, "x"), [1.0, 2.0, 3.0, np.nan], equal_nan=True)
        assert labels(cells, "x")[:3] == ["1", "2", "3"]
    assert np.isnan(numbers_or_nan([np.complex64(3 + 5j)], "x")).all()


def test_bytes_that_are_no_text_name_nobody(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("id,y\nMüller,1\nMöller,2\nMuller,3\n".encode("latin-1"))
    assert persons(read_table(str(path), ragged=True).cells("id", written=True)).tolist() == [-1, -1, 0]
    latin = read_table(str(path), replace(PLAIN, encoding="latin-1"), ragged=True)
    assert len(set(persons(latin.cells("id", written=True)).tolist())) == 3


@pytest.mark.parametrize(
    "pair",
    [("12e45678", "34e90123"), (2**60 + 1, 2**60 + 2), ("0012", "12"), ("true", "1"), ("1e5", "100000")],
)
@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_a_person_moves_the_sums_by_what_is_claimed_whatever_it_is_called(pair, noise):
    """Two persons that were one unit moved two of them: 1.5 times what the noise covers."""
    first, second = pair
    rng = np.random.default_rng(0)
    book = Codebook(treatment={"column": "a"}, outcome="y", unit=Unit("id", 60))
    domain = Domain(1.5, 3.0, ranges=book.ranges({"x": (-3, 3)}), codebook=book)

    def rows(person, times, arm, y, x):
        return pd.DataFrame({"id": [person], "x": x, "a": arm, "y": y}).loc[[0] * times]

    others = pd.concat([rows(f"p{k}", 1, k % 2, y, y / 3) for k, y in enumerate(rng.normal(size=50))])
    others = pd.concat([others, rows(second, 1, 0, -1e9, -3.0)])
    tables = [
        pd.concat([others, one]) for one in (rows(first, 99, 1, 1e9, 3.0), rows("new", 1, 0, -1e9, -3.0))
    ]
    fitted = PrivateEffect(domain, Budget(1.0, 1e-6), noise=noise, seed=1, residual_scale=1.0)
    seen = []
    fitted.look = lambda plan, result: seen.append((plan, result.released))
    fitted.fit(tables[0], tables[0].a, tables[0].y)
    ((plan, released),) = seen
    steps, ratios = [step for step in plan.steps if isinstance(step, IntegerSums)], {}
    coded = [Dataset.coded(domain, one, one.a, one.y) for one in tables]
    records = [
        plan.study.start.domain.records(one.X, one.a, one.y, one.sampling, one.person) for one in coded
    ]
    for step in steps:
        found = [np.array([float(one) for one in step.exact_sums(part, released)]) for part in records]
        moved = np.linalg.norm(found[0] - found[1], 1 if step.integers.noise.value == "gamma" else 2)
        ratios[step.name] = moved / step.integers.sensitivity
        records = [step.mapped(part, released) for part in records]
    assert 0.4 < max(ratios.values()) <= 1.0, ratios


def test_a_column_of_identifiers_is_that_alone():
    with pytest.raises(DeclarationError, match="'id' is declared otherwise"):
        Codebook(unit=Unit("id", 9), eligible=["id < 100"])
    assert "0012 is not 12" in Unit("id", 9).told()
