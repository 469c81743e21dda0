"""Kernels with public parameters, and quadratics of their Gram matrices over products of simplices.

A median bandwidth would be read off the data.
"""

from __future__ import annotations

import abc
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import spatial
from scipy.linalg import cho_factor, cho_solve

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.composite import SimplexModel
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, product_error, sum_error
from dp2erm_cvx.program.balance import Balance
from dp2erm_cvx.public import check_settings, public_size, setting, whole_number
from dp2erm_cvx.text import Written

Index = NDArray[np.int64]

#: An entry of a kernel matrix is computed to this many units of roundoff of ``sqrt(K_ii K_jj)``, for up to
#: 200 covariates: an inner product or a squared distance of p terms is wrong by p + 1 units.
ENTRY_ERROR = 256.0


class Kernel(Written, abc.ABC):
    """A positive semidefinite kernel on the scaled covariates, given by ``cross`` or by few ``features``."""

    #: Whether K(x, x') may be negative somewhere.
    signed: bool = False

    def __post_init__(self) -> None:
        check_settings(self)

    def cross(self, X: Array, Y: Array) -> Array:
        """K(x, y) for the rows of X (n, p) and of Y (m, p), (n, m)."""
        return np.asarray(self.features(X) @ self.features(Y).T)

    def features(self, X: Array) -> Array:
        """F (n, k) with ``K = F F'`` for the rows of X (n, p); by default a factor of the Gram matrix."""
        eigenvalues, vectors = np.linalg.eigh(self.cross(X, X))
        return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))

    def n_features(self, p: int) -> int | None:
        """K for p covariates, or None where features are as many as records."""
        return None

    def diagonal(self, X: Array) -> Array:
        """K(x, x) for the rows of X (n, p), (n,)."""
        return np.asarray(np.sum(np.square(self.features(X)), axis=1))

    @abc.abstractmethod
    def bound(self, features_bound: float) -> float:
        """Number C with ``|K| <= C`` over covariates of norm at most ``features_bound``."""

    def negative_within(self, features_bound: float) -> bool:
        """True if K may be negative over those covariates, which costs a factor in the stability bounds."""
        return self.signed

    def entry_error(self, features_bound: float, p: int) -> float:
        """Units of roundoff of ``sqrt(K_ii K_jj)`` by which an entry, also of a product F F', may be off."""
        return ENTRY_ERROR


