"""The objective and the constraints of a form at given features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.forms.form import Arms, WeightingForm
from dp2erm_cvx.weighting.forms.shapes import shape_of


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
            total += shape_of(imbalance.penalty).value(m)
        return total

    def slope(self, w: Array) -> Array:
        """Slope (n,) of the objective by the weights w (n,); at a kink one of its subgradients."""
        slope = self.form.dispersion.slope(w / self.base) + self.linear
        m = self.imbalances(w)
        for place, imbalance in enumerate(self.form.imbalances):
            own = shape_of(imbalance.penalty).price(m[place], np.zeros_like(m[place]))
            slope = slope + self.rows[place] @ own
        return slope
