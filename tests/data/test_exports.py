"""Tables as people have reported them to other projects, read from a file: the right numbers, or a
stop.
"""

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain_file import domain_of
from dp2erm_cvx.data.files import CsvLayout, read_csv
from dp2erm_cvx.diagnostics.look import AskedAbout, look, seen_of

N = 200


def table():
    """Records whose severity is a number from 0 to 9.95, in random order."""
    rng = np.random.default_rng(0)
    severity = rng.permutation(np.arange(N) / 20)
    arm = np.where(rng.random(N) < 0.5, "yes", "no")
    score = np.where(arm == "yes", 3.0, 0.0) + rng.normal(0, 4, N)
    return pd.DataFrame({"severity": severity, "arm": arm, "score": score.round(2)})


def looked_at(path, frame, cells, high, layout=None):
    """The severities that are read of a file, and what stops its release."""
    path.write_text(
        frame if isinstance(frame, str) else frame.to_csv(index=False), encoding="utf-8"
    )
    declared = {
        "outcome_column": "score",
        "outcome_bound": 20.0,
        "treatment": {"column": "arm", "treated": "yes", "control": "no"},
        "ranges": {"severity": [0.0, high]},
    }
    domain = domain_of(declared | ({"cells": cells} if cells else {}))
    read = read_csv(path, layout or CsvLayout(), ragged=True)
    book = domain.codebook
    data = Dataset.coded(domain, read, *(book.raw_cells(read, name) for name in ("arm", "score")))
    found = look(seen_of(data, domain, read), AskedAbout(domain))
    return data.X[:, 0], found


def european(number):
    """1.234,56"""
    return f"{number:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")


DAYS = pd.Timestamp("2020-01-01")
#: How the severity is written, the declaration that reads it, its factor, and what a stop says
#: without it.
WRITTEN = {
    "points and a comma": (
        lambda x: european(1000 * x),
        {"thousands": "."},
        1000.0,
        "a separator of thousands",
    ),
    "blanks": (
        lambda x: f"{1000 * x:,.0f}".replace(",", " "),
        {"thousands": " "},
        1000.0,
        "thousands",
    ),
    "quoted commas": (lambda x: f"{1000 * x:,.0f}", {"thousands": ","}, 1000.0, "thousands"),
    "underscores": (lambda x: f"{round(1000 * x):_}", {"thousands": "_"}, 1000.0, "thousands"),
    "percent signs": (
        lambda x: f"{10 * x:.1f}%",
        {"percent": 1},
        10.0,
        "a percent sign: [cells] severity",
    ),
    "days": (
        lambda x: (DAYS + pd.Timedelta(days=round(20 * x))).strftime("%d.%m.%Y"),
        {"since": "2020-01-01", "date_format": "%d.%m.%Y"},
        20.0,
        "a date: [cells] severity = { since",
    ),
    "limits": (lambda x: f"<{x}", {"censored": True}, 1.0, "a limit such as <5"),
    "minus signs": (lambda x: f"\u2212{x}", {"decimal": "."}, -1.0, "a minus sign that is none"),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_column_stops_as_it_is_written_and_is_read_as_it_is_declared(tmp_path, kind):
    write, cells, factor, said = WRITTEN[kind]
    plain = table()
    frame = plain.assign(severity=[write(x) for x in plain["severity"]])
    _, found = looked_at(tmp_path / "t.csv", frame, None, 10.0 * abs(factor))
    assert [said in line for line in found.gross] == [True]
    read, found = looked_at(tmp_path / "t.csv", frame, {"severity": cells}, 10.0 * abs(factor))
    np.testing.assert_allclose(read, factor * plain["severity"], rtol=1e-12, atol=0.01)
    if factor > 0:
        assert not found.gross


def test_errors_of_a_spreadsheet_stop_and_are_declared_as_missing(tmp_path):
    plain = table()
    frame = plain.assign(severity=plain["severity"].astype(object))
    frame.loc[::10, "severity"] = "#DIV/0!"
    _, found = looked_at(tmp_path / "t.csv", frame, None, 10.0)
    assert "missing_codes under [cells]" in found.gross[0]
    codes = {"severity": {"missing_codes": ["#DIV/0!"]}}
    read, found = looked_at(tmp_path / "t.csv", frame, codes, 10.0)
    assert not found.gross
    assert (read[::10] == 5.0).all()


def test_a_factor_of_percent_signs_that_does_not_fit_the_range_stops(tmp_path):
    frame = table().assign(severity=lambda own: [f"{10 * x:.1f}%" for x in own["severity"]])
    _, found = looked_at(tmp_path / "t.csv", frame, {"severity": {"percent": 0.01}}, 100.0)
    assert "within a hundredth of the declared range" in found.gross[0]


@pytest.mark.parametrize("ending", ["", ",,", ",note,note"])
def test_columns_without_a_name_or_of_one_name_are_no_matter_where_nothing_asks_for_them(
    tmp_path, ending
):
    plain = table()
    header, *lines = plain.to_csv(index=False).splitlines()
    commas = "," * ending.count(",")
    text = "\n".join([header + ending, *(line + commas for line in lines)]) + "\n"
    read, found = looked_at(tmp_path / "t.csv", text, None, 10.0)
    np.testing.assert_array_equal(read, plain["severity"])
    assert not found.gross


def test_codes_of_missing_numbers_are_a_line_that_says_how_they_are_declared(tmp_path):
    plain = table()
    frame = plain.assign(severity=plain["severity"].where(np.arange(N) % 10 > 0, -9.0))
    _, found = looked_at(tmp_path / "t.csv", frame, None, 10.0)
    assert any("-9 stand there" in line and "missing_codes" in line for line in found.lines)
    read, found = looked_at(tmp_path / "t.csv", frame, {"severity": {"missing_codes": [-9]}}, 10.0)
    assert (read[::10] == 5.0).all()
    assert not any("-9" in line for line in (*found.gross, *found.lines))