@dataclass(frozen=True)
class _BandwidthKernel(Kernel):
    """A kernel of a bandwidth with K(x, x) = 1, hence C = 1."""

    bandwidth: float = setting(1.0, public_size)

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))

    def bound(self, features_bound: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Gaussian(_BandwidthKernel):
    """``exp(-||x - x'||^2 / (2 bandwidth^2))``; C = 1."""

    word = "gaussian"

    def cross(self, X: Array, Y: Array) -> Array:
        return np.asarray(np.exp(-0.5 * np.square(spatial.distance.cdist(X, Y) / self.bandwidth)))


@dataclass(frozen=True)
class Laplace(_BandwidthKernel):
    """``exp(-||x - x'||_2 / bandwidth)``; C = 1."""

    word = "laplace"

    def cross(self, X: Array, Y: Array) -> Array:
        return np.asarray(np.exp(-spatial.distance.cdist(X, Y) / self.bandwidth))


@dataclass(frozen=True)
class Linear(Kernel):
    """``offset + <x, x'>``, taken for one that may be negative; C = offset + M^2."""

    offset: float = setting(0.0, at_least=0)
    signed = True
    word = "linear"

    def bound(self, features_bound: float) -> float:
        return self.offset + features_bound**2

    def n_features(self, p: int) -> int:
        return 1 + p

    def features(self, X: Array) -> Array:
        return np.column_stack([np.full(len(X), math.sqrt(self.offset)), X])


@dataclass(frozen=True)
class RandomFourier(_BandwidthKernel):
    """``(1/D) sum_k cos(<omega_k, x - x'>)`` with D public frequencies omega_k ~ N(0, I / bandwidth^2).

    Its mean over seeds is the Gaussian kernel (Rahimi & Recht 2007), but bounds hold for it, not for that.
    The 2 D features are pairs of a cosine and a sine, so K(x, x) = 1; other entries may be negative.
    ``frequencies`` is D, drawn from ``seed``.
    """

    frequencies: int = setting(100, whole_number, at_least=1, at_most=10_000)
    seed: int = setting(0, whole_number, at_least=0)

    signed = True
    word = "fourier"

    def n_features(self, p: int) -> int:
        return 2 * self.frequencies

    def features(self, X: Array) -> Array:
        angles = X @ self._drawn(X.shape[1]).T
        return np.asarray(np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(self.frequencies))

    def entry_error(self, features_bound: float, p: int) -> float:
        # an angle is off by the rounding of its inner product, which moves a pair along the circle by as much
        longest = float(np.max(np.linalg.norm(self._drawn(p), axis=1)))
        pair = (p + 2) * longest * features_bound + 8.0
        return 2.0 * pair + 2.0 * self.frequencies + 8.0

    def _drawn(self, p: int) -> Array:
        rng = np.random.default_rng([self.seed, self.frequencies, p])
        return np.asarray(rng.standard_normal((self.frequencies, p)) / self.bandwidth)


@dataclass(frozen=True)
class Energy(Kernel):
    """``||x|| + ||x'|| - ||x - x'||``, the energy distance's kernel centered at the origin; C = 2 M.

    Positive semidefinite (Schoenberg 1938), and not negative by the triangle inequality. Over laws of equal
    mass its discrepancy is the energy distance ``2 E||X - Y|| - E||X - X'|| - E||Y - Y'||`` (Szekely & Rizzo
    2013): the terms in ``||x||`` cancel.
    """

    def cross(self, X: Array, Y: Array) -> Array:
        apart = spatial.distance.cdist(X, Y)
        left, right = np.linalg.norm(X, axis=1)[:, None], np.linalg.norm(Y, axis=1)[None, :]
        long, short = np.maximum(left, right), np.minimum(left, right)
        # ||long|| - ||long - short|| without the cancellation that would swamp a short one
        total = long + apart
        gap = (2 * (X @ Y.T) - short**2) / np.where(total > 0, total, 1.0)
        return np.asarray(np.maximum(short + gap, 0.0))

    def diagonal(self, X: Array) -> Array:
        return np.asarray(2 * np.linalg.norm(X, axis=1))

    def bound(self, features_bound: float) -> float:
        return 2 * features_bound * (1 + 1e-12)

    def entry_error(self, features_bound: float, p: int) -> float:
        # the fraction is wrong by 6 (p + 2) units of the shorter norm, and sqrt(K_ii K_jj) is twice that norm
        return 4.0 * p + 64.0


@dataclass(frozen=True)
class BalanceKernel(Kernel):
    """``c^2 + <g(x), g(x')>``, g balance functions and c a constant; signed unless c is at least G_x."""

    balance: Balance
    constant: float

    def bound(self, features_bound: float) -> float:
        return (self.constant**2 + self.balance.bound(features_bound) ** 2) * (1 + 1e-12)

    def negative_within(self, features_bound: float) -> bool:
        # c^2 + <g, g'> >= c^2 - G^2
        return self.constant < self.balance.bound(features_bound)

    def n_features(self, p: int) -> int:
        return 1 + self.balance.size(p)

    def features(self, X: Array) -> Array:
        return np.column_stack([np.full(len(X), self.constant), self.balance(X)])

    def entry_error(self, features_bound: float, p: int) -> float:
        # powers round as often as their degree, and an inner product has a term for each function
        return max(ENTRY_ERROR, 4.0 * self.n_features(p) + 64.0)


#: Kernels that may be chosen: the bound of one of another type would be taken on trust.
CHOICES = (Gaussian, Laplace, Linear, RandomFourier)


class KernelModel(SimplexModel):
    """f(v) = <v, Q v> - 2 <c, v> + ridge ||v||^2 over a product of simplices; weights ``scale * v``.

    ``Q`` (n, n) positive semidefinite, ``c`` (n,); ``error`` as of :meth:`Kernel.entry_error`.
    """

    def __init__(
        self, Q: Array, c: Array, ridge: float, feasible: Simplices, scale: float, error: float = ENTRY_ERROR
    ) -> None:
        super().__init__(feasible)
        self.c, self.scale, self.entry_error = c, scale, error
        self.half_ridge, self.ridge = ridge, 2 * ridge
        self.smoothness = 2 * self._hold(Q) * (1 + 1e-9) + self.ridge

    def _hold(self, Q: Array) -> float:
        """Keep the matrix; bound on its eigenvalues, by a Schur test the largest absolute row sum."""
        self.Q, self.row_sums = Q, np.asarray(np.sum(np.abs(Q), axis=1))
        self.sizes = np.sqrt(np.maximum(np.diag(Q), 0.0))
        return float(np.max(self.row_sums))

    def product(self, v: Array) -> Array:
        """Q v (n,), summed in blocks."""
        return blocked_rmatvec(self.Q, v)

    def value(self, v: Array) -> float:
        return float(v @ self.product(v)) - 2 * float(self.c @ v) + self.half_ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        return np.asarray(2 * (self.product(v) - self.c) + self.ridge * v)

    def hessian(self, v: Array) -> Array:
        hessian: Array = 2 * self.Q
        hessian[np.diag_indices(self.n)] += self.ridge
        return hessian

    def hessian_rounding(self, v: Array) -> float:
        # entries are off by what is known of the kernel, not by their own rounding alone: one of random
        # features turns the error of an angle, which may be large, into one of its entries
        entries = 2 * self.entry_error * UNIT * float(self.sizes @ self.sizes)
        return super().hessian_rounding(v) + entries * (1 + 1e-9)

    def rounding(self, v: Array) -> float:
        error = sum_error(self.n) + 16 * UNIT
        terms = 2 * error * (np.abs(self.Q) @ np.abs(v) + self.row_sums) + 4 * UNIT * self.ridge * np.abs(v)
        # the entries of Q themselves, and c as a sum of such entries
        entries = 2 * self.entry_error * UNIT * float(self.sizes @ np.abs(v) + np.sum(self.sizes))
        return float(np.linalg.norm(terms)) + entries * float(np.linalg.norm(self.sizes))


class FactoredKernelModel(KernelModel):
    """Kernel weights of ``Q = G G'`` by the rows G (n, k), without Q.

    ``c = share F (F'1)``, with rows of F as long as those of G. An inner product of rows is off by at most
    ``error`` units of roundoff of their lengths, the features' own errors included.
    """

    def _hold(self, G: Array) -> float:
        self.G, self.sizes, gram = G, np.linalg.norm(G, axis=1), G.T @ G
        rounded = (product_error(len(G)) + 64 * len(gram) * UNIT) * float(np.trace(gram))
        return float(np.linalg.eigvalsh(gram)[-1]) + rounded

    def product(self, v: Array) -> Array:
        return np.asarray(self.G @ blocked_rmatvec(self.G, v))

    def hessian(self, v: Array) -> Array:
        return np.asarray(2 * (self.G @ self.G.T) + self.ridge * np.eye(self.n))

    def rounding(self, v: Array) -> float:
        # with s = G'v: |s| and the magnitudes summed in it are at most sum_i |v_i| |g_i|; each entry of G s
        # then rounds by |g_i| |s|, and features that are off themselves count once in either product
        error = sum_error(self.n) + (self.entry_error + 16) * UNIT
        moment = float(self.sizes @ np.abs(v)) + float(np.sum(self.sizes))
        products = 2 * error * moment * float(np.linalg.norm(self.sizes)) * (1 + 1e-9)
        return products + 4 * UNIT * self.ridge * float(np.linalg.norm(v))

    def newton_direction(self, trial: Array, move: Array, step: float) -> Array:
        """Solve ``(I - P (I - step H)) d = move`` with P the Jacobian of the projection at ``trial``.

        P centers the free coordinates of each group and is 0 elsewhere. There d is ``move``; within a group
        it is the mean of ``move`` plus a centered y with ``step ridge y + 2 step C C'y = P (move - 2 step G
        (G'd_0))``, C the centered free rows of G and d_0 what is known of d: a system of k equations.
        """
        free, known, C = self.feasible.free(trial), move.copy(), np.zeros_like(self.G)
        for members in self.feasible.members():
            if len(inside := members[free[members]]):
                known[inside] = np.mean(move[inside])
                C[inside] = self.G[inside] - np.mean(self.G[inside], axis=0)
        right = np.where(free, move - known, 0.0) - C @ (2 * step * blocked_rmatvec(self.G, known))
        inner = C.T @ C
        inner[np.diag_indices(len(inner))] += self.half_ridge
        try:
            solved = cho_solve(cho_factor(inner), C.T @ right)
        except (np.linalg.LinAlgError, ValueError):  # numbers too far apart, or none: a plain step
            return move
        return np.asarray(known + (right - C @ solved) / (step * self.ridge))


class MatchingModel(KernelModel):
    """Kernel weights of the Gram matrix of a ``source`` (m, p), on one simplex of total n.

    c is n times the mean kernel with the ``target`` (T, p). The output is v at the rows ``where`` of n
    records and 0 elsewhere.
    """

    def __init__(
        self, kernel: Kernel, samples: tuple[Array, Array], ridge: float, where: Index, n: int, error: float
    ) -> None:
        source, target = samples
        T = len(target)
        c = (n / T) * blocked_rmatvec(kernel.cross(source, target).T, np.ones(T))
        feasible = Simplices(np.zeros(len(source), dtype=np.int64), float(n))
        super().__init__(kernel.cross(source, source), c, ridge, feasible, 1.0, error)
        self.where, self.n_samples = where, n
        near, far = (np.sqrt(np.maximum(kernel.diagonal(rows), 0.0)) for rows in samples)
        # c sums T entries of a kernel between two samples, which the base class knows nothing of
        units = 2 * (error * UNIT + sum_error(T) + 16 * UNIT)
        self.cross_error = units * n * float(np.max(far)) * float(np.linalg.norm(near))

    def rounding(self, v: Array) -> float:
        return super().rounding(v) + self.cross_error

    def output(self, v: Array) -> Array:
        weights = np.zeros(self.n_samples)
        weights[self.where] = v
        return weights

    def output_scale(self, v: Array) -> float:
        return float(self.n_samples)


class PublicSample:
    """Raw covariates (m, k) that are public: published microdata, or a population that was simulated.

    No guarantee covers them. Raises DeclarationError unless they are a finite matrix with a row.
    """

    def __init__(self, X: ArrayLike) -> None:
        try:
            rows = np.array(X, dtype=np.float64, ndmin=2)
        except (TypeError, ValueError):
            raise DeclarationError("public sample: must be a matrix of numbers") from None
        if rows.ndim != 2 or not rows.size or not np.all(np.isfinite(rows)):
            raise DeclarationError("public sample: must be a matrix of finite numbers with at least one row")
        rows.flags.writeable = False
        self.X: Array = rows
        self.digest = hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicSample) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PublicSample({self.X.shape[0]} x {self.X.shape[1]}, sha256 {self.digest[:12]})"

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release: its size and its digest, not its rows."""
        return {"rows": self.X.shape[0], "columns": self.X.shape[1], "sha256": self.digest}
