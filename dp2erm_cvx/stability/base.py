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
    """The ridge as a number; CalibrationError at 0, where these bounds do not exist."""
    number = public_number("ridge", ridge, at_least=0.0)
    if number == 0.0:
        raise CalibrationError(
            "ridge = 0: without strong convexity one record can move the weights arbitrarily; "
            "declare a positive ridge"
        )
    return number


def declared_floor(n: int, arm_floor: int | None, at_least: int = 1) -> int:
    """The public floor on both arm sizes.

    Parameters
    ----------
    n
        Number of records.
    arm_floor
        The declared floor; None for none.
    at_least
        Least floor that is of use.

    Returns
    -------
    int

    Raises
    ------
    CalibrationError
        Without a floor.
    DeclarationError
        For a floor beyond n/2 or below ``at_least``.
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
    """Largest of n positive weights of sum n whose logs range over ``log_ratio`` >= 0; attained."""
    return n / (1.0 + (n - 1) * math.exp(-log_ratio))


def coupled_variation(n: int, w_max: float, law_change: float) -> float:
    """The bound V = ``min(2 n, 2 w_max + (n - w_max) law_change)`` of two weight vectors.

    With p = w/n and p_j >= p'_j the sum of ``|p_i - p'_i|`` over the common records is at most
    ``(1 - p_j) ||q - q'||_1 + p_j - p'_j``.

    Parameters
    ----------
    n
        Number of records, and the sum of the weights.
    w_max
        Bound on both weights of the changed record.
    law_change
        Bound in [0, 2] on ``||q - q'||_1``, of the laws q of the weights on the common records.
    """
    return min(2.0 * n, 2.0 * w_max + (n - min(w_max, n)) * law_change)


def tilt_lemma(n: int, log_change_range: float, w_max: float) -> float:
    """Bound V for weights ``w_i`` proportional to ``exp(h_i)`` whose logs move (tilt lemma).

    It is ``2 w_max + 2 (n - w_max) tanh(kappa / 2)``, at most ``2 n``.

    Parameters
    ----------
    n
        Number of records, at least 2, and the sum of the weights.
    log_change_range
        2 kappa, a bound on the range of ``h_i - h'_i`` over the common records.
    w_max
        Bound on both weights of the changed record.

    Returns
    -------
    float

    Raises
    ------
    DeclarationError
        For an invalid number.
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
    """A computed bound as a statement, rounded outward and capped at its universal values.

    Parameters
    ----------
    n
        Number of records.
    V, w_max
        Bounds on the coupled variation and on a weight.
    theorem
        What proves them.
    assumptions
        What they rest on, in words.
    relations
        Neighboring relations that they hold for.
    """
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
    """The bound ``V <= 2n`` of any two nonnegative weight vectors of sum n.

    Parameters
    ----------
    n
        Number of records.
    assumption
        Why no smaller bound is stated, in words.
    relations
        Neighboring relations that it holds for.
    """
    return StabilityBound(
        V=2.0 * n,
        theorem="universal corollary",
        assumptions=(assumption,),
        relations=relations,
        w_max=float(n),
    )


@dataclass(frozen=True)
class Bound:
    """How far weights move between neighbors, as the author of a program states it.

    :meth:`from_l2` and :meth:`from_gradient` make it, from public numbers.

    Parameters
    ----------
    l2
        Bound on ``||w - w'||_2``; None where a gradient is stated.
    gradient
        Bound, at every w of a fixed convex set, on the norm of the difference of the two gradients
        of the objectives there; None where the weights are bounded themselves.
    w_max
        Bound on a weight.
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
        """The bound ``V <= min(2n, sqrt(n - 1) L2 + 2 w_max)`` for weights >= 0 of sum n.

        Off the changed record j the movement in l1 is at most ``sqrt(n - 1) L2`` (Cauchy-Schwarz),
        and ``|w_j - w'_j| + 2 min(w_j, w'_j) = w_j + w'_j``.

        Parameters
        ----------
        n
            Number of records, at least 2.
        strong_convexity
            Of the objective in w, which a bound on the gradient needs.
        relations
            Neighboring relations that the statement holds for.

        Returns
        -------
        StabilityBound

        Raises
        ------
        CalibrationError
            Where a gradient is stated and ``strong_convexity`` is not above 0.
        """
        n = whole_number("n", n, at_least=2)
        if self.l2 is not None:
            l2 = self.l2
            statement = "||w - w'||_2"
        elif self.gradient is not None and strong_convexity > 0:
            l2 = outward(self.gradient / strong_convexity)
            statement = "the movement of the gradient"
        else:
            raise CalibrationError(
                "a bound from the gradient needs an objective of known strong convexity"
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
    """Bound by the paper's general stability theorem, from a gradient and strong convexity.

    Weights are ``F(xi)`` of the minimizer xi of ``E`` on a convex set that is the same for all
    datasets, and F is the same map for all. Then ``||w - w'||_2 <= L g / rho``: the variational
    inequalities of both minimizers add up to
    ``rho |xi - xi'|^2 <= <grad E(xi') - grad E'(xi'), xi' - xi>``, which is at most
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
    movement = Bound.from_l2(outward(steepness * moved / convexity), w_max)
    return replace(
        movement.at(n, convexity, BOTH_RELATIONS),
        theorem=f"general stability theorem ({PAPER})",
        assumptions=(
            "strong convexity and the movement of the gradient, on one set and by one map, as "
            "stated",
        ),
    )


def uniform_weights(n: int, *, factored: bool = False) -> StabilityBound:
    """Bound for weights that are 1, or that are factors of their own records: V = 2, exactly.

    Parameters
    ----------
    n
        Number of records, at least 2.
    factored
        Whether weights are factors in [0, 1] of the own record alone, without a normalization
        (Theorem 13): a replacement takes one factor out and puts one in.

    Returns
    -------
    StabilityBound

    Raises
    ------
    DeclarationError
        For an invalid n.
    """
    whole_number("n", n, at_least=2)
    if factored:
        theorem = "Theorem 13 (factors at most 1, not normalized)"
        assumption = "every record counts with a factor from 0 to 1 of its own"
    else:
        theorem = "uniform weights"
        assumption = "every weight is 1"
    return StabilityBound(2.0, theorem, (assumption,), BOTH_RELATIONS, w_max=1.0)


def fixed_up_to_scale(n: int, w_max: float, assumption: str) -> StabilityBound:
    """Bound for weights proportional to functions of their own records: V = 2 w_max, attained.

    Parameters
    ----------
    n
        Number of records, at least 2; there is one normalization over all of them.
    w_max
        Bound on every weight where they sum to n, at least 1.
    assumption
        What the weights are, in words.

    Returns
    -------
    StabilityBound

    Raises
    ------
    DeclarationError
        For an invalid number.
    """
    w_max = public_number("w_max", w_max, at_least=1.0)
    n = whole_number("n", n, at_least=2)
    theorem = "tilt lemma (weights fixed up to normalization)"
    return stated_bound(n, 2.0 * w_max, w_max, theorem, (assumption,))
