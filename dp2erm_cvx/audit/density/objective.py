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

from dp2erm_cvx.audit.density.law import Law, Place, tail
from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.program.margin_model import MarginModel
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


#: What an objective may be: the sum of a loss of margins, the squared one among them, with an elastic net.
Objective = MarginModel


@dataclass(frozen=True)
class WeightsError:
    """A bound on ``||w_hat - w||_1`` of the computed weights, and the objective at weights 1."""

    bound: float
    unit: Objective

    def effect(self, theta: Array) -> tuple[float, float]:
        """Bounds on what it does to the gradient at theta, in norm, and to the Hessian, in trace norm.

        An error e in l1 moves a weighted sum by at most e times the largest term at weight 1.
        """
        model = self.unit
        s = model.margins(theta)
        steep = model.multipliers * np.abs(model.loss.slope(s))
        bent = model.multipliers * model.loss.curvature(s)
        norms = model.row_norms
        return self.bound * float(np.max(norms * steep)), self.bound * float(np.max(norms**2 * bent))


@dataclass(frozen=True, eq=False)
class ObjectiveLaw(Law):
    """The law of the minimizer of ``model`` with noise of this ``calibration``; the model holds no noise.

    ``weights`` bounds the error of its weights, None where they are exact. What is released is the minimizer
    times the public ``unscaled`` (p,): its density is the same but for a constant.
    """

    model: Objective
    calibration: Calibration
    coordinates: Coordinates
    unscaled: Array
    weights: WeightsError | None = None

    @property
    def dimension(self) -> int:
        return self.model.dimension

    @property
    def pure(self) -> bool:
        return self.calibration.noise.pure

    @property
    def units(self) -> Array:
        """What the noise moves u by, (p,)."""
        sizes = np.full(self.dimension, self.coordinates.step * self.calibration.scale)
        return sizes if self.calibration.box is None else sizes * np.array(self.calibration.box)

    @cached_property
    def _origin(self) -> Array:
        return self.model.gradient(np.zeros(self.dimension))

    def gradient(self, theta: Array) -> Array:
        """Gradient of Phi, (p,)."""
        if self.model.self_concordance == 0.0:  # a quadratic
            gradient: Array = self.hessian(theta) @ theta + self._origin
            return gradient
        return self.model.gradient(theta)

    def hessian(self, theta: Array) -> Array:
        """Hessian of Phi, (p, p)."""
        return self.model.hessian(theta)

    def noise(self, place: Place) -> Array:
        """The noise b (p,) that makes the pair the output."""
        return -self.gradient(place.theta) - place.multiplier

    def _length(self, place: Place) -> float:
        """The norm of the noise that its density falls with."""
        return float(self.calibration.norms(self.noise(place)))

    def _jacobian(self, place: Place) -> Array:
        rest = np.eye(self.dimension) - place.slope
        jacobian: Array = self.hessian(place.theta) @ place.slope + rest / self.coordinates.step
        return jacobian

    def place(self, u: Array) -> Place:
        """The pair (theta, v) at ``u`` (p,)."""
        return self.coordinates.place(u)

    def released(self, place: Place) -> Array:
        return place.theta * self.unscaled

    def log_density(self, place: Place) -> float:
        sizes = self._length(place) / self.calibration.scale
        volume = float(np.linalg.slogdet(self._jacobian(place))[1])
        return volume - (sizes if self.pure else sizes**2 / 2)

    def error(self, place: Place) -> float:
        """Bound on the error of :meth:`log_density`: of the weights, and of rounding to first order.

        The log determinant moves by at most the trace norm of an error of the Hessian over its smallest
        eigenvalue, whatever Pi is.
        """
        theta, hessian = place.theta, self.hessian(place.theta)
        sizes = np.abs(hessian) @ np.abs(theta) + np.abs(self._origin) + np.abs(place.multiplier)
        moved = 2 * self.model.rounding(theta) + 16 * self.dimension * UNIT * float(np.linalg.norm(sizes))
        # v is a difference: it loses what theta is larger than s v
        moved += 8 * UNIT * float(np.linalg.norm(theta)) / self.coordinates.step
        volume = 64 * self.dimension * UNIT * float(np.linalg.cond(self._jacobian(place)))
        if self.weights is not None:
            steep, bent = self.weights.effect(theta)
            moved += steep
            volume += bent / float(np.linalg.eigvalsh(hessian)[0])
        # what moves by this in norm moves by no more in the norm of box noise than over its least half width
        moved /= min(self.calibration.box or (1.0,))
        return tail(moved, self._length(place), self.calibration.scale, pure=self.pure) + volume

    def at_noise(self, noise: Array) -> Array:
        """Coordinates u (p,) of the output for the noise ``b`` (p,); raises CertificateError."""
        model = copy.copy(self.model)
        model.linear = self.model.linear + noise
        theta = minimize_by_newton(model, model.start()).point
        u: Array = theta - self.coordinates.step * (self.gradient(theta) + noise)
        terms = float(np.linalg.norm(self._origin)) + float(np.linalg.norm(noise)) + self.calibration.unit
        if not np.linalg.norm(self.noise(self.place(u)) - noise) <= _RESIDUAL * terms:
            raise CertificateError("density audit: the output of a drawn noise could not be solved for")
        return u

    def draw(self, rng: np.random.Generator) -> Place:
        return self.place(self.at_noise(simulate_noise(self.calibration, 1, rng)[0]))

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Typical outputs, those of no noise, those far out, and what they lead to.

        Gamma and box noise are worst where both noises point along the difference of the gradients: every
        start is followed by the points that this asks for at its theta.
        """
        assert isinstance(other, ObjectiveLaw)
        zero, step = np.zeros(self.dimension), self.coordinates.step
        found = [law.at_noise(zero) for law in (self, other)]
        for law in (self, other):
            found += [law.at_noise(b) for b in simulate_noise(self.calibration, (count + 1) // 2, rng)]
        reach = self.calibration.unit * step * self.dimension
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
