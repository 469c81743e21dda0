"""Audits: what a release does on given neighbors, against what its guarantee allows.

An audit looks for a violation. It reads the records or the noise it is given and reports numbers that depend
on them, so its result is for the data holder, or for synthetic data. Finding nothing proves nothing.
"""

from dp2erm_cvx.audit.additive import (
    AdditiveAudit,
    AdditiveSearch,
    Noised,
    Split,
    StageLoss,
    audit_additive,
    replay_additive,
    search_additive,
)
from dp2erm_cvx.audit.blackbox import (
    Attack,
    BlackBoxAudit,
    BlackBoxSearch,
    audit_blackbox,
    replay_blackbox,
    search_blackbox,
)
from dp2erm_cvx.audit.declared import Declared, epsilon_at
from dp2erm_cvx.audit.density import (
    DensityAudit,
    Direction,
    HockeyStick,
    PairSearch,
    audit_density,
    replay_pair,
    search_pairs,
)
from dp2erm_cvx.audit.noise import NoiseAudit, RepeatAudit, audit_noise, audit_repeats
from dp2erm_cvx.audit.search import Progress, SearchPlan
from dp2erm_cvx.audit.stability import StabilityAudit, Strategies, audit_stability, replay

__all__ = [
    "AdditiveAudit",
    "AdditiveSearch",
    "Attack",
    "BlackBoxAudit",
    "BlackBoxSearch",
    "Declared",
    "DensityAudit",
    "Direction",
    "HockeyStick",
    "NoiseAudit",
    "Noised",
    "PairSearch",
    "Progress",
    "RepeatAudit",
    "SearchPlan",
    "Split",
    "StabilityAudit",
    "StageLoss",
    "Strategies",
    "audit_additive",
    "audit_blackbox",
    "audit_density",
    "audit_noise",
    "audit_repeats",
    "audit_stability",
    "epsilon_at",
    "replay",
    "replay_additive",
    "replay_blackbox",
    "replay_pair",
    "search_additive",
    "search_blackbox",
    "search_pairs",
]
