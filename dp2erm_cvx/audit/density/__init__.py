"""The exact density of a release on two neighbors, against its guarantee."""

from dp2erm_cvx.audit.density.audit import DensityAudit, Direction, audit_density
from dp2erm_cvx.audit.density.hockey_stick import HockeyStick
from dp2erm_cvx.audit.density.pair_search import PairSearch, search_pairs
from dp2erm_cvx.audit.density.replay import replay_pair

__all__ = [
    "DensityAudit",
    "Direction",
    "HockeyStick",
    "PairSearch",
    "audit_density",
    "replay_pair",
    "search_pairs",
]
