"""A search for the largest log density ratio of two output laws: many starts, then steps uphill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dp2erm_cvx.audit.law import OutputLaw, Place
from dp2erm_cvx.domain import Array
from dp2erm_cvx.mechanism import simulate

#: The best starts that are improved, per direction and region.
ASCENTS = 4
_EVALUATIONS = 120  # per coordinate and ascent


@dataclass(frozen=True)
class Peak:
    """The largest ratio met, and where; ``place`` is None where the region holds no point that was met."""

    ratio: float
    place: Place | None


def log_ratio(one: OutputLaw, other: OutputLaw, place: Place) -> float:
    """Log of the density of ``one`` over that of ``other``."""
    return one.log_density(place) - other.log_density(place)


def starting_points(one: OutputLaw, other: OutputLaw, count: int, rng: np.random.Generator) -> list[Array]:
    """Where the ratio may be large: typical outputs, those of no noise, and those far out.

    Gamma noise is worst where both noises point along the difference of the gradients: every start is
    followed by the points that this asks for at its theta.
    """
    zero = np.zeros(one.model.dimension)
    found = [law.place_of(zero)[0] for law in (one, other)]
    for law in (one, other):
        found += [law.place_of(b)[0] for b in simulate(law.calibration, (count + 1) // 2, rng)]
    reach = one.calibration.scale * one.coordinates.step * one.model.dimension
    found += [
        reach * 10.0 ** rng.uniform(-1, 3) * direction / np.linalg.norm(direction)
        for direction in rng.standard_normal((count, one.model.dimension))
    ]
    for u in list(found):
        place = one.coordinates.place(u)
        # just inside Theta, where the search among regular points has to begin
        found.append(0.999 * place.theta + one.coordinates.step * one.coordinates.penalty.l1 * np.sign(u))
        b = one.noise(place)
        apart = other.noise(place) - b
        for factor in (0.0, 1.0, 100.0):
            found.append(u + one.coordinates.step * (b - factor * apart))
    return found


def largest_ratio(one: OutputLaw, other: OutputLaw, starts: list[Array], *, regular: bool) -> Peak:
    """Largest log ratio of ``one`` over ``other`` met; ``regular`` keeps to where theta determines v."""
    best = Peak(-np.inf, None)

    def height(u: Array) -> float:
        nonlocal best
        place = one.coordinates.place(u)
        if regular and not place.regular:
            return -np.inf
        ratio = log_ratio(one, other, place)
        if ratio > best.ratio:
            best = Peak(ratio, place)
        return ratio

    heights = np.array([height(u) for u in starts])
    for index in np.argsort(-heights)[:ASCENTS]:
        if np.isfinite(heights[index]):
            _climb(height, starts[index], one.coordinates.step * one.calibration.scale)
    return best


def _climb(height: Callable[[Array], float], start: Array, unit: float) -> None:
    # a simplex, because the ratio jumps where Pi does and has kinks where a noise vanishes
    p = len(start)
    reach = 0.1 * float(np.linalg.norm(start)) + 0.1 * unit
    simplex = np.vstack([start, start + reach * np.eye(p)])
    limits: Any = {"initial_simplex": simplex, "maxfev": _EVALUATIONS * p, "xatol": 1e-9, "fatol": 1e-9}

    def depth(u: Array) -> float:
        return min(-height(u), 1e300)

    minimize(depth, start, method="Nelder-Mead", options=limits)
