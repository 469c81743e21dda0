"""The budget ledger: what releases from one data set have spent together, kept on disk."""

from dp2erm_cvx.ledger.account import Account, Receipt
from dp2erm_cvx.ledger.composition import Composition, Spent
from dp2erm_cvx.ledger.ledger import Ledger

__all__ = ["Account", "Composition", "Ledger", "Receipt", "Spent"]
