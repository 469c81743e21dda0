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

    ``X`` is (n, p) with row norms at most ``space.covariate_bound`` (its first column is the
    intercept where the space has one), ``a`` is (n,) in {0, 1}, ``y`` is (n,) and already
    centered, so ``|y| <= space.outcome_bound``. ``sampling`` (n,) holds sampling weights over their
    bound, in [0, 1]; (n, K) in K groups, all 0 but one; None where all records count alike.
    ``unit`` (n,) is the person of every row where those are units, whose rows then count at most 1
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
        for name in self._held:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __repr__(self) -> str:
        # the records are private
        return f"Records(n_samples={self.n_samples})"

    @property
    def _held(self) -> tuple[str, ...]:
        return (
            "X",
            "a",
            "y",
            *(name for name in ("sampling", "unit") if getattr(self, name) is not None),
        )

    @classmethod
    def of(cls, space: Space, arrays: Sequence[NDArray[Any]]) -> Records:
        """Records of :attr:`arrays`."""
        X, a, y, *optional = arrays
        return cls(X, a, y, space, *optional)

    @classmethod
    def within(cls, space: Space, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Records:
        """Records clipped into a space.

        They have covariates X (n, k), arms a (n,) and net outcomes y (n,).
        """
        arm = np.asarray(a, dtype=np.int64)
        outcome = np.clip(
            np.asarray(y, dtype=np.float64), -space.outcome_bound, space.outcome_bound
        )
        return cls(space.features(X), arm, outcome, space)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """X, a and y, and ``sampling`` and ``unit`` where there are any."""
        return tuple(getattr(self, name) for name in self._held)

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
        grouped = self.sampling is not None and self.sampling.ndim == 2
        return self.sampling if grouped else self.counts[:, None]  # type: ignore[return-value]

    @property
    def covariates(self) -> Array:
        """The (n, p) covariates without the intercept column."""
        return self.X[:, 1:] if self.space.intercept else self.X

    @property
    def blocks(self) -> Blocks[Records]:
        """Views of these records."""
        arrays = self.arrays
        return views(
            len(self.a), lambda rows: Records.of(self.space, [one[rows] for one in arrays])
        )

    def by_units(self, function: Callable[[Records], T]) -> list[T]:
        """One result of ``function`` for every block, from which sums over units are made.

        Blocks are views of these records; where persons are units, all rows are one block.
        """
        return self.blocks.map(function) if self.unit is None else [function(self)]

    def by_unit(self, *columns: Array) -> tuple[Array, ...]:
        """Sums (N,) of ``columns`` (n,) over the rows of every unit.

        They are these columns where rows are units.
        """
        if self.unit is None:
            return columns
        sums = (np.bincount(self.unit, part, self.n_samples) for part in columns)
        return tuple(part.astype(np.float64, copy=False) for part in sums)

    def mapped(self, make: Make, outcomes: NumbersOf, space: Space, n_columns: int) -> Records:
        """Records that ``make`` makes of each record and its ``outcomes`` (n,).

        They have n_columns columns and lie in ``space``.

        Outcomes are held.
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
        rows = self.blocks.map(partial(_found, index=index), range(self.n_rows))
        places, *parts = (np.concatenate(part) for part in zip(*rows, strict=True))
        order = np.argsort(places)  # of all places, each once
        return Records.of(self.space, [part[order] for part in parts])

    def replaced(self, index: int, X: Array, a: int, numbers: range | None = None) -> Records:
        """The neighbor in which record ``index`` has covariates X (p,) and treatment a.

        These are the records ``numbers``, or all of them.
        """
        self._refuse_units()
        numbers = range(self.n_rows) if numbers is None else numbers
        if index not in numbers:
            return self
        rows, arms = self.X.copy(), self.a.copy()
        rows[index - numbers.start], arms[index - numbers.start] = X, a
        return replace(self, X=rows, a=arms)

    def _refuse_units(self) -> None:
        if self.space.units is not None:
            raise DeclarationError(
                "unit: a neighbor replaces all records of a person, not one record"
            )

    def rows(self, function: Callable[[Records], T]) -> Blocks[T]:
        """``function`` of every record by itself.

        It is held, or for many records computed in every pass.
        """
        n = self.n_rows
        return whole(function(self), n) if n <= VIEW else self.blocks.then(function)


def cleaned(values: Array, bound: float | Array) -> Array:
    """``values`` clipped to ``[-bound, bound]``; what is no number counts as 0."""
    return np.asarray(np.clip(np.where(np.isnan(values), 0.0, values), -bound, bound))


def _found(block: Records, numbers: range, *, index: NDArray[np.int64]) -> tuple[Any, ...]:
    here = np.flatnonzero((index >= numbers.start) & (index < numbers.stop))
    return here, *(one[index[here] - numbers.start] for one in block.arrays)
