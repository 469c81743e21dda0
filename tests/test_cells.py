"""Spellings, units, dates, limits and eligibility: public rules of one record's own cells."""

import datetime
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.cells import CellRule, Eligible
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.diagnostics.columns import record_counts
from dp2erm_cvx.domain_file import domain_of
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.tables import read_frame

SEX = {"synonyms": {"F": ["female", "Frau"], "M": ["male", "Mann"], "": ["unknown"]}}
UNITS = {"units": {"mg/dL": 1, "umol/L": 0.0113}, "unit_column": "unit"}
DECLARED: dict[str, Any] = {
    "outcome_bound": 40,
    "outcome_column": "sbp",
    "treatment": {"column": "drug", "treated": "vasopressor", "control": "usual care"},
    "ranges": {"age": [18, 90], "creatinine": [0.3, 10], "admitted": [0, 730]},
    "levels": {"sex": ["F", "M"]},
    "cells": {
        "sex": SEX,
        "drug": {"synonyms": {"vasopressor": ["VP", "noradrenaline"], "usual care": ["none"]}},
        "age": {"censored": True},
        "creatinine": UNITS,
        "admitted": {"since": datetime.date(2024, 1, 1), "date_format": "%d.%m.%Y"},
        "sbp": {"units": {"": 1, "mmHg": 1, "kPa": 7.50062}, "unit_column": "pressure"},
    },
    "eligible": ["18 <= age", 'ward != Hospice and ward in [ICU, "Step down"]'],
}
DOMAIN = domain_of(DECLARED)
NAMES = ("age", "sex", "creatinine", "unit", "admitted", "ward", "drug", "sbp", "pressure")
ROWS = [
    (">89", " frau", 113, "umol/L", "31.01.2024", "ICU", "vp", "10", "mmHg"),
    ("55", "MALE", "1.2", "mg/dL", "01.01.2024", "Step  down", "Usual Care", 1, "kPa"),
    ("17", "F", 1, "mg/dL", "01.01.2024", "ICU", "none", 5, ""),
    ("20", "F", 1, "mg/dL", "01.01.2024", "Hospice", "none", 5, None),
    ("", "x", 1, "g/L", "2024-01-01", "ICU", "NORADRENALINE", 7, "psi"),
    ("90+", "Mann", 1, None, None, None, "none", 7, "mmHg"),
]


def frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES, dtype=object)


def coded(rows: list[tuple[Any, ...]]) -> Dataset:
    table = frame(rows)
    return Dataset.coded(DOMAIN, table, table["drug"], table["sbp"])


def test_records_by_hand() -> None:
    data = coded(ROWS)
    assert data.columns == ("age", "creatinine", "admitted", "sex=F", "sex=M")
    middle = [54, 5.15, 365, 0, 0]
    np.testing.assert_allclose(
        data.X, [[89, 113 * 0.0113, 30, 1, 0], [55, 1.2, 0, 0, 1], middle, middle, middle, middle]
    )
    assert data.a.tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(data.y, [10, 7.50062, 0, 0, 0, 0])
    assert data.sampling is not None
    assert data.sampling.tolist() == [1, 1, 0, 0, 0, 0]  # a child, a hospice, no age, no ward
    counts = record_counts(read_frame(frame(ROWS)), public=DOMAIN, columns=data.columns)
    assert list(counts.arms.values()) == [1, 1]
    assert (counts.missing, counts.silent) == (0, 4)
    assert counts.unreadable == {"drug": 0, "sbp": 1, "age": 1, "creatinine": 2, "admitted": 2, "sex": 1}


def test_no_record_moves_another() -> None:
    whole = coded(ROWS)
    for place, row in enumerate(ROWS):
        for order in ([row, *ROWS[:2]], [row, row], [row, *ROWS[::-1]]):
            alone = coded(order)
            for name in "Xay":
                assert getattr(alone, name)[0].tobytes() == getattr(whole, name)[place].tobytes()
            assert alone.sampling is not None
            assert whole.sampling is not None
            assert alone.sampling[0] == whole.sampling[place]


