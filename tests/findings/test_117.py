"""The paper's "117 times larger" noise of composed IPW: out of reach of its own bounds, and what it takes."""

import math

import pytest
from rules import Constants, Weights, effective_share, first_stage

from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.stability import paper_ipw_logistic
from tests.helpers import logistic_propensity

N, M = 400, math.sqrt(10)


def composed(radius):
    """W1 of the fixed-weight corollary with ``1 + exp(M R)``, doubled by the split of the budget."""
    return 2 * 2 * (1 + math.exp(M * radius))


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0, 1.5, 1.8])
def test_by_the_papers_bounds_the_ratio_is_below_four(radius):
    # the direct W1 contains 2 exp(M R), however large the ridge is
    for ridge in (0.01, 1.0, 100.0, 1e6):
        direct = paper_ipw_logistic(N, M, ridge, radius).W1
        assert composed(radius) / direct <= 2 * (1 + math.exp(-M * radius)) * (1 + 1e-6)


def test_by_the_sharp_bound_it_takes_a_ridge_at_which_all_weights_are_equal():
    ridge, radius = M**2, 1.454
    sharp = logistic_propensity(N, M, ridge, radius).V
    assert composed(radius) / sharp == pytest.approx(117, abs=1)
    constants = Constants(covariate_bound=M, outcome_bound=10.0)
    data = simulate("linear", N, rng=0).dataset
    weights = Weights(constants.domain(N).records(data.X, data.a, data.y))
    # ridges of a scheme are in units of M^2
    scheme = {"program": "ipw_logistic", "settings": {"ridge": 1.0, "radius": radius}}
    assert effective_share(weights(first_stage(scheme, constants.domain(N))).value) > 0.9995
