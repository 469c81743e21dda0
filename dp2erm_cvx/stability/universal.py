"""Bounds that hold for any first stage, and for weights that are a function of their own record.

For the latter V = 2 w_max, attained: only the changed record's unnormalized weight moves, so the law on the
other records stays and the tilt lemma holds with kappa = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.base import BOTH_RELATIONS, largest_weight, outward, sample_size, stated_bound

#: Named in the theorem of every bound that is carried as printed there.
PAPER = "Lee & Chen, arXiv 2602.12604"


def fixed_weights(n: int, w_max: float) -> StabilityBound:
    """Bound for weights that depend on no record at all (corollary on data-independent weights).

    ``W1 = 2 w_max`` and ``W2 = sqrt(2) w_max``; ``V = W1``, attained. ``w_max`` in [1, n] is the largest of
    the weights, of sum ``n``. A weight that is a function of its own record is *not* fixed. Raises
    DeclarationError.
    """
    n = sample_size(n)
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

    l2: float | None = None
    gradient: float | None = None
    w_max: float = math.inf

    @classmethod
    def from_l2(cls, l2: float, w_max: float = math.inf) -> Bound:
        """A bound on ``||w - w'||_2``, at least 0. Raises DeclarationError."""
        return cls(
            l2=public_number("l2", l2, at_least=0.0),
            w_max=public_number("w_max", w_max, at_least=1.0, infinite=True),
        )

    @classmethod
    def from_gradient(cls, gradient: float, w_max: float = math.inf) -> Bound:
        """A bound g on the movement of the gradient of an m-strongly convex program on a fixed set.

        Then ``||w - w'||_2 <= g / m``: with d = w' - w and both variational inequalities,
        ``m ||d||^2 <= <grad F(w') - grad F(w), d> <= <grad F(w') - grad F'(w'), d>``. Raises
        DeclarationError.
        """
        return cls(
            gradient=public_number("gradient", gradient, at_least=0.0),
            w_max=public_number("w_max", w_max, at_least=1.0, infinite=True),
        )

    def at(self, n: int, strong_convexity: float, relations: frozenset[Neighboring]) -> StabilityBound:
        """``V <= min(2n, sqrt(n - 1) L2 + 2 w_max)`` for weights >= 0 of sum n.

        Off the changed record j the movement in l1 is at most ``sqrt(n - 1) L2`` (Cauchy-Schwarz), and
        ``|w_j - w'_j| + 2 min(w_j, w'_j) = w_j + w'_j``. Raises CalibrationError where a gradient is stated
        and ``strong_convexity`` is not above 0.
        """
        n, l2, statement = sample_size(n), self.l2, "||w - w'||_2"
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


def universal_corollary(n: int, w_max: float = math.inf) -> StabilityBound:
    """Bound for any nonnegative weights of sum ``n``, none above ``w_max`` (universal corollary).

    ``W1 = 2 n + 2 min(w_max, n)`` and ``W2 = sqrt(2 n min(w_max, n) (1 + n))``; ``V = W1``. ``w_max`` >= 1 is
    public and holds for every dataset of the universe. Raises DeclarationError.
    """
    n = sample_size(n)
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


_THEOREM = "tilt lemma (weights fixed up to normalization)"


def uniform_weights(n: int) -> StabilityBound:
    """Bound for ``w`` identically 1: V = 2, exactly. Raises DeclarationError."""
    sample_size(n)
    return StabilityBound(
        V=2.0,
        theorem="uniform weights",
        assumptions=("every weight is 1",),
        relations=BOTH_RELATIONS,
        w_max=1.0,
    )


def own_factors(n: int, *, factored: bool) -> StabilityBound:
    """Bound for factors in [0, 1] of the own record alone, without a normalization (Theorem 13): V = 2.

    A replacement takes one factor out and puts one in; without any weights are 1. Raises DeclarationError.
    """
    if not factored:
        return uniform_weights(n)
    return replace(
        uniform_weights(n),
        theorem="Theorem 13 (factors at most 1, not normalized)",
        assumptions=("every record counts with a factor from 0 to 1 of its own",),
    )


def randomized_trial(n: int, propensity: float, trim: float = math.inf) -> StabilityBound:
    """Bound for inverse probability weights of a trial with a known propensity: V = 2 w_max, attained.

    The weight is proportional to ``min(f, trim)``, ``f = 1/propensity`` if treated and ``1/(1 - propensity)``
    otherwise, with one normalization over all records; ``trim`` > 1. Raises DeclarationError.
    """
    n = sample_size(n)
    p = public_number("propensity", propensity, above=0.0)
    if p >= 1.0:
        raise DeclarationError(f"propensity = {propensity!r}: must be below 1")
    cap = public_number("trim", trim, above=1.0, infinite=True)
    high, low = (min(1.0 / arm, cap) for arm in (min(p, 1.0 - p), max(p, 1.0 - p)))
    w_max = n / (1.0 + (n - 1) * (low / high))
    return stated_bound(n, 2.0 * w_max, w_max, _THEOREM, ("the propensity is public and not estimated",))


def known_coefficient(
    n: int, covariate_bound: float, coefficient_norm: float, trim: float = math.inf
) -> StabilityBound:
    """Bound for inverse probability weights with a public logistic coefficient: V = 2 w_max, attained.

    The weight is proportional to ``min(f, trim)``, ``f = 1 + exp(-(2a - 1) <x, coefficient>)``, ``||x|| <=
    covariate_bound``, ``||coefficient|| <= coefficient_norm``, ``trim`` > 1, with one normalization over all
    records. The coefficient may be the output of an earlier private release. Raises DeclarationError.
    """
    n = sample_size(n)
    bound = public_number("covariate_bound", covariate_bound, above=0.0)
    norm = public_number("coefficient_norm", coefficient_norm, at_least=0.0)
    cap = public_number("trim", trim, above=1.0, infinite=True)
    w_max = overlap_weight(n, bound * norm, cap)
    return stated_bound(n, 2.0 * w_max, w_max, _THEOREM, ("the coefficient is public",))


def given_coefficient(n: int, w_max: float) -> StabilityBound:
    """Bound for weights at a coefficient that an earlier release tells (Theorem 9): V = 2 w_max.

    ``w_max`` bounds every weight where they sum to n. Raises DeclarationError.
    """
    w_max = public_number("w_max", w_max, at_least=1.0)
    assumptions = ("the coefficient is a private output of the first stage",)
    return stated_bound(sample_size(n), 2.0 * w_max, w_max, _THEOREM, assumptions)


def overlap_weight(n: int, margin: float, trim: float) -> float:
    """Largest weight proportional to ``min(1 + exp(-s), trim)``, ``|s| <= margin``, weights of sum n."""
    low = 1.0 + math.exp(-margin)
    if trim <= low:
        return 1.0
    # 1 + e^margin = low e^margin, so the untrimmed ratio of extremes is e^margin without cancellation
    if margin <= math.log(trim / low):
        return largest_weight(n, margin)
    return n / (1.0 + (n - 1) * (low / trim))
