"""Errors planted in losses of a margin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.conformance.declaration import declaration
from dp2erm_cvx.conformance.margins import overflow, wrong_loss
from dp2erm_cvx.conformance.outcome import CheckStatus
from dp2erm_cvx.problems.itr_logistic import LogisticRule
from dp2erm_cvx.problems.overlap import OverlapWeights
from dp2erm_cvx.program import HuberLoss, LogisticLoss, WholeSpace
from dp2erm_cvx.program.losses.margin_loss import ExponentialLoss
from tests.conformance.planted import derived, judged


def loss(base, **members):
    return type("Loss", (base,), members)()


#: By error: the loss, and what is said of it.
PLANTED = {
    "no error of a slope": (
        loss(LogisticLoss, slope_error=lambda self, s, error: np.zeros(len(s))),
        "slope_error",
    ),
    "an error of the margin only": (
        loss(LogisticLoss, slope_error=lambda self, s, error: 0.25 * error),
        "slope_error",
    ),
    "an error of rounding only": (
        loss(LogisticLoss, slope_error=lambda self, s, error: 1e-12 + 0 * s),
        "slope_error",
    ),
    "no error of a curvature": (
        loss(LogisticLoss, curvature_error=lambda self, s, error: 0 * s),
        "curvature_error",
    ),
    "an error that is not a number": (
        loss(LogisticLoss, slope_error=lambda self, s, error: s * math.nan),
        "slope_error",
    ),
    "a least curvature everywhere": (
        loss(HuberLoss, least_curvature=lambda self, s, reach: np.full(len(s), 2.0)),
        "least_curvature",
    ),
    "a least curvature at the margin alone": (
        loss(LogisticLoss, least_curvature=lambda self, s, reach: LogisticLoss.curvature(self, s)),
        "least_curvature",
    ),
    "a largest slope that is not a number at infinity": (
        loss(LogisticLoss, largest_slope=lambda self, reach: 1 + reach / np.hypot(1.0, reach)),
        "largest_slope(inf) is not a number",
    ),
    "a largest curvature that is not a number": (
        loss(LogisticLoss, largest_curvature=lambda self, reach: math.nan),
        "largest_curvature",
    ),
    "a slope that is not a number": (
        loss(HuberLoss, slope=lambda self, s: np.where(s > 2, math.nan, HuberLoss.slope(self, s))),
        "the slope of the loss is not a finite number",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_found(case):
    planted, why = PLANTED[case]
    with np.errstate(invalid="ignore"):
        assert why in wrong_loss(planted, 4.0)


@pytest.mark.parametrize("right", [LogisticLoss(), ExponentialLoss(), HuberLoss(), HuberLoss(0.3)])
@pytest.mark.parametrize("reach", [1e-3, 1.0, 8.0, 30.0])
def test_the_librarys_own_pass(right, reach):
    assert wrong_loss(right, reach) == ""


def test_a_loss_that_overflows_without_a_ball_says_what_bounds_it():
    found = judged(declaration, derived(OverlapWeights, loss=ExponentialLoss())())
    wide = judged(declaration, derived(LogisticRule, loss=ExponentialLoss())(theta_set=WholeSpace()))
    for one in (found, wide):
        assert one.status is CheckStatus.FAILED
        assert "overflows without a ball" in one.detail
    assert "radius" in found.detail
    assert judged(declaration, derived(OverlapWeights, loss=ExponentialLoss())(radius=1.0)).status is (
        CheckStatus.PASSED
    )
    assert overflow(LogisticLoss(), math.inf) == ""
