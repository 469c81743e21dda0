"""Verdicts of a stability audit in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dp2erm_cvx.audit.stability import StabilityAudit, Verdict

#: Shares of a bound from which on it counts as tight, and below which as hardly touched.
_TIGHT, _LOOSE = 0.95, 0.3


def verdict_in_words(verdict: Verdict) -> str:
    """One sentence or two about one bound."""
    claim, low = verdict.claim, verdict.movement.low
    subject = f"{claim.quantity} of the bound “{claim.name}”"
    if verdict.violated:
        excess = f"{low / claim.bound:.3g} times the bound" if claim.bound > 0 else "where 0 is claimed"
        return (
            f"Violated: {subject} is claimed to be at most {claim.bound:.6g}, but a pair of neighbors moves "
            f"it by at least {low:.6g}, {excess}, whatever the numerical error ({verdict.found.pair.origin})."
        )
    share = verdict.ratio
    if share >= _TIGHT:
        return (
            f"Not violated, and nearly attained: the largest movement met is {share:.1%} of the bound, so no "
            f"better bound on {claim.quantity} exists than {1 - share:.1%} below it."
        )
    told = f"Not violated: the largest movement met is {share:.3g} times the bound"
    if share < _LOOSE:
        return f"{told}; the bound may be loose, or the worst neighbors were missed."
    return f"{told}, so a factor of at most {1 / share:.3g} could be gained."


def headline(audits: Sequence[StabilityAudit]) -> str:
    """What all audits come to, in one line."""
    wrong = [verdict for audit in audits for verdict in audit.violations]
    tried = sum(audit.scouted + audit.resolved for audit in audits)
    bounds = sum(len(audit.verdicts) for audit in audits)
    if wrong:
        names = list(dict.fromkeys(f"“{verdict.claim.name}”" for verdict in wrong))
        return f"Violated: {', '.join(names)} ({len(wrong)} of {bounds} bounds, {tried:,} neighbors tried)"
    return f"None of {bounds} bounds was violated by {tried:,} neighbors: a search, not a proof"


def check_in_words(audit: StabilityAudit) -> str:
    """What the second solver said."""
    check = audit.check
    told = (
        f"{check.datasets:,} datasets were solved again through the declared problem by {check.solver}. Its "
        f"weights differ from ours by at most {check.disagreement:.3g} times the sum of both certified radii"
    )
    told += "." if check.disagreement <= 1 else ": one of the certificates is wrong."
    told += f" Its own radii reach {check.radius:.2g} in the 1-norm."
    return told + (f" It returned no point for {check.unsolved}." if check.unsolved else "")


def number(value: float) -> str:
    """A number for a table."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
