"""The printed bounds: their values, where they hold, and the counterexamples where they do not."""

import math

import numpy as np
import pytest

from dp2erm_cvx.stability import (
    paper_entropy_balancing,
    paper_ipw_logistic,
    paper_kernel_balancing,
    paper_known_coefficient,
    paper_randomized_trial,
    usable,
)
from tests.stability.movement import INF, Pair, ipw, printed_quantities, solved
from tests.stability.test_kernel import balancing


def norm_bound(bound, n):
    """The printed 2-norm bound, recovered from a figure without the universal corollary."""
    return (bound.W1 - 2 * bound.w_max) / math.sqrt(n)


@pytest.mark.parametrize(
    ("n", "M", "rho", "R"), [(50, 2.0, 3.0, 0.4), (1000, 0.5, 0.015, 3.0), (9, 1.0, 1e3, 9.0)]
)
def test_estimated_propensity_as_printed(n, M, rho, R):
    d = min(R, M / 2 / rho)
    B = 4 * M**2 * math.exp(M * R) / rho
    B += 2 * M * d * math.exp(M * d) * (1 + (1 + math.exp(M * d)) / (2 * n))
    w_max = min(n, math.exp(M * R))
    bound = paper_ipw_logistic(n, M, rho, R)
    assert pytest.approx(math.sqrt(n) * B + 2 * w_max, rel=1e-9) == bound.W1
    assert pytest.approx(math.sqrt((B**2 + 2 * w_max**2) * (1 + n)), rel=1e-9) == bound.W2
    assert bound.V == bound.W1
    used = usable(n, paper_ipw_logistic(n, M, rho, R))
    assert pytest.approx(min(bound.W1, 2 * n + 2 * w_max), rel=1e-9) == used.W1
    assert pytest.approx(min(bound.W2, math.sqrt(2 * n * w_max * (1 + n))), rel=1e-9) == used.W2


