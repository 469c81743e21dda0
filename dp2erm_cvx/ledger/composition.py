"""What several releases from the same data spend together."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dp2erm_cvx.privacy import Budget

#: Grid steps of a loss distribution per declared epsilon. Coarser is quicker and errs on the safe side.
_STEPS = 20_000
#: Taken off delta for the rounding of its convolutions, which was measured below 1e-14.
_SLACK = 1e-12
#: Beyond these the exponentials of a loss distribution say nothing, or overflow.
_LARGEST_TOTAL, _LARGEST_SUM = 50.0, 500.0


class Composition(enum.StrEnum):
    """How releases add up.

    ``BASIC``: the epsilons add up and the deltas add up (Dwork et al. 2006). It holds whatever later releases
    are made to depend on, their budgets included (Rogers et al. 2016).
    ``PLD``: the composed privacy loss distribution, where it gives less, by the package ``dp-accounting``. It
    holds where no budget, and no number of releases but an earlier stop, was chosen after seeing a result.
    """

    BASIC = "basic"
    PLD = "pld"


@dataclass(frozen=True)
class Spent:
    """The (epsilon, delta) that releases spent together, and what is certainly left of the declared total.

    ``composition`` is the one the figures follow from. A loss distribution is read off at the whole declared
    delta, so that none of it is left.
    """

    epsilon: float
    delta: float
    left_epsilon: float
    left_delta: float
    composition: Composition


def fits(releases: Sequence[Budget], total: Budget, composition: Composition) -> bool:
    """Whether the releases together stay within ``total``."""
    epsilon, delta = _sums(releases)
    if epsilon <= _decimal(total.epsilon) and delta <= _decimal(total.delta):
        return True
    tighter = _by_loss_distribution(releases, total) if composition is Composition.PLD else None
    return tighter is not None and tighter <= total.epsilon


def spent(releases: Sequence[Budget], total: Budget, composition: Composition) -> Spent:
    """The smaller of the admitted figures, rounded up, and what is left, rounded down."""
    epsilon, delta = _sums(releases)
    basic_holds = delta <= _decimal(total.delta)
    tighter = _by_loss_distribution(releases, total) if composition is Composition.PLD else None
    if tighter is not None and not (basic_holds and epsilon <= _decimal(tighter)):
        left = max(_decimal(total.epsilon) - _decimal(tighter), Fraction(0))
        return Spent(tighter, total.delta, _down(left), 0.0, Composition.PLD)
    left_epsilon = max(_decimal(total.epsilon) - epsilon, Fraction(0))
    left_delta = max(_decimal(total.delta) - delta, Fraction(0))
    return Spent(_up(epsilon), _up(delta), _down(left_epsilon), _down(left_delta), Composition.BASIC)


def _by_loss_distribution(releases: Sequence[Budget], total: Budget) -> float | None:
    """Epsilon of all releases at the delta of ``total``; None where there is no finite one, or no package."""
    delta = total.delta * (1.0 - 1e-9) - _SLACK
    if not releases or delta <= 0.0 or total.epsilon > _LARGEST_TOTAL or _sums(releases)[0] > _LARGEST_SUM:
        return None
    try:
        from dp_accounting.pld import common, privacy_loss_distribution
    except ImportError:
        return None
    # its accountant takes no (epsilon, delta) event, so the distributions are composed directly
    composed = None
    for (epsilon, failure), count in sorted(Counter((one.epsilon, one.delta) for one in releases).items()):
        stated = common.DifferentialPrivacyParameters(epsilon, failure)
        one = privacy_loss_distribution.from_privacy_parameters(stated, total.epsilon / _STEPS)
        several = one.self_compose(count) if count > 1 else one
        composed = several if composed is None else composed.compose(several)
    assert composed is not None
    epsilon = float(composed.get_epsilon_for_delta(delta)) * (1.0 + 1e-12)
    return epsilon if math.isfinite(epsilon) else None


def _decimal(number: float) -> Fraction:
    """The decimal that the number is written as, so that ten times 0.1 are 1."""
    return Fraction(repr(number))


def _sums(releases: Sequence[Budget]) -> tuple[Fraction, Fraction]:
    return (
        sum((_decimal(one.epsilon) for one in releases), Fraction(0)),
        sum((_decimal(one.delta) for one in releases), Fraction(0)),
    )


def _up(number: Fraction) -> float:
    near = float(number)
    return near if _decimal(near) >= number else math.nextafter(near, math.inf)


def _down(number: Fraction) -> float:
    near = float(number)
    return near if _decimal(near) <= number else math.nextafter(near, 0.0)
