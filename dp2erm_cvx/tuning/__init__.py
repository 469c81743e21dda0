"""Choosing among candidates: by simulation or on public data for free, on private data for a charge."""

from dp2erm_cvx.tuning.designs import DesignQuestion, DesignResult, DesignRow, Guess, design
from dp2erm_cvx.tuning.private import tune_privately
from dp2erm_cvx.tuning.public import tune
from dp2erm_cvx.tuning.public_data import PublicData
from dp2erm_cvx.tuning.result import PrivateCandidate, PrivateTuning, Selection, TuningResult, TuningRow

__all__ = [
    "DesignQuestion",
    "DesignResult",
    "DesignRow",
    "Guess",
    "PrivateCandidate",
    "PrivateTuning",
    "PublicData",
    "Selection",
    "TuningResult",
    "TuningRow",
    "design",
    "tune",
    "tune_privately",
]
