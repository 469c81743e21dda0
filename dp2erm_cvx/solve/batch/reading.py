"""What is read off the weights of many neighbors without ever holding them all: sums and maxima."""

from __future__ import annotations

import abc
import copy
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array


class Reading(abc.ABC):
    """Sums and maxima over the weights of a neighbor, of which records in any order make up the whole.

    ``beside`` holds arrays (n,), of which :meth:`of` is given the part that belongs to its weights. Where
    records are read in blocks by other processes a reading has to be picklable.
    """

    beside: tuple[Array, ...] = ()

    @abc.abstractmethod
    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        """Sums (m, s) and maxima (m, t) of weights (m, k) of some records; neither reads ``self.beside``."""

    def alone(self) -> Self:
        """The same without the arrays beside it, which is sent to whoever makes the pass."""
        found = copy.copy(self)
        found.beside = ()
        return found


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


@dataclass(frozen=True, eq=False)
class Tally:
    """What a reading says of m neighbors: sums (m, s), maxima (m, t), weights of replaced records (m,)."""

    reading: Reading
    sums: Array
    largest: Array
    own: Array

    def __repr__(self) -> str:
        return f"Tally({len(self.own)})"

    @classmethod
    def held(cls, reading: Reading, weights: Array, index: NDArray[np.int64]) -> Self:
        """Of all weights (m, n), of neighbors whose records ``index`` (m,) were replaced."""
        return cls(reading, *reading.of(weights, *reading.beside), weights[np.arange(len(index)), index])

    def put(self, k: int, weights: Array, index: int) -> None:
        """All weights (n,) of neighbor k, in place of what was read."""
        (self.sums[k],), (self.largest[k],) = self.reading.of(weights[None, :], *self.reading.beside)
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
