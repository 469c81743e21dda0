"""Nuisances: outcomes of two values, unbent exactly."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, root

from dp2erm_cvx import Budget, Domain, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.effect_error import bent_alone
from dp2erm_cvx.plan import EffectStudy, make_plan
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.nuisances import LinearNuisances, TwoValues
from dp2erm_cvx.steps.record_map import Rows, Term

EVENT = Domain(covariate_bound=1.5, outcome_bound=0.5, outcome_center=0.5, binary_outcome=True)


@pytest.mark.parametrize("slope", [0.2, 0.45, 1.0])
@pytest.mark.parametrize("mean", [1e-6, 0.02, 0.1, 0.5, 0.7, 0.999])
def test_unbending_inverts_the_population_equation(mean, slope):
    """m minimizes E phi_c(Y - m) for Y ~ Bernoulli(mean): its gradient is 0 there, and U(m) is the
    mean.
    """

    def gradient(m):
        return (1.0 - mean) * (1.0 - math.exp(-m / slope)) - mean * (
            1.0 - math.exp(-(1.0 - m) / slope)
        )

    m = brentq(gradient, 0.0, 1.0, xtol=1e-16, rtol=1e-15)
    values = TwoValues(0.0, 1.0, slope)
    assert float(values.unbent(m)) == pytest.approx(mean, abs=1e-12)
    assert values.bent(mean) == pytest.approx(m, abs=1e-9)
    # the same outcome in other units, measured from elsewhere
    other = TwoValues(-3.0, 6.0, 6.0 * slope)
    assert float(other.unbent(6.0 * m - 3.0)) == pytest.approx(6.0 * mean - 3.0, abs=1e-11)
    # curvature and steepness are derivatives
    h = 1e-5
    curved = (gradient(m + h) - gradient(m - h)) / (2.0 * h) * slope
    assert values.curvature(m) == pytest.approx(curved, rel=1e-4)
    inside = min(max(m, h), 1.0 - h)
    steep = float(values.unbent(inside + h) - values.unbent(inside - h)) / (2.0 * h)
    assert values.steepness(inside) == pytest.approx(steep, rel=1e-4)


def test_unbending_removes_the_bend_of_data_without_noise():
    """Two cells by arm, all counts exact: the released center misses their means, the unbent one
    does not.
    """
    means = {(0, -1.0): 0.05, (0, 1.0): 0.15, (1, -1.0): 0.2, (1, 1.0): 0.6}
    cells = [(*at, y, round(400 * (p if y else 1 - p))) for at, p in means.items() for y in (1, 0)]
    a, x, y = (
        np.repeat([cell[place] for cell in cells], [cell[3] for cell in cells])
        for place in range(3)
    )
    universe = Universe(EVENT, len(a), 1)
    study = EffectStudy(
        universe, Budget(1.0), residual_scale=0.4, estimand="risks", confounding=0.0
    )
    step, where = (
        (plan := make_plan(study)).step("center"),
        replace(plan.step("center").regression, rate=0.5),
    )
    records, quiet = EVENT.records(x[:, None], a, y), np.zeros(step.calibration.n_parameters)
    mapped, factors = where.records(records, {}), where.factors(records, {})
    instance = step.program.instance(mapped, factors, gamma=1e-9, noise=quiet)
    theta = where.unscaled(solve(instance, tolerance=1e-9).value, 1)
    lines = LinearNuisances(Term(Rows.ARMS, "center"), 0.5)
    unbent = replace(lines, two_values=TwoValues(-0.5, 1.0, study.settings.slope))
    for (arm, at), mean in means.items():
        point = np.array([[at]]), np.full(1, float(arm)), {"center": theta}
        assert 0.5 + float(unbent.outcome(*point)[0]) == pytest.approx(mean, abs=1e-4)
        assert abs(0.5 + float(lines.outcome(*point)[0]) - mean) > 0.01


def test_an_outcome_of_two_values_is_one_of_its_ends():
    result = EVENT.net_outcome([0, 1, 0, 1, 1], [0.0, 1.0, 0.3, 7.0, 0.5])
    assert result.tolist() == [-0.5, 0.5, -0.5, 0.5, 0.0]
    assert Domain.from_dict(EVENT.to_dict()) == EVENT
    assert "binary_outcome" not in replace(EVENT, binary_outcome=False).to_dict()
    for changes in ({"binary_outcome": 1}, {"treatment_cost": 0.1}):
        with pytest.raises(DeclarationError, match="binary_outcome"):
            replace(EVENT, **changes)


def left_by_a_line(distance, log_odds):
    """Part of the confounding of an event that an unbent regression leaves, without noise and
    ridge.

    Log odds vary by ``log_odds`` along one normal direction, along which the arms, of one size, lie
    this far apart. The loss has slope .45.
    """
    values = TwoValues(low=0.0, width=1.0, slope=0.45)
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    within = math.sqrt(1.0 - 0.25 * distance**2)
    points = [within * z - 0.5 * distance, within * z + 0.5 * distance]
    means = [1.0 / (1.0 + np.exp(-log_odds * x)) for x in points]

    def pull(theta):
        """Gradient of the loss in both intercepts and the slope in common."""
        lines = [theta[arm] + theta[2] * points[arm] for arm in (0, 1)]
        pulls = [
            weights
            * (mean * (1.0 - np.exp((m - 1.0) / 0.45)) - (1.0 - mean) * (1.0 - np.exp(-m / 0.45)))
            for m, mean in zip(lines, means, strict=True)
        ]
        slope = sum(float(own @ x) for own, x in zip(pulls, points, strict=True))
        return [pulls[0].sum(), pulls[1].sum(), slope]

    theta = root(pull, [0.5, 0.5, 0.2], tol=1e-12).x
    estimate = 0.0
    for arm in (0, 1):
        m_0, m_1 = (values.unbent(theta[other] + theta[2] * points[arm]) for other in (0, 1))
        residual = float(weights @ (means[arm] - (m_0, m_1)[arm]))
        estimate += 0.5 * float(weights @ (m_1 - m_0)) + (2 * arm - 1) * residual
    unadjusted = float(weights @ means[1]) - float(weights @ means[0])
    return abs(estimate) / unadjusted


@pytest.mark.parametrize("distance", [0.3, 0.6, 0.9, 1.2, 1.5])
def test_what_a_line_leaves_of_the_confounding_of_an_event_is_allowed_for(distance):
    assert bent_alone(distance) == pytest.approx(left_by_a_line(distance, 1.0), abs=0.01)
    assert left_by_a_line(distance, 0.5) <= 0.5 * bent_alone(distance)


def test_what_a_line_leaves_grows_beyond_the_distances_that_were_computed_and_is_no_more_than_all():
    assert bent_alone(1.5) < bent_alone(2.0) < bent_alone(10.0) == 1.0
