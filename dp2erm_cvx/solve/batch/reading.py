"""What is read off the weights of many neighbors without ever holding them all: sums and maxima."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array


class Reading(abc.ABC):
    """Sums and maxima over the weights of a neighbor, of which records in any order make up the whole."""

    @abc.abstractmethod
    def of(self, weights: Array, part: slice) -> tuple[Array, Array]:
        """Sums (m, s) and maxima (m, t) over the records ``part``, of weights (m, length of the part)."""


@dataclass(frozen=True, eq=False)
class NeighborReadings:
    """What was read off the weights of m neighbors. Everything is private where the records are.

    Attributes
    ----------
    first : number of the first neighbor of this chunk among all replacements
    sums : (m, s), those of the reading
    largest : (m, t), its maxima
    own : (m,) weights of the replaced records
    radius : (m,) bounds on ``||w_hat - w||_1`` of the weights w that were read; inf where nothing was proved
    certified : (m,) whether the radius is within ``tolerance * n``
    iterations : (m,) sweeps over the records before those that read
    by_single : (m,) whether the fast path did not certify the neighbor, which was then solved alone
    """

    first: int
    sums: Array = field(repr=False)
    largest: Array = field(repr=False)
    own: Array = field(repr=False)
    radius: Array = field(repr=False)
    certified: NDArray[np.bool_] = field(repr=False)
    iterations: NDArray[np.int64] = field(repr=False)
    by_single: NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.radius)


class Tally:
    """Adds up what a reading says of m neighbors, block by block."""

    def __init__(self, reading: Reading, m: int) -> None:
        self.reading = reading
        nothing = reading.of(np.zeros((m, 0)), slice(0, 0))
        self.sums, self.largest = nothing
        #: Weight of the replaced record of every neighbor.
        self.own: Array = np.zeros(m)

    def add(self, weights: Array, part: slice) -> None:
        """The weights (m, length of the part) of the records ``part``."""
        sums, largest = self.reading.of(weights, part)
        self.sums += sums
        np.maximum(self.largest, largest, out=self.largest)

    def put(self, k: int, weights: Array, index: int) -> None:
        """All weights (n,) of neighbor k, in place of what was added."""
        (self.sums[k],), (self.largest[k],) = self.reading.of(weights[None, :], slice(0, len(weights)))
        self.own[k] = weights[index]

    def readings(
        self,
        first: int,
        radius: Array,
        goal: float,
        iterations: NDArray[np.int64],
        by_single: NDArray[np.bool_],
    ) -> NeighborReadings:
        """All of it, of weights off by ``radius`` (m,)."""
        read = (self.sums, self.largest, self.own)
        return NeighborReadings(first, *read, radius, radius <= goal, iterations, by_single)


class Kept(Reading):
    """Keeps the weights of one neighbor (n,): for a look at what other readings are told."""

    def __init__(self, n: int) -> None:
        self.weights: Array = np.full(n, np.nan)

    def of(self, weights: Array, part: slice) -> tuple[Array, Array]:
        """Nothing to add up."""
        self.weights[part] = weights[0]
        return np.zeros((1, 0)), np.zeros((1, 0))
