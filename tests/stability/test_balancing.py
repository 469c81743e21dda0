"""Theorems 4, 4', 5 and 6: their ingredients, and independent evaluations of the bounds."""

import math
import tracemalloc

import numpy as np
import pytest

from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing_paper_scaling,
    kernel_balancing,
    pooled_kernel_balancing,
    ridged_entropy_balancing,
)
from dp2erm_cvx.stability import balancing as cells
from tests.stability.movement import INF


def arm_constants(balance, constant, mass):
    """D, the largest distance of two rows ``e_a (x) (c, x)``, and n times the movement of the target."""
    squared = balance**2 + constant**2
    target = 2 * balance**2 if mass == "equal" else 8 * balance**2 + 2 * squared
    return max(2 * balance, math.sqrt(2 * squared)), math.sqrt(target)


@pytest.mark.parametrize("constant", [0.0, 0.4, 3.0])
def test_diameter_and_target_movement_against_random_records(constant):
    rng = np.random.default_rng(2)
    n, balance, widest = 5, 1.3, np.zeros(3)
    for _ in range(1000):
        x = rng.normal(size=(n + 1, 2))
        x *= balance / np.linalg.norm(x, axis=1, keepdims=True)
        if rng.integers(2):
            x[:n], x[n] = x[0], -x[0]
        a = rng.integers(0, 2, n + 1) if rng.integers(2) else np.append(np.zeros(n, int), rng.integers(2))
        g = np.column_stack([np.full(n + 1, constant), x])
        b = np.column_stack([g * (1 - a)[:, None], g * a[:, None]])
        (mean, share), (mean_new, share_new) = (
            (g[rows].mean(0), a[rows].mean()) for rows in (np.arange(n), np.append(np.arange(n - 1), n))
        )
        equal = np.concatenate([mean - mean_new] * 2) / 2
        arms = [(1 - share) * mean - (1 - share_new) * mean_new, share * mean - share_new * mean_new]
        moved = b[0] - b[n], n * equal, n * np.concatenate(arms)
        widest = np.maximum(widest, [np.linalg.norm(one) for one in moved])
    bounds = np.array([*arm_constants(balance, constant, "equal"), arm_constants(balance, constant, "")[1]])
    assert np.all(widest <= bounds * (1 + 1e-12))
    assert np.all(widest >= 0.75 * bounds)


def entropy_by_hand(n, balance, constant, mu, radius, mass, floor):
    """(w_max, V) of Theorem 4: the log odds of every arm share, and the change of the law, on grids."""
    D, target = arm_constants(balance, constant, mass)
    xi, largest = np.linspace(0, 40, 200_001), 0.0
    gap = 1 / (1 + (n - 1) * np.exp(-xi)) - 1 / n
    for k in range(floor or 1, n - (floor or 0) + 1):
        p0, p1 = k / n, 1 - k / n
        cf = math.sqrt(balance**2 * ((1 + p0) ** 2 + p1**2) + 2 * constant**2 * p1**2)
        rho = 2 * balance * p0 * p1 / mu
        center, room = rho * balance, rho**2 / 2
        if mass == "equal":
            center = (balance**2 + p1 * constant**2 * (p1 - p0)) / (2 * mu)
            room = (balance**2 + constant**2 * (p1 - p0) ** 2) / (8 * mu**2)
        left = room - gap * xi / mu
        right = np.minimum(center + cf * np.sqrt(np.maximum(left, 0)), radius * cf) * n / (n - 1)
        largest = max(largest, xi[(xi <= right) & (left >= 0)].max())
    p = 1 / (1 + (n - 1) * math.exp(-largest))
    e = p * D + target / n
    tau, delta = np.linspace(0, 1, 200_001)[:-1], np.linspace(0, min(e / mu, 2 * radius), 20_001)
    by_divergence = 2 * np.interp((e * delta - mu * delta**2) / (1 - p), 4 * tau * np.arctanh(tau), tau)
    change = np.max(np.minimum(2 * np.tanh(D * delta / 4), by_divergence))
    return n * p, min(2 * n, 2 * n * p + n * (1 - p) * change)


