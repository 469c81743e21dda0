"""Certified suprema: every constant of a margin program, as an upper bound close to its value.

A record's gradient is ``(c phi'(<z, v> + o) + t) z`` with ``||z|| <= 1``; rows of another norm
bound are scaled by the caller. Cells have outward ends, and the larger value is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_DOWN, ROUND_UP, ROUND_UP_SUMS, Array, largest_bound

Interval = tuple[float, float]

#: Relative excess that a search may leave.
_CLOSE = 2e-5
#: The same of a diameter of log weights.
_CLOSE_OF_WEIGHTS = 1e-3
#: For the rounding of the arithmetic of a search.
_OUTWARD = 1.0 + 1e-10
#: Angles of a quarter turn at which widths are taken.
_ANGLES = 256
#: Most rounds of cutting cells.
_ROUNDS = 40
#: Most angles of rows.
_MOST_NODES = 8192
#: Angles of rows for derivatives that need not be monotone, and of a quarter turn beside them.
_CELLS_OF_ANGLES = 2048
_FEW_ANGLES = 64
#: Beyond this reach of margins only the limits of a loss are asked for.
_FARTHEST = 1e5
#: Reach of margins, times the bend of the loss, beyond which its slope is that of its limits.
_LIMIT = 30.0
#: Relative excess of a supremum over one margin, and of one over two angles.
_LINE = 1e-9
_BALL = 2e-4
#: Reach of the margins that are searched, times the bend of the loss.
_FAR = 40.0
#: Cells of every variable of a search before any is cut, and the most after it.
_CELLS = 48
_MOST_CELLS = 200_000
#: Passes that leave out points below a chord at once, before the rest are taken one by one.
_PASSES = 3


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
        The function phi.
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
        low, high = self.multiples(reach)
        return max(abs(low), abs(high))

    def multiples(self, reach: float) -> Interval:
        """Least and largest ``c phi'(s + o) + t`` over ``|s| <= reach``, which may be infinite."""
        if math.isfinite(reach):
            margins = np.array([self.offset[0] - reach, self.offset[1] + reach])
            slopes = self.loss.slope(margins)
            least_slope = float(slopes[0])
            largest_slope = float(slopes[1])
        else:
            least_slope, largest_slope = self.loss.ends
        low = min(_multiple(c, least_slope) for c in self.factor)
        high = max(_multiple(c, largest_slope) for c in self.factor)
        return low + self.tilt[0], high + self.tilt[1]

    def multiples_on_cells(self, first: Array, last: Array) -> tuple[Array, Array]:
        """Least and largest ``c phi'(s + o) + t`` (m,) over s from ``first`` to ``last`` (m,)."""
        # phi' rises, and c phi' is largest at an end of the interval of c
        least_slope = self.loss.slope(first + self.offset[0])
        largest_slope = self.loss.slope(last + self.offset[1])
        lowest = np.minimum(self.factor[0] * least_slope, self.factor[1] * least_slope)
        highest = np.maximum(self.factor[0] * largest_slope, self.factor[1] * largest_slope)
        return lowest + self.tilt[0], highest + self.tilt[1]


@dataclass(frozen=True)
class MarginSlope:
    """Gradients ``h'(<z, v> + o) z`` of the log weights of one kind of records, ``||z|| <= 1``.

    Parameters
    ----------
    weight
        The function h, the logarithm of a weight.
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
    """Diameter of a record's gradients at one v, the largest over ``||v|| <= reach`` (Lemma 1).

    In a direction at an angle alpha to v the support function is
    ``H(alpha) = max of |y| sin(alpha) cos(tau) + y cos(alpha) sin(tau)``
    over the angle tau of the row and ``y = c phi' + t``; the diameter is the largest
    ``H(alpha) + H(pi - alpha)``. Between angles a step eta apart a width grows by at most
    ``1/cos(eta/2)``, and H is taken on a grid of tau to second order.

    Parameters
    ----------
    loss
        The function phi.
    reach
        Bound on ``||v||``, which may be infinite.
    offset, factor, tilt
        Public intervals of o, of c, at least 0, and of t.

    Returns
    -------
    float
        An upper bound, in units of the loss over those of the margin.
    """
    return diameter_of_kinds((MarginGradient(loss, offset, factor, tilt),), reach)


@lru_cache(maxsize=1024)
def diameter_of_kinds(kinds: tuple[MarginGradient, ...], reach: float) -> float:
    """Diameter at one v of the gradients of records of any of these kinds (Lemma 1).

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
        curvature = _curvature_of_odd_line(kind.loss)
        symmetric = kind == MarginGradient(kind.loss, (-kind.offset[1], kind.offset[1]))
        if curvature is not None and symmetric:
            return _limacon_width(curvature * reach, curvature * kind.offset[1])
    searched = _largest_over_radii(reach, partial(_width, kinds))
    return min(anywhere, searched) * _OUTWARD


