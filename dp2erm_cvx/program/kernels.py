"""Kernels with public parameters: a median bandwidth would be read off the data."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass

import numpy as np
from scipy import spatial

from dp2erm_cvx.domain import Array
from dp2erm_cvx.program.balance import BalanceFunctions, Moments
from dp2erm_cvx.public import check_settings, public_size, setting, whole_number
from dp2erm_cvx.text import Written

#: An entry of a kernel matrix is computed to this many units of roundoff of ``sqrt(K_ii K_jj)``, for up to
#: 200 covariates: an inner product or a squared distance of p terms is wrong by p + 1 units.
ENTRY_ERROR = 256.0


class Kernel(Written, abc.ABC):
    """A positive semidefinite kernel on the scaled covariates."""

    #: Whether K(x, x') may be negative somewhere.
    signed: bool = False

    def __post_init__(self) -> None:
        check_settings(self)

    def cross(self, X: Array, Y: Array) -> Array:
        """K(x, y) for the rows of X (n, p) and of Y (m, p), (n, m): by default of their features."""
        F, G = self.features(X), self.features(Y)
        assert F is not None
        assert G is not None
        gram: Array = F @ G.T
        return gram

    def matrix(self, X: Array) -> Array:
        """Gram matrix (n, n) of the rows of X (n, p)."""
        return self.cross(X, X)

    @abc.abstractmethod
    def diagonal(self, X: Array) -> Array:
        """K(x, x) for the rows of X (n, p), (n,)."""

    @abc.abstractmethod
    def bound(self, features_bound: float) -> float:
        """Number C with ``|K| <= C`` over covariates of norm at most ``features_bound``."""

    def negative_within(self, features_bound: float) -> bool:
        """True if K may be negative over those covariates, which costs a factor in the stability bounds."""
        return self.signed

    def features(self, X: Array) -> Array | None:
        """F (n, k) with ``K = F F'`` for the rows of X (n, p), or None where there are as many as records."""
        return None

    def entry_error(self, features_bound: float, n_features: int) -> float:
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
        gram: Array = np.exp(-0.5 * np.square(spatial.distance.cdist(X, Y) / self.bandwidth))
        return gram


@dataclass(frozen=True)
class Laplace(_BandwidthKernel):
    """``exp(-||x - x'||_2 / bandwidth)``; C = 1."""

    word = "laplace"

    def cross(self, X: Array, Y: Array) -> Array:
        gram: Array = np.exp(-spatial.distance.cdist(X, Y) / self.bandwidth)
        return gram


@dataclass(frozen=True)
class Linear(Kernel):
    """``offset + <x, x'>``, signed unless ``offset`` is at least M^2; C = offset + M^2."""

    offset: float = setting(0.0, at_least=0)
    signed = True
    word = "linear"

    def cross(self, X: Array, Y: Array) -> Array:
        gram: Array = self.offset + X @ Y.T
        return gram

    def diagonal(self, X: Array) -> Array:
        squared: Array = np.sum(X * X, axis=1)
        return self.offset + squared

    def bound(self, features_bound: float) -> float:
        return self.offset + features_bound**2

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

    def features(self, X: Array) -> Array:
        angles = X @ self._frequencies(X.shape[1]).T
        pairs: Array = np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(self.frequencies)
        return pairs

    def entry_error(self, features_bound: float, n_features: int) -> float:
        # an angle is off by the rounding of its inner product, which moves a pair along the circle by as much
        longest = float(np.max(np.linalg.norm(self._frequencies(n_features), axis=1)))
        pair = (n_features + 2) * longest * features_bound + 8.0
        return 2.0 * pair + 2.0 * self.frequencies + 8.0

    def _frequencies(self, n_features: int) -> Array:
        rng = np.random.default_rng([self.seed, self.frequencies, n_features])
        drawn: Array = rng.standard_normal((self.frequencies, n_features)) / self.bandwidth
        return drawn


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
        gram: Array = np.maximum(short + gap, 0.0)
        return gram

    def diagonal(self, X: Array) -> Array:
        norms: Array = np.linalg.norm(X, axis=1)
        return 2 * norms

    def bound(self, features_bound: float) -> float:
        return 2 * features_bound * (1 + 1e-12)

    def entry_error(self, features_bound: float, n_features: int) -> float:
        # the fraction is wrong by 6 (p + 2) units of the shorter norm, and sqrt(K_ii K_jj) is twice that norm
        return 4.0 * n_features + 64.0


@dataclass(frozen=True)
class BalanceKernel(Kernel):
    """``c^2 + <g(x), g(x')>``, g balance functions and c a constant; signed unless c is at least G_x."""

    balance: Moments | BalanceFunctions
    constant: float
    signed: bool = True

    def diagonal(self, X: Array) -> Array:
        squared: Array = np.sum(np.square(self.features(X)), axis=1)
        return squared

    def bound(self, features_bound: float) -> float:
        return (self.constant**2 + self.balance.bound(features_bound) ** 2) * (1 + 1e-12)

    def negative_within(self, features_bound: float) -> bool:
        # c^2 + <g, g'> >= c^2 - G^2
        return self.constant < self.balance.bound(features_bound)

    def features(self, X: Array) -> Array:
        return np.column_stack([np.full(len(X), self.constant), self.balance(X)])

    def entry_error(self, features_bound: float, n_features: int) -> float:
        # powers round as often as their degree, and an inner product has a term for each function
        functions = int(self.features(np.zeros((1, n_features))).shape[1])
        return max(ENTRY_ERROR, 4.0 * functions + 64.0)


#: Kernels that may be chosen: the bound of one of another type would be taken on trust.
CHOICES = (Gaussian, Laplace, Linear, RandomFourier)


def factor(gram: Array) -> Array:
    """F (n, n) with ``F F' = gram`` for a positive semidefinite Gram matrix."""
    eigenvalues, vectors = np.linalg.eigh(gram)
    root: Array = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return root
