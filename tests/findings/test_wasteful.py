"""Where this package took more noise, or less accuracy, than it had to: a ball, a split, a composition."""

import math

import numpy as np
import pytest
from confounded import Strength

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.calibration import Objective, calibrate, utility_bound
from dp2erm_cvx.calibration.objective import GRID
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.plan import RuleStudy, Study, make_plan
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.itr import itr, itr_huber, itr_saturating
from dp2erm_cvx.program import L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.universe import Universe


def accuracy(domain, rule, n, epsilon, **declared):
    """Of rules at weights 1 in the linear scenario, over twelve datasets."""
    test, found = simulate("linear", 10_000, rng=12345), []
    for seed in range(12):
        data = simulate("linear", n, rng=seed).dataset
        model = PrivateTwoStageERM(domain, Budget(epsilon), "uniform", rule, seed=seed, **declared)
        found.append(test.accuracy(model.fit(data.X, data.a, data.y).predict(test.dataset.X)))
    return float(np.mean(found))


@pytest.mark.parametrize(("epsilon", "in_l1", "in_l2"), [(1.0, 0.895, 0.92), (5.0, 0.89, 0.955)])
def test_the_l1_ball_costs_the_noise_of_the_l2_ball(epsilon, in_l1, in_l2):
    domain, rules = Domain(1.0, 2.0), [itr(theta_set=ball(4.0)) for ball in (L1Ball, L2Ball)]
    one, other = (
        PrivateTwoStageERM(domain, Budget(epsilon), "uniform", rule).plan(400, 10).main.calibration
        for rule in rules
    )
    assert one == other
    found = [accuracy(domain, rule, 400, epsilon) for rule in rules]
    assert found == pytest.approx([in_l1, in_l2], abs=0.01)


def split_by_the_utility_bound(loss, n, budget):
    """With ``M' sqrt(2 / gamma)`` for the norm of theta, which is all that is known of it over R^p."""

    def excess(q):
        found = calibrate(Objective(uniform_weights(n), loss, n), budget, split=q)
        size = loss.outcome_bound * math.sqrt(2 / found.gamma)
        return utility_bound(found.expected_noise, n, found, size)

    return min(GRID, key=excess)


def test_the_utility_bound_leaves_nothing_to_the_curvature_over_all_coefficients():
    n, domain, rule = 2000, Domain(3.0, 5.0), itr_huber(theta_set=WholeSpace(), threshold=0.5)
    loss = rule.resolve(domain).loss_constants(Universe(domain, n, 10))
    before = split_by_the_utility_bound(loss, n, Budget(1.0))
    assert before == 0.99
    plan = PrivateTwoStageERM(domain, Budget(1.0), "uniform", rule).plan(n, 10).main.calibration
    wasteful = calibrate(Objective(uniform_weights(n), loss, n), Budget(1.0), split=before)
    # a fifth of the noise is saved, for about ten times the ridge
    assert plan.scale < 1.3 * wasteful.scale
    assert wasteful.gamma > 9 * plan.gamma
    found = [accuracy(domain, rule, n, 1.0, **declared) for declared in ({"split": before}, {})]
    assert found == pytest.approx([0.967, 0.978], abs=0.005)


def test_factors_that_are_never_normalized_move_by_2():
    universe, budget = Universe(Domain(1.6, 13.0), 1000, 5), Budget(1.0)
    normalized = {
        trim: make_plan(Study(ipw_private(share=0.4, trim=trim), itr_saturating(slope=2.0), universe, budget))
        for trim in (3.0, 4.0, 6.0)
    }
    assert [plan.bound.V for plan in normalized.values()] == pytest.approx([5.78, 7.69, 11.52], abs=0.01)
    declared = {"center_share": None, "propensity": "logistic"}
    factors = make_plan(RuleStudy(universe, budget, outcome_scale=1.3, declared=declared))
    assert factors.bound.V == 2.0
    # of an average record: matching keeps .57 of the mass in the confounded scenario
    sample = Strength(mean=3.0, main=2.0, share=1.0, confounding=1.0, noise=0.5).draw(
        100_000, np.random.default_rng(0)
    )
    chances = np.where(sample.dataset.a == 1, sample.propensity, 1 - sample.propensity)
    mass = np.mean(np.minimum(chances, 1 - chances) / chances)
    assert mass == pytest.approx(0.566, abs=0.005)
    assert normalized[4.0].bound.V > 2.1 * factors.bound.V / mass
