import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import tables
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.tables import as_array, as_cells

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
            for one in (arrow, frame, frame.astype(object), frame.convert_dtypes(), tmp_path / "data.parquet")
        ),
        Dataset.from_arrays(frame[["age", "dose"]], frame["a"], frame["y"]),
        Dataset.from_arrays(
            [[30, Decimal("1.5")], [41, -20], [52, 0]], [0, 1.0, 1], [2, 3.25, -1], ["age", "dose"]
        ),
    ):
        assert data.columns == expected.columns
        for name in "Xay":
            np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))


def test_arrays_are_read_only_and_finite_doubles_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_ROWS", 2)
    X = np.array([[0.0, -0.0], [1e300, 5e-324], [-1.0, 2.0]])
    data = Dataset.from_arrays(X, [0, 1, 1], [1, 2, 3])
    assert np.shares_memory(data.X, X)
    assert X.flags.writeable
    for other in (np.asfortranarray(X), X.astype(">f8"), X.astype(object), np.repeat(X, 2, axis=0)[::2]):
        copied = Dataset.from_arrays(other, [0, 1, 1], [1, 2, 3]).X
        assert not np.shares_memory(copied, other)
        assert copied.flags.c_contiguous
        assert copied.tobytes() == X.tobytes()
    for bad, place in ((np.nan, (2, 1)), (np.inf, (0, 0))):
        for wrong in (X.copy(), X.copy(order="F"), X.astype(object)):
            wrong[place] = bad
            with pytest.raises(DataError, match=f"row {place[0] + 1}, column 'x{place[1] + 1}'"):
                Dataset.from_arrays(wrong, [0, 1, 1], [1, 2, 3])
    for array in (data.X, data.a, data.y):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("-2e1", "abc"), r"^row 2 \(line 3\), column 'dose': 'abc' is text, not a number$"),
        (GOOD.replace("-2e1", ""), r"2 \(line 3\), column 'dose': the cell is empty; nothing is imputed$"),
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
        (GOOD.replace(",", ";"), r"has no column 'a'; it has: age;dose;a;y$"),
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


def test_files_and_names_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ([[1.0], [2.0]], [[0], [1]], [1, 2], r"^a has shape \(2, 1\): must be \(n,\)$"),
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
        ([[1.0], [2.0]], [0, 1], pd.to_datetime(["2020-01-01", "2020-01-02"]), "dates or durations"),
    ],
)
def test_bad_arrays(X: object, a: object, y: object, message: str) -> None:
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


def test_bad_frames(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2], "a": [0, 1], "y": [1.0, 2.0]})
    missing = frame.astype({"x": "Int64"})
    missing.loc[1, "x"] = pd.NA
    for bad, message in (
        (missing, "row 2, column 'x': the value is missing"),
        (frame.astype({"x": "str"}), "row 1, column 'x': '1' is text"),
        (frame.assign(x=["lo", "hi"]).astype({"x": "category"}), "row 1, column 'x': 'lo' is text"),
        (frame.set_axis(["x", "y", "y"], axis=1), "two columns named 'y'"),
        (frame.drop(columns="a"), "no column 'a'; it has: x, y"),
    ):
        with pytest.raises(DataError, match=message):
            Dataset.read(bad, treatment="a", outcome="y")
    frame = frame.rename(columns={"x": "x.1"})
    frame.assign(a=[True, None]).to_parquet(tmp_path / "missing.parquet")
    frame.to_parquet(tmp_path / "data.parquet")
    assert Dataset.read(tmp_path / "data.parquet", treatment="a", outcome="y").columns == ("x.1",)
    for other, message in (([1, 2], "list is not a data frame"), ("missing.parquet", "2, column 'a': the v")):
        with pytest.raises(DataError, match=message):
            Dataset.read(other if message[0] == "l" else tmp_path / other, treatment="a", outcome="y")
