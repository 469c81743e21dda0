"""What a loss says at once of margins: its derivatives, and bounds on their errors, at 40 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dp2erm_cvx.program.atoms import Saturating
from dp2erm_cvx.program.curves import LOGISTIC, Curve, Part

SLOPE = 0.7


def logistic(s):
    return -1 / (1 + mpmath.exp(s)), 1 / ((1 + mpmath.exp(s)) * (1 + mpmath.exp(-s)))


def extremal(s):
    return -mpmath.sign(s) * SLOPE * mpmath.expm1(-abs(s) / SLOPE), mpmath.exp(-abs(s) / SLOPE)


@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize(
    ("loss", "exact"),
    [(LOGISTIC, logistic), (Curve((Part(1.0, Saturating(SLOPE)),)), extremal)],
)
def test_errors_are_covered(loss, exact, error):
    rng = np.random.default_rng(0)
    s = rng.normal(size=60) * 10 ** rng.uniform(-9, 2.5, 60)
    s = np.concatenate([s, [0.0, 1e-300, 36.0, -36.0, 700.0, -700.0]])
    found = loss.at(s, np.full(len(s), error))
    assert np.allclose(found.value, loss.value(s), rtol=1e-13, atol=1e-13)
    with mpmath.workdps(40):
        for k, margin in enumerate(s):
            for moved in (-0.999, 0.0, 0.999):
                slope, curvature = exact(mpmath.mpf(margin) + moved * mpmath.mpf(error))
                assert abs(slope - found.slope[k]) <= found.slope_error[k] + 1e-310
                assert abs(curvature - found.curvature[k]) <= found.curvature_error[k]
