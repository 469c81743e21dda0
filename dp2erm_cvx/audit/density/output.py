"""The density of a mean that is released with Laplace noise (Theorem 8)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit.density.law import Law, Place
from dp2erm_cvx.audit.density.objective import UNIT
from dp2erm_cvx.calibration import OutputCalibration
from dp2erm_cvx.domain import Array
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel


@dataclass(frozen=True, eq=False)
class MeanLaw(Law):
    """Laplace noise around the weighted mean T: log density ``-|theta - T| / scale``, before a projection.

    ``weights_error`` bounds ``||w_hat - w||_1``.
    """

    model: LeastSquaresModel
    calibration: OutputCalibration
    weights_error: float

    @property
    def dimension(self) -> int:
        return 1

    @property
    def pure(self) -> bool:
        return True

    @property
    def units(self) -> Array:
        return np.array([self.calibration.scale])

    @property
    def center(self) -> float:
        """T, in units of theta."""
        model = self.model
        return math.fsum(model.weights * model.z) / math.fsum(model.weights)

    def place(self, u: Array) -> Place:
        """The output is u itself, and has no multiplier."""
        return Place(u, np.zeros(1), np.eye(1))

    def log_density(self, place: Place) -> float:
        return -abs(float(place.theta[0]) - self.center) / self.calibration.scale

    def error(self, place: Place) -> float:
        """Bound on the error of the log density.

        An error e of the weights in l1, whose sum is n for all, moves T by at most ``e max |z| / n``.
        """
        model = self.model
        largest = float(np.max(np.abs(model.z)))
        moved = self.weights_error * largest / model.n + 8 * UNIT * (largest + abs(float(place.theta[0])))
        return moved / self.calibration.scale

    def outputs(self, size: int, rng: np.random.Generator) -> list[Array]:
        noise = simulate_noise(self.calibration.law, size, rng)
        return [b + self.center for b in noise]

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """The two means, between which the ratio turns, and points beyond both."""
        assert isinstance(other, MeanLaw)
        ends = sorted((self.center, other.center))
        beyond = self.calibration.scale
        return [np.array([theta]) for theta in (*ends, ends[0] - beyond, ends[1] + beyond)]
