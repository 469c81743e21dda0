"""The tilt lemma: from a change of log weights to a bound on the coupled variation."""

from __future__ import annotations

import math

from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import sample_size
from dp2erm_cvx.stability.one_sided import outward

BOTH_RELATIONS = frozenset(Neighboring)
EXACT = "the weights are those of the exact minimizer"


def largest_weight(n: int, log_ratio: float) -> float:
    """Largest of ``n`` positive weights summing to ``n`` whose logs range over ``log_ratio`` >= 0.

    ``n / (1 + (n - 1) exp(-log_ratio))``; attained by one large weight among equal small ones.
    """
    return n / (1.0 + (n - 1) * math.exp(-log_ratio))


def coupled_variation(n: int, w_max: float, law_change: float) -> float:
    """``min(2 n, 2 w_max + (n - w_max) law_change)``.

    ``law_change`` in [0, 2] bounds ``||q - q'||_1`` of the laws that the weights induce on the n - 1
    common records, ``w_max`` both weights of the changed record. Then V is at most this. (With p = w/n
    and p_j >= p'_j: sum over the common records of |p_i - p'_i| <= (1 - p_j) ||q - q'||_1 + p_j - p'_j.)
    ``2 n`` bounds V of any two nonnegative weight vectors with sum n.
    """
    return min(2.0 * n, 2.0 * w_max + (n - min(w_max, n)) * law_change)


def tilt_lemma(n: int, log_change_range: float, w_max: float) -> float:
    """Bound V for weights ``w_i`` proportional to ``exp(h_i)`` whose logs move (tilt lemma).

    Parameters
    ----------
    n
        Number of records, at least 2.
    log_change_range
        Bound on the range (largest minus smallest) of ``h_i - h'_i`` over the n - 1 common records, 2 kappa.
    w_max
        Bound on both weights of the changed record, on the scale where weights sum to ``n``.

    Returns ``2 w_max + 2 (n - w_max) tanh(kappa / 2)``, at most ``2 n``. Raises DeclarationError.
    """
    n = sample_size(n)
    spread = public_number("log_change_range", log_change_range, at_least=0.0, infinite=True)
    weight = public_number("w_max", w_max, above=0.0)
    return coupled_variation(n, weight, 2.0 * math.tanh(spread / 4.0))


def stated_bound(
    n: int, V: float, w_max: float, theorem: str, assumptions: tuple[str, ...]
) -> StabilityBound:
    """Put a computed bound into a statement, rounded outward and capped at its universal values."""
    return StabilityBound(
        V=min(2.0 * n, outward(V)),
        theorem=theorem,
        assumptions=assumptions,
        relations=BOTH_RELATIONS,
        w_max=min(float(n), outward(w_max)),
    )
