"""Whether the noise is what a calibration states, and fresh in every release."""

from dp2erm_cvx.audit.noise.draws import NoiseAudit, audit_noise
from dp2erm_cvx.audit.noise.repeats import RepeatAudit, audit_repeats

__all__ = ["NoiseAudit", "RepeatAudit", "audit_noise", "audit_repeats"]
