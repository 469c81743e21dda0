"""The objective and the constraints of a form at given features: values and slopes by the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.weighting.form import Arms, ImbalancePenalty, WeightingForm


def imbalance_sizes(penalty: ImbalancePenalty, m: Array) -> Array:
    """What a penalty prices: the sizes (K,) of the entries of an imbalance m (K,), or its norm (1,)."""
    if penalty.norm is None:
        return np.abs(m)
    return np.array([np.linalg.norm(m, penalty.norm)])


def excess_of_imbalance(penalty: ImbalancePenalty, m: Array) -> Array:
    """Sizes beyond the tolerance; a constraint holds where none of them is above 0."""
    return np.asarray(imbalance_sizes(penalty, m) - penalty.tolerance)


def imbalance_price(penalty: ImbalancePenalty, m: Array) -> float:
    """Price of an imbalance m (K,); 0 for a constraint, which is no part of the objective."""
    if penalty.hard:
        return 0.0
    if penalty.kinked:
        return penalty.price * float(np.sum(imbalance_sizes(penalty, m)))
    excess = np.maximum(excess_of_imbalance(penalty, m), 0.0)
    near = np.minimum(excess, penalty.knee)
    return penalty.factor * float(np.sum(near * (2.0 * excess - near)))


def imbalance_slope(penalty: ImbalancePenalty, m: Array) -> Array:
    """Slope (K,) of the price by m (K,); at a kink one of its subgradients."""
    if penalty.hard:
        return np.zeros_like(m)
    if penalty.kinked:
        by_size = np.full_like(imbalance_sizes(penalty, m), penalty.price)
    else:
        excess = np.maximum(excess_of_imbalance(penalty, m), 0.0)
        by_size = 2.0 * penalty.factor * np.minimum(excess, penalty.knee)
    return by_size * _slope_of_size(penalty.norm, m)


def _slope_of_size(norm: float | None, m: Array) -> Array:
    """Slope of the sizes of entries, or of the norm, by m."""
    if norm is None:
        return np.sign(m)
    if math.isinf(norm):
        slope = np.zeros_like(m)
        largest = int(np.argmax(np.abs(m)))
        slope[largest] = np.sign(m[largest])
        return slope
    length = float(np.linalg.norm(m))
    if length == 0.0:
        return np.zeros_like(m)
    return m / length


@dataclass(frozen=True)
class WeightingObjective:
    """The objective of a form at the records whose features are given.

    Parameters
    ----------
    form
        The form.
    phi
        Features (n, width) by name; of a kernel any vectors with its inner products.
    a
        Treatment of every record, (n,).
    """

    form: WeightingForm
    phi: Mapping[str, Array]
    a: Arms

    @cached_property
    def base(self) -> Array:
        """Base weights d (n,); 1 where the form has none."""
        if self.form.base is None:
            return np.ones(len(self.a))
        return self.phi[self.form.base.name][:, 0]

    @cached_property
    def linear(self) -> Array:
        """What is added to the slope of the dispersion of every record, (n,)."""
        linear = self.form.linear
        if linear is None:
            return np.zeros(len(self.a))
        return linear.row(self.phi[linear.features.name], self.a)[:, 0]

    @cached_property
    def rows(self) -> tuple[Array, ...]:
        """Rows (n, K) of every imbalance."""
        return tuple(imbalance.rows(self.phi, self.a) for imbalance in self.form.imbalances)

    @cached_property
    def targets(self) -> tuple[Array, ...]:
        """Targets (K,) of every imbalance."""
        return tuple(imbalance.targets(self.phi, self.a) for imbalance in self.form.imbalances)

    def imbalances(self, w: Array) -> tuple[Array, ...]:
        """Every imbalance m (K,) at weights w (n,)."""
        pairs = zip(self.rows, self.targets, strict=True)
        return tuple(w @ rows - target for rows, target in pairs)

    def value(self, w: Array) -> float:
        """Dispersion of weights w (n,) and prices of their imbalances."""
        dispersion = float(np.sum(self.base * self.form.dispersion.value(w / self.base)))
        total = dispersion + float(self.linear @ w)
        for imbalance, m in zip(self.form.imbalances, self.imbalances(w), strict=True):
            total += imbalance_price(imbalance.penalty, m)
        return total

    def slope(self, w: Array) -> Array:
        """Slope (n,) of the objective by the weights w (n,)."""
        slope = self.form.dispersion.slope(w / self.base) + self.linear
        m = self.imbalances(w)
        for place, imbalance in enumerate(self.form.imbalances):
            slope = slope + self.rows[place] @ imbalance_slope(imbalance.penalty, m[place])
        return slope
