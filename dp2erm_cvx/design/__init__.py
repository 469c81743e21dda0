"""Choosing among candidates, by simulation or on public records; no private record is read."""

from dp2erm_cvx.design.request import DesignRequest, DesignScenario
from dp2erm_cvx.design.result import DesignResult, design
from dp2erm_cvx.design.samples import PublicData
from dp2erm_cvx.design.simulation import DesignRow

__all__ = [
    "DesignRequest",
    "DesignResult",
    "DesignRow",
    "DesignScenario",
    "PublicData",
    "design",
]
