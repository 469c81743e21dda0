"""Choosing among candidates: by simulation or on public records for free, on private data for a charge."""

from dp2erm_cvx.design.private import PrivateTuning, tune_privately
from dp2erm_cvx.design.request import DesignRequest, DesignScenario
from dp2erm_cvx.design.result import DesignResult, design
from dp2erm_cvx.design.samples import PublicData
from dp2erm_cvx.design.simulation import DesignRow

__all__ = [
    "DesignRequest",
    "DesignResult",
    "DesignRow",
    "DesignScenario",
    "PrivateTuning",
    "PublicData",
    "design",
    "tune_privately",
]
