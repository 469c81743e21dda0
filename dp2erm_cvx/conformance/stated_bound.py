"""The bound that a program states beside what its base's theorem gives from the constants it declares."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import N_FEATURES, check_domain
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import (
    ArmKernelStage,
    ClosedFormWeights,
    FirstStage,
    KernelFirstStage,
    PooledKernelStage,
    SeparableFirstStage,
)

_SIZES = (8, 40, 400, 10_000)
_POINTS = 200


def stated_bound(subject: Subject) -> Outcome:
    """No smaller than Theorem 3, 5 or 6 at the program's own constants, unless it names another theorem.

    A search over neighbors sees a factor of two only where the theorem is nearly attained; an arithmetical
    slip in ``bound`` shows here whatever its size.
    """
    check, program = "stated bound", subject.program
    assert isinstance(program, FirstStage)
    told = "no base whose theorem could be evaluated beside it: its proof is the author's"
    for n in _SIZES:
        domain = check_domain(n)
        try:
            stated = program.stability(n, domain)
            expected = _expected(program.resolve(domain), n, domain, stated)
        except CalibrationError as error:
            return noted(check, str(error))
        if expected is None:
            return noted(check, told)
        for what, found, least in (
            ("V", stated.V, expected.V),
            ("w_max", stated.w_max, expected.w_max),
        ):
            if found >= least * (1 - 1e-9):
                continue
            text = f"n = {n}: {what} = {found:.4g}, where {expected.theorem} gives {least:.4g}"
            if stated.theorem == expected.theorem:
                return failed(check, f"{text} from the constants that the program declares")
            return noted(check, f"{text}: smaller, by {stated.theorem}, which is its author's")
    return passed(check, "at least what the theorem of its base gives, n = 8 to 10,000")


def _expected(program: FirstStage, n: int, domain: Domain, stated: StabilityBound) -> StabilityBound | None:
    if isinstance(program, ClosedFormWeights):
        # what the records tried need already
        w_max = stability.largest_weight(n, _log_range(program, domain) * (1 - 1e-12))
        return replace(stated, V=stability.tilt_lemma(n, 0.0, w_max), w_max=w_max)
    if isinstance(program, SeparableFirstStage):
        return stability.separable(n, program.mu, **vars(program.constants(domain)))
    if isinstance(program, PooledKernelStage):
        return stability.pooled_kernel_balancing(
            n,
            program.kernel.bound(domain.features_bound),
            n * program.mu,
            alpha=program.alpha,
            signed=_takes_both_signs(program, domain),
        )
    if isinstance(program, ArmKernelStage) and math.isinf(program.largest_weight):
        return stability.kernel_balancing(
            n,
            program.kernel.bound(domain.features_bound),
            n * program.mu,
            domain.arm_floor,
            alpha=program.alpha,
            signed=_takes_both_signs(program, domain),
            relation=domain.relation,
        )
    return None


def _log_range(program: ClosedFormWeights, domain: Domain) -> float:
    """Length of the interval that log weights of records at the edge of the domain are found in."""
    X = _at_the_edge(domain)
    both = np.repeat([0, 1], len(X))
    found = program.unnormalized(domain.records(np.vstack([X, X]), both, np.zeros(len(both))))
    return float(np.log(np.max(found)) - np.log(np.min(found)))


def _at_the_edge(domain: Domain) -> Array:
    X = np.random.default_rng(0).normal(size=(_POINTS, N_FEATURES))
    X *= domain.features_bound / np.linalg.norm(X, axis=1)[:, None]
    return np.vstack([X, -X])


def _takes_both_signs(program: KernelFirstStage, domain: Domain) -> bool:
    """Whether a kernel is found to be negative somewhere."""
    X = _at_the_edge(domain)
    bound = program.kernel.bound(domain.features_bound)
    return program.kernel.signed and float(np.min(program.kernel.cross(X, X))) < -1e-9 * bound
