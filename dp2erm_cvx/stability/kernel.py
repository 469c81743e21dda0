"""Kernel weights by ridged quadratic programs: MMD per arm, pooled, and mean matching (Theorems 5, 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import check_settings, one_of, public_number, setting, whole_number
from dp2erm_cvx.stability.base import (
    BOTH_RELATIONS,
    EXACT,
    Cells,
    declared_floor,
    outward,
    positive_ridge,
    stated_bound,
)

Array = NDArray[np.float64]

#: Sizes that are each a cell of their own.
_EXACT = 2**14


@dataclass(frozen=True)
class KernelConstants:
    """Constants of Theorems 5 and 6: C > 0 with ``0 <= K <= C``, or ``|K| <= C`` if ``signed``.

    ``ridge`` lambda > 0 is the coefficient of ``||p||^2`` for laws p, in the units of K; ``alpha`` in [0, 1]
    weighs balance to the sample against that between the arms. Raises DeclarationError, and CalibrationError
    for ``ridge = 0``.
    """

    kernel_bound: float = setting(above=0.0)
    ridge: float = setting(at_least=0.0)
    alpha: float = setting(0.5, at_least=0.0, at_most=1.0)
    signed: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
        positive_ridge(self.ridge)
        object.__setattr__(self, "signed", bool(self.signed))

    @property
    def assumption(self) -> str:
        """Assumption on the kernel, in words."""
        lower = -self.kernel_bound if self.signed else 0.0
        return f"kernel values in [{lower:g}, {self.kernel_bound:g}]"

    def in_units(self) -> KernelConstants:
        """The constants in units where the kernel bound is 1; a smaller ridge or alpha only enlarges V."""
        ridge = min(max(self.ridge / self.kernel_bound, 1e-100), 1e100)
        return KernelConstants(1.0, ridge, self.alpha if self.alpha > 1e-100 else 0.0, self.signed)

    @property
    def record_change(self) -> float:
        """Bound on ``||phi - phi'||``."""
        return 2.0 if self.signed else math.sqrt(2.0)

    def displacement(self, records: int) -> float:
        """k: a signed law of total mass 0 on as many records moves the mean feature by k times its norm."""
        return math.sqrt(records if self.signed else records / 2.0)

    def arm_weight(self, size: Array, n: int) -> Array:
        """t_c, a bound on each p_i in an arm of ``size`` records of n; it falls with the size."""
        y = self.alpha * size / n
        excess = np.where(y <= 0.5, 2.0 - y, 1.0 + 0.25 / np.maximum(y, 0.5))
        return np.asarray(np.minimum(1.0, 1.0 / size + (4.0 if self.signed else excess) / self.ridge))

    def spread(self, size: Array) -> Any:
        """Q_c, a bound on the distance of an arm's law from its mean; it grows with the size."""
        return centered_norm((4.0 if self.signed else 2.0) / self.ridge, size)

    def movement(self, records: int, g: Any, q: Any, k: float, t: Any) -> float:
        """Largest ``sqrt(records) d + 2 t`` over cells of g, q, t: V in units of the total of the weights.

        d is the largest with ``alpha X^2 - g X + ridge (d^2 - q d) <= 0`` for some X in [0, k d], a movement
        of the law on so many common records.
        """
        d = (q + g * k / self.ridge) / (1.0 + self.alpha * k**2 / self.ridge)
        if self.alpha > 0.0:
            free = (q + np.sqrt(q**2 + g**2 / (self.alpha * self.ridge))) / 2.0
            d = np.where(k * free >= g / (2.0 * self.alpha), free, d)
        return float(np.max(math.sqrt(records) * d + 2.0 * t))


