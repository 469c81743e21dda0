"""How far the weights of one dataset move to those of its neighbors, with proved errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, UNIT, Array
from dp2erm_cvx.neighbors.rows import Index, Mask, NeighborSolutions, Reading


@dataclass(frozen=True, eq=False)
class NeighborMovements:
    """Movements of weights from a dataset to m neighbors. Private where the records are.

    Numbers are of the computed weights; those of the exact weights are within ``error`` of them.

    Parameters
    ----------
    S
        Movement ``sum |w_i - w'_i|`` over all records but the replaced one, (m,).
    V
        ``S + w_j + w'_j`` with the weights of the replaced record, (m,): what a bound V is about.
    own
        These two weights, before and after, (m, 2).
    error
        Proved bounds (m,) of the distance of S and V to those of the exact weights; infinite where
        nothing was proved.
    certified
        Whether the weights of a neighbor (m,) are proved to be within the tolerance.
    alone
        Whether a neighbor (m,) was solved by itself, as its program has no common steps, or they
        failed.
    weights
        Weights (m, n), where they were asked for.
    """

    S: Array = field(repr=False)
    V: Array = field(repr=False)
    own: Array = field(repr=False)
    error: Array = field(repr=False)
    certified: Mask = field(repr=False)
    alone: Mask = field(repr=False)
    weights: Array | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.V)

    @property
    def V_found(self) -> float:
        """The largest V that is proved: no bound below it holds. 0 where nothing is proved."""
        return float(np.max(self._proved(), initial=0.0))

    @property
    def worst(self) -> int:
        """The number of the neighbor that has it. Raises ValueError without neighbors."""
        return int(np.argmax(self._proved()))

    def _proved(self) -> Array:
        """Lower ends (m,) of V, 0 where nothing is proved."""
        with np.errstate(invalid="ignore"):
            low = self.V - self.error
        return np.where(np.isfinite(low), np.maximum(low, 0.0), 0.0)

    def __str__(self) -> str:
        together = int(np.sum(~self.alone))
        alone = int(np.sum(self.alone))
        unproved = int(np.sum(~self.certified))
        text = f"{together} neighbors solved together, {alone} one by one, {unproved} not certified"
        return f"{text}; largest V found {self.V_found:.6g}"


class OthersMoved(Reading):
    """Reads the sum of gaps to the weights of the dataset.

    Parameters
    ----------
    base
        These weights (n,).
    """

    def __init__(self, base: Array) -> None:
        self.beside = (base,)

    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        """Sums (m, 1) of gaps; no maxima."""
        (base,) = beside
        gaps = np.sum(np.abs(weights - base), axis=1, keepdims=True)
        return gaps, np.zeros((len(weights), 0))


def movements_of(
    base: Array, radius: float, index: Index, chunks: Iterable[NeighborSolutions], *, held: bool
) -> NeighborMovements:
    """Movements from the weights of a dataset to those of its neighbors.

    Parameters
    ----------
    base, radius
        The weights (n,) of the dataset and their proved error in l1.
    index
        Numbers (m,) of the replaced records.
    chunks
        Solutions of the neighbors: of weights where they are ``held``, else of
        :class:`OthersMoved`.
    held
        Whether weights are kept.
    """
    m = len(index)
    n = len(base)
    gaps = np.full(m, np.nan)
    before = base[index]
    after = np.full(m, np.nan)
    error = np.full(m, np.inf)
    certified = np.zeros(m, dtype=bool)
    alone = np.zeros(m, dtype=bool)
    weights = np.full((m, n), np.nan) if held else None
    for chunk in chunks:
        part = slice(chunk.first, chunk.first + len(chunk.radius))
        if weights is not None:
            (of_chunk,) = chunk.values
            weights[part] = of_chunk
            gaps[part] = np.sum(np.abs(of_chunk - base), axis=1)
            after[part] = of_chunk[np.arange(len(of_chunk)), index[part]]
        else:
            sums, _, of_replaced = chunk.values
            gaps[part] = sums[:, 0]
            after[part] = of_replaced
        error[part] = movement_error(n, radius + chunk.radius)
        certified[part] = chunk.certified
        alone[part] = chunk.by_single
    # S = ||w - w'||_1 - |w_j - w'_j| and V = S + w_j + w'_j
    S = np.maximum(gaps - np.abs(before - after), 0.0)
    V = S + before + after
    own = np.stack([before, after], axis=1)
    return NeighborMovements(S, V, own, error, certified, alone, weights)


def movement_error(n: int, radius: float | Array) -> Any:
    """Bound on the error of a sum over the weights of two datasets of n records.

    Weights have sum n, and what is added up of both has no more than 2 n terms.

    Parameters
    ----------
    n
        The number of records.
    radius
        The errors in l1 of both weights together.
    """
    return radius * ROUND_UP_SUMS + 32.0 * n * n * UNIT
