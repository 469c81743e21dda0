"""Base of stability bounds; those of any weights, and of functions of the own record.

Of weights that are functions of their own record V = 2 w_max, attained: only the changed record's
unnormalized weight moves, so the law on the others stays and the tilt lemma holds with kappa = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp2erm_cvx.checks import check_settings, public_number, setting, whole_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound

BOTH_RELATIONS = frozenset(Neighboring)
#: Relative margin for the rounding of a bound's own arithmetic, which is orders of magnitude
#: smaller.
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
    """A public floor on both arm sizes; raises CalibrationError without one, DeclarationError
    beyond n/2.
    """
    if arm_floor is None:
        raise CalibrationError(
            "arm_floor is not declared: this program depends on the arm sizes, which are private; "
            "declare a public floor on both arm sizes"
        )
    floor = whole_number("arm_floor", arm_floor, at_least=at_least)
    if 2 * floor > n:
        raise DeclarationError(f"arm_floor = {arm_floor}: must be at most n/2 = {n / 2:g}")
    return floor


def outward(value: float) -> float:
    """Add the rounding margin to a nonnegative bound."""
    return value * (1.0 + ROUNDING)


def largest_weight(n: int, log_ratio: float) -> float:
    """Largest of ``n`` positive weights of sum ``n`` whose logs range over ``log_ratio`` >= 0;
    attained.
    """
    return n / (1.0 + (n - 1) * math.exp(-log_ratio))


def coupled_variation(n: int, w_max: float, law_change: float) -> float:
    """``min(2 n, 2 w_max + (n - w_max) law_change)``.

    ``law_change`` in [0, 2] bounds ``||q - q'||_1`` of the laws of the weights on the common
    records, ``w_max`` both weights of the changed one. (With p = w/n and p_j >= p'_j: sum over the
    common records of
    |p_i - p'_i| <= (1 - p_j) ||q - q'||_1 + p_j - p'_j.)
    """
    return min(2.0 * n, 2.0 * w_max + (n - min(w_max, n)) * law_change)


def tilt_lemma(n: int, log_change_range: float, w_max: float) -> float:
    """Bound V for weights ``w_i`` proportional to ``exp(h_i)`` whose logs move (tilt lemma).

    ``2 w_max + 2 (n - w_max) tanh(kappa / 2)``, at most ``2 n``: ``log_change_range`` = 2 kappa
    bounds the range of ``h_i - h'_i`` over the common records, ``w_max`` both weights of the
    changed one. Raises DeclarationError.
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


def any_weights(n: int, assumption: str, relations: frozenset[Neighboring]) -> StabilityBound:
    """``V <= 2n`` for any two nonnegative weight vectors of sum n; ``assumption`` says why."""
    return StabilityBound(
        V=2.0 * n,
        theorem="universal corollary",
        assumptions=(assumption,),
        relations=relations,
        w_max=float(n),
    )


@dataclass(frozen=True)
class Bound:
    """How far weights move between neighbors, as the author of a program states it, from public
    numbers.

    ``l2`` bounds ``||w - w'||_2``; or ``gradient`` bounds, at every w of a fixed convex set, the
    norm of the difference of the two gradients of the objectives there. Made by :meth:`from_l2` or
    :meth:`from_gradient`. No weight exceeds ``w_max``.
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

    def at(
        self, n: int, strong_convexity: float, relations: frozenset[Neighboring]
    ) -> StabilityBound:
        """``V <= min(2n, sqrt(n - 1) L2 + 2 w_max)`` for weights >= 0 of sum n.

        Off the changed record j the movement in l1 is at most ``sqrt(n - 1) L2`` (Cauchy-Schwarz),
        and ``|w_j - w'_j| + 2 min(w_j, w'_j) = w_j + w'_j``. Raises CalibrationError where a
        gradient is stated and ``strong_convexity`` is not above 0.
        """
        n, l2, statement = whole_number("n", n, at_least=2), self.l2, "||w - w'||_2"
        if l2 is None:
            if not strong_convexity > 0 or self.gradient is None:
                raise CalibrationError(
                    "a bound from the gradient needs an objective of known strong convexity"
                )
            l2, statement = (
                outward(self.gradient / strong_convexity),
                "the movement of the gradient",
            )
        largest = min(float(n), self.w_max)
        return StabilityBound(
            V=min(2.0 * n, outward(math.sqrt(n - 1.0) * l2 + 2.0 * largest)),
            theorem="stated bound",
            assumptions=(f"{statement} is at most what the author of the program states",),
            relations=relations,
            w_max=largest,
        )


def general_stability_theorem(
    n: int,
    *,
    gradient: float,
    strong_convexity: float,
    lipschitz: float = 1.0,
    w_max: float = math.inf,
) -> StabilityBound:
    """Bound from the movement of a gradient and strong convexity (the paper's general stability
    theorem).

    Weights are ``F(xi)`` of the minimizer xi of ``E`` on a convex set that is the same for all
    datasets, and F is the same map for all. Then ``||w - w'||_2 <= L g / rho``: the variational
    inequalities of both minimizers add up to ``rho |xi - xi'|^2 <= <grad E(xi') - grad E'(xi'), xi'
    - xi>``, which is at most ``g |xi - xi'|``. The paper prints twice this. V follows as of
    :meth:`Bound.at`.

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
    bound = Bound.from_l2(outward(steepness * moved / convexity), w_max).at(
        n, convexity, BOTH_RELATIONS
    )
    return replace(
        bound,
        theorem=f"general stability theorem ({PAPER})",
        assumptions=(
            "strong convexity and the movement of the gradient, on one set and by one map, as "
            "stated",
        ),
    )


def uniform_weights(n: int, *, factored: bool = False) -> StabilityBound:
    """Bound for ``w`` identically 1: V = 2, exactly. Raises DeclarationError.

    ``factored`` weights are factors in [0, 1] of the own record alone, without a normalization
    (Theorem 13): a replacement takes one factor out and puts one in.
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
    return stated_bound(
        whole_number("n", n, at_least=2), 2.0 * w_max, w_max, theorem, (assumption,)
    )
