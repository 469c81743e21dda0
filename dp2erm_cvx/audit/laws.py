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

#: Spacing of the floating-point numbers at 1, twice the error of one rounding.
_SPACING = float(np.finfo(np.float64).eps)
#: Relative residual to which the output of a drawn noise has to be solved.
_RESIDUAL = 1e-9


@dataclass(frozen=True, eq=False)
class Place:
    """An output of one step, by its coordinates ``u = theta + s v``.

    Parameters
    ----------
    theta
        The released numbers (p,).
    multiplier
        v (p,): a subgradient of the l1 term and Theta; of rounded numbers, what rounding took off.
    slope
        The derivative Pi (p, p) of theta in u: that of the prox; of rounded numbers, 0.
    """

    theta: Array
    multiplier: Array
    slope: Array

    @property
    def regular(self) -> bool:
        """True if theta alone determines v.

        That is so inside Theta and off the kinks of R, where Pi is the identity. It is never so
        where Gaussian noise is rounded: what was rounded off is no part of theta.
        """
        # 0 <= Pi <= I
        return float(self.slope.trace()) == len(self.theta)


def _change_of_log_density(moved: float, length: float, scale: float, *, pure: bool) -> float:
    """The most that the log density of noise changes by where the noise moves.

    Parameters
    ----------
    moved
        How far the noise moves, in its norm.
    length
        The norm of the noise.
    scale
        The scale of the noise.
    pure
        Whether the log density is ``-length / scale``; otherwise it is
        ``-(length / scale)^2 / 2``.
    """
    if pure:
        return moved / scale
    return moved / scale * ((length + moved) / scale)


