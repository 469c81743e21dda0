"""The exponent of the printed Gaussian statement: zeta^2 W1 where the argument gives zeta^2 W1^2."""

import math

import pytest
from scipy import stats

from dp2erm_cvx.calibration import Noise, Objective, calibrate_paper
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound

W1, N, DELTA = 800.0, 400, 1 / 400
FLAT = LossConstants(1, 1.0, 1e-9, 0.0, 1.0, 1.0, gradient_bound=1.0)


BOUND = StabilityBound(
    V=W1, theorem="given", assumptions=(), relations=frozenset(Neighboring), w_max=N, W1=W1, W2=W1
)


def calibrated(epsilon, **arguments):
    return calibrate_paper(
        Objective(BOUND, FLAT, N), Budget(epsilon, DELTA), noise=Noise.GAUSSIAN, **arguments
    )


def test_statement_ii_is_false_for_a_loss_with_constant_gradient():
    sigma = 241.735
    root = math.sqrt(-math.log(DELTA))
    length = math.hypot(1 + root, root)
    printed = (2 * sigma * length + 1) / (2 * sigma**2) * W1
    assert printed == pytest.approx(14.0, abs=1e-4)
    # the density of b exceeds e^14 times that of b shifted by zeta W1 exactly where b > start
    shift = W1 / sigma
    start = printed / shift - shift / 2
    here, there = stats.norm.sf(start), stats.norm.sf(start + shift)
    assert here == pytest.approx(0.00500, abs=1e-5)
    assert math.exp(printed) * there + DELTA == pytest.approx(0.00489, abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 17.0, 88.0])
def test_its_noise_is_private_all_the_same_for_every_usual_epsilon(epsilon):
    assert calibrated(epsilon).private


def test_and_is_refused_beyond():
    with pytest.raises(CalibrationError, match="not certified at epsilon = 89"):
        calibrated(89.0)
    assert calibrated(89.0, corrected=True).private
