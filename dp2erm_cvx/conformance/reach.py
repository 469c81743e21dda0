"""Whether the certificate of every solve is known in advance, as a private release needs it."""

from __future__ import annotations

import math

from dp2erm_cvx.conformance.outcome import Outcome, noted, passed
from dp2erm_cvx.conformance.samples import check_domain, check_universe
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage


def reach(subject: Subject) -> Outcome:
    """The public bound on the numerical error over all datasets, or what a release says without one."""
    check, domain = "certified by design", check_domain(400)
    program = subject.program.resolve(domain)
    if isinstance(program, PrivateFirstStage):
        found = program.certified_radius(check_universe(domain, 400), domain.covariate_bound**2, 0.0)
    elif isinstance(program, FirstStage):
        if _covers_all_weights(program):
            return passed(check, "V = 2n covers all weights of sum n: they need no certificate")
        found = program.certified_error(check_universe(domain, 400))
    else:
        assert isinstance(program, SecondStage)
        found = program.certified_radius(check_universe(domain, 400), domain.covariate_bound**2, 0.0)
    if found is None or not math.isfinite(found):
        return noted(
            check,
            "no public bound on the numerical error: releases are conditional",
        )
    return passed(check, f"error at most {found:.1e} on every dataset, at n = 400")


def _covers_all_weights(program: FirstStage) -> bool:
    try:
        return program.stability(check_universe(check_domain(400), 400)).V >= 2 * 400
    except CalibrationError:
        return False
