"""Private sums: what one unit moves every law by, and the tails of noise on numbers in many
digits.
"""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad

from dp2erm_cvx.calibration import GridSums, Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.base import _many_tail, sum_quantile, sum_tail
from dp2erm_cvx.calibration.numbers import analytic_delta, analytic_ratio, calibrate_integers
from dp2erm_cvx.calibration.sums import _ROWS, SHARE_BITS
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget

PURE, APPROXIMATE = Budget(1.0), Budget(1.0, 1e-6)


def movement(points, kind):
    """The largest distance of two of these rows, in the norm of the noise."""
    points, order = (
        np.unique(np.array(points, dtype=float), axis=0),
        1 if kind is Noise.GAMMA else 2,
    )
    return max(float(np.linalg.norm(points - point, order, axis=1).max()) for point in points)


@pytest.mark.parametrize("bound", [1.0, 1.0000001, 7.3, 2.0**-40, 3e-99, 9e99])
@pytest.mark.parametrize("n", [2, 500, 1_300_000, 10**9])
def test_the_grid_holds_the_bound_and_the_sums(bound, n):
    for budget, kind in ((PURE, Noise.GAMMA), (APPROXIMATE, Noise.GAUSSIAN)):
        noise = calibrate_sums(SumLaw.SCORE, bound, n, budget, kind)
        assert Fraction(noise.bound) == noise.largest * Fraction(2) ** noise.step_exponent
        assert bound <= noise.bound <= bound * (1 + 2.0**-14 if n > 1_300_000 else 1 + 2.0**-19)
        assert (
            max(noise.multipliers[0], noise.multipliers[1] * noise.largest) * n * noise.largest
            <= 2**62
        )
        assert 60 * noise.scale < 2**62
        assert noise.sensitivity == 4 * noise.largest**2


def of_one_record(noise, n_groups, shares):
    """The released sums of tables of one record, by the code that adds them up."""
    rows = [np.zeros(3 * n_groups, dtype=object)]
    for place, share, part in itertools.product(
        range(n_groups), shares, np.linspace(-1.3, 1.3, 27)
    ):
        row = np.zeros(3 * n_groups, dtype=object)
        row[3 * place : 3 * place + 3] = noise.totals([part * noise.bound], [share])
        rows.append(row)
    return np.array(rows, dtype=object)


def test_groups_at_the_noise_of_one_would_cost_twice_as_much():
    noise = calibrate_sums(SumLaw.WHOLE, 3.0, 100, PURE)
    result = of_one_record(noise, 2, [0.0, 0.5]).astype(float)
    loss = movement(result, Noise.GAMMA) / noise.scale
    assert loss == pytest.approx(2.0, rel=1e-4)
    right = calibrate_sums(SumLaw.WHOLE_GROUPS, 3.0, 100, PURE)
    result = of_one_record(right, 2, [0.0, 0.5]).astype(float)
    assert 0.999 < movement(result, Noise.GAMMA) / right.scale <= 1.0
    # a score that is larger than its record's share is clipped to it
    wide = [
        noise.totals([right.bound], [0.1])[0]
        for noise in (right, calibrate_sums(SumLaw.GROUPS, 3.0, 9, PURE))
    ]
    assert wide[0] == 0
    assert wide[1] == pytest.approx(0.2 * 8 * right.largest**2, rel=1e-4)


@pytest.mark.one_row_in(8)
@pytest.mark.parametrize("kind", [Noise.GAMMA, Noise.GAUSSIAN])
@pytest.mark.parametrize(("largest", "other"), [(1, 1), (6, 1), (6, 2), (8, 1), (7, 5), (6, 6)])
@pytest.mark.parametrize("law", [SumLaw.ARMS, SumLaw.COUNTED_ARMS])
def test_second_moments_of_the_arms_cost_little(law, largest, other, kind):
    """All records, as the code adds them up; where arms are counted, means of several and silent
    ones too.
    """
    pure = kind is Noise.GAMMA
    grid = {
        "law": law,
        "step_exponent": 0,
        "largest": largest,
        "largest_other": other,
        "n_samples": 2,
    }
    noise = GridSums(**vars(calibrate_integers(1, APPROXIMATE, kind)), **grid)
    stated, m = _ROWS[law].moved(largest, other, pure), noise.multipliers
    scores, counted = range(-largest, largest + 1), law is SumLaw.COUNTED_ARMS
    marks = [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.0, 0.0)] if counted else [(0.0,), (1.0,)]
    closed = (
        2 * (largest + other) * (19 * largest - other) if pure else 32 * largest * (largest + other)
    )
    # edges of the octagon reach beyond its corners
    assert stated == closed + (
        max(7 * largest - 9 * other, 0) ** 2 // 16 + 1 if pure and counted else 0
    )
    points = {
        noise.totals([k], [j], *([one] for one in mark))
        for k, j, mark in itertools.product(scores, scores, marks)
    }
    result = movement([*points], kind)
    assert 0.85 * stated < result <= stated
    assert counted or not pure or result == stated
    if not counted:  # both means alone: 2 (K + L) in the l1 norm
        assert 2 * (largest + other) * m[0] >= stated / 1.06
    else:
        real = [
            calibrate_sums(one, 1.5, 1000, APPROXIMATE, kind, other_bound=0.5)
            for one in (SumLaw.ARMS, law)
        ]
        assert real[0].sensitivity <= real[1].sensitivity < 1.03 * real[0].sensitivity
        assert noise.totals([3.0, 3.0], [1.0, 1.0], [1, 0], [0.0, 0.0]) == (0,) * 6
        assert m[5] >= 13 * largest**2
        # nothing is left: were h to count any more, a silent record would be too much
        if m[5] < m[0] * largest:
            assert result > stated - 1 - stated * 1e-9


