"""Audits: what a release does on given neighbors, against what its guarantee allows.

An audit looks for a violation. It reads the records it is given and reports numbers that depend on them, so
its result is for the data holder, or for synthetic data. Finding nothing proves nothing.
"""

from dp2erm_cvx.audit.density import audit_density
from dp2erm_cvx.audit.hockey_stick import HockeyStick
from dp2erm_cvx.audit.result import DensityAudit, Direction

__all__ = ["DensityAudit", "Direction", "HockeyStick", "audit_density"]
