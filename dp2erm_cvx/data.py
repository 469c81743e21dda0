"""Validated arrays (X, a, y) and their readers. Nothing is imputed, clipped or scaled here.

The messages of :class:`~dp2erm_cvx.errors.DataError` name rows, columns and values of the private data.
They are meant for the data holder and are outside the privacy guarantee: do not publish them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.errors import DataError
from dp2erm_cvx.tables import (
    Table,
    as_array,
    quoted,
    read_csv,
    read_frame,
    read_parquet,
    repeated,
    to_numbers,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Raw records: covariates, a binary treatment and a real outcome.

    Parameters
    ----------
    X
        (n, p) covariates in their own units, n >= 2, p >= 1; stored as read-only float64.
    a
        (n,) treatments in {0, 1}; booleans are accepted; stored as read-only int64.
    y
        (n,) outcomes; stored as read-only float64.
    columns
        The p distinct covariate names.
    treatment, outcome
        The names of ``a`` and ``y``.

    An arm without records is not an error. Raises :class:`~dp2erm_cvx.errors.DataError` naming the row
    (the first record is row 1) and the column of the first value that is missing, not finite or not a number.
    """

    X: NDArray[np.float64]
    a: NDArray[np.int64]
    y: NDArray[np.float64]
    columns: tuple[str, ...]
    treatment: str = "a"
    outcome: str = "y"

    def __post_init__(self) -> None:
        table, *vectors = (as_array(getattr(self, name), name) for name in "Xay")
        shapes = [value.shape for value in (table, *vectors)]
        for name, shape, dimensions in zip("Xay", shapes, (2, 1, 1), strict=True):
            if len(shape) != dimensions:
                wanted = "(n, p)" if dimensions == 2 else "(n,)"
                raise DataError(f"{name} has shape {shape}: must be {wanted}")
        n_samples, width = shapes[0]
        for name, shape in (("a", shapes[1]), ("y", shapes[2])):
            if shape[0] != n_samples:
                raise DataError(f"{name} has {shape[0]} values for the {n_samples} rows of X")
        columns = tuple(str(name) for name in self.columns)
        names = (*columns, str(self.treatment), str(self.outcome))
        if len(columns) != width:
            raise DataError(f"columns: {len(columns)} names for the {width} columns of X")
        if width == 0:
            raise DataError("X has no columns: at least one covariate is needed")
        if (twice := repeated(names)) is not None:
            raise DataError(f"column name {quoted(twice)} is used twice: names must differ")
        if n_samples < 2:
            raise DataError(f"{n_samples} record(s): at least 2 are needed")

        X = np.column_stack([to_numbers(table[:, k], name) for k, name in enumerate(columns)])
        a = _treatments(to_numbers(vectors[0], names[-2]), names[-2])
        y = to_numbers(vectors[1], names[-1])
        for field, value in (("X", X), ("a", a), ("y", y)):
            value.setflags(write=False)
            object.__setattr__(self, field, value)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "treatment", names[-2])
        object.__setattr__(self, "outcome", names[-1])

    def __repr__(self) -> str:
        # no values: a repr ends up in logs
        return f"Dataset(n_samples={self.n_samples}, columns={self.columns})"

    @property
    def n_samples(self) -> int:
        """Number of records."""
        return len(self.a)

    @classmethod
    def from_arrays(
        cls, X: ArrayLike, a: ArrayLike, y: ArrayLike, columns: Sequence[str] | None = None
    ) -> Dataset:
        """Build a dataset from (n, p), (n,) and (n,) arrays.

        Without ``columns``, the names are those of ``X`` if it is a data frame, and x1, ..., xp if not.
        """
        table = as_array(X, "X")
        if columns is None:
            columns = getattr(X, "columns", None)
        if columns is None:
            columns = [f"x{k + 1}" for k in range(table.shape[1] if table.ndim == 2 else 0)]
        return cls(table, as_array(a, "a"), as_array(y, "y"), tuple(columns))

    @classmethod
    def from_pandas(
        cls, frame: pd.DataFrame, *, treatment: str, outcome: str, covariates: Sequence[str] | None = None
    ) -> Dataset:
        """Build a dataset from a data frame; without ``covariates``, every other column is one."""
        return cls._from_table(read_frame(frame), treatment, outcome, covariates)

    @classmethod
    def from_csv(
        cls, path: str | Path, *, treatment: str, outcome: str, covariates: Sequence[str] | None = None
    ) -> Dataset:
        """Read a UTF-8 CSV file with commas and one header line; ``true`` and ``false`` count as 1 and 0."""
        return cls._from_table(read_csv(path), treatment, outcome, covariates)

    @classmethod
    def from_parquet(
        cls, path: str | Path, *, treatment: str, outcome: str, covariates: Sequence[str] | None = None
    ) -> Dataset:
        """Read a Parquet file; needs the extra ``data``."""
        return cls._from_table(read_parquet(path), treatment, outcome, covariates)

    @classmethod
    def _from_table(
        cls, table: Table, treatment: str, outcome: str, covariates: Sequence[str] | None
    ) -> Dataset:
        if isinstance(covariates, str):
            raise DataError(f"covariates = {covariates!r}: must be a list of column names")
        if covariates is None:
            covariates = [name for name in table.names if name not in (treatment, outcome)]
        values: dict[str, Any] = {name: table.numbers(name) for name in (treatment, outcome, *covariates)}
        if not covariates:
            raise DataError(f"{table.source} has no column besides the treatment and the outcome")
        X = np.column_stack([values[name] for name in covariates])
        return cls(X, values[treatment], values[outcome], tuple(covariates), treatment, outcome)


def _treatments(values: NDArray[np.float64], name: str) -> NDArray[np.int64]:
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if wrong.size:
        row, value = wrong[0] + 1, values[wrong[0]]
        raise DataError(f"row {row}, column {quoted(name)}: {value:g} is not a treatment: must be 0 or 1")
    return values.astype(np.int64)
