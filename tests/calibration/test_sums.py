"""Laws of noise against quadrature and closed forms in many digits."""

import mpmath as mp
import pytest

from dp2erm_cvx.calibration.analytic import analytic_delta, analytic_ratio
from dp2erm_cvx.calibration.sums import laplace_sum_quantile, laplace_sum_tail


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
            assert laplace_sum_tail(x, s, b) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("ratio", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_the_tail_where_one_law_dwarfs_the_other(ratio):
    for tail in (0.4, 0.025, 1e-9):
        x = laplace_sum_quantile(ratio, 1.0, tail)
        assert laplace_sum_tail(x, ratio, 1.0) == pytest.approx(tail, rel=1e-6)
        assert laplace_sum_quantile(ratio, 0.0, tail) <= x * (1 + 1e-9)
        assert laplace_sum_quantile(0.0, 1.0, tail) <= x * (1 + 1e-9)


@pytest.mark.parametrize("tail", [0.3, 0.0225, 1e-6])
def test_quantiles_are_rounded_up_and_rise(tail):
    found = [laplace_sum_quantile(s, 0.7, tail) for s in (0.0, 0.01, 0.3, 1.0, 3.0)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(-0.7 * float(mp.log(2 * tail)), rel=1e-8)
    assert laplace_sum_quantile(1.0, 0.0, tail) == pytest.approx(
        -float(mp.sqrt(2) * mp.erfinv(2 * tail - 1)), rel=1e-8
    )
    for s, x in ((0.3, found[2]), (3.0, found[4])):
        with mp.workdps(20):
            assert tail * (1 - 1e-6) <= tail_by_quadrature(x, s, 0.7) <= tail


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
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 5.0, 60.0])
def test_delta_is_an_upper_bound(ratio, epsilon):
    assert analytic_delta(ratio, epsilon) >= profile(ratio, epsilon)
