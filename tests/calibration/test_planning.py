"""Predicted errors, the grid, and the choice among valid calibrations."""

import dataclasses
import functools
import math

import numpy as np
import pytest

from dp2erm_cvx.calibration import (
    Family,
    Noise,
    Option,
    SquaredLoss,
    calibrate,
    calibrate_output,
    calibrate_renyi,
    compare,
    plan,
    predicted_error,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound
from dp2erm_cvx.stability import ipw_logistic, known_coefficient

LOSS = LossConstants(5, 5.0, 2.0, 0.0, 1.0, 1.0)
#: The plug-in mean (z - theta)^2 with |z| <= 2.
MEAN = LossConstants(1, 4.0, 2.0, 0.0, 2.0, 1.0)
BUDGET = Budget(1.0, 1e-4)


def bound_of(V, **stated):
    return StabilityBound(
        V=V, theorem="a test", assumptions=(), relations=frozenset(Neighboring), w_max=V / 2, **stated
    )


def test_predicted_error_of_objective_perturbation():
    found = calibrate(bound_of(8.0), LOSS, 400, BUDGET)
    size = 5 * found.scale / 400 + found.gamma * 1.0
    assert predicted_error(found, LOSS, 400) == pytest.approx(size**2 / (4 * found.gamma))
    strong = predicted_error(found, LOSS, 400, strong_convexity=2.0)
    assert strong == pytest.approx(size**2 / (2 * (2.0 + 2 * found.gamma)))
    free = dataclasses.replace(LOSS, theta_bound=None)
    size = 5 * found.scale / 400 + found.gamma * math.sqrt(2 / found.gamma)
    assert predicted_error(found, free, 400) == pytest.approx(size**2 / (4 * found.gamma))


def test_prediction_bounds_the_simulated_excess_of_a_mean():
    # (1/n) sum w (z - theta)^2 = (theta - m)^2 + const; objective perturbation moves its minimizer
    n, m = 400, 1.3
    rng = np.random.default_rng(6)
    found = calibrate(bound_of(4.0), MEAN, n, BUDGET)
    b = simulate_noise(found, 20_000, rng)[:, 0]
    theta = (2 * m - b / n) / (2 + found.gamma)
    typical = float(np.mean(np.abs(theta - m))) ** 2
    predicted = predicted_error(found, MEAN, n, strong_convexity=2.0)
    assert 0.1 * predicted < typical <= predicted
    output = calibrate_output(bound_of(4.0), 1.0, n, BUDGET)
    noise = simulate_noise(output.law, 20_000, rng)[:, 0]
    assert predicted_error(output, MEAN, n) == pytest.approx(np.mean(np.abs(noise)) ** 2, rel=0.05)


def rows(**grid):
    def bound(n, *, ridge, radius, trim):
        return ipw_logistic(n, 1.0, ridge, radius, trim)

    def sharp(stated, n, budget):
        return calibrate(stated, LOSS, n, budget)

    return list(plan(bound, sharp, LOSS, **{"n_samples": [400], "ridge": [0.1], **grid}))


def test_rows_cover_the_grid_in_order():
    found = rows(
        n_samples=[400, 1600], ridge=[0.1, 1.0], radius=[1.0], trim=[4.0, math.inf], epsilon=[0.5, 1.0]
    )
    keys = [(row.n_samples, row.ridge, row.radius, row.trim, row.epsilon) for row in found]
    assert len(keys) == 16 == len(set(keys))
    assert keys[:3] == [(400, 0.1, 1.0, 4.0, 0.5), (400, 0.1, 1.0, 4.0, 1.0), (400, 0.1, 1.0, math.inf, 0.5)]
    assert keys == sorted(keys)
    for row in found:
        direct = calibrate(
            ipw_logistic(row.n_samples, 1.0, row.ridge, row.radius, row.trim),
            LOSS,
            row.n_samples,
            Budget(row.epsilon),
        )
        assert (row.V, row.scale, row.gamma, row.theorem) == (
            direct.V,
            direct.scale,
            direct.gamma,
            direct.theorem,
        )
        assert row.noise == pytest.approx(direct.expected_noise / row.n_samples)
        assert row.predicted_error == predicted_error(direct, LOSS, row.n_samples)
        assert row.refusal is None


def test_plan_reference_value():
    (row,) = rows(radius=[1.0])
    assert math.isclose(row.V, 8.69, rel_tol=0.01)


def test_more_records_or_budget_predict_less_error():
    by_n = [row.predicted_error for row in rows(n_samples=[100, 1000, 10_000], radius=[1.0])]
    by_epsilon = [row.predicted_error for row in rows(radius=[1.0], epsilon=[0.1, 1.0, 10.0])]
    assert by_n == sorted(by_n, reverse=True)
    assert by_epsilon == sorted(by_epsilon, reverse=True)


def test_refused_settings_are_rows_with_a_reason():
    found = rows(ridge=[0.0, 0.1], radius=[math.inf], epsilon=[1.0, 1e7])
    assert [row.refusal is None for row in found] == [False, False, True, False]
    assert "ridge = 0" in found[0].refusal
    assert (found[0].V, found[0].predicted_error) == (None, None)
    assert "epsilon = 10000000.0" in found[3].refusal
    assert found[3].V is not None


def test_invalid_settings_are_raised():
    with pytest.raises(DeclarationError, match="epsilon"):
        rows(radius=[1.0], epsilon=[-1.0])


def test_a_bound_is_computed_once_for_all_epsilon():
    calls = []

    def bound(n, *, ridge, radius, trim):
        calls.append(n)
        return bound_of(4.0)

    output = functools.partial(_output, outcome_bound=1.0)
    found = list(plan(bound, output, MEAN, n_samples=[400], ridge=[1.0], epsilon=[0.5, 1.0, 2.0]))
    assert calls == [400]
    assert [row.noise for row in found] == [row.scale for row in found]
    assert found[0].predicted_error == pytest.approx(4 * found[1].predicted_error)


def _output(bound, n, budget, outcome_bound):
    return calibrate_output(bound, outcome_bound, n, budget)


def test_every_family_is_compared():
    option = Option("bound", bound_of(8.0, W1=8.0, W2=60.0), BUDGET)
    found = compare([option], LOSS, 400, gradient_bound=6.0, squared_loss=SquaredLoss(5, 1.0, 2.0))
    assert {candidate.family for candidate in found.valid} == set(Family) - {Family.OUTPUT}
    assert [(name, family) for name, family, _ in found.refused] == [("bound", Family.OUTPUT)]
    errors = [candidate.predicted_error for candidate in found.valid]
    assert errors == sorted(errors)
    assert found.best.reason.endswith("the smallest of 6 valid calibrations")
    assert all("times the smallest" in candidate.reason for candidate in found.valid[1:])
    direct = {
        Family.SHARP_GAMMA: calibrate(option.bound, LOSS, 400, BUDGET),
        Family.SHARP_GAUSSIAN: calibrate(option.bound, LOSS, 400, BUDGET, noise=Noise.GAUSSIAN),
        Family.RENYI: calibrate_renyi(
            option.bound, SquaredLoss(5, 1.0, 2.0), 400, BUDGET, theta_bound=LOSS.theta_bound
        ),
    }
    for candidate in found.valid:
        if candidate.family in direct:
            assert candidate.calibration == direct[candidate.family]
            assert candidate.predicted_error == predicted_error(candidate.calibration, LOSS, 400)


def test_the_choice_depends_on_the_dimension():
    def best(p):
        loss = dataclasses.replace(LOSS, n_parameters=p)
        squared = SquaredLoss(p, 1.0, 2.0)
        return compare(
            [Option("b", bound_of(8.7), Budget(1.0, 1 / 400))], loss, 400, squared_loss=squared
        ).best

    assert best(1).family is Family.SHARP_GAMMA
    assert best(40).family is Family.RENYI


def test_output_perturbation_of_a_mean_beats_objective_perturbation():
    found = compare([Option("b", bound_of(4.0), BUDGET)], MEAN, 400, mean_outcome_bound=1.0)
    assert found.best.family is Family.OUTPUT
    second = found.valid[1]
    assert second.predicted_error == predicted_error(second.calibration, MEAN, 400, strong_convexity=2.0)
    assert second.predicted_error > 2 * found.best.predicted_error


def test_composition_is_an_option_with_what_the_first_stage_leaves():
    # ridge 0.003, radius 1: the direct bound is several times that of a private propensity
    options = [
        Option("direct", ipw_logistic(400, 1.0, 0.003, 1.0), Budget(1.0)),
        Option("private propensity", known_coefficient(400, 1.0, 1.0), Budget(0.8)),
    ]
    found = compare(options, LOSS, 400, families=[Family.SHARP_GAMMA])
    assert [candidate.option.name for candidate in found.valid] == ["private propensity", "direct"]
    assert math.isclose(found.best.calibration.V / 0.8, 6.8, rel_tol=0.01)
    assert found.best.calibration.epsilon == 0.8
    assert "private propensity" in found.best.reason


def test_an_uncertified_paper_calibration_is_not_a_candidate():
    flat = LossConstants(1, 1.0, 1e-9, 0.0, 1.0, 1.0)
    option = Option("b", bound_of(800.0, W1=800.0, W2=566.0), Budget(200.0, 1 / 400))
    found = compare([option], flat, 400, gradient_bound=1.0)
    assert Family.PAPER_GAUSSIAN not in {candidate.family for candidate in found.valid}
    (reason,) = (text for _, family, text in found.refused if family is Family.PAPER_GAUSSIAN)
    assert "not certified" in reason


def test_an_unbounded_gradient_leaves_theorem_7():
    free = dataclasses.replace(LOSS, gradient_radius=math.inf, theta_bound=None)
    found = compare([Option("b", bound_of(8.0), BUDGET)], free, 400, squared_loss=SquaredLoss(5, 1.0, 2.0))
    assert [candidate.family for candidate in found.valid] == [Family.RENYI]


def test_nothing_valid_is_an_error_with_every_reason():
    option = Option("b", bound_of(8.0), Budget(1.0))
    with pytest.raises(CalibrationError, match="no calibration is valid: b, renyi: Theorem 7") as caught:
        compare([option], LOSS, 400, families=[Family.RENYI])
    assert "\n" not in str(caught.value)
    with pytest.raises(DeclarationError, match="options"):
        compare([], LOSS, 400)
