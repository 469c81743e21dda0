"""What a fast path is."""

from __future__ import annotations

import abc

from dp2erm_cvx.solve.batch.replacements import Replacements
from dp2erm_cvx.solve.batch.result import FastSolutions


class FastPath(abc.ABC):
    """Solves neighbors of one instance many at a time. What it certifies is checked by its caller."""

    @abc.abstractmethod
    def solve(self, part: Replacements, goal: float) -> FastSolutions:
        """Aim at an l1 radius of ``goal`` for every neighbor."""
