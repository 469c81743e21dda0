"""Kinks, balls, Huber functions and tolerances: bounds against programs that Clarabel solves."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.bounds import constants
from dp2erm_cvx.weighting.bounds.constants import weighting_constants
from dp2erm_cvx.weighting.bounds.largest import GradientBounds
from dp2erm_cvx.weighting.forms.form import (
    ImbalancePenalty,
    LogSumExpPenalty,
    Penalty,
    SumKind,
    WeightingForm,
    WeightSums,
)
from tests.weighting import forms
from tests.weighting.declared_prices import declared_price
from tests.weighting.reference import variation

TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


def solved(form: WeightingForm, x: Array, a: NDArray[np.int64], counts: Array) -> Array:
    """Weights (m,) of classes with rows of features x (m, width) and arms a, ``counts`` records
    each.
    """
    w = cp.Variable(len(a))
    phi = {
        features.name: x if features.width == x.shape[1] else x[:, :1] * 0.0 + 1.0
        for features in form.features
    }
    total = cp.sum(cp.multiply(counts, cp.square(w - 1.0))) * form.dispersion.parts[0].scale
    box = [w >= form.low[a], w <= form.cap[a]]
    for imbalance in form.imbalances:
        each = [
            imbalance.targets({k: v[i : i + 1] for k, v in phi.items()}, a[i : i + 1])
            for i in range(len(a))
        ]
        target = (
            np.sum((np.array(each) - imbalance.shift) * counts[:, None], axis=0) + imbalance.shift
        )
        rows = imbalance.rows(phi, a)
        price, constraints = declared_price(
            imbalance.penalty, rows.T @ cp.multiply(counts, w) - target
        )
        total = total + price
        box += constraints
    if form.sums.kind is SumKind.ALL:
        box.append(counts @ w == form.n)
    else:
        assert form.sums.public is not None
        box += [(counts * (a == arm)) @ w == form.sums.public[arm] for arm in (0, 1)]
    cp.Problem(cp.Minimize(total), box).solve(solver="CLARABEL", **TIGHT)
    return np.asarray(w.value)


def moved(
    form: WeightingForm, x: Array, a: NDArray[np.int64], counts: Array
) -> tuple[float, Array]:
    """V and all weights, where the last two classes are the record before and after."""
    sides = []
    for gone in (len(a) - 1, len(a) - 2):
        kept = np.delete(np.arange(len(a)), gone)
        sides.append(solved(form, x[kept], a[kept], counts[kept]))
    V = variation(sides[0][None], sides[1][None], counts[None, :-1])
    return float(V[0]), np.concatenate(sides)


def turned(n: int, width: int, small: float) -> tuple[Array, NDArray[np.int64], Array]:
    """Controls half each at +-small along the diagonal; one treated record there at 1, then at
    -1.
    """
    diagonal = np.full(width, 1.0 / math.sqrt(width))
    x = np.outer([small, -small, 1.0, -1.0], diagonal)
    return x, np.array([0, 0, 1, 1]), np.array([(n - 1) / 2, (n - 1) / 2, 1.0, 1.0])


def kinked(n: int, width: int, penalty: Penalty) -> WeightingForm:
    """|w - 1|^2 and a price of sum w x; the one treated record weighs 3.

    Prices of one side are of what 3 of the diagonal is added to, so that both records are at an end
    of them.
    """
    matrix = np.eye(width)
    shift = np.zeros(width)
    if isinstance(penalty, LogSumExpPenalty):
        matrix = np.array([[1.0], [-1.0]]) / penalty.factor
        shift = np.zeros(2)
    elif penalty.sided:
        shift = np.full(width, -3.0 / math.sqrt(width))
    groups = ((forms.rows(forms.ball(1.0, width), [1.0, 1.0], [0.0, 0.0], matrix),),)
    dispersion = forms.Dispersion((forms.DispersionPart("square", 1.0, 1.0, -1.0),))
    imbalances = [forms.imbalance(groups, penalty, shift)]
    return forms.form(n, dispersion, imbalances, low=[0.0, 3.0], cap=[1.5, 3.0])


#: Width, penalty of slope 1, and the largest difference of its subgradients along the diagonal.
KINKS: dict[str, tuple[int, Penalty, float]] = {
    "1-norm": (3, ImbalancePenalty(math.inf, price=1.0), 2.0 * math.sqrt(3.0)),
    "Euclidean norm": (3, ImbalancePenalty(math.inf, norm=2, price=1.0), 2.0),
    "largest entry": (1, ImbalancePenalty(math.inf, norm=math.inf, price=1.0), 2.0),
    "ball": (3, ImbalancePenalty(500.0, knee=0.001, norm=2), 2.0),
    "Huber functions": (3, ImbalancePenalty(500.0, knee=0.001), 2.0 * math.sqrt(3.0)),
    "one side": (3, ImbalancePenalty(math.inf, price=1.0, sided=True), math.sqrt(3.0)),
    "Huber functions of one side": (
        3,
        ImbalancePenalty(500.0, knee=0.001, sided=True),
        math.sqrt(3.0),
    ),
    "1.5-norm": (3, ImbalancePenalty(math.inf, norm=1.5, price=1.0), 2.0 * 3.0 ** (1.0 / 6.0)),
    "3-norm": (1, ImbalancePenalty(math.inf, norm=3.0, price=1.0), 2.0),
    "smoothed 1.5-norm": (
        3,
        ImbalancePenalty(math.inf, norm=1.5, price=1.0, envelope=0.001),
        2.0 * 3.0 ** (1.0 / 6.0),
    ),
    "smoothed largest entry": (
        1,
        ImbalancePenalty(math.inf, norm=math.inf, price=1.0, envelope=0.001),
        2.0,
    ),
    "log_sum_exp of both sides": (1, LogSumExpPenalty(0.0003), 2.0),
}


def ratio(name: str) -> float:
    """V that is found over its bound, of the pair that moves kinks from one end to the other."""
    n = 401
    width, penalty, gamma = KINKS[name]
    form = kinked(n, width, penalty)
    # Slopes 2 (w - 1) = -z gamma/2 hold the imbalance just beyond 0.
    small = math.sqrt(0.999 * 3.0 * 4.0 / (gamma * (n - 1)))
    found, weights = moved(form, *turned(n, width, small))
    stated = weighting_constants(form, (n - 1, 1), False)
    assert np.all(weights <= 3.0 + 1e-7)
    return found / stated.V


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", KINKS)
def test_bounded_gradients_are_attained(name: str) -> None:
    assert 0.97 < ratio(name) <= 1.0 + 1e-7


def test_a_1_norm_in_the_euclidean_norm_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subgradients of a 1-norm have a Euclidean diameter of 2 sqrt(K), not 2."""
    monkeypatch.setattr(constants, "_coordinates", lambda imbalance: 1)
    assert ratio("1-norm") > 1.15
    assert ratio("Huber functions") > 1.15


