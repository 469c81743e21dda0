"""What is said of files and frames that are not what was meant, and of names that nearly are
columns.
"""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, Ledger, PrivateEffect, Treatment
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.files import CsvLayout, csv_parts, guessed_layout, read_csv, read_table
from dp2erm_cvx.data.tables import read_frame
from dp2erm_cvx.diagnostics.columns import TableCells
from dp2erm_cvx.diagnostics.look import AskedAbout, look, seen_of
from dp2erm_cvx.diagnostics.look.finding import Findings
from dp2erm_cvx.errors import DataError, DeclarationError, LedgerError
from tests.command_line import run

SEMICOLONS = CsvLayout(separator=";")


def told(path, content, name="arm", layout=None):
    """The message about a column of a file."""
    path.write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_csv(path, layout or CsvLayout(), ragged=True).cells(name)
    return str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"age\tarm\n1\tyes\n",
            'line 1 names it, and tabs separate its cells: declare [csv] separator = "\\t"',
        ),
        (
            b'"age";"arm"\n1;yes\n',
            'if semicolons separate its cells, declare [csv] separator = ";"',
        ),
        (b"Export of 2024\n\nage,arm\n1,yes\n", "line 3 names it: delete the lines above it"),
        (b"Export,,\nage,arm,\n1,yes,\n", "line 2 names it: delete the lines above it"),
        (b"age,Arm\n1,yes\n", "did you mean 'Arm'?"),
        (b"age,a r m\n1,yes\n", "did you mean 'a r m'?"),
        (b"age,arms\n1,yes\n", "did you mean 'arms'?"),
        (
            b"sep=;\nage;arm\n1;yes\n",
            "its first line says that ';' separates cells: declare [csv] separator",
        ),
        (b"$FL2@(#) SPSS DATA FILE\x00", "is a file of SPSS"),
        (gzip.compress(b"X\n\x00\x00\x00", mtime=0), "is a file of R"),
        (b"\xd0\xcf\x11\xe0\xa1", "is an old Excel workbook"),
        (b"PK\x03\x04", "is a workbook or another zip archive"),
        (b"PAR1", "is a Parquet file, and not called .parquet"),
        (b'[{"age": 1}]', "is JSON"),
        (b"\xef\xbb\xbf<html><table>", "is a page of HTML"),
    ],
)
def test_a_file_that_is_not_what_was_meant_says_what_it_is(tmp_path, content, said):
    assert said in told(tmp_path / "t.csv", content)


def test_the_line_that_spreadsheets_write_above_the_header_is_no_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("sep=;\r\nage;arm\r\n1;yes\r\n2;no\r\n")
    assert guessed_layout(str(path)) == SEMICOLONS
    _, rows, readers = csv_parts(path, SEMICOLONS)
    assert rows == [2]
    for table in (read_table(str(path), SEMICOLONS, ragged=True), readers[0]()):
        assert table.names == ("age", "arm")
        assert list(table.cells("arm")) == ["yes", "no"]


def test_columns_of_one_name_are_refused_where_they_are_asked_for(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("age,note,note,,\n1,2,3,,\n")
    frame = pd.DataFrame([[1.0, 2, 3]], columns=["age", "note", "note"])
    for table in (read_csv(path, ragged=True), read_frame(frame)):
        assert list(table.cells("age")) == [1.0]
        with pytest.raises(DataError, match="two columns named 'note': rename one"):
            table.cells("note")
        cells = TableCells.of(table)
        assert [one["name"] for one in cells.report()] == ["age"]
        assert "Columns of one name, which cannot be asked for: " in cells.notes()[0]


BOOK = Codebook(Treatment("arm", "yes", "no"), "score")
DOMAIN = Domain(1.0, 5.0, ranges={"age": (0.0, 9.0)}, codebook=BOOK)
FRAME = pd.DataFrame({"age": [1.0, 2.0] * 20, "arm": ["yes", "no"] * 20, "score": [1.0, 2.0] * 20})


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (
            pl.from_pandas(FRAME).lazy(),
            "a LazyFrame holds no cells before it is read: give those of .collect()",
        ),
        (FRAME.to_dict("list"), "X is a mapping: give a data frame"),
        ("t.csv", "X is a text, and no cells: read the file first"),
        (Path("t.csv"), "X is a text, and no cells: read the file first"),
    ],
)
def test_what_holds_no_cells_is_refused_in_words(X, said):
    with pytest.raises(DataError, match=said.replace(".", r"\.")):
        PrivateEffect(DOMAIN, Budget(1.0)).fit(X, FRAME["arm"], FRAME["score"])


