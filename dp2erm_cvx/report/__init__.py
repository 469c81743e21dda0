"""What is told of releases, plans and audits: sentences, tables, figures and pages.

An import registers the reports of releases and plans (``dp2erm_cvx.hooks.register``).
"""

from dp2erm_cvx.report import plans as plans
from dp2erm_cvx.report import story as story
from dp2erm_cvx.report.page import audit_facts, audit_page, check_installed, missing, release_page

__all__ = ["audit_facts", "audit_page", "check_installed", "missing", "release_page"]
