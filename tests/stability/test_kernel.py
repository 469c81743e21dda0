"""Theorems 5 and 6: reference values, independent evaluation, measured movement with flips."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import KernelConstants, kernel, kernel_balancing, pooled_kernel_balancing

KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT


@pytest.mark.parametrize(("ridge", "V"), [(20.0, 359.0), (100.0, 49.9), (400.0, 14.1), (4000.0, 6.05)])
def test_reference_values_per_arm(ridge, V):
    assert pytest.approx(V, rel=0.01) == kernel_balancing(400, KernelConstants(1.0, ridge), 100).V


@pytest.mark.parametrize(("ridge", "V"), [(100.0, 46.8), (400.0, 10.0), (8000.0, 2.29)])
def test_reference_values_pooled(ridge, V):
    assert pytest.approx(V, rel=0.01) == pooled_kernel_balancing(400, KernelConstants(1.0, ridge)).V


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


def test_units_of_the_kernel_cancel():
    assert kernel_balancing(60, KernelConstants(7.0, 7e3), 10).V == pytest.approx(
        kernel_balancing(60, KernelConstants(1.0, 1e3), 10).V
    )
    assert pooled_kernel_balancing(60, KernelConstants(7.0, 7e3)).V == pytest.approx(
        pooled_kernel_balancing(60, KernelConstants(1.0, 1e3)).V
    )


def test_grouped_sizes_bound_every_size(monkeypatch):
    arguments = (5000, KernelConstants(1.0, 3000.0), 3)
    exact = kernel_balancing(*arguments).V
    monkeypatch.setattr(kernel, "_EXACT", 2**9)
    assert exact <= kernel_balancing(*arguments).V <= 1.05 * exact


@pytest.mark.parametrize(("first", "last"), [(2, 2), (2, 10), (3, 200_000), (25_000, 75_001), (2, 10**7)])
def test_cells_cover_every_size(first, last):
    cells = kernel.size_cells(first, last)
    assert (cells.low[0], cells.high[-1]) == (first, last)
    assert (cells.low <= cells.high).all()
    np.testing.assert_array_equal(cells.high[:-1] + 1, cells.low[1:])


def test_order_one_in_n_at_ridge_n_without_an_array_of_length_n():
    tracemalloc.start()
    per_arm = [kernel_balancing(n, KernelConstants(1.0, n), n // 4).V for n in (100, 10**4, 10**6, 10**7)]
    pooled = [pooled_kernel_balancing(n, KernelConstants(1.0, n)).V for n in (100, 10**4, 10**7)]
    assert tracemalloc.get_traced_memory()[1] < 10**7  # bytes: fewer than one per record
    tracemalloc.stop()
    assert max(per_arm) < 14.2
    assert max(pooled) < 10.1


def test_extreme_numbers_give_finite_bounds():
    with np.errstate(all="raise", under="ignore"):
        for n in (4, 400, 10**7):
            for ridge in (1e-300, 1e-12, 1.0, 1e6, 1e300):
                for alpha in (0.0, 1e-300, 1e-12, 0.5, 1.0):
                    for bound in (1e-150, 1.0, 1e300):
                        for stated in (
                            kernel_balancing(n, KernelConstants(bound, ridge, alpha=alpha), 2),
                            pooled_kernel_balancing(
                                n, KernelConstants(bound, ridge, alpha=alpha, signed=True)
                            ),
                        ):
                            assert 2.0 <= stated.V <= 2 * n
                            assert 1.0 <= stated.w_max <= n * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_monotone_in_ridge_floor_and_sign(alpha):
    values = [
        kernel_balancing(200, KernelConstants(1.0, ridge, alpha=alpha), 20).V
        for ridge in np.geomspace(1, 1e6, 25)
    ]
    assert all(later <= earlier for earlier, later in pairwise(values))
    values = [
        pooled_kernel_balancing(200, KernelConstants(1.0, ridge, alpha=alpha)).V
        for ridge in np.geomspace(1, 1e6, 25)
    ]
    assert all(later <= earlier for earlier, later in pairwise(values))
    values = [
        kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha), floor).V
        for floor in (2, 5, 20, 50, 99)
    ]
    assert all(later <= earlier for earlier, later in pairwise(values))
    for free, signed in (
        (
            kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha), 20),
            kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha, signed=True), 20),
        ),
        (
            pooled_kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha)),
            pooled_kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha, signed=True)),
        ),
    ):
        assert free.V < signed.V
    kept = kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha), 20, relation=KEEP)
    assert kept.V < kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=alpha), 20).V
    assert kept.relations == frozenset({KEEP})


def test_a_cap_that_cannot_bind_changes_nothing():
    free = kernel_balancing(200, KernelConstants(1.0, 500.0), 20)
    assert kernel_balancing(200, KernelConstants(1.0, 500.0), 20, weight_cap=free.w_max).V == free.V
    free = pooled_kernel_balancing(200, KernelConstants(1.0, 500.0))
    assert pooled_kernel_balancing(200, KernelConstants(1.0, 500.0), weight_cap=free.w_max).V == free.V


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: kernel_balancing(200, KernelConstants(1.0, 500.0), None), CalibrationError, "arm_floor"),
        (
            lambda: kernel_balancing(200, KernelConstants(1.0, 500.0), 20, weight_cap=5.0),
            CalibrationError,
            "weight_cap",
        ),
        (
            lambda: pooled_kernel_balancing(200, KernelConstants(1.0, 500.0), weight_cap=1.5),
            CalibrationError,
            "weight_cap",
        ),
        (lambda: kernel_balancing(200, KernelConstants(1.0, 0.0), 20), CalibrationError, "ridge = 0"),
        (lambda: pooled_kernel_balancing(200, KernelConstants(1.0, 0.0)), CalibrationError, "ridge = 0"),
        (lambda: kernel_balancing(3, KernelConstants(1.0, 1.0), 2), DeclarationError, "n = 3"),
        (lambda: kernel_balancing(200, KernelConstants(1.0, 500.0), 1), DeclarationError, "arm_floor"),
        (lambda: kernel_balancing(200, KernelConstants(1.0, 500.0), 101), DeclarationError, "arm_floor"),
        (lambda: kernel_balancing(200, KernelConstants(0.0, 500.0), 20), DeclarationError, "kernel_bound"),
        (
            lambda: kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=1.5), 20),
            DeclarationError,
            "alpha",
        ),
        (
            lambda: pooled_kernel_balancing(200, KernelConstants(1.0, 500.0, alpha=-0.1)),
            DeclarationError,
            "alpha",
        ),
        (
            lambda: kernel_balancing(200, KernelConstants(1.0, 500.0), 20, relation="none"),
            DeclarationError,
            "relation",
        ),
        (
            lambda: kernel_balancing(200, KernelConstants(1.0, 500.0), 20, weight_cap=math.nan),
            DeclarationError,
            "weight_cap",
        ),
    ],
)
def test_refusals(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)
