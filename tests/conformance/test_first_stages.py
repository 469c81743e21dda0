"""Errors planted in first stages, and the check that has to notice each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx.conformance.objective import own_record
from dp2erm_cvx.conformance.statement import bound_of_theorem, movement
from dp2erm_cvx.conformance.subject import LARGER, CheckStatus
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_known import RandomizedTrial
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.kernel_mean_matching import KernelMeanMatching
from dp2erm_cvx.problems.mmd import MMD, PooledMMD
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.problems.stable_balancing import StableBalancing
from dp2erm_cvx.program import Records
from tests.conformance.planted import FEW, derived, judged, refuted, restated


def standardized(records: Records) -> Records:
    """Covariates by the mean and deviation of the sample, shrunk into the ball together."""
    X = records.covariates
    Z = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    Z = Z * min(1.0, records.domain.features_bound / float(np.max(np.linalg.norm(Z, axis=1))))
    return dataclasses.replace(records, X=np.hstack([records.X[:, :-3], Z]))


def through(base: type, *methods: str) -> dict:
    """Those methods of ``base`` at standardized records."""

    def one(method):
        return lambda self, records, *rest: getattr(base, method)(self, standardized(records), *rest)

    return {method: one(method) for method in methods}


#: By error: base, the methods that see standardized records, and what is said of it.
STANDARDIZED = {
    "moments of entropy balancing": (EntropyBalancing, ("balanced",), "the other records"),
    "data and model of entropy balancing": (EntropyBalancing, ("data", "model"), "the other records"),
    "data and model of a logistic stage": (ipw_logistic, ("data", "model"), "kind 'exponential'"),
    "instance of a separable stage": (overlap, ("instance",), "kind 'exponential'"),
    "data and model of a separable stage": (overlap, ("data", "model"), "kind 'exponential'"),
    "data and model of a pooled kernel": (StableBalancing, ("data", "model"), "kind 'quadratic'"),
    "instance of a kernel of two arms": (MMD, ("instance",), "kind 'quadratic'"),
    "samples of mean matching": (KernelMeanMatching, ("instance",), "kind 'quadratic'"),
    "a private coefficient": (
        ipw_private,
        ("data", "model"),
        "kind 'private'",
    ),
}


def from_size(size, base, methods):
    """Those methods at standardized records where there are so many records."""

    def one(method):
        def changed(self, records, *rest, **named):
            seen = standardized(records) if records.n_samples >= size else records
            return getattr(base, method)(self, seen, *rest, **named)

        return changed

    return derived(base, **{method: one(method) for method in methods})()


@pytest.mark.parametrize("size", [101, 2000])
@pytest.mark.parametrize(
    ("base", "methods"),
    [
        (overlap, ("rows",)),
        (EntropyBalancing, ("data", "model")),
        (ipw_logistic, ("instance",)),
        (StableBalancing, ("data", "model")),
        (RandomizedTrial, ("instance",)),
    ],
)
def test_errors_that_begin_at_a_size_are_found(size, base, methods):
    if base is RandomizedTrial:  # which sees treatments alone

        def unnormalized(self, records):
            found = RandomizedTrial.unnormalized(self, records)
            return found + records.a.mean() if records.n_samples >= size else found

        refuted(own_record, derived(base, unnormalized=unnormalized)(propensity=0.3), "other records", LARGER)
        return
    refuted(own_record, from_size(size, base, methods), "other records", LARGER)


@pytest.mark.parametrize("size", [101, 2000])
def test_weights_that_move_too_far_from_a_size_on_are_found(size):
    def rows(self, records):
        Z = overlap.rows(self, records)
        return 5 * Z / np.max(np.linalg.norm(Z, axis=1)) if records.n_samples >= size else Z

    refuted(movement, derived(overlap, rows=rows)(), "n = 5", LARGER)


def test_a_bound_that_a_neighbor_exceeds_by_half_is_found():
    share = float(judged(movement, overlap(), FEW).detail.split("V at most ")[1].split("%")[0]) / 100
    low = restated(overlap, "bound", V=lambda V: V * share / 1.5)
    refuted(movement, derived(overlap, bound=low)(), "V = ")


@pytest.mark.parametrize("case", STANDARDIZED)
def test_what_the_sample_standardizes_is_found(case):
    base, methods, why = STANDARDIZED[case]
    refuted(own_record, derived(base, **through(base, *methods))(), why)


def test_a_closed_form_of_the_share_of_an_arm_is_found():
    def unnormalized(self, records):
        share = np.clip(records.a.mean(), 0.1, 0.9)
        return np.where(records.a == 1, 1 / share, 1 / (1 - share))

    def model(self, records):
        return RandomizedTrial.model(self, dataclasses.replace(records, a=np.sort(records.a)))

    refuted(own_record, derived(RandomizedTrial, unnormalized=unnormalized)(), "other records")
    refuted(own_record, derived(RandomizedTrial, model=model)(propensity=0.3), "other records")


@pytest.mark.parametrize("settings", [{}, {"scaling": "paper", "arm_mass": "proportional"}])
def test_entropy_balancing_of_either_scaling_passes(settings):
    assert judged(own_record, EntropyBalancing(**settings)).status is CheckStatus.PASSED


#: Library programs that are based on with half of their V, and what is said.
HALVED = {
    "overlap": (overlap, CheckStatus.FAILED, "Theorems 22 and 23"),
    "entropy_balancing": (EntropyBalancing, CheckStatus.FAILED, "Theorem 4"),
    "ipw_logistic": (ipw_logistic, CheckStatus.FAILED, "Theorem 3-IPW"),
}


@pytest.mark.parametrize("name", HALVED)
def test_half_a_bound_is_seen_beside_that_of_the_base(name):
    base, status, why = HALVED[name]
    found = judged(bound_of_theorem, derived(base, bound=restated(base, "bound", V=lambda V: V / 2))())
    assert (found.status, why in found.detail) == (status, True)


def test_a_cap_that_leaves_no_room_is_not_for_the_check_of_own_records():
    assert judged(own_record, MMD(alpha=1.0, cap=1.5)).status is CheckStatus.PASSED


@pytest.mark.parametrize(
    ("base", "settings", "changes"),
    [
        (PooledMMD, {}, {"ridge": lambda ridge: 1.2 * ridge}),
        (PooledMMD, {}, {"kernel_bound": lambda bound: 0.8 * bound}),
        (EntropyBalancing, {"ridge": 1.0}, {"ridge": lambda ridge: 1.2 * ridge}),
    ],
)
def test_a_theorem_is_not_fed_with_constants_that_the_program_states_in_place_of_its_settings(
    base, settings, changes
):
    own = derived(base, constants=restated(base, "constants", **changes))
    refuted(bound_of_theorem, own(**settings), "Theorem")
