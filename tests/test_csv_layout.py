"""A record of a CSV file is one line: whatever a line holds, it is the only one that it spoils."""

import gzip
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.diagnostics.columns import TableCells
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.files import PLAIN, CsvLayout, _with_texts, guessed_layout, read_csv, read_table
from dp2erm_cvx.tables import labels, numbers_or_nan

LINES = [b"x,note,a", b'1,"a, b",0', b"2,c,1", b"3,,0", b'4,"say ""no""",1']
ENCODINGS = (
    *("utf-8", "latin-1", "cp1252", "shift_jis", "euc_jp", "gb18030", "big5", "iso2022_jp"),
    *("hz", "utf-7", "idna"),
)


def cells(path, layout=PLAIN, **more):
    table = read_csv(path, layout, **more)
    return [list(row) for row in zip(*(table.cells(name) for name in table.names), strict=True)]


@settings(max_examples=80)
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
    assert cells(path, CsvLayout(line_breaks=True), ragged=True) == [[1.0, "two\n\nlines"], [2.0, "one"]]
    table = read_csv(path, ragged=True)
    np.testing.assert_array_equal(table.cells("x"), np.array(["", "", 2.0], dtype=object))
    assert "declare [csv] line_breaks = true" in TableCells.of(table).notes()[0]
    path.write_text(f'x,note\n1,"{"long" * 50_000}"\n2,"a"b\n3,""""\n')  # no cell refuses the others
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
        assert cells(tmp_path / "a.csv", ragged=True) == cells(tmp_path / "a.csv") == [[1.0, 2.0], [3.0, 4.0]]
    (tmp_path / "a.csv").write_bytes(b"x,y\r1,2\r3,4\r")
    for ragged in (False, True):
        with pytest.raises(DataError, match="the header holds a carriage return: records end at line feeds"):
            read_csv(tmp_path / "a.csv", ragged=ragged)
    for line_breaks in (False, True):
        (tmp_path / "a.csv").write_bytes(
            b'\xef\xbb\xbfx,y\n1,a\rb\n2,"\r\r"\n"\xef\xbb\xbf",c\r\n\xef\xbb\xbf\n'
        )
        read = cells(tmp_path / "a.csv", CsvLayout(line_breaks=line_breaks), ragged=True)
        assert read == [[1.0, "a\rb"], [2.0, ""], ["\ufeff", "c"], ["", ""]]
    (tmp_path / "a.csv").write_bytes("x,y\r\n1,ü\r\n".encode("utf-16"))
    assert cells(tmp_path / "a.csv", CsvLayout(encoding="utf-16"), ragged=True) == [[1.0, "ü"]]


def test_what_no_file_can_have() -> None:
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
    table = read_table(str(Path(__file__).parent / "datasets" / "drug.xpt"))  # that pyreadstat wrote
    assert table.names == ("DRUG", "AGE", "SBP")
    assert labels(table.cells("DRUG"), "DRUG") == ["VP", "none", ""]
    np.testing.assert_array_equal(table.cells("AGE"), [61.0, np.nan, 89.0])
    np.testing.assert_array_equal(table.cells("SBP"), [3.5, -1.25, 0.0])
    assert labels(table.cells("SBP"), "SBP")[2] == "0"  # as of a control, or no event


def test_a_data_set_of_sas_needs_no_stated_encoding() -> None:
    # written by SAS, without an encoding; from the tests of pandas 0.20.3 (BSD 3-Clause License)
    table = read_table(str(Path(__file__).parent / "datasets" / "airline.sas7bdat"))
    np.testing.assert_array_equal(table.cells("YEAR"), np.arange(1948, 1980))
    np.testing.assert_allclose([table.cells(name)[0] for name in "YWK"], [1.214, 0.243, 0.612], rtol=1e-6)
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
