"""Pages for readers: what an audit searched and found, in one file that needs no network."""

from dp2erm_cvx.report.audit import AuditSection, audit_facts, audit_page, check_installed, missing

__all__ = ["AuditSection", "audit_facts", "audit_page", "check_installed", "missing"]
