"""Audits: what a release does on given neighbors, against what its guarantee allows.

An audit looks for a violation. It reads the records or the noise it is given and reports numbers that depend
on them, so its result is for the data holder, or for synthetic data. Finding nothing proves nothing.
"""

from dp2erm_cvx.audit.additive import (
    AdditiveAudit,
    Noised,
    Split,
    StageLoss,
    audit_additive,
    replay_additive,
    run_stages,
    search_additive,
)
from dp2erm_cvx.audit.blackbox import BlackBoxAudit, Counted, audit_blackbox, replay_blackbox, search_blackbox
from dp2erm_cvx.audit.density import DensityAudit, HockeyStick, audit_density, replay_pair, search_pairs
from dp2erm_cvx.audit.finding import Declared, Finding
from dp2erm_cvx.audit.movement import Claim, Interval, Quantity, claims_of
from dp2erm_cvx.audit.noise import NoiseAudit, RepeatAudit, audit_noise, audit_repeats
from dp2erm_cvx.audit.runs import Attack
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.audit.stability import Strategies, audit_stability, tightness
from dp2erm_cvx.audit.verdicts import StabilityAudit, TightnessCell, Verdict, replay

__all__ = [
    "AdditiveAudit",
    "Attack",
    "BlackBoxAudit",
    "Claim",
    "Counted",
    "Declared",
    "DensityAudit",
    "Finding",
    "HockeyStick",
    "Interval",
    "NoiseAudit",
    "Noised",
    "Quantity",
    "RepeatAudit",
    "SearchPlan",
    "Split",
    "StabilityAudit",
    "StageLoss",
    "Strategies",
    "TightnessCell",
    "Verdict",
    "audit_additive",
    "audit_blackbox",
    "audit_density",
    "audit_noise",
    "audit_repeats",
    "audit_stability",
    "claims_of",
    "replay",
    "replay_additive",
    "replay_blackbox",
    "replay_pair",
    "run_stages",
    "search_additive",
    "search_blackbox",
    "search_pairs",
    "tightness",
]
