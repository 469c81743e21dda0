"""Prices of imbalances among the columns of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.forms.form import Penalty
from dp2erm_cvx.weighting.forms.shapes import Shape, shape_of

#: What refuses a price whose gradient jumps by more and more.
ROUGH = (
    "the slope of this square jumps, by more the farther it is from 0: give smoothing= a public "
    "number"
)


@dataclass(frozen=True)
class PricedColumns:
    """The coordinates of one imbalance and their penalty.

    Parameters
    ----------
    penalty
        The penalty.
    columns
        Where its coordinates stand among all.

    Raises
    ------
    DeclarationError
        For a kink beyond a tolerance, and for squares of a norm that have to be smoothed.
    """

    penalty: Penalty
    columns: slice

    def __post_init__(self) -> None:
        if self.penalty.kinked and np.any(self.penalty.tolerance):
            raise DeclarationError(
                "kink beyond a tolerance: write cp.sum_squares(cp.pos(cp.abs(m) - t))"
            )
        if self.penalty.rough:
            raise DeclarationError(
                f"square of the {self.penalty.norm:g}-norm of an imbalance: {ROUGH}"
            )

    @cached_property
    def shape(self) -> Shape:
        """The functions of the penalty."""
        return shape_of(self.penalty)

    def value(self, s: Array) -> float:
        """The penalty at s (K,); 0 for a constraint."""
        return self.shape.value(s)

    def price(self, s: Array, preferred: Array) -> Array:
        """A slope lambda (.., K) of the penalty at s (.., K): at a kink one near ``preferred``."""
        return self.shape.price(s, preferred)

    def price_slack(self, s: Array) -> Array:
        """Units of roundoff, in prices, by which the norm of a computed price may be off.

        They are beside those of its size.

        One number for every point: s (.., K) has the slack (..).
        """
        return self.shape.slack(s)

    def drift(self, s: Array, prices: Array) -> Array:
        """Distance (.., K) from s (.., K) of the imbalance of exactly these ``prices`` (.., K)."""
        return self.shape.drift(s, prices)

    def proximal_point(self, y: Array, step: float) -> Array:
        """``argmin penalty(s) + |s - y|^2 / (2 step)`` (.., K) of y (.., K)."""
        return self.shape.proximal_point(y, step)

    def prox(self, y: Array, step: float) -> tuple[Array, Array]:
        """The proximal point (.., K) of y (.., K), and its Jacobian (.., K, K)."""
        return self.shape.prox(y, step)

    def width_at_kink(self, numbers: Array) -> Array:
        """Largest sum (..) of numbers (.., K) times a difference of slopes; 0 without a kink."""
        if not self.penalty.kinked:
            return np.zeros(numbers.shape[:-1])
        ends = 1.0 if self.penalty.sided else 2.0
        return np.asarray(ends * self.penalty.price * self.shape.size_at_kink(numbers))

    def support(self, prices: Array) -> float:
        """Largest ``<prices, s>`` over the imbalances s (K,) that a constraint allows, or 0."""
        if not self.penalty.hard:
            return 0.0
        return self.shape.support(prices)
