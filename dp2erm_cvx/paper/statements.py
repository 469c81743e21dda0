"""Bounds on the movement of weights as the paper prints them, of public numbers alone."""

from __future__ import annotations

import math
from dataclasses import replace

from dp2erm_cvx.arrays import ROUND_DOWN
from dp2erm_cvx.checks import one_of, public_number, whole_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper.bound import PrintedBound
from dp2erm_cvx.privacy import EXACT, Neighboring
from dp2erm_cvx.stability.base import (
    BOTH_RELATIONS,
    PAPER,
    ROUNDING,
    declared_floor,
    outward,
    positive_ridge,
)


def fixed_weights(n: int, w_max: float) -> PrintedBound:
    """Bound for weights that depend on no record at all (corollary on data-independent weights).

    ``W1 = 2 w_max`` and ``W2 = sqrt(2) w_max``; ``V = W1``, attained. ``w_max`` in [1, n] is the
    largest of the weights, of sum ``n``. A weight that is a function of its own record is *not*
    fixed. Raises DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    largest = outward(min(float(n), public_number("w_max", w_max, at_least=1.0)))
    return PrintedBound(
        V=2.0 * largest,
        theorem=f"corollary on data-independent weights ({PAPER})",
        assumptions=("the weights are public and depend on no record",),
        relations=BOTH_RELATIONS,
        w_max=largest,
        W1=2.0 * largest,
        W2=outward(math.sqrt(2.0) * largest),
    )


def universal_corollary(n: int, w_max: float = math.inf) -> PrintedBound:
    """Bound for any nonnegative weights of sum ``n``, none above ``w_max`` (universal corollary).

    ``W1 = 2 n + 2 min(w_max, n)`` and ``W2 = sqrt(2 n min(w_max, n) (1 + n))``; ``V = W1``.
    ``w_max`` >= 1 is public and holds for every dataset of the universe. Raises DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    largest = min(float(n), public_number("w_max", w_max, at_least=1.0, infinite=True))
    W1 = outward(2.0 * n + 2.0 * largest)
    return PrintedBound(
        V=W1,
        theorem=f"universal corollary ({PAPER})",
        assumptions=(f"weights of sum n, each at most {largest:g}",),
        relations=BOTH_RELATIONS,
        w_max=outward(largest),
        W1=W1,
        W2=outward(math.sqrt(2.0 * n * largest * (1.0 + n))),
    )


def _from_norm_bound(
    n: int,
    norm_bound: float,
    w_max: float,
    name: str,
    assumptions: tuple[str, ...],
    *,
    common_move_together: bool = False,
) -> PrintedBound:
    """A printed bound ``||w - w'||_2 <= norm_bound`` on weights of at most ``w_max``, as it stands.

    ``W1 = sqrt(n) norm_bound + 2 w_max`` and ``W2 = sqrt((norm_bound^2 + 2 w_max^2)(1 + n))``;
    ``V = W1``. Where all common records move in one direction
    ``||w - w'||_1 = 2 |w_j - w'_j| <= 2 norm_bound``, as both sums are ``n``.
    """
    if math.isnan(norm_bound):  # 0 times an overflow
        norm_bound = math.inf
    largest = universal_corollary(n, w_max).w_max
    spread = 2.0 if common_move_together else math.sqrt(n)
    W1 = outward(spread * norm_bound + 2.0 * largest)
    return PrintedBound(
        V=W1,
        theorem=f"{name} ({PAPER})",
        assumptions=assumptions,
        relations=BOTH_RELATIONS,
        w_max=largest,
        W1=W1,
        W2=outward(math.hypot(norm_bound, math.sqrt(2.0) * largest) * math.sqrt(1.0 + n)),
        L2=outward(norm_bound),
    )


