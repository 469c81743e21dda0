"""Tables from files and frames: what they hold, and that one line of a CSV file spoils no other."""

import gzip
import sys
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.files import (
    PLAIN,
    CsvLayout,
    _with_texts,
    guessed_layout,
    read_csv,
    read_table,
)
from dp2erm_cvx.data.tables import as_array, as_cells, labels, numbers_or_nan
from dp2erm_cvx.diagnostics.columns import TableCells
from dp2erm_cvx.errors import DataError, DeclarationError

GOOD = "age,dose,a,y\n30,1.5,0,2\n41,-2e1,true,3.25\n52,0,1,-1\n"


def csv_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, text: str | bytes, **names: object) -> Dataset:
    arguments = {"treatment": "a", "outcome": "y", **names}
    return Dataset.read(csv_file(folder, text), **arguments)  # type: ignore[arg-type]


def test_csv_holds_what_the_file_says(tmp_path: Path) -> None:
    data = read(tmp_path, GOOD)
    assert data.columns == ("age", "dose")
    assert (data.treatment, data.outcome, data.n_samples) == ("a", "y", 3)
    np.testing.assert_array_equal(data.X, [[30, 1.5], [41, -20], [52, 0]])
    np.testing.assert_array_equal(data.a, [0, 1, 1])
    np.testing.assert_array_equal(data.y, [2, 3.25, -1])
    assert (data.X.dtype, data.a.dtype, data.y.dtype) == (np.float64, np.int64, np.float64)
    assert read(tmp_path, GOOD, covariates=["dose", "age"]).X[0].tolist() == [1.5, 30.0]
    unused_text = "note,age,a,y\nhello,1,0,2\nthere,2,1,3\n"
    assert read(tmp_path, unused_text, covariates=["age"]).columns == ("age",)
    windows = b"\xef\xbb\xbf age ,a,y\r\n\r\n 1 ,0,2\r\n2,1,3\r\n\r\n"
    data = read(tmp_path, windows)
    assert (data.columns, data.X[:, 0].tolist()) == (("age",), [1, 2])
    quoted = 'x,"the a",y\n"1","0","2"\n2,1,3\n'
    assert read(tmp_path, quoted, treatment="the a").a.tolist() == [0, 1]


def test_every_reader_gives_the_same_dataset(tmp_path: Path) -> None:
    expected = read(tmp_path, GOOD)
    frame = pd.DataFrame(
        {"age": [30, 41, 52], "dose": [1.5, -20, 0], "a": [False, True, True], "y": [2, 3.25, -1]}
    )
    frame.to_parquet(tmp_path / "data.parquet")
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    for data in (
        Dataset.from_arrays(arrow.select(["age", "dose"]), arrow["a"], arrow["y"]),
        *(
            Dataset.read(one, treatment="a", outcome="y")
            for one in (
                arrow,
                frame,
                frame.astype(object),
                frame.convert_dtypes(),
                tmp_path / "data.parquet",
            )
        ),
        Dataset.from_arrays(frame[["age", "dose"]], frame["a"], frame["y"]),
        Dataset.from_arrays(
            [[30, Decimal("1.5")], [41, -20], [52, 0]], [0, 1.0, 1], [2, 3.25, -1], ["age", "dose"]
        ),
    ):
        assert data.columns == expected.columns
        for name in "Xay":
            np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))