def test_half_of_the_gradients_of_a_ball_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gradients of a ball are twice its radius apart."""
    bounds_of = constants._gradient_bounds

    def halved(form: WeightingForm) -> GradientBounds:
        bounds = bounds_of(form)
        return replace(bounds, diameter=bounds.gradient_norm)

    monkeypatch.setattr(constants, "_gradient_bounds", halved)
    for name in ("ball", "smoothed 1.5-norm", "smoothed largest entry"):
        assert ratio(name) > 1.15


def test_a_1_5_norm_in_the_euclidean_norm_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its subgradients have a 3-norm of 1, and a Euclidean norm of up to ``3^(1/6)``."""
    monkeypatch.setattr(constants, "_coordinates", lambda imbalance: 1)
    assert ratio("1.5-norm") > 1.05


def test_kinks_beside_squares_answer_with_a_quarter_of_R() -> None:
    """By hand: S^2 <= R (kappa_1^2 / 4 + n Gamma kappa_2), although F is smaller than R / 4."""
    n, rho, price, W = 50, 0.27, 0.2, 3.0
    smooth = forms.imbalance(
        ((forms.rows(forms.ball(1.0), [1.0, 1.0], [0.0, 0.0]),),), ImbalancePenalty(rho / (2 * n))
    )
    kink = forms.imbalance(
        ((forms.rows(forms.ball(0.5, name="others"), [1.0, 1.0], [0.0, 0.0]),),),
        ImbalancePenalty(math.inf, norm=2, price=price),
    )
    form = forms.form(n, forms.SQUARE, [smooth, kink], low=[0.5, W], cap=[1.2, W])
    stated = weighting_constants(form, (n - 1, 1), False)
    kappa_1 = 2.0 * W * math.sqrt(rho)
    kappa_2 = W
    by_hand = 2.0 * W + math.sqrt(kappa_1**2 / 4.0 + n * 2.0 * price * kappa_2)
    assert stated.V == pytest.approx(by_hand, rel=1e-7)
    assert "Theorem 29" in stated.theorem


FORMS = {
    "tolerance": ImbalancePenalty(0.4, tolerance=0.7),
    "tolerances": ImbalancePenalty(0.4, tolerance=np.array([0.5, 0.1, 0.2, 0.5, 0.1, 0.2])),
    "tolerance of a norm": ImbalancePenalty(0.4, tolerance=0.7, norm=2),
    "Huber functions": ImbalancePenalty(0.4, knee=0.3),
    "ball": ImbalancePenalty(0.4, knee=0.3, norm=2),
    "kinks": ImbalancePenalty(math.inf, price=0.3),
    "largest entry": ImbalancePenalty(math.inf, norm=math.inf, price=0.5),
    "one side": ImbalancePenalty(0.4, sided=True),
    "squared 3-norm": ImbalancePenalty(0.4, norm=3.0),
    "squared largest entry, smoothed": ImbalancePenalty(2.0, norm=math.inf, envelope=0.5),
    "log_sum_exp": LogSumExpPenalty(2.0),
}


@pytest.mark.one_row_in(14)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("sums", ["one", "public"])
def test_drawn_pairs_stay_below_their_bounds(name: str, sums: str) -> None:
    n = 14
    groups = forms.by_arm([(forms.ONE, 0.5), (forms.ball(1.0, 2), 1.0)])
    kinds = {"one": forms.ALL, "public": WeightSums(SumKind.PUBLIC, (n / 2, n / 2))}
    form = forms.form(n, forms.SQUARE, [forms.imbalance(groups, FORMS[name])], sums=kinds[sums])
    floors = {"one": (0, 0), "public": (3, 3)}[sums]
    stated = weighting_constants(form, floors, False)
    generator = np.random.default_rng(5)
    largest = np.array(stated.largest)
    for _ in range(12):
        x = generator.standard_normal((n + 1, 2))
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
        x[-2] = -x[-1]
        a = generator.integers(0, 2, n + 1)
        a[:8] = [0, 0, 0, 0, 1, 1, 1, 1]
        V, weights = moved(form, x, a, np.ones(n + 1))
        assert V <= stated.V * (1.0 + 1e-6)
        both = np.concatenate([np.delete(a, n), np.delete(a, n - 1)])
        assert np.all(weights <= largest[both] + 1e-6)
