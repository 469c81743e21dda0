"""Problems with kinks that are judged by a duality gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import ConvexSet, Simplices
from dp2erm_cvx.model.supports import LoadedFunction


@dataclass(frozen=True, eq=False)
class KinkedProblem:
    """Minimize ``f + G`` over a set, subject to ``h <= 0``: what a duality gap judges.

    Parameters
    ----------
    kinks
        G, of one value, at data.
    feasible
        The set, with its projection.
    strong_convexity
        m > 0 with ``f + G - m/2 ||.||^2`` convex, as declared; 0 where none is.
    smooth
        f, smooth and convex; None for 0.
    beside
        h, at data; None without constraints beside the set.
    inside
        A point (d,) of the set at which h is to be below 0.
    scale
        Public size of the variable, in whose units the conic solver works.
    """

    kinks: LoadedFunction
    feasible: ConvexSet | Simplices
    strong_convexity: float
    smooth: Composite | None = None
    beside: LoadedFunction | None = None
    inside: Array | None = None
    scale: float = 1.0

    @property
    def is_quadratic(self) -> bool:
        """True if f is a quadratic, whose Hessian is that of any point."""
        return self.smooth is None or self.smooth.self_concordance == 0.0

    def value(self, point: Array) -> float:
        """F + G at a point (d,)."""
        values, _ = self.kinks.values(point, np.zeros_like(point))
        value = float(values[0])
        if self.smooth is not None:
            value += self.smooth.value(point)
        return value
