"""What computed weights are off counts in V: their solve, and the step to the grid that repairs
their sum.
"""

import pytest

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.steps.weights import WeightsPlan

UNIVERSE = Universe(Domain(1.0, 1.0), 400, 3)
#: The step to the grid of 2^-30: half a step each, and as much again at the largest weight.
GRID = 2.0**-29


@pytest.mark.one_row_in(1)
@pytest.mark.parametrize(
    ("made", "repaired"),
    [
        pytest.param(entropy_balancing(ridge=0.1, cap=3.0), 1.0, id="weights as the variable"),
        pytest.param(ipw_logistic(), 0.0, id="weights scaled to their sum"),
    ],
)
def test_v_counts_the_radius_the_sum_and_the_grid(made, repaired) -> None:
    exact = made.at(UNIVERSE)
    radius = exact.certified_error(UNIVERSE)
    reached = radius * (1.0 + repaired) + GRID
    plan = WeightsPlan.of(made, UNIVERSE, 1.01 * reached, "sharp")
    grown = plan.bound.V - exact.stability(UNIVERSE).V
    assert grown == pytest.approx(2.0 * 400 * 1.01 * reached, rel=1e-5)
    assert plan.known


def test_a_sum_that_is_repaired_counts_beside_the_radius() -> None:
    made = entropy_balancing(ridge=0.1, cap=3.0)
    radius = made.at(UNIVERSE).certified_error(UNIVERSE)
    # what every dataset reaches is more than is asked for: the radius, as much for the sum, and the
    # grid
    plan = WeightsPlan.of(made, UNIVERSE, 1e-13, "sharp")
    assert plan.tolerance >= 2.0 * radius + GRID
