"""Exact losses of mechanisms that say which values they add which noise to."""

from dp2erm_cvx.audit.additive.audit import AdditiveAudit, audit_additive
from dp2erm_cvx.audit.additive.search import AdditiveSearch, replay_additive, search_additive
from dp2erm_cvx.audit.additive.stages import Noised, Split, Staged, Stages, run_stages
from dp2erm_cvx.audit.additive.walk import StageLoss

__all__ = [
    "AdditiveAudit",
    "AdditiveSearch",
    "Noised",
    "Split",
    "StageLoss",
    "Staged",
    "Stages",
    "audit_additive",
    "replay_additive",
    "run_stages",
    "search_additive",
]
