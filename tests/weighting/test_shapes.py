"""Prices by their shapes: values, slopes and proximal steps against CVXPY and against each
other.
"""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.forms import shapes
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, LogSumExpPenalty, Penalty
from dp2erm_cvx.weighting.forms.shapes import _OfNorm, shape_of
from tests.weighting.declared_prices import declared_price
from tests.weighting.exact_slopes import exact_slope

#: CVXPY warns of norms at tight tolerances.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

INF = math.inf
WHOLE: dict[str, Penalty] = {
    "squares": ImbalancePenalty(0.7),
    "kinks": ImbalancePenalty(INF, price=0.5),
    "ball": ImbalancePenalty(0.7, knee=0.4, norm=2, tolerance=0.2),
    "one side": ImbalancePenalty(0.7, sided=True),
    "huber of one side": ImbalancePenalty(0.7, knee=0.3, sided=True),
    "kinks of one side": ImbalancePenalty(INF, price=0.5, sided=True),
    "largest entry": ImbalancePenalty(INF, price=0.8, norm=INF),
    "squared largest entry": ImbalancePenalty(0.7, norm=INF),
    "3-norm": ImbalancePenalty(INF, price=0.8, norm=3.0),
    "1.5-norm": ImbalancePenalty(INF, price=0.8, norm=1.5),
    "1.1-norm": ImbalancePenalty(INF, price=0.8, norm=1.1),
    "squared 3-norm": ImbalancePenalty(0.7, norm=3.0),
    "squared 16-norm": ImbalancePenalty(0.7, norm=16.0),
    "squared 1.5-norm": ImbalancePenalty(0.7, norm=1.5),
    "huber of a 4-norm beyond a tolerance": ImbalancePenalty(
        0.7, norm=4.0, tolerance=0.3, knee=0.4
    ),
    "log_sum_exp": LogSumExpPenalty(1.3),
}
HARD: dict[str, Penalty] = {
    "one side": ImbalancePenalty(INF, price=INF, tolerance=0.3, sided=True),
    "sum of sizes": ImbalancePenalty(INF, price=INF, tolerance=0.8, norm=1.0),
    "3-norm": ImbalancePenalty(INF, price=INF, tolerance=0.8, norm=3.0),
    "1.5-norm": ImbalancePenalty(INF, price=INF, tolerance=0.8, norm=1.5),
}
SMOOTHED = ("largest entry", "squared largest entry", "3-norm", "1.5-norm", "squared 1.5-norm")
PENALTIES = WHOLE | {f"envelope, {name}": replace(WHOLE[name], envelope=0.37) for name in SMOOTHED}
SMOOTH = [name for name, penalty in PENALTIES.items() if penalty.smooth]
K = 5


