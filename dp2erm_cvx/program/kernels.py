"""Kernels with public parameters, and samples of covariates that are public.

A bandwidth is a public setting: a median of distances, as is often taken, would be read off the
data.
"""

from __future__ import annotations

import abc
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import ROUND_UP, Array
from dp2erm_cvx.checks import check_settings, public_size, setting, whole_number
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.display import Written
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.memory import refuse_size

Index = NDArray[np.int64]

#: An entry of a kernel matrix is computed to this many units of roundoff of ``sqrt(K_ii K_jj)``,
#: for up to 200 covariates: an inner product or a squared distance of p terms is wrong by p + 1
#: units.
ENTRY_ERROR = 256.0


class Kernel(Written, abc.ABC):
    """A positive semidefinite kernel on the scaled covariates.

    It is given by ``cross`` or by few ``features``.
    """

    #: Whether K(x, x') may be negative somewhere.
    signed: bool = False

    def __post_init__(self) -> None:
        check_settings(self)

    def cross(self, X: Array, Y: Array) -> Array:
        """K(x, y) for the rows of X (n, p) and of Y (m, p), (n, m)."""
        return np.asarray(self.features(X) @ self.features(Y).T)

    def features(self, X: Array) -> Array:
        """F (n, k) with ``K = F F'`` for the rows of X (n, p).

        The default is a factor of the Gram matrix, whose k is n.

        Raises
        ------
        DeclarationError
            Where that does not fit into memory.
        """
        refuse_matrix(len(X))
        eigenvalues, vectors = np.linalg.eigh(self.cross(X, X))
        return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))

    def n_features(self, p: int) -> int | None:
        """Number k of features for p covariates, or None where they are as many as records."""
        return None

    def diagonal(self, X: Array) -> Array:
        """K(x, x) for the rows of X (n, p), (n,)."""
        return np.asarray(np.sum(np.square(self.features(X)), axis=1))

    @abc.abstractmethod
    def bound(self, features_bound: float) -> float:
        """Number C with ``|K| <= C`` over covariates of norm at most ``features_bound``."""

    def negative_within(self, features_bound: float) -> bool:
        """True if K may be negative over those covariates.

        That costs a factor in the stability bounds.
        """
        return self.signed

    def entry_error(self, features_bound: float, p: int) -> float:
        """Units of roundoff of ``sqrt(K_ii K_jj)`` by which an entry of K may be off.

        It holds for entries of ``cross`` and for those of the product F F' of features.

        Parameters
        ----------
        features_bound
            Norm bound of the covariates.
        p
            Their number.
        """
        return ENTRY_ERROR


@dataclass(frozen=True)
class _BandwidthKernel(Kernel):
    """A kernel of a bandwidth with K(x, x) = 1, hence C = 1.

    Parameters
    ----------
    bandwidth
        Public, in units of the scaled covariates.
    """

    bandwidth: float = setting(1.0, public_size)

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))

    def bound(self, features_bound: float) -> float:
        return 1.0

    def entry_error(self, features_bound: float, p: int) -> float:
        # A distance, or half of its square, of p terms over that of the bandwidth is off by p + 7
        # units of itself. That moves exp(-t) by as many times t exp(-t), which is below .37, and
        # the exponential function adds units of its own.
        return 0.5 * p + 20.0


@dataclass(frozen=True)
class Gaussian(_BandwidthKernel):
    """``exp(-||x - x'||^2 / (2 bandwidth^2))``; C = 1."""

    word = "gaussian"

    def cross(self, X: Array, Y: Array) -> Array:
        distances = scipy.spatial.distance.cdist(X, Y) / self.bandwidth
        return np.asarray(np.exp(-0.5 * np.square(distances)))


@dataclass(frozen=True)
class Laplace(_BandwidthKernel):
    """``exp(-||x - x'||_2 / bandwidth)``; C = 1."""

    word = "laplace"

    def cross(self, X: Array, Y: Array) -> Array:
        distances = scipy.spatial.distance.cdist(X, Y)
        return np.asarray(np.exp(-distances / self.bandwidth))


@dataclass(frozen=True)
class Linear(Kernel):
    """``offset + <x, x'>``, taken for one that may be negative; C = offset + M^2.

    Parameters
    ----------
    offset
        A public number of at least 0.
    """

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
    """``(1/D) sum_k cos(<omega_k, x - x'>)`` with D public frequencies.

    They are drawn from N(0, I / bandwidth^2). Its mean over seeds is the Gaussian kernel (Rahimi &
    Recht 2007), but bounds hold for it, not for that. The 2 D features are pairs of a cosine and a
    sine, so K(x, x) = 1; other entries may be negative.

    Parameters
    ----------
    frequencies
        Their number D.
    seed
        Public seed that they are drawn from.
    """

    frequencies: int = setting(100, whole_number, at_least=1, at_most=10_000)
    seed: int = setting(0, whole_number, at_least=0)

    signed = True
    word = "fourier"

    def n_features(self, p: int) -> int:
        return 2 * self.frequencies

    def features(self, X: Array) -> Array:
        angles = X @ self._omega(X.shape[1]).T
        pairs = np.hstack([np.cos(angles), np.sin(angles)])
        return np.asarray(pairs / np.sqrt(self.frequencies))

    def entry_error(self, features_bound: float, p: int) -> float:
        # an angle is off by the rounding of its inner product, which moves a pair along the circle
        # by as much
        longest = float(np.max(np.linalg.norm(self._omega(p), axis=1)))
        pair_error = (p + 2) * longest * features_bound + 8.0
        return 2.0 * pair_error + 2.0 * self.frequencies + 8.0

    def _omega(self, p: int) -> Array:
        """The frequencies omega (D, p)."""
        rng = np.random.default_rng([self.seed, self.frequencies, p])
        return np.asarray(rng.standard_normal((self.frequencies, p)) / self.bandwidth)


