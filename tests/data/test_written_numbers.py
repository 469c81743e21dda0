"""Numbers as exports write them: thousands, percent signs, decimal commas and codes of missing
cells.
"""

import math

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Codebook, Treatment
from dp2erm_cvx.data.cells import CellRule
from dp2erm_cvx.data.dataset import DatasetBlock
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.files import CsvLayout, csv_parts, read_csv
from dp2erm_cvx.data.tables import numbers_or_nan, read_frame
from dp2erm_cvx.diagnostics.columns import TableCells, record_counts
from dp2erm_cvx.diagnostics.unread import advice_on, sign_of, signs_of
from dp2erm_cvx.errors import DeclarationError

NAN = math.nan


def read(rule, cells):
    """The numbers of cells of a data frame."""
    table = read_frame(pd.DataFrame({"x": cells}))
    return numbers_or_nan(Codebook(cells={"x": rule}).read(table)("x"), "x").tolist()


@pytest.mark.parametrize(
    ("rule", "cells", "numbers"),
    [
        ({"thousands": "."}, ["1.234", "987", "-1.234.567,5"], [1234, 987, -1234567.5]),
        ({"thousands": "."}, ["1.23", "12.34.567"], [NAN, NAN]),
        ({"thousands": ","}, ["1,234.5", "1,23", "0.5"], [1234.5, NAN, 0.5]),
        ({"thousands": "'"}, ["1'234", "1\u2019234.5"], [1234, 1234.5]),
        ({"thousands": " ", "decimal": ","}, ["1 234,5", "1\u00a0234", "1\u202f234"], [1234.5, 1234,
        1234]),
        ({"decimal": ","}, ["3,5", "3.5", "\u22123,5", "1,2,3"], [3.5, NAN, -3.5, NAN]),
        ({"decimal": "."}, ["\u22120.36", "\u20131", "2"], [-0.36, -1, 2]),
        ({"percent": 1}, ["12%", "12.5 %", "7"], [12, 12.5, 7]),
        ({"percent": 0.01, "decimal": ","}, ["50%", "12,5 %", "0,5"], [0.5, 0.125, 0.5]),
        ({"missing_codes": [-9, 999]}, ["-9", "-9.0", "999", "99", "1e2"], [NAN, NAN, NAN, 99,
        100]),
        ({"missing_codes": [9999], "thousands": "."}, ["9.999", "1.000"], [NAN, 1000]),
        ({"missing_codes": ["unknown"], "censored": True}, ["unknown", ">89"], [NAN, 89]),
        ({"missing_codes": ["01.01.1900"], "since": "2020-01-01", "date_format": "%d.%m.%Y"},
         ["01.01.1900", "02.01.2020"], [NAN, 1]),
    ],
)  # fmt: skip
def test_numbers_are_read_as_they_are_declared_to_be_written(rule, cells, numbers):
    np.testing.assert_allclose(read(rule, cells), numbers, rtol=1e-15)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"thousands": ";"}, "must be one of"),
        ({"thousands": ".", "decimal": "."}, "is the decimal sign as well"),
        ({"percent": True}, "must be 1, where 12% counts as 12, or 0.01, where it counts as 0.12"),
        ({"decimal": ";"}, 'must be "." or ","'),
        ({"missing_codes": -9}, "must be a list"),
        ({"missing_codes": [""]}, "is missing by itself"),
        (
            {"synonyms": {"a": ["b"]}, "percent": 1},
            "synonyms and percent declared: a column holds labels",
        ),
        ({}, "nothing declared"),
    ],
)
def test_a_rule_that_no_cell_can_follow_is_refused(rule, told):
    with pytest.raises(DeclarationError, match=told):
        CellRule(**rule)


def test_codes_are_missing_before_units_are_applied():
    rule = {"units": {"mg": 1, "umol": 0.01131}, "unit_column": "u", "missing_codes": [-99]}
    table = read_frame(pd.DataFrame({"x": [-99, 88.4, 2], "u": ["umol", "umol", "mg"]}))
    book = Codebook(cells={"x": rule})
    np.testing.assert_allclose(book.read(table)("x"), [NAN, 88.4 * 0.01131, 2.0])


def test_codes_of_labels_are_missing_and_other_cells_stay_what_they_are():
    table = read_frame(pd.DataFrame({"x": ["NA", "north", "?"]}))
    read = Codebook(cells={"x": {"missing_codes": ["?", "na"]}}).read(table)("x")
    assert list(read) == ["", "north", ""]
    plain = pd.DataFrame({"x": [1.5, 2.5]})
    assert (
        Codebook(cells={"x": {"missing_codes": [-9]}}).read(read_frame(plain))("x").dtype
        == np.float64
    )