def test_what_is_declared_comes_back_from_json_and_is_told() -> None:
    again = Domain.from_dict(json.loads(json.dumps(DOMAIN.to_dict())))
    assert again == DOMAIN
    assert hash(again) == hash(DOMAIN)
    assert again.mass == 0.8
    assert DOMAIN.codebook is not None
    told = DOMAIN.codebook.told()
    parts = "F is also female, Frau|days since 2024-01-01|umol/L times 0.0113|fulfil 18 <= age does not"
    assert [part for part in parts.split("|") if part not in told] == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("age >= 18", "adult old"),
        ("18 <= age < 65", "adult"),
        ("65 > age", "child adult"),
        ("age == 17 or age == 90", "child old"),
        ("age > 17 and ward == ICU", "adult"),
        ("ward != ICU", "child"),
        ('ward in ["Step down", ICU] and age > -1', "child adult"),
        ('ward == ""', "old unaged"),
        ('"length of stay" <= 2.5', "child unaged"),
    ],
)
def test_a_condition_is_one_of_comparisons(text: str, kept: str) -> None:
    table = {
        "age": [17, "30", 90.0, None],
        "ward": ["Step  down", "ICU", "", None],
        "length of stay": [1, 3, math.nan, 2.5],
    }
    found = Eligible(text).of(table.__getitem__)
    assert " ".join(np.array(["child", "adult", "old", "unaged"])[found]) == kept


@pytest.mark.parametrize(
    "text",
    [
        *("age", "age >=", "not age > 3", "age > ward", "age > 3 > 2", "3 > 2", "age in 3", "age in []"),
        *("age == [1]", "age is 3", "ward > 'ICU'", "f(age) > 3", "age + 1 > 3", "age > True", "age > 1e999"),
        *("age.real > 1", "__import__('os').system('true') == 0", "(" * 150, "age > 3\nage", ""),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(DeclarationError, match="eligible") as caught:
        domain_of({**DECLARED, "eligible": [text]})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({}, "cells.x.: nothing declared"),
        ({"synonym": {}}, "unknown name 'synonym'; did you mean synonyms"),
        ({"synonyms": {"F": ["m"], "M": []}}, "'M' stands for two labels"),
        ({"synonyms": {"F": "f"}}, "must list texts"),
        ({"synonyms": 3}, "must have one entry per label"),
        ({"units": {"kg": 1}}, "declare both, or neither"),
        ({"unit_column": "u"}, "declare both, or neither"),
        ({"units": {"kg": 0}, "unit_column": "u"}, "must be greater than 0"),
        ({"since": "then"}, "must be a date, such as 2020-01-31"),
        ({"date_format": "%d"}, "needs since beside it"),
        ({"censored": 1}, "must be true or false"),
        ({"censored": True, "since": "2020-01-31"}, "since and censored declared"),
        (3, "must have names"),
        ({"eligible_share": 2}, "eligible_share = 2: must be at most 1"),
        ({"eligible": "age >= 18"}, "eligible.*: must be a list"),
    ],
)
def test_a_rule_that_says_nothing_or_too_much_is_refused(cells: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        domain_of({**DECLARED, **(cells if "eligible" in message else {"cells": {"x": cells}})})
    assert "\n" not in str(caught.value)


def test_dates_are_days_whatever_type_they_have() -> None:
    rule = CellRule(since="2024-01-01")
    cells = ["2024-02-01", "2024-01-01 12:00", datetime.date(2023, 12, 31), np.datetime64("2024-01-03")]
    found = rule.read(np.array([*cells, "31.1.2024", 7, None], dtype=object), "d", {}.__getitem__)
    np.testing.assert_array_equal(found, [31, 0.5, -1, 2] + [math.nan] * 3)
