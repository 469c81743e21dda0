"""Balance functions g(x)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, public_size, setting, whole_number
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import clip_norm
from dp2erm_cvx.display import number_or_text
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.program.reach import Called


@dataclass(frozen=True)
class Moments:
    """Raw moments ``(x, x^2, ..., x^degree)`` of every scaled covariate, without cross products.

    Parameters
    ----------
    degree
        The largest power of a covariate that is balanced, 1 to 10.
    """

    degree: int = setting(1, whole_number, at_least=1, at_most=10)

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def from_text(cls, text: str) -> Moments:
        """``2`` or ``moments:2``: the degree. Raises DeclarationError."""
        return cls(number_or_text(text.strip().lower().removeprefix("moments:")))  # type: ignore[arg-type]

    def bound(self, features_bound: float) -> float:
        """Norm bound over the ball: ``sqrt(sum_k M^(2k))``.

        It holds because sum_j x_j^(2k) <= ||x||^(2k).
        """
        try:
            return math.sqrt(
                math.fsum(features_bound ** (2 * k) for k in range(1, self.degree + 1))
            )
        except OverflowError:
            raise DeclarationError(
                f"degree = {self.degree}: moments of covariates up to {features_bound:g} are out "
                "of floating-point range"
            ) from None

    def size(self, n_features: int) -> int:
        """The number of functions of records with ``n_features`` covariates."""
        return n_features * self.degree

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, p * degree)."""
        return X if self.degree == 1 else np.hstack([X**k for k in range(1, self.degree + 1)])

    def names(self, records: Records) -> tuple[str, ...]:
        """A name for every function: those of the covariates where the space has them."""
        columns = records.space.columns or tuple(
            f"x{k + 1}" for k in range(records.covariates.shape[1])
        )
        powers = ("", *(f"^{k}" for k in range(2, self.degree + 1)))
        return tuple(name + power for power in powers for name in columns)

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"moments": self.degree}


