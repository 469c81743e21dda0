"""Theorem 3-IPW: reference values, its ingredients, and trimming."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.special import expit

from dp2erm_cvx.stability import logistic_propensity, overlap_constant
from dp2erm_cvx.stability.base import coupled_variation
from dp2erm_cvx.stability.logistic import largest_margin, logistic_diameter, logistic_law_change
from dp2erm_cvx.stability.universal import overlap_weight

INF = math.inf


@pytest.mark.parametrize(
    ("n", "ridge", "radius", "V"),
    [
        (400, 1.0, INF, 3.43),
        (400, 0.1, INF, 15.8),
        (400, 0.1, 1.0, 8.69),
        (400, 0.003, 1.0, 24.4),
        (10_000, 0.003, 2.0, 71.8),
        (4, 1.0, INF, 2.66),
        (400, 0.003, 4.0, 382.0),
        (100, 0.003, 2.0, 67.0),
    ],
)
def test_reference_values(n, ridge, radius, V):
    assert pytest.approx(V, rel=0.01) == logistic_propensity(n, 1.0, ridge, radius).V


@pytest.mark.parametrize(
    ("n", "ridge", "radius", "trim", "V"),
    [
        (400, 0.003, 4.0, 5.0, 51.0),
        (400, 0.03, 4.0, 5.0, 21.5),
        (400, 0.1, INF, 4.0, 10.8),
        (100, 0.003, 2.0, 4.0, 31.9),
        (400, 0.03, 4.0, INF, 70.0),
        (400, 0.1, INF, INF, 16.1),
    ],
)
def test_reference_values_without_the_refined_weight(n, ridge, radius, trim, V):
    margin = min(radius, largest_margin(ridge))
    high = min(1 + math.exp(margin), trim)
    change = logistic_law_change(n, ridge, margin, overlap_constant(1 + math.exp(-margin), high))
    plain = coupled_variation(n, overlap_weight(n, margin, trim), change)
    assert plain == pytest.approx(V, rel=0.01)
    refined = logistic_propensity(n, 1.0, ridge, radius, trim)
    assert 0.85 * plain < refined.V <= plain * (1 + 1e-9)
    assert refined.w_max <= overlap_weight(n, margin, trim) * (1 + 1e-9)


@pytest.mark.parametrize("ridge", [1e-8, 0.01, 0.1, 0.16, 0.18, 1.0, 100.0, 1e8])
def test_margin_is_the_largest_with_room_in_the_optimality_condition(ridge):
    margin = largest_margin(ridge)
    s = np.linspace(-5.0, 5.0, 200_001)

    def room(m):
        inside = s[np.abs(s) <= m]
        return np.max(np.append(inside * expit(-inside), m * expit(-m) if m < 1.278 else 0.0)) - ridge * m**2

    assert room(margin * (1 + 1e-6)) < 0 < room(margin * (1 - 1e-6))


@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0, 2.0, 5.0, 15.0, 200.0])
def test_logistic_diameter_against_the_whole_set(margin):
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 1441), np.linspace(0, 1, 81))
    t, u = radius * np.cos(angle), radius * np.sin(angle)
    share = expit(-margin * t)
    points = np.column_stack([(share * t).ravel(), (share * u).ravel()])
    hull = points[ConvexHull(points).vertices]
    diameter = np.sqrt(((hull[:, None] - hull[None]) ** 2).sum(-1)).max()
    assert diameter <= logistic_diameter(margin)
    assert logistic_diameter(margin) == pytest.approx(diameter, rel=1e-4)


@pytest.mark.parametrize("n", [4, 400, 10**6])
@pytest.mark.parametrize("ridge", [0.003, 0.05, 0.3, 1.0, 10.0])
def test_law_change_against_closed_form_and_dense_grid(n, ridge):
    margin, constant = largest_margin(ridge), 3.0
    change = logistic_law_change(n, ridge, margin, constant)
    D, C = logistic_diameter(margin), constant * n / (n - 1)
    closed = (
        D**2 / (2 * (ridge + D**2 / (4 * C))) if ridge >= D**2 / (4 * C) else math.sqrt(C / ridge) * D / 2
    )
    assert change <= closed / n * (1 + 1e-12)
    delta = np.linspace(0, min(D / (n * ridge), 2 * margin), 200_001)
    curve = np.sqrt(C * np.maximum(0, D * delta / n - ridge * delta**2))
    dense = np.max(np.minimum(2 * np.tanh(D * delta / 4), curve))
    assert dense <= change * (1 + 1e-12)
    assert change == pytest.approx(dense, rel=1e-4)


def test_a_cap_never_costs_stability_and_at_the_extremes_changes_nothing():
    for n in (4, 400):
        for ridge in (0.003, 0.1, 1.0):
            for radius in (2.0, INF):
                free = logistic_propensity(n, 1.0, ridge, radius)
                along = [logistic_propensity(n, 1.0, ridge, radius, F).V for F in np.geomspace(1.001, 1e6, 7)]
                assert all(b >= a * (1 - 2e-4) for a, b in pairwise(along))
                assert along[-1] <= free.V * (1 + 1e-9)
                # a cap below every weight makes them all equal
                lowest = 1 + math.exp(-min(radius, largest_margin(ridge)))
                assert pytest.approx(2.0) == logistic_propensity(n, 1.0, ridge, radius, lowest * (1 - 1e-6)).V
    assert logistic_propensity(400, 1.0, 0.1, 2.0, 1e6).V == logistic_propensity(400, 1.0, 0.1, 2.0).V


def test_bounded_in_n_and_of_order_root_ridge():
    few, many = (logistic_propensity(n, 1.0, 0.01, 1.0).V for n in (1000, 10**7))
    assert pytest.approx(few, rel=0.02) == many
    small, large = logistic_propensity(10**6, 1.0, 1e-6, 1.0).V, logistic_propensity(10**6, 1.0, 1e-4, 1.0).V
    assert small / large == pytest.approx(10.0, rel=0.05)
