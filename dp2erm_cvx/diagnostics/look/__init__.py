"""A look at the records before anything is spent: for the data holder, and never in a release.

Nothing here is differentially private. It stops what a mistake in a table or in its declaration
would spoil; neither what it finds nor whether the data holder went on is recorded anywhere.
"""

from dp2erm_cvx.diagnostics.look.finding import Findings, look, rows_that_do_not_match, seen_of
from dp2erm_cvx.diagnostics.look.records import AskedAbout, Seen, seen_in
from dp2erm_cvx.diagnostics.look.rules import Rule

__all__ = [
    "AskedAbout",
    "Findings",
    "Rule",
    "Seen",
    "look",
    "rows_that_do_not_match",
    "seen_in",
    "seen_of",
]
