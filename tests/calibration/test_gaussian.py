"""The privacy profile of Theorem 2 against closed forms and published figures."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration.profiles import gaussian_delta, private_ratio


def half_normal_delta(s, epsilon):
    """The expectation for p = 1 in closed form, 40 digits."""
    with mpmath.workdps(40):
        s, epsilon = mpmath.mpf(s), mpmath.mpf(epsilon)
        start = max(epsilon / s - s / 2, mpmath.mpf(0))
        root = mpmath.sqrt(2)
        tail = mpmath.erfc(start / root)
        tilted = mpmath.exp(epsilon) * mpmath.erfc((start + s) / root)
        return float(tail - tilted)


@pytest.mark.parametrize("s", [1e-8, 1e-3, 0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("left", [-2.0, 0.0, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("cells", [4, 64, 512])
def test_bound_is_above_the_closed_form_on_every_grid(s, left, cells):
    exact = half_normal_delta(s, left)
    bound = float(gaussian_delta(s, left, 1, cells))
    assert bound >= min(exact, 1.0)
    if cells == 512:
        assert bound <= exact * 1.001 + 1e-304


@pytest.mark.parametrize("p", [2, 7, 100, 1000])
def test_bound_agrees_with_simulation(p):
    rng = np.random.default_rng(7)
    chi = np.sqrt(rng.chisquare(p, size=200_000))
    for s, left in ((0.1, 0.1 * math.sqrt(p)), (1.0, math.sqrt(p) + 1.0), (0.5, 0.3), (0.01, -0.2)):
        sample = np.maximum(-np.expm1(left - s * chi - s * s / 2), 0.0)
        margin = 5 * sample.std() / math.sqrt(len(sample)) + 1e-3 * sample.mean()
        assert float(gaussian_delta(s, left, p)) == pytest.approx(sample.mean(), abs=margin)


def test_survival_function_is_bounded_far_in_the_tail():
    from dp2erm_cvx.calibration.profiles import _survival_and_hazard

    rng = np.random.default_rng(3)
    for p in (1, 2, 30, 1000):
        for x in rng.uniform(math.sqrt(p), math.sqrt(p) + 36, size=8):
            survival, hazard = _survival_and_hazard(np.array([x]), p)
            with mpmath.workdps(30):
                half = mpmath.mpf(p) / 2
                exact = mpmath.gammainc(half, mpmath.mpf(x) ** 2 / 2, mpmath.inf, regularized=True)
                density = x ** mpmath.mpf(p - 1) * mpmath.exp(-(mpmath.mpf(x) ** 2) / 2)
                density /= 2 ** (half - 1) * mpmath.gamma(half)
                assert exact <= survival[0] <= exact * (1 + mpmath.mpf("1e-8")) + mpmath.mpf("2e-306")
                assert hazard[0] <= density / exact


@pytest.mark.parametrize(("p", "noise_norm"), [(10, 14.2), (40, 47.0)])
def test_published_noise_norms(p, noise_norm):
    # delta = 1/400, epsilon = 1 spent on the noise alone, unit sensitivity
    sigma = 1.0 / float(private_ratio(1.0, p, 1 / 400))
    assert sigma * math.sqrt(p) == pytest.approx(noise_norm, rel=0.01)


def test_printed_sigma_is_certified_at_small_epsilon_only():
    # the printed choice, p = 1, W_1 = 800, unit gradient bound, half of epsilon for the noise
    def delta_at_printed_sigma(epsilon):
        root = math.sqrt(math.log(400))
        L = math.hypot(1 + root, root)
        sigma = 800 / epsilon * (L + math.sqrt(L * L + epsilon / 800))
        return float(gaussian_delta(800 / sigma, epsilon / 2, 1)), sigma

    assert delta_at_printed_sigma(28)[1] == pytest.approx(241.735, abs=1e-3)
    for epsilon in (0.1, 1.0, 5.0, 17.0):
        assert delta_at_printed_sigma(epsilon)[0] <= 1 / 400
    assert delta_at_printed_sigma(56)[0] > 1 / 400


@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1 / 400, 0.5, 0.999])
@pytest.mark.parametrize("p", [1, 20, 1000])
def test_inverse_returns_the_private_end(epsilon, delta, p):
    s = float(private_ratio(epsilon, p, delta))
    assert 0 < float(gaussian_delta(s, epsilon, p)) <= delta
    assert float(gaussian_delta(s * 1.00001, epsilon, p)) > delta


def test_inverse_is_elementwise():
    epsilons = np.array([0.01, 1.0, 30.0])
    together = private_ratio(epsilons, 5, 1e-6)
    assert together.shape == (3,)
    for epsilon, s in zip(epsilons, together, strict=True):
        assert float(private_ratio(float(epsilon), 5, 1e-6)) == pytest.approx(s, rel=1e-5)


def test_at_least_the_analytic_gaussian_noise():
    # a fixed shift has the profile Phi(s/2 - e/s) - exp(e) Phi(-s/2 - e/s); ours allows any direction
    for s, epsilon in ((0.2, 0.5), (1.0, 1.0), (2.0, 5.0)):
        phi = stats.norm.cdf
        fixed = phi(s / 2 - epsilon / s) - math.exp(epsilon) * phi(-s / 2 - epsilon / s)
        assert float(gaussian_delta(s, epsilon, 1)) >= fixed
