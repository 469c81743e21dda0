"""The "117 times larger" of the paper: what gives it by its own formulas, and the weights there."""

import pytest

from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.experiments.rules import Constants, Scheme, Weights
from dp2erm_cvx.experiments.rules.fit import effective_share
from dp2erm_cvx.stability import paper_kernel_balancing, universal_corollary


def test_117_times_needs_weights_that_hardly_differ():
    n, cap = 400, 2.0
    composed = universal_corollary(n, cap).W1
    direct = paper_kernel_balancing(n, 1.0, 59.2 * n, cap).W1
    assert composed / direct == pytest.approx(117, abs=1)
    constants = Constants(covariate_bound=10.0, outcome_bound=10.0, arm_floor=0.25)
    data = simulate("linear", n, rng=0).dataset
    weights = Weights(constants.domain(n).records(data.X, data.a, data.y))
    share = {
        ridge: effective_share(
            weights(Scheme(program="mmd", settings={"ridge": ridge}).first_stage(constants.domain(n)))
        )
        for ridge in (59.2, 0.01)
    }
    assert share[59.2] > 0.999  # each arm has one weight
    # where the weights balance, the paper's own bound is no better than the composition
    assert share[0.01] < 0.99
    assert composed / paper_kernel_balancing(n, 1.0, 0.01 * n, cap).W1 == pytest.approx(1.0)
