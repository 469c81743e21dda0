"""Records inside a space, held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.blocks import VIEW, Beside, Blocks, constant, views, whole
from dp2erm_cvx.data.counts import total_counts
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError

T = TypeVar("T")
#: A number (n,) of every record by itself.
NumbersOf = Callable[["Records"], Array]
#: Other records, each made of one by itself.
Make = Callable[["Records"], "Records"]


@dataclass(frozen=True)
class Records:
    """Records inside a space: what both stages compute on.

    Parameters
    ----------
    X
        (n, p) covariates with row norms at most ``space.covariate_bound``. The first column is the
        intercept where the space has one.
    a
        (n,) arms: 0 or 1, or their numbers from 0 on.
    y
        (n,) outcomes, centered, so that ``|y| <= space.outcome_bound``.
    space
        The space.
    sampling
        (n,) sampling weights over their bound, in [0, 1]; (n, K) in K groups, all 0 but one; None
        where all records count alike.
    unit
        (n,) the person of every row where those are units, whose rows then count at most 1
        together.
    """

    X: Array
    a: NDArray[np.int64]
    y: Array
    space: Space
    sampling: Array | None = None
    unit: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if (self.unit is None) is not (self.space.units is None):
            raise ValueError(
                "unit: records of persons come with the person of every row, others without"
            )
        # whatever reads records must not be able to move them out of the universe
        for name in self._array_names:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __repr__(self) -> str:
        # the records are private
        return f"Records(n_samples={self.n_samples})"

    @property
    def _array_names(self) -> tuple[str, ...]:
        optional = [name for name in ("sampling", "unit") if getattr(self, name) is not None]
        return ("X", "a", "y", *optional)

    @classmethod
    def of(cls, space: Space, arrays: Sequence[NDArray[Any]]) -> Records:
        """Records of :attr:`arrays`."""
        X, a, y, *optional = arrays
        return cls(X, a, y, space, *optional)

    @classmethod
    def within(cls, space: Space, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Records:
        """Records clipped into a space.

        Parameters
        ----------
        space
            The space.
        X, a, y
            Raw covariates (n, k), arms (n,) and net outcomes (n,).
        """
        arms = np.asarray(a, dtype=np.int64)
        outcomes = np.asarray(y, dtype=np.float64)
        clipped = np.clip(outcomes, -space.outcome_bound, space.outcome_bound)
        return cls(space.features(X), arms, clipped, space)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """X, a and y, and ``sampling`` and ``unit`` where there are any."""
        return tuple(getattr(self, name) for name in self._array_names)

    @property
    def n_samples(self) -> int:
        """n: the number of records, which is public; of persons, where they are units."""
        return self.space.units or self.n_rows

    @property
    def n_rows(self) -> int:
        """Number of rows: private where persons are units."""
        return self.blocks.n_samples

    @property
    def n_features(self) -> int:
        """Number of covariates without the intercept."""
        return int(self.X.shape[1]) - (1 if self.space.intercept else 0)

    @property
    def counts(self) -> Array:
        """Weight of every record (n,), in [0, 1]: its sampling weight over the bound, or 1."""
        if self.sampling is None:
            return np.ones(self.n_rows)
        return total_counts(self.sampling)

    @property
    def group_counts(self) -> Array:
        """Weight of every record by group (n, K), 0 in all but one; (n, 1) without groups."""
        if self.sampling is not None and self.sampling.ndim == 2:
            return self.sampling
        return self.counts[:, None]

    @property
    def covariates(self) -> Array:
        """The (n, p) covariates without the intercept column."""
        return self.X[:, 1:] if self.space.intercept else self.X

    @property
    def blocks(self) -> Blocks[Records]:
        """Views of these records."""
        arrays = self.arrays

        def view(rows: slice) -> Records:
            return Records.of(self.space, [array[rows] for array in arrays])

        return views(len(self.a), view)

    def by_units(self, function: Callable[[Records], T]) -> list[T]:
        """One result of ``function`` for every block, from which sums over units are made.

        Blocks are views of these records; where persons are units, all rows are one block.
        """
        if self.unit is None:
            return self.blocks.map(function)
        return [function(self)]

    def by_unit(self, *columns: Array) -> tuple[Array, ...]:
        """Sums (N,) of ``columns`` (n,) over the rows of every unit.

        They are these columns where rows are units.
        """
        if self.unit is None:
            return columns
        sums = []
        for column in columns:
            total = np.bincount(self.unit, column, self.n_samples)
            sums.append(total.astype(np.float64, copy=False))
        return tuple(sums)

    def mapped(self, make: Make, outcomes: NumbersOf, space: Space, n_columns: int) -> Records:
        """Records that a map makes of each of these, which are held in memory.

        Parameters
        ----------
        make
            Makes records of these, once their outcomes are new.
        outcomes
            The new outcomes (n,), of each record by itself.
        space
            The space that the new records lie in.
        n_columns
            Number of their columns.
        """
        return make(replace(self, y=self.each(outcomes)))

    def column(self, function: Callable[[Records], Array]) -> Beside:
        """The same numbers as of :meth:`each`, kept where the records are."""
        return self.each(function)

    def each(self, function: Callable[[Records], Array]) -> Array:
        """The numbers (n,) that ``function`` makes of every record by itself: read-only."""
        return constant(np.concatenate(self.rows(function).each()))

    def at(self, index: NDArray[np.int64]) -> Records:
        """The records ``index`` (m,), in this order and in memory: one pass over all of them."""
        self._refuse_units()
        rows = self.blocks.map(partial(_rows_at, index=index), range(self.n_rows))
        places, *arrays = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
        order = np.argsort(places)  # of all places, each once
        return Records.of(self.space, [array[order] for array in arrays])

    def replaced(self, index: int, X: Array, a: int, numbers: range | None = None) -> Records:
        """The neighbor in which one record has other covariates and another arm.

        Parameters
        ----------
        index
            Number of the record.
        X, a
            Its covariates (p,) and its arm.
        numbers
            Numbers of these records, where they are not all of them.
        """
        self._refuse_units()
        if numbers is None:
            numbers = range(self.n_rows)
        if index not in numbers:
            return self
        row = index - numbers.start
        covariates = self.X.copy()
        covariates[row] = X
        arms = self.a.copy()
        arms[row] = a
        return replace(self, X=covariates, a=arms)

    def _refuse_units(self) -> None:
        """Raise DeclarationError where persons are units."""
        if self.space.units is not None:
            raise DeclarationError(
                "unit: a neighbor replaces all records of a person, not one record"
            )

    def rows(self, function: Callable[[Records], T]) -> Blocks[T]:
        """``function`` of every record by itself, computed in every pass unless records are few."""
        if self.n_rows <= VIEW:
            return whole(function(self), self.n_rows)
        return self.blocks.then(function)


def cleaned(values: Array, bound: float | Array) -> Array:
    """``values`` clipped to ``[-bound, bound]``; what is no number counts as 0."""
    return np.asarray(np.clip(np.where(np.isnan(values), 0.0, values), -bound, bound))


def _rows_at(block: Records, numbers: range, *, index: NDArray[np.int64]) -> tuple[Any, ...]:
    """The places in ``index`` of the records of a block, and what its arrays hold of these."""
    places = np.flatnonzero((index >= numbers.start) & (index < numbers.stop))
    rows = index[places] - numbers.start
    return (places, *(array[rows] for array in block.arrays))
