"""The law of a release on one dataset: the exact density of each step given those before it.

Numbers that are released with noise added to them (Theorems 8, 10 and 12) have a :class:`ShiftLaw`. For an
objective-perturbed output (proof of Theorem 1) theta is the output for the noise b iff ``-b - grad
Phi(theta)`` is a subgradient v of h at theta, with Phi the smooth part of n times the objective and h the
rest (the l1 term and Theta). A step s gives the Minty coordinates ``u = theta + s v`` of such a pair,
``theta = prox_{s h}(u)``, in which the density is ``nu(T(u)) |det DT(u)|``, ``T(u) = -grad Phi(theta) - v``.
The same holds for the coefficient of a private first stage, with its own Phi and h.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.solve.newton import minimize_by_newton

_UNIT = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Place:
    """What a step released, theta, and its multiplier v; Pi is the derivative of the prox there.

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
    """The law of one output on one dataset, by its density in coordinates u (d,) common to all datasets."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """Number of coordinates, d."""

    @property
    @abc.abstractmethod
    def pure(self) -> bool:
        """Whether the noise is of a kind whose log ratio is bounded."""

    @property
    @abc.abstractmethod
    def units(self) -> Array:
        """How far u typically spreads, (d,)."""

    @abc.abstractmethod
    def place(self, u: Array) -> Place:
        """The output at ``u``."""

    def released(self, place: Place) -> Array:
        """What later steps are given."""
        return place.theta

    @abc.abstractmethod
    def log_density(self, place: Place) -> float:
        """Log density of the output, less a constant that is the same for every dataset."""

    @abc.abstractmethod
    def error(self, place: Place) -> float:
        """Bound on the error of :meth:`log_density`: of what was solved, and of rounding to first order."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator) -> Place:
        """A random output."""

    @abc.abstractmethod
    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Where the density may be largest relative to that of ``other``, a law of the same kind."""


def tail(moved: float, length: float, scale: float, *, pure: bool) -> float:
    """How far the log density of noise of norm ``length`` changes where the noise moves by ``moved``."""
    return moved / scale * (1.0 if pure else (length + moved) / scale)


#: What every step released, by name.
Outputs = Mapping[str, Place]

#: Starts of a second step that follow each one of the first; fewer where there are more steps.
_FOLLOWING = 25


@dataclass(frozen=True, eq=False)
class ReleaseLaw:
    """The law of what all steps release from one dataset: the density of each given those before, multiplied.

    ``given`` maps what the earlier steps released, by name, to the law of a step; its order is theirs.
    """

    given: Mapping[str, Callable[[Mapping[str, Array]], Law]]

    def _through(self, choose: Callable[[str, Law], Place]) -> Iterator[tuple[str, Law, Place]]:
        """Every step in turn: its law given the outputs chosen before, and its own."""
        released: dict[str, Array] = {}
        for name, given in self.given.items():
            law = given(released)
            place = choose(name, law)
            released[name] = law.released(place)
            yield name, law, place

    def laws(self, outputs: Outputs) -> Iterator[tuple[Law, Place]]:
        """The law of every step given the outputs before, with its own."""
        return ((law, place) for _, law, place in self._through(lambda name, law: outputs[name]))

    def released(self, outputs: Outputs) -> dict[str, Array]:
        """What every step released, by name."""
        return {
            name: law.released(place) for name, (law, place) in zip(outputs, self.laws(outputs), strict=True)
        }

    @cached_property
    def _unperturbed(self) -> list[Law]:
        return [law for _, law, _ in self._through(lambda _, law: law.place(np.zeros(law.dimension)))]

    @property
    def dimension(self) -> int:
        """Number of coordinates u of all steps."""
        return sum(law.dimension for law in self._unperturbed)

    @property
    def pure(self) -> bool:
        """Whether all noise is of a kind whose log ratio is bounded."""
        return all(law.pure for law in self._unperturbed)

    @property
    def units(self) -> Array:
        """How far u typically spreads, (d,)."""
        return np.concatenate([law.units for law in self._unperturbed])

    def place(self, u: Array) -> Outputs:
        """The outputs at ``u``."""
        used = 0

        def choose(_: str, law: Law) -> Place:
            nonlocal used
            used += law.dimension
            return law.place(u[used - law.dimension : used])

        return {name: place for name, _, place in self._through(choose)}

    def log_density(self, outputs: Outputs) -> float:
        """Log density of all outputs, less a constant that is the same for every dataset."""
        return sum(law.log_density(place) for law, place in self.laws(outputs))

    def error(self, outputs: Outputs) -> float:
        """Bound on the error of :meth:`log_density`."""
        return sum(law.error(place) for law, place in self.laws(outputs))

    def draw(self, rng: np.random.Generator) -> Outputs:
        """Random outputs of all steps."""
        return {name: place for name, _, place in self._through(lambda _, law: law.draw(rng))}

    def starts(self, other: ReleaseLaw, count: int, rng: np.random.Generator) -> list[Array]:
        """Those of the first step, each with a few of every later one given it."""
        found: list[tuple[Array, dict[str, Array]]] = [(np.zeros(0), {})]
        for depth, (name, given) in enumerate(self.given.items()):
            longer, known, points = [], None, list[Array]()
            most = max(1, _FOLLOWING // max(1, len(self.given) - 1) ** depth) if depth else None
            for u, released in found:
                law = given(released)
                if law is not known:  # many do not depend on what was released
                    points = law.starts(other.given[name](released), 1 if depth else count, rng)
                known = law
                for index in rng.permutation(len(points))[:most]:
                    output = law.released(law.place(points[index]))
                    longer.append((np.append(u, points[index]), {**released, name: output}))
            found = longer
        return [u for u, _ in found]


def regular(outputs: Outputs) -> bool:
    """Whether one output determines everything that the density is of: after an earlier one none does."""
    places = list(outputs.values())
    return len(places) == 1 and places[0].regular


def log_ratio(one: ReleaseLaw, other: ReleaseLaw, outputs: Outputs) -> float:
    """Log of the density of ``one`` over that of ``other``."""
    return one.log_density(outputs) - other.log_density(outputs)


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
        rounding = 8 * _UNIT * float(np.sum(np.abs(self.center)) + np.sum(np.abs(place.theta)))
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
            return np.asarray(self.model.hessian(theta) @ theta + self._origin, dtype=np.float64)
        return self.model.gradient(theta)

    def noise(self, place: Place) -> Array:
        """The noise b (p,) that makes the pair the output."""
        return -self.gradient(place.theta) - place.multiplier

    def _length(self, place: Place) -> float:
        return float(self.calibration.norms(self.noise(place)))

    def _jacobian(self, place: Place) -> Array:
        rest = (np.eye(self.dimension) - place.slope) / self.coordinates.step
        return np.asarray(self.model.hessian(place.theta) @ place.slope + rest, dtype=np.float64)

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
        theta, hessian = place.theta, self.model.hessian(place.theta)
        sizes = np.abs(hessian) @ np.abs(theta) + np.abs(self._origin) + np.abs(place.multiplier)
        moved = 2 * self.model.rounding(theta) + 16 * self.dimension * _UNIT * float(np.linalg.norm(sizes))
        # v is a difference: it loses what theta is larger than s v
        moved += 8 * _UNIT * float(np.linalg.norm(theta)) / self.coordinates.step
        volume = 64 * self.dimension * _UNIT * float(np.linalg.cond(self._jacobian(place)))
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
