"""Predicted errors, and the choice among the calibrations that are valid."""

import dataclasses
import math

import numpy as np
import pytest

from dp2erm_cvx.calibration import (
    CALIBRATORS,
    NAMES,
    Noise,
    Objective,
    calibrate,
    calibrate_output,
    calibrate_renyi,
    calibrator,
    predicted_error,
    rank,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound
from dp2erm_cvx.stability import known_coefficient, logistic_propensity

LOSS = LossConstants(5, 5.0, 2.0, 0.0, 1.0, 1.0, gradient_bound=6.0, covariate_bound=1.0, response_bound=2.0)
#: The plug-in mean (z - theta)^2 with |z| <= 2.
MEAN = LossConstants(1, 4.0, 2.0, 0.0, 2.0, 1.0, covariate_bound=1.0, response_bound=2.0, is_mean=True)
BUDGET = Budget(1.0, 1e-4)
SHARP = [calibrator("sharp")]
#: The laws that need no box.
FREE = (Noise.GAMMA, Noise.GAUSSIAN)


def bound_of(V, **stated):
    return StabilityBound(
        V=V, theorem="a test", assumptions=(), relations=frozenset(Neighboring), w_max=V / 2, **stated
    )


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


def test_prediction_is_near_the_simulated_excess_of_a_mean():
    # (1/n) sum w (z - theta)^2 = (theta - m)^2 + const; objective perturbation moves its minimizer
    n, m = 400, 0.125  # an eighth of M'
    rng = np.random.default_rng(6)
    found = calibrate(Objective(bound_of(4.0), MEAN, n), BUDGET)
    b = simulate_noise(found, 20_000, rng)[:, 0]
    theta = (2 * m - b / n) / (2 + found.gamma)
    typical = float(np.mean(np.abs(theta - m))) ** 2
    assert predicted_error(found, MEAN, n) == pytest.approx(typical, rel=0.2)
    output = calibrate_output(Objective(bound_of(4.0), MEAN, n), BUDGET)
    noise = simulate_noise(output.law, 20_000, rng)[:, 0]
    assert predicted_error(output, MEAN, n) == pytest.approx(np.mean(np.abs(noise)) ** 2, rel=0.05)


def named(found):
    return [one.name for one in found.valid]


def test_every_calibration_is_compared_in_each_of_its_laws():
    objective = Objective(bound_of(8.0, W1=8.0, W2=60.0), LOSS, 400)
    found = rank(objective, BUDGET, CALIBRATORS)
    paper = {f"{name}-{noise}" for name in ("paper", "paper-corrected") for noise in FREE}
    assert set(named(found)) == {"sharp-gamma", "sharp-gaussian", "renyi", *paper}
    assert [name for name, _ in found.refused] == ["output", "saturating-gamma", "saturating-gaussian"]
    errors = [one.predicted_error for one in found.valid]
    assert errors == sorted(errors)
    assert found.best.reason.endswith("the smallest of 7 valid calibrations")
    assert all("times the smallest" in one.reason for one in found.valid[1:])
    direct = {
        "sharp-gamma": calibrate(objective, BUDGET),
        "sharp-gaussian": calibrate(objective, BUDGET, noise=Noise.GAUSSIAN),
        "renyi": calibrate_renyi(objective, BUDGET),
    }
    for one in found.valid:
        if one.name in direct:
            assert one.calibration == direct[one.name]
            assert one.predicted_error == predicted_error(one.calibration, LOSS, 400)


def test_the_choice_depends_on_the_dimension():
    def best(p):
        loss = dataclasses.replace(LOSS, n_parameters=p)
        return rank(Objective(bound_of(8.7), loss, 400), Budget(1.0, 1 / 400)).best

    assert best(1).name == "sharp-gamma"
    assert best(40).name == "renyi"


def test_output_perturbation_of_a_mean_beats_objective_perturbation():
    found = rank(Objective(bound_of(4.0), MEAN, 400), BUDGET)
    assert found.best.name == "output"
    second = found.valid[1]
    assert second.predicted_error == predicted_error(second.calibration, MEAN, 400)
    assert second.predicted_error > 1.25 * found.best.predicted_error


def test_composition_gains_by_a_smaller_bound_what_the_first_stage_takes():
    # ridge 0.003, radius 1: the direct bound is several times that of a private propensity
    direct = rank(Objective(logistic_propensity(400, 1.0, 0.003, 1.0), LOSS, 400), Budget(1.0), SHARP)
    private = rank(
        Objective(known_coefficient(400, 1.0, 1.0), LOSS, 400, weights="private propensity"),
        Budget(0.8),
        SHARP,
    )
    assert private.best.predicted_error < direct.best.predicted_error
    assert math.isclose(private.best.calibration.V / 0.8, 6.8, rel_tol=0.01)
    assert private.best.calibration.epsilon == 0.8
    assert "private propensity" in private.best.reason


def test_an_uncertified_paper_calibration_is_not_valid():
    flat = LossConstants(1, 1.0, 1e-9, 0.0, 1.0, 1.0, gradient_bound=1.0)
    objective = Objective(bound_of(800.0, W1=800.0, W2=566.0), flat, 400)
    found = rank(objective, Budget(200.0, 1 / 400), CALIBRATORS)
    assert "paper-gaussian" not in named(found)
    assert "not certified" in dict(found.refused)["paper-gaussian"]


def test_an_unbounded_gradient_leaves_theorem_7():
    free = dataclasses.replace(LOSS, gradient_radius=math.inf, theta_bound=None)
    assert named(rank(Objective(bound_of(8.0), free, 400), BUDGET)) == ["renyi"]
    restricted = Objective(bound_of(8.0), LOSS, 400, restriction="a penalty of its own")
    found = rank(restricted, BUDGET)
    assert named(found) == ["sharp-gamma", "sharp-gaussian"]
    refused = dict(found.refused)
    for law in FREE:
        assert "Theorem 15" in refused.pop(f"saturating-{law}")
    assert refused == {"renyi": "a penalty of its own", "output": "a penalty of its own"}


def test_nothing_valid_is_an_error_with_every_reason():
    plain = dataclasses.replace(LOSS, covariate_bound=None)
    objective = Objective(bound_of(8.0), plain, 400, weights="b")
    with pytest.raises(CalibrationError, match="no calibration is valid: b, renyi: Theorem 7") as caught:
        rank(objective, Budget(1.0), [calibrator("renyi")])
    assert "\n" not in str(caught.value)


def test_what_a_release_may_declare():
    assert NAMES == ("sharp", "paper", "paper-corrected", "renyi", "output", "saturating", "auto")
    assert [calibrator(name).name for name in NAMES] == list(NAMES)
    for unknown in ("best", None, ["sharp"]):
        with pytest.raises(DeclarationError, match=r"must be one of sharp, paper"):
            calibrator(unknown)
    objective = Objective(bound_of(8.0), LOSS, 400)
    calibration, reason = calibrator("auto").explained(objective, BUDGET, "gamma")
    assert (calibration, reason) == (
        rank(objective, BUDGET).best.calibration,
        rank(objective, BUDGET).best.reason,
    )
    assert calibrator("auto").calibrate(objective, BUDGET, "gamma") == calibration
    declared, reason = calibrator("sharp").explained(objective, BUDGET, "gaussian", 0.4)
    assert declared == calibrate(objective, BUDGET, noise="gaussian", split=0.4)
    assert reason == "calibration = 'sharp' was declared"