def multiple_diameter(
    loss: ScalarLoss, reach: float, offset: Interval, factor: Interval, tilt: Interval
) -> Interval:
    """Largest difference of multiples ``c phi'(s + o) + t`` at one s, and the largest multiple.

    Parameters
    ----------
    loss
        The function phi.
    reach
        Bound on ``|s|``, which may be infinite.
    offset, factor, tilt
        Public intervals of o, of c, at least 0, and of t.

    Returns
    -------
    tuple
        Upper bounds of the difference of two multiples at one s, and of the size of a multiple.
    """
    low, high = MarginGradient(loss, offset, factor, tilt).multiples(reach)
    size = max(abs(low), abs(high))
    curvature = _curvature_of_odd_line(loss)
    if curvature is not None and factor == (1.0, 1.0) and tilt == (0.0, 0.0):
        return curvature * (offset[1] - offset[0]), size
    if not reach <= _FARTHEST:
        return high - low, size
    untilted = MarginGradient(loss, offset, factor)

    def difference(first: Array, last: Array) -> Array:
        """Largest difference of multiples at one s between first and last."""
        lowest, highest = untilted.multiples_on_cells(first, last)
        width: Array = highest - lowest + (tilt[1] - tilt[0])
        return width

    def bounds(s: Array, _: NDArray[np.int64], half_width: float) -> tuple[Array, Array]:
        """Differences at s, and bounds on the cells around."""
        return difference(s, s), difference(s - half_width, s + half_width)

    width = largest_of(bounds, (-reach, reach), 1, _CLOSE)
    return min(high - low, width), size


