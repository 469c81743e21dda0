"""Covariate balance, as the data holder checks it before trusting an estimate.

Not differentially private: everything here is computed from the raw records and the exact weights.
It is for the data holder only and is never part of a release. A choice made after a look at it is
not covered by the guarantee.
"""

from dp2erm_cvx.diagnostics.balance import (
    BalanceTable,
    Estimate,
    augmented,
    balance_table,
    difference_of_means,
    effective_sample_size,
)

__all__ = [
    "BalanceTable",
    "Estimate",
    "augmented",
    "balance_table",
    "difference_of_means",
    "effective_sample_size",
]
