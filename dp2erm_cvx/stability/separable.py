"""Weights that are proportional to ``exp(h)`` at the minimizer of a separable loss (Theorems 3, 22,
23).

The coefficient minimizes over ``||v|| <= radius`` the mean of ``c_i phi(s_i)``, ``s_i = <z_i, v> +
o_i``, plus ``ridge/2 ||v||^2``, and ``w_i`` is proportional to ``b_i f(s_i)``, f = exp(h), with sum
n: one normalization over all records, read at the margin that the loss bends. Phi and h may differ
between the arms. Everything follows from them, a bound on the rows and the public intervals of c, b
and o.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.curves.suprema import (
    Interval,
    MarginGradient,
    MarginSlope,
    ScalarLoss,
    ScalarWeight,
    corners,
    diameter_of_kinds,
    largest_of,
    slope_diameter_of_kinds,
    support,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import EXACT, StabilityBound
from dp2erm_cvx.stability.base import (
    coupled_variation,
    declared_floor,
    largest_weight,
    positive_ridge,
    stated_bound,
)

_CELLS, _NORMS, _ROUNDS, _MOST_CELLS = 1500, 48, 5, 20_000
_MULTIPLIERS, _ZOOMS, _TOP = 24, 5, 32
_MOVES, _ANGLES = 40_000, 4096
#: Parts of the interval of a factor that weights carry as well.
_PARTS = 16
#: Cells of sizes of an arm, and of sums of both.
_MOST_SIZES, _TOTALS = 400, 4000
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
    """Bound for any separable scheme (Theorem 3); any change of a record inside the domain is
    covered.

    The coefficient minimizes over ``||lam|| <= R`` the mean of ``psi(lam; d_i)``, convex in lam,
    plus ``(ridge / 2) ||lam||^2``, and ``w_i`` is proportional to ``exp(h(lam; d_i))`` with sum
    ``n``. Over all records of the domain and all ``||lam|| <= radius``, a bound on every dataset:
    ``gradient_diameter`` D_psi is that of the gradients of psi, ``log_weight_diameter`` D_h that of
    h, with the zero vector where it is clipped (clipping does not preserve differences),
    ``log_weight_range`` H the length of the interval that h lies in, ``inf`` for none. Raises
    DeclarationError for an invalid number and CalibrationError for ``ridge = 0``.
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
class ArmCurves:
    """Loss and weight of the records of one arm, as functions of their margin ``s = <z, v> + o``.

    A record's loss is ``c phi(s)`` and its weight is proportional to ``b f(s)``, f = exp(h).

    Parameters
    ----------
    loss
        Phi, convex with a continuous slope.
    weight
        H, the logarithm of f.
    offset
        Public interval of o, in units of the margin.
    factor
        Public interval of c, above 0.
    base
        Public interval of b, above 0.
    tied
        Whether b is c, the same number of the record; ``base`` is then unused.

    Raises
    ------
    DeclarationError
        For an interval whose ends are no numbers, out of order or, of c and b, not above 0.
    """

    loss: ScalarLoss
    weight: ScalarWeight
    offset: Interval = (0.0, 0.0)
    factor: Interval = (1.0, 1.0)
    base: Interval = (1.0, 1.0)
    tied: bool = False

    def __post_init__(self) -> None:
        _refuse_disordered("offset", self.offset)
        for name in ("factor", "base"):
            ends = getattr(self, name)
            public_number(f"{name}[0]", ends[0], above=0.0)
            _refuse_disordered(name, ends)

    @property
    def weight_factor(self) -> Interval:
        """Interval of the number that multiplies f."""
        return self.factor if self.tied else self.base

    def margins(self, reach: float) -> Interval:
        """Interval of margins, where ``|<z, v>|`` is at most ``reach``."""
        return self.offset[0] - reach, self.offset[1] + reach


def _refuse_disordered(name: str, ends: Interval) -> None:
    """Raise DeclarationError for ends of an interval that are no finite numbers or out of order."""
    low = public_number(f"{name}[0]", ends[0])
    high = public_number(f"{name}[1]", ends[1])
    if low > high:
        raise DeclarationError(
            f"{name} = ({low:g}, {high:g}): the lower end is above the upper one"
        )


