"""Weights that are proportional to ``exp(h)`` at the minimizer of a separable loss (Theorems 3, 22, 23).

The coefficient minimizes over ``||v|| <= radius`` the mean of ``phi(<z_i, v>)`` plus ``ridge/2 ||v||^2``, and
``w_i`` is proportional to ``f(<z_i, v>)``, f = exp(h), with sum n: one normalization over all records, read
at the margin that the loss bends. Everything follows from phi, h and a bound on the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.stability.base import EXACT, coupled_variation, largest_weight, positive_ridge, stated_bound
from dp2erm_cvx.suprema import (
    Array,
    Interval,
    ScalarLoss,
    ScalarWeight,
    corners,
    gradient_diameter,
    largest_of,
    log_weight_diameter,
    support,
)

_CELLS, _NORMS, _ROUNDS, _MOST_CELLS = 1500, 48, 5, 20_000
_MULTIPLIERS, _ZOOMS, _TOP = 24, 5, 32
_MOVES, _ANGLES = 40_000, 4096
_OUTWARD, _ROUNDED = 1.0 + 1e-10, 1.0 + 1e-12
#: Margins and log weights beyond which exponentials leave floating point.
_FARTHEST = 600.0


def separable(
    n: int,
    ridge: float,
    gradient_diameter: float,
    log_weight_diameter: float,
    log_weight_range: float,
    radius: float = math.inf,
) -> StabilityBound:
    """Bound for any separable scheme (Theorem 3); any change of a record inside the domain is covered.

    The coefficient minimizes over ``||lam|| <= R`` the mean of ``psi(lam; d_i)``, convex in lam, plus
    ``(ridge / 2) ||lam||^2``, and ``w_i`` is proportional to ``exp(h(lam; d_i))`` with sum ``n``. Over all
    records of the domain and all ``||lam|| <= radius``, a bound on every dataset: ``gradient_diameter`` D_psi
    is that of the gradients of psi, ``log_weight_diameter`` D_h that of h, with the zero vector where it is
    clipped (clipping does not preserve differences), ``log_weight_range`` H the length of the interval that h
    lies in, ``inf`` for none. Raises DeclarationError for an invalid number and CalibrationError for ``ridge
    = 0``.
    """
    n = whole_number("n", n, at_least=2)
    D_psi = public_number("gradient_diameter", gradient_diameter, at_least=0.0)
    D_h = public_number("log_weight_diameter", log_weight_diameter, at_least=0.0)
    H = public_number("log_weight_range", log_weight_range, at_least=0.0, infinite=True)
    r = public_number("radius", radius, above=0.0, infinite=True)
    # both coefficients lie in the ball, and h varies by at most H at either of them
    movement = min(D_psi / n / positive_ridge(ridge), 2.0 * r)
    spread = min(D_h * movement if D_h > 0.0 else 0.0, 2.0 * H)
    w_max = largest_weight(n, H)
    return stated_bound(
        n,
        coupled_variation(n, w_max, 2.0 * math.tanh(spread / 4.0)),
        w_max,
        "Theorem 3 (separable schemes)",
        (
            f"gradients of psi in a set of diameter {D_psi:g}, of h in one of diameter {D_h:g}",
            f"log weights in an interval of length {H:g}",
            EXACT,
        ),
    )


@dataclass(frozen=True)
class MarginMovement:
    """Numbers of Theorems 3, 22 and 23 that bound the movement of weights, for rows of norm 1.

    ``reach`` bounds every margin of a minimizer; the diameters are D and D_h, the range is H; ``largest``
    bounds a weight and ``least_mean`` the mean of f over any n - 1 records of a minimizer from below (Theorem
    23); ``variance`` is C of Theorem 22, ``inf`` where a weight moves and the loss is flat.
    """

    reach: float
    gradient_diameter: float
    log_weight_diameter: float
    log_weight_range: float
    largest: float
    least_mean: float
    variance: float
    bound: StabilityBound


@lru_cache(maxsize=512)
def margin_movement(
    n: int,
    ridge: float,
    row_norm: float,
    loss: ScalarLoss,
    weight: ScalarWeight,
    *,
    radius: float = math.inf,
    beside: float = 0.0,
    varying: float | None = None,
) -> MarginMovement:
    """Bound for a separable scheme: the least of Theorem 3, Theorems 22 and 23, and 2n.

    ``loss`` and ``weight`` are phi and h of margins of rows ``||z|| <= row_norm``; ``ridge`` and ``radius``
    are those of the mean objective, in squared and in inverse units of the rows. ``beside`` bounds the rows
    of a linear term beside the loss, in units of ``row_norm``; where rows are ``e_a (x) g`` and those of the
    linear term a multiple of the same g in the other arm, ``varying`` bounds all of g but a constant. Raises
    DeclarationError for an invalid number and CalibrationError for ``ridge = 0``.
    """
    n = whole_number("n", n, at_least=2)
    norm = public_number("row_norm", row_norm, above=0.0)
    ball = public_number("radius", radius, above=0.0, infinite=True) * norm
    mu = min(positive_ridge(ridge) / norm / norm, 1e280)
    reach = minimizer_norm(loss, mu, ball, beside)
    D = record_diameter(loss, reach, beside, varying)
    D_h = weight_diameter(weight, reach, clipped=weight.is_clipped, varying=varying)
    low, high = weight.range(-reach, reach) if reach <= _FARTHEST else (0.0, 2.0 * weight.lipschitz * reach)
    H = high - low
    w_crude = largest_weight(n, H)
    end = min(D / n / mu if mu else math.inf, 2.0 * reach)
    by_range = 2.0 * math.tanh(min(D_h * end, 2.0 * H) / 4.0)
    V = coupled_variation(n, w_crude, by_range)
    largest, mean, C, theorem = w_crude, 0.0, math.inf, "Theorem 3 (separable schemes)"
    scheme = _Scheme(n, mu, reach, loss, weight, beside, varying is not None)
    if reach <= _FARTHEST and scheme.log_size <= _FARTHEST:
        largest, mean = scheme.largest_and_mean()
        largest = min(largest, w_crude)
        C, G, steep = scheme.variance()
        law = _law_change(n, mu, end, (D, D_h, H), (C, G / mean if mean > 0 else math.inf), steep)
        sharper = coupled_variation(n, largest, min(law, by_range))
        if sharper < V:
            V, theorem = sharper, "Theorems 22 and 23 (separable schemes)"
    assumptions = (
        f"gradients of the loss in a set of diameter {D * norm:g}, of log weights in one of {D_h * norm:g}",
        f"margins at most {reach:g}, log weights in an interval of length {H:g}",
        EXACT,
    )
    bound = stated_bound(n, V, largest, theorem, assumptions)
    return MarginMovement(reach, D, D_h, H, largest, mean, C, bound)


@dataclass(frozen=True)
class _Scheme:
    """Rows of norm 1: phi, f, the ridge, the bound on margins, and that on rows of a linear term."""

    n: int
    mu: float
    reach: float
    loss: ScalarLoss
    weight: ScalarWeight
    beside: float
    by_arm: bool

    def cells(self) -> tuple[Array, Array]:
        """Cells of margins that end at 0."""
        half = np.linspace(0.0, self.reach, _CELLS // 2 + 1)
        edges = np.concatenate([-half[:0:-1], half])
        return edges[:-1], edges[1:]

    @property
    def log_size(self) -> float:
        """Largest size of log f on cells; infinite where f or a slope of phi would leave no number."""
        if not np.all(np.isfinite(self.loss.slope(np.array([-self.reach, self.reach])))):
            return math.inf
        return float(np.max(np.abs(self.weight.enclose(*self.cells())[:2])))

    def weights(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Least and largest f, and the largest ``|h'|``, on cells."""
        down, up, falls, rises = self.weight.enclose(low, high)
        return np.exp(down) / _OUTWARD, np.exp(up) * _OUTWARD, np.maximum(np.abs(falls), np.abs(rises))

    def variance(self) -> tuple[float, float, float]:
        """C of Theorem 22, the largest ``g = f h'^2 / phi''`` and the largest ``|h'|``, by cells."""
        low, high = self.cells()
        for _ in range(_ROUNDS):
            least, largest, steep = self.weights(low, high)
            bend = self.loss.curvatures(low, high)[0]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                g = np.where(steep == 0.0, 0.0, largest * steep**2 / np.maximum(bend, 0.0)) * _OUTWARD
            if not math.isfinite(float(np.max(g))):
                return math.inf, math.inf, float(np.max(steep))
            on = corners(g, _OUTWARD / least)
            near = g[on], _OUTWARD / least[on]
            low, high = _cut(low, high, on)
        return _variance_constant(*near), float(np.max(near[0])), float(np.max(steep))

    def largest_and_mean(self) -> tuple[float, float]:
        """Theorem 23: the largest weight, and the least mean of f over n - 1 records, by cells."""
        low, high = self.cells()
        table = self._table(low, high)
        edges = np.linspace(0.0, self.reach, _NORMS + 1)
        cells = [self._at(table, float(p), float(q)) for p, q in pairwise(edges)]
        for _ in range(_ROUNDS):
            cells.sort(key=lambda cell: -cell[0])
            worst, cells = cells[:4], cells[4:]
            low, high = _cut(low, high, np.unique(np.concatenate([active for *_, active in worst])))
            table = self._table(low, high)
            finer = [np.linspace(p, q, 9).tolist() for _, _, p, q, _ in worst]
            cells += [self._at(table, p, q) for edge in finer for p, q in pairwise(edge)]
        largest = max(cell[0] for cell in cells) * _OUTWARD
        return min(largest, float(self.n)), min(cell[1] for cell in cells) / _OUTWARD

    def _table(self, low: Array, high: Array) -> tuple[Any, ...]:
        """Least size, largest pull, least and largest f on cells of margins, and their numbers, by size."""
        least, largest, _ = self.weights(low, high)
        near = np.maximum(np.maximum(low, -high), 0.0)
        order = np.argsort(near, kind="stable")
        return near[order], _pull(self.loss, low, high)[order], least[order], largest[order], order

    def _at(
        self, table: tuple[Any, ...], p: float, q: float
    ) -> tuple[float, float, float, float, NDArray[np.int64]]:
        """Largest weight and least mean where ``p <= ||v|| <= q``, p, q, and the cells that they rest on."""
        n, count = self.n, int(np.searchsorted(table[0], q, side="right"))
        near, pulled, least, largest, order = (column[:count] for column in table)
        if self.beside:
            # margins s and t of one g in both arms obey s^2 + t^2 <= ||v||^2
            other = np.sqrt(np.maximum(q * q - near * near, 0.0)) if self.by_arm else q
            pulled = pulled + self.beside * other
        need = (n * self.mu * np.maximum(p, near) ** 2 - pulled) / (n - 1)
        (possible,) = np.nonzero(need <= float(np.max(pulled)))
        if not len(possible):
            return 1.0, math.inf, p, q, order[:0]
        # the least mean of f under a mean of the pull: two corners of the hull share the others
        on, own = corners(pulled, -least)[::-1], largest[possible]
        shared = np.interp(need[possible], pulled[on], least[on]) - 1e-15 * np.max(least[on])  # rounding
        mean = np.maximum(shared, np.min(least))
        weights = n * own / (own + (n - 1) * mean)
        top = np.argsort(-weights)[:_TOP]
        place = np.minimum(np.searchsorted(pulled[on], need[possible][top]), len(on) - 1)
        active = np.concatenate([on[np.maximum(place - 1, 0)], on[place], possible[top]])
        return float(weights[top[0]]), float(np.min(mean)), p, q, order[active]


