"""How a private choice was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """How the winner was chosen, from public quantities alone.

    ``scale`` is that of the exponential noise, in units of the outcome (mean gain per record): with
    probability 0.95 the winner's gain on the records scored is within ``resolution`` of the best.
    ``sampler`` says what drew it.
    """

    epsilon: float
    scale: float
    resolution: float
    propensity: float
    sampler: str
