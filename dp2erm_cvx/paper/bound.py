"""A bound as the paper states it, by its own measures of how far weights move."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Self

from dp2erm_cvx.privacy import StabilityBound


class BoundFamily(enum.StrEnum):
    """Whose stability bound is in force: the sharp theorems, or the paper's as printed."""

    SHARP = "sharp"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class PrintedBound(StabilityBound):
    """A bound on the movement of weights w, w' that the paper prints.

    Parameters
    ----------
    W1
        Bounds ``||w - w'||_1 + 2 max_i min(w_i, w'_i)``.
    W2
        Bounds ``sqrt((||w - w'||_2^2 + 2 max_i w_i w'_i) (1 + ||w - w'||_0))``.
    L2
        Bounds ``||w - w'||_2``; None where the paper states no bound on it.
    """

    W1: float
    W2: float
    L2: float | None = None

    def of_computed_weights(self, error: float, n_samples: int, *, certain: bool) -> Self:
        """The bound for computed weights, each within ``error`` of the exact ones in the l1 norm.

        W1 counts the largest common weight twice on top of what V counts. W2 as printed counts how
        many weights differ, which the least error makes n: it is raised only as far as keeps
        ``V <= sqrt(2) W2``, which is what certifies a calibration by it.
        """
        counted = super().of_computed_weights(error, n_samples, certain=certain)
        W1 = self.W1 + 4.0 * error
        W2 = self.W2 + 3.0 * error * math.sqrt(1.0 + n_samples)
        return replace(counted, W1=W1, W2=W2)
