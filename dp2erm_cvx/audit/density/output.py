"""The density of numbers that are released with noise added to them (Theorems 8, 10 and 12)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.density.law import Law, Place, tail
from dp2erm_cvx.audit.density.objective import UNIT
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.domain import Array


@dataclass(frozen=True, eq=False)
class ShiftLaw(Law):
    """Independent noise on every number of ``center`` (m,): discrete Laplace or Gaussian where ``whole``.

    Log density ``-||u - center||_1 / scale``, or minus half the squared distance in scales. Whole numbers
    with Gaussian noise are rounded after the noise: the density is of both, and a later step sees theta.

    Parameters
    ----------
    moved : bound on the error of the computed center, in the l1 norm
    last : whether no later step depends on the numbers; under Laplace noise the worst of all outputs is then
        the center itself, whatever else is released, and the law has no coordinates
    """

    center: Array
    scale: float
    noise: Noise
    moved: float
    whole: bool
    last: bool

    @property
    def dimension(self) -> int:
        return 0 if self.last and self.pure else len(self.center)

    @property
    def pure(self) -> bool:
        return self.noise.pure

    @property
    def units(self) -> Array:
        return np.full(self.dimension, self.scale)

    def place(self, u: Array) -> Place:
        """The output nearest to ``u``, with what rounding takes off Gaussian noise as its multiplier."""
        if self.dimension == 0:
            u = self.center
        theta = np.rint(u) if self.whole else u
        rounded = u - theta if self.whole and not self.pure else np.zeros(len(u))
        return Place(theta, rounded, np.eye(len(u)))

    def _distance(self, place: Place) -> float:
        apart = place.theta + place.multiplier - self.center
        return float(np.sum(np.abs(apart)) if self.pure else np.linalg.norm(apart))

    def log_density(self, place: Place) -> float:
        sizes = self._distance(place) / self.scale
        return -sizes if self.pure else -(sizes**2) / 2

    def error(self, place: Place) -> float:
        rounding = 8 * UNIT * float(np.sum(np.abs(self.center)) + np.sum(np.abs(place.theta)))
        return tail(self.moved + rounding, self._distance(place), self.scale, pure=self.pure)

    def draw(self, rng: np.random.Generator) -> Place:
        size = len(self.center)
        if not self.pure:
            noise = rng.normal(scale=self.scale, size=size)
        elif self.whole:
            one, other = np.floor(rng.exponential(self.scale, (2, size)))
            noise = one - other
        else:
            noise = rng.laplace(scale=self.scale, size=size)
        u = self.center + noise
        theta = np.rint(u) if self.whole else u
        return Place(theta, u - theta, np.eye(size))

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """The two centers, between which the ratio turns, and points beyond both."""
        assert isinstance(other, ShiftLaw)
        if self.dimension == 0:
            return [np.zeros(0)]
        beyond = self.scale * rng.standard_normal((count, len(self.center)))
        return [self.center, other.center, *(self.center + beyond), *(other.center + beyond)]
