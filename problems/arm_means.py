"""Average treatment effects as weighted means: of either arm, or the paper's plug-in.

minimize    sum_i w_i (z_i - <x_i, theta>)^2 + n R(theta) + n gamma/2 ||theta||^2 + <b, theta>
subject to  theta in Theta, by default a box of the bound on z

``arm_means`` has x = (1 - a, a) and z = y, the centered outcome: the effect is theta_1 - theta_0, whatever
the arm masses are, which a ridge in the first stage may leave unequal. ``plug_in_ate`` is the regression of
``itr`` with x = 1 and z = 2 (2a - 1) y: theta is its weighted mean, which estimates the effect only where
each arm has weight n/2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.program import Array, Box, Curve, Domain, MarginRows, Records, SecondStage, Universe
from dp2erm_cvx.program.curves import SQUARE
from dp2erm_cvx.program.margin_rows import RowBounds


@dataclass(frozen=True)
class ArmMeans(SecondStage):
    """Two parameters: the weighted mean outcome without and with treatment, minus the public center."""

    loss: ClassVar[Curve] = SQUARE

    name = "arm_means"
    formula = (
        "theta = argmin sum w_i (y_i - theta_{a_i})^2 + n gamma/2 |theta|^2 + b'theta;  ATE = theta_1-theta_0"
    )
    cone = "QP (SOCP over an l2 ball)"
    citation = "Hajek-type weighted difference of means"
    defaults: ClassVar[Mapping[str, str]] = MappingProxyType({"theta_set": "box M'"})
    default_kind = Box(1.0)

    def default_set(self, domain: Domain) -> ConvexSet:
        return Box(domain.outcome_bound)

    def rows(self, records: Records) -> MarginRows:
        return MarginRows(np.column_stack([1.0 - records.a, records.a]).astype(np.float64), records.y)

    def row_bounds(self, universe: Universe) -> RowBounds:
        bound = universe.domain.outcome_bound
        return RowBounds(1.0, (-bound, bound), vertices=2)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        return ("mean_control", "mean_treated")

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        return np.full(len(np.atleast_2d(np.asarray(X))), theta[1] - theta[0])


@dataclass(frozen=True)
class PlugInATE(ArmMeans):
    """One parameter, the weighted mean of ``2 (2a - 1) y`` with y centered at the public center."""

    name = "plug_in_ate"
    formula = "theta = argmin sum w_i (2(2a_i-1)y_i - theta)^2 + n gamma/2 theta^2 + b theta"
    citation = "Lee & Chen (2026), plug-in specialization"
    defaults = MappingProxyType({"theta_set": "box 2M'"})

    def default_set(self, domain: Domain) -> ConvexSet:
        return Box(2 * domain.outcome_bound)

    def rows(self, records: Records) -> MarginRows:
        return MarginRows(np.ones((records.n_samples, 1)), 2.0 * (2 * records.a - 1) * records.y)

    def row_bounds(self, universe: Universe) -> RowBounds:
        bound = 2 * universe.domain.outcome_bound
        return RowBounds(1.0, (-bound, bound), vertices=1)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        return ("effect",)

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        return np.full(len(np.atleast_2d(np.asarray(X))), theta[0])