def test_arrays_are_read_only_and_finite_doubles_are_not_copied() -> None:
    X = np.array([[0.0, -0.0], [1e300, 5e-324], [-1.0, 2.0]])
    data = Dataset.from_arrays(X, [0, 1, 1], [1, 2, 3])
    assert (np.shares_memory(data.X, X), X.flags.writeable) == (True, True)
    for other in (
        np.asfortranarray(X),
        X.astype(">f8"),
        X.astype(object),
        np.repeat(X, 2, axis=0)[::2],
    ):
        copied = Dataset.from_arrays(other, [0, 1, 1], [1, 2, 3]).X
        assert (copied.flags.c_contiguous, copied.tobytes()) == (True, X.tobytes())
    for bad, place in ((np.nan, (2, 1)), (np.inf, (0, 0))):
        for wrong in (X.copy(), X.copy(order="F"), X.astype(object)):
            wrong[place] = bad
            with pytest.raises(DataError, match=f"row {place[0] + 1}, column 'x{place[1] + 1}'"):
                Dataset.from_arrays(wrong, [0, 1, 1], [1, 2, 3])
    assert not any(array.flags.writeable for array in (data.X, data.a, data.y))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace("-2e1", "abc"),
            r"^row 2 \(line 3\), column 'dose': 'abc' is text, not a number$",
        ),
        (
            GOOD.replace("-2e1", ""),
            r"2 \(line 3\), column 'dose': the cell is empty; nothing is imputed$",
        ),
        (GOOD.replace("-2e1", "nan"), r"row 2 \(line 3\), column 'dose': the value is missing"),
        (GOOD.replace("-2e1", "NA"), r"column 'dose': 'NA' is text"),
        (GOOD.replace("-2e1", "-inf"), r"row 2 \(line 3\), column 'dose': -inf is not finite"),
        (GOOD.replace("-2e1", "1e999"), r"column 'dose': inf is not finite"),
        (GOOD.replace("-2e1", "1_000"), r"column 'dose': '1_000' is text"),
        (GOOD.replace("true", "2"), r"^row 2, column 'a': 2 is not a treatment: must be 0 or 1$"),
        (GOOD.replace("true", "yes"), r"row 2 \(line 3\), column 'a': 'yes' is text"),
        (GOOD.replace("3.25", "?"), r"row 2 \(line 3\), column 'y': '\?' is text"),
        (GOOD.replace("41,", ""), r"row 2 \(line 3\) of .* has 3 cells, the header 4$"),
        (
            GOOD.replace("\n41", "\n\n\n41").replace("3.25", ""),
            r"2 \(line 5\), column 'y': the cell is empty",
        ),
        (GOOD.replace("dose", "age"), r"has two columns named 'age': rename one$"),
        (GOOD.replace(",a,", ",arm,"), r"has no column 'a'; it has: age, dose, arm, y$"),
        (
            GOOD.replace(",", ";"),
            r"has no column 'a'; it has: age;dose;a;y; line 1 names it, and semicolons",
        ),
        ("age,a,y\n1,0,2\n", r"^1 record\(s\): at least 2 are needed$"),
        ("age,a,y\n", r"^0 record\(s\): at least 2 are needed$"),
        ("a,y\n0,1\n1,2\n", "no column besides the treatment and the outcome"),
        ("", "is empty: a header line is needed"),
        (b"\x1f\x8b\x08\xff\xfe", "gzip cannot unpack it"),
        (GOOD + '"unfinished', "is not a CSV file"),
    ],
)
def test_a_bad_csv_is_named_in_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_files_and_columns_that_cannot_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.parquet").write_text(GOOD)
    for name, message in (
        *((name, "cannot be read") for name in ("absent", "absent.parquet", "")),
        ("text.parquet", "is not a Parquet file"),
    ):
        with pytest.raises(DataError, match=message):
            Dataset.read(tmp_path / name, treatment="a", outcome="y")
    for names, message in (
        ({"covariates": "age"}, "must be a list of column names"),
        ({"covariates": ["age", "y"]}, "'y' is used twice"),
        ({"outcome": "a"}, "'a' is used twice"),
        ({"covariates": ["weight"]}, "no column 'weight'"),
    ):
        with pytest.raises(DataError, match=message):
            read(tmp_path, GOOD, **names)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DeclarationError, match=r"pip install 'dp2erm-cvx\[data\]'$"):
        Dataset.read(tmp_path / "data.parquet", treatment="a", outcome="y")


