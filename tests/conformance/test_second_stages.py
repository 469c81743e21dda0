"""Errors planted in second stages, and the check that has to notice each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.other_settings import other_settings
from dp2erm_cvx.conformance.outcome import CheckStatus
from dp2erm_cvx.conformance.own_record import contributions
from dp2erm_cvx.conformance.perturbation import perturbation
from dp2erm_cvx.conformance.samples import check_domain
from dp2erm_cvx.privacy import RowBox
from dp2erm_cvx.problems.arm_means import ArmMeans
from dp2erm_cvx.problems.itr_logistic import LogisticRule
from dp2erm_cvx.problems.saturating_regression import SaturatingRegression
from dp2erm_cvx.program import MarginRows, RowBounds
from dp2erm_cvx.program.losses.saturating_loss import LogCoshLoss
from dp2erm_cvx.saturation import CurvatureShape
from tests.conformance.planted import FEW, derived, judged, refuted, restated


def design(change):
    """Another response, or rows and response on another scale, of the records."""
    return lambda self, records: change(*ArmMeans.design(self, records), records)


def by_share(X, y, records):
    count = np.bincount(records.a, minlength=2)[records.a]
    root = np.sqrt(records.n_samples / count)
    return X * root[:, None], y * root


def factor(change):
    def rows(self, records):
        found = LogisticRule.rows(self, records)
        return MarginRows(found.Z, found.offset, change(found.factor, records))

    return rows


def bound(base, change):
    """``instance`` of ``base`` with other arguments."""

    def instance(self, records, weights, *, gamma, noise=None):
        weights, gamma, noise = change(weights, gamma, noise, records)
        return base.instance(self, records, weights, gamma=gamma, noise=noise)

    return instance


def half_the_noise_declared(self, records, weights, *, gamma, noise=None):
    found = ArmMeans.instance(self, records, weights, gamma=gamma, noise=noise)
    data = dict(found.data)
    data["noise"] = data["noise"] / 2
    return type(found)(found.program, lambda: data, found.model, found.strong_convexity)


def half_row_bounds(self, universe):
    found = LogisticRule.row_bounds(self, universe)
    return RowBounds(found.norm / 2, found.offset, found.factor)


class LogCosh(SaturatingRegression):
    """The same with another loss."""

    @property
    def loss(self):
        return LogCoshLoss(self.slope)


def centered_effect(self, theta, domain, X):
    effect = LogisticRule.effect(self, theta, domain, X)
    return effect - effect.mean()


OWN = "the loss of one record depends on the other records"
LACKS = "lacks n gamma theta + noise"


def saturating(**wrong):
    """``loss_constants`` with another saturation."""
    change = {"saturation": lambda found: dataclasses.replace(found, **wrong)}
    return {"loss_constants": restated(SaturatingRegression, "loss_constants", **change)}


def half_slope(box):
    return RowBox(box.widths, box.slope / 2)


def narrow(box):
    return RowBox((*box.widths[:-1], box.widths[-1] / 2), box.slope)


#: By error: base, what is changed, the check that has to notice and what it says.
PLANTED = {
    "the curvature of the loss as mu_R": (
        ArmMeans,
        {"loss_constants": restated(ArmMeans, "loss_constants", strong_convexity=lambda _: 2.0)},
        constants,
        "strong_convexity (mu_R) is declared 2",
    ),
    "more than the regularizer's convexity": (
        LogisticRule,
        {"loss_constants": restated(LogisticRule, "loss_constants", strong_convexity=lambda mu: mu + 0.01)},
        constants,
        "strong_convexity (mu_R)",
    ),
    "a slope that falls short": (SaturatingRegression, saturating(slope=2.3), constants, "full slope"),
    "a row norm that falls short": (
        SaturatingRegression,
        saturating(row_norm=2.0, slope=4.0),
        constants,
        "saturation is declared 1",
    ),
    "curvature that falls with the square of the slope": (
        SaturatingRegression,
        {
            "loss_constants": restated(
                LogCosh,
                "loss_constants",
                saturation=lambda found: dataclasses.replace(found, shape=CurvatureShape.LINEAR),
            ),
            "loss": LogCosh.loss,
        },
        constants,
        "saturation is declared 1",
    ),
    "rows scaled by the share of their arm": (ArmMeans, {"design": design(by_share)}, contributions, OWN),
    "rows longer where there are other records": (
        ArmMeans,
        {"design": design(lambda X, y, records: (X * records.n_samples, y))},
        constants,
        "is declared",
    ),
    "outcomes centered by the sample": (
        ArmMeans,
        {"design": design(lambda X, y, _: (X, y - y.mean()))},
        contributions,
        OWN,
    ),
    "factors by rank": (
        LogisticRule,
        {"rows": factor(lambda c, records: c * (records.y >= np.median(records.y)))},
        contributions,
        OWN,
    ),
    "factors times n": (
        LogisticRule,
        {"rows": factor(lambda c, records: c * records.n_samples)},
        constants,
        "is declared",
    ),
    "half the bound of rows": (LogisticRule, {"row_bounds": half_row_bounds}, constants, "row_bounds norm"),
    "half the bound of the response": (
        ArmMeans,
        {"loss_constants": restated(ArmMeans, "loss_constants", response_bound=lambda z: z / 2)},
        constants,
        "response_bound",
    ),
    "half the slope in the box": (
        LogisticRule,
        {"loss_constants": restated(LogisticRule, "loss_constants", box=lambda box: box and half_slope(box))},
        constants,
        "box is declared",
    ),
    "rows that leave the box": (
        LogisticRule,
        {"loss_constants": restated(LogisticRule, "loss_constants", box=lambda box: box and narrow(box))},
        constants,
        "box is declared",
    ),
    "half the gradient radius": (
        ArmMeans,
        {"loss_constants": restated(ArmMeans, "loss_constants", gradient_radius=lambda z: z / 2)},
        constants,
        "gradient_radius",
    ),
    "squared weights": (
        LogisticRule,
        {"instance": bound(LogisticRule, lambda w, g, b, _: (w**2, g, b))},
        perturbation,
        "not linear in the weights",
    ),
    "a hundredth of gamma": (
        LogisticRule,
        {"instance": bound(LogisticRule, lambda w, g, b, _: (w, g / 100, b))},
        perturbation,
        LACKS,
    ),
    "no noise": (
        ArmMeans,
        {"instance": bound(ArmMeans, lambda w, g, b, _: (w, g, None))},
        perturbation,
        LACKS,
    ),
    "half the noise in the declaration": (
        ArmMeans,
        {"instance": half_the_noise_declared},
        perturbation,
        "the declaration",
    ),
    "an effect measured from the mean of its sample": (
        LogisticRule,
        {"effect": centered_effect},
        contributions,
        "it is no rule",
    ),
    "weights scaled by the outcomes": (
        LogisticRule,
        {"instance": bound(LogisticRule, lambda w, g, b, r: (w * (2 + np.tanh(r.y.mean())), g, b))},
        contributions,
        OWN,
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_found(case):
    base, members, check, why = PLANTED[case]
    refuted(check, derived(base, **members)(), why)


@pytest.mark.parametrize("base", [ArmMeans, LogisticRule])
@pytest.mark.parametrize("check", [constants, contributions, perturbation])
def test_right_ones_pass(base, check):
    assert judged(check, base()).status is CheckStatus.PASSED


def test_choices_are_a_records_own_whatever_the_effect():
    rule, domain = derived(LogisticRule, effect=centered_effect)(), check_domain()
    X = np.random.default_rng(0).uniform(-0.2, 0.2, (9, 3))
    moved = np.vstack([X[:-1], [[1.0, -1.0, 1.0]]])
    theta = np.array([0.1, 1.0, -0.5, 0.2])
    together = [centered_effect(rule, theta, domain, rows) > 0 for rows in (X, moved)]
    assert not np.array_equal(together[0][:-1], together[1][:-1])
    assert np.array_equal(rule.choices(theta, domain, X)[:-1], rule.choices(theta, domain, moved)[:-1])
    plain = LogisticRule()
    expected = plain.effect(theta, domain, X) > 0
    assert np.array_equal(plain.choices(theta, domain, X), expected)
    one_by_one = derived(LogisticRule, effect=lambda *known: LogisticRule.effect(*known))()
    assert np.array_equal(one_by_one.choices(theta, domain, X), expected)
    assert ArmMeans().choices(np.array([0.0, 1.0]), domain, X).tolist() == [1] * 9


def test_a_regularizer_that_no_example_has_is_tried():
    twice = restated(LogisticRule, "loss_constants", strong_convexity=lambda mu: 2 * mu)
    program = derived(LogisticRule, loss_constants=twice)()
    assert judged(constants, program, FEW).status is CheckStatus.PASSED  # mu_R is 0 without one
    refuted(other_settings, program, "regularizer = ElasticNet(l1=0.3, l2=0.7): constants: strong_convexity")
