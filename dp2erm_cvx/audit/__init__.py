"""Audits: what a release does on given neighbors, against what its guarantee allows.

An audit looks for a violation. It reads the records or the noise it is given and reports numbers
that depend on them, so its result is for the data holder, or for synthetic data. Finding nothing
proves nothing.
"""

from dp2erm_cvx.audit.additive import (
    AdditiveAudit,
    Noised,
    Split,
    audit_additive,
    noised_sums,
    run_stages,
    search_additive,
)
from dp2erm_cvx.audit.density import DensityAudit, HockeyStick, audit_density, search_density
from dp2erm_cvx.audit.finding import Declared, Finding, replay
from dp2erm_cvx.audit.movement import Claim, Interval, Quantity, Verdict, claims_of
from dp2erm_cvx.audit.runs import Attack, Counted, RunsAudit, audit_runs, search_runs
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.audit.stability import StabilityAudit, audit_stability, audit_weights

__all__ = [
    "AdditiveAudit",
    "Attack",
    "Claim",
    "Counted",
    "Declared",
    "DensityAudit",
    "Finding",
    "HockeyStick",
    "Interval",
    "Noised",
    "Quantity",
    "RunsAudit",
    "SearchPlan",
    "Split",
    "StabilityAudit",
    "Verdict",
    "audit_additive",
    "audit_density",
    "audit_runs",
    "audit_stability",
    "audit_weights",
    "claims_of",
    "noised_sums",
    "replay",
    "run_stages",
    "search_additive",
    "search_density",
    "search_runs",
]