@dataclass(frozen=True)
class MarginMovement:
    """Numbers of Theorems 3, 22 and 23 that bound the movement of weights, for rows of norm 1.

    ``reach`` bounds every ``<z, v>`` of a minimizer; the diameters are D and D_h, the range is H;
    ``largest`` bounds a weight and ``least_mean`` the mean of ``b f`` over any n - 1 records of a
    minimizer from below (Theorem 23); ``variance`` is C of Theorem 22, ``inf`` where a weight moves
    and the loss is flat.
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
    arms: tuple[ArmCurves, ...],
    *,
    radius: float = math.inf,
    beside: float = 0.0,
    varying: float | None = None,
    l1: float = 0.0,
    box: float = math.inf,
    dimension: int | None = None,
    pull: float = 0.0,
    arm_floor: int | None = None,
    normalization: str = "all",
    arm_total: float | None = None,
) -> MarginMovement:
    """Bound for a separable scheme: the least of Theorem 3, Theorems 22 and 23, and 2n.

    Rows have ``||z|| <= row_norm``. With one normalization over all records ``w_i = n b_i f_i / sum
    of b f``. By arm ``w_i = n/2 b_i f_i / sum of b f over the own arm`` (Theorem 22-A), or, with a
    total tau, w_i is proportional to ``b_i f_i / max(sum of b f over the own arm, n tau)`` with sum
    n (Theorem 22-S).

    Parameters
    ----------
    n
        Number of records, at least 2.
    ridge
        Of the mean objective, in squared units of the rows.
    row_norm
        Bound on ``||z||``.
    arms
        Curves of the controls and of the treated; one entry where both are alike.
    radius
        Public bound on ``||v||``, in inverse units of the rows.
    beside
        Bound on the rows of a linear term of the records beside the loss, in units of ``row_norm``.
    varying
        Where rows are ``e_a (x) g`` and those of the linear term a multiple of the same g in the
        other arm, a bound on all of g but a constant, in units of ``row_norm``; None for other
        rows.
    l1
        Price of ``||v||_1`` in the mean objective, in units of the rows.
    box
        Public bound on every ``|v_j|``, in inverse units of the rows; a finite one needs the
        dimension.
    dimension
        Number of entries of v.
    pull
        Bound on the norm of t, where the mean objective has a public linear term ``-<t, v>``, in
        units of the rows.
    arm_floor
        Public number of records that each arm holds at least, in every dataset; None for none.
    normalization
        "all" or "arm".
    arm_total
        Tau, above 0, in units of b f.

    Returns
    -------
    MarginMovement

    Raises
    ------
    DeclarationError
        For an invalid number, for a box without a dimension, for a total of one normalization, and
        for no arm or more than two.
    CalibrationError
        For ``ridge = 0``, and for a normalization by arm with neither floor nor total: a record
        that is alone in its arm weighs n/2, so that V is at least n.
    """
    n = whole_number("n", n, at_least=2)
    if len(arms) not in (1, 2):
        raise DeclarationError(
            f"arms: {len(arms)} entries; there are two arms, or one entry for both"
        )
    norm = public_number("row_norm", row_norm, above=0.0)
    ball = public_number("radius", radius, above=0.0, infinite=True) * norm
    ball = min(ball, _half_diagonal(box, dimension) * norm)
    price = public_number("l1", l1, at_least=0.0) / norm
    public_term = public_number("pull", pull, at_least=0.0) / norm
    mu = min(positive_ridge(ridge) / norm / norm, 1e280)
    floor = None if arm_floor is None else declared_floor(n, arm_floor)
    total = _checked_total(normalization, floor, arm_total)
    reach = minimizer_norm(arms, mu, ball, beside + public_term, price)
    D = record_diameter(arms, reach, beside, varying)
    D_h = weight_diameter(arms, reach, varying)
    ranges = _log_weight_ranges(arms, reach)
    H = max(high for _, high in ranges) - min(low for low, _ in ranges)
    moving = _longest_range(arms, ranges)
    end = min(D / n / mu if mu else math.inf, 2.0 * reach)
    travel = _Travel(n, mu, end, D, D_h, moving)
    share = 0.0 if floor is None else (floor - 1) / (n - 1)
    scheme = _Scheme(n, mu, reach, arms, beside, varying is not None, public_term - price, share)
    facts = _facts(scheme, largest_weight(n, H))
    if normalization == "all":
        V, largest, theorem = _of_one_sum(travel, facts, H)
    elif total is not None:
        V, largest, theorem = _of_saturated_sums(
            travel, facts, total, max(high for _, high in ranges)
        )
    else:
        assert floor is not None
        V, largest, theorem = _of_sums_by_arm(travel, scheme, ranges, floor)
    assumptions = [
        f"gradients of the loss in a set of diameter {D * norm:g}, of log weights in one of "
        f"{D_h * norm:g}",
        f"margins at most {reach:g}, log weights in an interval of length {H:g}",
    ]
    if floor is not None:
        assumptions.append(
            f"each arm has at least {floor} records in every dataset of the universe"
        )
    bound = stated_bound(n, V, largest, theorem, (*assumptions, EXACT))
    return MarginMovement(reach, D, D_h, H, largest, facts.mean, facts.variance, bound)


def _checked_total(normalization: str, floor: int | None, total: float | None) -> float | None:
    """The total of a normalization by arm; raises as :func:`margin_movement` does."""
    if normalization not in ("all", "arm"):
        raise DeclarationError(f"normalization = {normalization!r}: must be 'all' or 'arm'")
    if total is not None:
        if normalization == "all":
            raise DeclarationError("arm_total is for a normalization by arm")
        return public_number("arm_total", total, above=0.0)
    if normalization == "arm" and floor is None:
        raise CalibrationError(
            "a normalization by arm needs an arm floor or a total: a record that is alone in its "
            "arm weighs n/2, whatever the ridge is, and V is at least n"
        )
    return None


@dataclass(frozen=True)
class _Travel:
    """How far the coefficient and the log weights move, for rows of norm 1.

    ``end`` bounds the movement of v; the diameters are D and D_h, and ``moving`` is the length of
    an interval that h of one arm lies in.
    """

    n: int
    mu: float
    end: float
    gradient_diameter: float
    weight_diameter: float
    moving: float

    @property
    def by_range(self) -> float:
        """Change of laws by the tilt lemma."""
        return 2.0 * math.tanh(min(self.weight_diameter * self.end, 2.0 * self.moving) / 4.0)

    def law_change(self, constant: float, from_mean: float = math.inf, steep: float = 0.0) -> float:
        """Change of laws by the tilt lemma and by the curvature along the way (Theorem 22).

        ``constant`` is C, ``from_mean`` is G/m, and ``steep`` the largest ``|h'|``.
        """
        if not math.isfinite(min(constant, from_mean)):  # then the way may have no end, either
            return self.by_range
        diameters = self.gradient_diameter, self.weight_diameter, self.moving
        return _law_change(self.n, self.mu, self.end, diameters, (constant, from_mean), steep)


@dataclass(frozen=True)
class _Facts:
    """What Theorems 22 and 23 ask of a scheme: the largest weight and the least mean, C, G and
    L.
    """

    largest: float
    mean: float
    variance: float
    growth: float
    steep: float

    @property
    def from_mean(self) -> float:
        """G/m."""
        return self.growth / self.mean if self.mean > 0.0 else math.inf


def _facts(scheme: _Scheme, crude: float) -> _Facts:
    """Facts of a scheme, none where its margins or weights leave floating point."""
    if not scheme.is_near:
        return _Facts(crude, 0.0, math.inf, math.inf, math.inf)
    largest, mean = scheme.largest_and_mean()
    C, G, steep = scheme.variance()
    return _Facts(min(largest, crude), mean, C, G, steep)


def _of_one_sum(travel: _Travel, facts: _Facts, H: float) -> tuple[float, float, str]:
    """V, the largest weight and the theorem, of one normalization: Theorem 3 or 22."""
    by_range = travel.by_range
    V = coupled_variation(travel.n, largest_weight(travel.n, H), by_range)
    law = travel.law_change(facts.variance, facts.from_mean, facts.steep)
    sharper = coupled_variation(travel.n, facts.largest, min(law, by_range))
    if sharper < V:
        return sharper, facts.largest, "Theorems 22 and 23 (separable schemes)"
    return V, facts.largest, "Theorem 3 (separable schemes)"


def _of_sums_by_arm(
    travel: _Travel, scheme: _Scheme, ranges: list[Interval], floor: int
) -> tuple[float, float, str]:
    """V, the largest weight and the theorem, of a normalization by arm (Theorem 22-A).

    The bound is taken over cells of the size k of the arm of the record that is replaced.
    """
    n = travel.n
    arms = _both(scheme.arms)
    ranges = [ranges[0], ranges[-1]]
    within = max(weight_diameter((arm,), scheme.reach) for arm in arms)
    travel = replace(travel, weight_diameter=min(travel.weight_diameter, within))
    constants = []
    for arm, (low, _) in zip(arms, ranges, strict=True):
        C, G = math.inf, math.inf
        if scheme.is_near:
            C, G, _ = replace(scheme, arms=(arm,)).variance()
        constants.append(min(C, G * math.exp(-low)))

    def largest(arm: int, size: int) -> float:
        """Largest weight in an arm of this size."""
        low, high = ranges[arm]
        return 0.5 * n / (1.0 + (size - 1) * math.exp(low - high))

    def bound(arm: int, first: int, last: int) -> float:
        """Bound where the record is in this arm of D, of first to last records; a flip is the
        worst.
        """
        other = 1 - arm
        curvature = constants[arm] / max(first - 1, 1) + constants[other] / (n - last)
        moved = n * travel.law_change(0.25 * (n - 1) * curvature)
        if last == floor:  # an arm at its floor loses no record
            return 2.0 * largest(arm, first) + moved
        return 2.0 * largest(arm, first) + 2.0 * largest(other, n - last + 1) + moved

    V = 0.0
    for arm in (0, 1):
        V = max(V, bound(arm, floor, floor))
        if n - floor > floor:
            V = max(V, _largest_over_sizes(partial(bound, arm), floor + 1, n - floor))
    return (
        min(V, 2.0 * n),
        max(largest(0, floor), largest(1, floor)),
        "Theorem 22-A (normalization by arm)",
    )


def _largest_over_sizes(bound: Callable[[int, int], float], first: int, last: int) -> float:
    """Upper bound over whole numbers, by cells that are cut in half until one number or little is
    left.
    """
    cells = [(bound(first, last), first, last)]
    best = max(bound(first, first), bound(last, last))
    for _ in range(_MOST_SIZES):
        top, low, high = max(cells)
        if low == high or top <= best * (1.0 + 1e-6):
            break
        middle = (low + high) // 2
        cells.remove((top, low, high))
        cells += [(bound(low, middle), low, middle), (bound(middle + 1, high), middle + 1, high)]
        best = max(best, bound(middle, middle))
    return max(top for top, _, _ in cells)


def _of_saturated_sums(
    travel: _Travel, facts: _Facts, total: float, highest: float
) -> tuple[float, float, str]:
    """V, the largest weight and the theorem, of saturated sums by arm (Theorem 22-S).

    ``total`` is tau, ``highest`` the largest log of b f.
    """
    n, mean = travel.n, facts.mean
    theorem = "Theorem 22-S (saturated normalization by arm)"
    if mean == 0.0 or not math.isfinite(facts.growth):
        return 2.0 * n, float(n), theorem
    top = math.exp(highest)
    largest = min(float(n), top * max(1.0 / total, 1.0 / mean))
    moved = facts.steep * travel.end
    whole = mean * (n - 1) / n
    edges = np.linspace(0.0, whole, _TOTALS + 1)
    # sums of both arms at least this, of a cell, in units of n
    own = edges[:-1]
    other = whole - edges[1:]
    before = own + np.maximum(own, total) * np.minimum(1.0, other / total)
    after = other + np.maximum(other, total) * np.minimum(1.0, own / total)
    grown = math.exp(min(2.0 * moved, _FARTHEST))
    weights = np.minimum(largest, top / before) + np.minimum(largest, top * grown / after)
    both = min(float(np.max(weights)), 2.0 * largest)
    growth = math.exp(min(0.5 * moved, _FARTHEST))
    constant = facts.growth * max(1.0 / total, n / (n - 1) * growth / mean)
    twice = replace(
        travel, weight_diameter=2.0 * travel.weight_diameter, moving=2.0 * travel.moving
    )
    law = twice.law_change(constant * (n - 1) / n)
    return min(2.0 * n, 2.0 * both + n * law), largest, theorem


def _half_diagonal(box: float, dimension: int | None) -> float:
    """Norm of a corner of a box; raises DeclarationError for a finite one of an unknown
    dimension.
    """
    half_width = public_number("box", box, above=0.0, infinite=True)
    if math.isinf(half_width):
        return math.inf
    if dimension is None:
        raise DeclarationError(
            f"box = {half_width:g}: state the dimension, on which the norm of v depends"
        )
    return half_width * math.sqrt(whole_number("dimension", dimension, at_least=1)) * _ROUNDED


def _log_weight_ranges(arms: tuple[ArmCurves, ...], reach: float) -> list[Interval]:
    """Interval that ``h + log b`` lies in, of every arm."""
    ranges = []
    for arm in arms:
        first, last = arm.margins(reach)
        if max(-first, last) <= _FARTHEST:
            low, high = arm.weight.range(first, last)
        else:
            low, high = _range_by_slope(arm.weight, max(-first, last))
        ranges.append((low + math.log(arm.weight_factor[0]), high + math.log(arm.weight_factor[1])))
    return ranges


def _longest_range(arms: tuple[ArmCurves, ...], ranges: list[Interval]) -> float:
    """Length of the longest interval that h of one arm lies in."""
    lengths = []
    for arm, (low, high) in zip(arms, ranges, strict=True):
        lengths.append(high - low - math.log(arm.weight_factor[1] / arm.weight_factor[0]))
    return max(lengths)


def _range_by_slope(weight: ScalarWeight, reach: float) -> Interval:
    """Interval of h over margins of at most ``reach``, from its value at 0 and its largest
    slope.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        at_zero = float(weight.log(np.zeros(1))[0])
    if weight.lipschitz == 0.0:
        return at_zero, at_zero
    rise = weight.lipschitz * reach
    if not math.isfinite(at_zero):
        return -math.inf, math.inf
    return at_zero - rise, at_zero + rise


