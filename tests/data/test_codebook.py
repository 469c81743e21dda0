"""The public rule that makes numbers of the cells of one record: spellings, units, dates,
eligibility.
"""

import datetime
import json
import math
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM, load_domain, read_release
from dp2erm_cvx.data.cells import CellRule, Eligible, Treatment
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain_file import declared_layout, domain_of, of_covariates
from dp2erm_cvx.data.tables import labels, read_frame
from dp2erm_cvx.diagnostics.columns import record_counts
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.release.rule import effects

DECLARED: dict[str, Any] = {
    "outcome_bound": 25.0,
    "outcome_center": 50.0,
    "outcome_column": "score",
    "treatment": {"column": "arm", "treated": "yes", "control": "no"},
    "ranges": {"age": [30, 80], "severity": [0, 10]},
    "levels": {"region": ["N", "S", "other"], "smoker": [True, False, ""], "grade": [1, 2.5]},
    "missing": {"severity": 2.5},
    "units": {"score": "points"},
}
DOMAIN = domain_of(DECLARED)
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.sampled_from(
        ["N", "S", "", " N ", "nan", "1", "2.50", "1,5", "yes", "no", "TRUE", "1e400", "é", "other"]
    ),
    st.sampled_from(
        [pd.NA, pd.NaT, b"N", np.float32(3), np.datetime64("2020-01-01"), 1j, object(), [1], ()]
    ),
    st.text(max_size=3),
)
ROWS = st.lists(st.tuples(*[CELLS] * 7), min_size=2, max_size=5)
RAW = ("age", "severity", "region", "smoker", "grade")


def coded(rows: list[tuple[Any, ...]], domain: Domain = DOMAIN) -> Dataset:
    columns = [pd.Series(list(column), dtype=object) for column in zip(*rows, strict=True)]
    return Dataset.coded(
        domain, pd.DataFrame(dict(zip(RAW, columns, strict=False))), columns[5], columns[6]
    )


LOGS = {"log": ["age", "severity"], "ranges": {"age": [1, 100], "severity": [0.01, 100]}}
LOGGED = domain_of({**DECLARED, **LOGS})
WEIGHTS = {"column": "wt", "largest": 3, "missing": 0.5, "mean": 1}
SAMPLED = domain_of({**DECLARED, "sampling_weights": WEIGHTS})


@pytest.mark.parametrize(
    ("cell", "weight"),
    [
        (2, 2.0),
        ("1.5", 1.5),
        (9e300, 3.0),
        (-1, 0.0),
        (True, 1.0),
        *((cell, 0.5) for cell in (None, "", "many", math.nan, math.inf, "1e400", pd.NA, 1j, [1])),
    ],
)
def test_a_sampling_weight_is_a_number_within_its_bound(cell: Any, weight: float) -> None:
    column = pd.Series([cell, 1.0, 3.0], dtype=object)
    others = {"age": [40, 50, 60], "severity": 1, "region": "N", "smoker": True, "grade": 1}
    data = Dataset.coded(
        SAMPLED, pd.DataFrame({**others, "wt": column}), ["yes", "no", "?"], [50, 51, 52]
    )
    assert data.sampling is not None
    # a record without treatment stands for nobody
    assert data.sampling.tolist() == [weight, 1.0, 0.0]
    records = SAMPLED.records(data.X, data.a, data.y, data.sampling)
    assert records.counts.tolist() == [weight / 3, 1 / 3, 0.0]
    assert not records.counts.flags.writeable
    assert "wt" not in data.columns
    assert Domain.from_dict(json.loads(json.dumps(SAMPLED.to_dict()))) == SAMPLED


@settings(max_examples=15)
@given(ROWS, ROWS, st.sampled_from([DOMAIN, LOGGED]))
def test_whatever_cells_hold_a_record_of_the_universe_comes_of_its_own_row(
    rows, others, domain
) -> None:
    data = coded(rows, domain)
    records = domain.records(data.X, data.a, data.y)
    assert np.all(np.linalg.norm(records.X, axis=1) <= domain.covariate_bound)
    assert np.all(np.abs(records.y) <= domain.outcome_bound)
    assert np.all(np.abs(records.X) <= 1.0)
    assert set(records.a.tolist()) <= {0, 1}
    assert data.columns == domain.columns
    # the first record stays bit for bit where all the others change, and where they change places
    again = coded([rows[0], *others], domain)
    permuted = coded(rows[::-1], domain)
    for name in "Xay":
        assert getattr(again, name)[0].tobytes() == getattr(data, name)[0].tobytes()
        assert getattr(permuted, name)[::-1].tobytes() == getattr(data, name).tobytes()


