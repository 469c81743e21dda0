"""Weights proportional to ``exp(h)`` at the minimizer of a separable loss.

The coefficient minimizes over ``||v|| <= radius`` the mean of ``c_i phi(s_i)``,
``s_i = <z_i, v> + o_i``, plus ``ridge/2 ||v||^2``. With ``f = exp(h)`` weights are proportional to
``b_i f(s_i)``, at the margin that the loss bends, with sum n. The functions phi and h may differ
between the arms. Everything follows from them, a bound on the rows and the public intervals of c, b
and o.

- With one normalization over all records the bound is the lesser of Theorem 3 and of Theorems 22
  and 23.
- By arm it is that of Theorem 43 with a floor, and that of Theorem 44 with a total.

No bound is above 2n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, largest_bound
from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.curves.suprema import Interval
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import EXACT, StabilityBound
from dp2erm_cvx.stability.arm_curves import (
    FARTHEST,
    ArmCurves,
    both_arms,
    log_weight_ranges,
    longest_range,
    minimizer_norm,
    record_diameter,
    weight_diameter,
)
from dp2erm_cvx.stability.base import (
    coupled_variation,
    declared_floor,
    largest_weight,
    positive_ridge,
    stated_bound,
)
from dp2erm_cvx.stability.law_movement import CoefficientTravel, variance_constants
from dp2erm_cvx.stability.margin_cells import MarginScheme
from dp2erm_cvx.stability.weight_sizes import largest_and_mean

#: Most cuts of cells of sizes of an arm, and the excess at which a search over sizes ends.
_MOST_SIZES = 400
_CLOSE = 1e-6
#: Cells of the sums of both arms.
_TOTALS = 4000
#: Largest ridge in units of the rows, so that its square stays a number.
_LARGEST_RIDGE = 1e280


def separable(
    n: int,
    ridge: float,
    gradient_diameter: float,
    log_weight_diameter: float,
    log_weight_range: float,
    radius: float = math.inf,
) -> StabilityBound:
    """Bound for any separable scheme and any change of a record inside the domain (Theorem 3).

    The coefficient minimizes over ``||lam|| <= R`` the mean of ``psi(lam; d_i)``, convex in lam,
    plus ``(ridge / 2) ||lam||^2``, and ``w_i`` is proportional to ``exp(h(lam; d_i))`` with sum
    ``n``. Diameters and ranges are over all records of the domain and all ``||lam|| <= radius``, a
    bound on every dataset.

    Parameters
    ----------
    n
        Number of records, at least 2.
    ridge
        Of the mean objective, above 0.
    gradient_diameter
        Diameter D_psi of the gradients of psi.
    log_weight_diameter
        Diameter D_h of the gradients of h, with the zero vector where h is clipped (clipping does
        not preserve differences).
    log_weight_range
        Length H of the interval that h lies in; ``inf`` for none.
    radius
        Bound on ``||lam||`` of every dataset; ``inf`` for none.

    Returns
    -------
    StabilityBound

    Raises
    ------
    DeclarationError
        For an invalid number.
    CalibrationError
        For ``ridge = 0``.
    """
    n = whole_number("n", n, at_least=2)
    D_psi = public_number("gradient_diameter", gradient_diameter, at_least=0.0)
    D_h = public_number("log_weight_diameter", log_weight_diameter, at_least=0.0)
    H = public_number("log_weight_range", log_weight_range, at_least=0.0, infinite=True)
    r = public_number("radius", radius, above=0.0, infinite=True)
    # both coefficients lie in the ball, and h varies by at most H at either of them
    movement = min(D_psi / n / positive_ridge(ridge), 2.0 * r)
    change_of_h = D_h * movement if D_h > 0.0 else 0.0
    spread = min(change_of_h, 2.0 * H)
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
    """Numbers that bound the movement of weights, for rows of norm 1.

    The theorems are those of the module.

    Parameters
    ----------
    reach
        Bound on every ``<z, v>`` of a minimizer.
    gradient_diameter
        Diameter D of the gradients of the loss, in units of the loss over those of the margin.
    log_weight_diameter
        Diameter D_h of the gradients of h, in inverse units of the margin.
    log_weight_range
        Length H of an interval that ``h + log b`` of both arms lies in.
    largest
        Bound on a weight.
    least_mean
        Lower bound of the mean of ``b f`` over any n - 1 records of a minimizer (Theorem 23).
    variance
        The bound C of Theorem 22, ``inf`` where a weight moves and the loss is flat.
    bound
        The bound V of the movement, and what it assumes.
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
    """Bound for a separable scheme, by the theorem of its normalization, and at most 2n.

    Rows have ``||z|| <= row_norm``.

    - With one normalization over all records ``w_i = n b_i f_i / sum of b f``: the lesser of
      Theorem 3 and of Theorems 22 and 23.
    - By arm with a floor ``w_i = n/2 b_i f_i / sum of b f over the own arm``: Theorem 43.
    - By arm with a total tau w_i is proportional to
      ``b_i f_i / max(sum of b f over the own arm, n tau)``, with sum n: Theorem 44.

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
        The total tau of Theorem 44, above 0, in units of b f.

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
    # Everything is in units of rows of norm 1 from here on.
    norm = public_number("row_norm", row_norm, above=0.0)
    ball = public_number("radius", radius, above=0.0, infinite=True) * norm
    ball = min(ball, _half_diagonal(box, dimension) * norm)
    price = public_number("l1", l1, at_least=0.0) / norm
    public_term = public_number("pull", pull, at_least=0.0) / norm
    mu = min(positive_ridge(ridge) / norm / norm, _LARGEST_RIDGE)
    floor = None
    least_share = 0.0
    if arm_floor is not None:
        floor = declared_floor(n, arm_floor)
        least_share = (floor - 1) / (n - 1)
    total = _checked_total(normalization, floor, arm_total)

    reach = minimizer_norm(arms, mu, ball, beside + public_term, price)
    ranges = log_weight_ranges(arms, reach)
    highest = max(high for _, high in ranges)
    H = highest - min(low for low, _ in ranges)
    D = record_diameter(arms, reach, beside, varying)
    end = 2.0 * reach
    if mu:
        # Minimizers are no farther apart than D / (n mu), by strong convexity.
        end = min(D / n / mu, end)
    travel = CoefficientTravel(
        n=n,
        mu=mu,
        end=end,
        gradient_diameter=D,
        weight_diameter=weight_diameter(arms, reach, varying),
        arm_range=longest_range(arms, ranges),
    )
    scheme = MarginScheme(
        n=n,
        mu=mu,
        reach=reach,
        arms=arms,
        beside=beside,
        by_arm=varying is not None,
        public=public_term - price,
        least_share=least_share,
    )
    facts = _facts(scheme, largest_weight(n, H))
    if normalization == "all":
        movement = _of_one_sum(travel, facts, H)
    elif total is not None:
        movement = _of_saturated_sums(travel, facts, total, highest)
    else:
        assert floor is not None
        movement = _of_sums_by_arm(travel, scheme, ranges, floor)
    assumptions = _assumptions(travel, norm, reach, H, floor)
    return MarginMovement(
        reach=reach,
        gradient_diameter=travel.gradient_diameter,
        log_weight_diameter=travel.weight_diameter,
        log_weight_range=H,
        largest=movement.largest,
        least_mean=facts.mean,
        variance=facts.variance,
        bound=stated_bound(n, movement.V, movement.largest, movement.theorem, assumptions),
    )


def _assumptions(
    travel: CoefficientTravel, norm: float, reach: float, H: float, floor: int | None
) -> tuple[str, ...]:
    """What a bound assumes, in words; diameters are those of rows of norm ``norm``."""
    gradients = travel.gradient_diameter * norm
    weights = travel.weight_diameter * norm
    assumptions = [
        f"gradients of the loss in a set of diameter {gradients:g}, of log weights in one of "
        f"{weights:g}",
        f"margins at most {reach:g}, log weights in an interval of length {H:g}",
    ]
    if floor is not None:
        assumptions.append(
            f"each arm has at least {floor} records in every dataset of the universe"
        )
    return (*assumptions, EXACT)


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


def _half_diagonal(box: float, dimension: int | None) -> float:
    """Norm of a corner of a box; DeclarationError for a finite one of an unknown dimension."""
    half_width = public_number("box", box, above=0.0, infinite=True)
    if math.isinf(half_width):
        return math.inf
    if dimension is None:
        raise DeclarationError(
            f"box = {half_width:g}: state the dimension, on which the norm of v depends"
        )
    return half_width * math.sqrt(whole_number("dimension", dimension, at_least=1)) * ROUND_UP


@dataclass(frozen=True)
class _Facts:
    """What Theorems 22 and 23 prove of a scheme.

    Parameters
    ----------
    largest
        Bound on a weight.
    mean
        The least mean m of ``b f`` over n - 1 records (Theorem 23).
    variance, largest_g, steepest
        The constants C, G and L of Theorem 22.
    """

    largest: float
    mean: float
    variance: float
    largest_g: float
    steepest: float

    @property
    def from_mean(self) -> float:
        """The quotient G/m; infinite where the least mean is 0."""
        if self.mean <= 0.0:
            return math.inf
        return self.largest_g / self.mean


def _facts(scheme: MarginScheme, largest_by_range: float) -> _Facts:
    """Facts of a scheme, none where its margins or weights leave floating point."""
    if not scheme.is_near:
        return _Facts(largest_by_range, 0.0, math.inf, math.inf, math.inf)
    largest, mean = largest_and_mean(scheme)
    constants = variance_constants(scheme)
    return _Facts(min(largest, largest_by_range), mean, *constants)


class _WeightMovement(NamedTuple):
    """A bound of one theorem.

    Attributes
    ----------
    V
        Bound on ``||w - w'||_1``.
    largest
        Bound on a weight.
    theorem
        What proves both.
    """

    V: float
    largest: float
    theorem: str


def _of_one_sum(travel: CoefficientTravel, facts: _Facts, H: float) -> _WeightMovement:
    """One normalization over all records: the lesser of Theorem 3 and of Theorems 22 and 23."""
    n = travel.n
    by_range = travel.by_range
    V = coupled_variation(n, largest_weight(n, H), by_range)
    law = travel.law_change(facts.variance, facts.from_mean, facts.steepest)
    sharper = coupled_variation(n, facts.largest, min(law, by_range))
    if sharper < V:
        return _WeightMovement(sharper, facts.largest, "Theorems 22 and 23 (separable schemes)")
    return _WeightMovement(V, facts.largest, "Theorem 3 (separable schemes)")


@dataclass(frozen=True)
class _SumsByArm:
    """A normalization by arm with a floor (Theorem 43); arms are numbered 0 and 1.

    Parameters
    ----------
    travel
        With the diameter and the range of one arm.
    floor
        Least number of records of an arm.
    ranges
        Interval of ``h + log b`` of each arm.
    constants
        ``min(C_a, G_a / f_a^-)`` of each arm alone.
    """

    travel: CoefficientTravel
    floor: int
    ranges: tuple[Interval, Interval]
    constants: list[float]

    def largest(self, arm: int, size: int) -> float:
        """T_a(k), the largest weight in an arm of k records."""
        low, high = self.ranges[arm]
        return 0.5 * self.travel.n / (1.0 + (size - 1) * math.exp(low - high))

    def bound(self, arm: int, first: int, last: int) -> float:
        """Bound where the record is of this arm in D, which has first to last records.

        A record that changes its arm is the worst where its arm is above the floor.
        """
        n = self.travel.n
        other = 1 - arm
        own_part = self.constants[arm] / max(first - 1, 1)
        other_part = self.constants[other] / (n - last)
        # K of the theorem is n/4 times the sum; law_change has the factor n/(n - 1).
        law = self.travel.law_change(0.25 * (n - 1) * (own_part + other_part))
        weights = 2.0 * self.largest(arm, first)
        if last > self.floor:
            # An arm at its floor loses no record.
            weights = weights + 2.0 * self.largest(other, n - last + 1)
        return weights + n * law


def _of_sums_by_arm(
    travel: CoefficientTravel, scheme: MarginScheme, ranges: list[Interval], floor: int
) -> _WeightMovement:
    """A normalization by arm, by cells of the size of the record's arm (Theorem 43)."""
    n = travel.n
    arms = both_arms(scheme.arms)
    ranges_of_both = both_arms(tuple(ranges))
    within = largest_bound(*(weight_diameter((arm,), scheme.reach) for arm in arms))
    travel = replace(travel, weight_diameter=min(travel.weight_diameter, within))
    constants = []
    for arm, (low, _) in zip(arms, ranges_of_both, strict=True):
        C = math.inf
        G = math.inf
        if scheme.is_near:
            C, G, _ = variance_constants(replace(scheme, arms=(arm,)))
        constants.append(min(C, G * math.exp(-low)))
    by_arm = _SumsByArm(travel, floor, ranges_of_both, constants)

    V = 0.0
    for arm in (0, 1):
        V = largest_bound(V, by_arm.bound(arm, floor, floor))
        if n - floor > floor:
            bound = partial(by_arm.bound, arm)
            V = largest_bound(V, _largest_over_sizes(bound, floor + 1, n - floor))
    largest = largest_bound(by_arm.largest(0, floor), by_arm.largest(1, floor))
    return _WeightMovement(min(V, 2.0 * n), largest, "Theorem 43 (normalization by arm)")


