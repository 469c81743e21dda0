"""The exact density of an objective-perturbed output on one dataset, in Minty coordinates.

Proof of Theorem 1: theta is the output for the noise b iff ``-b - grad Phi(theta)`` is a subgradient v of h
at theta, with Phi the smooth part of n times the objective and h the rest (the l1 term and Theta). A step s
gives the coordinates ``u = theta + s v`` of such a pair, ``theta = prox_{s h}(u)``, in which the density is
``nu(T(u)) |det DT(u)|``, ``T(u) = -grad Phi(theta) - v``. The same holds for the coefficient of a private
first stage, with its own Phi and h.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.audit.density.law import Law, Place
from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.solve.newton import minimize_by_newton

UNIT = float(np.finfo(np.float64).eps)

#: A drawn noise must be met to this, relative to the terms that cancel in it and to the scale.
_RESIDUAL = 1e-9


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
class ObjectiveLaw(Law):
    """The law of the minimizer of ``model`` with noise of this ``calibration``; the model holds no noise."""

    model: LeastSquaresModel | MarginModel
    calibration: Calibration
    coordinates: Coordinates

    @property
    def dimension(self) -> int:
        return self.model.dimension

    @property
    def pure(self) -> bool:
        return self.calibration.noise is Noise.GAMMA

    @property
    def units(self) -> Array:
        """What the noise moves u by, (p,)."""
        return np.full(self.dimension, self.coordinates.step * self.calibration.scale)

    @cached_property
    def _origin(self) -> Array:
        return self.model.gradient(np.zeros(self.dimension))

    def gradient(self, theta: Array) -> Array:
        """Gradient of Phi, (p,)."""
        return self.model.gradient(theta)

    def hessian(self, theta: Array) -> Array:
        """Hessian of Phi, (p, p)."""
        return self.model.hessian(theta)

    def noise(self, place: Place) -> Array:
        """The noise b (p,) that makes the pair the output."""
        return -self.gradient(place.theta) - place.multiplier

    def _jacobian(self, place: Place) -> Array:
        rest = np.eye(self.dimension) - place.slope
        jacobian: Array = self.hessian(place.theta) @ place.slope + rest / self.coordinates.step
        return jacobian

    def _log_volume(self, place: Place) -> float:
        return float(np.linalg.slogdet(self._jacobian(place))[1])

    def place(self, u: Array) -> Place:
        """The pair (theta, v) at ``u`` (p,)."""
        return self.coordinates.place(u)

    def log_density(self, place: Place) -> float:
        length = float(np.linalg.norm(self.noise(place))) / self.calibration.scale
        return self._log_volume(place) - (length if self.pure else length**2 / 2)

    def error(self, place: Place) -> float:
        """Bound on the error of :meth:`log_density` from rounding, to first order."""
        theta = place.theta
        sizes = np.abs(self.hessian(theta)) @ np.abs(theta) + np.abs(self._origin) + np.abs(place.multiplier)
        moved = 2 * self.model.rounding(theta) + 16 * self.dimension * UNIT * float(np.linalg.norm(sizes))
        # v is a difference: it loses what theta is larger than s v
        moved += 8 * UNIT * float(np.linalg.norm(theta)) / self.coordinates.step
        condition = float(np.linalg.cond(self._jacobian(place)))
        return self._tail(place, moved) + 64 * self.dimension * UNIT * condition

    def _tail(self, place: Place, moved: float) -> float:
        """How far the log density of the noise changes where the noise moves by ``moved``."""
        scale = self.calibration.scale
        if self.pure:
            return moved / scale
        return moved / scale * (float(np.linalg.norm(self.noise(place))) + moved) / scale

    def at_noise(self, noise: Array) -> Array:
        """Coordinates u (p,) of the output for the noise ``b`` (p,); raises CertificateError."""
        model = copy.copy(self.model)
        model.linear = self.model.linear + noise
        theta = minimize_by_newton(model, model.start()).point
        u: Array = theta - self.coordinates.step * (self.gradient(theta) + noise)
        terms = float(np.linalg.norm(self._origin)) + float(np.linalg.norm(noise)) + self.calibration.scale
        if not np.linalg.norm(self.noise(self.place(u)) - noise) <= _RESIDUAL * terms:
            raise CertificateError("density audit: the output of a drawn noise could not be solved for")
        return u

    def outputs(self, size: int, rng: np.random.Generator) -> list[Array]:
        return [self.at_noise(b) for b in simulate_noise(self.calibration, size, rng)]

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Typical outputs, those of no noise, those far out, and what they lead to.

        Gamma noise is worst where both noises point along the difference of the gradients: every start is
        followed by the points that this asks for at its theta.
        """
        assert isinstance(other, ObjectiveLaw)
        zero, step = np.zeros(self.dimension), self.coordinates.step
        found = [law.at_noise(zero) for law in (self, other)]
        for law in (self, other):
            found += law.outputs((count + 1) // 2, rng)
        reach = self.calibration.scale * step * self.dimension
        found += [
            reach * 10.0 ** rng.uniform(-1, 3) * direction / np.linalg.norm(direction)
            for direction in rng.standard_normal((count, self.dimension))
        ]
        for u in list(found):
            place = self.place(u)
            # just inside Theta, where the search among regular points has to begin
            found.append(0.999 * place.theta + step * self.coordinates.penalty.l1 * np.sign(u))
            b = self.noise(place)
            apart = other.noise(place) - b
            for factor in (0.0, 1.0, 100.0):
                found.append(u + step * (b - factor * apart))
        return found


@dataclass(frozen=True, eq=False)
class SquaredLaw(ObjectiveLaw):
    """The same for a squared loss with computed weights. ``weights_error`` bounds ``||w_hat - w||_1``."""

    model: LeastSquaresModel
    weights_error: float

    @cached_property
    def _curvature(self) -> Array:
        return self.model.hessian(np.zeros(self.dimension))

    @cached_property
    def _lowest(self) -> float:
        return float(np.linalg.eigvalsh(self._curvature)[0])

    @cached_property
    def _inner_volume(self) -> float:
        return float(np.linalg.slogdet(self._curvature)[1])

    def gradient(self, theta: Array) -> Array:
        gradient: Array = self._curvature @ theta + self._origin
        return gradient

    def hessian(self, theta: Array) -> Array:
        return self._curvature

    def _log_volume(self, place: Place) -> float:
        return self._inner_volume if place.regular else super()._log_volume(place)

    def error(self, place: Place) -> float:
        """Bound on the error of the log density: of the computed weights too.

        An error e of the weights in l1 moves the gradient by at most ``e max ||grad l||`` and the Hessian by
        ``2 e max ||x||^2`` in trace norm, hence the log determinant by that over its smallest eigenvalue.
        """
        model = self.model
        steepest = float(np.max(2 * model.row_norms * np.abs(model.X @ place.theta - model.z)))
        bent = 2 * self.weights_error * float(np.max(model.row_norms)) ** 2 / self._lowest
        return super().error(place) + self._tail(place, self.weights_error * steepest) + bent
