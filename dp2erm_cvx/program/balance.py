"""Balance functions g(x): public maps of one record's covariates with a public norm bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.domain import Array, clip_norm
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import public_number


@dataclass(frozen=True)
class Moments:
    """Raw moments ``(x, x^2, ..., x^degree)`` of every scaled covariate, without cross products."""

    degree: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or not 1 <= self.degree <= 10:
            raise DeclarationError(f"degree = {self.degree!r}: must be a whole number from 1 to 10")

    def bound(self, features_bound: float) -> float:
        """Norm bound over the ball: ``sqrt(sum_k M^(2k))``, because sum_j x_j^(2k) <= ||x||^(2k)."""
        return math.sqrt(math.fsum(features_bound ** (2 * k) for k in range(1, self.degree + 1)))

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, p * degree)."""
        return np.hstack([X**k for k in range(1, self.degree + 1)])

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"moments": self.degree}


@dataclass(frozen=True)
class BalanceFunctions:
    """The user's own ``function`` of one covariate vector (p,) -> (k,), shrunk radially to ``norm_bound``.

    The function sees one record at a time, so it cannot depend on the others; its values are
    clipped to the declared bound, so the guarantee does not rest on the bound being right.
    """

    function: Callable[[Array], Array]
    norm_bound: float
    name: str = "custom"

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm_bound", public_number("norm_bound", self.norm_bound, above=0))

    def bound(self, features_bound: float) -> float:
        """The declared norm bound."""
        return self.norm_bound

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, k). Values that are not finite are taken as 0: a fixed rule, not a refusal."""
        rows = np.stack([np.atleast_1d(np.asarray(self.function(row), dtype=np.float64)) for row in X])
        return clip_norm(np.nan_to_num(rows, nan=0.0, posinf=1e300, neginf=-1e300), self.norm_bound)

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"custom": self.name, "norm_bound": self.norm_bound}
