"""What a look reads of records in one pass: sums, and a sample of them. For data holders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.dataset import Dataset, Public
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.tables import Table
from dp2erm_cvx.diagnostics.columns import RecordCounts, dataset_counts, record_counts
from dp2erm_cvx.diagnostics.look.relations import Values

#: Records of the sample in which relations between columns are looked at.
SAMPLE = 2**13
#: Fingerprints of records that are kept to find repeated ones.
_KEPT = 2**16
#: Records that tell whether a column numbers them.
_FIRST = 1000
#: Zeros that a fingerprint ends in at most.
_MOST_BITS = 40
#: Numbers beyond it count as it.
_LARGEST = 1e100
#: The odd constant of splitmix64.
_ODD = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class AskedAbout:
    """What a look has to know of a question.

    Parameters
    ----------
    public
        What is declared of the records.
    columns
        Covariates that are adjusted for; None for all.
    confounding
        The declared distance of the arms, in standard deviations of all records.
    propensity
        "estimated", or "constant" or "public" where nothing about it is estimated.
    advice
        What the first outcomes that count advise to declare; mostly nothing.
    """

    public: Public
    columns: tuple[str, ...] | None = None
    confounding: float = 1.0
    propensity: str = "estimated"
    advice: Callable[[Sequence[float]], str] = field(default=lambda values: "", compare=False)

    @cached_property
    def book(self) -> Codebook:
        """The codebook; an empty one where none is declared."""
        return self.public.codebook or Codebook()

    def ends(self, place: int) -> tuple[float, float] | None:
        """The declared range of the covariate of this number; None where there is none."""
        if isinstance(self.public, Domain):
            pairs = self.public.range_pairs
            return pairs[place] if pairs else None
        return self.public.declared_ends[place]

    @property
    def outcome_ends(self) -> tuple[float, float] | None:
        """The interval of the outcome of an untreated record; None where it is to be released."""
        if isinstance(self.public, Domain):
            center = self.public.outcome_center
            bound = self.public.outcome_bound
            return center - bound, center + bound
        return self.public.declared_ends[-1]


@dataclass(frozen=True)
class Sample:
    """Some of the records that count, drawn without regard to what they hold.

    Parameters
    ----------
    X, a, y
        (m, p), (m,) and (m,) as in :class:`~dp2erm_cvx.data.Dataset`, in their own units.
    person
        (m,) whose they are, where persons are units: all records of a person, or none.
    rank
        (m,) pseudorandom numbers, of which the smallest are kept.
    """

    X: NDArray[np.float64]
    a: NDArray[np.int64]
    y: NDArray[np.float64]
    person: NDArray[np.int64] | None
    rank: NDArray[np.uint64]

    def __add__(self, other: Sample) -> Sample:
        """A sample of the records of both."""
        person = None
        if self.person is not None and other.person is not None:
            person = np.concatenate([self.person, other.person])
        both = Sample(
            X=np.concatenate([self.X, other.X]),
            a=np.concatenate([self.a, other.a]),
            y=np.concatenate([self.y, other.y]),
            person=person,
            rank=np.concatenate([self.rank, other.rank]),
        )
        return both.smallest()

    def smallest(self) -> Sample:
        """The SAMPLE records of the smallest ranks, and those of the same person as the last."""
        if len(self.rank) <= SAMPLE:
            return self
        last = np.partition(self.rank, SAMPLE - 1)[SAMPLE - 1]
        rows = self.rank <= last
        person = None if self.person is None else self.person[rows]
        return Sample(self.X[rows], self.a[rows], self.y[rows], person, self.rank[rows])

    def within(self, largest: float) -> Sample:
        """The same records, with numbers clipped to a size, so that no sum of squares overflows."""
        X = np.clip(self.X, -largest, largest)
        return replace(self, X=X, y=np.clip(self.y, -largest, largest))

    @property
    def n(self) -> int:
        """Independent records: persons where they are units."""
        return len(self.a) if self.person is None else len(np.unique(self.person))


@dataclass(frozen=True)
class Fingerprints:
    """Fingerprints of the records that count, all of them or some.

    Equal records have equal ones: of those that are kept all copies are.

    Parameters
    ----------
    values
        (k,), in no order.
    bits
        Those are kept that end in so many zeros.
    """

    values: NDArray[np.uint64]
    bits: int = 0

    def __add__(self, other: Fingerprints) -> Fingerprints:
        """Those of the records of both."""
        bits = max(self.bits, other.bits)
        both = np.concatenate([_ending(self.values, bits), _ending(other.values, bits)])
        return self.thinned(both, bits)

    @classmethod
    def of(cls, columns: Sequence[NDArray[Any]]) -> Fingerprints:
        """Fingerprints of records by their columns (n,)."""
        total = np.zeros(len(columns[0]), dtype=np.uint64)
        for place, column in enumerate(columns):
            bits = (column.astype(np.float64) + 0.0).view(np.uint64)  # 0.0 and -0.0 are one number
            total += mixed(bits ^ np.uint64((place + 1) * _ODD % 2**64))
        return cls.thinned(mixed(total), 0)

    @classmethod
    def thinned(cls, values: NDArray[np.uint64], bits: int) -> Fingerprints:
        """As many of them as are kept, unless they are copies of a few."""
        while len(values) > 2 * _KEPT and bits < _MOST_BITS:
            bits += 1
            values = _ending(values, bits)
        return cls(values, bits)

    def copies(self) -> NDArray[np.int64]:
        """How often every record stands there."""
        _, times = np.unique(self.values, return_counts=True)
        return times


@dataclass(frozen=True)
class Seen:
    """What is read of records: add those of parts of a table.

    Parameters
    ----------
    counts
        What becomes of the cells.
    columns, treatment, outcome
        Names of the covariates, of the treatment and of the outcome.
    n_records
        Records that count.
    arms
        (K,) of them by arm; persons where they are units, ``persons`` says which.
    groups
        (G,) of them by group, where groups are declared.
    sample, fingerprints
        Of the records that count.
    persons
        (K, N) whether a person has a record in an arm that counts; None where records are units.
    written
        Whether the cells themselves were there to be read.
    """

    counts: RecordCounts
    columns: tuple[str, ...]
    treatment: str
    outcome: str
    n_records: int
    arms: NDArray[np.int64]
    groups: NDArray[np.int64]
    sample: Sample
    fingerprints: Fingerprints
    persons: NDArray[np.bool_] | None
    written: bool

    def __add__(self, other: Seen) -> Seen:
        """What is read of both parts."""
        persons = None
        if self.persons is not None and other.persons is not None:
            persons = self.persons | other.persons
        return replace(
            self,
            counts=self.counts + other.counts,
            n_records=self.n_records + other.n_records,
            arms=self.arms + other.arms if persons is None else persons.sum(axis=1),
            groups=self.groups + other.groups,
            sample=self.sample + other.sample,
            fingerprints=self.fingerprints + other.fingerprints,
            persons=persons,
        )


def _ending(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Those that end in so many zeros."""
    return np.asarray(values[values & np.uint64(2**bits - 1) == 0])