def _largest_over_sizes(bound: Callable[[int, int], float], first: int, last: int) -> float:
    """Upper bound over whole numbers, by cells cut in half until one number or little is left."""
    cells = [(largest_bound(bound(first, last)), first, last)]
    best = max(bound(first, first), bound(last, last))
    for _ in range(_MOST_SIZES):
        top, low, high = max(cells)
        if low == high or top <= best * (1.0 + _CLOSE):
            break
        middle = (low + high) // 2
        cells.remove((top, low, high))
        cells.append((largest_bound(bound(low, middle)), low, middle))
        cells.append((largest_bound(bound(middle + 1, high)), middle + 1, high))
        best = max(best, bound(middle, middle))
    return max(top for top, _, _ in cells)


def _of_saturated_sums(
    travel: CoefficientTravel, facts: _Facts, total: float, highest: float
) -> _WeightMovement:
    """A normalization by saturated sums by arm (Theorem 44).

    Parameters
    ----------
    travel
        How far the coefficient moves.
    facts
        Facts of the scheme, whose m and G are used.
    total
        The total tau of the theorem, in units of b f.
    highest
        Largest log of b f.
    """
    n = travel.n
    mean = facts.mean
    theorem = "Theorem 44 (saturated normalization by arm)"
    if mean == 0.0 or not math.isfinite(facts.largest_g):
        return _WeightMovement(2.0 * n, float(n), theorem)
    largest_product = math.exp(highest)
    largest = min(float(n), largest_product * max(1.0 / total, 1.0 / mean))
    moved = facts.steepest * travel.end
    both_weights = _largest_of_both_weights(
        mean * (n - 1) / n, total, largest_product, math.exp(min(2.0 * moved, FARTHEST)), largest
    )
    # K of the theorem; its law of change is that of twice the diameter and twice the range.
    growth_along = math.exp(min(0.5 * moved, FARTHEST))
    constant = facts.largest_g * max(1.0 / total, n / (n - 1) * growth_along / mean)
    twice = replace(
        travel, weight_diameter=2.0 * travel.weight_diameter, arm_range=2.0 * travel.arm_range
    )
    law = twice.law_change(constant * (n - 1) / n)
    return _WeightMovement(min(2.0 * n, 2.0 * both_weights + n * law), largest, theorem)


def _largest_of_both_weights(
    sum_of_arms: float, total: float, largest_product: float, grown: float, largest: float
) -> float:
    """Bound of the weights of a replaced record before and after, added (S of Theorem 44).

    Parameters
    ----------
    sum_of_arms
        Least sum of b f of both arms, over n, which is cut into cells of its parts x and y.
    total
        The total tau.
    largest_product
        Largest b f.
    grown
        Factor by which b f may grow along the way.
    largest
        Bound of one weight.
    """
    edges = np.linspace(0.0, sum_of_arms, _TOTALS + 1)
    # On a cell x and y are at least this.
    x = edges[:-1]
    y = sum_of_arms - edges[1:]
    divisor_before = x + np.maximum(x, total) * np.minimum(1.0, y / total)
    divisor_after = y + np.maximum(y, total) * np.minimum(1.0, x / total)
    weight_before = np.minimum(largest, largest_product / divisor_before)
    weight_after = np.minimum(largest, largest_product * grown / divisor_after)
    return min(float(np.max(weight_before + weight_after)), 2.0 * largest)
