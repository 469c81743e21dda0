"""Rows of a margin loss that are public linear images of covariates: sums over them are sums over x."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.images import Image, ImageRecords
from dp2erm_cvx.model.sums import blocked_rmatvec, weighted_gram
from dp2erm_cvx.program.losses.margin_rows import MarginRows


class ImageRows(MarginRows):
    """Rows ``z_i = s_i T_a (1, scale x_i)`` of covariates x (n, k), with signs s (n,) 1 by default.

    ``images`` are one per ``arm`` or one for all. A product with z is one with x at no more roundings: no
    covariate stands in more than two places. What a Gram matrix costs is that of x, once per image.
    """

    def __init__(
        self,
        x: Array,
        images: tuple[Image, ...],
        *,
        scale: float = 1.0,
        arm: NDArray[np.int64] | None = None,
        sign: Array | None = None,
        offset: Array | None = None,
        factor: Array | None = None,
    ) -> None:
        own = {"x": x, "images": images, "scale": scale, "arm": arm, "sign": sign}
        for name, value in (own | {"offset": offset, "factor": factor}).items():
            object.__setattr__(self, name, value)

    x: Array
    images: tuple[Image, ...]
    scale: float
    arm: NDArray[np.int64] | None
    sign: Array | None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def Z(self) -> Array:
        """The rows (n, d), written out."""
        rows = self._chosen([image.of(self._scaled) for image in self.images])
        return rows if self.sign is None else self.sign[:, None] * rows

    def part(self, begin: int, end: int) -> ImageRows:
        """Some of the rows."""
        part = slice(begin, end)
        optional: dict[str, Any] = {}
        for name in ("arm", "sign", "offset", "factor"):
            one = getattr(self, name)
            optional[name] = None if one is None else one[part]
        return ImageRows(
            self.x[part] if self.scale == 1.0 else self.scale * self.x[part], self.images, **optional
        )

    def norms(self) -> Array:
        """||z_i|| (n,)."""
        squares, k = self._scaled**2, self.x.shape[1]
        parts = [image.squares(k) for image in self.images]
        norms: Array = np.sqrt(self._chosen([squares @ factors + constant for constant, factors in parts]))
        return norms

    def products(self, v: Array) -> Array:
        """<z_i, v> (n,)."""
        x, parts = self._scaled, [image.pulled(v, self.x.shape[1]) for image in self.images]
        product = self._chosen([x @ u + shift for shift, u in parts])
        return product if self.sign is None else self.sign * product

    def gradient(self, pull: Array) -> Array:
        """``sum pull_i z_i`` (d,)."""
        x, signed = self._scaled, pull if self.sign is None else self.sign * pull
        pairs = zip(self.images, self._shares(signed), strict=True)
        return reduce(add, [image.gradient(_total(own), blocked_rmatvec(x, own)) for image, own in pairs])

    def gram(self, w: Array) -> Array:
        """``sum w_i z_i z_i'`` (d, d)."""
        x, found = self._scaled, []
        for image, own in zip(self.images, self._members, strict=True):
            part, weights = x[own], w[own]
            found.append(image.gram(_total(weights), weights @ part, weighted_gram(part, weights)))
        return reduce(add, found)

    @property
    def _members(self) -> list[Any]:
        """The records of every image."""
        if len(self.images) == 1:
            return [slice(None)]
        return [np.flatnonzero(self.arm == arm) for arm in (0, 1)]

    @property
    def _scaled(self) -> Array:
        return self.x if self.scale == 1.0 else self.scale * self.x

    def _chosen(self, found: list[Array]) -> Array:
        """Of every record what belongs to the image of its arm."""
        if len(found) == 1:
            return found[0]
        assert self.arm is not None
        treated = self.arm == 1
        return np.where(treated if found[0].ndim == 1 else treated[:, None], found[1], found[0])

    def _shares(self, w: Array) -> list[Array]:
        """Numbers (n,) by image: 0 for a record of another arm."""
        if len(self.images) == 1:
            return [w]
        return [np.where(self.arm == arm, w, 0.0) for arm in (0, 1)]


def rows_of(records: Records, **given: Any) -> MarginRows:
    """The rows X of records as they come: images where these are known; ``sign`` (n,) multiplies them."""
    if isinstance(records, ImageRecords):
        return ImageRows(records.x, records.images, scale=records.scale, arm=records.a, **given)
    k = records.X.shape[1]
    return ImageRows(records.X, (Image(np.arange(1, k + 1), np.ones(k)),), **given)


def _total(w: Array) -> float:
    # numpy adds pairwise, at fewer roundings than the blocks of the other sums
    return float(np.sum(w))
