"""Choosing among candidates: by simulation or on public data for free, on private data for a charge."""

from dp2erm_cvx.design.private import PrivateCandidate, PrivateTuning, Selection, tune_privately
from dp2erm_cvx.design.public import PublicData, TuningResult, TuningRow, tune
from dp2erm_cvx.design.result import DesignResult, design
from dp2erm_cvx.design.simulation import DesignRow
from dp2erm_cvx.design.world import DesignQuestion, Guess

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
