"""From a printed bound on ``||w - w'||_2`` to what the paper's calibration consumes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.public import public_number
from dp2erm_cvx.stability.one_sided import ROUNDING, outward
from dp2erm_cvx.stability.tilt import BOTH_RELATIONS
from dp2erm_cvx.stability.universal import PAPER, universal_corollary


@dataclass(frozen=True)
class Statement:
    """A printed statement: its name, what it assumes, and the relations that it holds for."""

    name: str
    assumptions: tuple[str, ...]
    relations: frozenset[Neighboring] = BOTH_RELATIONS


def from_norm_bound(
    n: int, norm_bound: float, w_max: float, statement: Statement, *, common_move_together: bool = False
) -> StabilityBound:
    """A printed bound ``||w - w'||_2 <= norm_bound`` on weights of at most ``w_max``, as it stands.

    ``W1 = sqrt(n) norm_bound + 2 w_max`` and ``W2 = sqrt((norm_bound^2 + 2 w_max^2)(1 + n))``; ``V = W1``.
    ``common_move_together`` states that the weights of the n - 1 common records all move in one direction: as
    both sums are ``n``, then ``||w - w'||_1 = 2 |w_j - w'_j| <= 2 norm_bound``.
    """
    if math.isnan(norm_bound):  # 0 times an overflow
        norm_bound = math.inf
    largest = universal_corollary(n, w_max).w_max
    spread = 2.0 if common_move_together else math.sqrt(n)
    W1 = outward(spread * norm_bound + 2.0 * largest)
    return StabilityBound(
        V=W1,
        theorem=f"{statement.name} ({PAPER})",
        assumptions=statement.assumptions,
        relations=statement.relations,
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
