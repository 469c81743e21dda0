"""Errors planted where the noise of a private first stage enters, and in what its size is taken from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx.conformance.constants import constants
from dp2erm_cvx.conformance.objective import coefficient_noise
from dp2erm_cvx.conformance.run import checks_of
from dp2erm_cvx.conformance.subject import CheckStatus
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


def half_the_noise_declared(self, records, gamma=0.0, noise=None, **counted):
    half = None if noise is None else noise / 2
    return ipw_private.data(self, records, gamma, half, **counted)


def weights_that_know_the_noise(self, records, gamma=0.0, noise=None, **counted):
    class Knows(MarginModel):
        def output(self, v):
            return super().output(v + 0.01 * self.linear)

    found = ipw_private.model(self, records, gamma, noise, **counted)
    return Knows(
        MarginRows(found.Z), found.loss, found.ridge, found.penalty, linear=noise, weight=found.weight
    )


def longer_beside_others(self, records, gamma=0.0, noise=None, **counted):
    found = ipw_private.model(self, records, gamma, noise, **counted)
    longer = records.n_samples * found.Z
    return MarginModel(
        MarginRows(longer), found.loss, found.ridge, found.penalty, linear=noise, weight=found.weight
    )


LACKS = "lacks n gamma lam + noise"


def enters(change):
    return {"perturbed": perturbed(change)}, coefficient_noise, LACKS


def stated(why, **changes):
    return loss(**changes), constants, why


#: By error: what is changed, the check that has to notice and what it says.
PLANTED = {
    "no noise": enters(lambda r, g, b: (r, g, 0 * b)),
    "no gamma": enters(lambda r, g, b: (r, 0.0, b)),
    "gamma not times n": enters(lambda r, g, b: (r, g / r.n_samples, b)),
    "half the noise in the declaration": (
        {"data": half_the_noise_declared},
        coefficient_noise,
        "the declaration at gamma = 0 lacks",
    ),
    "other records than those that are examined": (
        {"perturbed": perturbed(lambda r, g, b: (dataclasses.replace(r, X=r.X - r.X.mean(axis=0)), g, b))},
        coefficient_noise,
        "another program than instance(records)",
    ),
    "weights that know the noise": (
        {"model": weights_that_know_the_noise},
        coefficient_noise,
        "the weights at a given coefficient depend on",
    ),
    "a tenth of the gradient radius": stated("gradient_radius", gradient_radius=lambda z: z / 10),
    "the radius of records that keep their arm": stated("gradient_radius", gradient_radius=lambda z: 0.6 * z),
    "a tenth of the trace": stated("hessian_trace", hessian_trace=lambda t: t / 10),
    "a ball of half the size": stated(
        "ball is declared 1", saturation=lambda found: dataclasses.replace(found, ball=found.ball / 2)
    ),
    "twice the ridge": stated("strong_convexity (mu_R)", strong_convexity=lambda mu: 2 * mu),
    "rows longer beside others": ({"model": longer_beside_others}, constants, "is declared"),
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
    found = judged(constants, derived(ipw_private)(**settings), FEW)
    assert found.status is CheckStatus.PASSED
    assert "gradient_radius" in found.detail


def test_a_whole_run_examines_the_noise():
    assert checks_of(ipw_private)["gamma, noise"] is coefficient_noise