def test_a_table_becomes_the_records_computed_by_hand() -> None:
    rows = [
        (55, 5.0, "N", True, 1, "yes", 60.0),
        (None, "", "Q", None, "2.5", "no", "40"),
        (99, 2.5, " S", "false", 3, "no", 999),
        (55, 5.0, "N", True, 1, "maybe", 60.0),
        (55, 5.0, "N", True, 1, "yes", "n/a"),
    ]
    data = coded(rows)
    names = ("age", "severity", "severity=missing", "region=N", "region=S", "region=other")
    assert data.columns == (
        *names,
        "smoker=1",
        "smoker=0",
        "smoker=missing",
        "grade=1",
        "grade=2.5",
    )
    lost = [55, 5, 0] + [0] * 8
    expected = [
        [55, 5, 0, 1, 0, 0, 1, 0, 0, 1, 0],
        [55, 2.5, 1, 0, 0, 1, 0, 0, 1, 0, 1],
        [99, 2.5, 0, 0, 1, 0, 0, 1, 0, 0, 0],
        lost,
        [55, 5, 0, 1, 0, 0, 1, 0, 0, 1, 0],
    ]
    np.testing.assert_array_equal(data.X, expected)
    np.testing.assert_array_equal(data.a, [1, 0, 0, 0, 1])
    np.testing.assert_array_equal(data.y, [60, 40, 999, 50, 50])
    failed = domain_of({**DECLARED, "missing": {"score": 30}, "ranges": {**DECLARED["ranges"]}})
    np.testing.assert_array_equal(coded(rows, failed).y, [60, 40, 999, 30, 30])
    assert (data.treatment, data.outcome) == ("arm", "score")
    records = DOMAIN.records(data.X, data.a, data.y)
    np.testing.assert_array_equal(records.X[3], 0.0)
    np.testing.assert_array_equal(records.y[3:], 0.0)
    assert records.X[2, 0] == 1.0
    # the second record: severity is missing at 2.5, which scales to -.5
    np.testing.assert_array_equal(records.X[1], [0, -0.5, 1, 0, 0, 1, 0, 0, 1, 0, 1])


def test_a_logarithm_is_that_of_each_number_and_all_else_is_declared_in_its_own_units() -> None:
    ages, severities = [10, None, 0, -5, 1000, "x"], [1, "", 0.0001, 100, "10", None]
    data = coded(
        [(*pair, "N", True, 1, "yes", 60.0) for pair in zip(ages, severities, strict=True)], LOGGED
    )
    assert data.columns[:3] == ("log(age)", "log(severity)", "severity=missing")
    X = LOGGED.records(data.X, data.a, data.y).X
    # [1, 100] maps to [-1, 1] by powers of ten, the middle is 10; a missing severity is 2.5 in
    # [0.01, 100]
    np.testing.assert_allclose(X[:, 0], [0, 0, -1, -1, 1, 0], atol=1e-15)
    constant = math.log10(2.5) / 2
    np.testing.assert_allclose(X[:, 1], [0, constant, -1, 1, 0.5, constant], atol=1e-15)
    assert pytest.approx(math.sqrt(1 + 1 + constant**2 + 3)) == LOGGED.covariate_bound
    old = domain_of({**DECLARED, **LOGS, "eligible": ["age >= 10"], "center": {"age": 40}})
    assert old.center == {"log(age)": math.log(40)}
    frame = pd.DataFrame({"age": [9, 11], "severity": 1, "region": "N", "smoker": True, "grade": 1})
    counted = Dataset.coded(old, frame, ["yes", "no"], [50, 51])
    assert counted.sampling.tolist() == [0.0, 1.0]
    assert Domain.from_dict(json.loads(json.dumps(old.to_dict()))) == old
    assert old.codebook.expanded(["age"]) == ["log(age)"]
    assert "age counts by its natural logarithm" in old.codebook.in_words()
    assert of_covariates({**DECLARED, **LOGS, "covariates": ["region", "severity"]})["log"] == [
        "severity"
    ]


