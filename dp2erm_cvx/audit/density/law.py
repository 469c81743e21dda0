"""What an audit needs to know of the law of a release on one dataset."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array


@dataclass(frozen=True, eq=False)
class Place:
    """theta, its multiplier v, and the derivative Pi of the prox there; the same for every dataset.

    ``regular``: Pi is the identity, so that theta is inside Theta and off the kinks of R, v is a function of
    theta, and the density ratio of theta alone is that of the pair.
    """

    theta: Array
    multiplier: Array
    slope: Array

    @property
    def regular(self) -> bool:
        """Whether theta alone determines everything that the density is of."""
        return float(self.slope.trace()) == len(self.theta)  # 0 <= Pi <= I


class Law(abc.ABC):
    """The law of an output on one dataset, by its density in coordinates u (d,) common to all datasets."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """Number of coordinates, d."""

    @property
    @abc.abstractmethod
    def pure(self) -> bool:
        """Whether all noise is of a kind whose log ratio is bounded."""

    @property
    @abc.abstractmethod
    def units(self) -> Array:
        """How far u typically spreads, (d,)."""

    @abc.abstractmethod
    def place(self, u: Array) -> Place:
        """The output at ``u``."""

    @abc.abstractmethod
    def log_density(self, place: Place) -> float:
        """Log density of u, less a constant that is the same for every dataset."""

    @abc.abstractmethod
    def error(self, place: Place) -> float:
        """Bound on the error of :meth:`log_density`: of what was solved, and of rounding to first order."""

    @abc.abstractmethod
    def outputs(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``u`` of ``size`` independent outputs."""

    @abc.abstractmethod
    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Where the density may be largest relative to that of ``other``, a law of the same kind."""


def log_ratio(one: Law, other: Law, place: Place) -> float:
    """Log of the density of ``one`` over that of ``other``."""
    return one.log_density(place) - other.log_density(place)