@pytest.mark.parametrize(
    ("n", "rho", "R", "ratio"), [(400, 1.0, 0.5, 1.0), (30, 40.0, 2.0, 3.0), (500, 0.09, 0.2, 1.5)]
)
def test_entropy_balancing_as_printed(n, rho, R, ratio):
    d = min(R, (1 + math.sqrt(2)) / rho)
    B = 2 * ratio * math.exp(2 * R) * (math.sqrt(2) + ratio * math.exp(2 * R)) / (rho * math.sqrt(n))
    B += 2 * R * ratio**2 * math.exp(4 * R) / rho + 2 * math.sqrt(2) * ratio * d * math.exp(2 * d)
    bound = paper_entropy_balancing(n, rho, R, n // 4, ratio)
    assert pytest.approx(B, rel=1e-8) == norm_bound(bound, n)
    assert pytest.approx(min(n, ratio * math.exp(2 * R)), rel=1e-9) == bound.w_max
    assert usable(n, paper_entropy_balancing(n, rho, R, n // 4, ratio)).W1 <= bound.W1


@pytest.mark.parametrize(("n", "propensity"), [(2, 0.5), (10, 0.2), (400, 0.97)])
def test_randomized_trial_covers_every_assignment(n, propensity):
    low, high = min(propensity, 1 - propensity), max(propensity, 1 - propensity)
    bound = paper_randomized_trial(n, propensity)
    B = math.sqrt(2) * (high - low) / low * n / (n - 1)
    assert pytest.approx(2 * B + 2 * min(n, high / low), rel=1e-9) == bound.W1
    used = usable(n, paper_randomized_trial(n, propensity))
    for rare in range(n):
        f = np.where(np.arange(n) < rare, 1 / low, 1 / high)
        w = n * f / f.sum()
        f[-1] = 1 / low
        v = n * f / f.sum()
        first, second = printed_quantities(w, v)
        assert np.linalg.norm(w - v) <= B + 1e-12
        assert first <= used.W1
        assert second <= used.W2


def test_known_coefficient_as_printed_and_covered():
    n, M, R = 30, 2.0, 0.5
    bound = paper_known_coefficient(n, M, R)
    assert pytest.approx(2 * math.sqrt(2) * math.e + 2 * math.e, rel=1e-9) == bound.W1
    assert pytest.approx(math.sqrt(4 * math.e**2 * (1 + n)), rel=1e-9) == bound.W2
    f = 1 + np.exp(-np.append(np.full(n - 1, M * R), -M * R))
    w = n * f / f.sum()
    f[-1] = f[0]
    first, second = printed_quantities(w, n * f / f.sum())
    assert first <= bound.W1
    assert second <= bound.W2


def test_estimated_propensity_covers_random_datasets():
    rng = np.random.default_rng(13)
    largest = 0.0
    for _ in range(150):
        n = int(rng.integers(3, 30))
        ridge, R = 10 ** rng.uniform(-0.5, 2), 10 ** rng.uniform(-1, 0.3)
        z = rng.normal(size=(n + 1, 2))
        z = np.column_stack([np.ones(n + 1), z / np.linalg.norm(z, axis=1, keepdims=True)])
        _, w, v = solved(ipw(ridge, R), Pair(z[: n - 1], np.ones(n - 1), z[n - 1], z[n]))
        printed = paper_ipw_logistic(n, 1.0, ridge, R)
        used = usable(n, paper_ipw_logistic(n, 1.0, ridge, R))
        first, second = printed_quantities(w, v)
        assert np.linalg.norm(w - v) <= norm_bound(printed, n)
        assert first <= used.W1
        assert second <= used.W2
        largest = max(largest, first / used.W1)
    assert largest > 0.5


def test_no_radius_leaves_the_universal_corollary():
    for bound in (
        usable(50, paper_ipw_logistic(50, 1.0, 0.1, INF)),
        usable(50, paper_entropy_balancing(50, 0.1, INF, 10)),
        usable(50, paper_kernel_balancing(50, 1.0, 0.1, INF)),
        usable(50, paper_known_coefficient(50, 1e3, 1e3)),
    ):
        assert pytest.approx(200) == bound.W1
        assert "universal" in bound.theorem


def test_mmd_holds_when_neighbors_keep_their_treatment():
    # the cap may bind; n C / ridge sqrt((2R + alpha)^2 / n + 4) is what the argument gives, and is smaller
    rng = np.random.default_rng(6)
    largest, bound_by_cap = 0.0, 0
    for _ in range(300):
        n = int(rng.integers(4, 12))
        F = np.eye(2)[rng.integers(0, 2, n + 1)] * rng.choice([-1.0, 1.0], (n + 1, 1))
        arm = np.append(rng.permutation(np.arange(n - 1) % 2), [0, 0])
        ridge, alpha, cap = n * 10 ** rng.uniform(-1.5, 1.5), rng.random(), 1.25 * n / (2 * ((n - 1) // 2))
        rows = np.column_stack([arm, F])
        pair = Pair(rows[: n - 1], np.ones(n - 1), rows[n - 1], rows[n])
        _, w, v = solved(balancing(n, ridge, pooled=False, signed=True, alpha=alpha, cap=cap), pair)
        moved = np.linalg.norm(w - v)
        corrected = n / ridge * math.sqrt((2 * cap + alpha) ** 2 / n + 4)
        printed = paper_kernel_balancing(n, 1.0, ridge, cap)
        used = usable(n, paper_kernel_balancing(n, 1.0, ridge, cap))
        assert moved <= corrected <= norm_bound(printed, n)
        first, second = printed_quantities(w, v)
        assert first <= used.W1
        assert second <= used.W2
        bound_by_cap += max(w.max(), v.max()) > cap * (1 - 1e-9)
        largest = max(largest, moved / corrected)
    assert largest > 0.25
    assert bound_by_cap > 10
