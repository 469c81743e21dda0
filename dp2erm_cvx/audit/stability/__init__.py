"""Stability audits: neighbors solved for again, their movements compared with every bound."""

from dp2erm_cvx.audit.stability.audit import audit_stability
from dp2erm_cvx.audit.stability.claims import Claim, Quantity, claims_of
from dp2erm_cvx.audit.stability.counterexample import Replay, replay
from dp2erm_cvx.audit.stability.movement import Interval
from dp2erm_cvx.audit.stability.resolve import Pair, Resolved, SolverCheck
from dp2erm_cvx.audit.stability.result import StabilityAudit, Verdict
from dp2erm_cvx.audit.stability.search import Progress, ResolveBudget
from dp2erm_cvx.audit.stability.tightness import Cell, tightness

__all__ = [
    "Cell",
    "Claim",
    "Interval",
    "Pair",
    "Progress",
    "Quantity",
    "Replay",
    "ResolveBudget",
    "Resolved",
    "SolverCheck",
    "StabilityAudit",
    "Verdict",
    "audit_stability",
    "claims_of",
    "replay",
    "tightness",
]