def test_levels_of_a_column_count_once_in_the_norm() -> None:
    # age; severity with its indicator at -.5; three columns with levels
    assert DOMAIN.covariate_bound == pytest.approx(math.sqrt(1 + 1.25 + 3))
    ends = (
        (30, 80),
        (0, 10, None),
        ("N", "S", "elsewhere"),
        (True, False, None),
        (1, 2.5, 7),
        ("yes",),
        (50.0,),
    )
    corners = [*product(*ends)]
    X = DOMAIN.features(coded(corners).X)
    norms = np.linalg.norm(X, axis=1)
    assert norms.max() == pytest.approx(DOMAIN.covariate_bound, rel=1e-11)
    # nothing was shrunk
    low, high = np.array(list(DOMAIN.ranges.values())).T  # type: ignore[union-attr]
    np.testing.assert_allclose(
        X, (coded(corners).X - (low + high) / 2) / ((high - low) / 2), atol=1e-11
    )
    assert domain_of({**DECLARED, "intercept": 1.0}).features_bound == pytest.approx(
        DOMAIN.covariate_bound
    )
    chosen = [DOMAIN.columns.index(name) for name in ("age", "region=N", "region=S")]  # type: ignore[union-attr]
    assert DOMAIN.restricted(chosen).covariate_bound == pytest.approx(math.sqrt(2))


def test_a_column_of_which_another_row_holds_text_is_read_alike() -> None:
    exact = [0.1, 1 / 3, 5e-324, 2.0**60 + 2.0**8, 1e22]
    floats = pd.DataFrame({"age": exact, "severity": 1.0, "region": "N", "smoker": "", "grade": 1})
    texts = floats.astype({"age": object})
    texts.loc[4, "age"] = "text"
    words = floats.assign(age=[*map(repr, exact[:4]), "text"])
    result = [
        Dataset.coded(DOMAIN, frame, ["yes"] * 5, [1.0] * 5).X[:4]
        for frame in (floats, texts, words)
    ]
    assert result[0].tobytes() == result[1].tobytes() == result[2].tobytes()
    lists = floats.astype(object).to_numpy().tolist()
    assert (
        Dataset.coded(DOMAIN, lists, ["yes"] * 5, [1.0] * 5).X[:4].tobytes() == result[0].tobytes()
    )


