"""Box noise: what it guarantees by exact densities, how long it is, and where it is refused or chosen."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.calibration import (
    Noise,
    Objective,
    calibrate,
    calibrate_saturating,
    calibrator,
    privacy_loss,
    saturating_epsilon,
)
from dp2erm_cvx.calibration.base import mean_norm
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import WholeSpace
from dp2erm_cvx.privacy import LossConstants, RowBox
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.program import PrivateFirstStage, SecondStage
from dp2erm_cvx.program.curves import LOGISTIC
from dp2erm_cvx.registry import programs
from dp2erm_cvx.suprema import Saturation
from tests.helpers import BOUNDED_INFLUENCE, bound_of
from tests.plugins.literature import hinge_rule

N, S, WIDTHS = 12, 0.7, (1.0, 0.4)
M = math.hypot(*WIDTHS)
BOTH = bound_of(2.0)


def loss_of(widths=WIDTHS, slope=S, **changes):
    size = math.hypot(*widths)
    constants = {
        "n_parameters": len(widths),
        "gradient_radius": size * slope,
        "hessian_trace": size**2,
        "strong_convexity": 0.0,
        "theta_bound": None,
        "outcome_bound": 1.0,
        "saturation": Saturation(BOUNDED_INFLUENCE["1 - u"][0](slope, 1.0), size),
        "box": RowBox(widths, slope),
    }
    return LossConstants(**constants | changes)


@pytest.mark.parametrize("widths", [(1.0, 3.0, 0.01, 7.0), (1.0, 1e-30), (1e20, 1e20, 1.0)])
def test_mean_length_of_any_box(widths):
    inside = np.random.default_rng(0).uniform(-1, 1, (100_000, len(widths))) * widths
    exact = np.mean(np.linalg.norm(inside, axis=1))
    assert mean_norm(Noise.BOX, len(widths), widths) / (len(widths) + 1) == pytest.approx(exact, rel=8e-3)


def test_in_one_dimension_it_is_the_noise_of_the_ball():
    loss = loss_of((0.5,))
    box, ball = (calibrate_saturating(Objective(BOTH, loss, N), Budget(1.0), law) for law in ("box", "gamma"))
    assert box.scale * box.box[0] == pytest.approx(ball.scale)
    assert (box.gamma, box.delta) == (ball.gamma, 0.0)


def test_theorem_17_is_theorem_1_in_another_norm():
    loss = loss_of(saturation=None)
    objective = Objective(BOTH, loss, N)
    box = calibrate(objective, Budget(1.0, 1e-6), noise="box", split=0.4)
    ball = calibrate(objective, Budget(1.0), split=0.4)
    assert (box.theorem, box.box, box.delta) == ("Theorem 17 (box noise)", WIDTHS, 0.0)
    assert box.gamma == ball.gamma
    assert ball.scale / box.scale == pytest.approx(M)
    factored = dataclasses.replace(loss, gradient_bound=M * S).factored()
    assert calibrate(Objective(BOTH, factored, N), Budget(1.0), noise="box", split=0.4) == box


def test_what_a_saturating_calibration_promises_is_evaluated_again():
    objective = Objective(BOTH, loss_of(), N)
    result = calibrator("sharp").calibrate(objective, Budget(1.0), "box")
    assert result.theorem == "Theorem 15 (saturating loss, box noise)"
    assert 1.0 - 1e-9 < saturating_epsilon(result, objective.loss, N) <= 1.0
    for wrong in ({"scale": result.scale / 1.01}, {"gamma": result.gamma / 1.1}):
        assert privacy_loss(dataclasses.replace(result, **wrong), objective.loss, N, 1.0) > 0.0


@pytest.mark.parametrize("rho", [0.5, 20.0, math.inf])
@pytest.mark.parametrize("k", [0.01, 0.1, 0.4])
def test_a_logistic_loss_in_a_ball(rho, k):
    result = Saturation(LOGISTIC, 1.0, ball=rho)
    a = result.steepest(1.0, k, box=True)
    u = special.expit(np.linspace(-min(rho, 700), min(rho, 700), 4001))
    worst = a * u.max() + float(np.max(a * u + 4 * k * u * (1 - u)))
    assert result.largest(a, k, box=True) <= 1.0
    assert worst <= 1.0 + 1e-12
    # none is found where the curvature takes as much as a record that it leaves alone
    assert worst > 0.999999 if a else k > 0.125
    for other in (0.01, 0.3, 1.0):
        exact = other * u.max() + float(np.max(other * u + 4 * k * u * (1 - u)))
        assert exact <= result.largest(other, k, box=True) * (1 + 1e-12)
        assert result.largest(other, k, box=True) <= exact * 1.05 + 1e-6


BINARY = Domain(math.sqrt(11.0), 1.0, ranges=[(0, 1)] * 10, intercept=1.0)


def test_programs_that_are_linear_in_the_covariates_state_their_box():
    universe, stating = Universe(BINARY, 400, 10), []
    for name, program in programs().items():
        if not issubclass(program, SecondStage | PrivateFirstStage):
            continue
        resolved = program().resolve(BINARY)
        if resolved.loss_constants(universe).box is not None:
            stating.append(name)
            assert resolved.loss_constants(universe).box.widths == (1.0,) * 11
            plain = Universe(FREE, 400, 10)
            without = program().resolve(plain.domain).loss_constants(plain)
            assert without == dataclasses.replace(resolved.loss_constants(universe), box=None)
    rules = ["itr", "itr_huber", "itr_logistic", "itr_saturating"]
    assert stating == ["ipw_private", *rules, "overlap_private", "regression", "saturating_regression"]
    several = dataclasses.replace(BINARY, coordinate_bound=[0.1 * k for k in range(1, 11)])
    chosen = itr(features=(3, 0)).loss_constants(Universe(several, 400, 10))
    assert chosen.box.widths == (1.0, 0.4, 0.1)
    assert chosen.box.slope == pytest.approx(chosen.gradient_bound / math.sqrt(11))


#: Covariates of any size.
FREE = Domain(math.sqrt(11.0), 1.0, intercept=1.0)


def two_stages(domain, *stages, **more):
    return PrivateTwoStageERM(domain, Budget(1.0), *stages, noise="box", **more)


REFUSED = {
    "covariates of any size": two_stages(FREE, "uniform", "itr"),
    "a rule of such": PrivateRule(FREE, Budget(1.0), noise="box"),
    "an effect of such": PrivateEffect(FREE, Budget(1.0), noise="box"),
    "arm means": two_stages(BINARY, "uniform", "arm_means"),
    "tilting": two_stages(BINARY, "tilting_private", "itr"),
    "the paper": two_stages(BINARY, "ipw_logistic", "itr", calibration="paper"),
    "unbounded": two_stages(BINARY, "uniform", itr(WholeSpace())),
    "rows of an author's own": two_stages(BINARY, "uniform", hinge_rule()),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_what_no_theorem_covers_is_refused(refused):
    with pytest.raises(CalibrationError, match=r"coordinate_bound|paper's statements|is unbounded"):
        refused.plan(400, 10)


def test_declarations_that_are_none():
    for wrong in (0.0, -1.0, math.nan, math.inf, "wide", [], [1.0, 0.0], 1e40):
        with pytest.raises(DeclarationError, match="coordinate_bound"):
            Domain(1.0, 1.0, coordinate_bound=wrong)
    with pytest.raises(DeclarationError, match="2 are declared for 1 covariates"):
        Domain(1.0, 1.0, ranges=[(0, 1)], coordinate_bound=[1.0, 2.0])
    with pytest.raises(DeclarationError, match="2 are declared for 3 covariates"):
        Domain(1.0, 1.0, coordinate_bound=[1.0, 2.0]).features(np.zeros((4, 3)))
    result = calibrate(Objective(BOTH, loss_of(saturation=None), N), Budget(1.0), noise="box")
    for wrong in ({"box": None}, {"box": (1.0,)}, {"noise": Noise.GAMMA}):
        with pytest.raises(DeclarationError, match="half widths"):
            dataclasses.replace(result, **wrong)
    for widths, slope in (((1.0, 0.0), 1.0), ((1.0, 1.0), -1.0)):
        with pytest.raises(DeclarationError, match="box"):
            RowBox(widths, slope)
