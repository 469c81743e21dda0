"""What is declared where ranges are not, and the records in the units that were released."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.private_ranges import PrivateRanges, Within, candidates, normalized

N, K = 17, 3
NUMBERS = st.floats(-1e7, 1e7)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": 0.0}, "private ranges: share"),
        ({"share": 1.0}, "private ranges: share"),
        ({"ranges": []}, "at least one covariate"),
        ({"ranges": "age"}, "one entry per covariate"),
        ({"ranges": [(1.0, 0.0)]}, r"ranges\[0\]: .* low must be below high"),
        ({"ranges": {"age": 3}}, r"ranges\[age\] = 3: must be a pair"),
        ({"outcome": (0.0, math.inf)}, "outcome: high = inf"),
        ({"covariate_bound": 0.0}, "covariate_bound"),
        ({"relation": "add-one"}, "relation"),
        ({"low": 1.0, "high": 1.0}, "low must be below high"),
    ],
)
def test_wrong_declarations(wrong, message):
    with pytest.raises(DeclarationError, match=message):
        (Within if "low" in wrong else PrivateRanges)(**wrong)


def test_what_is_known_goes_with_its_column():
    year = Within(1900, 2100)
    declared = PrivateRanges(ranges={"age": (18, 90), "year": year, "income": None})
    assert declared.columns == ("age", "year", "income")
    assert declared.known(3) == ((18.0, 90.0), year, None, None)
    assert declared.restricted([2, 0]).known(2) == (None, (18.0, 90.0), None)
    assert declared.restricted([2, 0]).columns == ("income", "age")
    assert PrivateRanges().restricted([4]).known(1) == (None, None)
    with pytest.raises(DeclarationError, match="3 are declared for 2 covariates"):
        declared.known(2)
    assert hash(declared) == hash(PrivateRanges(ranges={"age": (18, 90), "year": year, "income": None}))


def test_the_domain_is_fixed_before_anything_is_released():
    assert PrivateRanges().domain(4) == Domain(2.0, 1.0, coordinate_bound=1.0)
    assert PrivateRanges(covariate_bound=1.5).domain(4) == Domain(1.5, 1.0, coordinate_bound=1.0)
    # a public range of the outcome keeps its units
    public = PrivateRanges(outcome=(0.0, 4.0))
    assert public.domain(1) == Domain(1.0, 2.0, outcome_center=2.0, coordinate_bound=1.0)
    assert public.outcome_unit(np.array([[-1.0, 1.0], [0.0, 4.0]])) == 1.0
    assert PrivateRanges().outcome_unit(np.array([[-1.0, 1.0], [0.0, 4.0]])) == 2.0


def test_candidates_increase_and_stay_inside():
    for known in (None, Within(0, 1), Within(1900, 2100), Within(-1e30, 1e30), Within(0, 1e-9)):
        grid = candidates(known)
        assert np.all(np.diff(grid) > 0)
        assert len(grid) > 128
        assert (
            {0.0, 1.0, -1.0, 1e6, -1e6} <= {*grid}
            if known is None
            else (grid[0], grid[-1]) == (known.low, known.high)
        )


@given(
    st.integers(0, 10**6),
    st.integers(0, N - 1),
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=4, max_size=4),
)
@settings(max_examples=60)
def test_one_record_changes_one_normalized_record(seed, place, ends):
    rng = np.random.default_rng(seed)
    X, a, y = rng.normal(size=(N, K)) * 100, rng.integers(0, 2, N), rng.normal(size=N) * 1e4
    theirs = X.copy(), a.copy(), y.copy()
    theirs[0][place], theirs[1][place], theirs[2][place] = 1.7e308, 1 - a[place], -1.7e308
    released = np.sort(np.array(ends), axis=1)
    for declared in (PrivateRanges(), PrivateRanges(covariate_bound=0.7, outcome=(-3.0, 5.0))):
        scaled = [(*declared.scaled(data[0], data[2], released), data[1]) for data in ((X, a, y), theirs)]
        one, other = (declared.domain(K).records(x, arm, outcome) for x, outcome, arm in scaled)
        kept = np.arange(N) != place
        for name in ("X", "a", "y"):
            assert np.array_equal(getattr(one, name)[kept], getattr(other, name)[kept])
        for found in (one, other):
            assert found.domain == declared.domain(K)
            assert np.all(np.linalg.norm(found.X, axis=1) <= found.domain.covariate_bound)
            assert np.all(np.abs(found.y) <= found.domain.outcome_bound)


def test_normalized_values_are_clipped_and_never_nan():
    hostile = np.array([math.nan, math.inf, -math.inf, 1.7e308, 3.0, 2.0, 4.0])
    assert normalized(hostile, 2.0, 4.0).tolist() == [0.0, 1.0, -1.0, 1.0, 0.0, -1.0, 1.0]
    assert normalized(hostile, 3.0, 3.0).tolist()[1:4] == [1.0, -1.0, 1.0]
    assert np.all(np.isfinite(normalized(hostile, math.nan, 3.0)))
