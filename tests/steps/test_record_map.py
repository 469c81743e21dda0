"""Maps of records, factors and scores: their formulas, and that each is its own record's alone."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain, OpenDomain, Universe
from dp2erm_cvx.steps.nuisances import LinearNuisances, RuleNuisances
from dp2erm_cvx.steps.record_map import (
    Arms,
    Balance,
    Factors,
    OutcomeRows,
    Rows,
    Term,
    WithConstant,
)
from dp2erm_cvx.steps.score import AverageScore, ValueScore

N, K = 23, 3
DOMAIN = Domain(covariate_bound=1.3, outcome_bound=2.0, intercept=0.5)
UNIVERSE = Universe(DOMAIN, N, K)
WIDTHS = {str(rows): len(rows.names(("u", "v", "w"))) for rows in Rows}
PROPENSITY = Term(Rows.POOLED, "pooled")
LINES = LinearNuisances(Term(Rows.COMMON, "common"), 0.5, PROPENSITY)


def raw(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, K)) * 2, rng.integers(0, 2, N), rng.normal(size=N) * 3


def inside(records):
    """Columns of records, and how large they are in the bounds of their space."""
    space, norms = records.space, np.linalg.norm(records.X, axis=1)
    sizes = norms / space.covariate_bound, records.y / space.outcome_bound
    return (records.X, records.a, records.y), sizes


def scores(nuisances, records, released):
    """The average score (n,) of records less its center."""
    own = AverageScore(nuisances, 4.0, 1.5, 6.0, 0.25).at(records, released)
    return own.score(own.parts(records, released))


def of_map(chosen):
    def made(data, given):
        result = chosen.records(DOMAIN.records(*data), given)
        return inside(replace(result, space=chosen.universe(UNIVERSE).space))

    return made


def of_factors(of):
    def made(data, given):
        result = of(DOMAIN.records(*data), given)
        return (result,), (2.0 * result - 1.0,)

    return made


def of_score(nuisances):
    def made(data, given):
        records = DOMAIN.records(*data)
        result = scores(nuisances, records, given)
        return (result,), (result / 6.000001,)

    return made


def of_ranges(declared):
    def made(data, given):
        ends = np.sort(given["ends"], axis=1) + np.array([0.0, 1.0])  # as those that are released
        return inside(declared.closed([tuple(pair) for pair in ends.tolist()]).records(*data))

    return made


#: What is made of every record at released numbers, and sizes of at most 1.
MADE = {
    "constant": of_map(WithConstant()),
    **{f"{rows}": of_map(OutcomeRows(rows)) for rows in Rows},
    **{
        f"{rows}, after a center": of_map(OutcomeRows(rows, Term(rows, (0.3,) * WIDTHS[rows]), 2.7))
        for rows in Rows
    },
    **{
        f"{one}": of_factors(
            lambda r, given, one=one: Factors(PROPENSITY, one, 4.0).of(r.covariates, r.a, given)
        )
        for one in Balance
    },
    "matched": of_factors(OutcomeRows(Rows.COMMON, arms=Arms.MATCHED, log_odds=PROPENSITY).factors),
    "score": of_score(LINES),
    "released ranges": of_ranges(OpenDomain([None] * K)),
}
NASTY = st.sampled_from(
    [0.0, -0.0, -3.7, 1e-300, 1e154, -1e300, 1.7e308, float("inf"), float("nan")]
)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", MADE)
@given(
    st.integers(0, 10**6),
    st.integers(0, N - 1),
    st.lists(NASTY | st.floats(-3, 3), min_size=8, max_size=8),
)
@settings(max_examples=10)
def test_a_record_changes_what_is_made_of_it_alone_and_inside_of_public_bounds(
    name, seed, place, numbers
):
    mine, theirs, whole = raw(seed), raw(seed), np.clip(np.nan_to_num(np.array(numbers)), -1e7, 1e7)
    for column, value in zip(theirs, (1e9, 1 - mine[1][place], -1e9), strict=True):
        column[place] = value
    given = {rows: np.array(numbers)[:width] for rows, width in WIDTHS.items()}
    given |= {"ends": whole.reshape(K + 1, 2)}
    alone = [column[place : place + 1] for column in mine]
    (one, sizes), (other, further), (only, _) = (
        MADE[name](data, given) for data in (mine, theirs, alone)
    )
    kept = np.arange(N) != place
    for own, another, single in zip(one, other, only, strict=True):
        assert np.array_equal(own[kept], another[kept], equal_nan=True)
        # to the last bit, wherever it stands
        assert np.array_equal(own[~kept], single, equal_nan=True)
    assert all(np.all(np.abs(size) <= 1.0) for size in (*sizes, *further))


@pytest.mark.parametrize("chosen", [WithConstant(), *map(OutcomeRows, Rows)], ids=str)
def test_mapped_rows_lie_in_the_box_and_the_ball_that_were_stated_before(chosen):
    domain = replace(DOMAIN, coordinate_bound=(0.9, 0.2, 1e-3))
    where, reached = chosen.universe(Universe(domain, N, K)), 0.0
    for seed in range(20):
        result = chosen.records(domain.records(*raw(seed)), {})
        reached = np.maximum(reached, np.abs(result.X).max(axis=0))
    assert result.space == where.space
    assert np.all(reached <= where.widths)
    assert np.all(reached > 0.99 * np.array(where.widths))
    assert where.n_columns == len(where.widths) == WIDTHS[chosen.rows]
    x = np.array([[1.3, 0.0]])
    longest = max(np.linalg.norm(chosen.rows.of(x, np.array([arm]))) for arm in (0, 1))
    assert longest <= chosen.rows.norm(1.3) <= longest * (1 + 1e-11)


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        (Rows.COMMON, [[1, 0, 0.5, -0.25], [0, 1, 0.1, 0.2]]),
        (Rows.ARMS, [[1, 0.5, -0.25, 0, 0, 0], [0, 0, 0, 1, 0.1, 0.2]]),
        (Rows.POOLED, [[1, 0.5, -0.25], [1, 0.1, 0.2]]),
    ],
)
def test_rows_are_those_of_their_names_and_predict_in_exact_arithmetic(rows, known):
    x, a = np.array([[0.5, -0.25], [0.1, 0.2]]), np.array([0, 1])
    assert np.array_equal(rows.of(x, a), np.array(known, dtype=float))
    assert len(rows.names(("u", "v"))) == len(known[0])
    rng = np.random.default_rng(8)
    x, a = rng.normal(size=(50, 19)) * np.exp(rng.normal(size=(50, 1)) * 20), rng.integers(0, 2, 50)
    theta = rng.normal(size=len(rows.names(("x",) * 19)))
    terms = rows.of(x, a) * theta
    exact = [math.fsum(row) for row in terms]
    assert np.all(
        np.abs(rows.predict(theta, x, a) - exact) <= 64 * 2.0**-53 * np.abs(terms).sum(axis=1)
    )
    # a coefficient on scaled rows is undone
    scaled, plain = (
        rows.predict(theta, 0.3 * x, a),
        OutcomeRows(rows, scale=0.3).unscaled(theta, 19),
    )
    assert np.allclose(rows.predict(plain, x, a), scaled, rtol=1e-12, atol=1e-12)


def by_hand(records, given, cap=4.0, bound=1.5, center=0.25, score_bound=6.0):
    """The definition, one record at a time."""
    theta, lam = given["common"], given["pooled"]
    result = []
    for x, a, y in zip(records.covariates, records.a, records.y, strict=True):
        m = [theta[arm] + sum(t * v for t, v in zip(theta[2:], x, strict=True)) for arm in (0, 1)]
        m = [min(max(value, -2.0), 2.0) for value in m]
        e = 1 / (1 + np.exp(-(lam[0] + sum(t * v for t, v in zip(lam[1:], x, strict=True)))))
        e = min(max(e, 1 / cap), 1 - 1 / cap)
        r = min(max(y - m[a], -bound), bound)  # not clipped before the prediction is subtracted
        g, weighted = m[1] - m[0] - center, r / e if a else -r / (1 - e)
        g = min(max(g, -score_bound), score_bound)
        room = score_bound - abs(g)
        result.append(g + min(max(weighted, -room), room))
    return np.array(result)


def test_the_score_is_augmented_inverse_propensity_weighting():
    rng = np.random.default_rng(3)
    records = DOMAIN.records(*raw(1))
    released = {"common": rng.normal(size=2 + K), "pooled": 3 * rng.normal(size=1 + K)}
    result = scores(LINES, records, released)
    assert np.allclose(result, by_hand(records, released), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [*Balance, "matched"])
def test_factors_in_exact_arithmetic(kind):
    rng, lam = np.random.default_rng(0), np.array([0.4, 3.0, -2.0])
    records = DOMAIN.records(
        rng.uniform(-0.8, 0.8, (200, 2)), rng.integers(0, 2, 200), np.zeros(200)
    )
    x, a, released = records.covariates, records.a, {"pooled": lam}
    if kind == "matched":
        result = OutcomeRows(Rows.COMMON, arms=Arms.MATCHED, log_odds=PROPENSITY).factors(
            records, released
        )
    else:
        result = Factors(PROPENSITY, kind, 4.0).of(x, a, released)
    for row, arm, factor in zip(x, a, result, strict=True):
        odds = mpmath.exp(lam[0] + mpmath.fdot(row.tolist(), lam[1:].tolist()))
        e = odds / (1 + odds)
        own = e if arm else 1 - e
        right = {
            Balance.MATCHING: min(e, 1 - e) / own,
            Balance.OVERLAP: 1 - own,
            Balance.INVERSE: min(1 / own, 4) / 4,
            "matched": min(e, 1 - e) / own * (1 - own),
        }[kind]
        assert factor == pytest.approx(float(right), rel=1e-13)


@pytest.mark.parametrize("treats", [True, False])
def test_gains_at_rates_by_side_are_off_by_the_slopes_alone(treats):
    """``P_d ((1 - pi_d) db_1 + pi_d db_0)'Delta_d`` for any released lines; a common rate adds to
    it.

    Outcomes are linear in either arm, without noise, treated more often on one side of a rule.
    """
    rng, slopes = np.random.default_rng(3), np.array([[0.7, -0.4], [-0.2, 1.1]])
    x = rng.uniform(-1, 1, (400, 2))
    a = (rng.random(400) < np.where(x[:, 0] > 0.2, 0.7, 0.25) + 0.2 * x[:, 1]).astype(int)
    lines = np.array([0.3, 1.0])[:, None] + slopes @ x.T
    records = Domain(1.5, 100.0).records(x, a, lines[a, np.arange(400)])
    released = np.array([[0.1, 0.5, 0.2], [0.9, -0.6, 0.7]])
    side = (x[:, 0] > 0.2) == treats

    def off(rates):
        nuisances = RuleNuisances(Term(Rows.ARMS, tuple(released.ravel())), 0.5, by_side=rates)
        score = ValueScore(nuisances, 1e3, 1e3, 1e3)
        result = score.score(score.parts(records, {"rule": np.array([-0.2, 1.0, 0.0])}))
        return np.mean(side * (result - (lines[1] - lines[0])))

    rates = tuple(float(a[(x[:, 0] > 0.2) == one].mean()) for one in (False, True))
    share, own, wrong = side.mean(), rates[treats], slopes - released[:, 1:]
    apart = x[side & (a == 1)].mean(axis=0) - x[side & (a == 0)].mean(axis=0)
    assert off(rates) == pytest.approx(
        share * ((1.0 - own) * wrong[1] + own * wrong[0]) @ apart, abs=1e-13
    )
    assert abs(off((float(a.mean()),) * 2) - off(rates)) > 0.02