@pytest.mark.parametrize(
    ("X", "a", "y", "message"),
    [
        ([1.0, 2.0], [0, 1], [1, 2], r"^X has shape \(2,\): must be \(n, p\)$"),
        (
            [[1.0], [2.0]],
            [[0], [1]],
            [1, 2],
            r"^a has shape \(2, 1\): must be \(n,\), such as its only column$",
        ),
        ([[1.0], [2.0]], [0, 1, 1], [1, 2], r"^a has 3 values for the 2 rows of X$"),
        ([[1.0], [2.0]], [0, 1], [1, 2, 3], r"^y has 3 values"),
        (np.zeros((2, 0)), [0, 1], [1, 2], "no columns"),
        ([[1.0], [np.nan]], [0, 1], [1, 2], r"^row 2, column 'x1': the value is missing \(NaN\)"),
        ([[1.0], [2.0]], [0, np.nan], [1, 2], r"^row 2, column 'a': the value is missing"),
        ([[1.0], [2.0]], [0, -1], [1, 2], r"^row 2, column 'a': -1 is not a treatment"),
        ([[1.0], [2.0]], [0, 0.5], [1, 2], r"0\.5 is not a treatment"),
        ([[1.0], [2.0]], ["0", "1"], [1, 2], r"^row 1, column 'a': '0' is text, not a number$"),
        ([[1.0], [2.0]], [0, 1], [np.inf, 2], r"^row 1, column 'y': inf is not finite$"),
        ([[1.0], [2.0]], [0, 1], [1, None], r"^row 2, column 'y': the value is missing"),
        ([[1.0], [2.0]], [0, 1], [1, 2j], "a value of type complex is not a number"),
        ([[10**400], [2.0]], [0, 1], [1, 2], "a value of type int is not a number"),
        (
            [[1.0], [2.0]],
            [0, 1],
            pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "dates or durations",
        ),
    ],
)
def test_arrays_that_hold_no_records_are_refused(
    X: object, a: object, y: object, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_arrays(X, a, y)  # type: ignore[arg-type]


def test_a_masked_entry_is_missing_whatever_it_hides_or_fills() -> None:
    for fill in (7.0, None):
        masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0], fill_value=fill)
        assert as_array(masked, "y").tolist() == [1.0, None, 3.0]
    row = np.ma.array([1.0, 2.0], mask=[1, 0])
    for read in (as_array, as_cells):
        assert read([[3.0, 4.0], row], "X").tolist() == [[3.0, 4.0], [None, 2.0]]
        assert read((row, row), "X").tolist() == [[None, 2.0]] * 2


def test_frames_that_hold_no_records_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2], "a": [0, 1], "y": [1.0, 2.0]})
    missing = frame.astype({"x": "Int64"})
    missing.loc[1, "x"] = pd.NA
    for bad, message in (
        (missing, "row 2, column 'x': the value is missing"),
        (frame.astype({"x": "str"}), "row 1, column 'x': '1' is text"),
        (frame.assign(x=["lo", "hi"]).astype({"x": "category"}), "row 1, column 'x': 'lo' is text"),
        (frame.set_axis(["x", "a", "a"], axis=1), "two columns named 'a'"),
        (frame.drop(columns="a"), "no column 'a'; it has: x, y"),
    ):
        with pytest.raises(DataError, match=message):
            Dataset.read(bad, treatment="a", outcome="y")
    frame = frame.rename(columns={"x": "x.1"})
    frame.assign(a=[True, None]).to_parquet(tmp_path / "missing.parquet")
    frame.to_parquet(tmp_path / "data.parquet")
    assert Dataset.read(tmp_path / "data.parquet", treatment="a", outcome="y").columns == ("x.1",)
    for other, message in (
        ([1, 2], "list is not a data frame"),
        ("missing.parquet", "2, column 'a': the v"),
    ):
        with pytest.raises(DataError, match=message):
            Dataset.read(
                other if message[0] == "l" else tmp_path / other, treatment="a", outcome="y"
            )


LINES = [b"x,note,a", b'1,"a, b",0', b"2,c,1", b"3,,0", b'4,"say ""no""",1']
ENCODINGS = (
    *("utf-8", "latin-1", "cp1252", "shift_jis", "euc_jp", "gb18030", "big5", "iso2022_jp"),
    *("hz", "utf-7", "idna"),
)


def cells(path, layout=PLAIN, **more):
    table = read_csv(path, layout, **more)
    return [list(row) for row in zip(*(table.cells(name) for name in table.names), strict=True)]


