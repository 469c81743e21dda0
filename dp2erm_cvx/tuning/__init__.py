"""Choosing among candidates: by simulation or on public data for free, on private data for a charge."""

from dp2erm_cvx.tuning.design_question import DesignQuestion
from dp2erm_cvx.tuning.design_result import DesignResult
from dp2erm_cvx.tuning.design_row import DesignRow
from dp2erm_cvx.tuning.design_run import design
from dp2erm_cvx.tuning.guess import Guess
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
