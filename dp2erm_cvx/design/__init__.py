"""Choosing among pipelines and among settings of schemes, in public; no private record is read."""

from dp2erm_cvx.design.request import DesignRequest, DesignScenario
from dp2erm_cvx.design.result import DesignResult, design
from dp2erm_cvx.design.samples import PublicData
from dp2erm_cvx.design.simulation import DesignRow
from dp2erm_cvx.design.trade_off import FrontierRequest, FrontierResult, FrontierRow, frontier

__all__ = [
    "DesignRequest",
    "DesignResult",
    "DesignRow",
    "DesignScenario",
    "FrontierRequest",
    "FrontierResult",
    "FrontierRow",
    "PublicData",
    "design",
    "frontier",
]