@pytest.mark.parametrize("mass", ["equal", "proportional"])
@pytest.mark.parametrize("constant", [0.3, 1.0])
@pytest.mark.parametrize(
    ("n", "mu", "radius", "floor"),
    [
        (7, 0.5, INF, None),
        (60, 0.05, 2.0, None),
        (100, 1.0, INF, 30),
        (400, 10.0, INF, None),
        (300, 0.1, 0.3, 9),
    ],
)
def test_entropy_balancing_against_an_independent_evaluation(mass, constant, n, mu, radius, floor):
    w_max, V = entropy_by_hand(n, 0.8, constant, mu, radius, mass, floor)
    result = ridged_entropy_balancing(n, EntropyConstants(0.8, constant, mu, radius, mass, floor))
    assert w_max <= result.w_max <= w_max * (1 + 1e-3)
    assert V * (1 - 1e-9) <= result.V <= V * (1 + 1e-3)


G = math.sqrt(0.5)


def test_bounds_of_large_samples_need_no_array_of_their_length():
    tracemalloc.start()
    entropy = [ridged_entropy_balancing(n, EntropyConstants(G, G, 1.0)).V for n in (4000, 5000, 10**6, 10**7)]
    per_arm = [kernel_balancing(n, KernelConstants(1.0, n), n // 4).V for n in (100, 10**4, 10**6, 10**7)]
    pooled = [pooled_kernel_balancing(n, KernelConstants(1.0, n)).V for n in (100, 10**4, 10**7)]
    assert tracemalloc.get_traced_memory()[1] < 10**7  # bytes: fewer than one per record
    tracemalloc.stop()
    assert max(entropy) / min(entropy) < 1.01
    assert max(per_arm) < 14.2
    assert max(pooled) < 10.1


def by_hand(n, mu, floor, radius, drift=None):
    """The statement, written out; ``drift`` replaces eta where the refinement does."""
    G, eta = floor / n, 1 / floor
    refined, drift = drift is not None, eta if drift is None else drift
    r = min(radius, 2 * G * math.sqrt(G**2 + (1 - G) ** 2) / mu)
    p = 1 / (1 + (n - 1) * math.exp(-2 * r))
    e = 2 * p + drift + 2 * math.sqrt(2) * G / n
    s = r * math.sqrt(eta * drift)
    first = s / 2 + math.sqrt(s**2 / 4 + e**2 / (4 * mu * (1 - p)))
    tilt = 2 * math.tanh(r * eta / 2)
    tilt = min(tilt, 2 * math.exp(2 * r * eta) * r * drift) if refined else tilt
    delta = min((e + tilt) / mu, 2 * r)
    return min(2 * n, 2 * n * p + n * (1 - p) * min(first, 2 * math.tanh((r * eta + delta) / 2)))


@pytest.mark.parametrize("mu", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(("n", "floor", "radius"), [(5, 2, INF), (400, 100, 0.3), (10_000, 500, 1.0)])
def test_scaled_against_the_statement_written_out(n, floor, radius, mu):
    stated = entropy_balancing_paper_scaling(n, mu, floor, radius, refined=False)
    assert stated.V == pytest.approx(by_hand(n, mu, floor, radius), rel=1e-8)
    r = min(radius, 2 * floor / n * math.hypot(floor / n, 1 - floor / n) / mu)
    drift = min(1 / floor, math.exp(2 * r) / (n - 1) * (1 + floor / (n - floor)))
    refined = entropy_balancing_paper_scaling(n, mu, floor, radius)
    assert refined.V == pytest.approx(by_hand(n, mu, floor, radius, drift), rel=1e-8)
    assert refined.V <= stated.V


KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT


def dense_law_movement(g, q, k, alpha, ridge):
    """Largest d on a grid such that the quadratic inequality holds for some X in [0, k d]."""
    d = np.linspace(0, q + g * k / ridge, 20_001)
    X = np.clip(g / (2 * alpha) if alpha else np.inf, 0, k * d)
    return d[alpha * X**2 - g * X + ridge * (d**2 - q * d) <= 1e-15].max()


def scalar_per_arm(n, C, lam, floor, alpha, signed):
    """The statement in scalar arithmetic, arm size by arm size, with the largest d found on a grid."""
    a = 1 - alpha
    omega = (4 if signed else 2) * C / lam
    k = math.sqrt((n - floor) * C / (1 if signed else 2))
    unit = 2 * math.sqrt(C) if signed else math.sqrt(2 * C)

    def t(m):
        y = alpha * m / n
        H = 4 if signed else (2 - y if y <= 0.5 else 1 + 1 / (4 * y))
        return min(1, 1 / m + C * H / lam)

    def Q(m):
        return math.sqrt(min(omega, m * omega**2 / 4))

    values = []
    for m in range(floor, n - floor + 1):
        g = unit * (t(m) * math.sqrt(1 + a * a) + math.sqrt(2) * alpha / n)
        d = dense_law_movement(g, t(m) * Q(m), k, alpha, lam)
        values.append(math.sqrt(n - 1) * d + 2 * t(m))
        b = n - m + 1
        if m > floor and b > floor:
            g = unit * (math.hypot(t(m) + a * t(b), t(b) + a * t(m)) + math.sqrt(2) * alpha / n)
            d = dense_law_movement(g, math.hypot(t(m) * Q(m), t(b) * Q(b)), k, alpha, lam)
            values.append(math.sqrt(n - 1) * d + 2 * (t(m) + t(b)))
    return min(2 * n, n / 2 * max(values))


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize(
    ("n", "C", "lam", "floor"), [(9, 1.0, 30.0, 2), (40, 0.5, 400.0, 20), (41, 3.0, 900.0, 5)]
)
@pytest.mark.parametrize("signed", [False, True])
def test_against_an_independent_evaluation(n, C, lam, floor, alpha, signed):
    dense = scalar_per_arm(n, C, lam, floor, alpha, signed)
    V = kernel_balancing(n, KernelConstants(C, lam, alpha=alpha, signed=signed), floor).V
    assert dense <= V * (1 + 1e-9)
    assert pytest.approx(dense, rel=1e-3) == V


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_pooled_against_an_independent_evaluation(alpha):
    n, C, lam = 50, 2.0, 300.0
    tau = 1 / n + (2 - alpha) * C / lam
    omega = (2 - alpha / 2) * C / lam
    Q = math.sqrt(min(omega, n * omega**2 / 4))
    g = math.sqrt(C) * (math.sqrt(2) * (2 - alpha) * tau + alpha / n)
    d = dense_law_movement(g, tau * Q, math.sqrt(n * C / 2), alpha, lam)
    V = pooled_kernel_balancing(n, KernelConstants(C, lam, alpha=alpha)).V
    assert pytest.approx(n * (math.sqrt(n - 1) * d + 2 * tau), rel=1e-3) == V


def test_grouped_sizes_bound_every_size(monkeypatch):
    arguments = (5000, KernelConstants(1.0, 3000.0), 3)
    exact = kernel_balancing(*arguments).V
    monkeypatch.setattr(cells, "_EXACT", 2**9)
    assert exact <= kernel_balancing(*arguments).V <= 1.05 * exact


@pytest.mark.parametrize(("first", "last"), [(2, 2), (2, 10), (3, 200_000), (25_000, 75_001), (2, 10**7)])
def test_cells_cover_every_size(first, last):
    low, high = cells.size_cells(first, last)
    assert (low[0], high[-1]) == (first, last)
    assert (low <= high).all()
    np.testing.assert_array_equal(high[:-1] + 1, low[1:])


def test_a_cap_that_cannot_bind_changes_nothing():
    free = kernel_balancing(200, KernelConstants(1.0, 500.0), 20)
    assert kernel_balancing(200, KernelConstants(1.0, 500.0), 20, weight_cap=free.w_max).V == free.V
