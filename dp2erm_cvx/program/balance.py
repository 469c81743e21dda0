"""Balance functions g(x): functions of covariates whose means weights make alike in both arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
        """``2`` or ``moments:2``: the degree.

        Raises
        ------
        DeclarationError
            For any other text.
        """
        degree: Any = number_or_text(text.strip().lower().removeprefix("moments:"))
        return cls(degree)

    def bound(self, features_bound: float) -> float:
        """Norm bound over the ball of radius M: ``sqrt(sum_k M^(2k))``.

        It holds because sum_j x_j^(2k) <= ||x||^(2k).

        Raises
        ------
        DeclarationError
            Where that overflows.
        """
        try:
            squares = [features_bound ** (2 * k) for k in self._powers]
            return math.sqrt(math.fsum(squares))
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
        if self.degree == 1:
            return X
        return np.hstack([X**k for k in self._powers])

    def names(self, records: Records) -> tuple[str, ...]:
        """A name for every function: those of the covariates where the space has them."""
        columns = records.space.columns
        if not columns:
            columns = tuple(f"x{j + 1}" for j in range(records.covariates.shape[1]))
        names: list[str] = []
        for k in self._powers:
            power = "" if k == 1 else f"^{k}"
            names += [column + power for column in columns]
        return tuple(names)

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"moments": self.degree}

    @property
    def _powers(self) -> range:
        """Powers k of a covariate that are balanced."""
        return range(1, self.degree + 1)


@dataclass(frozen=True)
class Landmarks:
    """Gaussian kernels at public points l_j: ``(k(x, l_j) - 1/2) / sqrt(count)``.

    The points are drawn by a public seed. Kernels lie between 0 and 1; with a half subtracted, the
    norm of all functions together is at most 1/2, and differences of records stay as they are.

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
        """``landmarks:COUNT:BANDWIDTH:REACH:SEED``, of which the last ones may be left out.

        Raises
        ------
        DeclarationError
            For any other text.
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
    """Values of a function at every record of a table, each of which is asked for alone and twice.

    Parameters
    ----------
    name
        What messages call the function.
    make
        The author's function of one record.
    table
        The n records: the arguments of the function, the covariates (p,) first.
    k
        Number of its values.

    Returns
    -------
    Array
        (n, k); 0 for a record where the function fails or has another number of values.

    Raises
    ------
    DataError
        For the data holder, where a record has other values when the records are asked for in
        another order: the function then remembers other records.
    """
    rows = _rows_of(make, table, k)
    backward = _rows_of(make, table[::-1], k)
    if not np.array_equal(rows, backward[::-1]):
        raise DataError(
            f"{name} gives one record two different values: it must depend on that record alone"
        )
    return rows


def _rows_of(make: Callable[..., Any], table: Sequence[tuple[Any, ...]], k: int) -> Array:
    """Values (n, k) of a function at the records of a table, asked for in this order."""
    values = np.array([_values_or_zeros(make, record, k) for record in table])
    # once for all rows: number by number it takes longer than most functions do
    rows: Array = np.nan_to_num(values.reshape(len(table), k))
    return rows


def _values_or_zeros(make: Callable[..., Any], record: tuple[Any, ...], k: int) -> Array:
    """Values (k,) of a function at a record; 0 where it fails or has another number of values."""
    try:
        values = _values_of(make, record)
    except Exception:
        return np.zeros(k)
    return values if len(values) == k else np.zeros(k)


def _values_of(make: Callable[..., Any], record: tuple[Any, ...]) -> Array:
    """Values of a function at a record, as many as it has."""
    # a copy, because a function that writes into its argument would move the record out of the
    # universe
    x, *others = record
    values: Array = np.asarray(make(x.copy(), *others), dtype=np.float64).ravel()
    return values


@dataclass(frozen=True)
class BalanceFunctions:
    """Balance functions of the user's own: one function of the covariates of one record.

    It sees a copy of one record at a time and must depend on nothing else. The bound is enforced,
    and a record for which it fails gets zeros: a fixed rule, not a refusal.

    Parameters
    ----------
    function
        Takes the scaled covariates (p,) of a record and returns k numbers.
    norm_bound
        Values (k,) are shrunk radially to this norm.
    name
        What messages and releases call it.
    called
        What the function reaches beside its argument: numbers, texts and functions alone.

    Raises
    ------
    DeclarationError
        Where it reaches anything else.
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
        """The number k of values, read off at the origin and so public.

        Raises
        ------
        DeclarationError
            Where the function fails there.
        """
        try:
            return len(_values_of(self.function, (np.zeros(n_features),)))
        except Exception as error:
            raise DeclarationError(
                f"balance function {self.name!r} fails at the origin: {type(error).__name__}"
            ) from None

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, k), k read off at the origin.

        Raises
        ------
        DeclarationError
            Where the function fails at the origin.
        DataError
            Where it remembers other records, as of :func:`one_by_one`.
        """
        function = self.called.unchanged()
        table = [(row,) for row in X]
        rows = one_by_one(f"balance function {self.name!r}", function, table, self.size(X.shape[1]))
        return clip_norm(rows, self.norm_bound)

    def names(self, records: Records) -> tuple[str, ...]:
        """A name for every value of the function."""
        n_values = self(records.covariates[:1]).shape[1]
        return tuple(f"{self.name}[{j}]" for j in range(n_values))

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

    Raises
    ------
    DeclarationError
        For any other text.
    """
    if text.strip().lower().startswith("landmarks"):
        return Landmarks.from_text(text)
    return Moments.from_text(text)
