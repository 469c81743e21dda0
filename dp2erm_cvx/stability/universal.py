"""Bounds that hold for any first stage: fixed weights, and any weights of sum n (the paper's corollaries)."""

from __future__ import annotations

import math

from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import sample_size
from dp2erm_cvx.stability.one_sided import outward
from dp2erm_cvx.stability.tilt import BOTH_RELATIONS

#: Named in the theorem of every bound that is carried as printed there.
PAPER = "Lee & Chen, arXiv 2602.12604"


def fixed_weights(n: int, w_max: float) -> StabilityBound:
    """Bound for weights that depend on no record at all (corollary on data-independent weights).

    ``W1 = 2 w_max`` and ``W2 = sqrt(2) w_max``; ``V = W1``, attained. ``w_max`` in [1, n] is the largest of
    the ``n`` weights, which sum to ``n``. Raises DeclarationError.

    A weight that is a function of its own record is *not* fixed: for those see ``known_coefficient`` and
    ``randomized_trial``.
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


def universal_corollary(n: int, w_max: float = math.inf) -> StabilityBound:
    """Bound for any nonnegative weights of sum ``n``, none above ``w_max`` (universal corollary).

    ``W1 = 2 n + 2 min(w_max, n)`` and ``W2 = sqrt(2 n min(w_max, n) (1 + n))``; ``V = W1``. ``w_max`` >= 1
    must be public and hold for every dataset of the universe. Raises DeclarationError.
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
