"""Theorem 4' and its refinement: reference value, independent evaluation, measured movement with flips."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import entropy_balancing_paper_scaling, paper_entropy_balancing, usable
from tests.stability.movement import Pair, log_total, minimize_in_ball, movement

INF = math.inf


def weights(ridge, floor, radius=INF):
    """Fit on points (a, g), g in the unit ball; rows are scaled by the arm sizes."""

    def fit(points, count):
        arm, n = points[:, 0], count.sum()
        g = points[:, 1:] * (floor / n)
        size = np.array([count[arm == 0].sum(), count[arm == 1].sum()])
        scale = n / np.maximum(size, floor)
        b = np.column_stack([scale[0] * g * (1 - arm)[:, None], scale[1] * g * arm[:, None]])
        target = np.tile(count @ g / n, 2)

        def objective(curvature):
            def at(lam):
                s = b @ lam
                total = log_total(s, count)
                p = count * np.exp(s - total)
                m = p @ b
                value = total - math.log(n) - lam @ target + curvature / 2 * lam @ lam
                hessian = (b.T * p) @ b - np.outer(m, m) + curvature * np.eye(len(lam))
                return value, m - target + curvature * lam, hessian

            return at

        lam = minimize_in_ball(objective, ridge, radius, b.shape[1])
        s = b @ lam
        return n * np.exp(s - log_total(s, count))

    return fit


def by_hand(n, mu, floor, radius, drift=None):
    """The statement, written out; ``drift`` replaces eta where the refinement does."""
    G, eta = floor / n, 1 / floor
    drift = eta if drift is None else drift
    r = min(radius, 2 * G * math.sqrt(G**2 + (1 - G) ** 2) / mu)
    p = 1 / (1 + (n - 1) * math.exp(-2 * r))
    e = 2 * p + drift + 2 * math.sqrt(2) * G / n
    s = r * math.sqrt(eta * drift)
    first = s / 2 + math.sqrt(s**2 / 4 + e**2 / (4 * mu * (1 - p)))
    delta = min((e + 2 * math.tanh(r * eta / 2)) / mu, 2 * r)
    return min(2 * n, 2 * n * p + n * (1 - p) * min(first, 2 * math.tanh((r * eta + delta) / 2)))


def test_reference_value():
    stated = entropy_balancing_paper_scaling(400, 1.0, 100, refined=False)
    assert pytest.approx(9.79, rel=0.01) == stated.V
    refined = entropy_balancing_paper_scaling(400, 1.0, 100)
    assert 3.86 < refined.V < stated.V
    assert refined.relations == frozenset(Neighboring)
    assert any("100 records" in text for text in refined.assumptions)


@pytest.mark.parametrize("mu", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(("n", "floor", "radius"), [(5, 2, INF), (400, 100, 0.3), (10_000, 500, 1.0)])
def test_against_the_statement_written_out(n, floor, radius, mu):
    stated = entropy_balancing_paper_scaling(n, mu, floor, radius, refined=False)
    assert stated.V == pytest.approx(by_hand(n, mu, floor, radius), rel=1e-8)
    r = min(radius, 2 * floor / n * math.hypot(floor / n, 1 - floor / n) / mu)
    drift = min(1 / floor, math.exp(2 * r) / (n - 1) * (1 + floor / (n - floor)))
    refined = entropy_balancing_paper_scaling(n, mu, floor, radius)
    assert refined.V <= by_hand(n, mu, floor, radius, drift) * (1 + 1e-8)
    assert refined.V <= stated.V


def extremes(share, floor, n, after):
    """All records of an arm at one point, arms opposite; the changed one moves to ``after``."""
    treated = round(share * (n - 1))
    return Pair(
        np.array([[0, 1.0, 0.0], [1, -1.0, 0.0]]),
        np.array([n - 1.0 - treated, treated]),
        np.array([1, *after[:2]]),
        np.array([0, *after[2:]]),
    )


@pytest.mark.parametrize("refined", [True, False])
def test_flips_at_400_records_stay_below_the_bound(refined):
    n, floor = 400, 100
    bound = entropy_balancing_paper_scaling(n, 1.0, floor, refined=refined)
    rng = np.random.default_rng(4)
    largest = 0.0
    for share in (0.2507, 0.3, 0.5, 0.7, 0.749):
        for _ in range(15):
            u = rng.normal(size=(2, 2))
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            corner = [(1.0, 0.0, -1.0, 0.0), (-1.0, 0.0, -1.0, 0.0), tuple(u.ravel())][int(rng.integers(3))]
            largest = max(largest, movement(weights(1.0, floor), extremes(share, floor, n, corner)))
    assert 3.0 < largest <= bound.V


@pytest.mark.parametrize("restricted", [True, False])
def test_random_small_datasets_stay_below_the_bound(restricted):
    rng = np.random.default_rng(21)
    largest = 0.0
    for _ in range(250):
        n = int(rng.integers(4, 13))
        floor = int(rng.integers(1, n // 2 + 1))
        arm = rng.integers(0, 2, n + 1)
        g = rng.choice([-1.0, 1.0], (n + 1, 2)) * np.array([1.0, float(rng.integers(0, 2))])
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        sizes = [np.bincount(arm[rows], minlength=2).min() for rows in (np.r_[:n], np.r_[: n - 1, n])]
        if restricted and min(sizes) < floor:
            continue
        ridge, radius = 10 ** rng.uniform(-1.5, 1), float(rng.choice([INF, 10 ** rng.uniform(-1, 0.5)]))
        points = np.column_stack([arm, g])
        pair = Pair(points[: n - 1], np.ones(n - 1), points[n - 1], points[n])
        moved = movement(weights(ridge, floor, radius), pair)
        bound = entropy_balancing_paper_scaling(n, ridge, floor, radius, restricted)
        assert moved <= bound.V
        largest = max(largest, moved / bound.V if bound.V < 2 * n else 0.0)
    assert largest > 0.5


def test_planted_bug_ridge_of_unscaled_rows():
    # the ridge belongs to rows of norm at most 1; rows 20 times as long need one 400 times larger
    n, floor, ridge = 400, 100, 0.3
    moved = movement(weights(ridge, floor), extremes(0.26, floor, n, (1.0, 0.0, -1.0, 0.0)))
    assert entropy_balancing_paper_scaling(n, ridge * 400, floor).V < moved
    assert moved <= entropy_balancing_paper_scaling(n, ridge, floor).V


def test_planted_bug_one_weight_of_the_changed_record_lost():
    n, floor = 400, 200
    pair = Pair(
        np.array([[0, 1.0, 0.0], [1, 1.0, 0.0]]),
        np.array([199.0, 200.0]),
        np.array([0, 1.0, 0.0]),
        np.array([0, -1.0, 0.0]),
    )
    moved = movement(weights(50.0, floor), pair)
    bound = entropy_balancing_paper_scaling(n, 50.0, floor)
    assert bound.V - bound.w_max < moved <= bound.V


@settings(max_examples=300)
@given(
    n=st.integers(4, 100_000),
    share=st.floats(0.0, 0.5),
    ridge=st.floats(-4, 4).map(lambda x: 10**x),
    radius=st.floats(-3, 1.5).map(lambda x: 10**x),
)
def test_refined_is_never_above_the_printed_bound(n, share, ridge, radius):
    floor = max(1, int(share * n))
    sharp = entropy_balancing_paper_scaling(n, ridge, floor, radius)
    printed = paper_entropy_balancing(n, ridge, radius, floor)
    assert sharp.V <= printed.W1
    # what the paper's choice of gamma needs, see the determinant term of Theorem 1
    assert sharp.V <= 2 * printed.W2
    assert sharp.V <= usable(n, paper_entropy_balancing(n, ridge, radius, floor)).W1


def test_the_stated_bound_can_exceed_the_printed_one():
    printed = usable(2032, paper_entropy_balancing(2032, 3.18, 0.00465, 103))
    assert entropy_balancing_paper_scaling(2032, 3.18, 103, 0.00465, refined=False).V > printed.W1
    assert entropy_balancing_paper_scaling(2032, 3.18, 103, 0.00465).V < printed.W1


def test_without_restricting_the_data_costs_little():
    inside = entropy_balancing_paper_scaling(400, 1.0, 100)
    free = entropy_balancing_paper_scaling(400, 1.0, 100, restricted=False)
    assert inside.V < free.V < 1.5 * inside.V
    assert "scaled as if" in free.assumptions[0]


def test_extreme_numbers_give_finite_bounds():
    for n, floor in ((2, 1), (400, 3), (10**7, 10**6)):
        for ridge in (1e-300, 1e-6, 1.0, 1e300):
            for radius in (1e-6, 1.0, 1e3, INF):
                for refined in (True, False):
                    stated = entropy_balancing_paper_scaling(n, ridge, floor, radius, refined=refined)
                    assert 2.0 <= stated.V <= 2 * n
                    assert 1.0 <= stated.w_max <= n


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: entropy_balancing_paper_scaling(10, 1.0, None), CalibrationError, "arm_floor"),
        (lambda: entropy_balancing_paper_scaling(10, 0.0, 2), CalibrationError, "ridge = 0"),
        (lambda: entropy_balancing_paper_scaling(10, 1.0, 6), DeclarationError, "arm_floor"),
        (lambda: entropy_balancing_paper_scaling(10, 1.0, 2, radius=0.0), DeclarationError, "radius"),
    ],
)
def test_refusals(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)
