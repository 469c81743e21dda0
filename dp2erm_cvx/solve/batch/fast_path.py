"""The solutions of many neighbors, and the fast paths that find them."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve.batch.replacements import Replacements


@dataclass(frozen=True, eq=False)
class NeighborSolutions:
    """Weights of m neighbors with their certificates. Everything is private where the records are.

    Attributes
    ----------
    first : number of the first neighbor of this chunk among all replacements
    weights : (m, n), of sum n; nan where a neighbor has no solution
    radius : (m,) bounds on ``||w_hat - w||_1``; inf where nothing was proved
    certified : (m,) whether the radius is within ``tolerance * n``
    iterations : (m,) sweeps over the records, or iterations of the single solver
    by_single : (m,) whether the fast path did not certify the neighbor, which was then solved alone
    """

    first: int
    weights: Array = field(repr=False)
    radius: Array = field(repr=False)
    certified: NDArray[np.bool_] = field(repr=False)
    iterations: NDArray[np.int64] = field(repr=False)
    by_single: NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.radius)


@dataclass(frozen=True, eq=False)
class FastSolutions:
    """What a fast path found for m neighbors: weights (m, n), certified l1 radii (m,), iterations (m,)."""

    weights: Array = field(repr=False)
    radius: Array = field(repr=False)
    iterations: NDArray[np.int64] = field(repr=False)
    #: Points of the composite models, (m, d).
    points: Array = field(repr=False)

    def one(self, k: int) -> Self:
        """That of neighbor k alone."""
        part = slice(k, k + 1)
        return type(self)(self.weights[part], self.radius[part], self.iterations[part], self.points[part])


class FastPath(abc.ABC):
    """Solves neighbors of one instance many at a time. What it certifies is checked by its caller."""

    @abc.abstractmethod
    def solve(self, part: Replacements, goal: float) -> FastSolutions:
        """Aim at an l1 radius of ``goal`` for every neighbor."""