def test_a_column_as_a_frame_says_that_its_column_is_wanted():
    with pytest.raises(
        DataError, match=r"a has shape \(40, 1\): must be \(n,\), such as its only column"
    ):
        PrivateEffect(DOMAIN, Budget(1.0)).fit(FRAME, FRAME[["arm"]], FRAME["score"])


@pytest.mark.parametrize("bound", ["8", b"8", bytearray(b"8"), np.str_("8")])
def test_a_text_is_no_number(bound):
    with pytest.raises(DeclarationError, match=r"outcome_bound = .*: must be a number"):
        Domain(1.0, bound)


def test_an_account_that_is_not_there_is_told_before_records_are_looked_at(tmp_path, monkeypatch):
    model = PrivateEffect(DOMAIN, Budget(1.0), ledger=Ledger(tmp_path / "book.db"), dataset="trial")
    with pytest.raises(LedgerError):
        model.fit(None, None, None)
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(
        'outcome_bound = 5\noutcome_column = "score"\ntreatment = "arm"\n[ranges]\nage = [0, 9]\n'
        '[budget]\nepsilon = 1\n[ledger]\nfile = "none.db"\ndataset = "trial"\n[[effect]]\n'
    )
    assert "none.db" in run("run", "s.toml", "no_such_file.csv").stderr


@pytest.mark.parametrize("labels", [["yes", "no", "NA", "", "n/a"], ["yes", "Yes", "NO", "no "]])
def test_a_draft_proposes_two_arms_where_other_labels_are_gaps_or_spellings(
    tmp_path, monkeypatch, labels
):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"age": 1, "arm": labels, "y": 2}).to_csv("t.csv", index=False)
    run("check", "t.csv", "--draft", "d.toml", "--treatment", "arm", "--outcome", "y")
    draft = Path("d.toml").read_text()
    assert 'treated = "EDIT"' in draft
    assert 'levels = ["EDIT"]\n#' not in draft


def test_a_long_sentence_of_a_stop_is_cut_at_its_end_and_keeps_the_consent():
    with pytest.raises(DataError) as stop:
        Findings(gross=("x" * 900, "another")).refuse("--yes")
    text = str(stop.value)
    assert text.endswith(
        "and 1 more, which dp2erm check lists; nothing was charged; --yes releases all the same"
    )
    assert len(text) <= 500


def test_labels_that_differ_by_case_alone_say_how_they_are_one():
    table = read_frame(pd.DataFrame({"ward": ["North", "north ", "South"]}))
    (ward,) = TableCells.of(table).report()
    assert ward["notes"][1] == (
        "'North' and 'north' differ by case or blanks alone: [cells] ward = "
        '{ synonyms = { North = ["north"] } } makes them one'
    )
    book = Codebook(Treatment("arm", "yes", "no"), "score", levels={"ward": ["north", "North"]})
    ranges = book.ranges({"age": (0, 9)})
    domain = Domain(book.norm(ranges), 5.0, ranges=ranges, codebook=book)
    frame = FRAME.assign(ward="north")
    data = Dataset.coded(domain, frame, frame["arm"], frame["score"])
    asked = AskedAbout(domain)
    lines = look(seen_of(data, domain, read_frame(frame)), asked).lines
    assert any("'North' and 'north' are declared apart" in line for line in lines)
