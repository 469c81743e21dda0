"""Whether runs of a mechanism refute its guarantee, for any callable."""

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.audit import BlackBoxAudit, Counted, audit_blackbox
from dp2erm_cvx.audit.blackbox.scores import FAMILIES
from dp2erm_cvx.audit.blackbox.search import BlackBoxSearch, replay_blackbox, search_blackbox

__all__ = [
    "FAMILIES",
    "Attack",
    "BlackBoxAudit",
    "BlackBoxSearch",
    "Counted",
    "audit_blackbox",
    "replay_blackbox",
    "search_blackbox",
]