class ShiftLaw:
    """The law of numbers with independent noise on every block of them.

    Whole numbers with Gaussian noise are rounded after it: the density is of both, a later step
    sees theta. Pure noise on a block of several numbers depends on the largest of them. Where no
    later step depends on numbers with Laplace noise, their worst output is the center itself, and
    the law has no coordinates.

    Parameters
    ----------
    center
        The numbers (m,) without noise.
    scale
        The scale of the noise.
    noise
        Its kind: Laplace noise on every block, or Gaussian noise.
    moved
        Bound on the error of the computed center in the l1 norm.
    whole
        Whether the output is whole numbers, with discrete Laplace or rounded Gaussian noise.
    last
        Whether no later step depends on the output.
    block
        How many numbers a block has.
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
        self.center = center
        self.scale = scale
        self.moved = moved
        self.whole = whole
        self.pure = noise.pure
        self.block = block
        n_coordinates = len(center)
        if last and self.pure:
            n_coordinates = 0
        self.units = np.full(n_coordinates, scale)

    def place(self, u: Array) -> Place:
        """The output nearest to ``u``, with what rounding takes off Gaussian noise."""
        if not len(self.units):
            return self._at(self.center)
        return self._at(u)

    def released(self, place: Place) -> Array:
        """Input of later steps."""
        return place.theta

    def log_density(self, place: Place) -> float:
        """Log density of an output."""
        length = self._length(place) / self.scale
        if self.pure:
            return -length
        return -(length**2) / 2

    def error(self, place: Place) -> float:
        """Bound on the error of the log density: of the center, and of rounding."""
        sizes = float(np.sum(np.abs(self.center)) + np.sum(np.abs(place.theta)))
        moved = self.moved + 8 * _SPACING * sizes
        return _change_of_log_density(moved, self._length(place), self.scale, pure=self.pure)

    def draw(self, rng: np.random.Generator) -> Place:
        """A random output."""
        size = len(self.center)
        if self.block > 1:
            return self._at(self.center + simulate_cubes(self.scale, self.block, size, rng))
        if self.pure and self.whole:
            first, second = np.floor(rng.exponential(self.scale, (2, size)))
            return self._at(self.center + np.subtract(first, second))
        if self.pure:
            return self._at(self.center + rng.laplace(scale=self.scale, size=size))
        return self._at(self.center + rng.normal(scale=self.scale, size=size))

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """The two centers, between which the ratio turns, and points beyond both."""
        assert isinstance(other, ShiftLaw)
        if not len(self.units):
            return [np.zeros(0)]
        beyond = self.scale * rng.standard_normal((count, len(self.center)))
        return [self.center, other.center, *(self.center + beyond), *(other.center + beyond)]

    def _at(self, u: Array) -> Place:
        theta = np.rint(u) if self.whole else u
        if self.pure:
            return Place(theta, np.zeros(len(u)), np.eye(len(u)))
        # rounding is flat: the integers do not determine what it took off
        slope = np.zeros((len(u), len(u))) if self.whole else np.eye(len(u))
        return Place(theta, u - theta, slope)

    def _length(self, place: Place) -> float:
        """The norm of the noise that leads to an output."""
        noise = place.theta + place.multiplier - self.center
        if self.pure:
            return block_norm(noise, self.block)
        return float(np.linalg.norm(noise))


@dataclass(frozen=True, eq=False)
class WeightsRadius:
    """How far computed weights may be from the exact ones, and what that changes in an objective.

    Parameters
    ----------
    radius
        Bound on ``||w_hat - w||_1`` of the computed weights.
    unit_model
        The objective at weights 1.
    """

    radius: float
    unit_model: MarginModel

    def errors(self, theta: Array) -> tuple[float, float]:
        """Bounds on the errors at theta: each is the radius times the largest term at weight 1.

        Returns
        -------
        of_gradient
            Of the gradient, in norm.
        of_hessian
            Of the Hessian, in the trace norm.
        """
        unit = self.unit_model
        margins = unit.margins(theta)
        norms = np.linalg.norm(unit.Z, axis=1)
        loss = unit.loss.along(unit.whole.arm)
        slopes = unit.whole.multipliers * np.abs(loss.slope(margins))
        curvatures = unit.whole.multipliers * loss.curvature(margins)
        of_gradient = self.radius * float(np.max(norms * slopes))
        of_hessian = self.radius * float(np.max(norms**2 * curvatures))
        return of_gradient, of_hessian


class ObjectiveLaw:
    """The law of the minimizer of a model with noise in its objective (proof of Theorem 1).

    Parameters
    ----------
    model
        n times the objective, without noise.
    calibration
        The noise b.
    step
        s of the coordinates ``u = theta + s v``, the same for both datasets.
    unscaled
        Public factors (p,): released is the minimizer times these.
    weights
        What the error of the computed weights can change; None where the weights are exact.
    """

    def __init__(
        self,
        model: MarginModel,
        calibration: Calibration,
        step: float,
        unscaled: Array,
        weights: WeightsRadius | None,
    ) -> None:
        self.model = model
        self.calibration = calibration
        self.step = step
        self.unscaled = unscaled
        self.weights = weights
        self.pure = calibration.noise.pure
        half_widths = np.array(calibration.box or 1.0)
        self.units = step * calibration.scale * np.ones(model.dimension) * half_widths

    def place(self, u: Array) -> Place:
        """The pair (theta, v) at ``u`` (p,)."""
        theta = self.model.penalty.prox(u, self.step)
        multiplier = (u - theta) / self.step
        return Place(theta, multiplier, self.model.penalty.jacobian(u, self.step))

    def released(self, place: Place) -> Array:
        """Input of later steps."""
        return place.theta * self.unscaled

    def log_density(self, place: Place) -> float:
        """Log density ``log nu(T(u)) + log |det DT(u)|``."""
        # the determinant comes first: its pass has the gradient as well
        log_determinant = float(np.linalg.slogdet(self._jacobian(place))[1])
        length = self._length(place) / self.calibration.scale
        if self.pure:
            return log_determinant - length
        return log_determinant - length**2 / 2

    def error(self, place: Place) -> float:
        """Bound on the error of the log density: of the weights, and of rounding to first order.

        The log determinant moves by at most the trace norm of an error of the Hessian over its
        smallest eigenvalue, whatever Pi is. An error e of the weights in l1 moves a weighted sum by
        at most e times the largest term at weight 1.
        """
        theta = place.theta
        hessian = self.model.hessian(theta)
        moved = self._rounding_of_noise(place, hessian)
        condition = float(np.linalg.cond(self._jacobian(place)))
        of_determinant = 64 * len(theta) * _SPACING * condition
        if self.weights is not None:
            of_gradient, of_hessian = self.weights.errors(theta)
            moved += of_gradient
            of_determinant += of_hessian / float(np.linalg.eigvalsh(hessian)[0])
        # what moves by this in norm moves by no more in the norm of box noise than over its least
        # half width
        moved /= min(self.calibration.box or (1.0,))
        length = self._length(place)
        of_noise = _change_of_log_density(moved, length, self.calibration.scale, pure=self.pure)
        return of_noise + of_determinant

    def _rounding_of_noise(self, place: Place, hessian: Array) -> float:
        """Bound on the norm of the rounding of :meth:`noise`, by the Hessian (p, p) at theta."""
        theta = place.theta
        sizes = np.abs(hessian) @ np.abs(theta) + np.abs(self._origin) + np.abs(place.multiplier)
        of_terms = 16 * len(theta) * _SPACING * float(np.linalg.norm(sizes))
        # v is a difference: it loses what theta is larger than s v
        of_multiplier = 8 * _SPACING * float(np.linalg.norm(theta)) / self.step
        return 2 * self.model.rounding(theta) + of_terms + of_multiplier

    def noise(self, place: Place) -> Array:
        """The noise ``b = T(u)`` (p,) that makes the pair the output."""
        return -self._gradient(place.theta) - place.multiplier

    def at_noise(self, noise: Array) -> Array:
        """Coordinates u (p,) of the output for the noise b (p,).

        Raises
        ------
        CertificateError
            If the output is not solved for to a relative residual of ``_RESIDUAL``.
        """
        model = copy.copy(self.model)
        model.linear = self.model.linear + noise
        theta, *_ = minimize_by_newton(model, model.start())
        u: Array = theta - self.step * (self._gradient(theta) + noise)
        # relative to the terms that cancel in it and to the scale
        terms = float(np.linalg.norm(self._origin)) + float(np.linalg.norm(noise))
        terms += self.calibration.unit
        residual = np.linalg.norm(self.noise(self.place(u)) - noise)
        if not residual <= _RESIDUAL * terms:
            raise CertificateError(
                "density audit: the output of a drawn noise could not be solved for"
            )
        return u

    def draw(self, rng: np.random.Generator) -> Place:
        """A random output."""
        return self.place(self.at_noise(simulate_noise(self.calibration, 1, rng)[0]))

    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Typical outputs, those of no noise, those far out, and what they lead to."""
        assert isinstance(other, ObjectiveLaw)
        p = self.model.dimension
        points = [self.at_noise(np.zeros(p)), other.at_noise(np.zeros(p))]
        for law in (self, other):
            for noise in simulate_noise(self.calibration, (count + 1) // 2, rng):
                points.append(law.at_noise(noise))
        typical = self.calibration.unit * self.step * p
        for direction in rng.standard_normal((count, p)):
            length = typical * 10.0 ** rng.uniform(-1, 3)
            points.append(length * direction / np.linalg.norm(direction))
        for u in list(points):
            points += self._led_to(u, other)
        return points

    def _led_to(self, u: Array, other: ObjectiveLaw) -> list[Array]:
        """Points that one point leads to."""
        place = self.place(u)
        # just inside Theta, where the search among regular points has to begin
        inside = 0.999 * place.theta + self.step * self.model.penalty.l1 * np.sign(u)
        points = [inside]
        # gamma and box noise are worst where both noises point along the difference of the
        # gradients
        noise = self.noise(place)
        difference = other.noise(place) - noise
        for factor in (0.0, 1.0, 100.0):
            points.append(u + self.step * (noise - factor * difference))
        return points

    @cached_property
    def _origin(self) -> Array:
        """The gradient (p,) at theta = 0."""
        return self.model.gradient(np.zeros(self.model.dimension))

    def _gradient(self, theta: Array) -> Array:
        """``grad Phi(theta)`` (p,)."""
        is_quadratic = self.model.self_concordance == 0.0
        if is_quadratic:
            return np.asarray(self.model.hessian(theta) @ theta + self._origin, dtype=np.float64)
        return self.model.gradient(theta)

    def _length(self, place: Place) -> float:
        """The norm of the noise that makes the pair the output."""
        return float(self.calibration.norms(self.noise(place)))

    def _jacobian(self, place: Place) -> Array:
        """``-DT(u) = H Pi + (I - Pi) / s`` (p, p), H the Hessian of Phi at theta."""
        of_multiplier = (np.eye(self.model.dimension) - place.slope) / self.step
        of_gradient = self.model.hessian(place.theta) @ place.slope
        return np.asarray(of_gradient + of_multiplier, dtype=np.float64)


#: The law of one output: ``pure`` where log ratios are bounded; u (d,) spreads by about its
#: ``units``. Log densities are known but for a constant that is the same for every dataset.
Law = ShiftLaw | ObjectiveLaw

#: What every step released, by name, with its multiplier.
Outputs = Mapping[str, Place]
#: The same as later steps see it.
Released = Mapping[str, Array]

#: Starts of a second step that follow each one of the first; fewer where there are more steps.
_FOLLOWING = 25


@dataclass(frozen=True, eq=False)
class ReleaseLaw:
    """The law of what all steps release from one dataset.

    Its density is the product of those of each step given the steps before.

    Parameters
    ----------
    conditional
        By the name of a step, in their order, what maps the outputs of the earlier steps to its
        law.
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
            start = used
            used += len(law.units)
            return law.place(u[start:used])

        return {name: place for name, _, place in self.steps(choose)}

    def log_density(self, outputs: Outputs) -> float:
        """Log density of all outputs, less a constant that is the same for every dataset."""
        return sum(law.log_density(place) for _, law, place in self._at(outputs))

    def error(self, outputs: Outputs) -> float:
        """Bound on the error of :meth:`log_density`."""
        return sum(law.error(place) for _, law, place in self._at(outputs))

    def draw(self, rng: np.random.Generator) -> Outputs:
        """Random outputs of all steps."""
        return {name: place for name, _, place in self.steps(lambda _, law: law.draw(rng))}

    def starts(
        self, other: ReleaseLaw, count: int, rng: np.random.Generator, until: Deadline
    ) -> list[Array]:
        """Starting points of the first step, each with a few of every later one at it.

        Fewer of them where the deadline passes meanwhile, at least one.
        """
        grown = [_Start(np.zeros(0), {})]
        for depth, name in enumerate(self.conditional):
            most = None
            wanted = count
            if depth:
                n_later = max(1, len(self.conditional) - 1)
                most = max(1, _FOLLOWING // n_later**depth)
                wanted = 1
            longer = list[_Start]()
            previous_law = None
            points = list[Array]()
            for start in grown:
                if longer and until.passed:
                    break
                law = self.conditional[name](start.released)
                # many laws do not depend on what was released
                if law is not previous_law:
                    other_law = other.conditional[name](start.released)
                    points = law.starts(other_law, wanted, rng)
                previous_law = law
                for index in rng.permutation(len(points))[:most]:
                    longer.append(start.followed_by(name, law, points[index]))
            grown = longer
        return [start.u for start in grown]

    def _at(self, outputs: Outputs) -> Iterator[tuple[str, Law, Place]]:
        """Every step at its own of the outputs."""
        return self.steps(lambda name, _: outputs[name])


@dataclass(frozen=True, eq=False)
class _Start:
    """A starting point of the first steps.

    Parameters
    ----------
    u
        Coordinates of their outputs.
    released
        The outputs as later steps see them.
    """

    u: Array
    released: dict[str, Array]

    def followed_by(self, name: str, law: Law, point: Array) -> _Start:
        """The same with the coordinates of one more step."""
        output = law.released(law.place(point))
        return _Start(np.append(self.u, point), {**self.released, name: output})


def _unperturbed(_: str, law: Law) -> Place:
    """The output at the coordinates 0."""
    return law.place(np.zeros(len(law.units)))
