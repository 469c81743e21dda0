"""Which centers and factors of a rule recover effects: exact expectations over finite laws."""

from fractions import Fraction

import pytest

#: Outcomes by arm, each with the probability 1/3, and the probability of treatment, at one x.
LAWS = [
    ((4, 6, 8), (1, 2, 3), Fraction(3, 4)),
    ((-5, 0, 2), (-1, 3, 7), Fraction(1, 10)),
    ((0, 1, 9), (0, 0, 0), Fraction(1, 2)),
]
#: Weights of the treated and of controls.
WEIGHTS = [(Fraction(1), Fraction(1)), (Fraction(1, 5), Fraction(2)), (Fraction(0), Fraction(3))]


def mean(numbers):
    return sum(map(Fraction, numbers)) / len(numbers)


def weighted_response(law, center, weights):
    """E[w z | x] of the response z = 2 s (Y - center), s = 1 of the treated and -1 of controls."""
    treated, controls, propensity = law
    response = 2 * propensity * weights[0] * (mean(treated) - center)
    return response - 2 * (1 - propensity) * weights[1] * (mean(controls) - center)


def effect(law):
    return mean(law[0]) - mean(law[1])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("law", LAWS)
def test_the_mean_outcome_as_center_leaves_a_nonnegative_multiple_of_the_effect(law, weights):
    """Theorem 11 (iii)."""
    propensity = law[2]
    center = propensity * mean(law[0]) + (1 - propensity) * mean(law[1])
    treated_mass = propensity * weights[0]
    control_mass = (1 - propensity) * weights[1]
    factor = 2 * (treated_mass * (1 - propensity) + control_mass * propensity)
    assert factor >= 0
    assert weighted_response(law, center, weights) == factor * effect(law)


@pytest.mark.parametrize("center", [Fraction(-100), Fraction(0), Fraction(17, 3)])
@pytest.mark.parametrize("law", LAWS)
def test_balanced_weights_allow_any_center(law, center):
    """Theorem 11 (i)."""
    propensity = law[2]
    balanced = (1 - propensity, propensity)
    mass = propensity * (1 - propensity)
    assert weighted_response(law, center, balanced) == 2 * mass * effect(law)


def test_a_center_beyond_both_arms_may_turn_the_sign_without_balance():
    """What Theorem 11 warns of."""
    law = ((4, 6, 8), (1, 2, 3), Fraction(1, 10))
    assert effect(law) > 0
    assert weighted_response(law, Fraction(10), WEIGHTS[0]) > 0
    assert weighted_response(law, Fraction(-10), WEIGHTS[0]) < 0


def cubed(number):
    return Fraction(number) ** 3


def zero_of_cubes(law):
    """A center with E[(Y - m)^3 | x] = 0 over all records, by bisection in exact fractions."""
    treated, controls, propensity = law

    def slope(center):
        upper = propensity * mean([cubed(y - center) for y in treated])
        return upper + (1 - propensity) * mean([cubed(y - center) for y in controls])

    low = Fraction(min(*treated, *controls))
    high = Fraction(max(*treated, *controls))
    for _ in range(80):
        middle = (low + high) / 2
        if slope(middle) > 0:
            low = middle
        else:
            high = middle
    return low


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("law", LAWS)
def test_one_loss_in_both_stages_gives_the_difference_of_its_slopes(law, weights):
    """Theorem 20 with the odd slope u^3, for which the slope of 2 u is C = 8 times that of u."""
    treated, controls, propensity = law
    center = zero_of_cubes(law)
    slope_of_treated = mean([cubed(y - center) for y in treated])
    slope_of_controls = mean([cubed(y - center) for y in controls])
    response = propensity * weights[0] * mean([cubed(2 * (y - center)) for y in treated])
    response += (1 - propensity) * weights[1] * mean([cubed(2 * (center - y)) for y in controls])
    factor = 8 * propensity * (1 - propensity) * (weights[0] + weights[1])
    claimed = factor * (slope_of_treated - slope_of_controls)
    assert abs(response - claimed) < Fraction(1, 10**15)


@pytest.mark.parametrize("center", [Fraction(-3), Fraction(0), Fraction(50)])
@pytest.mark.parametrize("noise", [(0, 1, 5), (-4, 0, 1)])
def test_balanced_factors_make_responses_symmetric_about_the_effect(center, noise):
    """Theorem 21: residuals have one law in both arms, and may be skewed."""
    propensity = Fraction(1, 5)
    mean_treated, mean_control = Fraction(7), Fraction(3)
    effect = mean_treated - mean_control
    law = {}
    for residual in noise:
        of_treated = 2 * (mean_treated + residual - center)
        of_control = -2 * (mean_control + residual - center)
        for response, mass in (
            (of_treated, propensity * (1 - propensity)),
            (of_control, (1 - propensity) * propensity),
        ):
            law[response] = law.get(response, 0) + mass
    assert all(law.get(2 * effect - response) == mass for response, mass in law.items())
    skewed = {**law, 2 * (mean_treated + 9 - center): Fraction(1, 100)}
    assert any(skewed.get(2 * effect - response) != mass for response, mass in skewed.items())