def test_a_release_predicts_from_raw_tables_alone() -> None:
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {"who": "x", "age": rng.uniform(30, 80, n), "severity": rng.uniform(0, 10, n)}
    )
    for name, levels in {
        "region": ["N", "S", "Q"],
        "smoker": [True, False],
        "grade": [1, 2.5],
    }.items():
        frame[name] = rng.choice(levels, n)
    frame.loc[::7, "severity"] = np.nan
    arm = np.where(rng.random(n) < 0.5, "yes", "no")
    score = 50 + 5 * (arm == "yes") + rng.normal(0, 4, n)
    model = PrivateTwoStageERM(DOMAIN, Budget(5.0), "uniform", "itr", seed=1).fit(frame, arm, score)
    mapped = Dataset.coded(DOMAIN, frame, arm, score)
    plain = Domain.from_dict({**DOMAIN.to_dict(), "codebook": None})
    other = PrivateTwoStageERM(plain, Budget(5.0), "uniform", "itr", seed=1)
    other.fit(pd.DataFrame(mapped.X, columns=mapped.columns), mapped.a, mapped.y)
    np.testing.assert_array_equal(model.theta_, other.theta_)
    read = read_release(model.release_.to_json())
    expected = other.predict_effect(DOMAIN.codebook.with_mean_levels(mapped.X, mapped.columns))
    np.testing.assert_array_equal(effects(read, frame), expected)
    np.testing.assert_array_equal(model.predict_effect(frame), expected)
    shuffled = frame[frame.columns[::-1]].assign(age=frame["age"].astype(object))
    shuffled.loc[0, "region"] = "unknown"
    np.testing.assert_array_equal(model.predict_effect(shuffled)[1:], expected[1:])
    one = PrivateEffect(DOMAIN, Budget(5.0), seed=1, prognostic=["severity", "region"])
    one.fit(frame, arm, score)
    assert one.release_.columns == (
        "severity",
        "severity=missing",
        "region=N",
        "region=S",
        "region=other",
    )
    assert read.domain["codebook"]["levels"]["region"] == ["N", "S", "other"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"treatment": 3}, r"treatment = 3: must be a table of names"),
        (
            {"treatment": {"label": 1}},
            "treatment: unknown name 'label'; known: column, treated, control",
        ),
        ({"treatment": {"column": "a", "treated": "x", "control": " x "}}, "control are both 'x'"),
        ({"treatment": {"treated": True, "control": 1}}, "treated and control are both '1'"),
        ({"treatment": {"treated": ""}}, "treatment: treated is empty"),
        (
            {"treatment": {"treated": [1]}},
            r"treatment: treated = \[1\]: must be a text or a number",
        ),
        ({"levels": ["N"]}, r"levels = \['N'\]: must have one entry per name"),
        ({"levels": {"region": "N"}}, r"levels\[region\] = 'N': must be a list"),
        ({"levels": {"region": []}}, r"levels\[region\]: must list levels"),
        ({"levels": {"region": ["N", "N"]}}, r"levels\[region\]: level 'N' stands there twice"),
        ({"levels": {"region": [1, "1.0"]}}, r"levels\[region\]: level '1' stands there twice"),
        ({"levels": {"region": [{}]}}, r"levels\[region\] = \{\}: must be a text or a number"),
        ({"levels": {"age": [1]}}, "'age' has a range and levels"),
        ({"levels": {"score": ["N"]}}, "'score' is the treatment or the outcome"),
        ({"levels": {"region": ["", "missing"]}}, "two covariates are called 'region=missing'"),
        ({"missing": {"severity": "x"}}, r"missing\[severity\] = 'x': must be a number"),
        ({"missing": {"region": 1}}, "missing: 'region' has levels: declare \"\" among them"),
        ({"missing": {"height": 1}}, "missing: 'height' has no range"),
        ({"missing": {"arm": 1}}, "missing: 'arm': leave it out"),
        ({"units": {"age": 3}}, r"units\[age\] = 3: must be one printable line"),
        ({"outcome_column": 3}, "column of the outcome = 3: must be one printable line"),
        ({"ranges": [[0, 1]]}, "ranges: need names beside levels or missing"),
        ({"ranges": {"age": [1], "severity": [0, 1]}}, r"ranges\[age\] = \[1\]: must be a pair"),
        ({"sampling_weights": "wt"}, "sampling_weights = 'wt': must be a table"),
        ({"sampling_weights": {"column": "wt"}}, "sampling_weights: largest is missing"),
        ({"sampling_weights": {**WEIGHTS, "largest": 0}}, "sampling_weights: largest = 0: must be"),
        ({"sampling_weights": {**WEIGHTS, "mean": 4}}, "mean = 4: must be at most largest = 3"),
        (
            {"sampling_weights": {**WEIGHTS, "mean": 5e-324}},
            "mean = 4.94066e-324: is nothing beside largest",
        ),
        ({"sampling_weights": {**WEIGHTS, "column": "score"}}, "'score' is declared otherwise"),
        ({"sampling_weights": {**WEIGHTS, "column": "severity"}}, "declare it as missing of"),
        (
            {"sampling_weights": {**WEIGHTS, "column": "age"}},
            "'age' is the column of sampling weights, of p",
        ),
        ({"log": "age"}, r"log = 'age': must be a list"),
        ({"log": ["region"]}, "log: 'region' is declared otherwise as well"),
        ({"log": ["age", "age"]}, "log: 'age' is declared otherwise as well"),
        ({"log": ["score"]}, "log: 'score' is declared otherwise as well"),
        ({"log": ["severity"]}, "log: severity = 0: a range and all else must be above 0"),
        (
            {"log": ["age"], "center": {"age": 0}},
            "log: age = 0: a range and all else must be above 0",
        ),
        ({"log": ["height"]}, "log: 'height' has no range"),
        ({"lvels": {}}, r"unknown name 'lvels'; did you mean levels\?$"),
        ({"codebook": {}}, "unknown name 'codebook'"),
    ],
)
def test_what_is_declared_wrongly_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        domain_of({**DECLARED, **changed})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[csv]\ndelimiter = ";"',
            "csv: unknown name 'delimiter'; known: separator, encoding, decimal",
        ),
        ('[csv]\nseparator = ";;"', "csv: separator = ';;': must be one character"),
        ('[csv]\nencoding = "latin-nine"', "csv: encoding = 'latin-nine': is not known"),
        ('[csv]\nencoding = "punycode"', "csv: encoding = 'punycode': is not known"),
        ('[csv]\ndecimal = ","', "csv: decimal = ',': must be . or , and not the separator"),
        ("csv = 3", "csv = 3: must have names"),
        ('outcome_bound = "EDIT"', 'outcome_bound still says "EDIT"'),
        ('[ranges]\nage = ["EDIT", 80]', 'ranges: age still says "EDIT"'),
    ],
)
def test_a_bad_file_is_named_in_one_line(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "domain.toml"
    path.write_text(text)
    with pytest.raises(DeclarationError, match=message) as caught:
        declared_layout(path)
    assert str(caught.value).count("domain.toml") == 1


def test_a_file_declares_a_codebook(tmp_path) -> None:
    path = tmp_path / "domain.toml"
    path.write_text(
        'outcome_bound = 25\noutcome_center = 50\noutcome_column = "score"\n'
        '[treatment]\ncolumn = "arm"\ntreated = "yes"\ncontrol = "no"\n'
        "[ranges]\nage = [30, 80]\nseverity = [0, 10]\n"
        '[levels]\nregion = ["N", "S", "other"]\nsmoker = [true, false, ""]\ngrade = [1, 2.5]\n'
        '[missing]\nseverity = 2.5\n[units]\nscore = "points"\n[csv]\nseparator = ";"\n'
    )
    assert load_domain(path) == DOMAIN
    path.write_text('outcome_bound = 1\ntreatment = "arm"\n[levels]\nregion = ["N"]\n')
    domain = load_domain(path)
    assert (domain.columns, domain.covariate_bound) == (("region=N",), 1.0)
    assert domain.codebook == Codebook(Treatment("arm"), levels={"region": ["N"]})


def test_columns_that_are_not_there_are_named() -> None:
    frame = pd.DataFrame({"age": [1, 2]})
    for X, a, message in (
        (frame, [1, 0], "has no column 'severity'"),
        (
            np.zeros((2, 3)),
            [1, 0],
            r"X has shape \(2, 3\): must have the columns age, severity, region",
        ),
        (np.zeros((2, 5)), [1, 0, 1], "2, 3 and 2 rows"),
        (np.zeros((2, 5)), np.array([[1], [0]]), r"a has shape \(2, 1\)"),
    ):
        with pytest.raises(DataError, match=message):
            Dataset.coded(DOMAIN, X, a, [1, 2])
    for name, message in (
        ("region=N", r"=N\] = .*must be \(-1.0, 1.0\)"),
        ("region", "region.: has levels"),
    ):
        with pytest.raises(DeclarationError, match=message):
            Domain(2.0, 1.0, ranges={name: (0, 1)}, codebook=DOMAIN.codebook)
    with pytest.raises(DeclarationError, match="need named ranges"):
        Dataset.coded(Domain(2.0, 1.0, codebook=DOMAIN.codebook), frame, [1, 0], [1, 2])
    # no cell is refused for its label
    assert labels(np.array([10**5000, "N"], dtype=object), "region") == ["", "N"]


SEX = {"synonyms": {"F": ["female", "Frau"], "M": ["male", "Mann"], "": ["unknown"]}}
UNITS = {"units": {"mg/dL": 1, "umol/L": 0.0113}, "unit_column": "unit"}
ADMISSIONS: dict[str, Any] = {
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
WARDS = domain_of(ADMISSIONS)
NAMES = ("age", "sex", "creatinine", "unit", "admitted", "ward", "drug", "sbp", "pressure")
PATIENTS = [
    (">89", " frau", 113, "umol/L", "31.01.2024", "ICU", "vp", "10", "mmHg"),
    ("55", "MALE", "1.2", "mg/dL", "01.01.2024", "Step  down", "Usual Care", 1, "kPa"),
    ("17", "F", 1, "mg/dL", "01.01.2024", "ICU", "none", 5, ""),
    ("20", "F", 1, "mg/dL", "01.01.2024", "Hospice", "none", 5, None),
    ("", "x", 1, "g/L", "2024-01-01", "ICU", "NORADRENALINE", 7, "psi"),
    ("90+", "Mann", 1, None, None, None, "none", 7, "mmHg"),
]


def table_of(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES, dtype=object)


def admitted(rows: list[tuple[Any, ...]]) -> Dataset:
    table = table_of(rows)
    return Dataset.coded(WARDS, table, table["drug"], table["sbp"])


def test_cells_become_the_records_computed_by_hand() -> None:
    data = admitted(PATIENTS)
    assert data.columns == ("age", "creatinine", "admitted", "sex=F", "sex=M")
    middle = [54, 5.15, 365, 0, 0]
    np.testing.assert_allclose(
        data.X, [[89, 113 * 0.0113, 30, 1, 0], [55, 1.2, 0, 0, 1], middle, middle, middle, middle]
    )
    assert data.a.tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(data.y, [10, 7.50062, 0, 0, 0, 0])
    assert data.sampling is not None
    assert data.sampling.tolist() == [1, 1, 0, 0, 0, 0]  # a child, a hospice, no age, no ward
    counts = record_counts(read_frame(table_of(PATIENTS)), public=WARDS, columns=data.columns)
    assert list(counts.arms.values()) == [1, 1]
    assert (counts.missing, counts.excluded) == (0, 4)
    assert counts.unreadable == {
        "drug": 0,
        "sbp": 1,
        "age": 1,
        "creatinine": 2,
        "admitted": 2,
        "sex": 1,
    }


def test_no_record_moves_another() -> None:
    whole = admitted(PATIENTS)
    for place, row in enumerate(PATIENTS):
        for order in ([row, *PATIENTS[:2]], [row, row], [row, *PATIENTS[::-1]]):
            alone = admitted(order)
            for name in "Xay":
                assert getattr(alone, name)[0].tobytes() == getattr(whole, name)[place].tobytes()
            assert alone.sampling is not None
            assert whole.sampling is not None
            assert alone.sampling[0] == whole.sampling[place]


def test_what_is_declared_comes_back_from_json_and_is_told() -> None:
    again = Domain.from_dict(json.loads(json.dumps(WARDS.to_dict())))
    assert again == WARDS
    assert hash(again) == hash(WARDS)
    assert again.mass == 0.8
    assert WARDS.codebook is not None
    told = WARDS.codebook.in_words()
    parts = (
        "F is also female, Frau|days since 2024-01-01|umol/L times 0.0113|fulfil 18 <= age does not"
    )
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
    result = Eligible(text).of(table.__getitem__)
    assert " ".join(np.array(["child", "adult", "old", "unaged"])[result]) == kept


@pytest.mark.parametrize(
    "text",
    [
        *(
            "age",
            "age >=",
            "not age > 3",
            "age > ward",
            "age > 3 > 2",
            "3 > 2",
            "age in 3",
            "age in []",
        ),
        *(
            "age == [1]",
            "age is 3",
            "ward > 'ICU'",
            "f(age) > 3",
            "age + 1 > 3",
            "age > True",
            "age > 1e999",
        ),
        *("age.real > 1", "__import__('os').system('true') == 0", "(" * 150, "age > 3\nage", ""),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(DeclarationError, match="eligible") as caught:
        domain_of({**ADMISSIONS, "eligible": [text]})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({}, "cells.x.: nothing declared"),
        ({"synonym": {}}, "unknown name 'synonym'; did you mean synonyms"),
        ({"synonyms": {"F": ["m"], "M": []}}, "'M' stands for two labels"),
        ({"synonyms": {"F": "f"}}, "must be a list, such as"),
        ({"synonyms": 3}, "must have one entry per name"),
        ({"units": {"kg": 1}}, "declare both, or neither"),
        ({"unit_column": "u"}, "declare both, or neither"),
        ({"units": {"kg": 0}, "unit_column": "u"}, "must be greater than 0"),
        ({"since": "then"}, "must be a date, such as 2020-01-31"),
        ({"date_format": "%d"}, "needs since beside it"),
        ({"censored": 1}, "must be true or false"),
        ({"censored": True, "since": "2020-01-31"}, "since and censored declared"),
        (3, "must be a table of names"),
        ({"eligible_share": 2}, "eligible_share = 2: must be at most 1"),
        ({"eligible": "age >= 18"}, "eligible.*: must be a list"),
    ],
)
def test_a_rule_that_says_nothing_or_too_much_is_refused(cells: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        domain_of({**ADMISSIONS, **(cells if "eligible" in message else {"cells": {"x": cells}})})
    assert "\n" not in str(caught.value)


def test_dates_are_days_whatever_type_they_have() -> None:
    rule = CellRule(since="2024-01-01")
    cells = [
        "2024-02-01",
        "2024-01-01 12:00",
        datetime.date(2023, 12, 31),
        np.datetime64("2024-01-03"),
    ]
    result = rule.read(np.array([*cells, "31.1.2024", 7, None], dtype=object), "d", {}.__getitem__)
    np.testing.assert_array_equal(result, [31, 0.5, -1, 2] + [math.nan] * 3)