def seen_in(
    data: Dataset, public: Public, table: Table | None = None, first: int = 0, most: int = 0
) -> Seen:
    """What a look reads of records in memory.

    Parameters
    ----------
    data
        The records, or a block of them.
    public
        What is declared of them.
    table
        Their cells, where they are there.
    first
        The number of the first of them, if they are a block.
    most
        The number of rows whose cells are read, drawn at random; 0 for all.
    """
    counted = _counted(data)
    groups = np.zeros(0, dtype=np.int64)
    if data.sampling is not None and data.sampling.ndim == 2:
        groups = np.sum(data.sampling > 0.0, axis=0)
    arms = np.bincount(data.a[counted], minlength=data.n_arms)
    units: NDArray[np.int64] = np.arange(first, first + len(data.a))
    persons = None
    if data.person is not None:
        units = data.person
    if data.person is not None and data.persons is not None:
        counted &= data.person >= 0
        persons = np.zeros((data.n_arms, data.persons), dtype=np.bool_)
        persons[data.a[counted], data.person[counted]] = True
        arms = persons.sum(axis=1)
    rank = mixed(units.astype(np.uint64))
    # a slice takes no copy of the records
    rows: NDArray[np.int64] | slice = slice(None) if counted.all() else np.flatnonzero(counted)
    sample = _sample(data, rank, rows)
    columns = [*_no_numbers(data.X[rows], sample), data.a[rows], data.y[rows]]
    if table is None:
        counts = dataset_counts(data, public)
    else:
        counts = record_counts(_fewer(table, rank, most), public=public, columns=data.columns)
    return Seen(
        counts=counts,
        columns=data.columns,
        treatment=data.treatment,
        outcome=data.outcome,
        n_records=int(counted.sum()),
        arms=arms,
        groups=groups,
        sample=sample,
        fingerprints=Fingerprints.of(columns),
        persons=persons,
        written=table is not None,
    )


def _sample(data: Dataset, rank: NDArray[np.uint64], rows: NDArray[np.int64] | slice) -> Sample:
    """The rows of the smallest ranks, among these."""
    person = None if data.person is None else data.person[rows]
    sample = Sample(data.X[rows], data.a[rows], data.y[rows], person, rank[rows])
    return sample.smallest().within(_LARGEST)


def _counted(data: Dataset) -> NDArray[np.bool_]:
    """Which records (n,) count: those with a weight in any group."""
    n_rows = len(data.a)
    if data.sampling is None:
        return np.ones(n_rows, dtype=np.bool_)
    return np.asarray(np.sum(data.sampling.reshape(n_rows, -1), axis=1) > 0.0)


def _no_numbers(X: NDArray[np.float64], sample: Sample) -> list[NDArray[np.float64]]:
    """The columns (n,) of covariates but those that number the records."""
    first = sample.X[:_FIRST]
    kept = []
    for place in range(X.shape[1]):
        if not Values.of(first[:, place]).never_repeat:
            kept.append(X[:, place])
    return kept


def _fewer(table: Table, rank: NDArray[np.uint64], most: int) -> Table:
    """The rows of a table with the smallest ranks, at most as many; the table itself where 0."""
    if not most or len(rank) <= most:
        return table
    rows = np.sort(np.argpartition(rank, most)[:most])
    fewer = replace(table, column=lambda name: _rows(table.column(name), rows))
    written = table.written
    if written is None:
        return fewer
    return replace(fewer, written=lambda name: _rows(written(name), rows))


def _rows(cells: Any, rows: NDArray[np.intp]) -> Any:
    """Some rows of the cells of a column, which are a list or an array."""
    if isinstance(cells, list | tuple):
        return [cells[row] for row in rows.tolist()]
    return cells[rows]


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Pseudorandom numbers, each decided by its number alone (the mixer of splitmix64)."""
    mixing = numbers + np.uint64(_ODD)
    mixing = (mixing ^ (mixing >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixing = (mixing ^ (mixing >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixing ^ (mixing >> np.uint64(31)))
