"""Exact confidence bounds of probabilities from counts (Clopper and Pearson 1934), rounded outwards."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from dp2erm_cvx.domain import Array

#: Larger than the relative error of the inverse of the incomplete beta function.
_SLACK = 1e-10


def lower(hits: Array, runs: int, risk: float) -> Array:
    """A bound below the probability, wrong with probability at most ``risk``; hits are counts of ``runs``."""
    inner = np.maximum(hits, 1)
    found = betaincinv(inner, runs - inner + 1, risk) * (1 - _SLACK)
    return np.where(hits > 0, found, 0.0)


def upper(hits: Array, runs: int, risk: float) -> Array:
    """A bound above the probability, wrong with probability at most ``risk``."""
    # from the other end, where a risk near 0 keeps its digits
    return np.minimum(1.0, (1.0 - lower(runs - hits, runs, risk)) * (1 + _SLACK))


class EpsilonBound:
    """Lower confidence bounds on epsilon from counts of one event in ``runs`` runs of each dataset.

    P(event) <= exp(epsilon) Q(event) + delta, hence epsilon >= log((P - delta) / Q). With probability at
    least 1 - 2 ``risk`` the bound is right: P and Q each get ``risk``. At least 0.
    """

    def __init__(self, runs: int, delta: float, risk: float) -> None:
        counts = np.arange(runs + 1, dtype=np.float64)
        self.runs, self.delta = runs, delta
        self.low, self.high = lower(counts, runs, risk), upper(counts, runs, risk)
        with np.errstate(divide="ignore"):
            self._above = np.log(np.maximum(self.low - delta, 0.0))
            self._below = np.log(self.high)

    def __call__(self, mine: Array, theirs: Array) -> Array:
        """The bound for counts ``mine`` of the event under P and ``theirs`` under Q, whole numbers."""
        found = self._above[mine.astype(np.intp)] - self._below[theirs.astype(np.intp)]
        return np.maximum(found * (1 - _SLACK), 0.0)

    def of(self, hits: int, other_hits: int) -> float:
        """The bound for one pair of counts."""
        return float(self(np.array([hits]), np.array([other_hits]))[0])

    @property
    def ceiling(self) -> float:
        """The most that any counts of this many runs give: always under P, never under Q."""
        return self.of(self.runs, 0)
