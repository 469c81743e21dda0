"""The bound that a program states beside what its base's theorem gives from the constants it declares."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import N_FEATURES, check_domain, check_universe, other_domains
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import (
    ArmKernelStage,
    ClosedFormWeights,
    FirstStage,
    KernelFirstStage,
    PooledKernelStage,
    RidgedEntropyFirstStage,
    SeparableFirstStage,
)
from dp2erm_cvx.universe import Universe

_SIZES = (8, 40, 400, 10_000)
_POINTS = 200


def stated_bound(subject: Subject) -> Outcome:
    """No smaller than Theorem 3, 5 or 6 at the program's own constants, unless it names another theorem.

    A search over neighbors sees a factor of two only where the theorem is nearly attained; an arithmetical
    slip in ``bound`` shows here whatever its size.
    """
    check, program = "stated bound", subject.program
    assert isinstance(program, FirstStage)
    evaluated = False
    for n in _SIZES:
        for domain in (check_domain(n), *other_domains(n)):
            try:
                universe = check_universe(domain, n)
                stated = program.stability(universe)
                expected = _expected(program.resolve(domain), universe, stated)
            except (CalibrationError, DeclarationError) as error:
                if domain == check_domain(n):
                    return noted(check, str(error))
                continue  # a program may be declared for one scale
            if expected is None:
                continue
            evaluated = True
            if text := _less(stated, expected):
                text = f"n = {n}, M = {domain.covariate_bound:.3g}: {text}"
                if stated.theorem == expected.theorem:
                    return failed(check, f"{text} from the constants that the program declares")
                return noted(check, f"{text}: smaller, by {stated.theorem}, which is its author's word")
    if not evaluated:
        return noted(check, "no base whose theorem could be evaluated beside it: its proof is the author's")
    return passed(check, "at least what the theorem of its base gives, n = 8 to 10,000")


def _less(stated: StabilityBound, expected: StabilityBound) -> str:
    for what, found, least in (("V", stated.V, expected.V), ("w_max", stated.w_max, expected.w_max)):
        if not found >= least * (1 - 1e-9):
            return f"{what} = {found:.4g}, where {expected.theorem} gives {least:.4g}"
    return ""


def _expected(program: FirstStage, universe: Universe, stated: StabilityBound) -> StabilityBound | None:
    n, domain = universe.n_samples, universe.domain
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
    if isinstance(program, RidgedEntropyFirstStage) and program.scaling == "public":
        arguments = program.bound_arguments(domain)
        return stability.entropy_balancing(n, **arguments, trim=getattr(program, "trim", math.inf))
    if stated.V >= 2 * n and stated.w_max >= n:
        return stated  # the universal corollary, which any weights obey
    return _inherited(program, universe)


def _inherited(program: FirstStage, universe: Universe) -> StabilityBound | None:
    """What the library's program gives that this one is based on, where it states a bound of its own."""
    for base in type(program).__mro__[1:]:
        if base.__module__.startswith("dp2erm_cvx.problems.") and "bound" in vars(base):
            known: StabilityBound = vars(base)["bound"](program, universe)
            return replace(known, theorem=f"{known.theorem} of {base.__name__}")
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
