"""How a budget is divided, so that its parts never add up to more than the whole by a rounding."""

from __future__ import annotations

import math

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number

# keeps parts of a budget from adding up to more than the whole by a rounding
_ROUND_DOWN = 1.0 - 1e-12


def reserve(budget: Budget, share: float) -> tuple[Budget, float]:
    """What is left for the exact mechanism, and the epsilon_2 of the grid noise on either side.

    An (epsilon_1, delta_1) mechanism released within the tolerance is
    ``(epsilon_1 + 2 epsilon_2, exp(epsilon_2) delta_1)``-differentially private. Raises DeclarationError
    unless ``share`` is between 0 and 1.
    """
    epsilon = 0.5 * _checked_share("numerical_share", share) * budget.epsilon * _ROUND_DOWN
    left = (budget.epsilon - 2.0 * epsilon) * _ROUND_DOWN
    # the last factor also pays for Gaussian noise beyond its bound, of probability below exp(-1800)
    # where exp(-epsilon) is 0 no delta is left, and Gaussian noise is refused by name
    return Budget(left, budget.delta * math.exp(-epsilon) * _ROUND_DOWN), epsilon


def set_aside(name: str, budget: Budget, share: float) -> tuple[Budget, Budget]:
    """A pure ``share`` of epsilon, called ``name``, and what is left: all of delta.

    Raises DeclarationError unless the share is between 0 and 1.
    """
    epsilon = _checked_share(name, share) * budget.epsilon * _ROUND_DOWN
    return Budget(epsilon), Budget((budget.epsilon - epsilon) * _ROUND_DOWN, budget.delta)


def divide(budget: Budget, share: float, noise: Noise | str) -> tuple[Budget, Budget]:
    """A ``share`` of epsilon and delta, and the rest; pure noise leaves delta to the rest."""
    epsilon = budget.epsilon * _ROUND_DOWN
    spends_delta = budget.delta if noise == Noise.GAUSSIAN else 0.0
    first = Budget(share * epsilon, share * spends_delta * _ROUND_DOWN)
    rest = budget.delta - first.delta
    return first, Budget((1.0 - share) * epsilon, rest * _ROUND_DOWN)


def _checked_share(name: str, share: object) -> float:
    part = public_number(name, share, above=0.0)
    if part >= 1.0:
        raise DeclarationError(f"{name} = {share!r}: must be between 0 and 1")
    return part