@settings(max_examples=40)
@given(
    st.sampled_from(ENCODINGS),
    st.binary(min_size=1, max_size=20)
    | st.sampled_from(
        [b'"', b'a,"', b'"a"b,,', b"x" * 140_000 + b',"', b"\xef\xbb\xbf", b"\x1b(B", b'1,a\rb,"c"']
    ),
)
def test_no_line_moves_another(tmp_path, encoding: str, junk: bytes) -> None:
    junk = junk.replace(b"\n", b'"')
    junk = junk if junk.strip(b"\r") else b"\x00"  # blank lines are no records
    path, layout = tmp_path / "any.csv", CsvLayout(encoding=encoding)
    path.write_bytes(b"\n".join(LINES))
    clean = cells(path, layout, ragged=True)
    path.write_bytes(b"\n".join([*LINES[:2], junk, *LINES[3:]]))
    spoiled = cells(path, layout, ragged=True)
    assert len(spoiled) == len(clean) == 4
    assert [spoiled[k] for k in (0, 2, 3)] == [clean[k] for k in (0, 2, 3)]


def test_what_gzip_packed_is_read_as_what_it_packed(tmp_path) -> None:
    path, text = tmp_path / "t.csv.gz", b"a;b\n1;2,5\n"
    path.write_bytes(gzip.compress(text))
    assert read_csv(path, guessed_layout(str(path))).cells("b").tolist() == [2.5]
    path.write_bytes(gzip.compress(text)[:-9])
    with pytest.raises(DataError, match="gzip cannot unpack it"):
        read_csv(path)


