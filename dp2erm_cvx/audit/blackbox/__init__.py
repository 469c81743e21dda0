"""Whether runs of a mechanism refute its guarantee, for any callable."""

from dp2erm_cvx.audit.blackbox.attack import Attack
from dp2erm_cvx.audit.blackbox.audit import BlackBoxAudit, Counted, audit_blackbox
from dp2erm_cvx.audit.blackbox.scores import FAMILIES

__all__ = ["FAMILIES", "Attack", "BlackBoxAudit", "Counted", "audit_blackbox"]
