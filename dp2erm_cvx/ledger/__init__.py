"""The budget ledger: what releases from one data set have spent together, kept on disk."""

from dp2erm_cvx.ledger.ledger import Account, Composition, Ledger, Receipt, Spent

__all__ = ["Account", "Composition", "Ledger", "Receipt", "Spent"]