@dataclass(frozen=True)
class Energy(Kernel):
    """``||x|| + ||x'|| - ||x - x'||``, the kernel of the energy distance; C = 2 M.

    It is centered at the origin. It is positive semidefinite (Schoenberg 1938), and not negative by
    the triangle inequality. Over laws of equal mass its discrepancy is the energy distance
    ``2 E||X - Y|| - E||X - X'|| - E||Y - Y'||`` (Szekely & Rizzo 2013): the terms in ``||x||``
    cancel.
    """

    def cross(self, X: Array, Y: Array) -> Array:
        distances = scipy.spatial.distance.cdist(X, Y)
        X_norms = np.linalg.norm(X, axis=1)[:, None]
        Y_norms = np.linalg.norm(Y, axis=1)[None, :]
        longer = np.maximum(X_norms, Y_norms)
        shorter = np.minimum(X_norms, Y_norms)
        # With l the longer and s the shorter vector,
        #     ||l|| - ||l - s|| = (||l||^2 - ||l - s||^2) / (||l|| + ||l - s||)
        #                       = (2 <l, s> - ||s||^2) / (||l|| + ||l - s||),
        # without the cancellation that would swamp a short s.
        total = longer + distances
        difference = (2 * (X @ Y.T) - shorter**2) / np.where(total > 0, total, 1.0)
        return np.asarray(np.maximum(shorter + difference, 0.0))

    def diagonal(self, X: Array) -> Array:
        return np.asarray(2 * np.linalg.norm(X, axis=1))

    def bound(self, features_bound: float) -> float:
        return 2 * features_bound * ROUND_UP

    def entry_error(self, features_bound: float, p: int) -> float:
        # the fraction is wrong by 6 (p + 2) units of the shorter norm, and sqrt(K_ii K_jj) is twice
        # that norm
        return 4.0 * p + 64.0


#: What to do where a kernel needs too much memory.
FEW_FEATURES = "declare a kernel with few features (RandomFourier, Linear)"
#: Kernels that may be chosen: the bound of one of another type would be taken on trust.
CHOICES = (Gaussian, Laplace, Linear, RandomFourier)


def refuse_matrix(n_samples: int) -> None:
    """Raise DeclarationError where a Gram matrix and its copies do not fit into memory."""
    refuse_size(n_samples, n_samples, "a Gram matrix", FEW_FEATURES)


class PublicSample:
    """Raw covariates that are public: published microdata, or a simulated population.

    No guarantee covers them.

    Parameters
    ----------
    X
        The raw covariates (m, k), in the units of those of the records.

    Raises
    ------
    DeclarationError
        For anything but a matrix of finite numbers with a row.
    """

    def __init__(self, X: ArrayLike) -> None:
        try:
            rows = np.array(X, dtype=np.float64, ndmin=2)
        except (TypeError, ValueError):
            raise DeclarationError("public sample: must be a matrix of numbers") from None
        if rows.ndim != 2 or not rows.size or not np.all(np.isfinite(rows)):
            raise DeclarationError(
                "public sample: must be a matrix of finite numbers with at least one row"
            )
        rows.flags.writeable = False
        self.X: Array = rows
        self.digest = hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()

    def scaled(self, space: Space, p: int) -> Array:
        """Covariates (m, p) on the scale of those of records.

        Parameters
        ----------
        space
            The space of the records, which says how raw covariates are scaled.
        p
            Number of covariates of a record, the intercept excluded.

        Raises
        ------
        DeclarationError
            For another number of columns.
        """
        columns = self.X.shape[1]
        if columns != p:
            raise DeclarationError(f"target has {columns} columns, the records {p}")
        skipped = 1 if space.intercept else 0
        return space.features(self.X)[:, skipped:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicSample) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PublicSample({self.X.shape[0]} x {self.X.shape[1]}, sha256 {self.digest[:12]})"

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release: its size and its digest, not its rows."""
        return {"rows": self.X.shape[0], "columns": self.X.shape[1], "sha256": self.digest}


def declared_sample(name: str, value: object) -> PublicSample:
    """The value of a setting that is a public sample.

    Raises
    ------
    DeclarationError
        For anything else.
    """
    if not isinstance(value, PublicSample):
        raise DeclarationError(f"{name}: must be a PublicSample, or None for the treated records")
    return value