class _Cells(NamedTuple):
    """Cells of margins, each with the number of its arm."""

    arm: NDArray[np.int64]
    low: Array
    high: Array

    def cut(self, chosen: NDArray[np.int64]) -> _Cells:
        """Cells of which the chosen are cut into eighths, unless they are many."""
        if len(self.low) + 7 * len(chosen) > _MOST_CELLS:
            return self
        edges = np.linspace(self.low[chosen], self.high[chosen], 9)
        rest = np.delete(np.arange(len(self.low)), chosen)
        return _Cells(
            np.append(self.arm[rest], np.tile(self.arm[chosen], 8)),
            np.append(self.low[rest], edges[:-1]),
            np.append(self.high[rest], edges[1:]),
        )


class _Rows(NamedTuple):
    """What records may be in Theorem 23: a row for a cell of margins and a part of the interval of
    c.

    Attributes
    ----------
    near : least ``|x|``, ``x = <z, v>``, of the cell, by which rows are sorted
    loose : whether x may be out of reach where the margin is not, as the offset varies
    left, right : ends of x
    down, up : ends of phi'
    pull : largest ``-x phi'``
    factor_low, factor_high : ends of c
    weight : bound on b f: the least of one of the others, the largest of the record itself
    arm : number of the arm
    cell : number of the cell
    """

    near: Array
    loose: NDArray[np.bool_]
    left: Array
    right: Array
    down: Array
    up: Array
    pull: Array
    factor_low: Array
    factor_high: Array
    weight: Array
    arm: NDArray[np.int64]
    cell: NDArray[np.int64]

    @classmethod
    def of(cls, parts: list[tuple[Any, ...]]) -> _Rows:
        """From tuples of columns."""
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))

    def within(self, norm: float) -> _Rows:
        """Rows that a margin may lie in where ``||v|| <= norm``."""
        count = int(np.searchsorted(self.near, norm, side="right"))
        columns: tuple[Any, ...] = self
        return _Rows(*(column[:count] for column in columns))

    def pulls(self, norm: float) -> Array:
        """Largest ``-c x phi'`` where ``|x| <= norm``."""
        left, right = np.maximum(self.left, -norm), np.minimum(self.right, norm)
        products = [-left * self.down, -left * self.up, -right * self.down, -right * self.up]
        pull = np.where(self.loose, np.minimum(self.pull, np.max(products, axis=0)), self.pull)
        largest: Array = np.where(pull > 0.0, self.factor_high, self.factor_low) * pull
        return largest


