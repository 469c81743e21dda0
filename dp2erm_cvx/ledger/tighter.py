"""Composition by Renyi curves and by privacy loss distributions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from dp2erm_cvx.calibration import renyi_epsilon
from dp2erm_cvx.ledger.decimals import decimal, down, sums, up
from dp2erm_cvx.privacy import RENYI_ORDERS, Budget, RenyiCurve


@dataclass(frozen=True)
class Cost:
    """One release: its (epsilon, delta), and a proven Renyi curve of the same release where there is one."""

    budget: Budget
    curve: RenyiCurve | None = None


#: Grid steps of a loss distribution per declared epsilon. Coarser is quicker and errs on the safe side.
_STEPS = 20_000

#: Taken off delta for the rounding of its convolutions, which was measured below 1e-14.
_SLACK = 1e-12

#: Beyond these the exponentials of a loss distribution say nothing, or overflow.
_LARGEST_TOTAL, _LARGEST_SUM = 50.0, 500.0


def by_loss_distribution(releases: Sequence[Budget], total: Budget) -> float | None:
    """Epsilon of all releases at the delta of ``total``; None where there is no finite one, or no package.

    ``from_privacy_parameters`` knows (epsilon, delta) alone, so the figure is for the relation under which
    the releases were stated.
    """
    delta = total.delta * (1.0 - 1e-9) - _SLACK
    if not releases or delta <= 0.0 or total.epsilon > _LARGEST_TOTAL or sums(releases)[0] > _LARGEST_SUM:
        return None
    try:
        from dp_accounting.pld import common, privacy_loss_distribution
    except ImportError:
        return None
    # its accountant takes no (epsilon, delta) event, and counts randomized responses once however often they
    # are repeated; so the distributions are composed directly
    composed = None
    for (epsilon, failure), count in sorted(Counter((one.epsilon, one.delta) for one in releases).items()):
        stated = common.DifferentialPrivacyParameters(epsilon, failure)
        one = privacy_loss_distribution.from_privacy_parameters(stated, total.epsilon / _STEPS)
        several = one.self_compose(count) if count > 1 else one
        composed = several if composed is None else composed.compose(several)
    assert composed is not None
    epsilon = float(composed.get_epsilon_for_delta(delta)) * (1.0 + 1e-12)
    return epsilon if math.isfinite(epsilon) else None


#: Part of delta that is not converted. It pays for rounding, and for what a release that counts its
#: arithmetic sets aside: Gaussian noise too long for its numerical error, of probability below exp(-1800).
_SET_ASIDE = 1e-9

#: Between these exp(epsilon) times such a probability is nothing beside the part set aside.
_LARGEST_CONVERTED, _LEAST_DELTA = 500.0, 1e-300


def by_curves(releases: Sequence[Cost], total: Budget) -> float | None:
    """Epsilon of all releases at the delta of ``total``, or None where there is no finite one.

    Releases with a curve, and pure ones, add their divergences at each order. The sum is converted at the
    delta that the others leave, by the best order, and their epsilons are added on top.
    """
    others = [one.budget for one in releases if one.curve is None and one.budget.delta > 0.0]
    if len(others) == len(releases) or total.epsilon > _LARGEST_CONVERTED:
        return None
    epsilon, delta = sums(others)
    left = down(max(decimal(total.delta) - delta, decimal(0.0))) * (1.0 - _SET_ASIDE)
    if left < _LEAST_DELTA:
        return None
    curve = _added(releases)
    converted = renyi_epsilon(curve.orders, curve.divergences, left)
    return up(decimal(converted) + epsilon) if math.isfinite(converted) else None


def _added(releases: Sequence[Cost]) -> RenyiCurve:
    stated = [one.curve.orders for one in releases if one.curve is not None]
    orders = tuple(sorted(set(RENYI_ORDERS).union(*stated)))

    @cache
    def pure(epsilon: float) -> RenyiCurve:
        return RenyiCurve.pure(epsilon, orders)

    curves = [one.curve for one in releases if one.curve is not None]
    curves += [pure(one.budget.epsilon) for one in releases if one.curve is None and one.budget.delta == 0.0]
    return curves[0].plus(*curves[1:])