def test_shares_are_clipped_to_one_half_and_summed_exactly():
    noise = calibrate_sums(SumLaw.OVERLAP, 3.0, 4, APPROXIMATE)
    result = noise.totals([1.0, -9.0, np.nan, 0.0], [0.25, 0.9, np.nan, -1.0])
    means = noise.means(result)
    bound = noise.bound
    assert means == pytest.approx(((1.0 - bound) / 4, 0.75 / 4, (1.0 + bound**2) / 4), rel=1e-5)


def test_sums_of_groups_refuse_a_share_of_another_length():
    noise = calibrate_sums(SumLaw.DISJOINT, 3.0, 4, PURE)
    with pytest.raises(DeclarationError, match="share of shape"):
        noise.totals([1.0, -9.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0])


#: Scores in units of their bound and marks of one record; few for persons, whose records are
#: averaged.
SCORES, FEW = (-1.3, -1.0, -0.5, -0.1, 0.0, 0.3, 0.5, 1.0, 1.3), (-1.0, -0.5, 0.0, 0.5, 1.0)
MARKS = {
    "arm": (0.0, 0.3, 0.7, 1.0),
    "treated": (0.0, 1.0),
    "share": (0.0, 0.1, 0.2371, 0.5),
    "whole": (0.0, 0.5),
    "counts": (0.0, 0.4, 1.0),
}
FEW_MARKS = {"arm": (0.0, 1.0), "share": (0.0, 0.25, 0.5), "whole": (0.5,), "counts": (1.0,)}
#: Those of persons: ARMS are of single records, COUNTED_ARMS of means, and who is treated is no
#: mean.
OF_PERSONS = [
    law for law in SumLaw if law not in (SumLaw.ARMS, SumLaw.TREATED, SumLaw.WHOLE_GROUPS)
]
BOTH = [Noise.GAMMA, Noise.GAUSSIAN]


def law_noise(law, kind):
    other = {"other_bound": 1.0} if law.of_arms else {}
    return calibrate_sums(law, 4.0, 100, Budget(1.0, 1e-6), kind, **other)


def records(law, scores=SCORES, marks=MARKS, groups=3):
    """The columns of all records of a law, (m, groups, columns): each is in one group."""
    row, result = _ROWS[law], []
    grid = itertools.product(*(scores,) * row.scores, *(marks[one] for one in row.marks))
    for one in map(list, grid):
        if law is SumLaw.CONTRASTS and 0.0 not in one:
            continue
        if law is SumLaw.WITHIN:
            one[0] = 2.0 * one[1] * min(max(one[0], -1.0), 1.0)
        for place in range(groups if row.groups else 1):
            result.append(np.zeros((groups if row.groups else 1, len(one))))
            result[-1][place] = one
    return np.array(result)


def means(rows, most):
    """Those of all lists of at most ``most`` of these records, the empty one too."""
    lists = (itertools.combinations_with_replacement(rows, size) for size in range(1, most + 1))
    result = [np.zeros_like(rows[0]), *(np.mean(one, axis=0) for one in itertools.chain(*lists))]
    return np.unique(result, axis=0)


