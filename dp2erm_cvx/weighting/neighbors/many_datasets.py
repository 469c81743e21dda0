"""Many datasets of one form that are solved together.

The classes are what their steps and their claims ask of them.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, fields
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.inverse_slope import InverseSlope
from dp2erm_cvx.weighting.forms.form import Arms, SumKind, WeightingForm
from dp2erm_cvx.weighting.forms.proximal import PricedColumns

#: Block of a record whose weight has no sum.
OUTSIDE = -1
#: Relative distance of a sum to the ends of what boxes hold, below which a dataset is left alone.
MARGIN = 1e-12

#: Numbers of records, of datasets or of blocks.
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class DatasetsPart:
    """Some m datasets, whose k weights each are solved for.

    Parameters
    ----------
    targets, target_errors
        Sum of targets and shift (m, K), and bounds of their rounding.
    totals
        Sums of the blocks (m, B).
    low, cap
        Ends of the boxes of all weights (m, k).
    base
        Base weights (m, k); of no columns where the form has none.
    feasible
        Whether the boxes hold the sums by more than rounding (m,).
    """

    targets: Array
    target_errors: Array
    totals: Array
    low: Array
    cap: Array
    base: Array
    feasible: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.totals)

    def take(self, chosen: NDArray[np.bool_] | Numbers) -> Self:
        """Those datasets alone."""
        return type(self)(**{part.name: getattr(self, part.name)[chosen] for part in fields(self)})


Part = TypeVar("Part", bound=DatasetsPart)


class ManyDatasets(abc.ABC, Generic[Part]):
    """Datasets of one form with the same number n of records.

    Parameters
    ----------
    form
        The form.
    priced
        Its imbalances by their columns.
    """

    def __init__(self, form: WeightingForm, priced: tuple[PricedColumns, ...]) -> None:
        self.form = form
        self.n = form.n
        self.priced = priced
        #: Number of columns of vectors; those of features of kernels follow.
        self.vector_columns = max((one.columns.stop for one in priced), default=0)
        self.n_blocks = 1 if form.sums.kind in _OF_ONE_BLOCK else 2
        #: Smoothness (K,) of the price of every column; infinite for kinks and constraints.
        self.smoothness: Array = np.ones(self.vector_columns)
        for one in priced:
            self.smoothness[one.columns] = one.penalty.smoothness
        #: Roots of it (K,), 0 at kinks.
        self.scale: Array = np.sqrt(np.where(np.isfinite(self.smoothness), self.smoothness, 0.0))

    def curve(self, part: Part) -> InverseSlope:
        """Inverse slopes of the weights of all datasets, one dataset after the other."""
        base = part.base.ravel() if part.base.size else None
        return InverseSlope(self.form.dispersion, part.low.ravel(), part.cap.ravel(), base)

    @property
    @abc.abstractmethod
    def reached_units(self) -> float:
        """Units of roundoff, of the sizes beside them, that :meth:`reached` is off by."""

    @property
    @abc.abstractmethod
    def summed_units(self) -> float:
        """Units of roundoff, of the sum of sizes, that :meth:`sums` are off by."""

    @abc.abstractmethod
    def argument_sizes(self, prices: Array, multipliers: Array, part: Part) -> Array:
        """Sums (m, k) of the sizes of all terms of an argument."""

    @abc.abstractmethod
    def price_errors(self, weights: Array, part: Part) -> Array | float:
        """Bounds (m, 1) of how far prices of these rows are from those of the form.

        They are 0 for vectors.
        """

    @abc.abstractmethod
    def row_norms(self, columns: slice, part: Part) -> Array:
        """Norms (m, k) of some columns of the rows."""

    @abc.abstractmethod
    def reached(self, weights: Array, part: Part) -> tuple[Array, Array]:
        """Imbalances (m, K) of weights (m, k), and the sums (m, K) of the sizes of their parts.

        Sums are off by ``reached_units`` of roundoff of these sizes, less what targets are off.
        """

    @abc.abstractmethod
    def sums(self, numbers: Array, part: Part) -> Array:
        """Sums (m, B) over blocks of numbers (m, k).

        They are off by ``summed_units`` of the sums of their sizes.
        """

    @abc.abstractmethod
    def total(self, numbers: Array, part: Part) -> Array:
        """Sums (m,) over all records of numbers (m, k)."""

    @abc.abstractmethod
    def counts(self, part: Part) -> Array:
        """How many records (m, k), or (1, 1) for all, have a weight."""

    @abc.abstractmethod
    def summed(self, part: Part) -> NDArray[np.bool_]:
        """Whether a weight (m, k) is in a block."""

    @abc.abstractmethod
    def row_sizes(self, part: Part) -> tuple[Array, Array]:
        """Bounds (m,) of norms of rows of free weight, and of distances of two in a block."""

    @abc.abstractmethod
    def kink_widths(self, place: int, part: Part) -> Array:
        """Bounds (m,) of what prices of the kink at ``place`` move arguments of free rows by."""


class DatasetsOfRows(ManyDatasets[Part]):
    """Datasets whose imbalances are made of rows that are at hand.

    Joint steps in their prices ask for them.

    Parameters
    ----------
    form, priced
        As of :class:`ManyDatasets`.
    """

    @abc.abstractmethod
    def arguments(self, prices: Array, multipliers: Array, part: Part) -> Array:
        """Arguments (m, k) of the inverse slopes at prices (m, K) and multipliers (m, B)."""

    @abc.abstractmethod
    def imbalances(self, weights: Array, part: Part) -> Array:
        """Imbalances (m, K) of weights (m, k), for steps: in any order of summation."""

    @abc.abstractmethod
    def moments(self, rates: Array, part: Part) -> Array:
        """Sums (m, K + B, K + B) of rates times products of rows.

        The blocks are further columns.
        """


_OF_ONE_BLOCK = (SumKind.ALL, SumKind.CONTROLS, SumKind.TREATED)


def block_of_records(form: WeightingForm, arms: Arms) -> Numbers:
    """The block (m,) of records with treatments (m,), or ``OUTSIDE``."""
    kind = form.sums.kind
    if kind is SumKind.ALL:
        return np.zeros(len(arms), dtype=np.int64)
    if kind in (SumKind.CONTROLS, SumKind.TREATED):
        return np.where(arms == 0, 0, OUTSIDE)
    return np.asarray(arms, dtype=np.int64)


def totals_of_blocks(form: WeightingForm, treated: Array) -> Array:
    """Sums (m, B) of the blocks of datasets with numbers (m,) of treated records."""
    kind = form.sums.kind
    if kind is SumKind.TREATED:
        return np.asarray(treated[:, None], dtype=np.float64)
    if kind is SumKind.COUNTS:
        return np.stack([form.n - treated, treated], axis=1)
    if kind is SumKind.PUBLIC:
        assert form.sums.public is not None
        return np.tile(np.asarray(form.sums.public, dtype=np.float64), (len(treated), 1))
    return np.full((len(treated), 1), float(form.n))


def release_factors(form: WeightingForm, treated: Array) -> Array:
    """What weights are multiplied by (m,), so that released ones have sum n.

    Parameters
    ----------
    form
        The form.
    treated
        Numbers (m,) of treated records.
    """
    factor = np.ones(len(treated))
    if form.sums.kind is not SumKind.TREATED:
        return factor
    return np.where(treated > 0, form.n / (2.0 * np.maximum(treated, 1.0)), factor)
