"""Choosing among candidate estimators: on public data for free, on private data for a charge."""

from dp2erm_cvx.tuning.private import tune_privately
from dp2erm_cvx.tuning.public import tune
from dp2erm_cvx.tuning.public_data import PublicData
from dp2erm_cvx.tuning.result import PrivateCandidate, PrivateTuning, Selection, TuningResult, TuningRow

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
