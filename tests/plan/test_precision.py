"""What covers the arithmetic: the claim on exact distributions, one-sided parts, and planted
bugs.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Budget, Domain, Universe
from dp2erm_cvx.calibration.numbers import calibrate_grid
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.problems.arm_means import arm_means, plug_in_ate
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.steps.step import reserve

EPSILONS = st.floats(1e-90, 1e5, exclude_min=True)


def laplace_tail(x: int, scale: float) -> float:
    """P(N >= x) of the discrete Laplace law with pmf proportional to exp(-|k| / scale)."""
    q = math.exp(-1 / scale)
    return q**x / (1 + q) if x > 0 else 1 - q ** (1 - x) / (1 + q)


def release_loss(epsilon: float, epsilon_2: float, shift: float) -> float:
    """Largest log ratio of P(A(theta_hat) >= x) for randomized response, 0 or 1, computed with
    errors.

    theta is 1 with odds exp(epsilon) on D and exp(-epsilon) on D'; what is computed is theta +
    shift on D and theta - shift on D'.
    """
    noise = calibrate_grid(shift, 1, epsilon_2)
    step, likely = math.ldexp(1.0, noise.exponent), 1 / (1 + math.exp(-epsilon))
    scale = noise.scale / step

    def tail(x: int, odds: float, error: float) -> float:
        points = [round((value + error) / step) for value in (0.0, 1.0)]
        return (1 - odds) * laplace_tail(x - points[0], scale) + odds * laplace_tail(
            x - points[1], scale
        )

    far = round(1.0 / step) + round(np.ceil(5 * scale))
    ratios = [
        math.log(tail(x, likely, shift) / tail(x, 1 - likely, -shift))
        for x in range(0, far, max(1, far // 400))
    ]
    return max(ratios)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon_2", [0.05, 0.5])
def test_numerical_error_costs_twice_epsilon_2_and_no_less(epsilon, epsilon_2) -> None:
    # errors far below the distance of the two answers: the worst case is nearly attained
    loss = release_loss(epsilon, epsilon_2, shift=0.002 * epsilon_2)
    assert loss <= epsilon + 2 * epsilon_2
    assert loss > epsilon + 1.9 * epsilon_2
    # planted bugs: paid on one side only, or not at all
    assert loss > epsilon + epsilon_2


@settings(max_examples=60)
@given(EPSILONS, st.floats(0, 0.5), st.floats(1e-6, 0.5))
def test_the_parts_never_exceed_the_budget(epsilon, delta, share) -> None:
    left, each = reserve(Budget(epsilon, delta), share)
    spent = Fraction(left.epsilon) + 2 * Fraction(each)
    assert spent <= Fraction(epsilon)
    assert spent >= Fraction(epsilon) * (1 - Fraction(1, 10**11))
    if each < 100:
        assert math.exp(each) * left.delta <= delta


@settings(max_examples=40)
@given(st.floats(1e-200, 1e200), st.integers(1, 300), st.floats(1e-60, 1e4))
def test_the_grid_noise_covers_shift_and_rounding(shift, p, epsilon) -> None:
    noise = calibrate_grid(shift, p, epsilon)
    needed = (Fraction(shift) + p * Fraction(2) ** noise.exponent) / Fraction(epsilon)
    assert needed <= Fraction(noise.scale) <= needed * (1 + Fraction(1, 10**9))
    assert p * Fraction(2) ** noise.exponent <= Fraction(shift) / 64


UNIVERSE = Universe(Domain(1.0, 2.0), 200, 3)


def planned(first=None, second=None, budget=None, **changes):
    stages = (first or Uniform(), second or itr())
    return make_plan(
        Study(*stages, UNIVERSE, budget or Budget(1.0), **{"arithmetic": "counted", **changes})
    )


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("first", "second", "changes"),
    [
        (entropy_balancing(), arm_means(), {"budget": Budget(0.3, 1e-4), "noise": "gaussian"}),
        (entropy_balancing(), itr(), {"budget": Budget(2.0, 1e-3), "calibration": "renyi"}),
        (ipw_private(), arm_means(), {"budget": Budget(1.0, 1e-3), "noise": "gaussian"}),
        (ipw_private(), itr(), {}),
    ],
)
def test_a_counted_plan_guarantees_the_budget_and_pays_for_its_arithmetic(
    first, second, changes
) -> None:
    plan = planned(first, second, **changes)
    budget, parts = plan.study.budget, [(step.calibration, step.precision) for step in plan.steps]
    assert (plan.counted, plan.guarantee.epsilon) == (True, budget.epsilon)
    stated = [part.delta * math.exp(covered.grid.epsilon) for part, covered in parts]
    assert [step.guarantee.delta for step in plan.steps] == stated
    assert max(sum(stated), plan.guarantee.delta) <= budget.delta
    hidden = sum(2 * covered.grid.epsilon for _, covered in parts)
    assert sum(part.epsilon for part, _ in parts) + hidden <= budget.epsilon
    assert hidden <= 0.01 * budget.epsilon
    assert all(step.precision.tolerance > step.radius > 0 for step in plan.steps)
    for part, covered in parts:
        assert covered.grid.l1_sensitivity >= math.sqrt(part.n_parameters) * covered.tolerance
        # it is free: far below the privacy noise
        norm = covered.grid.scale * math.sqrt(2 * covered.grid.n_parameters)
        assert norm < 3e-3 * part.expected_noise / (200 * (part.gamma + 2.0))


def test_output_perturbation_covers_its_error_by_the_same_draw() -> None:
    plan = planned(entropy_balancing(), plug_in_ate(), calibration="output")
    calibration, covered = plan.main.calibration, plan.main.precision
    assert calibration.epsilon == covered.grid.epsilon == 1.0
    assert covered.grid.l1_sensitivity >= calibration.sensitivity + 2 * covered.tolerance
    assert covered.grid.scale == pytest.approx(calibration.scale, rel=0.02)
    assert (plan.guarantee.epsilon, plan.guarantee.delta) == (1.0, 0.0)


def test_without_the_extra_counting_is_refused_and_auto_assumes(monkeypatch) -> None:
    monkeypatch.setattr("dp2erm_cvx.plan.plan.secure_available", lambda: False)
    with pytest.raises(DeclarationError, match="secure"):
        planned()
    plan = planned(arithmetic="auto")
    assert not plan.counted
    assert plan.main.calibration.epsilon == 1.0


def test_the_curve_of_a_release_counts_its_propensity() -> None:
    budget = Budget(2.0, 1e-3)
    plain = planned(entropy_balancing(), itr(), budget=budget, calibration="renyi")
    composed = planned(ipw_private(), itr(), budget=budget, calibration="renyi")
    for plan, pure in ((plain, 0.0), (composed, 0.3 * 2.0)):
        alone = plan.main.calibration.curve().shifted(plan.main.precision.grid.epsilon)
        for order in (1.125, 1.5, 2.0):
            added = plan.curve.at(order) - alone.at(order)
            assert added == pytest.approx(min(pure, order * pure**2 / 2), rel=1e-3)
