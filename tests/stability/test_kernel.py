"""Theorems 5 and 6: independent evaluation, and measured movement with flips."""

import math
import tracemalloc

import numpy as np
import pytest

from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import KernelConstants, kernel_balancing, pooled_kernel_balancing
from dp2erm_cvx.stability import balancing as cells

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


def test_order_one_in_n_at_ridge_n_without_an_array_of_length_n():
    tracemalloc.start()
    per_arm = [kernel_balancing(n, KernelConstants(1.0, n), n // 4).V for n in (100, 10**4, 10**6, 10**7)]
    pooled = [pooled_kernel_balancing(n, KernelConstants(1.0, n)).V for n in (100, 10**4, 10**7)]
    assert tracemalloc.get_traced_memory()[1] < 10**7  # bytes: fewer than one per record
    tracemalloc.stop()
    assert max(per_arm) < 14.2
    assert max(pooled) < 10.1


def test_a_cap_that_cannot_bind_changes_nothing():
    free = kernel_balancing(200, KernelConstants(1.0, 500.0), 20)
    assert kernel_balancing(200, KernelConstants(1.0, 500.0), 20, weight_cap=free.w_max).V == free.V
