"""The joint density of a private first stage and what is fitted given its coefficient (Theorem 9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.density.law import Law, Place
from dp2erm_cvx.audit.density.objective import ObjectiveLaw
from dp2erm_cvx.domain import Array


@dataclass(frozen=True, eq=False)
class JointPlace(Place):
    """theta given a coefficient: ``theta``, ``multiplier`` and ``slope`` are those of ``given``."""

    coefficient: Place
    given: Place

    @property
    def regular(self) -> bool:
        """False: theta does not determine the coefficient, which the density is of, too."""
        return False


@dataclass(frozen=True, eq=False)
class JointLaw(Law):
    """The law of (coefficient, theta): the densities of both, multiplied.

    The coefficient is an output that the second stage may depend on, and the release of theta is
    post-processing of the pair. ``second`` maps a coefficient (d,) to the law of theta given it.
    """

    first: ObjectiveLaw
    second: Callable[[Array], Law]

    @property
    def _unperturbed(self) -> Law:
        return self.second(np.zeros(self.first.dimension))

    @property
    def dimension(self) -> int:
        return self.first.dimension + self._unperturbed.dimension

    @property
    def pure(self) -> bool:
        return self.first.pure and self._unperturbed.pure

    @property
    def units(self) -> Array:
        return np.concatenate([self.first.units, self._unperturbed.units])

    def place(self, u: Array) -> JointPlace:
        split = self.first.dimension
        coefficient = self.first.place(u[:split])
        given = self.second(coefficient.theta).place(u[split:])
        return JointPlace(given.theta, given.multiplier, given.slope, coefficient, given)

    def log_density(self, place: Place) -> float:
        assert isinstance(place, JointPlace)
        law = self.second(place.coefficient.theta)
        return self.first.log_density(place.coefficient) + law.log_density(place.given)

    def error(self, place: Place) -> float:
        assert isinstance(place, JointPlace)
        return self.first.error(place.coefficient) + self.second(place.coefficient.theta).error(place.given)

    def outputs(self, size: int, rng: np.random.Generator) -> list[Array]:
        found = []
        for u in self.first.outputs(size, rng):
            law = self.second(self.first.place(u).theta)
            found.append(np.concatenate([u, *law.outputs(1, rng)]))
        return found

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Those of the coefficient, each with a few of theta given it."""
        assert isinstance(other, JointLaw)
        found = []
        for u in self.first.starts(other.first, count, rng):
            coefficient = self.first.place(u).theta
            mine, theirs = self.second(coefficient), other.second(coefficient)
            found += [np.concatenate([u, below]) for below in mine.starts(theirs, 1, rng)]
        return found
