"""Measured movement against the declared bound."""

from __future__ import annotations

import time

import numpy as np

from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import check_domain, check_universe, neighbors
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.errors import CalibrationError, CertificateError, DataError, InfeasibleError, SolverError
from dp2erm_cvx.program import FirstStage, PrivateFirstStage


def movement(subject: Subject) -> Outcome:
    """V and the largest weight over certified solves of random and clustered neighbors, with flips."""
    check = "movement"
    try:
        return measured(subject)
    except CalibrationError as error:
        if subject.program.relations:
            return failed(check, f"no bound: {error}; a program without one has relations = frozenset()")
        return noted(check, f"no bound: {error}")
    except (InfeasibleError, SolverError, CertificateError) as error:
        return failed(check, f"a neighbor has no certified weights: {error}")


def measured(subject: Subject) -> Outcome:
    """The same. Raises CalibrationError without a bound, and what a solve raises without a certificate."""
    check, program = "movement", subject.program
    assert isinstance(program, FirstStage)
    if isinstance(program, PrivateFirstStage):
        return noted(check, "the coefficient is private, so that weights of neighbors are never compared")
    largest, pairs, bound = 0.0, 0, None
    end = time.monotonic() + subject.seconds
    for n in subject.sizes:
        bound = program.stability(check_universe(check_domain(n), n))
        for first, second in neighbors(40, n, subject.seed):
            if time.monotonic() > end and pairs >= 6:
                break
            one, two = subject.solve(first), subject.solve(second)
            w, v = one.value, two.value
            moved = float(np.sum(np.abs(w - v)) + 2 * min(w[0], v[0]))
            slack = one.certificate.output_radius + two.certificate.output_radius
            if moved - slack > bound.V * (1 + 1e-9):
                return failed(check, f"n = {n}: V = {moved:.4g} between neighbors, declared {bound.V:.4g}")
            if max(w[0], v[0]) - slack > bound.w_max * (1 + 1e-9):
                return failed(check, f"n = {n}: a weight is {max(w[0], v[0]):.4g}, w_max {bound.w_max:.4g}")
            largest, pairs = max(largest, moved / bound.V), pairs + 1
    return passed(
        check, f"{pairs} pairs, at most {largest:.0%} of the bound of {bound.theorem}" if bound else ""
    )


def audit(subject: Subject) -> Outcome:
    """A short stability audit: neighbors searched for, not drawn."""
    from dp2erm_cvx.audit.search import Search
    from dp2erm_cvx.audit.stability import audit_stability

    check, program = "audit", subject.program
    assert isinstance(program, FirstStage)
    if isinstance(program, PrivateFirstStage):
        return noted(check, "see movement")
    universe = check_universe(check_domain(40), 40)
    try:
        found = audit_stability(
            program,
            None,
            universe,
            bounds=[program.stability(universe)],
            search=Search(seconds=subject.seconds, seed=subject.seed),
        )
    except (CalibrationError, DataError) as error:
        return noted(check, f"nothing to audit: {error}")
    worst = max(found.verdicts, key=lambda verdict: verdict.ratio)
    if found.violations:
        return failed(check, f"{worst.claim.quantity.value} reaches {worst.ratio:.4g} times what is declared")
    seen = f"{found.scouted + found.resolved:,} neighbors at n = 40"
    return passed(check, f"{seen}, at most {worst.ratio:.0%} of the bound")
