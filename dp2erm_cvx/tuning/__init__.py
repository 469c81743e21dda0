"""Choosing among candidate estimators: on public data for free, on private data for a charge."""

from dp2erm_cvx.tuning.private import tune_privately
from dp2erm_cvx.tuning.private_result import PrivateCandidate, PrivateTuning
from dp2erm_cvx.tuning.public import tune
from dp2erm_cvx.tuning.public_data import PublicData
from dp2erm_cvx.tuning.result import TuningResult, TuningRow
from dp2erm_cvx.tuning.selection import Selection

__all__ = [
    "PrivateCandidate",
    "PrivateTuning",
    "PublicData",
    "Selection",
    "TuningResult",
    "TuningRow",
    "tune",
    "tune_privately",
]
