"""Individualized treatment rule by weighted least squares.

minimize    sum_i w_i (z_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta

with z_i = 2 (2 a_i - 1) y_i, y the centered net outcome: n times equation weighted_convex_opt_itr of the
paper with objective perturbation. The rule treats where <x, theta> > 0.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import (
    Array,
    ConvexSet,
    Domain,
    L1Ball,
    LossConstants,
    Records,
    WeightedLeastSquares,
    clip_norm,
    public_number,
)


@dataclass(frozen=True)
class TreatmentRule(WeightedLeastSquares):
    """The linear rule over all covariates, or over a public choice of them.

    ``features`` are names declared by the domain's ranges, or column numbers without the intercept; they
    are shrunk radially to ``features_bound`` (default: the domain's own bound, which already holds).
    Theta defaults to the l1 ball of radius M'/M, over which no predicted effect exceeds M'.
    """

    features: tuple[str | int, ...] | None = None
    features_bound: float | None = None

    name = "itr"
    formula = (
        "theta = argmin sum w_i (2(2a_i-1)y_i - x_i'theta)^2 + n R(theta) + n gamma/2 |theta|^2 + b'theta"
    )
    citation = "Tian et al. (2014); Chen et al. (2017); Lee & Chen (2026), Corollary ITR"
    theorem = "Theorems 1 and 2: zeta_c = max sin(t) (2 M^2 |theta| cos(t) + 4 M M'), trace 2 M^2"
    defaults = MappingProxyType(
        {"theta_set": "l1 ball of radius M'/M", "features": "all", "features_bound": "that of the domain"}
    )
    default_kind = L1Ball(1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features_bound is not None:
            object.__setattr__(
                self, "features_bound", public_number("features_bound", self.features_bound, above=0)
            )
        if self.features is not None:
            if (
                isinstance(self.features, str)
                or not isinstance(self.features, tuple | list)
                or not self.features
            ):
                raise DeclarationError(f"features = {self.features!r}: must be a list of covariates")
            object.__setattr__(self, "features", tuple(self.features))

    def columns(self, domain: Domain, n_features: int) -> list[int]:
        """Column numbers of the chosen features. Raises DeclarationError on an unknown or repeated one."""
        if self.features is None:
            return list(range(n_features))
        known = domain.columns or ()
        found = [known.index(f) if f in known else f for f in self.features]
        for index in found:
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < n_features:
                raise DeclarationError(
                    f"features: unknown covariate {index!r}; known: {', '.join(known) or n_features}"
                )
        if len(set(found)) < len(found):
            # a column counted twice would leave the ball that the constants are derived for
            raise DeclarationError("features: a covariate is named twice")
        return [int(index) for index in found]

    def covariates(self, domain: Domain, X: Array) -> Array:
        """Rows of the design from records already in the domain (intercept column included)."""
        constant = 1 if domain.intercept else 0
        chosen = X[:, constant:][:, self.columns(domain, X.shape[1] - constant)]
        if self.features_bound is not None:
            chosen = clip_norm(chosen, self.features_bound)
        return np.hstack([X[:, :constant], chosen])

    def default_set(self, domain: Domain) -> ConvexSet:
        return L1Ball(domain.outcome_bound / domain.covariate_bound)

    def design(self, records: Records) -> tuple[Array, Array]:
        z = 2.0 * (2 * records.a - 1) * records.y
        return self.covariates(records.domain, records.X), z

    def loss_constants(self, domain: Domain, n_features: int) -> LossConstants:
        p = len(self.columns(domain, n_features)) + (1 if domain.intercept else 0)
        bound = domain.features_bound if self.features_bound is None else self.features_bound
        M = min(domain.covariate_bound, float(np.hypot(domain.intercept, bound)))
        size = self.feasible(domain).norm_bound(p)
        radius = _gradient_radius(2 * M**2 * size, 4 * M * domain.outcome_bound)
        return LossConstants(
            n_parameters=p,
            gradient_radius=radius,
            hessian_trace=2 * M**2,
            strong_convexity=self.regularizer.strong_convexity,
            theta_bound=size if np.isfinite(size) else None,
            outcome_bound=domain.outcome_bound,
            gradient_bound=2 * M**2 * size + 4 * M * domain.outcome_bound,
            covariate_bound=M,
            response_bound=2 * domain.outcome_bound,
        )

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        chosen = tuple(columns[index] for index in self.columns(domain, len(columns)))
        return ("intercept", *chosen) if domain.intercept else chosen

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        # row by row: in a matrix product the rounding of a row may depend on where it stands
        rowwise: Array = np.sum(self.covariates(domain, domain.features(X)) * theta, axis=1)
        return rowwise


def _gradient_radius(curvature: float, slope: float) -> float:
    """Half the diameter of ``{2 (<x, theta> - z) x}``: ``max_t sin(t) (A cos(t) + B)``, rounded up.

    ``A = curvature = 2 M^2 ||theta||`` and ``B = slope = 2 M Z`` over ``||x|| <= M``, ``|z| <= Z``.
    Attained in two dimensions and more, where the extreme gradients trace a limacon; proof on the page of
    programs.
    """
    if math.isinf(curvature):
        return math.inf
    cosine = 2 * curvature / (slope + math.hypot(slope, math.sqrt(8) * curvature))
    return math.sqrt(1 - cosine**2) * (curvature * cosine + slope) * (1 + 1e-12)
