"""Constants read off the private data: an eigenvalue in the noise scale, a scale in the balance functions."""

import math

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.calibration import Objective, calibrate_paper
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.stability import paper_entropy_balancing, paper_ipw_logistic
from tests.stability.movement import Pair, scaled_entropy, solved
from tests.stability.test_paper import norm_bound

#: The plug-in mean on the whole line: squared loss, one parameter, M' = 1.
MEAN = LossConstants(1, 4.0, 2.0, 0.0, None, 1.0, gradient_bound=4.0)


def calibrated_by_the_data(x, n):
    """The printed calibration of IPW with lambda_min of the data at hand, as the statement writes it."""
    smallest = float(np.linalg.eigvalsh(x.T @ x / n)[0])
    bound = paper_ipw_logistic(n, 1.0, 0.2, 0.3, eigenvalue_floor=smallest)
    return calibrate_paper(Objective(bound, MEAN, n), Budget(1.0))


def test_a_noise_scale_that_depends_on_the_data_gives_no_finite_epsilon():
    n = 50
    x = np.column_stack([np.ones(n), np.where(np.arange(n) % 2, 1.0, -1.0)]) / math.sqrt(2)
    neighbor = x.copy()
    neighbor[0] = [1.0, 0.0]
    first, second = (calibrated_by_the_data(data, n) for data in (x, neighbor))
    assert first.scale != second.scale

    def log_density(calibration, mean, theta):
        # theta minimizes (theta - mean)^2 + gamma theta^2/2 + b theta / n, so b is this function of it
        slope = n * (2 + calibration.gamma)
        b = 2 * n * mean - slope * theta
        return math.log(slope) - abs(b) / calibration.scale - math.log(2 * calibration.scale)

    # the same mean in both datasets: what leaks is the scale alone
    points = np.array([1e2, 1e4, 1e6])
    loss = [abs(log_density(first, 0.5, t) - log_density(second, 0.5, t)) for t in points]
    assert loss[1] > 10 * loss[0]
    assert loss[2] > 90 * loss[1]
    assert loss[2] > 100.0  # the declared epsilon is 1


def test_entropy_balancing_normalized_by_the_data():
    n, ridge, R = 2000, 10.0, 0.03
    arm = np.arange(n) % 2
    side = np.where((np.arange(n) // 2 % 4 == 0) == (arm == 0), -1.0, 1.0)
    # rows are divided by the largest norm in the data, 20 in those of the neighbor
    domain, ends = Domain(1.0, 1.0, arm_floor=n // 2), []
    for outlier in (1.0, 20.0):
        points = np.column_stack([arm, side / outlier])
        points[-1, 1] *= outlier
        ends.append(
            solved(scaled_entropy(ridge, R), Pair(points[:-1], np.ones(n - 1), *points[[-1, -1]]), domain)
        )
    moved = np.linalg.norm(ends[0][1] - ends[1][1])
    claimed = norm_bound(paper_entropy_balancing(n, ridge, R, n // 2), n)
    assert moved == pytest.approx(0.828, abs=2e-3)
    assert claimed == pytest.approx(0.1086, abs=2e-4)
