"""Second stages that are linear in all covariates, or in a public choice of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array, Domain, Records, clip_norm
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.images import ImageRecords
from dp2erm_cvx.model.certified_radius import checked_perturbation, radius_at_floor
from dp2erm_cvx.model.sets import ConvexSet, L2Ball
from dp2erm_cvx.privacy import LossConstants, RowBox
from dp2erm_cvx.program.margin_rows import MarginRows, MarginSum, RowBounds, rows_of
from dp2erm_cvx.program.second_stage import LossStage, WeightedLeastSquares
from dp2erm_cvx.program.stage import setting
from dp2erm_cvx.public import chosen_columns
from dp2erm_cvx.suprema import Saturation
from dp2erm_cvx.universe import Universe

#: Largest ratio of curvatures for which a solve of a loss whose Hessian jumps is sure of its radius: Newton's
#: method may stall on such a loss, and beyond 1e7 projected gradient has been seen to miss it as well.
STEEPEST = 1e6


def _feature_list(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise DeclarationError(f"{name} = {value!r}: must be a list of covariates")
    return tuple(value)


@dataclass(frozen=True)
class LinearStage(LossStage):
    """``<x, theta>`` over all covariates, or over a public choice of them.

    Theta defaults to the l2 ball of radius M'/M: ``|<x, theta>| <= M'`` over it, by Cauchy-Schwarz. The l1
    ball of the same radius is inside it and costs the same noise; it is for few coefficients that are not 0.

    Parameters
    ----------
    features
        Names declared by the domain's ranges, or column numbers without the intercept; default: all.
    features_bound
        Norm that the chosen features are shrunk to, radially; default: the domain's own bound.
    """

    features: tuple[str | int, ...] | None = setting(None, _feature_list)
    features_bound: float | None = setting(None, above=0)

    defaults = MappingProxyType(
        {"theta_set": "l2 ball of radius M'/M", "features": "all", "features_bound": "that of the domain"}
    )
    default_kind: ClassVar[ConvexSet] = L2Ball(1.0)
    #: Whether the response is ``2 (2a - 1) y``, whose mean at x is an effect, or y itself.
    contrast: ClassVar[bool] = True

    def default_set(self, domain: Domain) -> ConvexSet:
        return L2Ball(domain.outcome_bound / domain.covariate_bound)

    def rows(self, records: Records) -> MarginRows:
        if isinstance(records, ImageRecords) and self.takes_all:
            return rows_of(records, offset=self.response(records))
        return MarginRows(self.covariates(records.domain, records.X), self.response(records))

    def columns(self, domain: Domain, n_features: int) -> list[int]:
        """Column numbers of the chosen features. Raises DeclarationError on an unknown or repeated one."""
        if self.features is None:
            return list(range(n_features))
        return chosen_columns("features", self.features, domain.columns or (), n_features)

    @property
    def takes_all(self) -> bool:
        """Whether the design is X as it is."""
        own = type(self).covariates is LinearStage.covariates
        return own and self.features is None and self.features_bound is None

    def covariates(self, domain: Domain, X: Array) -> Array:
        """Rows of the design from records already in the domain (intercept column included)."""
        if self.features is None and self.features_bound is None:
            return X
        constant = 1 if domain.intercept else 0
        columns = self.columns(domain, X.shape[1] - constant)
        if self.features_bound is None and columns == list(range(X.shape[1] - constant)):
            return X
        chosen = X[:, constant:][:, columns]
        if self.features_bound is not None:
            chosen = clip_norm(chosen, self.features_bound)
        return np.hstack([X[:, :constant], chosen])

    def size(self, universe: Universe) -> tuple[int, float, float]:
        """(p, M, largest ``||theta||``): length and norm bound of the rows, and what Theta allows."""
        domain = universe.domain
        p = len(self.columns(domain, universe.n_features)) + (1 if domain.intercept else 0)
        return p, self.row_norm(domain), self.feasible(domain).norm_bound(p)

    def row_norm(self, domain: Domain) -> float:
        """Bound on the norm of the rows of the design."""
        bound = domain.features_bound if self.features_bound is None else self.features_bound
        return min(domain.covariate_bound, float(np.hypot(domain.intercept, bound)))

    def response(self, records: Records) -> Array:
        """Z (n,)."""
        z: Array = 2.0 * (2 * records.a - 1) * records.y if self.contrast else records.y
        return z

    def response_bound(self, domain: Domain) -> float:
        """Bound on ``|z|``."""
        return (2.0 if self.contrast else 1.0) * domain.outcome_bound

    def row_bounds(self, universe: Universe) -> RowBounds:
        """Bounds on the rows, the responses, factors and tilts."""
        z = self.response_bound(universe.domain)
        return RowBounds(self.row_norm(universe.domain), (-z, z))

    def loss_constants(self, universe: Universe) -> LossConstants:
        """All constants, derived from the curve, the bounds of the rows and Theta (Lemma A)."""
        program, bounds = self.resolve(universe.domain), self.row_bounds(universe)
        curve, (p, _, size) = program.loss, self.size(universe)
        radius, largest = bounds.constants(curve, size)
        ball = math.inf if any(bounds.offset) else bounds.norm * size
        saturation = Saturation.of(curve, bounds.norm, bounds.factor[1], ball)
        return LossConstants(
            n_parameters=p,
            gradient_radius=radius,
            hessian_trace=bounds.factor[1] * curve.largest_curvature(bounds.reach(size)) * bounds.norm**2,
            strong_convexity=program.regularizer.strong_convexity,
            theta_bound=size if math.isfinite(size) else None,
            outcome_bound=bounds.loss_at_zero(curve),
            gradient_bound=largest,
            saturation=None if any(bounds.tilt) else saturation,
            is_margin=True,
            box=self.box(universe, largest / bounds.norm),
        )

    def box(self, universe: Universe, slope: float) -> RowBox | None:
        """That of the rows; None without one. Gradients are at most ``slope`` times a row."""
        domain, widths = universe.domain, universe.widths
        # rows of one's own may lie anywhere
        if widths is None or type(self).covariates is not LinearStage.covariates:
            return None
        constant = 1 if domain.intercept else 0
        chosen = (widths[constant + index] for index in self.columns(domain, universe.n_features))
        return RowBox((*widths[:constant], *chosen), slope)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        chosen = tuple(columns[index] for index in self.columns(domain, len(columns)))
        return ("intercept", *chosen) if domain.intercept else chosen

    def certified_radius(self, universe: Universe, gamma: float, noise_bound: float) -> float | None:
        """The radius where Newton's method stops (``radius_at_floor``); weights may add up to less than n.

        None over an unbounded Theta, where a loss with flat tails may take more steps than a solve is given,
        for a loss whose Hessian jumps where gamma is below about a millionth of its curvature, and for a
        curvature too small for floating point. Raises DeclarationError.
        """
        domain, n = universe.domain, universe.n_samples
        extra, noise = checked_perturbation(gamma, noise_bound)
        p = self.loss_constants(universe).n_parameters
        loss, theta_set = self.resolve(domain).loss, self.feasible(domain)
        if not math.isfinite(theta_set.norm_bound(p)):
            return None
        ridge = n * (extra + self._net[1])
        bounds = self.row_bounds(universe)
        terms = MarginSum(n, p, loss, bounds, theta_set, ridge=ridge, linear=noise, weighted=True)
        sizes = terms.sizes()
        if sizes is None:
            return None
        if math.isinf(loss.concordance) and sizes.smoothness > STEEPEST * sizes.strong_convexity:
            return None
        return radius_at_floor(sizes)

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        # row by row: in a matrix product the rounding of a row may depend on where it stands
        rowwise: Array = np.sum(self.covariates(domain, domain.features(X)) * theta, axis=1)
        return rowwise


@dataclass(frozen=True)
class LinearLeastSquares(WeightedLeastSquares, LinearStage):
    """``(z_i - <x_i, theta>)^2``, z the response of a record."""

    theorem: ClassVar[str] = "Theorems 1 and 2: zeta_c = max sin(t) (2 M^2 |theta| cos(t) + 2 M Z), 2 M^2"

    def design(self, records: Records) -> tuple[Array, Array]:
        return self.covariates(records.domain, records.X), self.response(records)

    def loss_constants(self, universe: Universe) -> LossConstants:
        rows = self.row_bounds(universe)
        return dataclasses.replace(
            super().loss_constants(universe),
            outcome_bound=universe.domain.outcome_bound,
            covariate_bound=rows.norm,
            response_bound=rows.offset[1],
        )
