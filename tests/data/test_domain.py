"""The public universe of records: declared, read from files, clipped to; and private ranges of
it.
"""

import itertools
import json
import math
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Codebook, Dataset, Domain, OpenDomain, Treatment, Within, load_domain
from dp2erm_cvx.data import space as spaces
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.data.domain import ReleasedRanges
from dp2erm_cvx.data.space import clip_norm
from dp2erm_cvx.errors import DeclarationError

ANY = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=1e-150, max_value=1e150)
BOUNDS = st.floats(min_value=1e-30, max_value=1e30)


def exact_norm(row: np.ndarray) -> float:
    """Scaled, so that nothing under- or overflows, and summed without rounding."""
    scale = float(np.max(np.abs(row)))
    if scale == 0.0:
        return 0.0
    return scale * math.sqrt(math.fsum((float(value) / scale) ** 2 for value in row))


@settings(max_examples=40)
@given(st.lists(ANY, min_size=1, max_size=5), POSITIVE)
def test_clipped_rows_are_inside_and_keep_their_direction(row: list[float], bound: float) -> None:
    X = np.clip(np.array([row]), -1e300, 1e300)
    clipped = clip_norm(X, bound)
    assert exact_norm(clipped[0]) <= bound
    if exact_norm(X[0]) <= bound * (1 - 1e-12):
        np.testing.assert_array_equal(clipped, X)
    else:
        assert exact_norm(clipped[0]) >= bound * (1 - 1e-11)
        unit = X[0] / np.max(np.abs(X))
        np.testing.assert_allclose(
            clipped[0] / np.max(np.abs(clipped)), unit, rtol=1e-12, atol=1e-150
        )
    np.testing.assert_allclose(clip_norm(clipped, bound), clipped, rtol=2e-12)


def test_rows_at_the_border_are_inside_in_exact_arithmetic() -> None:
    X = np.random.default_rng(0).normal(size=(2000, 3))
    X *= (0.7 + np.linspace(-1e-12, 1e-12, 2000)[:, None]) / np.linalg.norm(
        X, axis=1, keepdims=True
    )
    for row in clip_norm(X, 0.7):
        assert sum(Fraction(value) ** 2 for value in row.tolist()) <= Fraction(0.7) ** 2


@settings(max_examples=40)
@given(
    st.lists(st.tuples(ANY, ANY, st.integers(0, 1), ANY), min_size=1, max_size=4), BOUNDS, BOUNDS
)
def test_every_finite_record_lands_in_the_universe(
    rows: list[tuple[float, float, int, float]], covariate_bound: float, outcome_bound: float
) -> None:
    domain = Domain(
        covariate_bound,
        outcome_bound,
        outcome_center=3.0,
        treatment_cost=-1.5,
        ranges=[(0, 2), (-1e9, 1e9)],
    )
    x1, x2, a, y = (np.array(column) for column in zip(*rows, strict=True))
    records = domain.records(np.column_stack([x1, x2]), a, y)
    assert np.isfinite(records.X).all()
    assert all(exact_norm(row) <= covariate_bound for row in records.X)
    assert np.all(np.abs(records.y) <= outcome_bound)
    np.testing.assert_array_equal(records.a, a)


