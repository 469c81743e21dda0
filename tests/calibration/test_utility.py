"""The excess bound on small quadratic programs: never exceeded, and attained."""

import numpy as np
import pytest

from dp2erm_cvx.calibration import Objective, calibrate, utility_bound
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound

BOUND = StabilityBound(V=3.0, theorem="a test", assumptions=(), relations=frozenset(Neighboring), w_max=1.5)
N = 100


def calibration_of(p):
    return calibrate(Objective(BOUND, LossConstants(p, 5.0, 2.0, 0.0, 2.0, 1.0), N), Budget(2.0))


def test_excess_never_exceeds_the_bound():
    rng = np.random.default_rng(11)
    p = 4
    calibration = calibration_of(p)
    largest = 0.0
    for _ in range(300):
        basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
        curvature = np.exp(rng.uniform(-4, 2, size=p))
        hessian = (basis * curvature) @ basis.T
        best = rng.normal(size=p)
        b = rng.normal(size=p) * rng.exponential(100.0)
        # L = (theta - best)' H (theta - best) / 2, perturbed by gamma and b
        private = np.linalg.solve(hessian + calibration.gamma * np.eye(p), hessian @ best - b / N)
        excess = (private - best) @ hessian @ (private - best) / 2
        limit = utility_bound(
            float(np.linalg.norm(b)), N, calibration, float(np.linalg.norm(best)), float(curvature.min())
        )
        largest = max(largest, excess / limit)
    assert 0.3 < largest <= 1.0 + 1e-12


@pytest.mark.parametrize("strong_convexity", [0.0, 0.7])
def test_bound_is_attained(strong_convexity):
    calibration = calibration_of(1)
    gamma, rho, b = calibration.gamma, strong_convexity, 40.0
    # Minimize L(t) = rho (t - 1)^2 / 2 + slope |t - 1| with optimum 1; the perturbed minimizer is pulled to
    # t, and the largest linear excess for that pull has slope = b/n + gamma - (rho + gamma) d at distance d.
    pull = b / N + gamma
    distance = pull / (rho + 2 * gamma)
    slope = pull - (rho + gamma) * distance
    assert slope >= 0
    excess = rho * distance**2 / 2 + slope * distance
    grid = np.linspace(1 - 3 * distance, 2, 400_001)
    objective = rho * (grid - 1) ** 2 / 2 + slope * np.abs(grid - 1) + gamma * grid**2 / 2 + b * grid / N
    assert grid[np.argmin(objective)] == pytest.approx(1 - distance, abs=1e-3 * distance)
    assert utility_bound(b, N, calibration, 1.0, rho) == pytest.approx(excess, rel=1e-9)


def test_large_noise_does_not_overflow():
    assert np.isfinite(utility_bound(1e150, N, calibration_of(1), 1.0))
