"""First stages that Theorem 3 is about: a stable coefficient of a sum of margin losses."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.kind import Kind
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.neighbors import ReplacedRows, RowNeighbors
from dp2erm_cvx.program.schemes.margin_stage import MarginFirstStage
from dp2erm_cvx.stability import SeparableConstants, separable
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class SeparableFirstStage(MarginFirstStage):
    """A sum of margin losses that states the constants of its theorem.

    Parameters
    ----------
    ridge
        Keeps lam stable; default: a tenth of the squared norm bound of the rows, so that the stability bound
        does not depend on how covariates are scaled.
    radius
        Bound on ``||lam||``; ``inf`` for none.
    """

    defaults = MappingProxyType({"ridge": "0.1 times the squared norm bound of the rows"})
    kind: ClassVar[Kind] = Kind.EXPONENTIAL

    radius: float = math.inf

    @abc.abstractmethod
    def constants(self, domain: Domain) -> SeparableConstants:
        """Constants of a resolved program, from public quantities alone."""

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 3."""
        return separable(universe.n_samples, self.mu, self.constants(universe.domain))

    def data(self, records: Records) -> dict[str, Value]:
        return self.margin_data(records)

    def model(self, records: Records) -> MarginModel:
        return self.margin_model(records)

    def row_neighbors(self, records: Records) -> RowNeighbors | None:
        if self.weight_rows(records) is not None:
            return None  # a fast path moves one row of a record, not two
        terms, total = self.linear_terms(records), self.linear(records)

        def replaced(index: NDArray[np.int64], new: Records) -> ReplacedRows:
            rows, own = self.rows(new), self.linear_terms(new)
            if terms is None or total is None or own is None:
                return ReplacedRows(rows)
            return ReplacedRows(rows, total - terms[index] + own)

        return replaced

    def certified_error(self, universe: Universe) -> float | None:
        terms = self.margin_sum(universe)
        if terms is None:
            return None
        found = terms.weights(self.log_weight, self.weight_row_bound(universe.domain))
        return math.inf if found is None else found