def added(noise, units):
    """What every unit adds to the sums, (m, sums)."""
    scores, law = _ROWS[noise.law].scores, noise.law
    units = np.array(units)
    units[:, :, :scores] *= noise.bound
    if law is SumLaw.DISJOINT:  # one count for all groups
        return np.array(
            [noise.totals(*one[:, :1], [one[:, 1].sum()]) for one in units], dtype=np.float64
        )
    if _ROWS[law].groups:  # of several groups together at most one half
        units[:, :, 1] = np.floor(units[:, :, 1] * 2**SHARE_BITS) / 2**SHARE_BITS
    sums = [[noise.totals(*own[:, None]) for own in one] for one in units]
    return np.array(sums, dtype=np.float64).reshape(len(units), -1)


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("law", "persons"), [*((law, False) for law in SumLaw), *((law, True) for law in OF_PERSONS)]
)
def test_no_unit_moves_a_law_of_sums_by_more_than_is_stated(law, persons, kind):
    noise, units = law_noise(law, kind), records(law)
    if persons:
        units = means(records(law, FEW, FEW_MARKS, 3 if law is SumLaw.DISJOINT else 2), 3)
    stated = noise.sensitivity
    # in the l2 norm what is stated of both arms is rounded up, and few shares of persons miss the
    # largest
    least = 0.85 if law.of_arms and kind is Noise.GAUSSIAN else 0.985 - 0.085 * persons
    assert least * stated < movement(added(noise, units), kind) <= stated
    # planted: scores of up to twice their bound, at the factors of the noise
    wide = replace(noise, largest=2 * noise.largest, largest_other=2 * noise.largest_other)
    factors = np.array(noise.multipliers) / np.array(wide.multipliers, dtype=np.float64)
    if not persons:
        points = added(wide, units)
        tiled = np.resize(factors[:2] if law is SumLaw.DISJOINT else factors, points.shape[1])
        tiled[-1] = factors[-1]
        assert movement(points * tiled, kind) > 1.4 * stated


@pytest.mark.parametrize("kind", BOTH)
def test_both_contrasts_of_a_record_share_one_bound(kind):
    noise = law_noise(SumLaw.CONTRASTS, kind)
    assert noise.totals([noise.bound], [-noise.bound]) == noise.totals([noise.bound], [0.0])


LAPLACE, GAUSSIAN = Noise.GAMMA, Noise.GAUSSIAN


