"""Every refusal of a calibration, once."""

import dataclasses
import math

import pytest

from dp2erm_cvx.calibration import Objective, calibrate, privacy_loss, utility_bound
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound

BOUND = StabilityBound(
    V=6.0, theorem="Theorem X", assumptions=(), relations=frozenset(Neighboring), w_max=3.0
)
LOSS = LossConstants(5, 10.0, 2.0, 0.0, 2.0, 1.0)
KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT


def refusal(error, bound=BOUND, loss=LOSS, n=400, budget=None, **arguments):
    with pytest.raises(error) as caught:
        calibrate(Objective(bound, loss, n), budget or Budget(1.0, 1e-6), **arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_bound_read_off_the_data():
    assert "read off the data" in refusal(CalibrationError, dataclasses.replace(BOUND, private=False))


def test_relation_not_covered():
    bound = dataclasses.replace(BOUND, relations=frozenset([KEEP]))
    text = refusal(CalibrationError, bound)
    assert "'replace-one'" in text
    assert "Theorem X" in text
    assert calibrate(Objective(bound, LOSS, 400, KEEP), Budget(1.0)).scale > 0


@pytest.mark.parametrize("V", [math.inf, math.nan, 0.0])
def test_no_finite_stability(V):
    assert f"V = {V!r}" in refusal(CalibrationError, dataclasses.replace(BOUND, V=V))


def test_gaussian_noise_needs_delta():
    assert "delta = 0.0" in refusal(CalibrationError, budget=Budget(1.0), noise="gaussian")
    assert "delta = 1e-301" in refusal(CalibrationError, budget=Budget(1.0, 1e-301), noise="gaussian")


@pytest.mark.parametrize("epsilon", [1e-320, 1e7])
def test_epsilon_out_of_range(epsilon):
    assert f"epsilon = {epsilon!r}" in refusal(CalibrationError, budget=Budget(epsilon))


def test_noise_out_of_floating_point_range():
    huge = dataclasses.replace(LOSS, gradient_radius=1e300)
    assert "noise scale = 1.2e+301" in refusal(CalibrationError, loss=huge, split=0.5)
    flat = dataclasses.replace(LOSS, hessian_trace=1e-300)
    assert "gamma = " in refusal(CalibrationError, loss=flat)


def test_unknown_noise():
    assert "gamma, gaussian" in refusal(DeclarationError, noise="laplace")


@pytest.mark.parametrize("split", [0.0, 1.0, -0.5, math.nan, "half"])
def test_split_outside_the_unit_interval(split):
    assert "split" in refusal(DeclarationError, split=split)


@pytest.mark.parametrize("n", [1, 2.5, math.inf, "many"])
def test_sample_size(n):
    assert "n_samples" in refusal(DeclarationError, n=n)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_parameters", 0),
        ("n_parameters", 1.5),
        ("gradient_radius", 0.0),
        ("gradient_radius", math.inf),
        ("hessian_trace", 0.0),
        ("strong_convexity", -1.0),
        ("theta_bound", 0.0),
        ("outcome_bound", math.nan),
    ],
)
def test_loss_constants(name, value):
    assert name in refusal(DeclarationError, loss=dataclasses.replace(LOSS, **{name: value}))


def test_privacy_loss_at_an_invalid_epsilon():
    calibration = calibrate(Objective(BOUND, LOSS, 400), Budget(1.0))
    with pytest.raises(DeclarationError, match="epsilon"):
        privacy_loss(calibration, LOSS, 400, -1.0)


@pytest.mark.parametrize("name", ["noise_norm", "theta_norm", "strong_convexity"])
def test_utility_of_a_negative_quantity(name):
    calibration = calibrate(Objective(BOUND, LOSS, 400), Budget(1.0))
    arguments = {"noise_norm": 1.0, "n_samples": 400, "theta_norm": 1.0, name: -1.0}
    with pytest.raises(DeclarationError, match=name):
        utility_bound(calibration=calibration, **arguments)
