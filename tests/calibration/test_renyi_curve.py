"""Renyi curves: theorems as properties, rounding, planted bugs, hostile input."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.calibration import calibrate_renyi, renyi_divergence, renyi_epsilon
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import RENYI_ORDERS, RenyiCurve
from tests.calibration.gaussian_pairs import (
    attacks,
    exact_divergence,
    objective_of,
    one_dimensional_pairs,
    squared_loss,
)

ORDERS = np.array(RENYI_ORDERS)


def divergence(p, q, order):
    """Exact, of two distributions on the same finite set."""
    with np.errstate(over="ignore"):
        exponents = order * np.log(p) + (1 - order) * np.log(q)
    top = np.max(exponents)
    return float(top + np.log(np.sum(np.exp(exponents - top)))) / (order - 1)


def test_the_curve_of_a_calibration_is_its_theorem() -> None:
    loss, V, n = squared_loss(3, 1.0, 2.0), 4.0, 2000
    one = calibrate_renyi(objective_of(V, loss, n), Budget(1.0, 1e-6), gamma=5.0)
    curve = one.curve()
    assert set(curve.orders) == {*RENYI_ORDERS, one.order}
    stated = renyi_divergence(curve.orders, V, loss, n, one.scale, one.gamma)
    np.testing.assert_allclose(curve.divergences, stated, rtol=1e-9)
    assert math.isinf(curve.divergences[-1])
    assert curve.divergences[0] < 0.1
    # the order that gave the scale is among them, so that one release costs what it was calibrated to
    assert renyi_epsilon(curve.orders, curve.divergences, 1e-6) == pytest.approx(1.0, abs=1e-9)


def test_composed_curves_are_above_the_exact_divergence() -> None:
    closest = 0.0
    for loss, first, second, V in one_dimensional_pairs(60):
        n = len(first.w)
        calibrations = [
            calibrate_renyi(objective_of(V, loss, n), Budget(epsilon, 1 / 400), gamma=gamma * V / n)
            for epsilon, gamma in ((1.0, 100.0), (2.5, 30.0))
        ]
        together = calibrations[0].curve().plus(calibrations[1].curve())
        for order in (1.3, 3.0, 5.0):
            for pair in ((first, second), (second, first)):
                exact = sum(exact_divergence(*pair, order, one.gamma, one.scale) for one in calibrations)
                assert exact <= together.at(order) * (1 + 1e-9)
                closest = max(closest, exact / together.at(order))
    assert closest > 0.3


def test_curves_are_added_at_equal_orders() -> None:
    # N(0, 1) against N(1, 1), and against N(2, 1), each on a grid of its own: together 2.5 alpha
    coarse = RenyiCurve(RENYI_ORDERS[::3], tuple(0.5 * ORDERS[::3]))
    fine = RenyiCurve(RENYI_ORDERS[:-9], tuple(2.0 * ORDERS[:-9]))
    together = coarse.plus(fine)
    for order in (1.01, 1.5, 2.0, 4.0, 17.0, 1e3):
        assert 2.5 * order <= together.at(order) < 2.5 * order * 1.2
    assert together.at(1e6) == math.inf
    # planted: the bounds are added by their places in the two grids
    planted = [one + other for one, other in zip(coarse.divergences, fine.divergences, strict=False)]
    assert sum(bound < 2.5 * order for order, bound in zip(coarse.orders, planted, strict=True)) > 50
    # three curves are three releases
    np.testing.assert_allclose(coarse.plus(coarse, coarse).divergences, 1.5 * ORDERS[::3], rtol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0])
def test_pure_releases_are_covered_and_nearly_attained(epsilon: float) -> None:
    curve = RenyiCurve.pure(epsilon)
    response = np.array([1.0, math.exp(-epsilon)]) / (1 + math.exp(-epsilon))
    exact = np.array([divergence(response, response[::-1], order) for order in ORDERS])
    ratio = exact / np.array(curve.divergences)
    assert np.all(ratio <= 1 + 1e-9)
    assert np.all(np.array(curve.divergences) <= epsilon)
    assert np.max(ratio) > 0.95
    assert ratio[-1] > 0.99


def test_pure_releases_of_any_shape_are_covered() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        p, q = (rng.dirichlet(np.full(4, 0.7)) + 1e-3 for _ in range(2))
        p, q = p / p.sum(), q / q.sum()
        epsilon = float(np.max(np.abs(np.log(p / q))))
        curve = RenyiCurve.pure(epsilon * (1 + 1e-12))
        for order in ORDERS[::20]:
            assert divergence(p, q, order) <= curve.at(order) * (1 + 1e-9) + 1e-12


def shifted_pair(p, q, level):
    """(P, Q) with P <= e^level p and q <= e^level Q, further apart where p/q is large."""
    high, low = np.split(np.argsort(-p / q), 2)

    def tilt(base, factor):
        moved = np.array(base)
        moved[high] *= factor
        moved[low] *= (1.0 - moved[high].sum()) / base[low].sum()
        return moved

    return tilt(p, math.exp(level)), tilt(q, math.exp(-level))


def test_a_numerical_error_costs_its_level_on_both_sides() -> None:
    rng = np.random.default_rng(4)
    missing, halved, closest = 0, 0, 0.0
    for _ in range(400):
        # half of the points are rare, so that the rest can give the mass back
        p, q = (np.concatenate([1e-3 * rng.random(3), rng.random(3) + 0.5]) for _ in range(2))
        p[:3] *= 20
        p, q = p / p.sum(), q / q.sum()
        level = float(rng.choice([0.01, 0.1]))
        P, Q = shifted_pair(p, q, level)
        assert np.all(P <= math.exp(level) * p * (1 + 1e-12))
        assert np.all(q <= math.exp(level) * Q * (1 + 1e-12))
        for order in (1.05, 1.5, 3.0, 20.0):
            before = RenyiCurve((order,), (divergence(p, q, order),))
            exact = divergence(P, Q, order)
            after = before.shifted(level).at(order)
            assert exact <= after * (1 + 1e-12)
            closest = max(closest, (exact - before.at(order)) / (after - before.at(order)))
            # planted: the term is forgotten, or the level counts once
            missing += exact > before.at(order) * (1 + 1e-9)
            halved += exact > before.at(order) + level * (1 + 1e-9)
    assert closest > 0.9
    assert missing > 400
    assert halved > 400


def test_a_shift_is_what_a_conversion_of_both_sides_gives() -> None:
    # where the exact release is (epsilon, delta), the other is (epsilon + 2 level, e^level delta)
    curve, level, delta = RenyiCurve.pure(0.7).plus(RenyiCurve.pure(0.4)), 0.02, 1e-5
    direct = renyi_epsilon(curve.orders, curve.divergences, delta * math.exp(-level)) + 2 * level
    shifted = curve.shifted(level)
    assert renyi_epsilon(shifted.orders, shifted.divergences, delta) == pytest.approx(direct, rel=1e-12)
    assert curve.shifted(0.0) == curve


def test_rounding_is_never_down() -> None:
    rng = np.random.default_rng(2)
    for _ in range(2000):
        order = 1.0 + float(2.0 ** rng.uniform(-40, 40))
        epsilon, level, bound, other = (float(10.0 ** rng.uniform(-200, 3)) for _ in range(4))
        exact = min(Fraction(epsilon), Fraction(order) * Fraction(epsilon) ** 2 / 2)
        assert Fraction(RenyiCurve.pure(epsilon, (order,)).at(order)) >= exact
        one, two = (RenyiCurve((order,), (value,)) for value in (bound, other))
        assert Fraction(one.plus(two).at(order)) >= Fraction(bound) + Fraction(other)
        rate = (2 * Fraction(order) - 1) / (Fraction(order) - 1)
        assert Fraction(one.shifted(level).at(order)) >= Fraction(bound) + rate * Fraction(level)
    many = [RenyiCurve((2.0,), (float(value),)) for value in rng.random(1000)]
    total = sum(Fraction(one.at(2.0)) for one in many)
    assert total <= Fraction(many[0].plus(*many[1:]).at(2.0)) <= total * (1 + Fraction(1, 10**11))


def test_what_is_not_proven_is_infinite() -> None:
    known = RenyiCurve((2.0, 4.0), (0.5, math.inf))
    assert (known.at(1.5), known.at(2.0), known.at(2.1), known.at(5.0)) == (0.5, 0.5, math.inf, math.inf)
    assert known.plus(RenyiCurve((3.0,), (1e308,)), RenyiCurve((3.0,), (1e308,))).at(1.5) == math.inf
    for loss, first, _, order, V, gamma, scale in attacks(20):
        assert renyi_divergence(order, V, loss, len(first.w), scale * 1e290, gamma) < math.inf


@pytest.mark.parametrize(
    ("orders", "divergences", "message"),
    [
        ((), (), "orders"),
        ((2.0,), (), "divergences"),
        ((2.0,), (1.0, 2.0), "one divergence per order: 1, 2"),
        ((1.0,), (1.0,), "order = 1.0"),
        ((0.5,), (1.0,), "order"),
        ((-2.0,), (1.0,), "order"),
        ((math.inf,), (1.0,), "order"),
        ((math.nan,), (1.0,), "finite"),
        ((2.0, 2.0), (1.0, 1.0), "increase"),
        ((3.0, 2.0), (1.0, 1.0), "increase"),
        ((2.0,), (-1e-300,), "divergence"),
        ((2.0,), (math.nan,), "finite"),
        ((2.0,), (-math.inf,), "finite"),
        ((2.0,), ("much",), "number"),
        ((2.0,), (True,), "number"),
        ((2.0,), (None,), "number"),
        ((2.0,), (10**400,), "number"),
        (2.0, (1.0,), "list"),
        ("22", "11", "list"),
        (tuple(range(2, 10_100)), (1.0,) * 10_098, "10000"),
    ],
)
def test_hostile_curves(orders: object, divergences: object, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        RenyiCurve(orders, divergences)
    assert "\n" not in str(caught.value)


def test_hostile_arguments() -> None:
    curve = RenyiCurve.pure(1.0)
    for bad in (-1.0, math.nan, math.inf, "x"):
        for call in (RenyiCurve.pure, curve.shifted, curve.at):
            with pytest.raises(DeclarationError):
                call(bad)
    with pytest.raises(DeclarationError):
        curve.at(1.0)
    with pytest.raises(DeclarationError):
        RenyiCurve.pure(1.0, (0.5, 2.0))
    assert set(RenyiCurve.pure(0.0).divergences) == {0.0}