def test_what_is_no_text_is_a_mark_in_its_own_cell(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,note\n1,S\xfcd\n2,S\xc3\xbcd\n")
    assert cells(path, ragged=True) == [[1.0, "S\ufffdd"], [2.0, "Süd"]]
    (note,) = TableCells.of(read_csv(path, ragged=True)).notes()
    assert note == "Lines with bytes that are no UTF-8 text: 1; see [csv] encoding."
    with pytest.raises(DataError, match="not UTF-8 text: declare its encoding"):
        read_csv(path)
    path.write_bytes(b"x,gr\xf6\xdfe\n1,2\n")  # of the header nobody has to be protected
    with pytest.raises(DataError, match="the header is not UTF-8 text"):
        read_csv(path, ragged=True)
    path.write_bytes(b'x,"note\n1,2\n')
    with pytest.raises(DataError, match="no header"):
        read_csv(path, ragged=True)


def test_cells_of_several_lines_are_declared(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x,note\n1,"two\n\nlines"\n2,one\n')
    assert guessed_layout(str(path)) == CsvLayout(line_breaks=True)
    assert cells(path, CsvLayout(line_breaks=True), ragged=True) == [
        [1.0, "two\n\nlines"],
        [2.0, "one"],
    ]
    table = read_csv(path, ragged=True)
    np.testing.assert_array_equal(table.cells("x"), np.array(["", "", 2.0], dtype=object))
    assert "declare [csv] line_breaks = true" in TableCells.of(table).notes()[0]
    # no cell refuses the others
    path.write_text(f'x,note\n1,"{"long" * 50_000}"\n2,"a"b\n3,""""\n')
    table = read_csv(path, CsvLayout(line_breaks=True), ragged=True)
    assert list(table.cells("x")) == [1.0, "", 3.0]
    assert "has to be doubled" in TableCells.of(table).notes()[0]
    path.write_text('x,note\n1,"open\n2,one\n')
    assert guessed_layout(str(path)) == CsvLayout()
    with pytest.raises(DataError, match="not a CSV file"):
        read_csv(path, CsvLayout(line_breaks=True), ragged=True)


def test_records_end_at_line_feeds(tmp_path) -> None:
    for end in ("\n", "\r\n", "\r\r\n", "\n\n"):
        (tmp_path / "a.csv").write_bytes(end.join(["x,y", "1,2", "3,4", ""]).encode())
        assert (
            cells(tmp_path / "a.csv", ragged=True)
            == cells(tmp_path / "a.csv")
            == [[1.0, 2.0], [3.0, 4.0]]
        )
    (tmp_path / "a.csv").write_bytes(b"x,y\r1,2\r3,4\r")
    for ragged in (False, True):
        with pytest.raises(
            DataError, match="the header holds a carriage return: records end at line feeds"
        ):
            read_csv(tmp_path / "a.csv", ragged=ragged)
    for line_breaks in (False, True):
        (tmp_path / "a.csv").write_bytes(
            b'\xef\xbb\xbfx,y\n1,a\rb\n2,"\r\r"\n"\xef\xbb\xbf",c\r\n\xef\xbb\xbf\n'
        )
        read = cells(tmp_path / "a.csv", CsvLayout(line_breaks=line_breaks), ragged=True)
        assert read == [[1.0, "a\rb"], [2.0, ""], ["\ufeff", "c"], ["", ""]]
    (tmp_path / "a.csv").write_bytes("x,y\r\n1,ü\r\n".encode("utf-16"))
    assert cells(tmp_path / "a.csv", CsvLayout(encoding="utf-16"), ragged=True) == [[1.0, "ü"]]


def test_wrong_layouts_of_a_csv_file_are_refused() -> None:
    for declared in ({"line_breaks": 1}, *({"encoding": one} for one in ("base64", "hex", 3))):
        with pytest.raises(DeclarationError, match="csv: "):
            CsvLayout(**declared)


@pytest.mark.parametrize("cell", ["\r", "a\rb", "\r\r\r", "a\r,b\r", "\r1,2\r"])
def test_carriage_returns_of_a_quoted_cell_make_no_records(tmp_path, cell) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f'x,note\n1,"{cell}"\n2,b\r\n3,"c"\n4,d\n'.encode())
    for line_breaks, ragged in product((False, True), repeat=2):
        read = cells(path, CsvLayout(line_breaks=line_breaks), ragged=ragged)
        assert read == [[1.0, cell.strip()], [2.0, "b"], [3.0, "c"], [4.0, "d"]]


def test_a_transport_file_of_sas_has_texts_and_zeros() -> None:
    # that pyreadstat wrote
    table = read_table(str(Path(__file__).parents[1] / "datasets" / "drug.xpt"))
    assert table.names == ("DRUG", "AGE", "SBP")
    assert labels(table.cells("DRUG"), "DRUG") == ["VP", "none", ""]
    np.testing.assert_array_equal(table.cells("AGE"), [61.0, np.nan, 89.0])
    np.testing.assert_array_equal(table.cells("SBP"), [3.5, -1.25, 0.0])
    assert labels(table.cells("SBP"), "SBP")[2] == "0"  # as of a control, or no event


def test_a_data_set_of_sas_needs_no_stated_encoding() -> None:
    # written by SAS, without an encoding; from the tests of pandas 0.20.3 (BSD 3-Clause License)
    table = read_table(str(Path(__file__).parents[1] / "datasets" / "airline.sas7bdat"))
    np.testing.assert_array_equal(table.cells("YEAR"), np.arange(1948, 1980))
    np.testing.assert_allclose(
        [table.cells(name)[0] for name in "YWK"], [1.214, 0.243, 0.612], rtol=1e-6
    )
    frame = pd.DataFrame({"arm": [b"Sal\xe9", np.nan, b"12"]})
    for own, first in (("unknown (code=28)", "Sal\ufffd"), ("cp1252", "Sal\u00e9")):
        assert labels(_with_texts(frame, "utf-8", own)["arm"], "arm") == [first, "", "12"]


@pytest.mark.parametrize("ending", [".xlsx", ".dta"])
def test_other_files_hold_the_cells_of_a_frame(ending, tmp_path) -> None:
    if ending == ".xlsx":
        pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"age": [34.0, None, 51.5], "arm": ["a", "", "b"]})
    path = tmp_path / f"t{ending}"
    path.write_bytes(b"none of its kind")
    with pytest.raises(DataError, match=f"cannot be read: is it a {ending} file"):
        read_table(str(path))
    write = frame.to_excel if ending == ".xlsx" else frame.to_stata
    write(path, **{"index" if ending == ".xlsx" else "write_index": False})
    table = read_table(str(path))
    assert table.names == ("age", "arm")
    np.testing.assert_array_equal(numbers_or_nan(table.cells("age"), "age"), frame["age"])
    assert labels(table.cells("arm"), "arm") == ["a", "", "b"]
