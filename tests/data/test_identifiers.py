"""Identifiers of persons: the same ones from every reader, and no two persons one unit."""

import uuid
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect
from dp2erm_cvx.data.counts import Unit
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.files import PLAIN, read_table, table_parts
from dp2erm_cvx.data.pieces import file_pieces, frame_pieces
from dp2erm_cvx.data.tables import Table, arrow_cells, labels, numbers_or_nan, read_frame
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.steps.sums import IntegerSums

WORDS = ["007", "7", "1e5", "100000", "12e45678", "34e90123", "true", "True", "1", "1.0", "+1",
"-1", "-0",
         "0", "inf", "1_0", "10", "p q", "p  q", "é", "e\u0301", "A", "a", "0x10", str(2**53 + 1),
         str(2**53 + 2), str(uuid.UUID(int=7)), *(str(10**17 + k) for k in range(5))]  # fmt: skip
WHOLE = [7, 0, -1, 2**53 + 1, 2**53 + 2, 2**63 - 1, *(10**17 + k for k in range(5)), 7]
NOBODY = [10**5000, True, np.False_, np.timedelta64(7), pd.Timestamp(7), [7], pd.NA, pd.NaT,
Decimal("NaN"),
          Decimal("1E+99999"), b"\xff", "M\ufffdller", 7 + 1j]  # fmt: skip
#: Cells of one type with the person that each of them is; None is nobody.
CELLS = {
    "texts": [*zip(WORDS, WORDS, strict=True), (" 7\t", "7"), ("  é", "é"), ("", None),
              ("  ", None), ("NaN", None)],
    "integers": [*((one, str(one)) for one in WHOLE), (None, None)],
    "edges": [*((one, str(one)) for one in (2**53, -(2**53), 7)), (None, None)],
    "floats": [(7.0, "7"), (np.nan, None), (12.0, "12"), (0.5, None), (-0.0, "0"), (2.0**53, None),
               (2.0**53 - 1, str(2**53 - 1)), (np.inf, None), (7.0, "7")],
    "singles": [(2.0**24 - 1, str(2**24 - 1)), (2.0**24, None)],
    "sheets": [(12, "12"), (np.nan, None), (7, "7"), (2**53 + 1, None)],
    "objects": [(Decimal("7.00"), "7"), (Decimal(10**17 + 1), str(10**17 + 1)), (b"7", "7"),
                (uuid.UUID(int=7), str(uuid.UUID(int=7))), (np.uint64(2**64 - 1), str(2**64 - 1)),
                (np.int8(7), "7"), *((one, None) for one in NOBODY)],
    "ends": [*((one, one) for one in ("x\0y", "x\0z", *(f"x{'0' * k}" for k in range(50)))),
             ("a", "a"), ("a\0", "a"), ("a\0 ", "a")],
}  # fmt: skip


#: What holds numbers and others where no file does.
TYPES = {"floats": [list, np.array, lambda cells: np.array(cells) + 0j, pd.Series, pa.array],
         "singles": [np.float32], "objects": [list], "ends": [list]}  # fmt: skip
FILES = {
    "texts": ("csv", "parquet", "xlsx", "dta"),
    "integers": ("csv", "parquet"),
    "edges": ("csv", "parquet"),
    "sheets": ("xlsx", "dta"),
}


def persons(cells):
    unit = Unit("id", 100)
    return unit.of([unit.labels(cells)])


def in_file(tmp_path, frame, ending):
    path = str(tmp_path / f"t.{ending}")
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "xlsx":
        frame.to_excel(path, index=False)
    elif ending == "dta":
        frame.to_stata(path, write_index=False, version=118)
    else:
        parquet.write_table(
            pa.table({"id": pa.array(frame.id, from_pandas=True)}), path, row_group_size=7
        )
    tables = [read_table(path, ragged=True)]
    if ending in ("csv", "parquet"):
        (blocks,) = file_pieces(path, PLAIN).tables(["id"], ["id"]).each()
        parts = [part().cells("id", written=True) for part in table_parts(path)]
        tables += [
            blocks,
            Table("parts", ("id",), lambda name: [one for part in parts for one in part]),
        ]
    return [one.cells("id", written=True) for one in tables]