def kernel_balancing(
    n: int,
    constants: KernelConstants,
    arm_floor: int | None,
    weight_cap: float = math.inf,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> StabilityBound:
    """Bound for three-way MMD weights with one simplex per arm (Theorem 5); n is at least 4.

    With m_c the mean feature under the law p_c on arm c and mu_S that of all records, p minimizes ``alpha
    sum_c ||m_c - mu_S||^2 + (1 - alpha) ||m_0 - m_1||^2 + ridge ||p||^2``, and ``w = (n / 2) p``. V is of
    order 1 from a ridge of order n on. ``arm_floor`` is public, from 2 to n/2; a ``weight_cap`` is covered
    only where it can never bind; without flips of the treatment the bound is smaller. Raises CalibrationError
    without a floor and for a cap that can bind, and DeclarationError for an invalid number.
    """
    n = whole_number("n", n, at_least=4)
    unit = constants.in_units()
    floor = declared_floor(n, arm_floor, at_least=2)
    k = unit.displacement(n - floor)

    fewest, most = size_cells(floor, n - floor)
    t, q = unit.arm_weight(fewest, n), unit.spread(most)
    w_max = n / 2.0 * float(np.max(t))
    cap = public_number("weight_cap", weight_cap, above=0.0, infinite=True)
    if cap < outward(w_max):
        raise CalibrationError(
            f"weight_cap = {cap:g}: it can bind, as weights reach up to {w_max:g} without it, and no sharp "
            "bound covers that; raise the cap or the ridge"
        )
    change = math.sqrt(2.0) * unit.alpha / n
    pull = unit.record_change * (t * math.hypot(1.0, 1.0 - unit.alpha) + change)
    largest = unit.movement(n - 1, pull, t * q, k, t)
    flips = one_of("relation", relation, Neighboring) is Neighboring.REPLACE_ONE
    if flips and floor + 1 <= n - floor:
        largest = max(largest, _flips(n, unit, size_cells(floor + 1, n - floor), k))
    scope = f"each arm has at least {floor} records in every dataset of the universe"
    assumptions = constants.assumption, scope, EXACT
    return stated_bound(n, n / 2.0 * largest, w_max, "Theorem 5 (MMD per arm)", assumptions, _covered(flips))


def pooled_kernel_balancing(n: int, constants: KernelConstants) -> StabilityBound:
    """Bound for MMD weights on one simplex over all records (Theorem 6); treatment flips are covered.

    With m_c the sum of ``p_i`` times the features over arm c and mu_S the mean over all records, p minimizes
    ``alpha sum_c ||m_c - mu_S / 2||^2 + (1 - alpha) ||m_0 - m_1||^2 + ridge ||p||^2`` over the simplex, and
    ``w = n p``. No arm floor is needed: a constant in the kernel balances the arm masses softly. Raises
    DeclarationError for an invalid number.
    """
    n = whole_number("n", n, at_least=2)
    unit = constants.in_units()
    a = 1.0 - unit.alpha
    # extremes of <phi_i, G> over laws on the simplex, in units of C
    excess, omega = (2.0 + unit.alpha,) * 2 if unit.signed else (1.0 + a, 2.0 - unit.alpha / 2.0)
    tau = min(1.0, 1.0 / n + excess / unit.ridge)
    spread = centered_norm(omega / unit.ridge, n)
    pull = unit.record_change * ((1.0 + a) * tau + unit.alpha / (math.sqrt(2.0) * n))
    V = n * unit.movement(n - 1, pull, tau * spread, unit.displacement(n), tau)
    w_max = outward(n * tau)
    bound = stated_bound(n, V, w_max, "Theorem 6 (pooled MMD)", (constants.assumption, EXACT))
    return replace(bound, w_max=w_max)


def _flips(n: int, unit: KernelConstants, cells: Cells, k: float) -> float:
    """The bound in units of n/2 where the record leaves an arm of ``cells`` records for the other one."""
    a = 1.0 - unit.alpha
    low, high = cells
    t, q = unit.arm_weight(low, n), unit.spread(high)
    t_other, q_other = unit.arm_weight(n + 1 - high, n), unit.spread(n + 1 - low)
    moved = np.hypot(t + a * t_other, t_other + a * t)
    pull = unit.record_change * (moved + math.sqrt(2.0) * unit.alpha / n)
    return unit.movement(n - 1, pull, np.hypot(t * q, t_other * q_other), k, t + t_other)


def _covered(flips: bool) -> frozenset[Neighboring]:
    """The neighbors that a bound covers, which are all where treatments may flip."""
    return BOTH_RELATIONS if flips else frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT})


def centered_norm(omega: float, size: Any) -> Any:
    """Largest norm of a centered law of ``size`` points whose values range over omega."""
    return np.minimum(math.sqrt(omega), np.sqrt(size) * (omega / 2.0))


def size_cells(first: int, last: int) -> Cells:
    """Cells of the sizes first, ..., last of one arm: beyond thousands grouped by ratio from both ends."""
    if last - first < _EXACT:
        size = np.arange(first, last + 1, dtype=np.float64)
        return size, size
    middle = (first + last) // 2
    up = np.unique(np.rint(np.geomspace(first, middle, _EXACT)))
    down = first + last + 1 - up[::-1]
    low = np.unique(np.concatenate([up, down[down > middle]]))
    low = low[low <= last]
    return low, np.append(low[1:] - 1, float(last))


def kernel_mean_matching(
    n: int,
    constants: KernelConstants,
    *,
    public_target: bool,
    arm_floor: int | None = None,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> StabilityBound:
    """Bound for ``w = n p``, p the minimizer of ``||m - mu||^2 + ridge ||p||^2`` over a simplex; alpha is 1.

    m is the mean feature under the law p on the source records, mu that of the target: a ``public_target``,
    where every record is a source; or the treated records, where source and target have at least the public
    ``arm_floor`` of records and a flip moves a record from one to the other.

    Theorem 6 with one block. Raises CalibrationError without a floor, DeclarationError otherwise.
    """
    n = whole_number("n", n, at_least=2 if public_target else 4)
    unit = constants.in_units()
    assumptions = [constants.assumption]
    fewest, most, change = n, n, 0.0
    flips = one_of("relation", relation, Neighboring) is Neighboring.REPLACE_ONE
    if public_target:
        assumptions.append("the target sample is public")
    else:
        fewest = declared_floor(n, arm_floor, at_least=2)
        most, change = n - fewest, 1.0 / fewest
        assumptions.append(f"source and target have at least {fewest} records each in every dataset")
    excess = (4.0 if unit.signed else 2.0) / unit.ridge
    tau = min(1.0, 1.0 / fewest + excess)
    spread = float(centered_norm(excess, most))
    pulls = [(tau + change, tau)] if flips else [(tau, tau), (change, 0.0)]
    k, change = unit.displacement(most), unit.record_change
    largest = max(unit.movement(most, change * pull, share * spread, k, share) for pull, share in pulls)
    theorem = "Theorem 6 with one block (kernel mean matching)"
    return stated_bound(n, n * largest, n * tau, theorem, (*assumptions, EXACT), _covered(flips))
