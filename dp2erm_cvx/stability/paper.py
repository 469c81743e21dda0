"""The paper's stability bounds as printed, and what its calibration consumes of them."""

from __future__ import annotations

import math
from dataclasses import replace

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.stability.base import (
    BOTH_RELATIONS,
    EXACT,
    PAPER,
    ROUNDING,
    declared_floor,
    outward,
    positive_ridge,
    treatment_may_flip,
    universal_corollary,
)


def from_norm_bound(
    n: int,
    norm_bound: float,
    w_max: float,
    name: str,
    assumptions: tuple[str, ...],
    *,
    common_move_together: bool = False,
) -> StabilityBound:
    """A printed bound ``||w - w'||_2 <= norm_bound`` on weights of at most ``w_max``, as it stands.

    ``W1 = sqrt(n) norm_bound + 2 w_max`` and ``W2 = sqrt((norm_bound^2 + 2 w_max^2)(1 + n))``; ``V = W1``.
    Where all common records move in one direction ``||w - w'||_1 = 2 |w_j - w'_j| <= 2 norm_bound``, as both
    sums are ``n``.
    """
    if math.isnan(norm_bound):  # 0 times an overflow
        norm_bound = math.inf
    largest = universal_corollary(n, w_max).w_max
    spread = 2.0 if common_move_together else math.sqrt(n)
    W1 = outward(spread * norm_bound + 2.0 * largest)
    return StabilityBound(
        V=W1,
        theorem=f"{name} ({PAPER})",
        assumptions=assumptions,
        relations=BOTH_RELATIONS,
        w_max=largest,
        W1=W1,
        W2=outward(math.hypot(norm_bound, math.sqrt(2.0) * largest) * math.sqrt(1.0 + n)),
        L2=outward(norm_bound),
    )


def usable(n: int, printed: StabilityBound) -> StabilityBound:
    """The smaller of a printed bound and the universal corollary, entry by entry; its name says which."""
    # the largest weight before its rounding, which the corollary rounds once
    universal = universal_corollary(n, max(1.0, printed.w_max / (1.0 + ROUNDING)))
    assert printed.W1 is not None
    assert printed.W2 is not None
    assert universal.W1 is not None
    assert universal.W2 is not None
    W1, W2, theorem = min(printed.W1, universal.W1), min(printed.W2, universal.W2), printed.theorem
    if printed.W1 >= universal.W1 and printed.W2 >= universal.W2:
        theorem = f"{universal.theorem} for {printed.theorem.removesuffix(f' ({PAPER})')}"
    return replace(printed, V=W1, theorem=theorem, W1=W1, W2=W2)


def exponential(exponent: float) -> float:
    """``exp(exponent)``, infinite where it overflows."""
    return math.exp(exponent) if exponent < 709.0 else math.inf


def curvature(ridge: float, eigenvalue_floor: float, discount: float, largest: float) -> float:
    """Strong convexity ``discount * eigenvalue_floor + ridge`` of a first stage, rounded down.

    The smallest eigenvalue of the data at hand may not be used: only a floor that every dataset of the
    universe obeys. It cannot exceed ``largest``. Raises CalibrationError if nothing positive is left.
    """
    mu = public_number("ridge", ridge, at_least=0.0)
    floor = public_number("eigenvalue_floor", eigenvalue_floor, at_least=0.0)
    if floor > largest:
        raise DeclarationError(
            f"eigenvalue_floor = {floor:g}: no dataset reaches it, the largest eigenvalue is at most "
            f"{largest:g}"
        )
    total = (discount * floor + mu) * (1.0 - 1e-12)
    if total <= 0.0:
        raise CalibrationError(
            "ridge = 0 without a public eigenvalue floor: nothing makes the first stage strongly convex on "
            "every dataset; declare a positive ridge"
        )
    return total


def paper_randomized_trial(n: int, propensity: float) -> StabilityBound:
    """Printed bound for a trial with known treatment probability (proposition on randomized trials).

    ``||w - w'||_2 <= sqrt(2) |p_1 - p_0| / min(p_0, p_1) * n / (n - 1)``; the common weights move together.
    ``propensity`` = p_1 in (0, 1). Raises DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    p = public_number("propensity", propensity, above=0.0)
    if p >= 1.0:
        raise DeclarationError(f"propensity = {propensity!r}: must be below 1")
    low, high = min(p, 1.0 - p), max(p, 1.0 - p)
    return from_norm_bound(
        n,
        math.sqrt(2.0) * (high - low) / low * n / (n - 1),
        high / low,
        "proposition on randomized trials",
        ("the propensity is public and not estimated",),
        common_move_together=True,
    )


def paper_known_coefficient(n: int, covariate_bound: float, coefficient_norm: float) -> StabilityBound:
    """Printed bound for a public logistic coefficient (proposition on known regression parameters).

    ``||w - w'||_2 <= sqrt(2) exp(M R)``; the common weights move together. ``covariate_bound`` = M > 0 in the
    units of x, ``coefficient_norm`` = R >= 0 in their inverse. Raises DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    bound = public_number("covariate_bound", covariate_bound, above=0.0)
    norm = public_number("coefficient_norm", coefficient_norm, at_least=0.0)
    overlap = exponential(bound * norm)
    return from_norm_bound(
        n,
        math.sqrt(2.0) * overlap,
        overlap,
        "proposition on known regression parameters",
        ("the coefficient is public",),
        common_move_together=True,
    )


