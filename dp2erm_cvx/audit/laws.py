"""The law of one released output on one dataset: its exact density given what was released before.

Of numbers with noise added to them (Theorems 8, 10 and 12), and of minimizers under objective
perturbation (proof of Theorem 1): in coordinates ``u = theta + s v``, v a subgradient of the l1
term and Theta at theta, their density is ``nu(T(u)) |det DT(u)|``, ``T(u) = -grad Phi(theta) - v``,
Phi the smooth part of n times the objective.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.search import Deadline
from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.calibration.numbers import block_norm
from dp2erm_cvx.errors import CertificateError
from dp2erm_cvx.noise import simulate_cubes, simulate_noise
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.solve.solving import minimize_by_newton

_UNIT = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Place:
    """The released theta of a step and its multiplier v.

    The ``slope`` Pi is the derivative of the prox there.
    """

    theta: Array
    multiplier: Array
    slope: Array

    @property
    def regular(self) -> bool:
        """True if theta alone determines v.

        That is so inside Theta and off the kinks of R, where Pi is the identity.
        """
        return float(self.slope.trace()) == len(self.theta)  # 0 <= Pi <= I


def _tail(moved: float, length: float, scale: float, *, pure: bool) -> float:
    """How far the log density of noise changes where the noise moves by ``moved``.

    The noise has the norm ``length``.
    """
    return moved / scale * (1.0 if pure else (length + moved) / scale)


class ShiftLaw:
    """Independent noise on every block of ``center`` (m,).

    It is discrete Laplace or Gaussian noise where ``whole``.

    Whole numbers with Gaussian noise are rounded after it: the density is of both, a later step
    sees theta. The computed center is off by ``moved`` in the l1 norm. ``last``: no later step
    depends on the numbers; under Laplace noise the worst output is then the center itself, and the
    law has no coordinates. Pure noise on a ``block`` of several numbers depends on the largest of
    them.
    """

    def __init__(
        self,
        center: Array,
        scale: float,
        noise: Noise,
        *,
        moved: float,
        whole: bool,
        last: bool,
        block: int = 1,
    ) -> None:
        self.center, self.scale, self.moved, self.whole, self.pure = (
            center,
            scale,
            moved,
            whole,
            noise.pure,
        )
        self.block = block
        self.units = np.full(0 if last and self.pure else len(center), scale)

    def place(self, u: Array) -> Place:
        """The output nearest to ``u``.

        Its multiplier is what rounding takes off Gaussian noise.
        """
        return self._at(u if len(self.units) else self.center)

    def _at(self, u: Array) -> Place:
        theta = np.rint(u) if self.whole else u
        return Place(theta, np.zeros(len(u)) if self.pure else u - theta, np.eye(len(u)))

    def released(self, place: Place) -> Array:
        """Input of later steps."""
        return place.theta

    def _distance(self, place: Place) -> float:
        apart = place.theta + place.multiplier - self.center
        return block_norm(apart, self.block) if self.pure else float(np.linalg.norm(apart))

    def log_density(self, place: Place) -> float:
        sizes = self._distance(place) / self.scale
        return -sizes if self.pure else -(sizes**2) / 2

    def error(self, place: Place) -> float:
        """Bound on the error of the log density: of the center, and of rounding."""
        rounding = 8 * _UNIT * float(np.sum(np.abs(self.center)) + np.sum(np.abs(place.theta)))
        return _tail(self.moved + rounding, self._distance(place), self.scale, pure=self.pure)

    def draw(self, rng: np.random.Generator) -> Place:
        """A random output."""
        size = len(self.center)
        if self.block > 1:
            return self._at(self.center + simulate_cubes(self.scale, self.block, size, rng))
        if self.pure and self.whole:
            return self._at(
                self.center + np.subtract(*np.floor(rng.exponential(self.scale, (2, size))))
            )
        draw = rng.laplace if self.pure else rng.normal
        return self._at(self.center + draw(scale=self.scale, size=size))

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """The two centers, between which the ratio turns, and points beyond both."""
        assert isinstance(other, ShiftLaw)
        if not len(self.units):
            return [np.zeros(0)]
        beyond = self.scale * rng.standard_normal((count, len(self.center)))
        return [self.center, other.center, *(self.center + beyond), *(other.center + beyond)]


class ObjectiveLaw:
    """The law of the minimizer of ``model`` with noise of this ``calibration``.

    The model holds no noise.

    ``step`` s of the Minty coordinates is the same for both datasets. Released is the minimizer
    times the public ``unscaled`` (p,). ``weights`` are a bound on ``||w_hat - w||_1`` of the
    computed ones, and the objective at weights 1; None where they are exact.
    """

    def __init__(
        self,
        model: MarginModel,
        calibration: Calibration,
        step: float,
        unscaled: Array,
        weights: tuple[float, MarginModel] | None,
    ) -> None:
        self.model, self.calibration, self.step = model, calibration, step
        self.unscaled, self.weights, self.pure = unscaled, weights, calibration.noise.pure
        self.units = (
            step * calibration.scale * np.ones(model.dimension) * np.array(calibration.box or 1.0)
        )

    @cached_property
    def _origin(self) -> Array:
        return self.model.gradient(np.zeros(self.model.dimension))

    def _gradient(self, theta: Array) -> Array:
        if self.model.self_concordance == 0.0:  # a quadratic
            return np.asarray(self.model.hessian(theta) @ theta + self._origin, dtype=np.float64)
        return self.model.gradient(theta)

    def noise(self, place: Place) -> Array:
        """The noise b (p,) that makes the pair the output."""
        return -self._gradient(place.theta) - place.multiplier

    def _length(self, place: Place) -> float:
        return float(self.calibration.norms(self.noise(place)))

    def _jacobian(self, place: Place) -> Array:
        rest = (np.eye(self.model.dimension) - place.slope) / self.step
        return np.asarray(self.model.hessian(place.theta) @ place.slope + rest, dtype=np.float64)

    def place(self, u: Array) -> Place:
        """The pair (theta, v) at ``u`` (p,)."""
        theta = self.model.penalty.prox(u, self.step)
        return Place(theta, (u - theta) / self.step, self.model.penalty.jacobian(u, self.step))

    def released(self, place: Place) -> Array:
        """Input of later steps."""
        return place.theta * self.unscaled

    def log_density(self, place: Place) -> float:
        # first: its pass has the gradient as well
        volume = float(np.linalg.slogdet(self._jacobian(place))[1])
        sizes = self._length(place) / self.calibration.scale
        return volume - (sizes if self.pure else sizes**2 / 2)

    def error(self, place: Place) -> float:
        """Bound on the error of the log density: of the weights, and of rounding to first order.

        The log determinant moves by at most the trace norm of an error of the Hessian over its
        smallest eigenvalue, whatever Pi is. An error e of the weights in l1 moves a weighted sum by
        at most e times the largest term at weight 1.
        """
        theta, hessian = place.theta, self.model.hessian(place.theta)
        sizes = np.abs(hessian) @ np.abs(theta) + np.abs(self._origin) + np.abs(place.multiplier)
        moved = 2 * self.model.rounding(theta) + 16 * len(theta) * _UNIT * float(
            np.linalg.norm(sizes)
        )
        # v is a difference: it loses what theta is larger than s v
        moved += 8 * _UNIT * float(np.linalg.norm(theta)) / self.step
        volume = 64 * len(theta) * _UNIT * float(np.linalg.cond(self._jacobian(place)))
        if self.weights is not None:
            bound, unit = self.weights
            s, norms = unit.margins(theta), np.linalg.norm(unit.Z, axis=1)
            loss = unit.loss.along(unit.whole.arm)
            steep = unit.whole.multipliers * np.abs(loss.slope(s))
            bent = unit.whole.multipliers * loss.curvature(s)
            moved += bound * float(np.max(norms * steep))
            volume += bound * float(np.max(norms**2 * bent)) / float(np.linalg.eigvalsh(hessian)[0])
        # what moves by this in norm moves by no more in the norm of box noise than over its least
        # half width
        moved /= min(self.calibration.box or (1.0,))
        return _tail(moved, self._length(place), self.calibration.scale, pure=self.pure) + volume

    def at_noise(self, noise: Array) -> Array:
        """Coordinates u (p,) of the output for the noise ``b`` (p,); raises CertificateError."""
        model = copy.copy(self.model)
        model.linear = self.model.linear + noise
        theta = minimize_by_newton(model, model.start())[0]
        u: Array = theta - self.step * (self._gradient(theta) + noise)
        terms = (
            float(np.linalg.norm(self._origin))
            + float(np.linalg.norm(noise))
            + self.calibration.unit
        )
        # relative to the terms that cancel in it and to the scale
        if not np.linalg.norm(self.noise(self.place(u)) - noise) <= 1e-9 * terms:
            raise CertificateError(
                "density audit: the output of a drawn noise could not be solved for"
            )
        return u

    def draw(self, rng: np.random.Generator) -> Place:
        return self.place(self.at_noise(simulate_noise(self.calibration, 1, rng)[0]))

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Typical outputs, those of no noise, those far out, and what they lead to."""
        assert isinstance(other, ObjectiveLaw)
        points = [law.at_noise(np.zeros(self.model.dimension)) for law in (self, other)]
        for law in (self, other):
            points += [
                law.at_noise(b) for b in simulate_noise(self.calibration, (count + 1) // 2, rng)
            ]
        reach = self.calibration.unit * self.step * self.model.dimension
        points += [
            reach * 10.0 ** rng.uniform(-1, 3) * direction / np.linalg.norm(direction)
            for direction in rng.standard_normal((count, self.model.dimension))
        ]
        # gamma and box noise are worst where both noises point along the difference of the
        # gradients
        for u in list(points):
            place = self.place(u)
            # just inside Theta, where the search among regular points has to begin
            points.append(0.999 * place.theta + self.step * self.model.penalty.l1 * np.sign(u))
            b = self.noise(place)
            apart = other.noise(place) - b
            points += [u + self.step * (b - factor * apart) for factor in (0.0, 1.0, 100.0)]
        return points


#: The law of one output: ``pure`` where log ratios are bounded; u (d,) spreads by about its
#: ``units``. Log densities are known but for a constant that is the same for every dataset.
Law = ShiftLaw | ObjectiveLaw

#: What every step released, by name: with its multiplier, and as later steps see it.
Outputs = Mapping[str, Place]
Released = Mapping[str, Array]

#: Starts of a second step that follow each one of the first; fewer where there are more steps.
_FOLLOWING = 25


@dataclass(frozen=True, eq=False)
class ReleaseLaw:
    """The law of what all steps release from one dataset.

    Its density is the product of those of each step given the steps before.

    ``conditional`` maps what the earlier steps released, by name, to the law of a step; its order
    is theirs.
    """

    conditional: Mapping[str, Callable[[Released], Law]]

    def steps(self, choose: Callable[[str, Law], Place]) -> Iterator[tuple[str, Law, Place]]:
        """Every step in turn: its law given the outputs chosen before, and its own."""
        released: dict[str, Array] = {}
        for name, law_of in self.conditional.items():
            law = law_of(released)
            place = choose(name, law)
            released[name] = law.released(place)
            yield name, law, place

    @cached_property
    def pure(self) -> bool:
        """True if all noise is of a kind whose log ratio is bounded."""
        return all(law.pure for _, law, _ in self.steps(_unperturbed))

    @cached_property
    def units(self) -> Array:
        """How far the coordinates u of all steps typically spread, (d,)."""
        return np.concatenate([law.units for _, law, _ in self.steps(_unperturbed)])

    def place(self, u: Array) -> Outputs:
        """The outputs at ``u``."""
        used = 0

        def choose(_: str, law: Law) -> Place:
            nonlocal used
            used += len(law.units)
            return law.place(u[used - len(law.units) : used])

        return {name: place for name, _, place in self.steps(choose)}

    def log_density(self, outputs: Outputs) -> float:
        """Log density of all outputs, less a constant that is the same for every dataset."""
        return sum(
            law.log_density(place) for _, law, place in self.steps(lambda name, _: outputs[name])
        )

    def error(self, outputs: Outputs) -> float:
        """Bound on the error of :meth:`log_density`."""
        return sum(law.error(place) for _, law, place in self.steps(lambda name, _: outputs[name]))

    def draw(self, rng: np.random.Generator) -> Outputs:
        """Random outputs of all steps."""
        return {name: place for name, _, place in self.steps(lambda _, law: law.draw(rng))}

    def starts(
        self, other: ReleaseLaw, count: int, rng: np.random.Generator, until: Deadline
    ) -> list[Array]:
        """Starting points of the first step, each with a few of every later one at it.

        Fewer of them where the deadline passes meanwhile, at least one.
        """
        grown: list[tuple[Array, dict[str, Array]]] = [(np.zeros(0), {})]
        for depth, (name, law_of) in enumerate(self.conditional.items()):
            longer = list[tuple[Array, dict[str, Array]]]()
            known, points = None, list[Array]()
            most = (
                max(1, _FOLLOWING // max(1, len(self.conditional) - 1) ** depth) if depth else None
            )
            for u, released in grown:
                if longer and until.passed:
                    break
                law = law_of(released)
                if law is not known:  # many do not depend on what was released
                    points = law.starts(
                        other.conditional[name](released), 1 if depth else count, rng
                    )
                known = law
                for index in rng.permutation(len(points))[:most]:
                    output = law.released(law.place(points[index]))
                    longer.append((np.append(u, points[index]), {**released, name: output}))
            grown = longer
        return [u for u, _ in grown]


def _unperturbed(_: str, law: Law) -> Place:
    return law.place(np.zeros(len(law.units)))
