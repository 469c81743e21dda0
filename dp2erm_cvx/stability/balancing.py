"""Entropy balancing with ridge (Theorems 4, 4') and ridged quadratic programs of a kernel (Theorems 5, 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import check_settings, one_of, public_number, setting, whole_number
from dp2erm_cvx.stability.base import (
    BOTH_RELATIONS,
    EXACT,
    Cells,
    coupled_variation,
    declared_floor,
    largest_weight,
    last_true,
    outward,
    positive_ridge,
    stated_bound,
)

Array = NDArray[np.float64]

ArmMass = Literal["equal", "proportional"]

_CELLS = 4096


def arm_cells(n: int, arm_floor: int) -> Cells:
    """Shares k/n of the arm of the heavy record, k from ``max(1, arm_floor)``: beyond thousands in groups."""
    first, last = max(1, arm_floor), n - arm_floor
    if last - first < _CELLS:
        share = np.arange(first, last + 1) / n
        return share, share
    edge = np.linspace(first / n, last / n, _CELLS + 1)
    return edge[:-1], edge[1:]


@dataclass(frozen=True)
class EntropyConstants:
    """Constants of Theorem 4, in the units of the balance functions g~ where they have any.

    ``balance_bound`` G_x > 0 of ``||g~(x)||``; ``constant`` c_0 >= 0; ``ridge`` > 0; ``radius`` > 0 of the
    ball of lam; ``arm_mass`` "equal" or "proportional"; ``arm_floor`` a public lower bound on both arms, if
    any; ``trim`` a public cap on ``exp(<lam, b_i>)``.
    """

    balance_bound: float
    constant: float
    ridge: float
    radius: float = math.inf
    arm_mass: ArmMass = "equal"
    arm_floor: int | None = None
    trim: float = math.inf


@dataclass(frozen=True)
class ArmRows:
    """Rows ``e_a (x) (c, x)`` with ``||x|| <= r`` and an arm a; c cancels within an arm."""

    constant: float
    radius: float

    @property
    def size(self) -> float:
        """Largest norm of a row."""
        return math.hypot(self.constant, self.radius)

    @property
    def diameter(self) -> float:
        """D, the largest distance of two rows."""
        return max(2.0 * self.radius, math.sqrt(2.0) * self.size)

    def movement(self, arm_mass: ArmMass) -> float:
        """T, the largest movement of n times the target, a mean of ``(c, x)`` in both blocks."""
        if arm_mass == "equal":
            return math.sqrt(2.0) * self.radius
        return math.hypot(self.size, self.constant, 3.0 * self.radius)


def log_odds_excess(n: int, unit: EntropyConstants, cells: Cells) -> float:
    """Upper bound xi of ``logit p_j - logit(1/n)`` over all records and datasets; ``inf`` if p_j may be 1.

    For each cell the largest xi is sought with (n-1)/n xi <= min(ctr + cf sqrt(rad - (p - 1/n) xi / mu),
    radius cf), multiplied by mu, which may be 0 in a ball. Every coefficient is the largest of its cell: cf^2
    and, for equal mass, ctr and rad are convex in the share; else they grow with pi_0 pi_1.
    """
    ends = np.stack(cells)
    other = 1.0 - ends
    mu, radius, balance, constant = unit.ridge, unit.radius, unit.balance_bound, unit.constant
    G2, c2 = balance**2, constant**2
    form = np.sqrt(np.max(G2 * ((1.0 + ends) ** 2 + other**2) + 2.0 * c2 * other**2, axis=0))
    if unit.arm_mass == "equal":
        center = np.max(G2 + c2 * other * (other - ends), axis=0) / 2.0
        squared = np.max(G2 + c2 * (other - ends) ** 2, axis=0) / 8.0
    else:
        middle = np.clip(0.5, *cells)
        rho = 2.0 * balance * middle * (1.0 - middle)
        center, squared = rho * balance, rho**2 / 2.0

    def possible(xi: float) -> bool:
        gap = -(n - 1) * math.expm1(-xi) / (n * (1.0 + (n - 1) * math.exp(-xi)))
        left = xi * (n - 1) / n
        room = squared - mu * gap * xi
        inside = mu * left <= center + form * np.sqrt(np.maximum(room, 0.0))
        return bool(np.any(inside & (room >= 0.0) & (left <= radius * form)))

    # beyond this exp(-xi) leaves no weight for the others in floating point
    certain = math.log(n) + 700.0
    excess = last_true(possible, 0.0, certain)
    return math.inf if excess == certain else excess


def ridged_entropy_balancing(n: int, constants: EntropyConstants) -> StabilityBound:
    """Bound for entropy balancing in its dual form (Theorem 4); treatment flips and empty arms are covered.

    With ``b_i = e_a (x) (c_0, g~(x_i))`` lam minimizes ``log mean exp(<lam, b_i>) - <lam, t> + (ridge / 2)
    ||lam||^2`` over ``||lam|| <= radius``, and ``w_i`` is proportional to ``exp(<lam, b_i>)`` with sum ``n``.
    The target t is ``(gbar/2, gbar/2)`` for ``arm_mass="equal"`` and ``(pi_0 gbar, pi_1 gbar)`` for
    ``"proportional"``. A trim has the bound ``2 w + 2 (n - w) tanh(D e / (4 ridge))``, w the largest trimmed
    weight and e of the untrimmed scheme; it needs a finite radius. Raises DeclarationError for an invalid
    number and CalibrationError for ``ridge = 0``.
    """
    n = whole_number("n", n, at_least=2)
    arm_mass, arm_floor = constants.arm_mass, constants.arm_floor
    balance = public_number("balance_bound", constants.balance_bound, above=0.0)
    first = public_number("constant", constants.constant, at_least=0.0)
    ball = public_number("radius", constants.radius, above=0.0, infinite=True)
    mu = positive_ridge(constants.ridge)
    cap = public_number("trim", constants.trim, above=0.0, infinite=True)
    if arm_mass not in ("equal", "proportional"):
        raise DeclarationError(f"arm_mass = {arm_mass!r}: must be 'equal' or 'proportional'")
    floor = 0 if arm_floor is None else declared_floor(n, arm_floor)

    assumptions = [f"norm of the balance functions at most {balance:g}", f"{arm_mass} arm mass", EXACT]
    if floor:
        assumptions.append(f"each arm has at least {floor} records in every dataset of the universe")
    # in units where the larger of G_x and c_0 is 1; a ridge rounded down, even to 0, only enlarges the bound
    unit = max(balance, first)
    V, w_max = _bound(
        n,
        EntropyConstants(
            balance / unit, first / unit, min(mu / unit / unit, 1e280), ball * unit, arm_mass, floor, cap
        ),
    )
    name = "Theorem 4 (entropy balancing)" if math.isinf(cap) else "Theorem 4 (trimmed entropy balancing)"
    return stated_bound(n, V, w_max, name, tuple(assumptions))


@lru_cache(maxsize=256)
def _bound(n: int, unit: EntropyConstants) -> tuple[float, float]:
    mu, radius = unit.ridge, unit.radius
    if mu == 0.0 and math.isinf(radius):
        return 2.0 * n, float(n)
    xi = outward(log_odds_excess(n, unit, arm_cells(n, unit.arm_floor or 0)))
    w_max = largest_weight(n, xi)
    rest = (n - 1) * math.exp(-xi) / (1.0 + (n - 1) * math.exp(-xi))
    rows = ArmRows(unit.constant, unit.balance_bound)
    diameter = rows.diameter
    pull = (1.0 - rest) * diameter + rows.movement(unit.arm_mass) / n
    if math.isfinite(unit.trim):
        # where exp(s) is capped movements range no farther; the KL identity is of the untrimmed law alone
        moved = diameter * min(pull / mu if mu > 0.0 else math.inf, 2.0 * radius)
        spread = min(radius * rows.size, math.log(unit.trim)) + radius * rows.size
        if spread <= 0.0:
            return 2.0, 1.0
        w_max = float(n) if math.isinf(spread) else largest_weight(n, outward(spread))
        return coupled_variation(n, w_max, outward(2.0 * math.tanh(moved / 4.0))), w_max
    if rest == 0.0:
        return 2.0 * n, float(n)
    return coupled_variation(n, w_max, entropy_law_change(mu, radius, diameter, pull, rest)), w_max


def entropy_law_change(mu: float, radius: float, diameter: float, pull: float, rest: float) -> float:
    """Bound on ``||q - q'||_1``, the laws on the common records: ell of Theorem 4 (b).

    Maximizes over the movement delta of lam the smaller of ``2 tanh(diameter delta / 4)`` and ``2 tau``,
    ``4 tau artanh(tau) = (pull delta - mu delta^2) / rest``, ``pull`` = e and ``rest`` = 1 - p.
    """
    reach = pull / mu if mu > 0.0 else math.inf
    end = min(reach, 2.0 * radius)
    if math.isinf(end):
        return 2.0

    def by_range(delta: float) -> float:
        return 2.0 * math.tanh(diameter * delta / 4.0)

    def by_divergence(delta: float) -> float:
        divergence = delta * max(0.0, pull - mu * delta) / rest
        at_most = divergence / 4.0 + 1.0
        return 2.0 * math.tanh(last_true(lambda v: 4.0 * v * math.tanh(v) <= divergence, 0.0, at_most))

    # the first rises and the second falls from its peak on: no more than where they cross after it
    start = min(reach / 2.0, end)
    if by_range(start) >= by_divergence(start):
        return by_divergence(start)
    if start == end:
        return by_range(end)
    return by_range(last_true(lambda delta: by_range(delta) <= by_divergence(delta), start, end))


def entropy_balancing_paper_scaling(
    n: int, ridge: float, arm_floor: int | None, radius: float = math.inf, refined: bool = True
) -> StabilityBound:
    """Bound for entropy balancing with rows scaled by arm sizes (Theorem 4'); treatment flips are covered.

    With ``b_i = (n / n_a) e_a (x) g(x_i)`` and ``||g|| <= arm_floor / n``, so that ``||b_i|| <= 1``, the dual
    minimizes ``log mean exp(<lam, b_i>) - <lam, (gbar, gbar)> + (ridge / 2) ||lam||^2`` over ``||lam|| <=
    radius``; ``w_i`` is proportional to ``exp(<lam, b_i>)`` with sum ``n``.

    ``arm_floor`` is public, at most n/2, and holds in every dataset of the universe (a norm bound read off
    the data is not covered: ridge and ball do not scale with the rows). ``refined`` takes the smaller of the
    stated bound, which can exceed the printed one, and a refinement. Raises CalibrationError without a floor
    and for ``ridge = 0``, DeclarationError for an invalid number.
    """
    n = whole_number("n", n, at_least=2)
    floor = declared_floor(n, arm_floor)
    ball = public_number("radius", radius, above=0.0, infinite=True)
    mu, G, eta = positive_ridge(ridge), floor / n, 1.0 / floor
    # arms above the floor have means that differ by at most 2 G, in shares between G and 1 - G
    r = min(ball, outward(2.0 * G * math.hypot(G, 1.0 - G) / mu))
    # drift: mean change of the rows b under the law of the weights, at most eta
    mass = math.exp(min(2.0 * r, 700.0)) / (n - 1)
    drift = min(eta, mass * (1.0 + floor / (n - floor))) if refined else eta
    V, w_max = 2.0 * n, float(n)
    if r <= 350.0:
        w_max = largest_weight(n, 2.0 * r)
        rest = (n - 1) * math.exp(-2.0 * r) / (1.0 + (n - 1) * math.exp(-2.0 * r))
        pull = 2.0 * (w_max / n) + drift + 2.0 * math.sqrt(2.0) * G / n
        half = r * math.sqrt(eta * drift) / 2.0
        by_divergence = half + math.hypot(half, pull / (2.0 * math.sqrt(mu) * math.sqrt(rest)))
        tilt = min(2.0 * math.tanh(r * eta / 2.0), 2.0 * math.exp(2.0 * r * eta) * r * drift)
        # both coefficients lie in the ball, hence 2 r
        by_range = 2.0 * math.tanh((r * eta + min((pull + tilt) / mu, 2.0 * r)) / 2.0)
        V = coupled_variation(n, w_max, min(by_divergence, by_range))
    scope = f"each arm has at least {floor} records in every dataset of the universe"
    name = "Theorem 4' (entropy balancing, scaled by arm sizes)"
    return stated_bound(n, V, w_max, f"{name}, refined" if refined else name, (scope, EXACT))


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
