"""Record maps: one record changes one mapped record, inside the domain that was stated before."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import OutcomeRows, Rows, Term, WithConstant
from dp2erm_cvx.steps.score import AverageScore
from tests.steps.scored import scores

N, K = 23, 3
DOMAIN = Domain(covariate_bound=1.3, outcome_bound=2.0, intercept=0.5)
UNIVERSE = Universe(DOMAIN, N, K)
NASTY = st.sampled_from([0.0, -0.0, 1.0, -3.7, 1e-300, 1e154, -1e300, 1.7e308, float("inf"), float("nan")])


def raw(seed: int):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, K)) * 2, rng.integers(0, 2, N), rng.normal(size=N) * 3


def maps():
    for rows in Rows:
        yield OutcomeRows(rows)
        yield OutcomeRows(rows, (Term(rows, "center"), Term(Rows.POOLED, (0.3, 1.0, -2.0, 0.1))), 2.7)
    yield WithConstant()


BOX = (0.9, 0.2, 1e-3)


@pytest.mark.parametrize("chosen", list(maps()), ids=str)
def test_mapped_rows_lie_in_the_box_that_was_stated_before(chosen):
    domain = replace(DOMAIN, coordinate_bound=BOX)
    where = chosen.universe(Universe(domain, N, K))
    widths = np.array(where.widths)
    rows = Rows.POOLED if isinstance(chosen, WithConstant) else chosen.rows
    assert widths.shape == (where.n_columns,) == (len(rows.names(("a", "b", "c"))),)
    reached = np.zeros(len(widths))
    for seed in range(20):
        X, a, y = raw(seed)
        released = {"center": np.zeros(len(widths))}
        sizes = np.abs(chosen.records(domain.records(X, a, y), released).X)
        assert np.all(sizes <= widths)
        reached = np.maximum(reached, sizes.max(axis=0))
    assert np.all(reached > 0.99 * widths)


@pytest.mark.parametrize("chosen", list(maps()), ids=str)
@given(st.integers(0, 10**6), st.integers(0, N - 1), st.lists(NASTY, min_size=8, max_size=8))
@settings(max_examples=25)
def test_one_record_changes_one_mapped_record(chosen, seed, place, released):
    X, a, y = raw(seed)
    theirs = X.copy(), a.copy(), y.copy()
    theirs[0][place], theirs[1][place], theirs[2][place] = 1e9, 1 - a[place], -1e9
    released = {"center": np.array(released)[: len(Rows.MIX.names(tuple("abc")))]}
    if isinstance(chosen, OutcomeRows):
        released["center"] = released["center"][: len(chosen.rows.names(tuple("abc")))]
    one, other = (chosen.records(DOMAIN.records(*data), released) for data in ((X, a, y), theirs))
    kept = np.arange(N) != place
    for name in ("X", "a", "y"):
        assert np.array_equal(getattr(one, name)[kept], getattr(other, name)[kept])
    where = chosen.universe(UNIVERSE)
    for result in (one, other):
        assert result.domain == where.domain
        assert result.X.shape == (N, where.n_columns)
        assert np.all(np.linalg.norm(result.X, axis=1) <= where.domain.covariate_bound)
        assert np.all(np.abs(result.y) <= where.domain.outcome_bound)


@pytest.mark.parametrize("rows", list(Rows))
def test_rows_are_those_of_their_names(rows):
    x, a = np.array([[0.5, -0.25], [0.1, 0.2]]), np.array([0, 1])
    known = {
        Rows.COMMON: [[1, 0, 0.5, -0.25], [0, 1, 0.1, 0.2]],
        Rows.MIX: [[1, 0, 0.5, -0.25, -0.25, 0.125], [0, 1, 0.1, 0.2, 0.05, 0.1]],
        Rows.ARMS: [[1, 0.5, -0.25, 0, 0, 0], [0, 0, 0, 1, 0.1, 0.2]],
        Rows.POOLED: [[1, 0.5, -0.25], [1, 0.1, 0.2]],
    }[rows]
    assert np.array_equal(rows.of(x, a), np.array(known, dtype=float))
    assert len(rows.names(("u", "v"))) == len(known[0])


@pytest.mark.parametrize("rows", list(Rows))
def test_a_coefficient_on_scaled_rows_predicts_the_same_on_plain_ones(rows):
    rng = np.random.default_rng(0)
    mapped = OutcomeRows(rows, scale=0.3)
    x, a = rng.normal(size=(N, K)), rng.integers(0, 2, N)
    theta = rng.normal(size=len(rows.names(tuple("abc"))))
    plain = rows.predict(mapped.unscaled(theta, K), x, a)
    assert np.allclose(rows.predict(theta, 0.3 * x, a), plain, rtol=1e-12, atol=1e-12)
    assert not np.allclose(rows.predict(theta, x, a), plain)


@pytest.mark.parametrize("rows", list(Rows))
def test_the_bound_of_the_rows_is_attained(rows):
    x = np.array([[1.3, 0.0]])
    longest = max(np.linalg.norm(rows.of(x, np.array([arm]))) for arm in (0, 1))
    assert longest <= rows.norm(1.3) <= longest * (1 + 1e-11)


CENTER, LOG_ODDS = (Term(Rows.COMMON, "center"),), Term(Rows.POOLED, "propensity")


def score(terms=CENTER, rate=0.5, log_odds=LOG_ODDS, **changed):
    chosen = {"cap": 4.0, "residual_bound": 1.5, "score_bound": 6.0, "center": 0.25} | changed
    return AverageScore(LinearNuisances(terms, rate, log_odds), **chosen)


def by_hand(records, released, cap=4.0, bound=1.5, center=0.25, score_bound=6.0):
    """The definition, one record at a time."""
    theta, lam = released["center"], released["propensity"]
    result = []
    for x, a, y in zip(records.covariates, records.a, records.y, strict=True):
        m = [theta[arm] + sum(t * v for t, v in zip(theta[2:], x, strict=True)) for arm in (0, 1)]
        m = [min(max(value, -2.0), 2.0) for value in m]
        e = 1 / (1 + np.exp(-(lam[0] + sum(t * v for t, v in zip(lam[1:], x, strict=True)))))
        e = min(max(e, 1 / cap), 1 - 1 / cap)
        r = min(max(y - m[a], -bound), bound)
        g, weighted = m[1] - m[0] - center, r / e if a else -r / (1 - e)
        g = min(max(g, -score_bound), score_bound)
        room = score_bound - abs(g)
        result.append(g + min(max(weighted, -room), room))
    return np.array(result)


def test_the_score_is_augmented_inverse_propensity_weighting():
    rng = np.random.default_rng(3)
    records = DOMAIN.records(*raw(1))
    released = {"center": rng.normal(size=2 + K), "propensity": 3 * rng.normal(size=1 + K)}
    result, known = scores(score(), records, released), by_hand(records, released)
    assert np.allclose(result, known, rtol=1e-12, atol=1e-12)
    # a residual that is clipped before the prediction is subtracted is another number
    early = y_clipped_first(records, released)
    assert not np.allclose(result, early)


def y_clipped_first(records, released):
    theta = released["center"]
    m = theta[records.a] + records.covariates @ theta[2:]
    lam = released["propensity"]
    e = np.clip(1 / (1 + np.exp(-(lam[0] + records.covariates @ lam[1:]))), 0.25, 0.75)
    r = np.clip(records.y, -1.5, 1.5) - m
    return theta[1] - theta[0] + np.where(records.a == 1, r / e, -r / (1 - e)) - 0.25


@given(st.integers(0, 10**6), st.integers(0, N - 1), st.lists(NASTY, min_size=9, max_size=9))
@settings(max_examples=50)
def test_a_score_is_of_its_record_alone(seed, place, numbers):
    X, a, y = raw(seed)
    theirs = X.copy(), a.copy(), y.copy()
    theirs[0][place], theirs[1][place], theirs[2][place] = -1e9, 1 - a[place], 1e9
    released = {"center": np.array(numbers[:5]), "propensity": np.array(numbers[5:])}
    one, other = (scores(score(), DOMAIN.records(*data), released) for data in ((X, a, y), theirs))
    kept = np.arange(N) != place
    assert np.array_equal(one[kept], other[kept], equal_nan=True)


def rows_at_once(kind, x, a):
    """The rows as they were written before they were filled in blocks."""
    treated = np.broadcast_to(np.asarray(a, dtype=np.float64), (len(x),))[:, None]
    own = np.hstack([np.ones((len(x), 1)), x])
    if kind is Rows.COMMON:
        return np.hstack([1.0 - treated, treated, x])
    if kind is Rows.MIX:
        return np.hstack([1.0 - treated, treated, x, (treated - 0.5) * x])
    return own if kind is Rows.POOLED else np.hstack([(1.0 - treated) * own, treated * own])


@pytest.mark.parametrize("arm", [0.0, 1, None], ids=str)
@pytest.mark.parametrize("kind", list(Rows))
def test_rows_and_predictions_are_the_same_in_any_blocks(kind, arm):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(50, 19)) * np.exp(rng.normal(size=(50, 1)) * 20)
    x[3, 4], x[5, 6], x[7], x[8, 0] = np.nan, np.inf, -0.0, 5e-324
    a = rng.integers(0, 2, 50) if arm is None else arm
    theta = rng.normal(size=len(kind.names(("x",) * 19)))
    with np.errstate(all="ignore"):
        known = rows_at_once(kind, x, a)
        assert kind.of(x, a).tobytes() == known.tobytes()
        arms = np.broadcast_to(a, (50,))
        for values in (theta, theta * 1e300, np.where(theta > 0, np.nan, theta)):
            result = kind.predict(values, x, a)
            alone = [kind.predict(values, x[k : k + 1], arms[k : k + 1]) for k in range(50)]
            assert result.tobytes() == np.concatenate(alone).tobytes()
        inside = np.all(np.isfinite(x), axis=1)
        exact = [math.fsum(row) for row in (known * theta)[inside]]
        sizes = np.abs(known[inside]) @ np.abs(theta)
        assert np.all(np.abs(kind.predict(theta, x, a)[inside] - exact) <= 64 * 2.0**-53 * sizes)
