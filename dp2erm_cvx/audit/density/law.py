"""What an audit needs to know of the law of a release on one dataset, and where two laws differ most."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dp2erm_cvx.domain import Array


@dataclass(frozen=True, eq=False)
class Place:
    """theta, its multiplier v, and the derivative Pi of the prox there; the same for every dataset.

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
    """The law of an output on one dataset, by its density in coordinates u (d,) common to all datasets."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """Number of coordinates, d."""

    @property
    @abc.abstractmethod
    def pure(self) -> bool:
        """Whether all noise is of a kind whose log ratio is bounded."""

    @property
    @abc.abstractmethod
    def units(self) -> Array:
        """How far u typically spreads, (d,)."""

    @abc.abstractmethod
    def place(self, u: Array) -> Place:
        """The output at ``u``."""

    @abc.abstractmethod
    def log_density(self, place: Place) -> float:
        """Log density of u, less a constant that is the same for every dataset."""

    @abc.abstractmethod
    def error(self, place: Place) -> float:
        """Bound on the error of :meth:`log_density`: of what was solved, and of rounding to first order."""

    @abc.abstractmethod
    def outputs(self, size: int, rng: np.random.Generator) -> list[Array]:
        """``u`` of ``size`` independent outputs."""

    @abc.abstractmethod
    def starts(self, other: Law, count: int, rng: np.random.Generator) -> list[Array]:
        """Where the density may be largest relative to that of ``other``, a law of the same kind."""


def log_ratio(one: Law, other: Law, place: Place) -> float:
    """Log of the density of ``one`` over that of ``other``."""
    return one.log_density(place) - other.log_density(place)


#: The best starts that are improved, per direction and region.
ASCENTS = 4
_EVALUATIONS = 120  # per coordinate and ascent


@dataclass(frozen=True)
class Peak:
    """The largest ratio that was met beyond its ``error``, and where.

    ``place`` is None where the region holds no point that was met.
    """

    ratio: float
    error: float
    place: Place | None

    @property
    def certain(self) -> float:
        """The ratio less its error."""
        return self.ratio - self.error


#: Nothing was met.
NOWHERE = Peak(-np.inf, 0.0, None)


def largest_ratio(one: Law, other: Law, starts: list[Array], *, regular: bool) -> Peak:
    """Largest log ratio of ``one`` over ``other`` met; ``regular`` keeps to where theta determines v."""
    best = NOWHERE

    def height(u: Array) -> float:
        nonlocal best
        place = one.place(u)
        if regular and not place.regular:
            return -np.inf
        ratio = log_ratio(one, other, place)
        if ratio > best.certain:
            # far out, a ratio can be larger by nothing but its rounding
            found = Peak(ratio, one.error(place) + other.error(place), place)
            best = found if found.certain > best.certain else best
        return ratio

    heights = np.array([height(u) for u in starts])
    for index in np.argsort(-heights)[:ASCENTS]:
        if np.isfinite(heights[index]):
            _climb(height, starts[index], one.units)
    return best


def _climb(height: Callable[[Array], float], start: Array, units: Array) -> None:
    # a simplex, because the ratio jumps where Pi does and has kinks where a noise vanishes
    p = len(start)
    reach = 0.1 * (float(np.linalg.norm(start / units)) + 1.0) * units
    simplex = np.vstack([start, start + np.diag(reach)])
    limits: Any = {"initial_simplex": simplex, "maxfev": _EVALUATIONS * p, "xatol": 1e-9, "fatol": 1e-9}

    def depth(u: Array) -> float:
        return min(-height(u), 1e300)

    minimize(depth, start, method="Nelder-Mead", options=limits)
