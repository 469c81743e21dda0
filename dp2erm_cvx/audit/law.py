"""The exact density of an objective-perturbed release on one dataset, in Minty coordinates.

Proof of Theorem 1: theta is the output for the noise b iff ``-b - grad Phi(theta)`` is a subgradient v of h
at theta, with Phi the smooth part of n times the objective and h the rest (the l1 term and Theta). A step s
gives the coordinates ``u = theta + s v`` of such a pair, ``theta = prox_{s h}(u)``, in which the density is
``nu(T(u)) |det DT(u)|``, ``T(u) = -grad Phi(theta) - v``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.program import LeastSquaresModel, Penalty
from dp2erm_cvx.solve.newton import minimize

_UNIT = float(np.finfo(np.float64).eps)

#: A drawn noise must be met to this, relative to the terms that cancel in it.
_RESIDUAL = 1e-9


@dataclass(frozen=True, eq=False)
class Place:
    """theta, its multiplier v, and the derivative Pi of the prox there; the same for every dataset.

    ``regular``: Pi is the identity, so that theta is inside Theta and off the kinks of R, v is a function of
    theta, and the density ratio of theta alone is that of the pair.
    """

    theta: Array
    multiplier: Array
    slope: Array

    @cached_property
    def regular(self) -> bool:
        """Whether theta alone determines the pair."""
        return float(self.slope.trace()) == len(self.theta)  # 0 <= Pi <= I


@dataclass(frozen=True)
class Coordinates:
    """Minty coordinates of the graph of the subdifferential of h: public, so common to all datasets."""

    penalty: Penalty
    step: float

    def place(self, u: Array) -> Place:
        """The pair (theta, v) at ``u`` (p,)."""
        theta = self.penalty.prox(u, self.step)
        slope = self.penalty.jacobian(u, self.step)
        return Place(theta, (u - theta) / self.step, slope)


@dataclass(frozen=True, eq=False)
class OutputLaw:
    """The law of the release on one dataset. ``weights_error`` bounds ``||w_hat - w||_1``."""

    model: LeastSquaresModel
    calibration: Calibration
    coordinates: Coordinates
    weights_error: float

    @cached_property
    def _hessian(self) -> Array:
        return self.model.hessian(np.zeros(self.model.dimension))

    @cached_property
    def _origin(self) -> Array:
        return self.model.gradient(np.zeros(self.model.dimension))

    @cached_property
    def _lowest(self) -> float:
        return float(np.linalg.eigvalsh(self._hessian)[0])

    @cached_property
    def _log_volume(self) -> float:
        return float(np.linalg.slogdet(self._hessian)[1])

    def gradient(self, theta: Array) -> Array:
        """Gradient of Phi, (p,); Phi is quadratic."""
        gradient: Array = self._hessian @ theta + self._origin
        return gradient

    def noise(self, place: Place) -> Array:
        """The noise b (p,) that makes the pair the output."""
        return -self.gradient(place.theta) - place.multiplier

    def _jacobian(self, place: Place) -> Array:
        rest = np.eye(self.model.dimension) - place.slope
        jacobian: Array = self._hessian @ place.slope + rest / self.coordinates.step
        return jacobian

    def log_density(self, place: Place) -> float:
        """Log density of u, less the constant of the noise, which is the same for every dataset."""
        length = float(np.linalg.norm(self.noise(place))) / self.calibration.scale
        exponent = length if self.calibration.noise is Noise.GAMMA else length**2 / 2
        if place.regular:
            return self._log_volume - exponent
        return float(np.linalg.slogdet(self._jacobian(place))[1]) - exponent

    def error(self, place: Place) -> float:
        """Bound on the error of :meth:`log_density`: of the computed weights, and of rounding to first order.

        An error e of the weights in l1 moves the gradient by at most ``e max ||grad l||`` and the Hessian by
        ``2 e max ||x||^2`` in trace norm, hence the log determinant by that over its smallest eigenvalue.
        """
        model, theta = self.model, place.theta
        steepest = float(np.max(2 * model.row_norms * np.abs(model.X @ theta - model.z)))
        sizes = np.abs(self._hessian) @ np.abs(theta) + np.abs(self._origin) + np.abs(place.multiplier)
        rounding = 2 * model.rounding(theta) + 16 * model.dimension * _UNIT * float(np.linalg.norm(sizes))
        # v is a difference: it loses what theta is larger than s v
        rounding += 8 * _UNIT * float(np.linalg.norm(theta)) / self.coordinates.step
        moved = self.weights_error * steepest + rounding
        scale = self.calibration.scale
        tail = moved / scale
        if self.calibration.noise is Noise.GAUSSIAN:
            tail *= (float(np.linalg.norm(self.noise(place))) + moved) / scale
        bent = 2 * self.weights_error * float(np.max(model.row_norms)) ** 2 / self._lowest
        condition = float(np.linalg.cond(self._jacobian(place)))
        return tail + bent + 64 * model.dimension * _UNIT * condition

    def place_of(self, noise: Array) -> tuple[Array, Place]:
        """Coordinates u (p,) and pair of the output for the noise ``b`` (p,); raises CertificateError."""
        model = copy.copy(self.model)
        model.noise = noise
        theta = minimize(model, model.start()).point
        u = theta - self.coordinates.step * (self.gradient(theta) + noise)
        place = self.coordinates.place(u)
        terms = float(np.linalg.norm(self._origin)) + float(np.linalg.norm(noise)) + 1e-300
        if not np.linalg.norm(self.noise(place) - noise) <= _RESIDUAL * terms:
            raise CertificateError("density audit: the output of a drawn noise could not be solved for")
        return u, place