def readers(name, cells, tmp_path):
    yield from (kind(cells) for kind in TYPES.get(name, ()))
    text, plain = (
        name == "texts",
        {"texts": object, "integers": "Int64", "edges": "Int64"}.get(name),
    )
    for ending in FILES.get(name, ()):
        yield from in_file(tmp_path, pd.DataFrame({"id": pd.Series(cells, dtype=plain)}), ending)
    if plain is None:
        return
    polars, dask = pytest.importorskip("polars"), pytest.importorskip("dask.dataframe")
    yield from (cells, np.array(cells, dtype=object))
    if text:
        yield from (np.array(cells), [one.encode() for one in cells])
    for kind in (object, "category", "string" if text else "Int64"):
        frame = pd.DataFrame({"id": pd.Series(cells, dtype=kind)})
        yield read_frame(frame).cells("id", written=True)
        (table,) = (
            frame_pieces(dask.from_pandas(frame, npartitions=3)).tables(["id"], ["id"]).each()
        )
        yield table.cells("id")
    arrow = pa.array(cells)
    for column in (arrow, arrow.dictionary_encode()):
        yield column
        kept = pd.Series(column, dtype=pd.ArrowDtype(column.type))
        yield read_frame(pd.DataFrame({"id": kept})).cells("id")
    yield read_frame(polars.DataFrame({"id": cells})).cells("id")


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", CELLS)
def test_every_reader_and_every_type_finds_the_same_persons(tmp_path, name):
    cells, known = zip(*CELLS[name], strict=True)
    names = sorted({one for one in known if one is not None})
    wanted = [-1 if one is None else names.index(one) for one in known]
    for place, result in enumerate(readers(name, [*cells], tmp_path)):
        assert persons(result).tolist() == wanted, (place, result)


def test_uuids_of_arrow_are_their_text():
    ids = [uuid.UUID(int=2**127 + 5**50 * k) for k in (1, 2, 1)]
    column = arrow_cells(pa.array([one.bytes for one in ids], pa.uuid()))
    assert Unit("id", 9).labels(column)[0].tolist() == sorted(map(str, ids[:2]))


def test_a_complex_cell_changes_no_other():
    for cells in (
        pd.Series([1.0, 2.0, 3 + 0j, 4 + 1j]),
        np.array([1, 2, 3, 4 + 1j], dtype=np.complex64),
    ):
        assert np.array_equal(numbers_or_nan(cells, "x"), [1.0, 2.0, 3.0, np.nan], equal_nan=True)
        assert labels(cells, "x")[:3] == ["1", "2", "3"]
    assert np.isnan(numbers_or_nan([np.complex64(3 + 5j)], "x")).all()


def test_bytes_that_are_no_text_name_nobody(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("id,y\nMüller,1\nMöller,2\nMuller,3\n".encode("latin-1"))
    assert persons(read_table(str(path), ragged=True).cells("id", written=True)).tolist() == [
        -1,
        -1,
        0,
    ]
    latin = read_table(str(path), replace(PLAIN, encoding="latin-1"), ragged=True)
    assert len(set(persons(latin.cells("id", written=True)).tolist())) == 3


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    "pair",
    [
        ("12e45678", "34e90123"),
        (2**60 + 1, 2**60 + 2),
        ("0012", "12"),
        ("true", "1"),
        ("1e5", "100000"),
    ],
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

    others = pd.concat(
        [rows(f"p{k}", 1, k % 2, y, y / 3) for k, y in enumerate(rng.normal(size=50))]
    )
    twice, once = rows(first, 99, 1, 1e9, 3.0), rows("new", 1, 0, -1e9, -3.0)
    tables = [pd.concat([others, rows(second, 1, 0, -1e9, -3.0), one]) for one in (twice, once)]
    fitted = PrivateEffect(domain, Budget(1.0, 1e-6), noise=noise, seed=1, residual_scale=1.0)
    seen = []
    fitted.after_run = lambda plan, result: seen.append((plan, result.released))
    fitted.fit(tables[0], tables[0].a, tables[0].y)
    ((plan, released),) = seen
    steps, ratios = [step for step in plan.steps if isinstance(step, IntegerSums)], {}
    known = plan.study.start.domain
    coded = [Dataset.coded(domain, one, one.a, one.y) for one in tables]
    records = [known.records(one.X, one.a, one.y, one.sampling, one.person) for one in coded]
    for step in steps:
        actual = [
            np.array([float(one) for one in step.exact_sums(part, released)]) for part in records
        ]
        moved = np.linalg.norm(
            actual[0] - actual[1], 1 if step.integers.noise.value == "gamma" else 2
        )
        ratios[step.name] = moved / step.integers.sensitivity
        records = [step.mapped(part, released) for part in records]
    assert 0.4 < max(ratios.values()) <= 1.0, ratios


def test_a_column_of_identifiers_is_that_alone():
    with pytest.raises(DeclarationError, match="'id' is declared otherwise"):
        Codebook(unit=Unit("id", 9), eligible=["id < 100"])
    assert "0012 is not 12" in Unit("id", 9).in_words()
