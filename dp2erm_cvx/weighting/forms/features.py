"""Features of one record that imbalances are made of, each with the public set that it lies in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records


class KernelOfRecords(Protocol):
    """A positive semidefinite kernel on scaled covariates, which features are known through."""

    def cross(self, X: Array, Y: Array) -> Array:
        """K(x, y) for the rows of X (n, p) and of Y (m, p), (n, m)."""

    def diagonal(self, X: Array) -> Array:
        """K(x, x) for the rows of X (n, p), (n,)."""

    def features(self, X: Array) -> Array:
        """F (n, k) with ``K = F F'`` for the rows of X (n, p)."""

    def n_features(self, p: int) -> int | None:
        """K for p covariates, or None where features are as many as records."""

    def entry_error(self, features_bound: float, p: int) -> float:
        """Units of roundoff of ``sqrt(K_ii K_jj)`` by which an entry may be off.

        An entry may be one of a product F F'.
        """


@dataclass(frozen=True)
class ConstantSet:
    """The single number 1."""


@dataclass(frozen=True)
class BallSet:
    """Vectors of Euclidean norm at most ``radius``."""

    radius: float


@dataclass(frozen=True)
class IntervalSet:
    """Numbers from ``low`` to ``high``."""

    low: float
    high: float


@dataclass(frozen=True)
class SimilaritySet:
    """Vectors that are known by their inner products alone.

    Features of a kernel and unit vectors are examples.

    Parameters
    ----------
    bound
        Number C with ``|<phi, phi'>| <= C`` for any two records.
    signed
        Whether the inner product of two records may be negative.
    """

    bound: float
    signed: bool


#: The public set of a feature.
PublicSet = ConstantSet | BallSet | IntervalSet | SimilaritySet


@dataclass(frozen=True)
class Features:
    """A vector ``phi`` of every record, which depends on that record alone.

    Two features are the same where name, set and width are: a form never holds two of one name.

    Parameters
    ----------
    name
        What it is called in messages, such as ``covariates``.
    within
        The public set of the vector of one record; ``of`` maps every record into it.
    width
        Number of its entries; of a kernel the number of entries that a problem is read with.
    of
        The vectors (n, width) of records; None for a kernel.
    kernel
        The kernel that the inner products of two records are; None for vectors.
    points
        Public points (m, p) on the scale of the covariates, the mean of whose features may be a
        target of a kernel; else None. Vectors of public points are numbers.
    labels
        Names of the entries, of records whose domain names covariates; None for numbered ones.
    """

    name: str
    within: PublicSet
    width: int
    of: Callable[[Records], Array] | None = field(default=None, compare=False, repr=False)
    kernel: KernelOfRecords | None = field(default=None, compare=False, repr=False)
    points: Array | None = field(default=None, compare=False, repr=False)
    labels: Callable[[Records], tuple[str, ...]] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def name_at_points(self) -> str:
        """Name of the features of the public points, among those of records."""
        return f"{self.name} at public points"
