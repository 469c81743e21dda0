"""Nuisances: outcomes of two values, unbent exactly."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from dp2erm_cvx import Budget, Domain, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import EffectStudy, make_plan
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.nuisances import LinearNuisances, TwoValues
from dp2erm_cvx.steps.record_map import Rows, Term

EVENT = Domain(covariate_bound=1.5, outcome_bound=0.5, outcome_center=0.5, binary_outcome=True)


@pytest.mark.parametrize("slope", [0.2, 0.45, 1.0])
@pytest.mark.parametrize("mean", [1e-6, 0.02, 0.1, 0.5, 0.7, 0.999])
def test_unbending_inverts_the_population_equation(mean, slope):
    """m minimizes E phi_c(Y - m) for Y ~ Bernoulli(mean): its gradient is 0 there, and U(m) is the mean."""

    def gradient(m):
        return (1.0 - mean) * (1.0 - math.exp(-m / slope)) - mean * (1.0 - math.exp(-(1.0 - m) / slope))

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
    """Two cells by arm, all counts exact: the released center misses their means, the unbent one does not."""
    means = {(0, -1.0): 0.05, (0, 1.0): 0.15, (1, -1.0): 0.2, (1, 1.0): 0.6}
    cells = [(*at, y, round(400 * (p if y else 1 - p))) for at, p in means.items() for y in (1, 0)]
    a, x, y = (np.repeat([cell[place] for cell in cells], [cell[3] for cell in cells]) for place in range(3))
    universe = Universe(EVENT, len(a), 1)
    study = EffectStudy(universe, Budget(1.0), residual_scale=0.4, estimand="risks", confounding=0.0)
    step, where = (plan := make_plan(study)).step("center"), replace(plan.step("center").regression, rate=0.5)
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
