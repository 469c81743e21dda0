"""What several releases from the same data spend together."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dp2erm_cvx.ledger.decimals import decimal, down, sums, up
from dp2erm_cvx.ledger.tighter import Cost, by_curves, by_loss_distribution
from dp2erm_cvx.privacy import Budget, Neighboring

#: Keeps what is left below the declared epsilon by more than the tighter figures are rounded.
_ROUNDING = Fraction(1, 10**9)


class Composition(enum.StrEnum):
    """How releases add up.

    ``BASIC``: the epsilons add up and the deltas add up (Dwork et al. 2006). It holds whatever later releases
    are made to depend on, their budgets included (Rogers et al. 2016).
    ``PLD``: the composed privacy loss distribution, where it gives less, by the package ``dp-accounting``.
    ``RENYI``: the sum of the Renyi curves (Mironov 2017), where it gives less.
    The last two hold where no budget, no curve, and no number of releases but an earlier stop, was chosen
    after seeing a result.
    """

    BASIC = "basic"
    PLD = "pld"
    RENYI = "renyi"


@dataclass(frozen=True)
class Spent:
    """The (epsilon, delta) that releases spent together, and what is certainly left of the declared total.

    ``composition`` is the one the figures follow from, ``relation`` the neighbors they are for. Tighter
    figures than those of basic composition are read off at the whole declared delta, so that none of it is
    left.
    """

    epsilon: float
    delta: float
    left_epsilon: float
    left_delta: float
    composition: Composition
    relation: Neighboring


def fits(releases: Sequence[Cost], total: Budget, composition: Composition) -> bool:
    """Whether the releases together stay within ``total``."""
    epsilon, delta = sums(one.budget for one in releases)
    if epsilon <= decimal(total.epsilon) and delta <= decimal(total.delta):
        return True
    tighter = _tighter(releases, total, composition)
    return tighter is not None and tighter <= total.epsilon


def spent(
    releases: Sequence[Cost],
    total: Budget,
    composition: Composition,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> Spent:
    """The smaller of the admitted figures, rounded up, and what is left, rounded down."""
    whole = decimal(total.epsilon)
    epsilon, delta = sums(one.budget for one in releases)
    tighter = _tighter(releases, total, composition)
    if tighter is not None and not (delta <= decimal(total.delta) and epsilon <= decimal(tighter)):
        left = max(whole * (1 - _ROUNDING) - decimal(tighter), Fraction(0))
        return Spent(tighter, total.delta, down(left), 0.0, composition, relation)
    left_epsilon, left_delta = (
        max(whole - epsilon, Fraction(0)),
        max(decimal(total.delta) - delta, Fraction(0)),
    )
    return Spent(up(epsilon), up(delta), down(left_epsilon), down(left_delta), Composition.BASIC, relation)


def _tighter(releases: Sequence[Cost], total: Budget, composition: Composition) -> float | None:
    """Epsilon at the delta of ``total`` by the declared composition, where it is not the basic one."""
    if composition is Composition.PLD:
        return by_loss_distribution([one.budget for one in releases], total)
    return by_curves(releases, total) if composition is Composition.RENYI else None
