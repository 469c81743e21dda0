"""Whether runs of a mechanism refute its guarantee, for any callable."""

from dp2erm_cvx.audit.blackbox.audit import audit_blackbox
from dp2erm_cvx.audit.blackbox.result import BlackBoxAudit, Counted
from dp2erm_cvx.audit.blackbox.scores import FAMILIES

__all__ = ["FAMILIES", "BlackBoxAudit", "Counted", "audit_blackbox"]
