"""Composition by privacy loss distributions, with the package ``dp-accounting``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from dp2erm_cvx.ledger.decimals import sums
from dp2erm_cvx.privacy import Budget

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
