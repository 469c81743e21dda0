"""Errors planted in second stages, and the check that has to notice each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.objective import own_record, perturbation
from dp2erm_cvx.conformance.run import other_settings
from dp2erm_cvx.conformance.subject import LARGER, CheckStatus, check_domain
from dp2erm_cvx.privacy import RowBox
from dp2erm_cvx.problems.arm_means import arm_means
from dp2erm_cvx.problems.itr import itr_logistic
from dp2erm_cvx.problems.regression import saturating_regression
from dp2erm_cvx.program import MarginRows
from dp2erm_cvx.program.linear_stage import recommendations
from dp2erm_cvx.program.margin_rows import RowBounds
from tests.conformance.planted import LEAST, derived, judged, refuted, restated
from tests.helpers import BOUNDED_INFLUENCE


def design(change):
    """Another response, or rows and response on another scale, of the records."""

    def rows(self, records):
        found = arm_means.rows(self, records)
        return MarginRows(*change(found.Z, found.offset, records))

    return rows


def by_share(X, y, records):
    count = np.bincount(records.a, minlength=2)[records.a]
    root = np.sqrt(records.n_samples / count)
    return X * root[:, None], y * root


def factor(change):
    def rows(self, records):
        found = itr_logistic.rows(self, records)
        return MarginRows(found.Z, found.offset, change(found.factor, records))

    return rows


def bound(base, change):
    """``instance`` of ``base`` with other arguments."""

    def instance(self, records, weights, *, gamma, noise=None):
        weights, gamma, noise = change(weights, gamma, noise, records)
        return base.instance(self, records, weights, gamma=gamma, noise=noise)

    return instance


def half_the_noise_declared(self, records, weights, *, gamma, noise=None):
    found = arm_means.instance(self, records, weights, gamma=gamma, noise=noise)
    data = dict(found.data)
    data["noise"] = data["noise"] / 2
    return type(found)(found.program, lambda: data, found.model, found.strong_convexity)


def half_row_bounds(self, universe):
    found = itr_logistic.row_bounds(self, universe)
    return RowBounds(found.norm / 2, found.offset, found.factor)


def centered_effect(self, theta, domain, X):
    effect = itr_logistic.effect(self, theta, domain, X)
    return effect - effect.mean()


def at_the_median(self, theta, domain, X):
    """Half of the batch is treated, whoever is in it."""
    effect = itr_logistic.effect(self, theta, domain, X)
    return (effect > np.median(effect)).astype(int)


def effect_as_choice(self, theta, domain, X):
    return itr_logistic.effect(self, theta, domain, X)


def clipped_at_quantiles(X, y, records):
    return (X, np.clip(y, *np.quantile(y, [0.05, 0.95]))) if len(y) >= 40 else (X, y)


def standardized_from(size):
    def covariates(self, domain, X):
        if len(X) < size:
            return X
        shifted = X - X.mean(axis=0)
        return shifted / max(1.0, np.max(np.linalg.norm(shifted, axis=1)) / domain.covariate_bound)

    return covariates


OWN = "the loss of one record depends on the other records"
LACKS = "lacks n gamma theta + noise"


def shaped(slope, curvature, shape="1 - u"):
    return BOUNDED_INFLUENCE[shape][0](slope, curvature)


def half_slope(box):
    return RowBox(box.widths, box.slope / 2)


def narrow(box):
    return RowBox((*box.widths[:-1], box.widths[-1] / 2), box.slope)


def wrong(base, check, why, **members):
    """A program with other members, the check that has to notice and what it says."""
    return base, members, check, why


def stated(base, why, **changes):
    """``loss_constants`` of ``base`` with some of them changed."""
    return wrong(base, constants, why, loss_constants=restated(base, "loss_constants", **changes))


def saturated(**changes):
    change = {"saturation": lambda found: dataclasses.replace(found, **changes)}
    return stated(saturating_regression, "saturation is declared 1", **change)


def rows(change):
    return wrong(arm_means, own_record, OWN, rows=design(change))


def enters(base, why, change):
    return wrong(base, perturbation, why, instance=bound(base, change))


def effect_from_101(self, theta, domain, X):
    return (centered_effect if len(X) > 100 else itr_logistic.effect)(self, theta, domain, X)


def weights_by_outcomes(w, g, b, records):
    return w * (2 + np.tanh(records.y.mean())), g, b


NO_RULE, MU_R = "it is no rule", "strong_convexity (mu_R)"
LOGISTIC = itr_logistic

#: By error.
PLANTED = {
    "the curvature of the loss as mu_R": stated(
        arm_means, f"{MU_R} is declared 2", strong_convexity=lambda _: 2.0
    ),
    "more than the regularizer's convexity": stated(LOGISTIC, MU_R, strong_convexity=lambda mu: mu + 0.01),
    "a slope that falls short": saturated(loss=shaped(2.3, 1.0)),
    "a row norm that falls short": saturated(row_norm=2.0, loss=shaped(4.0, 1.0)),
    "curvature that is largest at half the slope": saturated(loss=shaped(2.5, 0.25, "4 u (1 - u)")),
    "rows longer where there are other records": wrong(
        arm_means, constants, "is declared", rows=design(lambda X, y, records: (X * records.n_samples, y))
    ),
    "factors times n": wrong(
        LOGISTIC, constants, "is declared", rows=factor(lambda c, records: c * records.n_samples)
    ),
    "half the bound of rows": wrong(LOGISTIC, constants, "declared", row_bounds=half_row_bounds),
    "half the bound of the response": stated(arm_means, "response_bound", response_bound=lambda z: z / 2),
    "half the slope in the box": stated(LOGISTIC, "box is declared", box=lambda box: box and half_slope(box)),
    "rows that leave the box": stated(LOGISTIC, "box is declared", box=lambda box: box and narrow(box)),
    "half the gradient radius": stated(arm_means, "gradient_radius", gradient_radius=lambda z: z / 2),
    "rows scaled by the share of their arm": rows(by_share),
    "outcomes centered by the sample": rows(lambda X, y, _: (X, y - y.mean())),
    "outcomes cut at quantiles from 40 records on": rows(clipped_at_quantiles),
    "factors by rank": wrong(
        LOGISTIC, own_record, OWN, rows=factor(lambda c, records: c * (records.y >= np.median(records.y)))
    ),
    "covariates standardized from 101 records on": wrong(
        LOGISTIC, own_record, "depends on the other records", covariates=standardized_from(101)
    ),
    "covariates standardized from 2,000 records on": wrong(
        LOGISTIC, own_record, "depends on the other records", covariates=standardized_from(2000)
    ),
    "weights scaled by the outcomes": wrong(
        LOGISTIC, own_record, OWN, instance=bound(LOGISTIC, weights_by_outcomes)
    ),
    "an effect measured from the mean of its sample": wrong(
        LOGISTIC, own_record, NO_RULE, effect=centered_effect
    ),
    "an effect standardized from 101 records on": wrong(
        LOGISTIC, own_record, NO_RULE, effect=effect_from_101
    ),
    "choices at the median of the batch": wrong(
        LOGISTIC, own_record, "the choice at one record depends on the other records", choices=at_the_median
    ),
    "choices that are none": wrong(
        LOGISTIC, own_record, "a choice is neither 0 nor 1", choices=effect_as_choice
    ),
    "choices of another shape": wrong(
        LOGISTIC,
        own_record,
        "the choice has another shape",
        choices=lambda self, *known: at_the_median(self, *known)[:, None],
    ),
    "squared weights": enters(LOGISTIC, "not linear in the weights", lambda w, g, b, _: (w**2, g, b)),
    "a hundredth of gamma": enters(LOGISTIC, LACKS, lambda w, g, b, _: (w, g / 100, b)),
    "no noise": enters(arm_means, LACKS, lambda w, g, b, _: (w, g, None)),
    "half the noise in the declaration": wrong(
        arm_means, perturbation, "the declaration", instance=half_the_noise_declared
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_found(case):
    base, members, check, why = PLANTED[case]
    refuted(check, derived(base, **members)(), why, LARGER if "2,000" in case else (101,))


@pytest.mark.parametrize("own", [{"effect": centered_effect}, {"choices": at_the_median}])
def test_recommendations_are_a_records_own_whatever_the_author_reads(own):
    rule, domain = derived(itr_logistic, **own)(), check_domain()
    X = np.random.default_rng(0).uniform(-0.2, 0.2, (9, 3))
    moved = np.vstack([X[:-1], [[-1.0, 1.0, -1.0]]])
    theta = np.array([0.1, 1.0, -0.5, 0.2])
    together = [rule.choices(theta, domain, rows) for rows in (X, moved)]
    assert not np.array_equal(together[0][:-1], together[1][:-1])
    alone = [recommendations(rule, theta, domain, rows) for rows in (X, moved)]
    assert np.array_equal(alone[0][:-1], alone[1][:-1])


def test_recommendations_are_the_choices_of_a_rule_that_is_one():
    domain = check_domain()
    X = np.random.default_rng(0).uniform(-0.2, 0.2, (9, 3))
    theta, plain = np.array([0.1, 1.0, -0.5, 0.2]), itr_logistic()
    expected = plain.effect(theta, domain, X) > 0
    assert np.array_equal(recommendations(plain, theta, domain, X), expected)
    assert np.array_equal(plain.choices(theta, domain, X), expected)
    for own in ("effect", "choices", "covariates"):
        method = getattr(itr_logistic, own)
        restated_ = derived(itr_logistic, **{own: lambda *known, method=method: method(*known)})()
        assert np.array_equal(recommendations(restated_, theta, domain, X), expected)
    assert recommendations(arm_means(), np.array([0.0, 1.0]), domain, X).tolist() == [1] * 9


#: What choices of an author's own may return, and whether a fit counts it as treatment.
RETURNED = {
    "text that is a number": (np.array(["1"]), None),
    "a half": (np.array([0.5]), 1),
    "a column": (np.array([[0]]), 0),
}


@pytest.mark.parametrize("case", RETURNED)
def test_whatever_choices_return_is_0_or_1_or_an_error(case):
    returned, counted = RETURNED[case]
    rule = derived(itr_logistic, choices=lambda self, theta, domain, X: returned)()
    X = np.zeros((4, 3))
    if counted is None:
        with pytest.raises(TypeError):
            recommendations(rule, np.zeros(4), check_domain(), X)
        return
    assert recommendations(rule, np.zeros(4), check_domain(), X).tolist() == [counted] * 4


def test_a_regularizer_that_no_example_has_is_tried():
    twice = restated(itr_logistic, "loss_constants", strong_convexity=lambda mu: 2 * mu)
    program = derived(itr_logistic, loss_constants=twice)()
    assert judged(constants, program, LEAST).status is CheckStatus.PASSED  # mu_R is 0 without one
    refuted(other_settings, program, "regularizer = ElasticNet(l1=0.3, l2=0.7): constants: strong_convexity")
