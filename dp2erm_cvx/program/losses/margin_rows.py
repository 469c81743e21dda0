"""Rows of a margin loss: what sums over records are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.blocks import Blocks
from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sums import blocked_rmatvec, weighted_gram


@dataclass(frozen=True)
class MarginRows:
    """Rows z_i (n, p), offsets o_i and factors c_i >= 0 (n,) of ``sum w_i c_i phi(<z_i, theta> - o_i)``.

    None for offsets of 0, and for factors of 1. Weights are read at ``weight_rows`` u_i (n, p); None for z_i.
    """

    Z: Array
    offset: Array | None = None
    factor: Array | None = None
    weight_rows: Array | None = None

    def __len__(self) -> int:
        return len(self.Z)

    def part(self, begin: int, end: int) -> MarginRows:
        """Some of the rows."""
        part = slice(begin, end)
        return MarginRows(self.Z[part], *(some_rows(one, part) for one in _others(self)))

    @property
    def offsets(self) -> Array:
        """The offsets (n,)."""
        return np.zeros(len(self)) if self.offset is None else self.offset

    def norms(self) -> Array:
        """||z_i|| (n,)."""
        norms: Array = np.linalg.norm(self.Z, axis=1)
        return norms

    def products(self, v: Array) -> Array:
        """<z_i, v> (n,)."""
        return self.Z @ v

    def gradient(self, pull: Array) -> Array:
        """``sum pull_i z_i`` (p,), within ``sum_error`` of its magnitudes."""
        return blocked_rmatvec(self.Z, pull)

    def gram(self, w: Array) -> Array:
        """``sum w_i z_i z_i'`` (p, p)."""
        return weighted_gram(self.Z, w)

    def margins(self, v: Array) -> Array:
        """<z_i, v> - o_i, (n,)."""
        return self.products(v) if self.offset is None else self.products(v) - self.offset

    def times(self, multipliers: Array | None) -> Array:
        """w_i c_i, (n,)."""
        known = [one for one in (multipliers, self.factor) if one is not None]
        return math.prod(known[1:], start=known[0]) if known else np.ones(len(self))


def some_rows(array: Array | None, part: slice) -> Array | None:
    """Some rows of an array, if there is one."""
    return None if array is None else array[part]


def whole_rows(blocks: Blocks[MarginRows]) -> MarginRows:
    """All rows of the blocks in memory."""
    parts = blocks.each()
    others = map(_joined, zip(*map(_others, parts), strict=True))
    return MarginRows(np.concatenate([part.Z for part in parts]), *others)


def _others(rows: MarginRows) -> tuple[Array | None, ...]:
    return rows.offset, rows.factor, rows.weight_rows


def _joined(column: Sequence[Array | None]) -> Array | None:
    present = [one for one in column if one is not None]
    return np.concatenate(present) if present else None
