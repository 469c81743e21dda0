"""Bounds without an optimization, the tilt lemma, and the checks of public numbers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.stability import (
    EntropyConstants,
    entropy_balancing,
    known_coefficient,
    largest_weight,
    logistic_propensity,
    randomized_trial,
    tilt_lemma,
    uniform_weights,
)


def coupled_variation(w, v, j=-1):
    return np.abs(w - v).sum() + 2 * min(w[j], v[j])


def test_uniform_weights():
    bound = uniform_weights(400)
    assert (bound.V, bound.w_max) == (2.0, 1.0)
    assert bound.relations == frozenset(Neighboring)
    assert bound.private


@pytest.mark.parametrize(
    ("n", "propensity", "trim"),
    [(2, 0.5, math.inf), (10, 0.2, math.inf), (400, 0.97, math.inf), (50, 0.05, 4.0)],
)
def test_randomized_trial_is_attained(n, propensity, trim):
    def weights(a):
        f = np.minimum(1 / np.where(a == 1, propensity, 1 - propensity), trim)
        return n * f / f.sum()

    rare = int(propensity < 0.5)
    others = np.full(n - 1, 1 - rare)
    moved = coupled_variation(weights(np.append(others, rare)), weights(np.append(others, 1 - rare)))
    bound = randomized_trial(n, propensity, trim)
    assert moved <= bound.V
    assert pytest.approx(moved, rel=1e-9) == bound.V
    assert pytest.approx(2 * bound.w_max, rel=1e-12) == bound.V


@pytest.mark.parametrize("trim", [math.inf, 5.0, 1.2, 1.001])
@pytest.mark.parametrize(("n", "bound", "norm"), [(3, 1.0, 0.5), (400, 2.0, 1.0), (1000, 0.5, 0.0)])
def test_known_coefficient_is_attained(n, bound, norm, trim):
    def weights(s):
        f = np.minimum(1 + np.exp(-s), trim)
        return n * f / f.sum()

    others = np.full(n - 1, bound * norm)
    moved = coupled_variation(
        weights(np.append(others, -bound * norm)), weights(np.append(others, bound * norm))
    )
    stated = known_coefficient(n, bound, norm, trim)
    assert moved <= stated.V
    assert pytest.approx(moved, rel=1e-9) == stated.V


def test_tilt_lemma_formula_and_cap():
    assert tilt_lemma(100, 0.0, 3.0) == pytest.approx(6.0)
    assert tilt_lemma(100, 0.8, 3.0) == pytest.approx(6 + 2 * 97 * math.tanh(0.2))
    assert tilt_lemma(100, math.inf, 3.0) == pytest.approx(200.0)
    assert tilt_lemma(2, math.inf, 50.0) == 4.0


def test_tilt_lemma_is_nearly_attained_and_never_exceeded():
    rng = np.random.default_rng(3)
    sharpest = 0.0
    for trial in range(400):
        n = int(rng.integers(2, 60))
        spread = rng.uniform(0, 3)
        h = rng.normal(size=n)
        step = rng.uniform(0, spread, n)
        if trial % 2:
            # half of the mass of the common records moves up, half down; a light record j
            h = np.zeros(n)
            h[-1] = -20.0
            step = np.where(np.arange(n) % 2 == 0, spread, 0.0)
            h[:-1] -= step[:-1] / 2
        moved = h + step
        moved[-1] = h[-1] if trial % 2 else rng.normal()
        w, v = (n * np.exp(u - np.logaddexp.reduce(u)) for u in (h, moved))
        common = step[:-1]
        limit = tilt_lemma(n, float(np.ptp(common)), max(w[-1], v[-1]))
        assert coupled_variation(w, v) <= limit * (1 + 1e-12)
        sharpest = max(sharpest, coupled_variation(w, v) / limit)
    assert sharpest > 0.99


def test_largest_weight_is_the_extreme_of_a_log_range():
    assert largest_weight(10, 0.0) == 1.0
    w = np.exp(np.append(np.zeros(9), 1.5))
    assert largest_weight(10, 1.5) == pytest.approx(10 * w[-1] / w.sum())
    assert largest_weight(10, math.inf) == 10.0


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: uniform_weights(1), DeclarationError, "n = 1"),
        (lambda: uniform_weights(2.5), DeclarationError, "n = 2.5"),
        (lambda: uniform_weights(True), DeclarationError, "n = True"),
        (lambda: randomized_trial(10, 0.0), DeclarationError, "propensity"),
        (lambda: randomized_trial(10, 1.0), DeclarationError, "propensity"),
        (lambda: randomized_trial(10, 0.5, trim=1.0), DeclarationError, "trim"),
        (lambda: known_coefficient(10, 0.0, 1.0), DeclarationError, "covariate_bound"),
        (lambda: known_coefficient(10, 1.0, -1.0), DeclarationError, "coefficient_norm"),
        (lambda: known_coefficient(10, 1.0, math.inf), DeclarationError, "coefficient_norm"),
        (lambda: logistic_propensity(10, 1.0, 0.0), CalibrationError, "ridge = 0"),
        (lambda: logistic_propensity(10, 1.0, -1.0), DeclarationError, "ridge"),
        (lambda: logistic_propensity(10, 1.0, 1.0, radius=0.0), DeclarationError, "radius"),
        (lambda: logistic_propensity(10, 1.0, 1.0, trim=math.nan), DeclarationError, "trim"),
        (lambda: logistic_propensity(10, math.inf, 1.0), DeclarationError, "covariate_bound"),
        (lambda: entropy_balancing(10, EntropyConstants(1.0, 1.0, 0.0)), CalibrationError, "ridge = 0"),
        (lambda: entropy_balancing(10, EntropyConstants(0.0, 1.0, 1.0)), DeclarationError, "balance_bound"),
        (lambda: entropy_balancing(10, EntropyConstants(1.0, -1.0, 1.0)), DeclarationError, "constant"),
        (
            lambda: entropy_balancing(10, EntropyConstants(1.0, 1.0, 1.0, arm_mass="half")),
            DeclarationError,
            "arm_mass",
        ),
        (
            lambda: entropy_balancing(10, EntropyConstants(1.0, 1.0, 1.0, arm_floor=0.2)),
            DeclarationError,
            "arm_floor",
        ),
        (
            lambda: entropy_balancing(10, EntropyConstants(1.0, 1.0, 1.0, arm_floor=6)),
            DeclarationError,
            "arm_floor",
        ),
        (lambda: tilt_lemma(10, -1.0, 2.0), DeclarationError, "log_change_range"),
        (lambda: tilt_lemma(10, 1.0, 0.0), DeclarationError, "w_max"),
    ],
)
def test_invalid_declarations_are_named_in_one_line(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)


FAMILIES = {
    "logistic": lambda n, bound, ridge, radius: logistic_propensity(n, bound, ridge, radius),
    "trimmed": lambda n, bound, ridge, radius: logistic_propensity(n, bound, ridge, radius, trim=5.0),
    "equal": lambda n, bound, ridge, radius: entropy_balancing(
        n, EntropyConstants(bound, bound, ridge, radius)
    ),
    "proportional": lambda n, bound, ridge, radius: entropy_balancing(
        n, EntropyConstants(bound, bound / 1e3, ridge, radius, "proportional")
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_extreme_numbers_give_finite_bounds(family):
    with np.errstate(all="raise", under="ignore"):
        for n in (2, 10**7):
            for ridge in (1e-300, 1e-12, 1.0, 1e300):
                for radius in (1e-6, 1e3, math.inf):
                    for bound in (1e-150, 1.0, 1e300):
                        stated = FAMILIES[family](n, bound, ridge, radius)
                        assert isinstance(stated, StabilityBound)
                        assert 2.0 <= stated.V <= 2 * n
                        assert 1.0 <= stated.w_max <= n
                        assert 2 * stated.w_max * (1 - 1e-14) <= stated.V


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 400)), 10**6])
def test_more_ridge_or_less_radius_never_costs_stability(family, n):
    for radius in (0.5, 2.0, math.inf):
        along = [FAMILIES[family](n, 1.0, ridge, radius).V for ridge in np.geomspace(1e-4, 1e3, 8)]
        assert all(later <= earlier * (1 + 2e-4) for earlier, later in pairwise(along))
    for ridge in (0.003, 0.1, 1.0):
        along = [FAMILIES[family](n, 1.0, ridge, radius).V for radius in np.geomspace(1e-3, 1e2, 8)]
        assert all(later >= earlier * (1 - 2e-4) for earlier, later in pairwise(along))
