"""Unnormalized weights of one record as a function of its margin, by their logarithms."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array


class MarginWeight(abc.ABC):
    """``log f(s)``, which changes by at most ``lipschitz`` times the change of the margin.

    :meth:`log` is computed to within 8 units of roundoff of ``1 + |log f|``.
    """

    lipschitz: float = 1.0

    @abc.abstractmethod
    def log(self, s: Array) -> Array:
        """Log f at margins (n,)."""


@dataclass(frozen=True)
class InversePropensity(MarginWeight):
    """``f = min(1 + exp(-s), trim)``: one over the probability sigma(s) of the observed arm."""

    trim: float = math.inf

    def log(self, s: Array) -> Array:
        weight: Array = np.logaddexp(0.0, -s)
        return weight if math.isinf(self.trim) else np.minimum(weight, math.log(self.trim))


@dataclass(frozen=True)
class Overlap(MarginWeight):
    """``f = sigma(-s)``: the probability of the other arm (Li, Morgan & Zaslavsky 2018)."""

    def log(self, s: Array) -> Array:
        weight: Array = -np.logaddexp(0.0, s)
        return weight
