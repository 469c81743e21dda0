"""Weights whose unnormalized form depends on its own record alone: V = 2 w_max, attained.

Only the changed record's unnormalized weight moves, so the law on the other records stays and the tilt
lemma holds with kappa = 0.
"""

from __future__ import annotations

import math

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.declared import sample_size
from dp2erm_cvx.stability.tilt import BOTH_RELATIONS, largest_weight, stated_bound

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


def randomized_trial(n: int, propensity: float, trim: float = math.inf) -> StabilityBound:
    """Bound for inverse probability weights of a trial with a known treatment probability.

    The weight is proportional to ``min(f, trim)``, ``f = 1/propensity`` if treated and
    ``1/(1 - propensity)`` otherwise, with one normalization over all records. ``propensity`` in (0, 1);
    ``trim`` > 1. V = 2 w_max, attained. Raises DeclarationError.
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
    """Bound for inverse probability weights with a public logistic coefficient.

    The weight is proportional to ``min(f, trim)``, ``f = 1 + exp(-(2a - 1) <x, coefficient>)``, with one
    normalization over all records; ``||x|| <= covariate_bound`` (> 0, in the units of x),
    ``||coefficient|| <= coefficient_norm`` (>= 0), ``trim`` > 1. V = 2 w_max, attained. The coefficient may
    itself be the output of an earlier private release. Raises DeclarationError.
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
