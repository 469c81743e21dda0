"""Effects at rows of a table: what is not read of them is counted, and what says nothing stays
empty.
"""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateRule, Treatment
from dp2erm_cvx.data.tables import read_frame
from dp2erm_cvx.release.predicting import predictions
from dp2erm_cvx.release.rule import effects
from tests.command_line import run

BOOK = Codebook(
    Treatment("arm", "yes", "no"), "score", levels={"sex": ["F", "M"], "smokes": ["yes"]}
)
RANGES = BOOK.ranges({"severity": (0.0, 10.0)})
DOMAIN = Domain(BOOK.norm(RANGES), 20.0, outcome_center=50.0, ranges=RANGES, codebook=BOOK)


@pytest.fixture(scope="module")
def release():
    """A rule that was fitted to records of which none lacks a level."""
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {"severity": rng.uniform(0, 10, n), "sex": rng.choice(["F", "M"], n), "smokes": "yes"}
    )
    arm = np.where(rng.random(n) < 0.5, "yes", "no")
    score = 50 + 3 * (arm == "yes") + rng.normal(0, 4, n)
    settings = {"propensity": 0.5, "center_share": None}
    model = PrivateRule(DOMAIN, Budget(4.0), outcome_scale=8.0, seed=1, settings=settings)
    return model.fit(frame, arm, score, accept=True).release_


def rows(**columns):
    """A table to predict at."""
    return read_frame(pd.DataFrame({"severity": 5.0, "smokes": "yes", **columns}))


def test_an_unknown_or_missing_level_is_the_mean_of_the_levels(release):
    female, male, *others = effects(release, rows(sex=["F", "M", "m", None, ""]))
    np.testing.assert_allclose(others, (female + male) / 2, rtol=1e-12)


def test_the_only_level_of_a_column_and_levels_that_every_record_has_stay_what_they_are():
    names = ("sex=F", "sex=M", "smokes=yes")
    X = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(BOOK.with_mean_levels(X, names), [[1, 0, 1], [0.5, 0.5, 0]])
    assert BOOK.with_mean_levels(X[:1], names) is not None
    some = X[:, 1:]
    assert BOOK.with_mean_levels(some, names[1:]) is some  # not all levels are covariates
    other = Codebook(levels={"sex": ["F", "other"]})
    assert other.with_mean_levels(X, ("sex=F", "sex=other")) is X


def test_the_mean_of_levels_keeps_the_norm_that_levels_count():
    book = Codebook(levels={"a": ["1", "2"], "b": ["1", "2", "3"]}, crossed=[("a", "b")])
    ranges = book.ranges({})
    X = book.with_mean_levels(np.zeros((1, len(ranges))), tuple(ranges))
    np.testing.assert_allclose(X, 1 / 6)
    assert np.linalg.norm(X) <= book.norm(ranges)


def test_what_is_not_read_is_counted_and_what_tells_nothing_is_left_empty(release):
    table = rows(
        sex=["F", "m", None, None], severity=[5.0, 50.0, np.nan, 5.0], smokes=["yes", "yes", "", ""]
    )
    found = predictions(release, table)
    assert np.isnan(found.effects).tolist() == [False, False, True, False]
    assert found.notes == (
        "severity: 1 row without a number, counted as the middle of its range",
        "severity: 1 row beyond the declared range 0 to 10, counted as its ends",
        "sex: 3 rows without one of its levels, counted as their mean",
        "smokes: 2 rows without one of its levels, counted as none",
        "1 row left empty: too little is read of them to predict an effect",
    )


def test_the_command_leaves_fields_empty_and_counts_on_stderr(release, tmp_path):
    path = tmp_path / "rule.json"
    path.write_text(release.to_json())
    data = tmp_path / "new.csv"
    data.write_text("severity,sex,smokes\n5,F,yes\n5,m,yes\n,,\n5\n")
    told = run("predict", str(path), str(data))
    read = list(csv.DictReader(told.stdout.splitlines()))
    assert [bool(row["effect"]) for row in read] == [True, True, False, False]
    assert [bool(row["treatment"]) for row in read] == [True, True, False, False]
    assert "note: Lines with another number of cells than the header: 1" in told.stderr
    assert "note: sex: 3 rows without one of its levels" in told.stderr
    assert "note: 2 rows left empty" in told.stderr
    assert Path(data).exists()


def test_without_a_codebook_a_row_without_a_number_is_left_empty():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"u": rng.uniform(-1, 1, 200), "v": rng.uniform(-1, 1, 200)})
    domain = Domain(1.5, 2.0, ranges={"u": (-1.0, 1.0), "v": (-1.0, 1.0)})
    a = (rng.random(200) < 0.5).astype(int)
    settings = {"propensity": 0.5, "center_share": None}
    model = PrivateRule(domain, Budget(4.0), seed=1, settings=settings).fit(
        X, a, X["u"], accept=True
    )
    table = read_frame(pd.DataFrame({"u": [0.5, "x", 3.0], "v": [0.1, 0.2, 0.3]}))
    found = predictions(model.release_, table)
    assert np.isnan(found.effects).tolist() == [False, True, False]
    assert found.effects[0] == effects(model.release_, np.array([[0.5, 0.1]]))[0]
    assert found.notes[:2] == (
        "u: 1 row without a number",
        "u: 1 row beyond the declared range -1 to 1, counted as its ends",
    )
