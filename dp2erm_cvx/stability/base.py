"""Base of stability bounds; those of any weights, of functions of the own record, and the paper's as printed.

Of weights that are functions of their own record V = 2 w_max, attained: only the changed record's
unnormalized weight moves, so the law on the others stays and the tilt lemma holds with kappa = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp2erm_cvx.checks import check_settings, one_of, public_number, setting, whole_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound

BOTH_RELATIONS = frozenset(Neighboring)
EXACT = "the weights are those of the exact minimizer"
#: Relative margin for the rounding of a bound's own arithmetic, which is orders of magnitude smaller.
ROUNDING = 1e-10


def positive_ridge(ridge: float) -> float:
    """Check a ridge; raises CalibrationError at 0, where these bounds do not exist."""
    number = public_number("ridge", ridge, at_least=0.0)
    if number == 0.0:
        raise CalibrationError(
            "ridge = 0: without strong convexity one record can move the weights arbitrarily; "
            "declare a positive ridge"
        )
    return number


def declared_floor(n: int, arm_floor: int | None, at_least: int = 1) -> int:
    """A public floor on both arm sizes; raises CalibrationError without one, DeclarationError beyond n/2."""
    if arm_floor is None:
        raise CalibrationError(
            "arm_floor is not declared: this program depends on the arm sizes, which are private; declare a "
            "public floor on both arm sizes"
        )
    floor = whole_number("arm_floor", arm_floor, at_least=at_least)
    if 2 * floor > n:
        raise DeclarationError(f"arm_floor = {arm_floor}: must be at most n/2 = {n / 2:g}")
    return floor


def outward(value: float) -> float:
    """Add the rounding margin to a nonnegative bound."""
    return value * (1.0 + ROUNDING)


def largest_weight(n: int, log_ratio: float) -> float:
    """Largest of ``n`` positive weights of sum ``n`` whose logs range over ``log_ratio`` >= 0; attained."""
    return n / (1.0 + (n - 1) * math.exp(-log_ratio))


def coupled_variation(n: int, w_max: float, law_change: float) -> float:
    """``min(2 n, 2 w_max + (n - w_max) law_change)``.

    ``law_change`` in [0, 2] bounds ``||q - q'||_1`` of the laws of the weights on the common records,
    ``w_max`` both weights of the changed one. (With p = w/n and p_j >= p'_j: sum over the common records of
    |p_i - p'_i| <= (1 - p_j) ||q - q'||_1 + p_j - p'_j.)
    """
    return min(2.0 * n, 2.0 * w_max + (n - min(w_max, n)) * law_change)


def tilt_lemma(n: int, log_change_range: float, w_max: float) -> float:
    """Bound V for weights ``w_i`` proportional to ``exp(h_i)`` whose logs move (tilt lemma).

    ``2 w_max + 2 (n - w_max) tanh(kappa / 2)``, at most ``2 n``: ``log_change_range`` = 2 kappa bounds the
    range of ``h_i - h'_i`` over the common records, ``w_max`` both weights of the changed one. Raises
    DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    spread = public_number("log_change_range", log_change_range, at_least=0.0, infinite=True)
    weight = public_number("w_max", w_max, above=0.0)
    return coupled_variation(n, weight, 2.0 * math.tanh(spread / 4.0))


def stated_bound(
    n: int,
    V: float,
    w_max: float,
    theorem: str,
    assumptions: tuple[str, ...],
    relations: frozenset[Neighboring] = BOTH_RELATIONS,
) -> StabilityBound:
    """Put a computed bound into a statement, rounded outward and capped at its universal values."""
    return StabilityBound(
        V=min(2.0 * n, outward(V)),
        theorem=theorem,
        assumptions=assumptions,
        relations=relations,
        w_max=min(float(n), outward(w_max)),
    )


#: Named in the theorem of every bound that is carried as printed there.
PAPER = "Lee & Chen, arXiv 2602.12604"


def fixed_weights(n: int, w_max: float) -> StabilityBound:
    """Bound for weights that depend on no record at all (corollary on data-independent weights).

    ``W1 = 2 w_max`` and ``W2 = sqrt(2) w_max``; ``V = W1``, attained. ``w_max`` in [1, n] is the largest of
    the weights, of sum ``n``. A weight that is a function of its own record is *not* fixed. Raises
    DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    largest = outward(min(float(n), public_number("w_max", w_max, at_least=1.0)))
    return StabilityBound(
        V=2.0 * largest,
        theorem=f"corollary on data-independent weights ({PAPER})",
        assumptions=("the weights are public and depend on no record",),
        relations=BOTH_RELATIONS,
        w_max=largest,
        W1=2.0 * largest,
        W2=outward(math.sqrt(2.0) * largest),
    )


def any_weights(n: int, assumption: str, relations: frozenset[Neighboring]) -> StabilityBound:
    """``V <= 2n`` for any two nonnegative weight vectors of sum n, ``W1 <= 4n``; ``assumption`` says why."""
    return StabilityBound(
        V=2.0 * n,
        theorem="universal corollary",
        assumptions=(assumption,),
        relations=relations,
        w_max=float(n),
        W1=4.0 * n,
    )


@dataclass(frozen=True)
class Bound:
    """How far weights move between neighbors, as the author of a program states it, from public numbers.

    ``l2`` bounds ``||w - w'||_2``; or ``gradient`` bounds, at every w of a fixed convex set, the norm of the
    difference of the two gradients of the objectives there. Made by :meth:`from_l2` or :meth:`from_gradient`.
    No weight exceeds ``w_max``.
    """

    l2: float | None = setting(None, at_least=0.0)
    gradient: float | None = setting(None, at_least=0.0)
    w_max: float = setting(math.inf, at_least=1.0, infinite=True)

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def from_l2(cls, l2: float, w_max: float = math.inf) -> Bound:
        """A bound on ``||w - w'||_2``, at least 0. Raises DeclarationError."""
        return cls(l2=l2, w_max=w_max)

    @classmethod
    def from_gradient(cls, gradient: float, w_max: float = math.inf) -> Bound:
        """A bound g on the movement of the gradient of an m-strongly convex program on a fixed set.

        Then ``||w - w'||_2 <= g / m``, by both variational inequalities. Raises DeclarationError.
        """
        return cls(gradient=gradient, w_max=w_max)

    def at(self, n: int, strong_convexity: float, relations: frozenset[Neighboring]) -> StabilityBound:
        """``V <= min(2n, sqrt(n - 1) L2 + 2 w_max)`` for weights >= 0 of sum n.

        Off the changed record j the movement in l1 is at most ``sqrt(n - 1) L2`` (Cauchy-Schwarz), and
        ``|w_j - w'_j| + 2 min(w_j, w'_j) = w_j + w'_j``. Raises CalibrationError where a gradient is stated
        and ``strong_convexity`` is not above 0.
        """
        n, l2, statement = whole_number("n", n, at_least=2), self.l2, "||w - w'||_2"
        if l2 is None:
            if not strong_convexity > 0 or self.gradient is None:
                raise CalibrationError(
                    "a bound from the gradient needs an objective of known strong convexity"
                )
            l2, statement = outward(self.gradient / strong_convexity), "the movement of the gradient"
        largest = min(float(n), self.w_max)
        return StabilityBound(
            V=min(2.0 * n, outward(math.sqrt(n - 1.0) * l2 + 2.0 * largest)),
            theorem="stated bound",
            assumptions=(f"{statement} is at most what the author of the program states",),
            relations=relations,
            w_max=largest,
            L2=l2,
        )


def general_stability_theorem(
    n: int,
    *,
    gradient: float,
    strong_convexity: float,
    lipschitz: float = 1.0,
    w_max: float = math.inf,
) -> StabilityBound:
    """Bound from the movement of a gradient and strong convexity (the paper's general stability theorem).

    Weights are ``F(xi)`` of the minimizer xi of ``E`` on a convex set that is the same for all datasets, and
    F is the same map for all. Then ``||w - w'||_2 <= L g / rho``: the variational inequalities of both
    minimizers add up to ``rho |xi - xi'|^2 <= <grad E(xi') - grad E'(xi'), xi' - xi>``, which is at most
    ``g |xi - xi'|``. The paper prints twice this. V follows as of :meth:`Bound.at`.

    Parameters
    ----------
    n
        Number of records, whose weights are at least 0 and have sum n.
    gradient
        g, the largest ``||grad E - grad E'||_2`` on the set between two neighbors.
    strong_convexity
        rho > 0 such that ``E - rho/2 |xi|^2`` is convex on every dataset.
    lipschitz
        L of F in Euclidean norms; 1 where the variable is the weights.
    w_max
        Largest weight of any dataset, at least 1.

    Returns
    -------
    StabilityBound

    Raises
    ------
    DeclarationError
        For numbers outside of these ranges.
    """
    moved = public_number("gradient", gradient, at_least=0.0)
    convexity = public_number("strong_convexity", strong_convexity, above=0.0)
    steepness = public_number("lipschitz", lipschitz, at_least=0.0)
    bound = Bound.from_l2(outward(steepness * moved / convexity), w_max).at(n, convexity, BOTH_RELATIONS)
    return replace(
        bound,
        theorem=f"general stability theorem ({PAPER})",
        assumptions=(
            "strong convexity and the movement of the gradient, on one set and by one map, as stated",
        ),
    )


def universal_corollary(n: int, w_max: float = math.inf) -> StabilityBound:
    """Bound for any nonnegative weights of sum ``n``, none above ``w_max`` (universal corollary).

    ``W1 = 2 n + 2 min(w_max, n)`` and ``W2 = sqrt(2 n min(w_max, n) (1 + n))``; ``V = W1``. ``w_max`` >= 1 is
    public and holds for every dataset of the universe. Raises DeclarationError.
    """
    n = whole_number("n", n, at_least=2)
    largest = min(float(n), public_number("w_max", w_max, at_least=1.0, infinite=True))
    W1 = outward(2.0 * n + 2.0 * largest)
    return StabilityBound(
        V=W1,
        theorem=f"universal corollary ({PAPER})",
        assumptions=(f"weights of sum n, each at most {largest:g}",),
        relations=BOTH_RELATIONS,
        w_max=outward(largest),
        W1=W1,
        W2=outward(math.sqrt(2.0 * n * largest * (1.0 + n))),
    )


def uniform_weights(n: int, *, factored: bool = False) -> StabilityBound:
    """Bound for ``w`` identically 1: V = 2, exactly. Raises DeclarationError.

    ``factored`` weights are factors in [0, 1] of the own record alone, without a normalization (Theorem 13):
    a replacement takes one factor out and puts one in.
    """
    whole_number("n", n, at_least=2)
    theorem, assumption = "uniform weights", "every weight is 1"
    if factored:
        theorem = "Theorem 13 (factors at most 1, not normalized)"
        assumption = "every record counts with a factor from 0 to 1 of its own"
    return StabilityBound(2.0, theorem, (assumption,), BOTH_RELATIONS, w_max=1.0)


def fixed_up_to_scale(n: int, w_max: float, assumption: str) -> StabilityBound:
    """Bound for weights proportional to functions of their own records: V = 2 w_max, attained.

    One normalization over all records; ``w_max`` bounds every weight where they sum to n. Raises
    DeclarationError.
    """
    w_max = public_number("w_max", w_max, at_least=1.0)
    theorem = "tilt lemma (weights fixed up to normalization)"
    return stated_bound(whole_number("n", n, at_least=2), 2.0 * w_max, w_max, theorem, (assumption,))


def _from_norm_bound(
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


def _exponential(exponent: float) -> float:
    """``exp(exponent)``, infinite where it overflows."""
    return math.exp(exponent) if exponent < 709.0 else math.inf


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
    return _from_norm_bound(
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


def paper_ipw_logistic(n: int, covariate_bound: float, ridge: float, radius: float) -> StabilityBound:
    """Printed bound for an estimated logistic propensity (proposition on estimated parameters).

    ``||w - w'||_2 <= 4 M^2 e^{MR}/rho + 2 M d e^{Md} (1 + (1 + e^{Md})/(2n))``, d = min(R, M/(2 rho)) and rho
    the ``ridge``; M is the ``covariate_bound``, R the ``radius`` (``inf`` leaves the universal corollary).
    The program is that of ``ipw_logistic``, untrimmed; treatment flips are covered. Raises DeclarationError
    for an invalid number and CalibrationError for ``ridge = 0``.
    """
    n = whole_number("n", n, at_least=2)
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    R = public_number("radius", radius, above=0.0, infinite=True)
    rho, overlap = positive_ridge(ridge) * (1.0 - 1e-12), _exponential(M * R)
    delta = min(R, 0.5 * M / rho)
    growth = _exponential(M * delta)
    # the ratio M^2/rho is taken first, so that it is not lost where M^2 underflows
    norm_bound = 4.0 * (M / rho * M) * overlap
    norm_bound += 2.0 * (M * delta) * growth * (1.0 + (1.0 + growth) / (2.0 * n))
    assumptions = f"covariate norm at most {M:g}", EXACT
    return _from_norm_bound(n, norm_bound, overlap, "proposition on estimated parameters", assumptions)


def paper_entropy_balancing(
    n: int, ridge: float, radius: float, arm_floor: int | None, base_measure_ratio: float = 1.0
) -> StabilityBound:
    """Printed bound for entropy balancing with the paper's scaling (theorem on the stability of EBW).

    ``||w - w'||_2 <= 2 r e (sqrt(2) + r e)/(rho sqrt(n)) + 2 R r^2 e^2/rho + 2 sqrt(2) r d exp(2 d)``, where
    e = exp(2R), d = min(R, (1 + sqrt(2))/rho), rho the ``ridge`` and r >= 1 the ``base_measure_ratio``,
    largest over smallest value of the public base measure. The rows are ``b_i = (n / n_a) e_a (x) g(x_i)``,
    ``||g|| <= arm_floor / n``, so that ``||b|| <= 1`` on every dataset of the universe; the target is
    ``(gbar, gbar)``. R > 0 is the ``radius`` of the dual. Treatment flips within the universe are covered.
    Raises CalibrationError without an arm floor and for ``ridge = 0``, DeclarationError for an invalid
    number.
    """
    n = whole_number("n", n, at_least=2)
    floor = declared_floor(n, arm_floor)
    R = public_number("radius", radius, above=0.0, infinite=True)
    ratio = public_number("base_measure_ratio", base_measure_ratio, at_least=1.0)
    rho, tilted = positive_ridge(ridge) * (1.0 - 1e-12), ratio * _exponential(2.0 * R)
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
) -> StabilityBound:
    """Printed bound for three-way MMD weights (proposition on MMD) of at most ``weight_cap`` = R >= 1.

    ``||w - w'||_2 <= 2 sqrt(2) (R + 1) C n / ridge`` for the program ``mmd``, whose own ridge is n
    times smaller; the cap may bind. The feasible set depends on the treatments, so the neighbor must keep its
    treatment; otherwise the statement is false: as the ridge grows the bound tends to 0 and the movement does
    not. Raises CalibrationError for such a relation and for ``ridge = 0``, DeclarationError for an invalid
    number.
    """
    C = public_number("kernel_bound", kernel_bound, above=0.0)
    mu = positive_ridge(ridge)
    cap = public_number("weight_cap", weight_cap, at_least=1.0, infinite=True)
    if one_of("relation", relation, Neighboring) is Neighboring.REPLACE_ONE:
        raise CalibrationError(
            f"the paper's MMD proposition is false under {Neighboring.REPLACE_ONE.value}: with 100 records a "
            "change of treatment moves the weights by 0.7205 where it allows 0.0699; use the sharp bound"
        )
    assumptions = f"kernel at most {C:g} in absolute value", f"every weight at most {cap:g}", EXACT
    norm_bound = 2.0 * math.sqrt(2.0) * (cap + 1.0) * (C / mu) * n
    printed = _from_norm_bound(n, norm_bound, cap, "proposition on MMD", assumptions)
    return replace(printed, relations=frozenset({Neighboring.REPLACE_ONE_KEEP_TREATMENT}))
