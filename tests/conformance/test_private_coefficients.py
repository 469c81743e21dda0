"""Errors planted where the noise of a private first stage enters, and in what its size is taken from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.perturbation import coefficient_noise
from dp2erm_cvx.conformance.report import CheckStatus
from dp2erm_cvx.conformance.run import check_program
from dp2erm_cvx.problems.inverse_probability_tilting import tilting_private
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.overlap import overlap_private
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from tests.conformance.planted import FEW, derived, judged, refuted, restated


def perturbed(change):
    """``perturbed`` with other arguments."""
    return lambda self, *arguments: ipw_private.perturbed(self, *change(*arguments))


def loss(**changes):
    return {"loss_constants": restated(ipw_private, "loss_constants", **changes)}


def half_the_noise_declared(self, records, gamma, noise):
    return ipw_private.perturbed_data(self, records, gamma, noise / 2)


def weights_that_know_the_noise(self, records, gamma, noise):
    class Knows(MarginModel):
        def output(self, v):
            return super().output(v + 0.01 * self.linear)

    found = ipw_private.perturbed_model(self, records, gamma, noise)
    return Knows(
        MarginRows(found.Z), found.loss, found.ridge, found.penalty, linear=noise, weight=found.weight
    )


def longer_beside_others(self, records, gamma, noise):
    found = ipw_private.perturbed_model(self, records, gamma, noise)
    longer = records.n_samples * found.Z
    return MarginModel(
        MarginRows(longer), found.loss, found.ridge, found.penalty, linear=noise, weight=found.weight
    )


LACKS = "lacks n gamma lam + noise"

#: By error: what is changed, the check that has to notice and what it says.
PLANTED = {
    "no noise": ({"perturbed": perturbed(lambda r, g, b: (r, g, 0 * b))}, coefficient_noise, LACKS),
    "no gamma": ({"perturbed": perturbed(lambda r, g, b: (r, 0.0, b))}, coefficient_noise, LACKS),
    "gamma not times n": (
        {"perturbed": perturbed(lambda r, g, b: (r, g / r.n_samples, b))},
        coefficient_noise,
        LACKS,
    ),
    "half the noise in the declaration": (
        {"perturbed_data": half_the_noise_declared},
        coefficient_noise,
        "the declaration at gamma = 0 lacks",
    ),
    "other records than those that are examined": (
        {"perturbed": perturbed(lambda r, g, b: (dataclasses.replace(r, X=r.X - r.X.mean(axis=0)), g, b))},
        coefficient_noise,
        "another program than instance(records)",
    ),
    "weights that know the noise": (
        {"perturbed_model": weights_that_know_the_noise},
        coefficient_noise,
        "the weights at a given coefficient depend on",
    ),
    "a tenth of the gradient radius": (loss(gradient_radius=lambda z: z / 10), constants, "gradient_radius"),
    "the radius of records that keep their arm": (
        loss(gradient_radius=lambda z: 0.6 * z),
        constants,
        "gradient_radius",
    ),
    "a tenth of the trace": (loss(hessian_trace=lambda t: t / 10), constants, "hessian_trace"),
    "a ball of half the size": (
        loss(saturation=lambda found: dataclasses.replace(found, ball=found.ball / 2)),
        constants,
        "ball is declared 1",
    ),
    "twice the ridge": (loss(strong_convexity=lambda mu: 2 * mu), constants, "strong_convexity (mu_R)"),
    "rows longer where there are other records": (
        {"perturbed_model": longer_beside_others},
        constants,
        "is declared",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_found(case):
    members, check, why = PLANTED[case]
    refuted(check, derived(ipw_private, **members)(), why)


#: By error in another private scheme: the scheme, what is changed, and what the check of constants says.
OTHERS = {
    "gradients without the linear term": (
        tilting_private,
        {"gradient_diameter": lambda self, domain: self.row_bound(domain) * 2.0},
        "gradient_radius",
    ),
    "a linear term as part of the margin": (
        tilting_private,
        {"loss_constants": restated(tilting_private, "loss_constants", is_margin=lambda _: True)},
        "is_margin is declared",
    ),
    "shorter rows": (
        tilting_private,
        {"linear_bound": lambda self, domain: 0.5 * tilting_private.linear_bound(self, domain)},
        "linear_bound",
    ),
    "no rows": (tilting_private, {"linear_bound": lambda self, domain: 0.0}, "is_margin is declared"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_planted_in_another_scheme_is_found(case):
    scheme, members, why = OTHERS[case]
    refuted(constants, derived(scheme, **members)(), why)


@pytest.mark.parametrize("scheme", [overlap_private, tilting_private])
def test_the_other_private_schemes_pass(scheme):
    assert judged(coefficient_noise, scheme()).status is CheckStatus.PASSED
    found = judged(constants, scheme())
    assert found.status is CheckStatus.PASSED
    assert "nothing to check" in found.detail


@pytest.mark.parametrize("settings", [{"radius": 2.0}, {"ridge": 0.0, "radius": 3.0, "trim": np.inf}])
def test_the_librarys_own_passes(settings):
    assert judged(coefficient_noise, ipw_private(**settings)).status is CheckStatus.PASSED
    # searched where a class changes the declaration, whose own constants are derived
    found = judged(constants, derived(ipw_private)(**settings))
    assert found.status is CheckStatus.PASSED
    assert "gradient_radius" in found.detail


def test_a_whole_run_examines_the_noise():
    (report,) = check_program(derived(ipw_private, **PLANTED["no noise"][0]), search=FEW)
    assert [failure.check for failure in report.failures] == ["gamma, noise"]
