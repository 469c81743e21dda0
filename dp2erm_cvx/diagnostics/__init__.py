"""Balance, weights and overlap, as the data holder checks them before trusting an estimate.

Not differentially private: everything here is computed from the raw records and the exact weights.
It is for the data holder only and is never part of a release. A choice made after a look at it is not
covered by the guarantee.
"""

from dp2erm_cvx.diagnostics.balance import ArmSummary, BalanceTable, balance_table
from dp2erm_cvx.diagnostics.overlap import LIMITS, ArmOverlap, OverlapTable, overlap_table
from dp2erm_cvx.diagnostics.precheck import PropensityPrecheck, propensity_precheck
from dp2erm_cvx.diagnostics.statistics import effective_sample_size
from dp2erm_cvx.diagnostics.weights import ArmWeights, WeightSummary, weight_summary

__all__ = [
    "LIMITS",
    "ArmOverlap",
    "ArmSummary",
    "ArmWeights",
    "BalanceTable",
    "OverlapTable",
    "PropensityPrecheck",
    "WeightSummary",
    "balance_table",
    "effective_sample_size",
    "overlap_table",
    "propensity_precheck",
    "weight_summary",
]
