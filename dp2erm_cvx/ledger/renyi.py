"""Composition by Renyi curves: they add up at each order and are converted once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from dp2erm_cvx.calibration import renyi_epsilon
from dp2erm_cvx.ledger.cost import Cost
from dp2erm_cvx.ledger.decimals import decimal, down, sums, up
from dp2erm_cvx.privacy import RENYI_ORDERS, Budget, RenyiCurve

#: Part of delta that is not converted. It pays for rounding, and for what a release that counts its
#: arithmetic sets aside: Gaussian noise too long for its numerical error, of probability below exp(-1800).
_SET_ASIDE = 1e-9
#: Between these exp(epsilon) times such a probability is nothing beside the part set aside.
_LARGEST_TOTAL, _LEAST_DELTA = 500.0, 1e-300


def by_curves(releases: Sequence[Cost], total: Budget) -> float | None:
    """Epsilon of all releases at the delta of ``total``, or None where there is no finite one.

    Releases with a curve, and pure ones, add their divergences at each order. The sum is converted at the
    delta that the others leave, by the best order, and their epsilons are added on top.
    """
    others = [one.budget for one in releases if one.curve is None and one.budget.delta > 0.0]
    if len(others) == len(releases) or total.epsilon > _LARGEST_TOTAL:
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
