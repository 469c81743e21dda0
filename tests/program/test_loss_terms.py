"""What a loss says at once of margins: its derivatives, and bounds on their errors, at 40 digits."""

from __future__ import annotations

import contextlib

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.atoms import atom
from dp2erm_cvx.program.curves import LOGISTIC, Curve, Part
from dp2erm_cvx.program.form import _refuse_misread

SLOPE = 0.7


def logistic(s):
    return -1 / (1 + mpmath.exp(s)), 1 / ((1 + mpmath.exp(s)) * (1 + mpmath.exp(-s)))


def extremal(s):
    return -mpmath.sign(s) * SLOPE * mpmath.expm1(-abs(s) / SLOPE), mpmath.exp(-abs(s) / SLOPE)


@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize(
    ("loss", "exact"),
    [(LOGISTIC, logistic), (Curve((Part(1.0, atom("saturating", SLOPE)),)), extremal)],
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


@pytest.mark.parametrize(
    ("read", "shifted", "refused"),
    [
        (lambda x: np.logaddexp(0.0, x), False, False),
        (lambda x: np.logaddexp(0.0, x) + 1.0, True, False),  # a loss may be off by a constant
        (lambda x: np.logaddexp(0.0, x) + 1.0, False, True),  # a log weight may not
        (lambda x: np.logaddexp(0.0, -x), False, True),
    ],
)
def test_a_reading_has_the_values_of_cvxpy(read, shifted, refused):
    """A log weight has no slopes to compare: its values alone decide."""
    s = cp.Variable()
    refusal = pytest.raises(DeclarationError, match="other values") if refused else contextlib.nullcontext()
    with refusal:
        _refuse_misread(cp.logistic(s), s, lambda x: (read(x), None), shifted=shifted)
