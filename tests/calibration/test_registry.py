"""Predicted errors, the choice among the calibrations that are valid, and the levels of private ranges."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

from dp2erm_cvx.calibration import Objective, calibrate, calibrate_ranges, predicted_error, rank
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants
from tests.helpers import bound_of

LOSS = LossConstants(5, 5.0, 2.0, 0.0, 1.0, 1.0, gradient_bound=6.0, covariate_bound=1.0, response_bound=2.0)
BUDGET = Budget(1.0, 1e-4)


@pytest.mark.parametrize("size", [None, 0.05, 7.0])
def test_predicted_error_is_at_least_the_excess_of_a_quadratic_objective(size):
    """``h/2 |theta - t|^2``, its minimizer moved by noise that is orthogonal to t and by the ridge."""
    loss = dataclasses.replace(LOSS, theta_bound=size, strong_convexity=0.1)
    h, t = 0.1 + 2.0 / 5, np.array([min(size or 0.125, 0.125), 0.0])
    for n in (400, 10**8):
        found = calibrate(Objective(bound_of(8.0), loss, n), BUDGET, split=0.6)
        noise = np.array([0.0, found.expected_noise / n])
        theta = (h * t - noise) / (h + found.gamma)
        excess = h / 2 * np.sum((theta - t) ** 2)
        predicted = predicted_error(found, loss, n)
        assert excess * (1 - 1e-12) <= predicted <= excess * (1 + found.gamma / h) ** 2 * (1 + 1e-12)
    assert predicted == pytest.approx(excess, rel=1e-4)


def named(valid):
    return [one.name for one in valid]


def test_an_unbounded_gradient_leaves_theorem_7():
    free = dataclasses.replace(LOSS, gradient_radius=math.inf, theta_bound=None)
    assert named(rank(Objective(bound_of(8.0), free, 400), BUDGET)[0]) == ["renyi"]
    restricted = Objective(bound_of(8.0), LOSS, 400, restriction="a penalty of its own")
    found, refused = rank(restricted, BUDGET)
    assert named(found) == ["sharp-gamma", "sharp-gaussian"]
    assert refused == {"renyi": "a penalty of its own", "output": "a penalty of its own"}


def test_nothing_valid_is_an_error_with_every_reason():
    plain = dataclasses.replace(LOSS, gradient_radius=math.inf, theta_bound=None, covariate_bound=None)
    objective = Objective(bound_of(8.0), plain, 400, weights="b")
    with pytest.raises(CalibrationError, match=r"valid: b, sharp-gamma: .*; b, renyi: Theorem 7") as caught:
        rank(objective, Budget(1.0))
    assert "\n" not in str(caught.value)


def test_every_choice_has_its_part_of_epsilon():
    found = calibrate_ranges(10_000, [435, None, 129, 435], Budget(0.3, 1e-6))
    assert found.each == pytest.approx(0.05)
    assert 6 * found.each <= found.epsilon == 0.3
    assert found.delta == 0.0
    assert found.scale == pytest.approx(2 / found.each)
    assert found.levels[1] is None
    assert found.factors[1] == 1.0


@pytest.mark.parametrize(("n", "epsilon"), [(3000, 0.1), (3000, 0.2), (10_000, 0.1), (10**6, 1.0)])
def test_no_candidate_beyond_the_records_is_likely(n, epsilon):
    found = calibrate_ranges(n, [None, 435], Budget(epsilon))
    lead = found.levels[1] * n / found.scale
    assert 435 * math.exp(-lead) <= math.exp(-5) * 1.001
    assert found.levels[1] == 0.25 or 435 * math.exp(-lead) <= math.exp(-8) * 1.001
    assert found.levels[1] >= 0.01
    # a normal column is covered to three standard deviations
    assert found.factors[1] * norm.ppf(1 - found.levels[1]) == pytest.approx(3.0)


@pytest.mark.parametrize("columns", [1, 3, 10])
def test_too_little_epsilon_is_told_with_what_is_needed(columns):
    sizes = [435] * columns
    with pytest.raises(
        CalibrationError, match=r"need an epsilon of ([0-9.e+-]+) at n_samples = 1000"
    ) as told:
        calibrate_ranges(1000, sizes, Budget(1e-3))
    needed = float(str(told.value).split("epsilon of ")[1].split()[0])
    assert calibrate_ranges(1000, sizes, Budget(needed * 1.01)).levels[0] <= 0.25
    with pytest.raises(CalibrationError):
        calibrate_ranges(1000, sizes, Budget(needed * 0.99))