def paper_ipw_logistic(
    n: int, covariate_bound: float, ridge: float, radius: float, eigenvalue_floor: float = 0.0
) -> StabilityBound:
    """Printed bound for an estimated logistic propensity (proposition on estimated parameters).

    ``||w - w'||_2 <= 4 M^2 e^{MR}/rho + 2 M d e^{Md} (1 + (1 + e^{Md})/(2n))``, d = min(R, M/(2 rho)) and rho
    = eigenvalue_floor e^{-MR}/(1 + e^{-MR})^2 + ridge; M is the ``covariate_bound``, R the ``radius``
    (``inf`` leaves the universal corollary), ``eigenvalue_floor`` a public lower bound on the smallest
    eigenvalue of the mean of ``x x'`` over every dataset of the universe. The program is that of
    ``ipw_logistic``, untrimmed; treatment flips are covered. Raises DeclarationError for an invalid number
    and CalibrationError where ridge and floor are both 0.
    """
    n = whole_number("n", n, at_least=2)
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    R = public_number("radius", radius, above=0.0, infinite=True)
    odds = exponential(-M * R)
    rho = curvature(ridge, eigenvalue_floor, odds / (1.0 + odds) ** 2, M * M)
    overlap = exponential(M * R)
    delta = min(R, 0.5 * M / rho)
    growth = exponential(M * delta)
    # the ratio M^2/rho is taken first, so that it is not lost where M^2 underflows
    norm_bound = 4.0 * (M / rho * M) * overlap + 2.0 * (M * delta) * growth * (
        1.0 + (1.0 + growth) / (2.0 * n)
    )
    assumptions = [f"covariate norm at most {M:g}", EXACT]
    if eigenvalue_floor > 0.0:
        assumptions.append(f"smallest eigenvalue of mean x x' at least {eigenvalue_floor:g} on every dataset")
    return from_norm_bound(n, norm_bound, overlap, "proposition on estimated parameters", tuple(assumptions))


def paper_entropy_balancing(
    n: int,
    ridge: float,
    radius: float,
    arm_floor: int | None,
    base_measure_ratio: float = 1.0,
    eigenvalue_floor: float = 0.0,
) -> StabilityBound:
    """Printed bound for entropy balancing with the paper's scaling (theorem on the stability of EBW).

    ``||w - w'||_2 <= 2 r e (sqrt(2) + r e)/(rho sqrt(n)) + 2 R r^2 e^2/rho + 2 sqrt(2) r d exp(2 d)``, where
    e = exp(2R), d = min(R, (1 + sqrt(2))/rho), rho = eigenvalue_floor/(r e) + ridge and r >= 1 the
    ``base_measure_ratio``, largest over smallest value of the public base measure. The rows are ``b_i = (n /
    n_a) e_a (x) g(x_i)``, ``||g|| <= arm_floor / n``, so that ``||b|| <= 1`` on every dataset of the
    universe; the target is ``(gbar, gbar)``. R > 0 is the ``radius`` of the dual, ``eigenvalue_floor`` a
    public lower bound on the smallest eigenvalue of the covariance of b.

    Treatment flips within the universe are covered. Raises CalibrationError without an arm floor and where
    ridge and eigenvalue floor are both 0; DeclarationError for an invalid number.
    """
    n = whole_number("n", n, at_least=2)
    floor = declared_floor(n, arm_floor)
    R = public_number("radius", radius, above=0.0, infinite=True)
    ratio = public_number("base_measure_ratio", base_measure_ratio, at_least=1.0)
    tilted = ratio * exponential(2.0 * R)
    rho = curvature(ridge, eigenvalue_floor, 1.0 / tilted, 1.0)
    delta = min(R, (1.0 + math.sqrt(2.0)) / rho)
    norm_bound = (
        2.0 * tilted * (math.sqrt(2.0) + tilted) / rho / math.sqrt(n)
        + 2.0 * R * tilted * tilted / rho
        + 2.0 * math.sqrt(2.0) * ratio * delta * exponential(2.0 * delta)
    )
    assumptions = [
        f"each arm has at least {floor} records in every dataset of the universe",
        f"base measure varies by a factor of at most {ratio:g}",
        EXACT,
    ]
    if eigenvalue_floor > 0.0:
        assumptions.append(f"smallest eigenvalue of the covariance of b at least {eigenvalue_floor:g}")
    return from_norm_bound(n, norm_bound, tilted, "theorem on the stability of EBW", tuple(assumptions))


def paper_kernel_balancing(
    n: int,
    kernel_bound: float,
    ridge: float,
    weight_cap: float,
    relation: Neighboring = Neighboring.REPLACE_ONE_KEEP_TREATMENT,
) -> StabilityBound:
    """Printed bound for three-way MMD weights (proposition on MMD) of at most ``weight_cap`` = R >= 1.

    ``||w - w'||_2 <= 2 sqrt(2) (R + 1) C n / ridge`` for the program of ``kernel_balancing``; the cap may
    bind. The feasible set depends on the treatments, so the neighbor must keep its treatment; otherwise the
    statement is false: as the ridge grows the bound tends to 0 and the movement does not. Raises
    CalibrationError for such a relation and for ``ridge = 0``, DeclarationError for an invalid number.
    """
    n = whole_number("n", n, at_least=2)
    C = public_number("kernel_bound", kernel_bound, above=0.0)
    mu = positive_ridge(ridge)
    cap = public_number("weight_cap", weight_cap, at_least=1.0, infinite=True)
    if treatment_may_flip(relation):
        raise CalibrationError(
            f"the paper's MMD proposition is false under {Neighboring.REPLACE_ONE.value}: with 100 records a "
            "change of treatment moves the weights by 0.7205 where it allows 0.0699; use the sharp bound"
        )
    assumptions = f"kernel at most {C:g} in absolute value", f"every weight at most {cap:g}", EXACT
    norm_bound = 2.0 * math.sqrt(2.0) * (cap + 1.0) * (C / mu) * n
    printed = from_norm_bound(n, norm_bound, cap, "proposition on MMD", assumptions)
    return replace(printed, relations=frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT}))
