"""Errors planted in the form without Theta of a second stage."""

from __future__ import annotations

import dataclasses

import pytest

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.objective import own_record, perturbation, unconstrained
from dp2erm_cvx.conformance.run import checks_of
from dp2erm_cvx.conformance.subject import CheckStatus
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.arm_means import arm_means
from dp2erm_cvx.problems.itr import itr_huber
from dp2erm_cvx.problems.regression import regression
from dp2erm_cvx.program import MarginRows, WholeSpace
from tests.conformance.planted import LEAST, derived, judged, refuted


def freed(base, **members):
    """``unconstrained`` that returns a program with other members."""

    def unconstrained(self):
        found = base.unconstrained(self)
        return derived(base, **members)(**{f.name: getattr(found, f.name) for f in dataclasses.fields(found)})

    return unconstrained


def bound(base, change):
    def instance(self, records, weights, *, gamma, noise=None):
        weights, gamma, noise = change(weights, gamma, noise)
        return base.instance(self, records, weights, gamma=gamma, noise=noise)

    return {"instance": instance}


def centered(self, records):
    found = regression.rows(self, records)
    return MarginRows(found.Z, found.offset - found.offset.mean())


def half_response(self, records):
    found = regression.rows(self, records)
    return MarginRows(found.Z, found.offset / 2)


def half_declared(self, records, weights, *, gamma, noise=None):
    found = regression.instance(self, records, weights, gamma=gamma, noise=noise)
    data = {**found.data, "linear": found.data["linear"] / 2}
    return type(found)(found.program, lambda: data, found.model, found.strong_convexity)


LACKS = "weights, gamma, noise: the model's gradient"

#: By error: base, ``unconstrained`` and what is said of it.
PLANTED = {
    "no noise": (regression, freed(regression, **bound(regression, lambda w, g, b: (w, g, None))), LACKS),
    "no gamma": (arm_means, freed(arm_means, **bound(arm_means, lambda w, g, b: (w, 0.0, b))), LACKS),
    "squared weights": (
        arm_means,
        freed(arm_means, **bound(arm_means, lambda w, g, b: (w**2, g, b))),
        "not linear in the weights",
    ),
    "outcomes centered by the sample": (regression, freed(regression, rows=centered), "own record: "),
    "another response": (regression, freed(regression, rows=half_response), "the model is another"),
    "another linear term in the declaration": (
        regression,
        freed(regression, instance=half_declared),
        "the declaration is another",
    ),
    "a ball": (
        regression,
        lambda self: dataclasses.replace(self, theta_set=L2Ball(9.0)),
        "theta is still constrained",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_found_there_alone(case):
    base, without_theta, why = PLANTED[case]
    program = derived(base, unconstrained=without_theta)()
    for check in (perturbation, own_record, constants):
        assert judged(check, program, LEAST).status is CheckStatus.PASSED
    refuted(unconstrained, program, why)


@pytest.mark.parametrize("program", [arm_means(), regression(), regression(theta_set=WholeSpace())])
def test_right_ones_pass(program):
    found = judged(unconstrained, program)
    assert found.status is CheckStatus.PASSED
    assert found.detail.startswith("the same objective")


def test_a_loss_that_is_not_squared_has_no_such_form():
    assert judged(unconstrained, itr_huber()).detail.startswith("no such form: ")


def test_a_whole_run_examines_it():
    assert checks_of(regression)["without Theta"] is unconstrained