def test_scaling_centering_and_clipping_by_hand() -> None:
    own = {"outcome_center": 1.0, "treatment_cost": 3.0, "intercept": 1.2}
    domain = Domain(2.0, 5.0, ranges={"age": (20, 60), "dose": (0, 1)}, **own)
    records = domain.records([[20, 0.5], [50, 1.0], [99, 99.5]], [0, 1, 1], [2.0, 11.0, -4.0])
    assert domain.columns == ("age", "dose")
    assert domain.features_bound == pytest.approx(1.6)
    np.testing.assert_array_equal(records.X[:, 0], 1.2)
    # each covariate is clipped to its range first: one that is far out does not shrink the others
    np.testing.assert_allclose(records.covariates, [[-1, 0], [0.5, 1], [1, 1]], atol=1e-11)
    np.testing.assert_allclose(records.y, [1.0, 5.0, -5.0])
    assert repr(records) == "Records(n_samples=3)"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"covariate_bound": 0}, "covariate_bound = 0: must be greater than 0"),
        ({"covariate_bound": float("inf")}, "covariate_bound = inf: must be a finite number"),
        ({"outcome_bound": -1}, "outcome_bound = -1: must be greater than 0"),
        ({"outcome_center": "abc"}, "outcome_center = 'abc': must be a number"),
        ({"treatment_cost": float("nan")}, "treatment_cost = nan: must be a finite number"),
        ({"intercept": -0.5}, "intercept = -0.5: must be at least 0"),
        ({"intercept": 2.0}, "intercept = 2.0: must be below covariate_bound = 2, which counts it"),
        ({"arm_floor": 0}, "= 0: must be at least 1"), ({"arm_floor": 2.5},
        "must be a whole number"),
        *(({"arm_floor": wrong}, f"arm_floor = {wrong!r}: must be a number") for wrong in ("many",
        True)),
        ({"relation": "add-one"},
        "'add-one': must be one of replace-one, replace-one-keep-treatment"),
        *(({"ranges": wrong}, f"ranges = {wrong!r}: must have one entry") for wrong in (5, "ab")),
        ({"ranges": []}, "at least one covariate"),
        ({"ranges": {"age": 3}}, r"ranges\[age\] = 3: must be a pair"),
        ({"ranges": {"age": (1, 2, 3)}}, r"ranges\[age\] = \(1, 2, 3\): must be a pair"),
        ({"ranges": {"age": (2, 2)}}, r"ranges\[age\] = \(2, 2\): low must be below high"),
        ({"ranges": [(0, 1), (0, float("inf"))]},
        r"ranges\[1\] high = inf: must be a finite number"),
        ({"bound": 3},
        "domain: unknown name 'bound'; known: covariate_bound, outcome_bound, outcome_center"),
    ],
)  # fmt: skip
def test_an_invalid_declaration_is_one_line(changed: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        Domain.from_dict({"covariate_bound": 2.0, "outcome_bound": 1.0, **changed})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "refused"),
    [
        ({"eligible": ["age >= 18"]}, True),
        ({"levels": {"sex": ["F", "M"]}, "where": {"sex": "F"}}, True),
        ({"levels": {"sex": ["F", "M"]}, "group": "sex"}, True),
        ({"cells": {"a": {"units": {"g": 1.0, "kg": 1e3}, "unit_column": "in"}}}, True),
        ({"cells": {"a": {"synonyms": {"1": ["yes"]}}}, "levels": {"sex": ["F", "M"]}}, False),
    ],
)
def test_a_treatment_that_stays_is_refused_where_other_cells_decide_the_arm(
    declared: dict[str, Any], refused: bool
) -> None:
    book = Codebook(treatment=Treatment("a"), outcome="y", **declared)
    domain = Domain(2.0, 1.0, ranges=book.ranges({"u": (-1.0, 1.0)}), codebook=book)
    rows = {"u": [0.0], "age": [40.0], "sex": ["F"], "in": ["g"], "a": [1], "y": [0.0]}
    other = {"u": [0.0], "age": [17.0], "sex": ["D"], "in": ["lb"], "a": [1], "y": [0.0]}
    frames = [
        pd.DataFrame({name: cells * 2 for name, cells in table.items()}) for table in (rows, other)
    ]
    arms = [Dataset.coded(domain, frame, frame["a"], frame["y"]).a[0] for frame in frames]
    assert bool(arms[0] != arms[1]) is refused
    keep = {**domain.to_dict(), "relation": "replace-one-keep-treatment"}
    with (
        pytest.raises(DeclarationError, match=r"declare replace-one$") if refused else nullcontext()
    ):
        Domain.from_dict(keep)


TOP = """
covariate_bound = 2
outcome_bound = 8.5
relation = "replace-one"
[ranges]
age = [25, 74]
sex = [0, 1]
"""


