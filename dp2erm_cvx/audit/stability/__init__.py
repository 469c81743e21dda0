"""Stability audits: neighbors solved for again, their movements compared with every bound."""

from dp2erm_cvx.audit.stability.audit import audit_stability
from dp2erm_cvx.audit.stability.claims import Claim, Quantity, claims_of
from dp2erm_cvx.audit.stability.given import Strategies
from dp2erm_cvx.audit.stability.replay import Replay, replay
from dp2erm_cvx.audit.stability.resolve import Interval, NeighborPair, Resolved, SolverCheck
from dp2erm_cvx.audit.stability.result import StabilityAudit, Verdict
from dp2erm_cvx.audit.stability.tightness import TightnessCell, tightness

__all__ = [
    "Claim",
    "Interval",
    "NeighborPair",
    "Quantity",
    "Replay",
    "Resolved",
    "SolverCheck",
    "StabilityAudit",
    "Strategies",
    "TightnessCell",
    "Verdict",
    "audit_stability",
    "claims_of",
    "replay",
    "tightness",
]
