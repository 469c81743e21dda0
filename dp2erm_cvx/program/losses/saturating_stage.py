"""Second stages that are linear, with a loss without curvature at full slope."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Self

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.images import ImageRecords
from dp2erm_cvx.model.sets import ConvexSet, WholeSpace
from dp2erm_cvx.program.atoms import Saturating
from dp2erm_cvx.program.curves import Curve, Part
from dp2erm_cvx.program.first_stage import resolved
from dp2erm_cvx.program.losses.certified_margins import RowBounds
from dp2erm_cvx.program.losses.image_rows import rows_of
from dp2erm_cvx.program.losses.margin_rows import MarginRows
from dp2erm_cvx.program.losses.weighted_margin_loss import WeightedMarginLoss
from dp2erm_cvx.public import public_size
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class SaturatingStage(WeightedMarginLoss):
    """``phi(<x, theta> - z)`` by the extremal loss, z the :meth:`response` of a record, over R^p by default.

    Parameters
    ----------
    slope
        S, in units of the response; 1 to 1.5 times the usual size of a residual serves well. Default: half of
        the largest response, too large where the bound on the outcome is generous.
    """

    slope: float | None = None

    cone: ClassVar[str] = "exponential (and second-order over an l2 ball)"
    theorem: ClassVar[str] = (
        "Theorem 15: slope S, curvature 1 - |phi'|/S; Theorems 1 and 2: zeta_c <= M S, trace M^2"
    )
    defaults = MappingProxyType(
        {**WeightedMarginLoss.defaults, "theta_set": "R^p", "slope": "half of the bound on z"}
    )
    default_kind = WholeSpace()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slope is not None:
            object.__setattr__(self, "slope", public_size("slope", self.slope))

    @abc.abstractmethod
    def response(self, records: Records) -> Array:
        """Z (n,)."""

    @abc.abstractmethod
    def response_bound(self, domain: Domain) -> float:
        """Bound on ``|z|``."""

    def default_set(self, domain: Domain) -> ConvexSet:
        return WholeSpace()

    def resolve(self, domain: Domain) -> Self:
        S = self.response_bound(domain) / 2 if self.slope is None else self.slope
        return dataclasses.replace(super().resolve(domain), slope=S)

    @property
    def loss(self) -> Curve:
        return Curve((Part(1.0, Saturating(resolved("slope", self.slope))),))

    def rows(self, records: Records) -> MarginRows:
        offset = self.response(records)
        if isinstance(records, ImageRecords) and self.takes_all:
            return rows_of(records, offset=offset)
        return MarginRows(self.covariates(records.domain, records.X), offset)

    def row_bounds(self, universe: Universe) -> RowBounds:
        z = self.response_bound(universe.domain)
        return RowBounds(self.row_norm(universe.domain), (-z, z))