def test_a_toml_file_declares_a_domain(tmp_path: Path) -> None:
    path = tmp_path / "domain.toml"
    for text in (TOP, "[domain]\n" + TOP.replace("[ranges]", "[domain.ranges]")):
        path.write_text(text)
        assert load_domain(str(path)) == Domain(2.0, 8.5, ranges={"age": (25, 74), "sex": (0, 1)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"covariate_bound = = 2", "is not a TOML file: "),
        (b"covariate_bound = 2", "domain: outcome_bound is missing"),
        (b"covariate_bound = 0\noutcome_bound = 1", "covariate_bound = 0: must be greater than 0"),
        (b"domain = 3", r"domain = 3: must be a table \[domain\]"),
        (b"seed = 1\n[domain]\ncovariate_bound = 2", r"'seed' stands outside the table \[domain\]"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_toml_file_is_one_line(tmp_path: Path, text: bytes | None, message: str) -> None:
    path = tmp_path / "domain.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(DeclarationError, match=message) as caught:
        load_domain(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.integers(0, 10**6), st.sampled_from([0.5, (0.3, 1e-6, 2.0), [1.0, 1.0, 1.0]]))
@settings(max_examples=25)
def test_covariates_are_clipped_one_by_one_and_then_radially(seed, bound):
    X = np.random.default_rng(seed).standard_cauchy((9, 3))
    domain = Domain(1.1, 1.0, intercept=0.3, coordinate_bound=bound)
    widths = np.broadcast_to(bound, 3)
    assert np.array_equal(domain.space.widths(3), widths)
    result = domain.features(X)[:, 1:]
    assert np.all(np.abs(result) <= widths)
    assert np.array_equal(result, clip_norm(np.clip(X, -widths, widths), domain.features_bound))
    other = replace(
        domain, ranges=[(-2, 1), (-9, 9), (0, 1)], relation="replace-one-keep-treatment"
    )
    assert Domain.from_dict(json.loads(json.dumps(other.to_dict()))) == other
    assert np.array_equal(domain.restricted([2, 0]).space.widths(2), widths[[2, 0]])


def all_at_once(domain, X):
    """The public rule on one array, as it was written before there were blocks."""
    scaled = np.array(X)
    if domain.ranges is not None:
        low, high = np.array(domain.ranges).T
        with np.errstate(over="ignore"):
            scaled = (scaled / 2 - (low / 4 + high / 4)) / (high / 4 - low / 4)
    widths = domain.space.widths(scaled.shape[1])
    largest = 1e300 if widths is None else np.array(widths)
    scaled = clip_norm(np.clip(scaled, -largest, largest), domain.features_bound)
    if domain.intercept:
        scaled = np.column_stack([np.full(len(scaled), domain.intercept), scaled])
    return scaled


_TINY = 2.0**-1074
_HOSTILE = np.array(
    [
        [0.6, 0.8, 0.0],  # on the border
        [0.6, 0.8, -0.0],
        [0.6 * (1 - 4e-13), 0.8 * (1 - 4e-13), 0.0],  # around where the rule begins to shrink
        [0.6 * (1 - 6e-13), 0.8 * (1 - 6e-13), 0.0],
        [0.6 * (1 - 4e-10), 0.8 * (1 - 4e-10), 0.0],
        [0.6 * (1 + 1e-10), 0.8 * (1 + 1e-10), 0.0],
        [1e-160, 1e-300, _TINY],
        [_TINY, -_TINY, 0.0],
        [-0.0, 0.0, -0.0],
        [1e160, 0.0, 0.0],
        [1e308, -1e308, 1e308],
        [np.inf, 0.1, -np.inf],
        [np.nan, 0.1, 0.2],
        [0.5, 0.5, 0.5],
    ]
)


@pytest.mark.one_row_in(8)
@pytest.mark.parametrize("unit", [2e-30, 1.0, 1e30])
@pytest.mark.parametrize(
    "told",
    [
        *({}, {"intercept": 0.25}, {"coordinate_bound": 0.7}),
        {"ranges": [(-1.0, 1.0), (0.0, 2.0), (-1e308, 1e308)]},
        {"ranges": [(-1.0, 1.0)] * 3, "intercept": 0.5},
    ],
    ids=str,
)
def test_rows_are_what_the_rule_makes_of_them_in_any_blocks_and_layout(told, unit, monkeypatch):
    told = {name: value if name == "ranges" else unit * value for name, value in told.items()}
    domain, rng = Domain(unit, 1.0, **told), np.random.default_rng(1)
    X = np.vstack([_HOSTILE, rng.standard_cauchy((40, 3)), rng.normal(size=(40, 3)) / 3])
    with np.errstate(all="ignore"):
        X = X[rng.permutation(len(X))] * (1.0 if "ranges" in told else unit)
        known = all_at_once(domain, X)
        layouts = np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[:, ::-1].copy()[:, ::-1]
        for size, same in itertools.product((1, 5, 1000), (X, *layouts)):
            monkeypatch.setattr(spaces, "VIEW", size)
            assert domain.features(same).tobytes() == known.tobytes()  # the layout changes no bit
            assert domain.features(same).flags.c_contiguous
        assert all(
            domain.features(row).tobytes() == own.tobytes()
            for row, own in zip(X, known, strict=True)
        )
    # what is clipped already is held once
    if not told.keys() & {"ranges", "intercept"}:
        inside = known[np.isfinite(known).all(axis=1)]
        assert np.shares_memory(domain.features(inside), inside)
        assert not domain.features(inside).flags.writeable
        assert inside.flags.writeable


def test_no_record_counts_more_than_one_or_less_than_nothing():
    weights = SamplingWeights("w", largest=2.0, missing=0.5)
    given = [5.0, 2.0, 1.0, -3.0, np.nan, np.inf]
    assert weights.factors(given).tolist() == [1.0, 1.0, 0.5, 0.0, 0.25, 1.0]
    assert weights.of(given).tolist() == [2.0, 2.0, 1.0, 0.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranges": []}, "at least one covariate"),
        ({"ranges": "age"}, "one entry per covariate"),
        ({"ranges": [(1.0, 0.0)]}, r"ranges\[0\]: .* low must be below high"),
        ({"ranges": {"age": 3}}, r"ranges\[age\] = 3: must be a pair"),
        ({"outcome": (0.0, math.inf)}, "outcome: high = inf"),
        ({"relation": "add-one"}, "relation"),
        ({"others": {"days": None}}, "others: have names, and the ranges have none"),
        (
            {"ranges": {"age": None}, "others": {"age": None}},
            "others: 'age' is a covariate as well",
        ),
        ({"low": 1.0, "high": 1.0}, "low must be below high"),
        ({"low": 1.0, "high": 1.0 + 1e-16}, "low must be below high"),
    ],
)
def test_wrong_ranges_to_be_released_are_refused(wrong, message):
    with pytest.raises(DeclarationError, match=message):
        Within(**wrong) if "low" in wrong else OpenDomain(**{"ranges": [None], **wrong})


def test_what_is_known_goes_with_its_column():
    year = Within(1900, 2100)
    declared = OpenDomain({"age": (18, 90), "year": year, "income": None}, others={"days": year})
    assert declared.columns == ("age", "year", "income", "days")
    assert declared.known == ((18.0, 90.0), year, None, year, None)
    assert declared.middles(4) == (54.0, 2000.0, 0.0, 2000.0)
    with pytest.raises(DeclarationError, match="4 are declared for 2 covariates"):
        declared.middles(2)
    assert OpenDomain.from_dict(json.loads(json.dumps(declared.to_dict()))) == declared
    assert hash(declared) == hash(OpenDomain.from_dict(declared.to_dict()))
    closed = declared.closed(
        [(18.0, 90.0), (1990.0, 2000.0), (-1.0, 1.0), (0.0, 9.0), (10.0, 30.0)]
    )
    assert closed.ranges == {"age": (18.0, 90.0), "year": (1990.0, 2000.0), "income": (-1.0, 1.0)}
    assert (closed.outcome_center, closed.outcome_bound, closed.covariate_bound) == (
        20.0,
        10.0,
        math.sqrt(3),
    )
    assert OpenDomain([None, (0, 1)]).closed([(0.0, 2.0), (0.0, 1.0), (1.0, 3.0)]).range_pairs[
        0
    ] == (
        0.0,
        2.0,
    )


def test_a_domain_says_that_its_ranges_were_released():
    stamp, plain = ReleasedRanges("ab" * 32, 0.5), Domain(1.0, 2.0, ranges=[(0.0, 1.0), (0.0, 2.0)])
    domain = replace(plain, released=stamp)
    assert Domain.from_dict(json.loads(json.dumps(domain.to_dict()))) == domain
    assert "released" not in plain.to_dict()
    assert domain.restricted([0]).released == stamp
    for wrong in ({"digest": ""}, {"epsilon": 0.0}, {"private": 1}):
        with pytest.raises(DeclarationError, match=next(iter(wrong))):
            replace(stamp, **wrong)