@dataclass(frozen=True)
class _Scheme:
    """Rows of norm 1: curves by arm, the ridge, bounds on ``<z, v>`` and on the rows of a linear
    term.

    ``public`` is the norm of the public linear term less the price of ``||v||_1``, ``least_share``
    that of an arm among n - 1 records.
    """

    n: int
    mu: float
    reach: float
    arms: tuple[ArmCurves, ...]
    beside: float
    by_arm: bool
    public: float
    least_share: float

    def cells(self) -> _Cells:
        """Cells of the margins of every arm, which end where ``<z, v>`` is 0 at an end of the
        offset.
        """
        columns = []
        for number, arm in enumerate(self.arms):
            half = np.linspace(0.0, self.reach, _CELLS // 2 + 1)
            edges = np.concatenate([arm.offset[0] - half[:0:-1], arm.offset[1] + half])
            if arm.offset[0] < arm.offset[1]:
                between = np.linspace(*arm.offset, _CELLS // 8 + 1)
                edges = np.concatenate(
                    [arm.offset[0] - half[:0:-1], between, arm.offset[1] + half[1:]]
                )
            columns.append((np.full(len(edges) - 1, number), edges[:-1], edges[1:]))
        return _Cells(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    @property
    def is_near(self) -> bool:
        """True if margins and weights are within floating point."""
        return self.reach <= _FARTHEST and self.log_size <= _FARTHEST

    @property
    def log_size(self) -> float:
        """Largest size of log f on cells; infinite where f or a slope of phi would leave no
        number.
        """
        for arm in self.arms:
            if not np.all(np.isfinite(arm.loss.slope(np.array(arm.margins(self.reach))))):
                return math.inf
        down, up, _ = self._log_weights(self.cells())
        return float(np.max(np.abs([down, up])))

    def _log_weights(self, cells: _Cells) -> tuple[Array, Array, Array]:
        """Least and largest h, and the largest ``|h'|``, on cells."""
        columns = np.empty((3, len(cells.low)))
        for number, arm in enumerate(self.arms):
            on = cells.arm == number
            down, up, falls, rises = arm.weight.enclose(cells.low[on], cells.high[on])
            columns[:, on] = down, up, np.maximum(np.abs(falls), np.abs(rises))
        return columns[0], columns[1], columns[2]

    def variance(self) -> tuple[float, float, float]:
        """C of Theorem 22, the largest ``g = b f h'^2 / (c phi'')`` and the largest ``|h'|``, by
        cells.
        """
        cells = self.cells()
        for _ in range(_ROUNDS):
            g, inverse, steep, numbers = self._variance_points(cells)
            if not math.isfinite(float(np.max(g))):
                return math.inf, math.inf, steep
            on = corners(g, inverse)
            near = g[on], inverse[on]
            cells = cells.cut(np.unique(numbers[on]))
        return _variance_constant(*near), float(np.max(near[0])), steep

    def _variance_points(self, cells: _Cells) -> tuple[Array, Array, float, NDArray[np.int64]]:
        """Points (g, 1/(b f)) of Theorem 22, the largest ``|h'|``, and the cell of every point.

        Between the ends of b the points lie below the line through those of the ends; where b is c
        it cancels in g.
        """
        down, up, steep = self._log_weights(cells)
        least, largest = np.exp(down) / _OUTWARD, np.exp(up) * _OUTWARD
        g, inverse, numbers = [], [], []
        for number, arm in enumerate(self.arms):
            on = np.flatnonzero(cells.arm == number)
            bend = np.maximum(arm.loss.curvatures(cells.low[on], cells.high[on])[0], 0.0)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                plain = (
                    np.where(steep[on] == 0.0, 0.0, largest[on] * steep[on] ** 2 / bend) * _OUTWARD
                )
            low, high = arm.weight_factor
            multiples = (
                [(1.0, low)] if arm.tied else [(b / arm.factor[0], b) for b in sorted({low, high})]
            )
            for upward, b in multiples:
                g.append(upward * plain)
                inverse.append(_OUTWARD / (b * least[on]))
                numbers.append(on)
        return (
            np.concatenate(g),
            np.concatenate(inverse),
            float(np.max(steep)),
            np.concatenate(numbers),
        )

    def largest_and_mean(self) -> tuple[float, float]:
        """Theorem 23: the largest weight, and the least mean of b f over n - 1 records, by
        cells.
        """
        margins = self.cells()
        rows = self._rows(margins)
        edges = np.linspace(0.0, self.reach, _NORMS + 1)
        cells = [self._at(*rows, float(p), float(q)) for p, q in pairwise(edges)]
        for _ in range(_ROUNDS):
            cells.sort(key=lambda cell: -cell[0])
            worst, cells = cells[:4], cells[4:]
            margins = margins.cut(np.unique(np.concatenate([active for *_, active in worst])))
            rows = self._rows(margins)
            finer = [np.linspace(p, q, 9).tolist() for _, _, p, q, _ in worst]
            cells += [self._at(*rows, p, q) for edge in finer for p, q in pairwise(edge)]
        largest = max(cell[0] for cell in cells) * _OUTWARD
        return min(largest, float(self.n)), min(cell[1] for cell in cells) / _OUTWARD

    def _rows(self, cells: _Cells) -> tuple[_Rows, _Rows]:
        """What one of the others may be, and the record itself."""
        log_least, log_largest, _ = self._log_weights(cells)
        least, largest = np.exp(log_least) / _OUTWARD, np.exp(log_largest) * _OUTWARD
        others, own = [], []
        for number, arm in enumerate(self.arms):
            on = np.flatnonzero(cells.arm == number)
            first, last = cells.low[on], cells.high[on]
            left, right = first - arm.offset[1], last - arm.offset[0]
            near = np.maximum(np.maximum(left, -right), 0.0)
            loose = np.full(len(on), arm.offset[0] < arm.offset[1])
            slopes = arm.loss.slope(first), arm.loss.slope(last)
            # linear in the offset at one margin
            pull = np.maximum(*(_pull(arm.loss, first - o, last - o, o) for o in arm.offset))
            shared = near, loose, left, right, *slopes, pull
            for factor, b in _of_others(arm):
                ends = (np.full(len(on), c) for c in factor)
                others.append((*shared, *ends, b * least[on], cells.arm[on], on))
            for factor, b in _of_itself(arm):
                ends = (np.full(len(on), c) for c in factor)
                own.append((*shared, *ends, b * largest[on], cells.arm[on], on))
        return _Rows.of(others), _Rows.of(own)

    def _at(
        self, others: _Rows, own: _Rows, p: float, q: float
    ) -> tuple[float, float, float, float, NDArray[np.int64]]:
        """Largest weight and least mean where ``p <= ||v|| <= q``, p, q, and the cells that they
        rest on.
        """
        n, others, own = self.n, others.within(q), own.within(q)
        pulls, need = others.pulls(q), own.pulls(q)
        if self.beside:
            pulls = pulls + self.beside * self._other_margin(others.near, q)
            need = need + self.beside * self._other_margin(own.near, q)
        norm = np.maximum(p, own.near)
        public = self.public * (q if self.public > 0.0 else norm)
        need = (n * self.mu * norm**2 - n * public - need) / (n - 1)
        # the least mean of b f under a mean of the pull: two corners of the hull share the others
        pull, weight, sharing = self._least_means(others, pulls)
        (possible,) = np.nonzero(need <= pull[-1])
        if not len(possible):
            return 1.0, math.inf, p, q, own.cell[:0]
        shared = np.interp(need[possible], pull, weight) - 1e-15 * np.max(weight)  # rounding
        mean = np.maximum(shared, weight[0])
        largest = own.weight[possible]
        weights = n * largest / (largest + (n - 1) * mean)
        top = np.argsort(-weights)[:_TOP]
        place = np.minimum(np.searchsorted(pull, need[possible][top]), len(pull) - 1)
        shares = np.append(sharing[np.maximum(place - 1, 0)], sharing[place])
        active = np.append(others.cell[shares], own.cell[possible[top]])
        return float(weights[top[0]]), float(np.min(mean)), p, q, active

    def _least_means(self, others: _Rows, pulls: Array) -> tuple[Array, Array, NDArray[np.int64]]:
        """Corners of the least mean of b f by the mean of the pull, and the rows that share in
        each.

        With an arm floor each arm has at least its share, and the rest is of either: the hull of
        two sums of the hulls of both arms.
        """
        if len(self.arms) == 1 or self.least_share == 0.0:
            on = corners(pulls, -others.weight)[::-1]
            return pulls[on], others.weight[on], on[:, None]
        hulls = []
        for number in range(2):
            rows = np.flatnonzero(others.arm == number)
            hulls.append(rows[corners(pulls[rows], -others.weight[rows])[::-1]])
        pairs = _paired(pulls, others.weight, hulls)
        first_share = np.repeat([self.least_share, 1.0 - self.least_share], len(pairs))
        rows = np.concatenate([pairs, pairs])
        pull = first_share * pulls[rows[:, 0]] + (1.0 - first_share) * pulls[rows[:, 1]]
        weight = (
            first_share * others.weight[rows[:, 0]]
            + (1.0 - first_share) * others.weight[rows[:, 1]]
        )
        on = corners(pull, -weight)[::-1]
        return pull[on], weight[on] * (1.0 - 1e-14), rows[on]

    def _other_margin(self, near: Array, norm: float) -> Array | float:
        """Largest size of the margin of a linear term, in units of its norm."""
        # margins s and t of one g in both arms obey s^2 + t^2 <= ||v||^2
        return np.sqrt(np.maximum(norm * norm - near * near, 0.0)) if self.by_arm else norm


def _paired(pulls: Array, weights: Array, hulls: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Corners of the sum of two hulls, whatever their shares are: a row of each, by rising
    slope.
    """
    slopes, of_second = [], []
    for number, rows in enumerate(hulls):
        slopes.append(np.diff(weights[rows]) / np.diff(pulls[rows]))
        of_second.append(np.full(len(rows) - 1, number))
    order = np.argsort(np.concatenate(slopes), kind="stable")
    steps = np.concatenate(of_second)[order]
    second = np.concatenate([[0], np.cumsum(steps)])
    first = np.arange(len(second)) - second
    return np.stack([hulls[0][first], hulls[1][second]], axis=1)


def _of_others(arm: ArmCurves) -> list[tuple[Interval, float]]:
    """Ends of c and the least b of one of the others; a tied factor enters their mean linearly."""
    if arm.tied:
        return [((c, c), c) for c in sorted(set(arm.factor))]
    return [(arm.factor, arm.base[0])]


def _of_itself(arm: ArmCurves) -> list[tuple[Interval, float]]:
    """Ends of c and the largest b of the record itself.

    A tied factor raises its weight and, where its pull is negative, the mean of the others as well:
    the largest weight may lie between the ends, so that the interval is cut into parts.
    """
    if not arm.tied:
        return [(arm.factor, arm.base[1])]
    ends = np.geomspace(*arm.factor, _PARTS + 1)
    ends[[0, -1]] = arm.factor
    return [((low, high), high) for low, high in pairwise(ends.tolist())]


def _variance_constant(g: Array, inverse: Array) -> float:
    """``C = sup 4 E[c_A^2 g] E[1/f]`` over laws on cells and events A (Theorem 22), by corners (g,
    1/f).

    For a given mass Q of A and any t > 0 the product is at most ``((t X + Y / t) / 2)^2``; X and Y
    are linear in the laws on A and off it, so that each sits on one cell. The bound is convex in
    log t.
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
    """Bound on the movement ell of the laws on the common records, the largest over moves up to
    ``end``.
    """
    D, D_h, H = diameters
    C, from_mean = constants
    edges = np.linspace(0.0, end, _MOVES + 1)
    low, high = edges[:-1], edges[1:]
    by_range = 2.0 * np.tanh(np.minimum(D_h * high, 2.0 * H) / 4.0)
    x = np.minimum(steep * high / 2.0, 700.0)
    growth = np.where(x > 1e-8, np.expm1(x) / np.maximum(x, 1e-300), 1.0 + x)
    peak = np.clip(D / n / mu / 2.0 if mu else math.inf, low, high)
    room = np.maximum(D * peak / n - mu * peak**2, 0.0)
    by_curvature = np.sqrt(np.minimum(C, from_mean * growth) * (n / (n - 1)) * room)
    return float(np.max(np.minimum(by_range, by_curvature))) * _OUTWARD


def minimizer_norm(
    arms: tuple[ArmCurves, ...],
    ridge: float,
    radius: float = math.inf,
    linear: float = 0.0,
    l1: float = 0.0,
) -> float:
    """Bound on ``||v||`` of a minimizer of a mean of ``c phi(<z, v> + o) + ridge/2 ||v||^2`` in a
    ball.

    By optimality at 0, ``ridge rho^2 <= max over |x| <= rho of -c x phi'(x + o)`` (rows of norm 1),
    plus ``linear rho`` for linear terms of that norm and less ``l1 rho``, as ``||v||_1 >= rho``.
    The largest such rho over geometric cells, the last one bisected.

    Parameters
    ----------
    arms
        Curves of the controls and of the treated; one entry where both are alike.
    ridge
        Of the mean objective, in squared units of the rows.
    radius
        Public bound on ``||v||``, in inverse units of the rows.
    linear
        Bound on the norm of the mean of linear terms beside the loss.
    l1
        Price of ``||v||_1`` in the mean objective, in units of the rows.

    Returns
    -------
    float
        The bound, ``radius`` where there is no smaller one.
    """

    def pulls(low: Array, high: Array) -> Array:
        """Largest pull of a record with ``|<z, v>|`` in these cells."""
        largest = np.full_like(low, -math.inf)
        for arm in arms:
            # -x phi'(x + o) falls in o where x > 0 and rises where x < 0
            right = _pull(arm.loss, low, high, arm.offset[0])
            left = _pull(arm.loss, -high, -low, arm.offset[1])
            largest = np.maximum(largest, _multiplied(np.maximum(right, left), arm.factor))
        return largest

    def allowed(low: float, high: float) -> bool:
        """True if some rho of a cell may satisfy the condition."""
        edges = np.linspace(0.0, high, 2001)
        top = float(np.max(pulls(edges[:-1], edges[1:])))
        return not ridge * low**2 + l1 * low > top + linear * high

    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 4000)])
    low, high = edges[:-1], edges[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum.accumulate(np.nan_to_num(pulls(low, high), nan=np.inf, posinf=np.inf))
        cells = np.flatnonzero(ridge * low**2 + l1 * low <= most + linear * high)
    if cells[-1] == len(low) - 1:
        return radius

    def last(parts: list[Interval], cuts: int) -> float | None:
        """Upper end of the last cell that may hold such a rho, cut so many times."""
        for cell in reversed(parts):
            if not allowed(*cell):
                continue
            inner = (
                last(list(pairwise(np.linspace(*cell, 17).tolist())), cuts - 1) if cuts else cell[1]
            )
            if inner is not None:
                return inner
        return None

    norm = last([(float(low[k]), float(high[k])) for k in cells], 3)
    return min(radius, (low[-1] if norm is None else norm) * _OUTWARD)


def _pull(loss: ScalarLoss, low: Array, high: Array, offset: float = 0.0) -> Array:
    """Upper bound of ``-x phi'(x + o)`` on cells of x: by ends, and by the middle and the steepest
    slope.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        first, last = low + offset, high + offset
        down, up = loss.slope(first), loss.slope(last)
        by_ends: Array = np.max([-low * down, -low * up, -high * down, -high * up], axis=0)
        least, largest = loss.curvatures(first, last)
        bends = np.stack([low * least, low * largest, high * least, high * largest])
        steep = np.maximum(np.abs(down + bends.min(axis=0)), np.abs(up + bends.max(axis=0)))
        middle = 0.5 * (low + high)
        by_middle = -middle * loss.slope(middle + offset) + 0.5 * (high - low) * steep
    smaller: Array = np.fmin(by_ends, by_middle)
    return smaller


def _multiplied(value: Array, factor: Interval) -> Array:
    """Largest product with a number from the interval, whose ends are at least 0."""
    larger: Array = np.where(value > 0.0, factor[1] * value, factor[0] * value)
    return larger


def record_diameter(
    arms: tuple[ArmCurves, ...], reach: float, beside: float = 0.0, varying: float | None = None
) -> float:
    """Diameter of ``c phi'(<z, v> + o) z + t`` over records of any arm, the largest over ``||v|| <=
    reach``.

    Parameters
    ----------
    arms
        Curves of the controls and of the treated; one entry where both are alike.
    reach
        Bound on ``||v||``, for rows of norm at most 1; it may be infinite.
    beside
        Bound on the norm of the row t of a linear term.
    varying
        Where ``z = e_a (x) g`` and t is ``beside`` times the same g in the other arm, a bound on
        all of g but a constant; None for other rows.

    Returns
    -------
    float
        The diameter, in units of the loss.
    """
    kinds = tuple(MarginGradient(arm.loss, arm.offset, arm.factor) for arm in arms)
    if varying is None:
        return diameter_of_kinds(kinds, reach) + 2.0 * beside
    # within an arm the constant cancels in the other block
    widest = max(diameter_of_kinds((kind,), reach) for kind in kinds)
    within = math.hypot(widest, 2.0 * beside * varying)
    return max(within, _across_arms(kinds, reach, beside)) * _ROUNDED


def weight_diameter(
    arms: tuple[ArmCurves, ...], reach: float, varying: float | None = None
) -> float:
    """Diameter of ``{h'(<z, v> + o) z}`` over rows as in :func:`record_diameter`; with 0 in it if
    clipped.
    """
    kinds = tuple(MarginSlope(arm.weight, arm.offset) for arm in arms)
    clipped = any(arm.weight.is_clipped for arm in arms)
    if varying is None:
        return slope_diameter_of_kinds(kinds, reach, clipped=clipped)
    within = max(slope_diameter_of_kinds((kind,), reach, clipped=clipped) for kind in kinds)
    if any(arm.weight.curve is None for arm in arms):
        return max(within, math.hypot(*(kind.weight.lipschitz for kind in _both(kinds))))
    curves = tuple(MarginGradient(arm.weight.curve, arm.offset) for arm in arms)
    return max(within, _across_arms(curves, reach, 0.0))


def _both(kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """The kinds of both arms, where one entry stands for both."""
    return kinds[0], kinds[-1]


def _across_arms(kinds: tuple[MarginGradient, ...], reach: float, beside: float) -> float:
    """Distance of gradients of two arms, whose ``<z, v>`` have squares of sum ``reach^2`` at
    most.
    """
    angle = np.linspace(0.0, math.pi / 2, _ANGLES + 1)
    # over a cell of angles each margin takes its larger end
    with np.errstate(over="ignore"):
        ends = reach * np.cos(angle[:-1]), reach * np.sin(angle[1:])
        sizes = []
        for kind, s in zip(_both(kinds), ends, strict=True):
            right, left = kind.loss.slope(s + kind.offset[1]), kind.loss.slope(kind.offset[0] - s)
            sizes.append(kind.factor[1] * np.maximum(np.abs(right), np.abs(left)) + beside)
        return float(np.max(np.hypot(*sizes)))
