"""Pages for readers, in one file that needs no network: what an audit found, and what a release says."""

from dp2erm_cvx.report.page import audit_facts, audit_page, check_installed, missing, release_page

__all__ = ["audit_facts", "audit_page", "check_installed", "missing", "release_page"]