def tail_by_quadrature(x, s, b):
    """P(N + L > x), the normal density against the Laplace tail."""
    with mp.workdps(20):
        x, s, b = mp.mpf(x), mp.mpf(s), mp.mpf(b)

        def laplace_tail(y):
            return mp.exp(-y / b) / 2 if y > 0 else 1 - mp.exp(y / b) / 2

        # the tilted normal peaks at s^2 / b as well
        cuts = sorted(
            {x, mp.mpf(0), min(s * s / b, x), *(k * s for k in (-12, -4, 4, 12)), x - b, x + b}
        )
        return mp.quad(
            lambda t: mp.npdf(t, 0, s) * laplace_tail(x - t), [-40 * s, *cuts, cuts[-1] + 40 * s]
        )


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("s", [1e-3, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("b", [0.05, 1.0, 3.0])
def test_the_tail_is_the_convolution(s, b):
    for x in (0.0, 0.3, 4.0):
        expected = tail_by_quadrature(x, s, b)
        if expected > 1e-12:
            assert sum_tail(LAPLACE, x, s, b) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("ratio", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_the_tail_where_one_law_dwarfs_the_other(ratio):
    for tail in (0.4, 0.025, 1e-9):
        x = sum_quantile(LAPLACE, tail, ratio, 1.0)
        assert sum_tail(LAPLACE, x, ratio, 1.0) == pytest.approx(tail, rel=1e-6)
        assert sum_quantile(LAPLACE, tail, ratio, 0.0) <= x * (1 + 1e-9)
        assert sum_quantile(LAPLACE, tail, 0.0, 1.0) <= x * (1 + 1e-9)


@pytest.mark.parametrize("tail", [0.3, 0.0225, 1e-6])
def test_quantiles_are_rounded_up_and_rise(tail):
    result = [sum_quantile(LAPLACE, tail, s, 0.7) for s in (0.0, 0.01, 0.3, 1.0, 3.0)]
    assert result == sorted(result)
    assert result[0] == pytest.approx(-0.7 * float(mp.log(2 * tail)), rel=1e-8)
    assert sum_quantile(LAPLACE, tail, 1.0, 0.0) == pytest.approx(
        -float(mp.sqrt(2) * mp.erfinv(2 * tail - 1)), rel=1e-8
    )
    for s, x in ((0.3, result[2]), (3.0, result[4])):
        with mp.workdps(20):
            assert tail * (1 - 1e-6) <= tail_by_quadrature(x, s, 0.7) <= tail


@pytest.mark.parametrize(("b", "c"), [(1.0, 0.3), (0.02, 1.0), (1.0, 1.0), (1.0, 1.001)])
def test_two_laplace_variables(b, c):
    """One of them is summed with the normal one by the formula, the other by quadrature."""
    for x, s in ((0.5, 0.4), (3.0, 0.4), (3.0, 1.5)):
        cuts = sorted({-40 * c, -c, 0.0, c, x - 3 * s, x, x + 3 * s, 40 * c})

        def density(y, x=x, s=s):
            other = sum_tail(LAPLACE, x - y, s, b) if y < x else 1 - sum_tail(LAPLACE, y - x, s, b)
            return other * math.exp(-abs(y) / c) / (2 * c)

        expected = sum(
            quad(density, *ends, epsabs=1e-13, limit=200)[0] for ends in itertools.pairwise(cuts)
        )
        # scales that are nearly equal are enlarged by 1/500
        slack = 0.01 if abs(b - c) < 0.002 else 1e-7
        assert expected * (1 - 1e-7) <= sum_tail(LAPLACE, x, s, b, c) <= expected * (1 + slack)


def test_sums_without_a_normal_part_and_gaussian_noise():
    x = 1.7
    # the sum of two standard Laplace variables: (2 + x) exp(-x) / 4
    expected = (2 + x) * math.exp(-x) / 4
    assert expected <= sum_tail(LAPLACE, x, 0.0, 1.0, 1.0) <= expected * 1.01
    assert sum_tail(GAUSSIAN, x, 3.0, 4.0, 12.0) == pytest.approx(float(mp.ncdf(-x / 13)), rel=1e-8)
    assert sum_quantile(GAUSSIAN, 0.025, 3.0, 4.0) == pytest.approx(5 * 1.959964, rel=1e-6)


def profile(ratio, epsilon):
    """Balle and Wang (2018), Theorem 8, in many digits."""
    with mp.workdps(60):
        s, e = mp.mpf(ratio), mp.mpf(epsilon)
        return mp.ncdf(s / 2 - e / s) - mp.exp(e) * mp.ncdf(-s / 2 - e / s)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 5.0, 60.0])
@pytest.mark.parametrize("delta", [1e-280, 1e-30, 1e-6, 0.01, 0.3])
def test_the_ratio_is_the_largest_private_one(epsilon, delta):
    ratio = analytic_ratio(epsilon, delta)
    assert profile(ratio, epsilon) <= delta
    if delta < 1e-100:
        return  # far below the accuracy that is promised for densities
    assert profile(ratio * (1 + 1e-4), epsilon) > delta


@pytest.mark.parametrize("ratio", [1e-7, 1e-3, 0.1, 1.0, 8.0, 40.0])
def test_delta_is_an_upper_bound(ratio):
    for epsilon in (1e-6, 0.01, 1.0, 5.0, 60.0):
        assert analytic_delta(ratio, epsilon) >= profile(ratio, epsilon)


@pytest.mark.parametrize("deviation", [0.0, 0.3, 2.0])
def test_many_noises_are_the_law_of_two_where_others_are_next_to_nothing(deviation):
    for x in (0.2, 1.0, 4.0, 12.0):
        two = sum_tail(Noise.GAMMA, x, deviation, 1.0, 0.4)
        inverted = _many_tail(x, deviation, (1.0, 0.4))
        assert two <= inverted + 1e-12
        assert inverted == pytest.approx(two, rel=1e-6, abs=1e-11)


def test_many_noises_by_their_kurtosis_and_by_draws():
    scales, deviation = (1.0, 1.0, 1.0, 0.5), 0.7
    rng = np.random.default_rng(2)
    drawn = rng.laplace(size=(400_000, 4)) @ np.array(scales) + deviation * rng.standard_normal(
        400_000
    )
    for x in (1.0, 3.0, 6.0):
        tail = sum_tail(Noise.GAMMA, x, deviation, *scales)
        assert abs(np.mean(drawn > x) - tail) < 6.0 * np.sqrt(tail / len(drawn))
        assert sum_tail(Noise.GAMMA, -x, deviation, *scales) == pytest.approx(1.0 - tail)
    quantile = sum_quantile(Noise.GAMMA, 0.025, deviation, *scales)
    assert sum_tail(Noise.GAMMA, quantile, deviation, *scales) == pytest.approx(0.025, rel=1e-6)
    normal = sum_quantile(Noise.GAUSSIAN, 0.025, deviation, *scales)
    assert normal == pytest.approx(1.959964 * np.sqrt(deviation**2 + 3.25), rel=1e-6)
