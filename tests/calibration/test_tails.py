"""Laws of noise against quadrature and closed forms in many digits."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad

from dp2erm_cvx.calibration.base import Noise, _many_tail, sum_quantile, sum_tail
from dp2erm_cvx.calibration.numbers import analytic_delta, analytic_ratio

LAPLACE, GAUSSIAN = Noise.GAMMA, Noise.GAUSSIAN


def tail_by_quadrature(x, s, b):
    """P(N + L > x), the normal density against the Laplace tail."""
    with mp.workdps(20):
        x, s, b = mp.mpf(x), mp.mpf(s), mp.mpf(b)

        def laplace_tail(y):
            return mp.exp(-y / b) / 2 if y > 0 else 1 - mp.exp(y / b) / 2

        # the tilted normal peaks at s^2 / b as well
        cuts = sorted({x, mp.mpf(0), min(s * s / b, x), *(k * s for k in (-12, -4, 4, 12)), x - b, x + b})
        return mp.quad(lambda t: mp.npdf(t, 0, s) * laplace_tail(x - t), [-40 * s, *cuts, cuts[-1] + 40 * s])


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

        expected = sum(quad(density, *ends, epsabs=1e-13, limit=200)[0] for ends in itertools.pairwise(cuts))
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
    drawn = rng.laplace(size=(400_000, 4)) @ np.array(scales) + deviation * rng.standard_normal(400_000)
    for x in (1.0, 3.0, 6.0):
        tail = sum_tail(Noise.GAMMA, x, deviation, *scales)
        assert abs(np.mean(drawn > x) - tail) < 6.0 * np.sqrt(tail / len(drawn))
        assert sum_tail(Noise.GAMMA, -x, deviation, *scales) == pytest.approx(1.0 - tail)
    quantile = sum_quantile(Noise.GAMMA, 0.025, deviation, *scales)
    assert sum_tail(Noise.GAMMA, quantile, deviation, *scales) == pytest.approx(0.025, rel=1e-6)
    normal = sum_quantile(Noise.GAUSSIAN, 0.025, deviation, *scales)
    assert normal == pytest.approx(1.959964 * np.sqrt(deviation**2 + 3.25), rel=1e-6)
