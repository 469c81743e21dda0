"""The paper's formulas, where they hold and where they are refused."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from dp2erm_cvx.calibration import Noise, Objective, calibrate, calibrate_paper
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import draw
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound

LOSS = LossConstants(5, 6.0, 2.0, 0.0, 1.0, 1.0, gradient_bound=9.0)
#: A loss without curvature: the Jacobian costs nothing.
FLAT = LossConstants(1, 1.0, 1e-9, 0.0, 1.0, 1.0, gradient_bound=1.0)


def bound_of(W1, W2=None, V=None):
    return StabilityBound(
        V=W1 if V is None else V,
        theorem="a test",
        assumptions=(),
        relations=frozenset(Neighboring),
        w_max=W1 / 2,
        W1=W1,
        W2=W1 if W2 is None else W2,
    )


def printed(W1, epsilon, delta, p, corrected=False):
    """sigma per unit of zeta, written once more."""
    root = math.sqrt(math.log(1 / delta))
    L = math.sqrt((math.sqrt(p) + root) ** 2 + root**2)
    return W1 / epsilon * (L + math.sqrt(L * L + (epsilon if corrected else epsilon / W1)))


def test_gamma_noise_is_the_printed_formula():
    found = calibrate_paper(Objective(bound_of(7.0, 50.0), LOSS, 400), Budget(0.5))
    assert found.scale == pytest.approx(2 * 9.0 * 7.0 / 0.5, rel=1e-9)
    assert found.gamma == pytest.approx(2 * 2.0 * 50.0 / (0.5 * 400), rel=1e-9)
    assert found.scale >= 2 * 9.0 * 7.0 / 0.5
    assert (found.private, found.delta, found.sensitivity) == (True, 0.0, 63.0)
    assert found.theorem == "paper, Theorem DP_guarnatee (i)"
    assert draw(found, seed=2).shape == (5,)


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("p", [1, 20])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_gaussian_noise_is_the_stated_formula(corrected, p, epsilon):
    loss = dataclasses.replace(LOSS, n_parameters=p)
    found = calibrate_paper(
        Objective(bound_of(7.0), loss, 400), Budget(epsilon, 1e-4), noise="gaussian", corrected=corrected
    )
    assert found.scale == pytest.approx(9.0 * printed(7.0, epsilon, 1e-4, p, corrected), rel=1e-9)
    assert found.private
    assert found.delta == 1e-4
    assert found.theorem.endswith("(ii), corrected" if corrected else "(ii), as printed")


def test_printed_statement_is_false():
    # p = 1, a loss of constant gradient, the shift zeta W1 in full: the printed exponent is epsilon / 2
    sigma = printed(800, 28.0, 1 / 400, 1)
    assert sigma == pytest.approx(241.735, abs=1e-3)
    root = math.sqrt(math.log(400))
    L = math.hypot(1 + root, root)
    exponent = (2 * sigma * L + 1) / (2 * sigma**2) * 800
    assert exponent == pytest.approx(14.0, abs=1e-9)
    # the event where the density of b exceeds e^14 times that of b + 800
    s = 800 / sigma
    start = 14 / s - s / 2
    first, second = stats.norm.sf(start), stats.norm.sf(start + s)
    claimed = math.exp(14) * second + 1 / 400
    assert first == pytest.approx(0.00500, abs=1e-5)
    assert claimed == pytest.approx(0.00489, abs=1e-5)
    assert first > claimed


def test_printed_gaussian_is_refused_where_it_is_not_private():
    budget = Budget(200.0, 1 / 400)
    objective = Objective(bound_of(800.0, 566.0), FLAT, 400)
    with pytest.raises(CalibrationError, match="not certified at epsilon = 200") as caught:
        calibrate_paper(objective, budget, noise="gaussian")
    assert "\n" not in str(caught.value)
    marked = calibrate_paper(objective, budget, noise="gaussian", unsound_ok=True)
    assert not marked.private
    # a fixed shift of the whole W1 breaks the declared delta at this sigma, and not the stated one
    s = 800 / marked.scale
    loss = stats.norm.sf(200 / s - s / 2) - math.exp(200 + stats.norm.logsf(200 / s + s / 2))
    assert budget.delta < loss <= marked.delta
    # the corrected noise is private there
    corrected = calibrate_paper(objective, budget, noise="gaussian", corrected=True)
    assert corrected.private
    assert corrected.scale > marked.scale


@pytest.mark.parametrize("W1", [3.0, 800.0])
@pytest.mark.parametrize("p", [1, 10, 100])
def test_printed_gaussian_is_certified_at_small_epsilon(W1, p):
    loss = dataclasses.replace(FLAT, n_parameters=p)
    for epsilon in (0.01, 1.0, 5.0, 17.0):
        found = calibrate_paper(
            Objective(bound_of(W1), loss, 400), Budget(epsilon, 1 / 400), noise="gaussian"
        )
        assert found.private


def settings(count):
    rng = np.random.default_rng(19)

    def log_uniform(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for _ in range(count):
        radius = log_uniform(1e-2, 1e2)
        loss = LossConstants(
            int(rng.choice([1, 3, 40, 1000])),
            radius,
            log_uniform(1e-3, 1e3),
            log_uniform(1e-9, 1.0),
            1.0,
            1.0,
        )
        W1 = log_uniform(2.0, 1e4)
        W2 = W1 * log_uniform(0.71, 100.0)
        budget = Budget(log_uniform(1e-3, 100.0), float(rng.choice([1e-300, 0.5, log_uniform(1e-12, 0.1)])))
        n, zeta = int(rng.choice([2, 400, 10**6])), radius * log_uniform(1.0, 2.0)
        yield Objective(bound_of(W1, W2), dataclasses.replace(loss, gradient_bound=zeta), n), budget


def exact_jacobian(objective, gamma):
    """J of Theorem 1 with the coupled variation that W1 and W2 allow."""
    bound, loss, n = objective.bound, objective.loss, objective.n_samples
    p, V = loss.n_parameters, min(bound.W1, mpmath.sqrt(2) * bound.W2)
    curvature = mpmath.mpf(gamma) + loss.strong_convexity
    return p * mpmath.log1p(mpmath.mpf(loss.hessian_trace) * V / (2 * p * n * curvature))


def test_gamma_guarantee_in_exact_arithmetic():
    with mpmath.workdps(40):
        for objective, budget in settings(300):
            found = calibrate_paper(objective, budget)
            moved = mpmath.mpf(objective.loss.gradient_bound) * objective.bound.W1
            half = mpmath.mpf(budget.epsilon) / 2
            assert moved / mpmath.mpf(found.scale) <= half
            assert exact_jacobian(objective, found.gamma) <= half
            assert moved / mpmath.mpf(found.scale / 1.001) > half


def test_corrected_gaussian_guarantee_in_exact_arithmetic():
    # off an event of probability delta the loss is at most J + s L + s^2 / 2
    with mpmath.workdps(40):
        for objective, budget in settings(300):
            loss = objective.loss
            found = calibrate_paper(objective, budget, noise="gaussian", corrected=True)
            log_delta = -mpmath.log(mpmath.mpf(budget.delta))
            L = mpmath.sqrt((mpmath.sqrt(loss.n_parameters) + mpmath.sqrt(log_delta)) ** 2 + log_delta)
            s = mpmath.mpf(loss.gradient_bound) * objective.bound.W1 / mpmath.mpf(found.scale)
            half = mpmath.mpf(budget.epsilon) / 2
            assert s * L + s * s / 2 <= half
            assert exact_jacobian(objective, found.gamma) <= half
            tail = mpmath.gammainc(mpmath.mpf(loss.n_parameters) / 2, L * L / 2, mpmath.inf, regularized=True)
            assert tail <= budget.delta
            larger = s * mpmath.mpf("1.001")
            assert larger * L + larger * larger / 2 > half


def test_what_is_certified_keeps_the_budget():
    # Theorem 2 by quadrature over chi_p, for whatever is returned as private
    refused = 0
    for objective, budget in settings(150):
        bound, loss = objective.bound, objective.loss
        if budget.delta < 1e-10 or loss.n_parameters > 100:
            continue
        try:
            found = calibrate_paper(objective, budget, noise="gaussian")
        except CalibrationError:
            refused += 1
            continue
        V = min(bound.W1, math.sqrt(2) * bound.W2)
        s = loss.gradient_radius * V / found.scale
        left = budget.epsilon - float(exact_jacobian(objective, found.gamma))
        chi, start = stats.chi(loss.n_parameters), max(left / s - s / 2, 0.0)
        end = max(start, math.sqrt(loss.n_parameters)) + 12
        points = [max(start, math.sqrt(loss.n_parameters))]
        value, _ = integrate.quad(
            lambda x, s=s, left=left, chi=chi: -math.expm1(left - s * x - s * s / 2) * chi.pdf(x),
            start,
            end,
            points=points,
            limit=200,
            epsabs=0.0,
        )
        assert value <= budget.delta
    assert refused < 20


def test_never_less_noise_than_the_sharp_calibration_of_the_same_bound():
    for noise in (Noise.GAMMA, Noise.GAUSSIAN):
        for epsilon in (0.1, 1.0, 5.0):
            loss = dataclasses.replace(LOSS, gradient_bound=8.0)
            arguments = (Objective(bound_of(8.0, 9.0), loss, 400), Budget(epsilon, 1e-4))
            paper = calibrate_paper(*arguments, noise=noise)
            assert calibrate(*arguments, noise=noise, split=0.5).scale <= paper.scale
            assert calibrate(*arguments, noise=noise, split=0.5).gamma <= paper.gamma


def test_the_smaller_movement_certifies():
    found = calibrate_paper(Objective(bound_of(8.0, 5.0, V=9.0), LOSS, 400), Budget(1.0))
    assert math.isclose(found.V, 5.0 * math.sqrt(2), rel_tol=1e-9)
    assert not found.V < 5.0 * math.sqrt(2)
    assert calibrate_paper(Objective(bound_of(8.0, 9.0, V=3.0), LOSS, 400), Budget(1.0)).V == 3.0


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        (CalibrationError, {"bound": dataclasses.replace(bound_of(4.0), W1=None)}, "no W1 and W2"),
        (CalibrationError, {"bound": dataclasses.replace(bound_of(4.0), W2=math.inf)}, "W2 = inf"),
        (CalibrationError, {"bound": dataclasses.replace(bound_of(4.0), private=False)}, "read off the data"),
        (
            CalibrationError,
            {"bound": dataclasses.replace(bound_of(4.0), relations=frozenset())},
            "replace-one",
        ),
        (CalibrationError, {"noise": "gaussian", "budget": Budget(1.0)}, "delta = 0.0"),
        (
            CalibrationError,
            {"loss": dataclasses.replace(LOSS, gradient_bound=1e295)},
            "out of floating-point range",
        ),
        (
            DeclarationError,
            {"loss": dataclasses.replace(LOSS, gradient_bound=5.9)},
            "at least the centered gradient radius 6",
        ),
        (DeclarationError, {"loss": dataclasses.replace(LOSS, gradient_bound=math.inf)}, "gradient_bound"),
        (
            CalibrationError,
            {"loss": dataclasses.replace(LOSS, gradient_bound=None)},
            "the second stage states no gradient_bound",
        ),
        (DeclarationError, {"n_samples": 1}, "n_samples"),
        (DeclarationError, {"noise": "laplace"}, "gamma, gaussian"),
        (DeclarationError, {"loss": dataclasses.replace(LOSS, hessian_trace=0.0)}, "hessian_trace"),
    ],
)
def test_refusals(error, change, message):
    arguments = {
        "bound": bound_of(4.0),
        "loss": LOSS,
        "n_samples": 400,
        "budget": Budget(1.0, 1e-4),
        **change,
    }
    budget, noise = arguments.pop("budget"), arguments.pop("noise", "gamma")
    with pytest.raises(error, match=message) as caught:
        calibrate_paper(Objective(**arguments), budget, noise=noise)
    assert "\n" not in str(caught.value)
