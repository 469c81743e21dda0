"""The simulated scenarios: what the printed calibration can reach, and how strong simple baselines are."""

import math

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, TwoStageERM
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.program import L1Ball


def reached(model, seeds):
    """Mean accuracy over datasets of 400 records."""
    test, found = simulate("linear", 10_000, rng=12345), []
    for seed in seeds:
        data = simulate("linear", 400, rng=seed).dataset
        if isinstance(model, PrivateTwoStageERM):
            model.set_params(seed=seed)
        found.append(test.accuracy(model.fit(data.X, data.a, data.y).predict(test.dataset.X)))
    return float(np.mean(found))


def accuracy(epsilon, outcome_bound, theta_set, calibration="paper", replicates=40):
    """Uniform weights, so the smallest noise of all: W1 = 2, W2 = sqrt 2; M = sqrt 10, n = 400."""
    domain, rule = Domain(math.sqrt(10), outcome_bound), itr(theta_set=theta_set)
    declared = domain, Budget(epsilon), Uniform(), rule
    return reached(PrivateTwoStageERM(*declared, calibration=calibration), range(replicates))


@pytest.mark.parametrize(
    ("calibration", "epsilon", "outcome_bound", "theta_set", "found"),
    [
        ("paper", 0.5, 2.0, L1Ball(0.1), 0.62),
        ("paper", 10.0, 2.0, L1Ball(5.0), 0.86),
        ("paper", 0.5, 1.0, L2Ball(0.03), 0.69),
        ("paper", 10.0, 4.0, L2Ball(0.1), 0.94),
        ("sharp", 0.5, 0.5, L1Ball(0.1), 0.77),
        ("sharp", 10.0, 0.5, L1Ball(2.0), 0.95),
    ],
)
def test_best_settings(calibration, epsilon, outcome_bound, theta_set, found):
    assert accuracy(epsilon, outcome_bound, theta_set, calibration) == pytest.approx(found, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "ball", "best"),
    [(0.5, L1Ball, 0.63), (10.0, L1Ball, 0.87), (0.5, L2Ball, 0.70), (10.0, L2Ball, 0.95)],
)
def test_no_setting_of_a_grid_is_better(epsilon, ball, best):
    radii = (0.03, 0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0)
    grid = [(bound, radius) for bound in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0) for radius in radii]
    assert max(accuracy(epsilon, bound, ball(radius)) for bound, radius in grid) < best


def test_uniform_weights_are_a_strong_baseline():
    model = TwoStageERM(Domain(math.sqrt(10), 30.0), Uniform(), itr(theta_set=L2Ball(100.0)))
    assert reached(model, range(10)) == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize(("n", "replicates", "found"), [(400, 10, 0.52), (100_000, 1, 0.54)])
def test_a_linear_rule_in_the_tree_scenario_does_not_reach_its_stated_accuracy(n, replicates, found):
    test = simulate("tree", 10_000, rng=777)
    reached = []
    for seed in range(replicates):
        drawn = simulate("tree", n, rng=seed)
        X, a, y = drawn.dataset.X, drawn.dataset.a, drawn.dataset.y
        weights = 1 / np.where(a == 1, drawn.propensity, 1 - drawn.propensity)
        theta = np.linalg.solve((X.T * weights) @ X, (X.T * weights) @ (2 * (2 * a - 1) * y))
        reached.append(test.accuracy(test.dataset.X @ theta > 0))
    assert float(np.mean(reached)) == pytest.approx(found, abs=0.02)
    assert test.accuracy(np.zeros(10_000)) == pytest.approx(0.61, abs=0.01)