def log_weight_diameter(weight: ScalarWeight, reach: float, *, clipped: bool) -> float:
    """Diameter of ``{h'(<z, v>) z}``, ``||z|| <= 1``, ``||v|| <= reach``; with 0 in it if clipped.

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
    width = partial(_weight_width, kinds, clipped=clipped)
    searched = _largest_over_radii(reach, width, _CLOSE_OF_WEIGHTS)
    return min(anywhere, searched) * _OUTWARD


def largest_multiple(
    loss: ScalarLoss, reach: float, offset: Interval, factor: Interval, tilt: Interval
) -> float:
    """Bound on ``|c phi'(s + o) + t|`` over ``|s| <= reach``: the gradients of rows of norm 1.

    Parameters
    ----------
    loss, reach, offset, factor, tilt
        As of :func:`multiple_diameter`.

    Returns
    -------
    float
        The bound.
    """
    return MarginGradient(loss, offset, factor, tilt).largest(reach) * ROUND_UP


def corners(x: Array, y: Array) -> NDArray[np.int64]:
    """Numbers of the points (x, y) at which some ``a x + b y`` is largest, a >= 0 and b > 0.

    Rounding may take one that is below the convex hull by less than ``_OUTWARD``.

    Parameters
    ----------
    x, y
        Coordinates (m,).

    Returns
    -------
    NDArray
        Numbers of the corners, by falling x.
    """
    # Products of differences would overflow, or vanish, where coordinates are far from 1.
    x = _scaled_to_one(x)
    y = _scaled_to_one(y)
    order: NDArray[np.int64] = np.lexsort((-y, -x))
    highest = np.maximum.accumulate(y[order])
    rises = np.concatenate([[True], highest[1:] > highest[:-1]])
    order = order[rises]
    for _ in range(_PASSES):
        is_above = _above_chords(x[order], y[order])
        if is_above.all():
            return order
        order = order[is_above]
    # x, y and number of the corners so far; the last one goes where it lies below the line from
    # the one before to the new point
    hull: list[tuple[float, float, int]] = []
    points = zip(x[order].tolist(), y[order].tolist(), order.tolist(), strict=True)
    for new_x, new_y, number in points:
        while len(hull) > 1:
            first_x, first_y, _ = hull[-2]
            last_x, last_y, _ = hull[-1]
            if (new_y - first_y) * (first_x - last_x) < (last_y - first_y) * (first_x - new_x):
                break
            hull.pop()
        hull.append((new_x, new_y, number))
    return np.array([number for _, _, number in hull])


def _scaled_to_one(x: Array) -> Array:
    """A multiple of x (m,) by a power of two, which rounds nothing, of size 1/2 to 1."""
    _, exponent = math.frexp(float(np.max(np.abs(x))))
    scaled: Array = np.ldexp(x, -exponent)
    return scaled


def _above_chords(x: Array, y: Array) -> NDArray[np.bool_]:
    """Whether each point (m,) lies above the chord of its neighbors; both ends count as above.

    A point that does not is no corner, wherever the others are.
    """
    is_above = np.ones(len(x), dtype=bool)
    rise = y[1:-1] - y[:-2]
    run = x[:-2] - x[1:-1]
    is_above[1:-1] = (y[2:] - y[:-2]) * run < rise * (x[:-2] - x[2:])
    return is_above


def support(x: Array, y: Array, a: Array, b: Array) -> Array:
    """Largest ``a x + b y`` over :func:`corners` (x, y), for each a >= 0 and b > 0."""
    slopes = np.diff(y) / -np.diff(x)
    number = len(slopes) - np.searchsorted(slopes[::-1], a / b)
    largest: Array = a * x[number] + b * y[number]
    return largest


def _multiple(factor: float, slope: float) -> float:
    """Their product; a factor of 0 leaves nothing of a slope without end."""
    if factor == 0.0:
        return 0.0
    return factor * slope


def _curvature_of_odd_line(loss: ScalarLoss) -> float | None:
    """The curvature of a loss whose slope is a multiple of the margin; None for any other."""
    everywhere = np.array([math.inf])
    with np.errstate(over="ignore", invalid="ignore"):
        least, largest = loss.curvatures(-everywhere, everywhere)
    is_line = float(least[0]) == float(largest[0])
    if is_line and float(loss.slope(np.zeros(1))[0]) == 0.0:
        return float(least[0])
    return None


def _limacon_width(A: float, B: float) -> float:
    """``max over t of 2 sin(t) (A cos(t) + B)``: gradients of a squared loss trace a limacon."""
    cosine = 2.0 * A / (B + math.hypot(B, math.sqrt(8.0) * A))
    sine = math.sqrt(1.0 - cosine**2)
    return 2.0 * sine * (A * cosine + B) * ROUND_UP


def _largest_over_radii(
    reach: float, width: Callable[[float, float], float], close: float = _CLOSE
) -> float:
    """Largest width over radii up to ``reach``, by cells.

    Cells are cut in half until their bounds agree with the width at one radius.

    Parameters
    ----------
    reach
        The largest radius.
    width
        Bound on the width over radii from p to q.
    close
        Relative excess that is left.
    """
    edges = np.linspace(0.0, reach, 5).tolist()
    # bound of the width, least and largest radius
    cells = [(largest_bound(width(p, q)), p, q) for p, q in pairwise(edges)]
    largest_at_one_radius = width(reach, reach)
    for _ in range(_ROUNDS):
        widest = max(cells)
        bound, p, q = widest
        if bound <= largest_at_one_radius * (1.0 + close):
            break
        middle = 0.5 * (p + q)
        largest_at_one_radius = max(largest_at_one_radius, width(middle, middle))
        cells.remove(widest)
        cells.append((largest_bound(width(p, middle)), p, middle))
        cells.append((largest_bound(width(middle, q)), middle, q))
    return largest_bound(largest_at_one_radius, *(bound for bound, _, _ in cells))


def _width(kinds: tuple[MarginGradient, ...], p: float, q: float) -> float:
    """Upper bound of the diameter for ``p <= ||v|| <= q``."""
    nodes = [_support_nodes(kind, p, q) for kind in kinds]
    y = np.concatenate([of_kind.y for of_kind in nodes])
    angles = np.concatenate([of_kind.angles for of_kind in nodes])
    excess = max(of_kind.excess for of_kind in nodes)
    return _largest_width(y, angles) + 2.0 * excess


class _SupportNodes(NamedTuple):
    """Rows at which the support function H of one kind is taken.

    Attributes
    ----------
    y
        Least and largest multiples ``c phi' + t`` at the nodes.
    angles
        Angles tau of the rows to v.
    excess
        By how much H may exceed the largest of its values at the nodes.
    """

    y: Array
    angles: Array
    excess: float


def _support_nodes(kind: MarginGradient, p: float, q: float) -> _SupportNodes:
    """Nodes of the support function for ``p <= ||v|| <= q`` (Lemma 1, evaluation)."""
    size = kind.largest(q)
    second_derivative = _second_derivative(kind, q, size)
    # steps of angles whose excess, step^2 / 8 times this, is ``_CLOSE`` of the size
    relative = max(second_derivative / max(size, 1e-300), 1.0)
    count = 0.5 * math.pi * math.sqrt(relative / (8.0 * _CLOSE))
    angles = _angles_of_rows(2 * math.ceil(min(count, _MOST_NODES / 2)), kind, (p, q))
    m = np.sin(angles)
    lowest, highest = kind.multiples_on_cells(np.minimum(p * m, q * m), np.maximum(p * m, q * m))
    widest_step = float(np.max(np.diff(angles)))
    return _SupportNodes(
        y=np.concatenate([lowest, highest]),
        angles=np.concatenate([angles, angles]),
        excess=widest_step**2 / 8.0 * second_derivative,
    )


def _second_derivative(kind: MarginGradient, radius: float, size: float) -> float:
    """Bound on that of ``|y| sin(alpha + tau)`` in tau: ``(kappa rho^2 + 3 rho) max phi'' + |y|``.

    Parameters
    ----------
    kind
        Of the records.
    radius
        The largest ``||v||``, called rho here.
    size
        Bound on ``|y|``.
    """
    reach = radius + max(abs(kind.offset[0]), abs(kind.offset[1]))
    _, curvatures = kind.loss.curvatures(np.array([-reach]), np.array([reach]))
    largest_curvature = kind.factor[1] * float(curvatures[0])
    bend = kind.loss.bend_within(reach)
    return float(largest_curvature * (bend * radius * radius + 3.0 * radius) + size)


def _weight_width(kinds: tuple[MarginSlope, ...], p: float, q: float, *, clipped: bool) -> float:
    """Diameter of ``h'(<z, v> + o) z`` for slopes h' that need not rise, ``p <= ||v|| <= q``.

    Every cell of angles takes its least and largest slope.
    """
    angles = np.linspace(-math.pi / 2, math.pi / 2, _CELLS_OF_ANGLES + 1)
    m = np.sin(angles)
    corners_of_cells = np.stack([p * m[:-1], p * m[1:], q * m[:-1], q * m[1:]])
    first = corners_of_cells.min(axis=0)
    last = corners_of_cells.max(axis=0)
    slopes = []
    for kind in kinds:
        enclosed = kind.weight.enclose(first + kind.offset[0], last + kind.offset[1])
        _, _, least_slope, largest_slope = enclosed
        if not np.all(np.isfinite([least_slope, largest_slope])):
            return math.inf
        if clipped:
            least_slope = np.minimum(least_slope, 0.0)
            largest_slope = np.maximum(largest_slope, 0.0)
        # at both ends of the cell of angles
        slopes += [least_slope, least_slope, largest_slope, largest_slope]
    ends = np.concatenate([angles[:-1], angles[1:]])
    row_angles = np.tile(ends, 2 * len(kinds))
    widest = _largest_width(np.concatenate(slopes), row_angles, _FEW_ANGLES)
    # rows between the ends of a cell are combinations of those at its ends
    return widest / math.cos(0.5 * (angles[1] - angles[0]))


def _largest_width(y: Array, row_angles: Array, quarter: int = _ANGLES) -> float:
    """Largest ``H(alpha) + H(pi - alpha)`` over all alpha, H of multiples y at angles of rows.

    Parameters
    ----------
    y, row_angles
        Multiples and angles tau of rows (m,).
    quarter
        Angles alpha of a quarter turn.
    """
    # H(alpha) is the largest |y| sin(alpha) cos(tau) + y cos(alpha) sin(tau)
    alpha = np.linspace(0.0, math.pi, 2 * quarter + 1)
    sines = np.sin(alpha)
    cosines = np.cos(alpha)
    across = np.abs(y) * np.cos(row_angles)
    along = y * np.sin(row_angles)
    # the cosine of alpha is at least 0 in the first half, and below 0 in the second
    half = quarter + 1
    ahead = corners(across, along)
    behind = corners(across, -along)
    first_half = support(across[ahead], along[ahead], sines[:half], cosines[:half])
    second_half = support(across[behind], -along[behind], sines[half:], -cosines[half:])
    H = np.concatenate([first_half, second_half])
    width = float(np.max(H + H[::-1]))
    # between angles of a grid no width is larger than the larger neighbor over this
    return width / math.cos(0.5 * (alpha[1] - alpha[0]))


def _angles_of_rows(count: int, kind: MarginGradient, radii: Interval) -> Array:
    """Angles from -pi/2 to pi/2, with those at which a margin meets a kink."""
    angles = np.linspace(-math.pi / 2, math.pi / 2, count + 1)
    at_kinks = []
    for kink, offset, radius in product(kind.loss.kinks, kind.offset, radii):
        if radius > 0.0 and abs((kink - offset) / radius) < 1.0:
            at_kinks.append(math.asin((kink - offset) / radius))
    return np.unique(np.concatenate([angles, [0.0], at_kinks]))


@dataclass(frozen=True)
class Saturation:
    """Constants of Theorems 15, 16 and 19 for losses whose curvature falls as ``|phi'|`` grows.

    The loss of a record is ``c phi(<z, v>)``. S is the largest ``c |phi'|``, kappa the largest
    ``c phi''``, ``u = |phi'| / S`` and ``h = phi'' / kappa`` at one margin, both in [0, 1].

    Parameters
    ----------
    loss
        The function phi, without kinks and with finite limits of its slope; see :meth:`of`.
    row_norm
        Bound M with ``||z||_2 <= M`` over the domain, the constant column included.
    factor
        Largest c.
    margin_reach
        Bound rho of Theorem 19 on the margins ``|<z, v>|`` over the set of v, for a loss without an
        offset; infinite where none is known.
    """

    loss: ScalarLoss
    row_norm: float
    factor: float = 1.0
    margin_reach: float = math.inf

    @classmethod
    def of(
        cls, loss: ScalarLoss, row_norm: float, factor: float, margin_reach: float
    ) -> Saturation | None:
        """Saturation of a loss; None where the slope is unbounded or the curvature jumps."""
        has_limits = max(map(abs, loss.ends)) < math.inf
        if has_limits and 0.0 < loss.bend < math.inf and not loss.kinks:
            return cls(loss, row_norm, factor, margin_reach)
        return None

    @property
    def slope(self) -> float:
        """The largest ``c |phi'|``, S, in units of the loss over those of the margin."""
        return self.factor * float(max(map(abs, self.loss.ends)))

    @property
    def curvature(self) -> float:
        """The largest ``c phi''``, kappa, in units of the loss over those of the margin squared."""
        everywhere = np.array([math.inf])
        return self.factor * float(self.loss.curvatures(-everywhere, everywhere)[1][0])

    @property
    def steepness(self) -> float:
        """A number q with ``h <= q (1 - u)`` at every margin.

        ``a u + k h <= a`` holds at every margin if ``q k <= a``. Far from s the slope still grows
        by the integral of phi'', at least ``phi''(s) / bend``.
        """
        return self.slope * float(self.loss.bend) / self.curvature

    @property
    def margins_bounded(self) -> bool:
        """True if the set of v bounds the margins closely enough to make a difference."""
        return self.margin_reach * float(self.loss.bend) < _LIMIT

    def largest(self, a: float, k: float, *, box: bool = False) -> float:
        """Bound on ``a ||g - g'|| + k h`` over the set of v and ordered pairs of records.

        Parameters
        ----------
        a, k
            Factors, at least 0; g and g' are the gradients of both records at one v in units of M
            S, and h is that of the first one.
        box
            Whether rows are measured in the norm of a box, in which they have size 1; then
            ``u + u'`` stands for the distance.

        Returns
        -------
        float
        """

        def weighted(size: Array, h: Array) -> Array:
            return a * size + k * h

        # ||g - g'|| <= u + u', and a u + k h <= max(a, q k) as h <= q (1 - u)
        largest_u = 1.0
        if box:
            largest_u = self._largest_u
        of_one_record = max(a, self.steepness * k)
        if a < of_one_record or largest_u < 1.0:
            of_one_record = min(of_one_record, self._over_one_margin(weighted, box=box))
        anywhere = a * largest_u + of_one_record
        if box or not self.margins_bounded:
            return anywhere
        return min(anywhere, self._over_two_records(weighted))

    def largest_noise_factor(self, total: float, k: float, *, box: bool = False) -> float:
        """The largest a with ``largest(a, k) <= total``, but for rounding; 0 if there is none.

        It is the inverse of :meth:`largest` in a, the factor that is inverse to the scale of the
        noise.
        """
        share = k / total
        factor = 0.0
        if share * self.steepness <= 0.5:
            factor = 0.5 * ROUND_DOWN
        if self.margins_bounded and share < 0.5:
            # At least half of the sum is a times the distance.
            factor = max(factor, _noise_factor_of_bounded_margins(self, share, box))
        return factor * total

    @property
    def _largest_u(self) -> float:
        """Largest u over the set of v."""
        if not self.margins_bounded:
            return 1.0
        ends = self.loss.slope(np.array([-self.margin_reach, self.margin_reach]))
        return min(float(np.max(np.abs(ends))) * self.factor / self.slope * ROUND_UP, 1.0)

    def _on_cells(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Largest u and h on cells of margins."""
        slope = np.maximum(np.abs(self.loss.slope(low)), np.abs(self.loss.slope(high)))
        u = np.minimum(slope * (self.factor / self.slope), 1.0)
        h = self.loss.curvatures(low, high)[1] * (self.factor / self.curvature)
        return u, h

    def _over_one_margin(self, value: Callable[[Array, Array], Array], *, box: bool) -> float:
        """Upper bound on ``value(u, h)``, increasing in both, over one margin."""
        far = _FAR / self.loss.bend
        reach = far
        if box:
            reach = min(self.margin_reach, far)

        def bounds(s: Array, _: NDArray[np.int64], half_width: float) -> tuple[Array, Array]:
            """Values at margins, and bounds on the cells around."""
            at_centers = value(*self._on_cells(s, s))
            return at_centers, value(*self._on_cells(s - half_width, s + half_width))

        searched = largest_of(bounds, (-reach, reach), 1, _LINE)
        if reach < far:
            return searched
        # A loss may bend again out there, as a sum of shifted ones does.
        starts = np.array([-math.inf, far])
        ends = np.array([-far, math.inf])
        _, curvatures = self.loss.curvatures(starts, ends)
        in_tails = value(np.ones(2), curvatures * (self.factor / self.curvature))
        return largest_bound(searched, float(np.max(in_tails)))

    def _over_two_records(self, value: Callable[[Array, Array], Array]) -> float:
        """Upper bound on ``value(||g - g'||, h)``, increasing in both, over two records and v.

        Angles phi of rows to v have margins ``rho sin(phi)``, and the parts of g and g' across v
        are opposite at worst (page of calibrations, Theorem 19).
        """
        rho = self.margin_reach
        slope_unit = self.factor / self.slope
        curvature_unit = self.factor / self.curvature
        # how fast a gradient moves with the angle of its row
        speed = math.hypot(1.0, rho * self.curvature / self.slope)

        def bounds(
            angles: Array, cells: NDArray[np.int64], half_width: float
        ) -> tuple[Array, Array]:
            """Values at angles of both rows, and bounds on the cells around."""
            first = cells[0]
            second = cells[1]
            # What one row decides is worked out once for every angle.
            sines = np.sin(angles)
            cosines = np.cos(angles)
            y = self.loss.slope(rho * sines) * slope_unit
            along = y * sines
            across = np.abs(y) * cosines
            h = self.loss.curvature(rho * sines) * curvature_unit
            # The angles of a cell are in [-pi/2, pi/2], where the sine grows.
            middle = sines * math.cos(half_width)
            half_cell = cosines * math.sin(half_width)
            least_margin = rho * (middle - half_cell)
            largest_margin = rho * (middle + half_cell)
            _, largest_curvature = self.loss.curvatures(least_margin, largest_margin)
            largest_h = largest_curvature * curvature_unit
            difference_along = along[first] - along[second]
            sum_across = across[first] + across[second]
            distance = np.sqrt(difference_along**2 + sum_across**2)
            largest_distance = np.minimum(distance + 2.0 * half_width * speed, 2.0)
            return value(distance, h[first]), value(largest_distance, largest_h[first])

        return largest_of(bounds, (-math.pi / 2, math.pi / 2), 2, _BALL)


@lru_cache(maxsize=256)
def _noise_factor_of_bounded_margins(saturation: Saturation, share: float, box: bool) -> float:
    """The largest a with ``largest(a, share) <= 1``, but for rounding, as margins are bounded.

    ``a d + k h <= 1`` is ``1 / a >= d / (1 - k h)``, d the distance of both gradients and k the
    share. At least half of the sum is a times the distance, which the searches may find too large
    by their relative excess.
    """
    if box:
        largest_u = saturation._largest_u

        def inverse_in_a_box(u: Array, h: Array) -> Array:
            """Least 1 / a, where ``u + u'`` stands for the distance."""
            return (largest_u + u) / (1.0 - share * h)

        return (1.0 - 3.0 * _LINE) / saturation._over_one_margin(inverse_in_a_box, box=True)

    def inverse(distance: Array, h: Array) -> Array:
        """Least 1 / a."""
        return distance / (1.0 - share * h)

    return (1.0 - 3.0 * _BALL) / saturation._over_two_records(inverse)


def largest_of(
    bounds: Callable[[Array, NDArray[np.int64], float], tuple[Array, Array]],
    ends: Interval,
    variables: int,
    close: float,
) -> float:
    """Upper bound of a function over a cube, by cells that are cut in half.

    Cells are cut until the largest bound is close to a value of the function.

    Parameters
    ----------
    bounds
        Makes, of ticks (t,), the numbers (variables, m) of those at the centers of cells, and half
        the width of a cell, the values at the centers (m,) and upper bounds on the cells (m,). The
        cells of one variable are the ticks themselves.
    ends
        Ends of every variable.
    variables
        Number of variables.
    close
        Relative excess at which the search ends.

    Returns
    -------
    float
        The bound.
    """
    half_width = (ends[1] - ends[0]) / (2 * _CELLS)
    ticks = ends[0] + half_width * (2.0 * np.arange(_CELLS, dtype=np.float64) + 1.0)
    cells = _grid(np.arange(_CELLS), variables)
    largest_value = -math.inf
    largest_bound_of_cells = math.inf
    for _ in range(_ROUNDS):
        values, on_cells = bounds(ticks, cells, half_width)
        # a bound that is no number says nothing of its cell
        on_cells = np.where(np.isnan(on_cells), math.inf, on_cells)
        largest_value = max(largest_value, float(np.max(values)))
        largest_bound_of_cells = float(np.max(on_cells))
        if largest_bound_of_cells <= largest_value * (1.0 + close):
            break
        if on_cells.size > _MOST_CELLS:
            break
        promising = np.compress(on_cells >= largest_value, cells, axis=1)
        ticks, cells = _halved(ticks, promising, half_width)
        half_width /= 2.0
    return largest_bound_of_cells * ROUND_UP_SUMS


def _halved(
    ticks: Array, cells: NDArray[np.int64], half_width: float
) -> tuple[Array, NDArray[np.int64]]:
    """Ticks and numbers of the halves of cells, in every variable; unused ticks are left out."""
    is_used = np.zeros(len(ticks), dtype=bool)
    is_used[cells] = True
    # The place of every tick among those that are used.
    places = np.cumsum(is_used) - 1
    halves = ticks[is_used][:, None] + half_width * np.array([-0.5, 0.5])
    sides = _grid(np.array([0, 1]), len(cells))
    parts = 2 * places[cells][:, :, None] + sides[:, None, :]
    return halves.ravel(), parts.reshape(len(cells), -1)


def _grid(ticks: NDArray[Any], variables: int) -> NDArray[Any]:
    """All points (variables, m) of a cube with these ticks."""
    return np.stack([grid.ravel() for grid in np.meshgrid(*[ticks] * variables)])
