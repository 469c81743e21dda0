"""Mechanisms that say what is random in them: rows split at random, and values that noise is added to."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError


@dataclass(frozen=True)
class Split:
    """``n`` rows in ``count`` random groups whose sizes differ by at most one, whatever the records."""

    n: int
    count: int

    def draw(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers of every group."""
        return np.array_split(rng.permutation(self.n), self.count)


@dataclass(frozen=True, eq=False)
class Noised:
    """A number, or a vector (q,), that is released with noise of a known law.

    Parameters
    ----------
    value
        What the noise is added to, a function of the records and of what was released before.
    scale
        Of the noise, in units of ``value``: of ``exp(-|b| / scale)``, which is Laplace noise for one number,
        or the standard deviation of a coordinate.
    noise
        ``Noise.GAMMA`` for the first, ``Noise.GAUSSIAN`` for the second.
    sensitivity
        What the mechanism takes for the most that ``value`` moves by, in the Euclidean norm; None: it says
        nothing.

    Raises DeclarationError for another noise, or a scale that is no positive number.
    """

    value: float | Array
    scale: float
    noise: Noise = Noise.GAMMA
    sensitivity: float | None = None

    def __post_init__(self) -> None:
        if self.noise not in (Noise.GAMMA, Noise.GAUSSIAN):
            raise DeclarationError(f"noise = {self.noise!s}: must be gamma or gaussian")
        if not 0.0 < self.scale < math.inf:
            raise DeclarationError("scale: the noise of a stage must have a positive scale")

    @property
    def center(self) -> Array:
        """The value as a vector (q,)."""
        return np.atleast_1d(np.asarray(self.value, dtype=np.float64))

    def draw(self, rng: np.random.Generator) -> Any:
        """The value with its noise, in floating point: a simulation, and nothing to publish."""
        if np.ndim(self.value) == 0 and self.noise is Noise.GAMMA:
            return self.value + float(rng.laplace(scale=self.scale))
        direction = rng.standard_normal(np.shape(self.value) or None)
        if self.noise is Noise.GAUSSIAN:
            return self.value + self.scale * direction
        length = rng.gamma(direction.size, self.scale)
        return self.value + length / math.sqrt(float(np.sum(direction**2))) * direction

    def log_density(self, at: Array) -> float:
        """Of the released vector (q,), less a constant that is the same for all values and scales."""
        distance = float(np.linalg.norm(at - self.center)) / self.scale
        size = at.size * math.log(self.scale)
        return -size - (distance if self.noise is Noise.GAMMA else 0.5 * distance**2)


_T = TypeVar("_T")

#: Yields a :class:`Split` or a :class:`Noised` value, is sent what was drawn, and returns the output.
Stages = Generator[Split | Noised, Any, _T]

#: A mechanism of one dataset, as its stages.
Staged = Callable[[Any], Stages[Any]]


def run_stages(stages: Stages[_T], rng: np.random.Generator) -> _T:
    """One output, with everything random drawn from ``rng``."""
    drawn = None
    while True:
        try:
            asked = stages.send(drawn)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        drawn = asked.draw(rng)