def _cut(low: Array, high: Array, chosen: NDArray[np.int64]) -> tuple[Array, Array]:
    """Cells of which the chosen are cut into eighths, unless they are many."""
    if len(low) + 7 * len(chosen) > _MOST_CELLS:
        return low, high
    edges = np.linspace(low[chosen], high[chosen], 9)
    rest = np.delete(np.arange(len(low)), chosen)
    return np.append(low[rest], edges[:-1]), np.append(high[rest], edges[1:])


def _variance_constant(g: Array, inverse: Array) -> float:
    """``C = sup 4 E[c_A^2 g] E[1/f]`` over laws on cells and events A (Theorem 22), by corners (g, 1/f).

    For a given mass Q of A and any t > 0 the product is at most ``((t X + Y / t) / 2)^2``; X and Y are linear
    in the laws on A and off it, so that each sits on one cell. The bound is convex in log t.
    """
    largest, top = float(np.max(g)), float(np.max(inverse))
    if largest == 0.0:
        return 0.0

    def product(p: Array, q: Array) -> Array:
        """The least bound at masses from p to q."""
        p, q = np.maximum(p, 0.0)[:, None], q[:, None]
        inside, outside = 4.0 * (1.0 - p) ** 2 * q, 4.0 * q * q * (1.0 - p)
        t, span = np.sqrt(top / ((inside + outside) * largest)), 1e3
        for _ in range(_ZOOMS):
            t = t * np.geomspace(1.0 / span, span, _MULTIPLIERS)
            sides = np.stack([t * inside, t * outside]), np.stack([q / t, (1.0 - p) / t])
            on, off = support(g, inverse, *sides)
            least = np.argmin(on + off, axis=1)[:, None]
            t, span = np.take_along_axis(t, least, axis=1), span ** (2.0 / (_MULTIPLIERS - 1))
        value: Array = np.min(0.5 * (on + off), axis=1) ** 2
        return value

    best = largest_of(lambda Q, r: (product(Q, Q), product(Q - r, Q + r)), (0.0, 0.5), 1, 1e-5)
    return min(best, largest * top) * _OUTWARD


