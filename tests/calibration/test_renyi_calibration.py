"""Calibration by Theorem 7 against mpmath, the best order, and the predicted error."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy import optimize

from dp2erm_cvx.calibration import (
    Objective,
    calibrate_renyi,
    predicted_error,
    renyi_divergence,
    renyi_epsilon,
)
from dp2erm_cvx.calibration.renyi import TAU_GRID
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import draw
from dp2erm_cvx.privacy import Budget, LossConstants
from tests.calibration.gaussian_pairs import bound_of, objective_of, squared_loss


def random_settings(count, extreme=False):
    rng = np.random.default_rng(77)

    def log_uniform(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for _ in range(count):
        constants = int(rng.choice([1, 10, 1000])), log_uniform(1e-3, 1e3), log_uniform(1e-3, 1e3)
        delta = float(rng.choice([1e-300, 0.9, 1 / 400, log_uniform(1e-12, 0.1)]))
        epsilon = float(rng.choice([1e-3, 100.0, log_uniform(1e-2, 20.0)]))
        if extreme:
            delta, epsilon = log_uniform(1e-300, 0.999), log_uniform(1e-9, 1e6)
        n = int(rng.choice([2, 400, 10**7]))
        V, size = log_uniform(2.0, 1e4), [None, 2.0][rng.integers(2)]
        yield V, squared_loss(*constants, theta_bound=size), n, Budget(epsilon, delta)


def proven_epsilon(V, loss, n, delta, calibration):
    """The guarantee of Theorem 7 at the calibration's own order, evaluated in mpmath."""
    mp = mpmath.mpf
    M, Z, gamma = mp(loss.covariate_bound), mp(loss.response_bound), mp(calibration.gamma)
    order = mp(calibration.order)
    tau = M**2 * V / (n * gamma)
    h = order - (order - 1) * (1 + tau) ** 2
    if h <= 0:
        return mpmath.inf
    S = V * (M**2 * Z / mpmath.sqrt(2 * gamma) + 2 * M * Z)
    f = -mpmath.log(1 + tau) - mpmath.log(h) / (2 * (order - 1))
    divergence = order * S**2 / (2 * mp(calibration.scale) ** 2 * h) + 2 * f
    # delta = exp((alpha - 1)(D - epsilon)) / (alpha - 1) (1 - 1/alpha)^alpha, solved for epsilon
    spent = order * mpmath.log(1 - 1 / order) - mpmath.log(order - 1) - mpmath.log(mp(delta))
    return divergence + spent / (order - 1)


def test_guarantee_holds_in_exact_arithmetic():
    kept = 0
    with mpmath.workdps(50):
        for V, loss, n, budget in random_settings(250):
            calibration = calibrate_renyi(objective_of(V, loss, n), budget)
            assert proven_epsilon(V, loss, n, budget.delta, calibration) <= budget.epsilon
            kept += proven_epsilon(V, loss, n, budget.delta, calibration) > 0.999 * budget.epsilon
            half = dataclasses.replace(calibration, scale=calibration.scale / 1.01)
            assert proven_epsilon(V, loss, n, budget.delta, half) > budget.epsilon
    assert kept == 250


@pytest.mark.slow
def test_guarantee_holds_in_exact_arithmetic_widely():
    refused = 0
    with mpmath.workdps(50):
        for V, loss, n, budget in random_settings(10_000, extreme=True):
            try:
                calibration = calibrate_renyi(objective_of(V, loss, n), budget)
            except CalibrationError:
                refused += 1
                continue
            assert proven_epsilon(V, loss, n, budget.delta, calibration) <= budget.epsilon
    assert refused < 3000


@pytest.mark.parametrize("tau", [1e-6, 0.02, 0.1])
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_scale_is_within_a_thousandth_of_the_best_order(tau, epsilon):
    loss, V, n, delta = squared_loss(5, 1.0, 2.0), 8.0, 1000, 1e-3
    gamma = V / (n * tau)
    top = math.log(0.9999 / (tau * (2 + tau)))

    def unit(log_k):
        k = math.exp(log_k)
        h = 1 - k * tau * (2 + tau)
        f = -math.log1p(tau) - math.log(h) / (2 * k)
        left = epsilon - 2 * f - (-math.log1p(1 / k) - (math.log1p(k) + math.log(delta)) / k)
        return math.sqrt((1 + k) / (2 * h * left)) if left > 0 else math.inf

    starts = np.linspace(-5, top, 2000)
    centre = starts[int(np.argmin([unit(point) for point in starts]))]
    best = optimize.minimize_scalar(unit, bounds=(centre - 0.01, min(centre + 0.01, top)), method="bounded")
    if not math.isfinite(best.fun):
        with pytest.raises(CalibrationError, match="no order fits"):
            calibrate_renyi(objective_of(V, loss, n), Budget(epsilon, delta), gamma=gamma)
        return
    calibration = calibrate_renyi(objective_of(V, loss, n), Budget(epsilon, delta), gamma=gamma)
    ratio = calibration.scale / calibration.sensitivity / best.fun
    assert 1.0 - 1e-9 <= ratio < 1.001