def usable(n: int, printed: PrintedBound) -> PrintedBound:
    """The smaller of a printed bound and the universal corollary, entry by entry.

    Its name says which.
    """
    # the largest weight before its rounding, which the corollary rounds once
    universal = universal_corollary(n, max(1.0, printed.w_max / (1.0 + ROUNDING)))
    W1 = min(printed.W1, universal.W1)
    W2 = min(printed.W2, universal.W2)
    theorem = printed.theorem
    if printed.W1 >= universal.W1 and printed.W2 >= universal.W2:
        theorem = f"{universal.theorem} for {printed.theorem.removesuffix(f' ({PAPER})')}"
    return replace(printed, V=W1, theorem=theorem, W1=W1, W2=W2)


def _exponential(exponent: float) -> float:
    """``exp(exponent)``, infinite where it overflows."""
    return math.exp(exponent) if exponent < 709.0 else math.inf


def paper_randomized_trial(n: int, propensity: float) -> PrintedBound:
    """Printed bound for a trial with known propensities (proposition on randomized trials).

    ``||w - w'||_2 <= sqrt(2) |p_1 - p_0| / min(p_0, p_1) * n / (n - 1)``; the common weights move
    together. ``propensity`` = p_1 in (0, 1). Raises DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    p = public_number("propensity", propensity, above=0.0)
    if p >= 1.0:
        raise DeclarationError(f"propensity = {propensity!r}: must be below 1")
    low = min(p, 1.0 - p)
    high = max(p, 1.0 - p)
    return _from_norm_bound(
        n,
        math.sqrt(2.0) * (high - low) / low * n / (n - 1),
        high / low,
        "proposition on randomized trials",
        ("the propensity is public and not estimated",),
        common_move_together=True,
    )


def paper_known_coefficient(
    n: int, covariate_bound: float, coefficient_norm: float
) -> PrintedBound:
    """Printed bound for a public logistic coefficient (proposition on known regression parameters).

    ``||w - w'||_2 <= sqrt(2) exp(M R)``; the common weights move together. ``covariate_bound`` = M
    > 0 in the units of x, ``coefficient_norm`` = R >= 0 in their inverse. Raises DeclarationError.
    """
    bound = public_number("covariate_bound", covariate_bound, above=0.0)
    norm = public_number("coefficient_norm", coefficient_norm, at_least=0.0)
    overlap = _exponential(bound * norm)
    return _from_norm_bound(
        n,
        math.sqrt(2.0) * overlap,
        overlap,
        "proposition on known regression parameters",
        ("the coefficient is public",),
        common_move_together=True,
    )


def paper_ipw_logistic(n: int, covariate_bound: float, ridge: float, radius: float) -> PrintedBound:
    """Printed bound for an estimated logistic propensity (proposition on estimated parameters).

    ``||w - w'||_2 <= 4 M^2 e^{MR}/rho + 2 M d e^{Md} (1 + (1 + e^{Md})/(2n))``,
    ``d = min(R, M/(2 rho))`` and rho the ``ridge``; M is the ``covariate_bound``, R the ``radius``
    (``inf`` leaves the universal corollary). The program is that of ``ipw_logistic``, untrimmed;
    treatment flips are covered. Raises DeclarationError for an invalid number and CalibrationError
    for ``ridge = 0``.
    """
    n = whole_number("n", n, at_least=2)
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    R = public_number("radius", radius, above=0.0, infinite=True)
    rho = positive_ridge(ridge) * ROUND_DOWN
    overlap = _exponential(M * R)
    delta = min(R, 0.5 * M / rho)
    growth = _exponential(M * delta)
    # the ratio M^2/rho is taken first, so that it is not lost where M^2 underflows
    norm_bound = 4.0 * (M / rho * M) * overlap
    norm_bound += 2.0 * (M * delta) * growth * (1.0 + (1.0 + growth) / (2.0 * n))
    assumptions = f"covariate norm at most {M:g}", EXACT
    return _from_norm_bound(
        n, norm_bound, overlap, "proposition on estimated parameters", assumptions
    )


def paper_entropy_balancing(
    n: int, ridge: float, radius: float, arm_floor: int | None, base_measure_ratio: float = 1.0
) -> PrintedBound:
    """Printed bound for entropy balancing as the paper scales it (theorem on the stability of EBW).

    ``||w - w'||_2`` is at most the sum of ``2 r e (sqrt(2) + r e)/(rho sqrt(n))``,
    ``2 R r^2 e^2/rho`` and ``2 sqrt(2) r d exp(2 d)``, where ``e = exp(2R)``,
    ``d = min(R, (1 + sqrt(2))/rho)``, rho the ``ridge`` and r >= 1 the ``base_measure_ratio``,
    largest over smallest value of the public base measure. The rows are
    ``b_i = (n / n_a) e_a (x) g(x_i)``, ``||g|| <= arm_floor / n``, so that ``||b|| <= 1`` on every
    dataset of the universe; the target is ``(gbar, gbar)``. R > 0 is the ``radius`` of the dual.
    Treatment flips within the universe are covered. Raises CalibrationError without an arm floor
    and for ``ridge = 0``, DeclarationError for an invalid number.
    """
    n = whole_number("n", n, at_least=2)
    floor = declared_floor(n, arm_floor)
    R = public_number("radius", radius, above=0.0, infinite=True)
    ratio = public_number("base_measure_ratio", base_measure_ratio, at_least=1.0)
    rho = positive_ridge(ridge) * ROUND_DOWN
    tilted = ratio * _exponential(2.0 * R)
    delta = min(R, (1.0 + math.sqrt(2.0)) / rho)
    norm_bound = 2.0 * tilted * (math.sqrt(2.0) + tilted) / rho / math.sqrt(n)
    norm_bound += 2.0 * R * tilted * tilted / rho
    norm_bound += 2.0 * math.sqrt(2.0) * ratio * delta * _exponential(2.0 * delta)
    scope = f"each arm has at least {floor} records in every dataset of the universe"
    assumptions = scope, f"base measure varies by a factor of at most {ratio:g}", EXACT
    return _from_norm_bound(n, norm_bound, tilted, "theorem on the stability of EBW", assumptions)


def paper_kernel_balancing(
    n: int,
    kernel_bound: float,
    ridge: float,
    weight_cap: float,
    relation: Neighboring = Neighboring.REPLACE_ONE_KEEP_TREATMENT,
) -> PrintedBound:
    """Printed bound for three-way MMD weights of at most a cap (proposition on MMD).

    ``||w - w'||_2 <= 2 sqrt(2) (R + 1) C n / ridge`` for the program ``mmd``, whose own ridge is n
    times smaller; R >= 1 is the ``weight_cap``, which may bind. The feasible set depends on the
    treatments, so the neighbor must keep its treatment; otherwise the statement is false: as the
    ridge grows the bound tends to 0 and the movement does not. Raises CalibrationError for such a
    relation and for ``ridge = 0``, DeclarationError for an invalid number.
    """
    C = public_number("kernel_bound", kernel_bound, above=0.0)
    mu = positive_ridge(ridge)
    cap = public_number("weight_cap", weight_cap, at_least=1.0, infinite=True)
    if one_of("relation", relation, Neighboring) is Neighboring.REPLACE_ONE:
        raise CalibrationError(
            f"the paper's MMD proposition is false under {Neighboring.REPLACE_ONE.value}: with 100 "
            "records a change of treatment moves the weights by 0.7205 where it allows 0.0699; "
            "use the sharp bound"
        )
    assumptions = f"kernel at most {C:g} in absolute value", f"every weight at most {cap:g}", EXACT
    norm_bound = 2.0 * math.sqrt(2.0) * (cap + 1.0) * (C / mu) * n
    printed = _from_norm_bound(n, norm_bound, cap, "proposition on MMD", assumptions)
    return replace(printed, relations=frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT}))
