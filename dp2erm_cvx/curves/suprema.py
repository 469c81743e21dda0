"""Certified suprema: what every constant of a margin program is, as an upper bound close to the
exact value.

A record's gradient is ``(c phi'(<z, v> + o) + t) z`` with ``||z|| <= 1``; rows of another norm
bound are scaled by the caller. Cells have outward ends, and the larger value is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array

Interval = tuple[float, float]

#: Relative excess that a search may leave, and margin for the rounding of its own arithmetic.
_CLOSE, _OUTWARD = 2e-5, 1.0 + 1e-10
#: For the rounding of closed forms.
_ROUNDED = 1.0 + 1e-12
_ANGLES, _ROUNDS, _MOST_NODES = 256, 40, 8192
#: Beyond this reach of margins only the limits of a loss are asked for.
_FARTHEST = 1e5
#: Reach of margins, times the bend of the loss, beyond which its slope is that of its limits.
_LIMIT = 30.0
#: Relative excess of a supremum over one margin, and of one over two angles.
_LINE, _BALL = 1e-9, 2e-4
_CELLS, _MOST_CELLS = 48, 200_000


# A :class:`~dp2erm_cvx.curves.curves.Curve` phi: ``ends``, the limits of its slope; ``kinks``,
# where its curvature jumps; ``bend``, c with ``|phi'''| <= c phi''`` between them; ``slope``,
# ``curvature``, and the least and largest ``curvatures`` on cells.
ScalarLoss = Any
# A :class:`~dp2erm_cvx.curves.log_weights.LogWeight` h: ``lipschitz``, the largest slope;
# ``curve``, h before it is cut off or minus it as a loss, or None; ``enclose``, intervals of value
# and slope on cells; ``range``, bounds of the value; ``is_clipped``, True if it has kinks, where
# gradients count from 0.
ScalarWeight = Any


@dataclass(frozen=True)
class MarginGradient:
    """Gradients ``(c phi'(<z, v> + o) + t) z`` of the records of one kind, ``||z|| <= 1``.

    Parameters
    ----------
    loss
        Phi.
    offset
        Public interval of o, in units of the margin.
    factor
        Public interval of c, at least 0.
    tilt
        Public interval of t, in units of the loss over those of the margin.
    """

    loss: ScalarLoss
    offset: Interval = (0.0, 0.0)
    factor: Interval = (1.0, 1.0)
    tilt: Interval = (0.0, 0.0)

    def largest(self, reach: float) -> float:
        """Bound on ``|c phi' + t|`` where ``|<z, v>|`` is at most ``reach``."""
        low, high = _multiples(self.loss, reach, self.offset, self.factor, self.tilt)
        return max(abs(low), abs(high))


@dataclass(frozen=True)
class MarginSlope:
    """Gradients ``h'(<z, v> + o) z`` of the log weights of one kind of records, ``||z|| <= 1``.

    Parameters
    ----------
    weight
        H, the logarithm of a weight.
    offset
        Public interval of o, in units of the margin.
    """

    weight: ScalarWeight
    offset: Interval = (0.0, 0.0)


def gradient_diameter(
    loss: ScalarLoss,
    reach: float,
    offset: Interval = (0.0, 0.0),
    factor: Interval = (1.0, 1.0),
    tilt: Interval = (0.0, 0.0),
) -> float:
    """Diameter of a record's gradients at one v, the largest over ``||v|| <= reach`` (Lemma A).

    ``offset``, ``factor`` (at least 0) and ``tilt`` are the public intervals of o, c and t. In a
    direction at an angle alpha to v the support function is ``H(alpha) = max of |y| sin(alpha)
    cos(t) + y cos(alpha) sin(t)`` over the angle t of the row and y = c phi' + t; the diameter is
    the largest ``H(alpha) + H(pi - alpha)``. Between angles a step h apart a width grows by at most
    ``1/cos(h/2)``, and H is taken on a grid of t to second order.
    """
    return diameter_of_kinds((MarginGradient(loss, offset, factor, tilt),), reach)


@lru_cache(maxsize=1024)
def diameter_of_kinds(kinds: tuple[MarginGradient, ...], reach: float) -> float:
    """Diameter of the gradients of records of any of these kinds at one v, ``||v|| <= reach``
    (Lemma A).

    The support function of a union is the largest of those of its parts. See
    :func:`gradient_diameter`.

    Parameters
    ----------
    kinds
        What a record may be; every kind has all rows of norm at most 1.
    reach
        Bound on ``||v||``, which may be infinite.

    Returns
    -------
    float
        An upper bound, in units of the loss over those of the margin.
    """
    anywhere = 2.0 * max(kind.largest(reach) for kind in kinds)
    if not reach <= _FARTHEST or not math.isfinite(anywhere) or anywhere == 0.0:
        return anywhere * _OUTWARD
    if len(kinds) == 1:
        (kind,) = kinds
        bend = _bend_of_odd_line(kind.loss)
        symmetric = kind == MarginGradient(kind.loss, (-kind.offset[1], kind.offset[1]))
        if bend is not None and symmetric:
            return _limacon_width(bend * reach, bend * kind.offset[1])
    searched = _largest_over_radii(reach, lambda p, q: _width(kinds, p, q))
    return min(anywhere, searched) * _OUTWARD


def multiple_diameter(
    loss: ScalarLoss, reach: float, offset: Interval, factor: Interval, tilt: Interval
) -> Interval:
    """Largest difference of multiples ``c phi'(s + o) + t`` at one s, ``|s| <= reach``, and the
    largest.
    """
    low, high = _multiples(loss, reach, offset, factor, tilt)
    size, line = max(abs(low), abs(high)), _bend_of_odd_line(loss)
    if line is not None and (factor, tilt) == ((1.0, 1.0), (0.0, 0.0)):
        return line * (offset[1] - offset[0]), size

    def between(first: Array, last: Array) -> Array:
        down, up = loss.slope(first + offset[0]), loss.slope(last + offset[1])
        highest = np.maximum(factor[0] * up, factor[1] * up)
        width: Array = (
            highest - np.minimum(factor[0] * down, factor[1] * down) + (tilt[1] - tilt[0])
        )
        return width

    if not reach <= _FARTHEST:
        return high - low, size
    width = largest_of(
        lambda s, r: (between(s, s), between(s - r, s + r)), (-reach, reach), 1, _CLOSE
    )
    return min(high - low, width), size


def log_weight_diameter(weight: ScalarWeight, reach: float, *, clipped: bool) -> float:
    """Diameter of ``{h'(<z, v>) z}``, ``||z|| <= 1``, ``||v|| <= reach``; with slopes 0 in it if
    clipped.

    Gradients are 0 at z = 0, so that a function cut off at constants has at most the diameter of
    itself.
    """
    return slope_diameter_of_kinds((MarginSlope(weight),), reach, clipped=clipped)


@lru_cache(maxsize=256)
def slope_diameter_of_kinds(
    kinds: tuple[MarginSlope, ...], reach: float, *, clipped: bool
) -> float:
    """Diameter of ``h'(<z, v> + o) z`` over the records of any of these kinds, ``||v|| <= reach``.

    Parameters
    ----------
    kinds
        What a record may be; every kind has all rows of norm at most 1.
    reach
        Bound on ``||v||``, which may be infinite.
    clipped
        Whether slopes of 0 count as well, as they do where a log weight has kinks.

    Returns
    -------
    float
        An upper bound, in inverse units of the margin.
    """
    anywhere = 2.0 * max(float(kind.weight.lipschitz) for kind in kinds)
    if len(kinds) == 1 and kinds[0].weight.curve is not None:
        # a multiple of an atom, or minus one: signs matter between kinds only
        anywhere = gradient_diameter(kinds[0].weight.curve, reach, kinds[0].offset)
        if not clipped:
            return anywhere
    if not reach <= _FARTHEST:
        return anywhere
    searched = _largest_over_radii(reach, lambda p, q: _weight_width(kinds, p, q, clipped), 1e-3)
    return min(anywhere, searched) * _OUTWARD


def largest_multiple(
    loss: ScalarLoss, reach: float, offset: Interval, factor: Interval, tilt: Interval
) -> float:
    """Bound on ``|c phi'(s + o) + t|`` over ``|s| <= reach``: the largest gradient of rows of norm
    1.
    """
    return max(map(abs, _multiples(loss, reach, offset, factor, tilt))) * _ROUNDED


def corners(x: Array, y: Array) -> NDArray[np.int64]:
    """Numbers of the points (x, y) at which some ``a x + b y`` is largest, a >= 0 and b > 0, by
    falling x.

    Rounding may take one that is below the convex hull by less than ``_OUTWARD``.
    """
    order = np.lexsort((-y, -x))
    highest = np.maximum.accumulate(y[order])
    order = order[np.concatenate([[True], highest[1:] > highest[:-1]])]
    hull: list[tuple[float, float, int]] = []
    for right, up, number in zip(x[order].tolist(), y[order].tolist(), order.tolist(), strict=True):
        while len(hull) > 1:
            (far, low, _), (near, high, _) = hull[-2:]
            if (up - low) * (far - near) < (high - low) * (far - right):
                break
            hull.pop()
        hull.append((right, up, number))
    return np.array([number for _, _, number in hull])


def support(x: Array, y: Array, a: Array, b: Array) -> Array:
    """Largest ``a x + b y`` over :func:`corners` (x, y), for each a >= 0 and b > 0."""
    slopes = np.diff(y) / -np.diff(x)
    at = len(slopes) - np.searchsorted(slopes[::-1], a / b)
    largest: Array = a * x[at] + b * y[at]
    return largest


def _multiples(
    loss: ScalarLoss, reach: float, offset: Interval, factor: Interval, tilt: Interval
) -> Interval:
    if math.isfinite(reach):
        slopes = loss.slope(np.array([offset[0] - reach, offset[1] + reach]))
        down, up = float(slopes[0]), float(slopes[1])
    else:
        down, up = loss.ends
    # a factor of 0 leaves nothing of a slope without end
    low, high = (
        min(c * down if c else 0.0 for c in factor),
        max(c * up if c else 0.0 for c in factor),
    )
    return low + tilt[0], high + tilt[1]


def _bend_of_odd_line(loss: ScalarLoss) -> float | None:
    """The curvature of a loss whose slope is a multiple of the margin; None for any other."""
    everywhere = np.array([math.inf])
    with np.errstate(over="ignore", invalid="ignore"):
        least, largest = (float(bounds[0]) for bounds in loss.curvatures(-everywhere, everywhere))
    return least if least == largest and float(loss.slope(np.zeros(1))[0]) == 0.0 else None


def _limacon_width(A: float, B: float) -> float:
    """``max over t of 2 sin(t) (A cos(t) + B)``: the extreme gradients of a squared loss trace a
    limacon.
    """
    cosine = 2.0 * A / (B + math.hypot(B, math.sqrt(8.0) * A))
    return 2.0 * math.sqrt(1.0 - cosine**2) * (A * cosine + B) * _ROUNDED


def _largest_over_radii(
    reach: float, width: Callable[[float, float], float], close: float = _CLOSE
) -> float:
    """Largest width over radii up to ``reach``: cells are split until their bounds agree with a
    value.
    """
    edges = np.linspace(0.0, reach, 5)
    cells = [(width(float(p), float(q)), float(p), float(q)) for p, q in pairwise(edges)]
    best = width(reach, reach)
    for _ in range(_ROUNDS):
        top, p, q = max(cells)
        if top <= best * (1.0 + close):
            break
        middle = 0.5 * (p + q)
        best = max(best, width(middle, middle))
        cells.remove((top, p, q))
        cells += [(width(p, middle), p, middle), (width(middle, q), middle, q)]
    return max(best, *(top for top, _, _ in cells))


def _width(kinds: tuple[MarginGradient, ...], p: float, q: float) -> float:
    """Upper bound of the diameter for ``p <= ||v|| <= q``."""
    multiples, angles, rises = [], [], []
    for kind in kinds:
        y, t, rise = _support_nodes(kind, p, q)
        multiples.append(y)
        angles.append(t)
        rises.append(rise)
    return _spread(np.concatenate(multiples), np.concatenate(angles)) + 2.0 * max(rises)


def _support_nodes(kind: MarginGradient, p: float, q: float) -> tuple[Array, Array, float]:
    """Multiples y and angles of rows at nodes, for ``p <= ||v|| <= q``, and by how much H may
    exceed them.
    """
    loss = kind.loss
    offset = kind.offset
    reach = q + max(map(abs, offset))
    steep = kind.factor[1] * float(loss.curvatures(np.array([-reach]), np.array([reach]))[1][0])
    size = kind.largest(q)
    turn = (
        steep * (loss.bend_within(reach) * q * q + 3.0 * q) + size
    )  # bounds g'' of g = |y| sin(alpha + t)
    count = 0.5 * math.pi * math.sqrt(max(turn / max(size, 1e-300), 1.0) / (8.0 * _CLOSE))
    t = _nodes(2 * math.ceil(min(count, _MOST_NODES / 2)), loss.kinks, (p, q), offset)
    m = np.sin(t)
    first, last = np.minimum(p * m, q * m), np.maximum(p * m, q * m)
    down, up = loss.slope(first + offset[0]), loss.slope(last + offset[1])
    lowest = np.minimum(kind.factor[0] * down, kind.factor[1] * down) + kind.tilt[0]
    highest = np.maximum(kind.factor[0] * up, kind.factor[1] * up) + kind.tilt[1]
    y = np.concatenate([lowest, highest])
    rise = float(np.max(np.diff(t))) ** 2 / 8.0 * float(turn)
    return y, np.concatenate([t, t]), rise


def _weight_width(kinds: tuple[MarginSlope, ...], p: float, q: float, clipped: bool) -> float:
    """Diameter for derivatives that need not be monotone: every cell of angles takes its largest
    one.
    """
    t = np.linspace(-math.pi / 2, math.pi / 2, 2049)
    m = np.sin(t)
    corners = np.stack([p * m[:-1], p * m[1:], q * m[:-1], q * m[1:]])
    first, last = corners.min(axis=0), corners.max(axis=0)
    slopes = []
    for kind in kinds:
        _, _, down, up = kind.weight.enclose(first + kind.offset[0], last + kind.offset[1])
        if not np.all(np.isfinite([down, up])):
            return math.inf
        if clipped:
            down, up = np.minimum(down, 0.0), np.maximum(up, 0.0)
        slopes += [down, down, up, up]
    ends = np.concatenate([t[:-1], t[1:]])
    widest = _spread(np.concatenate(slopes), np.tile(ends, 2 * len(kinds)), 64)
    return widest / math.cos(0.5 * (t[1] - t[0]))


def _spread(y: Array, t: Array, angles: int = _ANGLES) -> float:
    """Largest ``H(alpha) + H(pi - alpha)`` over all angles, H from multiples y at row angles t."""
    alpha = np.linspace(0.0, math.pi, 2 * angles + 1)
    across, along, sines, cosines = (
        np.abs(y) * np.cos(t),
        y * np.sin(t),
        np.sin(alpha),
        np.cos(alpha),
    )
    half = angles + 1
    on, below = corners(across, along), corners(across, -along)
    upper = support(across[on], along[on], sines[:half], cosines[:half])
    lower = support(across[below], -along[below], sines[half:], -cosines[half:])
    H = np.concatenate([upper, lower])
    return float(np.max(H + H[::-1])) / math.cos(0.5 * (alpha[1] - alpha[0]))


def _nodes(count: int, kinks: tuple[float, ...], radii: Interval, offset: Interval) -> Array:
    """Angles from -pi/2 to pi/2, with those at which a margin meets a kink."""
    t = np.linspace(-math.pi / 2, math.pi / 2, count + 1)
    at = [(kink - o) / rho for kink in kinks for o in offset for rho in radii if rho > 0.0]
    extra = [math.asin(sine) for sine in at if abs(sine) < 1.0]
    return np.unique(np.concatenate([t, [0.0], extra]))


@dataclass(frozen=True)
class Saturation:
    """Constants of Theorems 15, 16 and 19 for ``c phi(<z, v>)`` whose curvature falls as ``|phi'|``
    grows.

    S is the largest ``c |phi'|``, kappa the largest ``c phi''``, ``u = |phi'| / S`` and ``h = phi''
    / kappa`` at one margin, both in [0, 1].

    Attributes
    ----------
    loss : phi, without kinks and with finite limits of its slope; see :meth:`of`
    row_norm : M with ``||z||_2 <= M`` over the domain, the constant column included
    factor : largest c
    ball : bound on ``|<z, v>|`` over the set of v, for a loss without an offset (Theorem 19)
    """

    loss: ScalarLoss
    row_norm: float
    factor: float = 1.0
    ball: float = math.inf

    @classmethod
    def of(cls, loss: ScalarLoss, row_norm: float, factor: float, ball: float) -> Saturation | None:
        """Saturation of a loss; None where the slope is unbounded or the curvature jumps."""
        bounded = max(map(abs, loss.ends)) < math.inf and 0.0 < loss.bend < math.inf
        return cls(loss, row_norm, factor, ball) if bounded and not loss.kinks else None

    @property
    def slope(self) -> float:
        """S, in units of the loss over those of the margin."""
        return self.factor * float(max(map(abs, self.loss.ends)))

    @property
    def curvature(self) -> float:
        """Kappa."""
        everywhere = np.array([math.inf])
        return self.factor * float(self.loss.curvatures(-everywhere, everywhere)[1][0])

    @property
    def steepness(self) -> float:
        """A number q with ``h <= q (1 - u)`` at every margin: ``a u + k h <= a`` iff it holds for q
        k <= a.

        Far from s the slope still grows by the integral of phi'', at least ``phi''(s) / bend``.
        """
        return self.slope * float(self.loss.bend) / self.curvature

    @property
    def in_a_ball(self) -> bool:
        """True if the set of v bounds the margins to any effect."""
        return self.ball * float(self.loss.bend) < _LIMIT

    def largest(self, a: float, k: float, *, box: bool = False) -> float:
        """Bound on ``a ||g - g'|| + k h`` over the set of v and ordered pairs of records.

        g and g' are their gradients at one v in units of M S, h is that of the first one. In a
        ``box``, in whose norm rows have size 1, ``u + u'`` stands for the distance.
        """
        top = self._top if box else 1.0
        alone = max(a, self.steepness * k)
        if a < alone or top < 1.0:
            alone = min(alone, self._along(lambda u, h: a * u + k * h, box=box))
        anywhere = a * top + alone
        if box or not self.in_a_ball:
            return anywhere
        return min(anywhere, self._across(lambda apart, h: a * apart + k * h))

    def steepest(self, total: float, k: float, *, box: bool = False) -> float:
        """An a with ``largest(a, k) <= total``, the largest but for rounding; 0 where there is
        none.
        """
        share = k / total
        free = 0.5 * (1.0 - 1e-12) if share * self.steepness <= 0.5 else 0.0
        if self.in_a_ball and share < 0.5:  # at least half of the sum is a d
            free = max(free, _steepest(self, share, box))
        return free * total

    @property
    def _top(self) -> float:
        """Largest u over the set of v."""
        if not self.in_a_ball:
            return 1.0
        ends = self.loss.slope(np.array([-self.ball, self.ball]))
        return min(float(np.max(np.abs(ends))) * self.factor / self.slope * _ROUNDED, 1.0)

    def _at(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Largest u and h on cells of margins."""
        u = np.maximum(np.abs(self.loss.slope(low)), np.abs(self.loss.slope(high)))
        h = self.loss.curvatures(low, high)[1]
        return np.minimum(u * (self.factor / self.slope), 1.0), h * (self.factor / self.curvature)

    def _along(self, value: Callable[[Array, Array], Array], *, box: bool) -> float:
        """Upper bound on ``value(u, h)``, increasing in both, over one margin."""
        far = 40.0 / self.loss.bend
        reach = min(self.ball, far) if box else far
        at, ends = self._at, (-reach, reach)
        searched = largest_of(
            lambda s, r: (value(*at(s, s)), value(*at(s - r, s + r))), ends, 1, _LINE
        )
        if reach < far:
            return searched
        # a loss may bend again out there, as a sum of shifted ones does
        tails = self.loss.curvatures(np.array([-math.inf, far]), np.array([-far, math.inf]))[1]
        return max(
            searched, float(np.max(value(np.ones(2), tails * (self.factor / self.curvature))))
        )

    def _across(self, value: Callable[[Array, Array], Array]) -> float:
        """Upper bound on ``value(||g - g'||, h)``, increasing in both, over two records and v.

        Angles t of rows to v have margins ``rho sin t``, and the parts of g and g' across v are
        opposite at worst (page of calibrations).
        """
        ball, unit, flat = self.ball, self.factor / self.slope, self.factor / self.curvature
        steep = math.hypot(1.0, ball * self.curvature / self.slope)

        def bounds(angles: Array, width: float) -> tuple[Array, Array]:
            sines, cosines = np.sin(angles), np.cos(angles)
            pulls = self.loss.slope(ball * sines) * unit
            along, across = pulls * sines, np.abs(pulls) * cosines
            apart = np.sqrt((along[0] - along[1]) ** 2 + (across[0] + across[1]) ** 2)
            # the angles of a cell are in [-pi/2, pi/2], where the sine grows
            middle, off = sines[0] * math.cos(width), cosines[0] * math.sin(width)
            h = self.loss.curvature(ball * sines[0]) * flat
            highest = self.loss.curvatures(ball * (middle - off), ball * (middle + off))[1] * flat
            return value(apart, h), value(np.minimum(apart + 2.0 * width * steep, 2.0), highest)

        return largest_of(bounds, (-math.pi / 2, math.pi / 2), 2, _BALL)


@lru_cache(maxsize=256)
def _steepest(curve: Saturation, share: float, box: bool) -> float:
    if box:
        top = curve._top
        return (1.0 - 3.0 * _LINE) / curve._along(
            lambda u, h: (top + u) / (1.0 - share * h), box=True
        )
    # at least half of the sum is a d, and it may be found too large by this
    return (1.0 - 3.0 * _BALL) / curve._across(lambda apart, h: apart / (1.0 - share * h))


def largest_of(
    bounds: Callable[[Array, float], tuple[Array, Array]],
    ends: Interval,
    variables: int,
    close: float,
) -> float:
    """Upper bound of a function over a cube, by cells that are cut in half until one is close to a
    value.

    ``bounds`` has the value at the centers ``(variables, m)`` of cells, one row of them for one
    variable, and an upper bound on the cells, which reach ``width`` to either side.
    """
    width = (ends[1] - ends[0]) / (2 * _CELLS)
    ticks = ends[0] + width * (2 * np.arange(_CELLS) + 1)
    centers = np.stack([grid.ravel() for grid in np.meshgrid(*[ticks] * variables)])
    corners = np.stack([grid.ravel() for grid in np.meshgrid(*[(-0.5, 0.5)] * variables)])
    best, most = -math.inf, math.inf
    for _ in range(_ROUNDS):
        values, cells = bounds(centers if variables > 1 else centers[0], width)
        best, most = max(best, float(np.max(values))), float(np.max(cells))
        if most <= best * (1.0 + close) or cells.size > _MOST_CELLS:
            break
        promising = centers[:, cells >= best]
        centers = (promising[:, :, None] + width * corners[:, None, :]).reshape(variables, -1)
        width /= 2.0
    return most * (1.0 + 1e-9)