def test_synonyms_leave_a_text_that_is_no_number_of_its_file_a_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x;y\n1.234;a\n2,5;b\n-9;c\n")
    table = read_csv(path, CsvLayout(separator=";", decimal=","))
    for rule in ({"synonyms": {"": ["-9"]}}, {"missing_codes": [-9]}):
        read = Codebook(cells={"x": rule}).read(table)("x")
        np.testing.assert_array_equal(numbers_or_nan(read, "x"), [NAN, 2.5, NAN])


WRITTEN = "age,cost,arm,score\n" + "".join(
    f"{40 + k % 30},1.{k % 10}00,{'yes' if k % 2 else 'no'},{k % 7}%\n" for k in range(60)
)
BOOK = Codebook(
    Treatment("arm", "yes", "no"),
    "score",
    cells={"cost": {"thousands": "."}, "score": {"percent": 1}},
)
RANGES = {"age": (30, 80), "cost": (0, 5000)}
DOMAIN = Domain(BOOK.norm(RANGES), 10.0, ranges=RANGES, codebook=BOOK)


def test_a_file_is_read_as_it_is_written_whole_and_in_parts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(WRITTEN)
    _, _, readers = csv_parts(path, CsvLayout())
    for table in (read_csv(path, ragged=True), readers[0]()):
        a, y = (BOOK.raw_cells(table, name) for name in ("arm", "score"))
        data = DatasetBlock.coded(DOMAIN, table, a, y, DOMAIN.columns)
        np.testing.assert_array_equal(data.X[:, 1], [1000.0 + 100.0 * (k % 10) for k in range(60)])
        np.testing.assert_array_equal(data.y, [float(k % 7) for k in range(60)])
        assert data.sampling is not None
        assert data.sampling.all()
        counts = record_counts(table, public=DOMAIN, columns=data.columns)
        assert not any(counts.unreadable.values())
        assert [one["odd"] for one in TableCells.of(table, BOOK, RANGES).report()] == [0, 0, 0, 0]


def test_the_declaration_is_part_of_the_domain_and_of_its_words():
    assert Domain.from_dict(DOMAIN.to_dict()) == DOMAIN
    assert "cost: a point separates thousands; the decimal sign is a comma" in BOOK.in_words()
    words = Codebook(cells={"x": {"missing_codes": [-9, 99]}, "y": {"percent": 0.01}}).in_words()
    assert "x: -9, 99 are missing" in words
    assert "y: 12% counts as 0.12" in words


@pytest.mark.parametrize(
    ("cells", "kind", "advice"),
    [
        (["\u22123.5", "\u22121"], "minus", '[cells] score = { decimal = "." }'),
        (["12%", "3,5 %"], "percent", "[cells] score = { percent = 0.01 }"),
        (["1,234", "12'345"], "groups", '[cells] score = { thousands = "," }'),
        (["3,5", "12,25"], "comma", '[cells] score = { decimal = "," }'),
        (["<5", "90+"], "limit", "[cells] score = { censored = true }"),
        (
            ["2020-01-31", "31.12.2020", "2020/1/5"],
            "date",
            "[cells] score = { since = 2020-01-31 }",
        ),
        (["12 kg", "$5", "7mg/dL"], "unit", "a unit or a currency"),
        (["high", "low"], "words", "missing_codes under [cells]"),
        ([f"note {k} on it" for k in range(30)], "words", "other texts"),
    ],
)
def test_cells_that_are_not_read_say_what_to_declare_by_their_kind(cells, kind, advice):
    assert {sign_of(cell) for cell in cells} == {kind}
    assert advice in advice_on("score", signs_of(dict.fromkeys(cells, 5)))


def test_texts_that_a_rule_does_not_read_are_unread_and_not_empty():
    book = Codebook(Treatment("arm", "yes", "no"), "score", cells={"day": {"since": "2020-01-01"}})
    ranges = {"day": (0, 400)}
    domain = Domain(book.norm(ranges), 1.0, ranges=ranges, codebook=book)
    days = ["2020-02-01", "03.02.2020", "", "04.02.2020"]
    table = read_frame(pd.DataFrame({"day": days, "arm": "yes", "score": 1.0}))
    counts = record_counts(table, public=domain, columns=("day",))
    assert (counts.unreadable["day"], counts.blank["day"]) == (3, 1)
    assert counts.signs["day"]["date"] == 2
    (day, *_) = TableCells.of(table, book, ranges).report()
    assert (day["missing"], day["odd"]) == (1, 2)
    assert "another form than is declared" in day["notes"][0]
