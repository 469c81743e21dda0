"""C_2 against an independent dense search."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dp2erm_cvx.stability import overlap_constant


def interval(margin):
    return 1 + math.exp(-margin), 1 + math.exp(margin)


@pytest.mark.parametrize(("margin", "value"), [(0.0, 1.0), (0.5, 1.65), (1.0, 3.60), (2.0, 24.1)])
def test_reference_values(margin, value):
    assert overlap_constant(*interval(margin)) == pytest.approx(value, rel=2e-3)


@pytest.mark.parametrize(
    ("low", "high"),
    [interval(0.5), interval(1.0), interval(2.0), interval(6.0), (1.02, 5.0), (1.0, 1.3), (1.0, 20.0)],
)
def test_against_a_dense_grid(low, high):
    axis = np.linspace(0, 1, 151)
    Q, alpha, beta = np.meshgrid(axis, axis, axis, indexing="ij", sparse=True)
    g = [f * (f - 1) for f in (low, high)]
    second = Q * (1 - Q) ** 2 * (g[0] + alpha * (g[1] - g[0])) + (1 - Q) * Q**2 * (
        g[0] + beta * (g[1] - g[0])
    )
    mean = Q * alpha + (1 - Q) * beta
    dense = np.max(4 * second * ((1 - mean) / low + mean / high))
    assert dense <= overlap_constant(low, high) <= dense * 1.002


def test_against_random_laws_on_the_interval():
    # laws with interior atoms: the reduction to two end points is not assumed here
    rng = np.random.default_rng(5)
    for _ in range(600):
        low = 1 + rng.uniform(0, 1)
        high = low + rng.exponential(3)
        f = rng.uniform(low, high, 6)
        q = rng.dirichlet(np.full(6, 0.5))
        in_A = rng.integers(0, 2, 6).astype(bool)
        c = np.where(in_A, 1 - q[in_A].sum(), -q[in_A].sum())
        assert 4 * (q @ (f * (f - 1) * c**2)) * (q @ (1 / f)) <= overlap_constant(low, high)


def test_grows_with_the_interval_and_stays_below_the_crude_bound():
    margins = np.linspace(0.01, 20, 60)
    values = [overlap_constant(*interval(margin)) for margin in margins]
    assert all(b > a for a, b in pairwise(values))
    assert all(v <= math.exp(2 * m) * (1 + 2e-4) for v, m in zip(values, margins, strict=True))
    assert overlap_constant(1.0, 1e200) == math.inf
