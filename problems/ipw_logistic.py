"""Inverse propensity weights from a regularized logistic regression.

minimize    sum_i log(1 + exp(-<z_i, lam>)) + n ridge/2 ||lam||^2,   z_i = (2 a_i - 1) x_i
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j with f_i = min(1 + exp(-<z_i, lam>), trim): equations IPW_beta_logistic_loss
(n times) and IPW_weight_def of the paper. The public trim caps the unnormalized weight.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import cvxpy as cp

from dp2erm_cvx import stability
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import (
    Array,
    Declaration,
    Domain,
    FirstStage,
    Instance,
    Kind,
    Leaves,
    LogisticModel,
    Records,
    ReplacedRows,
    RowNeighbors,
    StabilityBound,
    Universe,
    Value,
    logistic_weights_error,
    public_number,
    public_radius,
    public_ridge,
    resolved,
)


@dataclass(frozen=True)
class IPWLogistic(FirstStage):
    """For a propensity that is better understood than the outcome: no overlap assumption.

    Parameters
    ----------
    ridge
        Of the propensity coefficient; default M^2/10, so that the stability bound does not depend on how
        covariates are scaled.
    radius
        Bound on ``||lam||``; ``inf`` for none.
    trim
        Above 1: public cap F on 1/propensity.
    """

    ridge: float | None = None
    radius: float = float("inf")
    trim: float = float("inf")

    kind = Kind.EXPONENTIAL
    name = "ipw_logistic"
    formula = (
        "lam = argmin sum log(1+exp(-z_i'lam)) + n mu/2 |lam|^2, |lam| <= R;  w_i ~ min(1+exp(-z_i'lam), F)"
    )
    defaults = MappingProxyType({"ridge": "M^2/10"})
    cone = "exponential, second-order"
    citation = "Rosenbaum & Rubin (1983); Lee & Chen (2026), Prop. IPW_estimated_stability"
    theorem = "Theorem 3-IPW"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", public_ridge(self.ridge))
        object.__setattr__(self, "radius", public_radius(self.radius))
        object.__setattr__(self, "trim", public_number("trim", self.trim, above=1, infinite=True))

    def resolve(self, domain: Domain) -> Self:
        if self.ridge is not None:
            return self
        return dataclasses.replace(self, ridge=0.1 * domain.covariate_bound**2)

    @property
    def mu(self) -> float:
        """The ridge. Raises ProgramError where it is still left to the domain."""
        return resolved("ridge", self.ridge)

    def data(self, records: Records) -> dict[str, Value]:
        data: dict[str, Value] = {
            "Z": signed(records),
            "curvature": records.n_samples * self.mu,
        }
        return data if math.isinf(self.radius) else data | {"radius": self.radius}

    def declare(self, leaf: Leaves) -> Declaration:
        Z = leaf("Z")
        lam = cp.Variable(Z.shape[1], name="coefficient")
        objective = cp.sum(cp.logistic(-(Z @ lam))) + leaf("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        ball = {} if math.isinf(self.radius) else {"ball": cp.norm(lam, 2) <= leaf("radius", nonneg=True)}
        return Declaration(objective, {"coefficient": lam}, ball)

    def model(self, records: Records) -> LogisticModel:
        return LogisticModel(signed(records), self.mu, self.radius, self.trim)

    def row_neighbors(self, records: Records) -> RowNeighbors:
        return lambda index, new: ReplacedRows(signed(new))

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        return values["coefficient"]

    def certified_error(self, universe: Universe) -> float | None:
        domain = universe.domain
        found = logistic_weights_error(
            universe.n_samples,
            universe.n_columns,
            covariate_bound=domain.covariate_bound,
            ridge=self.mu,
            radius=self.radius,
        )
        return math.inf if found is None else found

    def bound(self, universe: Universe) -> StabilityBound:
        return stability.ipw_logistic(
            universe.n_samples,
            universe.domain.covariate_bound,
            self.mu,
            radius=self.radius,
            trim=self.trim,
        )

    def paper_bound(self, universe: Universe) -> StabilityBound:
        if math.isfinite(self.trim):
            raise CalibrationError("the paper's bound for a logistic propensity is for untrimmed weights")
        return stability.paper_ipw_logistic(
            universe.n_samples, universe.domain.covariate_bound, self.mu, self.radius
        )


def signed(records: Records) -> Array:
    """Rows ``z_i = (2 a_i - 1) x_i``, (n, p)."""
    rows: Array = (2 * records.a - 1)[:, None] * records.X
    return rows
