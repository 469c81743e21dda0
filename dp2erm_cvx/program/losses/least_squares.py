"""The composite of perturbed weighted least squares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dp2erm_cvx.blocks import Blocks, tree_sum, whole
from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite, Penalty, Recent
from dp2erm_cvx.model.sums import (
    CACHED,
    UNIT,
    blocked_rmatvec,
    dot_error,
    product_error,
    sum_error,
    weighted_gram,
)

#: Rows x_i (n, p) and responses z_i (n,).
Rows = tuple[Array, Array]


class LeastSquaresModel(Composite):
    """f(theta) = sum_i w_i (z_i - <x_i, theta>)^2 + ridge/2 ||theta||^2 + <linear, theta>.

    ``rows`` (X, z) may come in blocks; ``weights`` (n,), ``linear`` (p,), ``ridge = n (gamma + l2)``. The
    gradient is taken record by record, not through the Gram matrix that solvers are given.
    """

    self_concordance = 0.0

    def __init__(
        self,
        rows: Rows | Blocks[Rows],
        weights: Array,
        ridge: float,
        linear: Array | None,
        penalty: Penalty,
    ) -> None:
        self.blocks = rows if isinstance(rows, Blocks) else whole(rows, len(rows[0]))
        self.weights, self.ridge, self.penalty = weights, ridge, penalty
        self.n = self.blocks.n_samples
        grams = self.blocks.map(_gram, weights)
        gram = tree_sum([one.gram for one in grams])
        self._sizes, self._pull = (
            tree_sum([getattr(one, name) for one in grams]) for name in ("sizes", "pull")
        )
        self.dimension = len(gram)
        self.linear: Array = np.zeros(self.dimension) if linear is None else linear
        self._hessian = 2 * gram + ridge * np.eye(self.dimension)
        self._moment = 2 * float(np.trace(gram)) * (1 + product_error(self.n))
        self.smoothness = float(np.linalg.eigvalsh(self._hessian)[-1]) * (1 + 1e-9)
        self._residuals: Recent[tuple[float, Array]] = Recent()
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0 within Theta
        first_step = -self.gradient(np.zeros(self.dimension)) / (self.smoothness or 1.0)
        self.least_scale = float(np.linalg.norm(penalty.set.project(first_step)))

    @cached_property
    def whole(self) -> Rows:
        """X (n, p) and z (n,) in memory, for those who work on many neighbors at once."""
        parts = self.blocks.each()
        return (
            parts[0]
            if len(parts) == 1
            else (np.vstack([X for X, _ in parts]), np.hstack([z for _, z in parts]))
        )

    @property
    def X(self) -> Array:
        """The rows (n, p), in memory."""
        return self.whole[0]

    @property
    def z(self) -> Array:
        """The responses (n,), in memory."""
        return self.whole[1]

    @cached_property
    def row_norms(self) -> Array:
        """The norms (n,) of the rows."""
        norms: Array = np.linalg.norm(self.X, axis=1)
        return norms

    def value(self, v: Array) -> float:
        return self._at(v)[0] + 0.5 * self.ridge * float(v @ v) + float(self.linear @ v)

    def gradient(self, v: Array) -> Array:
        return self._at(v)[1] + self.ridge * v + self.linear

    def hessian(self, v: Array) -> Array:
        return self._hessian

    def hessian_rounding(self, v: Array) -> float:
        # entry (j, k) is wrong by a share of sum w |x_j| |x_k|, a matrix of norm sum w ||x||^2 at most
        return (product_error(self.n) + 8 * UNIT) * self._moment + 4 * UNIT * self.ridge

    def rounding(self, v: Array) -> float:
        return float(np.linalg.norm(self.rounding_by_coordinate(v)))

    def rounding_by_coordinate(self, v: Array) -> Array:
        # sums of sum w |x_j| (<|x|, |v|> + |z|), of nonnegative terms
        error = (dot_error(self.dimension) + 8 * UNIT + sum_error(self.n)) * (1 + 2 * product_error(self.n))
        data: Array = 2 * error * (self._sizes @ np.abs(v) + self._pull)
        return data + 8 * UNIT * (self.ridge * np.abs(v) + np.abs(self.linear))

    def output_scale(self, v: Array) -> float:
        return max(float(np.linalg.norm(v)), self.least_scale) or 1.0

    def _at(self, v: Array) -> tuple[float, Array]:
        def made() -> tuple[float, Array]:
            found = self.blocks.map(partial(_residuals, v=v), self.weights)
            return sum(part[0] for part in found), 2 * tree_sum([part[1] for part in found])

        return self._residuals.find(v, made)


@dataclass(frozen=True)
class _Gram:
    """``sum w x x'``, the same of |x|, and ``sum w |x| |z|``."""

    gram: Array
    sizes: Array
    pull: Array


def _gram(rows: Rows, weights: Array) -> _Gram:
    found = []
    for begin in range(0, len(weights), CACHED):
        part = slice(begin, begin + CACHED)
        X, z, w = rows[0][part], rows[1][part], weights[part]
        size = np.abs(X)
        found.append(_Gram(weighted_gram(X, w), weighted_gram(size, w), (w * np.abs(z)) @ size))
    return _Gram(*(tree_sum([getattr(one, name) for one in found]) for name in ("gram", "sizes", "pull")))


def _residuals(rows: Rows, weights: Array, *, v: Array) -> tuple[float, Array]:
    """``sum w r^2`` and ``sum w r x``, r = <x, v> - z."""
    value, slopes = 0.0, []
    for begin in range(0, len(weights), CACHED):
        part = slice(begin, begin + CACHED)
        residual = rows[0][part] @ v - rows[1][part]
        pull = weights[part] * residual
        value += float(pull @ residual)
        slopes.append(blocked_rmatvec(rows[0][part], pull))
    return value, tree_sum(slopes)