def _law_change(
    n: int,
    mu: float,
    end: float,
    diameters: tuple[float, float, float],
    constants: tuple[float, float],
    steep: float,
) -> float:
    """Bound on the movement ell of the laws on the common records, the largest over moves up to ``end``."""
    D, D_h, H = diameters
    C, from_mean = constants
    edges = np.linspace(0.0, end, _MOVES + 1)
    low, high = edges[:-1], edges[1:]
    by_range = 2.0 * np.tanh(np.minimum(D_h * high, 2.0 * H) / 4.0)
    if not math.isfinite(min(C, from_mean)):
        return float(np.max(by_range))
    x = np.minimum(steep * high / 2.0, 700.0)
    growth = np.where(x > 1e-8, np.expm1(x) / np.maximum(x, 1e-300), 1.0 + x)
    peak = np.clip(D / n / mu / 2.0 if mu else math.inf, low, high)
    room = np.maximum(D * peak / n - mu * peak**2, 0.0)
    by_curvature = np.sqrt(np.minimum(C, from_mean * growth) * (n / (n - 1)) * room)
    return float(np.max(np.minimum(by_range, by_curvature))) * _OUTWARD


def minimizer_norm(loss: ScalarLoss, ridge: float, radius: float = math.inf, beside: float = 0.0) -> float:
    """Bound on ``||v||`` of a minimizer of a mean of ``phi(<z, v>)`` plus ``ridge/2 ||v||^2`` in a ball.

    By optimality at 0, ``ridge rho^2 <= max over |s| <= rho of -s phi'(s)`` (rows of norm 1), plus ``beside
    rho`` for linear terms of that norm. The largest such rho over geometric cells, the last one bisected.
    """

    def allowed(low: float, high: float) -> bool:
        """True if some rho of a cell may satisfy the condition."""
        edges = np.linspace(0.0, high, 2001)
        a, b = edges[:-1], edges[1:]
        top = float(np.max(np.maximum(_pull(loss, a, b), _pull(loss, -b, -a))))
        return not ridge * low**2 > top + beside * high

    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 4000)])
    low, high = edges[:-1], edges[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        right, left = _pull(loss, low, high), _pull(loss, -high, -low)
        most = np.maximum.accumulate(np.nan_to_num(np.maximum(right, left), nan=np.inf, posinf=np.inf))
        cells = np.flatnonzero(ridge * low**2 <= most + beside * high)
    if cells[-1] == len(low) - 1:
        return radius

    def last(parts: list[Interval], cuts: int) -> float | None:
        """Upper end of the last cell that may hold such a rho, cut so many times."""
        for cell in reversed(parts):
            if not allowed(*cell):
                continue
            inner = last(list(pairwise(np.linspace(*cell, 17).tolist())), cuts - 1) if cuts else cell[1]
            if inner is not None:
                return inner
        return None

    norm = last([(float(low[k]), float(high[k])) for k in cells], 3)
    return min(radius, (low[-1] if norm is None else norm) * _OUTWARD)


def _pull(loss: ScalarLoss, low: Array, high: Array) -> Array:
    """Upper bound of ``-s phi'(s)`` on cells: by its ends, and by its middle and its steepest derivative."""
    with np.errstate(over="ignore", invalid="ignore"):
        down, up = loss.slope(low), loss.slope(high)
        by_ends: Array = np.max([-low * down, -low * up, -high * down, -high * up], axis=0)
        least, largest = loss.curvatures(low, high)
        bends = np.stack([low * least, low * largest, high * least, high * largest])
        steep = np.maximum(np.abs(down + bends.min(axis=0)), np.abs(up + bends.max(axis=0)))
        middle = 0.5 * (low + high)
        by_middle = -middle * loss.slope(middle) + 0.5 * (high - low) * steep
    smaller: Array = np.fmin(by_ends, by_middle)
    return smaller


def record_diameter(
    loss: ScalarLoss, reach: float, beside: float = 0.0, varying: float | None = None
) -> float:
    """Diameter of ``phi'(<z, v>) z + c`` over records, the largest over ``||v|| <= reach``.

    Rows z and those of a linear term, c, have norms of at most 1 and ``beside``; where ``varying`` is known,
    ``z = e_a (x) g``, c is ``beside`` times the same g in the other arm, and all of g but a constant is at
    most ``varying`` long.
    """
    if varying is None:
        return gradient_diameter(loss, reach) + 2.0 * beside
    # within an arm the constant cancels in the other block
    within = math.hypot(gradient_diameter(loss, reach), 2.0 * beside * varying)
    return max(within, _across_arms(loss, reach, beside)) * _ROUNDED


def weight_diameter(
    weight: ScalarWeight, reach: float, *, clipped: bool, varying: float | None = None
) -> float:
    """Diameter of ``{h'(<z, v>) z}`` over rows as in :func:`record_diameter`; with 0 in it if clipped."""
    within = log_weight_diameter(weight, reach, clipped=clipped)
    if varying is None:
        return within
    across = math.sqrt(2.0) * weight.lipschitz
    return max(within, across if weight.curve is None else _across_arms(weight.curve, reach, 0.0))


def _across_arms(loss: ScalarLoss, reach: float, beside: float) -> float:
    """Distance of gradients of two arms: margins u, v have ``u^2 + v^2 <= reach^2``."""
    angle = np.linspace(0.0, math.pi / 2, _ANGLES + 1)
    # over a cell of angles each margin takes its larger end
    with np.errstate(over="ignore"):
        u, v = reach * np.cos(angle[:-1]), reach * np.sin(angle[1:])
        sizes = [np.maximum(np.abs(loss.slope(s)), np.abs(loss.slope(-s))) + beside for s in (u, v)]
        return float(np.max(np.hypot(*sizes)))