@dataclass(frozen=True)
class Landmarks:
    """Gaussian kernels at public points: ``(k(x, l_j) - 1/2) / sqrt(count)``.

    The points are drawn by a public seed.

    Less a half their norm is at most 1/2, while differences of records are those of the kernels
    themselves.

    Parameters
    ----------
    count
        The number of points, 1 to 10,000.
    bandwidth
        That of the kernels ``exp(-||x - l||^2 / (2 bandwidth^2))``, in units of the scaled
        covariates.
    reach
        Every coordinate of a point is uniform between minus this and this.
    seed
        Public seed of the points.
    """

    count: int = setting(20, whole_number, at_least=1, at_most=10_000)
    bandwidth: float = setting(1.0, public_size)
    reach: float = setting(1.0, public_size)
    seed: int = setting(0, whole_number, at_least=0)

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def from_text(cls, text: str) -> Landmarks:
        """``landmarks:COUNT:BANDWIDTH:REACH:SEED``, of which the last may be left out.

        Raises DeclarationError.
        """
        numbers = text.strip().lower().split(":")[1:]
        names = ("count", "bandwidth", "reach", "seed")
        if len(numbers) > len(names):
            raise DeclarationError(
                f"balance = {text!r}: must be landmarks:COUNT:BANDWIDTH:REACH:SEED"
            )
        settings: dict[str, Any] = dict(zip(names, map(number_or_text, numbers), strict=False))
        return cls(**settings)

    def bound(self, features_bound: float) -> float:
        """Norm bound 1/2: every entry is at most half of ``1/sqrt(count)`` in size."""
        return 0.5

    def size(self, n_features: int) -> int:
        """The number of points."""
        return self.count

    def points(self, n_features: int) -> Array:
        """The points (count, p), public."""
        rng = np.random.default_rng([self.seed, self.count, n_features])
        return np.asarray(rng.uniform(-self.reach, self.reach, (self.count, n_features)))

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, count), each row by itself."""
        squares = scipy.spatial.distance.cdist(X, self.points(X.shape[1]), "sqeuclidean")
        kernels = np.exp(-squares / (2.0 * self.bandwidth**2))
        return np.asarray((kernels - 0.5) / math.sqrt(self.count))

    def names(self, records: Records) -> tuple[str, ...]:
        """A name for every point."""
        return tuple(f"landmark {j + 1}" for j in range(self.count))


def one_by_one(
    name: str, make: Callable[..., Any], table: Sequence[tuple[Any, ...]], k: int
) -> Array:
    """Values (n, k) of ``make`` at every record of a table: 0 where it fails or has another size.

    Each is asked for alone and twice. Raises DataError (for the data holder) where a record has
    other values when it is asked for in another order: the function then remembers other records.
    """

    def of(record: tuple[Any, ...]) -> Array:
        with suppress(Exception):
            if len(values := _alone(make, record)) == k:
                return values
        return np.zeros(k)

    # once for all rows: number by number it takes longer than most functions do
    rows: Array = np.nan_to_num(np.array([of(record) for record in table]).reshape(len(table), k))
    again = np.nan_to_num(
        np.array([of(record) for record in table[::-1]]).reshape(len(table), k)[::-1]
    )
    if not np.array_equal(rows, again):
        raise DataError(
            f"{name} gives one record two different values: it must depend on that record alone"
        )
    return rows


def _alone(make: Callable[..., Any], record: tuple[Any, ...]) -> Array:
    # a copy, because a function that writes into its argument would move the record out of the
    # universe
    x, *rest = record
    values: Array = np.asarray(make(x.copy(), *rest), dtype=np.float64).ravel()
    return values


@dataclass(frozen=True)
class BalanceFunctions:
    """The user's own ``function`` of one covariate vector (p,) -> (k,).

    Values are shrunk radially to ``norm_bound``.

    It sees a copy of one record at a time and must depend on nothing else; the bound is enforced,
    and a record for which it fails gets zeros: a fixed rule, not a refusal. Beside its argument it
    reaches numbers, texts and functions alone; ``called`` holds which. Raises DeclarationError for
    anything else.
    """

    function: Callable[[Array], Array]
    norm_bound: float = setting(check=public_size)
    name: str = "custom"
    called: Called = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "called", Called.of(self.name, self.function))
        check_settings(self)

    def bound(self, features_bound: float) -> float:
        """The declared norm bound."""
        return self.norm_bound

    def size(self, n_features: int) -> int:
        """k, read off at the origin and so public.

        Raises DeclarationError where the function fails.
        """
        try:
            return len(_alone(self.function, (np.zeros(n_features),)))
        except Exception as error:
            raise DeclarationError(
                f"balance function {self.name!r} fails at the origin: {type(error).__name__}"
            ) from None

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, k), k read off at the origin.

        Raises DeclarationError where the function fails at the origin, and DataError as
        :func:`one_by_one`.
        """
        function = self.called.unchanged()
        table = [(row,) for row in X]
        rows = one_by_one(f"balance function {self.name!r}", function, table, self.size(X.shape[1]))
        return clip_norm(rows, self.norm_bound)

    def names(self, records: Records) -> tuple[str, ...]:
        """A name for every function."""
        return tuple(f"{self.name}[{j}]" for j in range(self(records.covariates[:1]).shape[1]))

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        reaches = self.called.stated()
        return {"custom": self.name, "norm_bound": self.norm_bound, **reaches}


#: What a program balances.
Balance = Moments | Landmarks | BalanceFunctions
#: The classes of these: the bound of one of another class would be taken on trust.
BALANCES = (Moments, Landmarks, BalanceFunctions)


def balance_from_text(text: str) -> Balance:
    """Moments or landmarks as a study writes them: ``2``, ``moments:2``, ``landmarks:20:1.0``.

    Raises DeclarationError.
    """
    if text.strip().lower().startswith("landmarks"):
        return Landmarks.from_text(text)
    return Moments.from_text(text)