def solved(penalty: Penalty, y: Array, step: float) -> Array:
    """A proximal point by Clarabel, which is the less exact of both where there are powers."""
    m = cp.Variable(len(y))
    price, constraints = declared_price(penalty, m)
    problem = cp.Problem(cp.Minimize(price + cp.sum_squares(m - y) / (2.0 * step)), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return np.asarray(m.value)


def drawn(seed: int, count: int) -> list[tuple[Array, float]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        y = rng.normal(size=K) * 10.0 ** rng.uniform(-1, 0.5)
        found.append((y, float(10.0 ** rng.uniform(-1, 1))))
    return found


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", PENALTIES)
def test_proximal_points_are_those_of_cvxpy(name: str) -> None:
    for y, step in drawn(0, 3):
        point = shape_of(PENALTIES[name]).proximal_point(y, step)
        np.testing.assert_allclose(point, solved(PENALTIES[name], y, step), atol=1e-5)


@pytest.mark.parametrize("name", HARD)
def test_projections_are_those_of_cvxpy(name: str) -> None:
    shape = shape_of(HARD[name])
    for y, step in drawn(1, 4):
        point = shape.proximal_point(y, step)
        np.testing.assert_allclose(point, solved(HARD[name], y, step), atol=1e-5)
        assert np.max(shape.excess(point)) <= 1e-14


@pytest.mark.parametrize("name", [name for name in PENALTIES if "envelope" not in name])
def test_values_are_those_of_cvxpy(name: str) -> None:
    for y, _ in drawn(2, 5):
        price, _ = declared_price(PENALTIES[name], cp.Constant(y))
        assert shape_of(PENALTIES[name]).value(y) == pytest.approx(float(price.value), rel=1e-13)


@pytest.mark.one_row_in(9)
@pytest.mark.parametrize("name", PENALTIES | {f"hard {name}": one for name, one in HARD.items()})
def test_slopes_and_jacobians_are_those_of_differences(name: str) -> None:
    penalty = HARD[name.removeprefix("hard ")] if name.startswith("hard ") else PENALTIES[name]
    shape = shape_of(penalty)
    step_of_difference = 1e-6
    for y, step in drawn(3, 6):
        ahead = y + step_of_difference * np.eye(K)
        behind = y - step_of_difference * np.eye(K)
        points = shape.proximal_point(ahead, step) - shape.proximal_point(behind, step)
        point, jacobian = shape.prox(y, step)
        np.testing.assert_array_equal(point, shape.proximal_point(y, step))
        np.testing.assert_allclose(points.T / (2.0 * step_of_difference), jacobian, atol=1e-8)
        values = [shape.value(one) for one in (*ahead, *behind)]
        slope = (np.array(values[:K]) - np.array(values[K:])) / (2.0 * step_of_difference)
        if not penalty.hard:
            np.testing.assert_allclose(shape.price(y, np.zeros(K)), slope, atol=1e-7)


@pytest.mark.one_row_in(9)
@pytest.mark.parametrize("name", PENALTIES)
def test_a_proximal_point_and_its_price_add_up(name: str) -> None:
    """``s + step price(s) = y`` to rounding: at kinks, ties, zeros and extreme steps as well."""
    shape = shape_of(PENALTIES[name])
    rng = np.random.default_rng(4)
    for _ in range(60):
        y = rng.normal(size=K) * 10.0 ** rng.uniform(-6, 6)
        y[rng.integers(0, K)] = y[0] * rng.choice([0.0, 1.0, -1.0])
        step = float(10.0 ** rng.uniform(-6, 3))
        s = shape.proximal_point(y, step)
        price = shape.price(s, (y - s) / step)
        steps = 1.0 + step * PENALTIES[name].smoothness if PENALTIES[name].smooth else 1.0
        size = np.max(np.abs(y)) + step * np.max(np.abs(price)) + 1.0
        assert np.max(np.abs(s + step * price - y)) <= 1e-14 * size * steps


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", PENALTIES)
def test_proximal_points_of_many_rows_are_those_of_each(name: str) -> None:
    shape = shape_of(PENALTIES[name])
    y = np.random.default_rng(5).normal(size=(7, K))
    points, jacobians = shape.prox(y, 0.5)
    prices = shape.price(points, y)
    for k in range(7):
        np.testing.assert_allclose(points[k], shape.proximal_point(y[k], 0.5), atol=1e-14)
        np.testing.assert_allclose(jacobians[k], shape.prox(y[k], 0.5)[1], atol=1e-10)
        np.testing.assert_allclose(prices[k], shape.price(points[k], y[k]), atol=1e-13)


def test_proximal_points_of_zero_and_of_huge_rows_are_finite() -> None:
    for penalty in (PENALTIES | {f"hard {name}": one for name, one in HARD.items()}).values():
        for y in (np.zeros(3), np.array([1.0, 1.0, -1.0]), np.array([1e12, 1e-3, 5.0])):
            for step in (1e-12, 1.0, 1e12):
                point, jacobian = shape_of(penalty).prox(y, step)
                assert np.all(np.isfinite(point))
                assert np.all(np.isfinite(jacobian))


def smoothness_found(name: str) -> float:
    """Largest quotient of slopes over points that is found, in the Euclidean norm."""
    shape = shape_of(PENALTIES[name])
    rng = np.random.default_rng(6)
    largest = 0.0
    for _ in range(400):
        base = np.zeros(K)
        base[: rng.integers(1, K + 1)] = 1.0
        base = base * 10.0 ** rng.uniform(-2, 1) * rng.choice([-1.0, 1.0], K)
        other = base + 1e-4 * np.max(np.abs(base)) * rng.normal(size=K) * rng.integers(0, 2, K)
        apart = float(np.linalg.norm(other - base))
        if apart > 0.0:
            nothing = np.zeros(K)
            slopes = shape.price(other, nothing) - shape.price(base, nothing)
            largest = max(largest, float(np.linalg.norm(slopes)) / apart)
    return largest


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_as_steep_as_stated(name: str) -> None:
    stated = PENALTIES[name].smoothness
    found = smoothness_found(name)
    assert found <= stated * (1.0 + 1e-9)
    # The constants are met, but for norms of high order, whose worst points are none of those
    # drawn.
    if not any(of in name for of in ("16", "4-norm", "envelope")):
        assert found >= 0.5 * stated


def test_a_norm_that_counts_as_the_euclidean_one_is_caught() -> None:
    """Without its factor ``q - 1`` the squared 3-norm is steeper than stated."""
    assert smoothness_found("squared 3-norm") > 1.2 * (2.0 * 0.7)


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize("name", PENALTIES)
def test_gradients_are_no_farther_apart_than_stated(name: str) -> None:
    penalty = PENALTIES[name]
    shape = shape_of(penalty)
    rng = np.random.default_rng(7)
    at_zero = penalty.slope_at_zero(K)
    slopes = []
    for _ in range(300):
        m = rng.normal(size=K) * 10.0 ** rng.uniform(-1, 2) * rng.integers(0, 2, K)
        slopes.append(shape.price(m, 10.0 * rng.normal(size=K)))
        # corners of the set of gradients
        slopes.append(shape.price(100.0 * rng.choice([-1.0, 0.0, 1.0], K), rng.normal(size=K)))
    found = np.array(slopes)
    sizes = np.linalg.norm(found - at_zero, axis=1)
    apart = np.linalg.norm(found[:, None] - found[None, :], axis=2)
    assert np.max(sizes) <= penalty.gradient_size(K) * (1.0 + 1e-12)
    assert np.max(apart) <= penalty.gradient_diameter(K) * (1.0 + 1e-12)
    if math.isfinite(penalty.steepest if isinstance(penalty, ImbalancePenalty) else 1.0):
        assert np.max(apart) >= 0.9 * penalty.gradient_diameter(K)
    assert shape.price(np.zeros(K), np.zeros(K)) == pytest.approx(at_zero)


#: Prices that are evaluated at a stored point, without an iteration.
AT_POINTS = [name for name in WHOLE if name not in ("largest entry", "squared largest entry")]


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", AT_POINTS)
def test_the_rounding_of_prices_is_bounded(name: str) -> None:
    """Against slopes to 50 digits, at points of every scale."""
    penalty = PENALTIES[name]
    shape = shape_of(penalty)
    rng = np.random.default_rng(8)
    unit = 2.0**-53
    with mpmath.workdps(50):
        for _ in range(60):
            s = rng.normal(size=K) * 10.0 ** rng.uniform(-6, 3, size=K if rng.integers(2) else 1)
            price = shape.price(s, np.zeros(K))
            exact = exact_slope(penalty, s)
            off = [float(mpmath.mpf(float(p)) - e) for p, e in zip(price, exact, strict=True)]
            bound = unit * (float(shape.slack(s)) + (K + 8.0) * float(np.linalg.norm(price)))
            assert float(np.linalg.norm(off)) <= bound + 1e-300


def test_a_slack_of_norms_that_is_left_out_is_caught() -> None:
    """The K + 8 units of the entries alone do not cover a norm of order 16."""
    penalty = PENALTIES["squared 16-norm"]
    rng = np.random.default_rng(9)
    worst = 0.0
    with mpmath.workdps(50):
        for _ in range(60):
            s = rng.normal(size=2)
            price = shape_of(penalty).price(s, np.zeros(2))
            exact = exact_slope(penalty, s)
            off = [float(mpmath.mpf(float(p)) - e) for p, e in zip(price, exact, strict=True)]
            worst = max(worst, float(np.linalg.norm(off)) / float(np.linalg.norm(price)))
    assert worst > 2.0 * 2.0**-53


def test_a_wrong_dual_norm_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proximal step that measures what it takes off in another norm is none."""
    y = np.array([1.0, -2.0, 0.5, 0.3, 1.5])
    shape = _OfNorm(ImbalancePenalty(INF, price=0.8, norm=3.0))
    monkeypatch.setattr(shape, "dual", 2.0)
    s = shape.proximal_point(y, 0.5)
    assert np.max(np.abs(s + 0.5 * shape.price(s, y) - y)) > 1e-3


def test_a_step_of_an_envelope_that_forgets_its_parameter_is_caught() -> None:
    y = np.array([1.0, -2.0, 0.5, 0.3, 1.5])
    shape = shapes._Envelope(shape_of(WHOLE["largest entry"]), 0.37)
    wrong = shape.whole.proximal_point(y, 0.5)
    assert np.max(np.abs(wrong + 0.5 * shape.price(wrong, y) - y)) > 1e-3
    right = shape.proximal_point(y, 0.5)
    assert np.max(np.abs(right + 0.5 * shape.price(right, y) - y)) <= 1e-14
