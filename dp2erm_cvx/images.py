"""Records whose rows are public linear images of their covariates, by arm: never written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocks import ArrayBlocks, Blocks
from dp2erm_cvx.domain import Array, Domain, Records


@dataclass(frozen=True, eq=False)
class Image:
    """Rows ``z_j = factor_j (1, x)_index_j`` (d,) of covariates x (k,): a constant or one covariate each.

    Public: ``index`` (d,) counts from the constant, ``factor`` (d,) holds powers of 2, or 0, so that a row is
    exact.
    """

    index: NDArray[np.int64]
    factor: Array

    def of(self, x: Array) -> Array:
        """The rows (n, d) of covariates x (n, k)."""
        return np.hstack([np.ones((len(x), 1)), x])[:, self.index] * self.factor

    def pulled(self, v: Array, n_features: int) -> tuple[float, Array]:
        """u_0 and u (k,) with ``<z, v> = u_0 + <u, x>``."""
        u: Array = np.bincount(self.index, self.factor * v, 1 + n_features).astype(np.float64)
        return float(u[0]), u[1:]

    def gradient(self, total: float, moment: Array) -> Array:
        """``sum w z`` (d,) from ``sum w`` and ``sum w x``."""
        found: Array = self.factor * np.concatenate([[total], moment])[self.index]
        return found

    def gram(self, total: float, moment: Array, second: Array) -> Array:
        """``sum w z z'`` (d, d) from the sums of w, ``w x`` and ``w x x'``."""
        whole = np.empty((1 + len(moment),) * 2)
        whole[0, 0], whole[0, 1:], whole[1:, 0], whole[1:, 1:] = total, moment, moment, second
        places, factors = self._pairs
        found: Array = whole[places]
        return np.multiply(found, factors, out=found)

    @cached_property
    def _pairs(self) -> tuple[Any, Array]:
        return np.ix_(self.index, self.index), np.outer(self.factor, self.factor)

    def squares(self, n_features: int) -> tuple[float, Array]:
        """What the squared norm of z is made of: a constant, and a factor of every squared covariate."""
        found: Array = np.bincount(self.index, self.factor**2, 1 + n_features).astype(np.float64)
        return float(found[0]), found[1:]


class ImageRecords(Records):
    """Records with X the image of the covariates ``x`` (n, k) times ``scale``; one image per arm, or for all.

    X is written out only where it is asked for.
    """

    def __init__(
        self,
        x: Array,
        scale: float,
        images: tuple[Image, ...],
        a: NDArray[np.int64],
        y: Array,
        domain: Domain,
        sampling: Array | None = None,
    ) -> None:
        put = object.__setattr__
        named = {"x": x, "a": a, "y": y} | ({} if sampling is None else {"sampling": sampling})
        for name, array in named.items():
            view = array.view()
            view.flags.writeable = False
            put(self, name, view)
        if sampling is None:
            put(self, "sampling", None)
        put(self, "scale", scale)
        put(self, "images", images)
        put(self, "domain", domain)

    x: Array
    scale: float
    images: tuple[Image, ...]

    @cached_property
    def X(self) -> Array:
        """The rows (n, d)."""
        scaled = self.scale * self.x
        rows = self.images[0].of(scaled)
        if len(self.images) > 1:
            rows = np.where((self.a == 1)[:, None], self.images[1].of(scaled), rows)
        rows.flags.writeable = False
        return rows

    @property
    def n_features(self) -> int:
        """Number of columns without the intercept."""
        return len(self.images[0].index) - (1 if self.domain.intercept else 0)

    @property
    def blocks(self) -> Blocks[Records]:
        """Views of these records."""
        arrays = (self.x, self.a, self.y, *([] if self.sampling is None else [self.sampling]))
        return ArrayBlocks(arrays).then(partial(_records, self.scale, self.images, self.domain))


def _records(
    scale: float, images: tuple[Image, ...], domain: Domain, arrays: Sequence[NDArray[Any]]
) -> Records:
    x, a, y, *sampling = arrays
    return ImageRecords(x, scale, images, a, y, domain, *sampling)
