"""What an audit needs to know of the law of a release on one dataset: of each step given those before it."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.domain import Array


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

    def laws(self, outputs: Outputs) -> Iterator[tuple[Law, Place]]:
        """The law of every step given the outputs before, with its own."""
        released: dict[str, Array] = {}
        for name, law in self.given.items():
            found = law(released)
            yield found, outputs[name]
            released[name] = found.released(outputs[name])

    def released(self, outputs: Outputs) -> dict[str, Array]:
        """What every step released, by name."""
        found = zip(outputs, self.laws(outputs), strict=True)
        return {name: law.released(place) for name, (law, place) in found}

    @cached_property
    def _unperturbed(self) -> list[Law]:
        found: list[Law] = []
        released: dict[str, Array] = {}
        for name, law in self.given.items():
            found.append(law(released))
            released[name] = found[-1].released(found[-1].place(np.zeros(found[-1].dimension)))
        return found

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
        found: dict[str, Place] = {}
        released: dict[str, Array] = {}
        for name, given in self.given.items():
            law = given(released)
            found[name], u = law.place(u[: law.dimension]), u[law.dimension :]
            released[name] = law.released(found[name])
        return found

    def log_density(self, outputs: Outputs) -> float:
        """Log density of all outputs, less a constant that is the same for every dataset."""
        return sum(law.log_density(place) for law, place in self.laws(outputs))

    def error(self, outputs: Outputs) -> float:
        """Bound on the error of :meth:`log_density`."""
        return sum(law.error(place) for law, place in self.laws(outputs))

    def draw(self, rng: np.random.Generator) -> Outputs:
        """Random outputs of all steps."""
        found: dict[str, Place] = {}
        released: dict[str, Array] = {}
        for name, given in self.given.items():
            law = given(released)
            found[name] = law.draw(rng)
            released[name] = law.released(found[name])
        return found

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