@pytest.mark.parametrize(("p", "noise_norm"), [(10, 9.9), (40, 20.0)])
def test_published_noise_norms(p, noise_norm):
    # delta = 1/400, epsilon = 1, tau = 0.02, per unit of S
    loss, V, n = squared_loss(p, 1.0, 2.0), 8.7, 400
    calibration = calibrate_renyi(objective_of(V, loss, n), Budget(1.0, 1 / 400), gamma=V / (n * 0.02))
    assert calibration.tau == pytest.approx(0.02)
    norm = calibration.scale / calibration.sensitivity * math.sqrt(p)
    assert norm == pytest.approx(noise_norm, rel=0.02)


@pytest.mark.parametrize("size", [None, 0.5])
@pytest.mark.parametrize("n", [400, 100_000])
def test_gamma_minimizes_the_predicted_error_over_the_grid(size, n):
    loss, V, budget = squared_loss(10, 1.0, 2.0, theta_bound=size), 8.7, Budget(1.0, 1e-3)

    def predicted(calibration):
        return predicted_error(calibration, loss, n)

    chosen = calibrate_renyi(objective_of(V, loss, n), budget)
    costs = []
    for tau in TAU_GRID[::4]:
        try:
            found = calibrate_renyi(objective_of(V, loss, n), budget, gamma=V / (n * tau))
        except CalibrationError:
            continue
        costs.append(predicted(found))
    assert len(costs) > 20
    assert predicted(chosen) <= min(costs) * 1.001


def test_releases_compose_by_adding_divergences():
    loss, V, n = squared_loss(3, 1.0, 2.0), 4.0, 2000
    one = calibrate_renyi(objective_of(V, loss, n), Budget(1.0, 1e-6), gamma=5.0)
    orders = 1 + np.geomspace(1e-2, 1e4, 4000)
    curve = renyi_divergence(orders, V, loss, n, one.scale, one.gamma)
    single, double = (renyi_epsilon(orders, k * curve, 1e-6) for k in (1, 2))
    assert single == pytest.approx(1.0, rel=1e-3)
    # two releases cost more than one and less than basic composition at the same total delta
    assert 1.3 < double < 2 * renyi_epsilon(orders, curve, 5e-7)
    assert renyi_epsilon(orders, np.zeros_like(orders), 0.5) == 0.0


def test_a_small_budget_needs_a_large_gamma():
    loss = squared_loss(5, 1.0, 2.0)
    with pytest.raises(CalibrationError, match=r"no order fits .* at gamma = 1e-05"):
        calibrate_renyi(objective_of(8.0, loss, 400), Budget(0.1, 1e-6), gamma=1e-5)
    assert calibrate_renyi(objective_of(8.0, loss, 400), Budget(0.1, 1e-6)).gamma > 0.1


def test_the_calibration_can_be_drawn():
    calibration = calibrate_renyi(objective_of(8.0, squared_loss(5, 1.0, 2.0), 400), Budget(1.0, 1e-6))
    assert draw(calibration, seed=1).shape == (5,)
    assert (calibration.theorem, calibration.split) == ("Theorem 7 (Renyi)", 1.0)


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        (CalibrationError, {"budget": Budget(1.0)}, "delta = 0.0"),
        (CalibrationError, {"bound": dataclasses.replace(bound_of(4.0), private=False)}, "read off the data"),
        (
            CalibrationError,
            {"bound": dataclasses.replace(bound_of(4.0), relations=frozenset())},
            "replace-one",
        ),
        (CalibrationError, {"bound": bound_of(math.inf)}, "V = inf"),
        (CalibrationError, {"bound": bound_of(1e300)}, "out of floating-point range"),
        (DeclarationError, {"n_samples": 1}, "n_samples"),
        (DeclarationError, {"gamma": 0.0}, "gamma"),
        (DeclarationError, {"loss": squared_loss(5, 1.0, 2.0, theta_bound=-1.0)}, "theta_bound"),
        (CalibrationError, {"loss": LossConstants(5, 1.0, 1.0, 0.0, 1.0, 1.0)}, "needs a squared loss"),
    ],
)
def test_refusals(error, change, message):
    arguments = {
        "bound": bound_of(4.0),
        "loss": squared_loss(5, 1.0, 2.0),
        "n_samples": 400,
        "budget": Budget(1.0, 1e-6),
        **change,
    }
    budget, gamma = arguments.pop("budget"), arguments.pop("gamma", None)
    with pytest.raises(error, match=message) as caught:
        calibrate_renyi(Objective(**arguments), budget, gamma=gamma)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["n_parameters", "covariate_bound", "response_bound"])
def test_loss_constants(name):
    with pytest.raises(DeclarationError, match=name):
        calibrate_renyi(
            objective_of(4.0, dataclasses.replace(squared_loss(3, 1.0, 1.0), **{name: 0}), 400),
            Budget(1.0, 1e-6),
        )
