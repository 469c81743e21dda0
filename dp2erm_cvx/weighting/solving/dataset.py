"""A weighting form at a dataset: rows, targets, boxes and blocks, with bounds of their rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.curves.inverse_slope import InverseSlope
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.weighting.forms.features import Features, KernelOfRecords
from dp2erm_cvx.weighting.forms.form import (
    Arms,
    FeatureRows,
    Group,
    Imbalance,
    ImbalancePenalty,
    SumKind,
    WeightingForm,
)
from dp2erm_cvx.weighting.forms.proximal import PricedColumns
from dp2erm_cvx.weighting.solving.pivoted import FewFeatures, few_features

#: Records that are summed at a time, so that a sum of n terms is off by some thousand units at
#: most.
CHUNK = 1024
#: Records whose rows are copied at a time: a copy of all of them would take twice their memory.
PIECE = 16 * CHUNK
#: Features of a kernel are one per so many records at most, and no more than so many.
RECORDS_PER_PIVOT, MOST_PIVOTS = 8, 1000
#: Factor of a bound in units of roundoff, for the products of several roundings.
_SLACK = 1.01
#: What the targets of kernel features are made of: sums over the records of both arms, n times the
#: means of both arms, and n times the mean of the public points.
TARGETS = (
    "sum of controls",
    "sum of treated",
    "mean of controls",
    "mean of treated",
    "public mean",
)
#: Where sums over records, means of arms and the mean of public points stand among them.
SUM_TARGETS = slice(0, 2)
MEAN_TARGETS = slice(2, 4)
PUBLIC_TARGET = 4
#: Those that stand for a mean, which counts n times.
AVERAGED_TARGETS = slice(2, 5)
#: Records up to which all pairs of them are held in one matrix.
MOST_PAIRS = 12_000


@dataclass(frozen=True)
class SumOfBlock:
    """Records whose weights have a sum.

    Parameters
    ----------
    members
        Their indices (m,), or all.
    total
        The sum.
    """

    members: slice | NDArray[np.intp]
    total: float


@dataclass(frozen=True)
class Similarities:
    """Squares of kernel features, which all pairs of records know: ``w'Qw / 2 - b'w``.

    With K the kernel, ``Q_ij = pull[a_i, a_j] K_ij`` and ``b_i = sum_j push[a_i, a_j] K_ij``,
    beside n times the means of the kernel over the records of both arms and over public points,
    with the further columns of ``push`` as their factors.

    Parameters
    ----------
    features
        The features of the kernel.
    pull
        Public products of the factors of rows by two arms (2, 2).
    push
        Public products of the factors of rows by arm and of :data:`TARGETS` (2, 5).
    largest
        Largest diagonal entry of the kernel among the records.
    diagonal
        Diagonal entries of the kernel (n,).
    at_points
        Diagonal entries (T,) at the public points of the kernel.
    """

    features: Features
    pull: Array
    push: Array
    largest: float
    diagonal: Array
    at_points: Array


@dataclass(frozen=True)
class RowSizes:
    """Bounds of norms of the rows of records whose weights are free.

    Parameters
    ----------
    row
        Bound of the norm of a row, in the norm of the price, of imbalances whose price is smooth.
    diameter
        Bound of the distance of two such rows within a block.
    row_at_kinks
        The same as ``row`` for imbalances with kinks: their sum, each times the diameter of its
        prices.
    """

    row: float
    diameter: float
    row_at_kinks: float


@dataclass(frozen=True)
class WeightingData:
    """What a solver and a certificate are told of a form at a dataset.

    Parameters
    ----------
    form
        The form.
    rows
        Rows z (n, K): those of vectors first, then scaled features of kernels.
    targets, target_errors
        Sum of targets and shift (K,), and bounds of their rounding.
    priced
        Imbalances by their columns.
    linear
        Number (n,) that is added to every slope.
    curve
        Inverse slopes of the dispersions on their boxes.
    blocks
        Blocks of records with a sum.
    arms
        Treatment (n,).
    similarities
        Squares of kernel features; empty without kernels.
    vector_columns
        Number of columns of vectors.
    price_error
        Bound, by record (n,), of what features of kernels may move a price per unit of
        ``|w|_1 + n``.
    entry_units
        Units of roundoff by which entries of kernels may be off.
    """

    form: WeightingForm
    rows: Array
    targets: Array
    target_errors: Array
    priced: tuple[PricedColumns, ...]
    linear: Array
    curve: InverseSlope
    blocks: tuple[SumOfBlock, ...]
    arms: Arms
    similarities: tuple[Similarities, ...]
    vector_columns: int
    price_error: Array
    entry_units: float

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Whether the weight of a record (n,) is free."""
        return self.curve.cap > self.curve.low

    def sizes_times(self, numbers: Array, columns: slice = slice(None)) -> Array:
        """Sums (n,) of the sizes of the entries of every row, each times a number.

        Parameters
        ----------
        numbers
            Numbers (k,) of at least 0.
        columns
            The k columns.
        """
        products = np.empty(len(self.rows))
        for piece in pieces(len(self.rows)):
            products[piece] = np.abs(self.rows[piece, columns]) @ numbers
        return products

    def sum_of_sizes(self, weights: Array, columns: slice = slice(None)) -> Array:
        """``weights' |rows|`` (k,) of weights (n,), in some columns, as :func:`blocked_sum`."""
        return blocked_sum_of_sizes(weights, self.rows[:, columns])

    @cached_property
    def row_bounds(self) -> RowSizes:
        """Bounds of the norms of the rows of records whose weights are free."""
        return _row_bounds(self)

    @property
    def smoothness(self) -> Array:
        """Smoothness (K,) of the price of every column; infinite for kinks and constraints."""
        smoothness = np.ones(self.rows.shape[1])
        for priced in self.priced:
            smoothness[priced.columns] = priced.penalty.smoothness
        return smoothness

    @property
    def by_pairs(self) -> bool:
        """Whether pairs of records stand in for features of kernels.

        They do where the records cannot pay for the features.
        """
        return bool(self.similarities) and self.rows.shape[1] == self.vector_columns


def _row_bounds(data: WeightingData) -> RowSizes:
    """Bounds of the norms of rows, and of twice the distance to the middle of a block."""
    smoothness = data.smoothness[: data.vector_columns]
    scale = np.sqrt(np.where(np.isfinite(smoothness), smoothness, 0.0))
    squares = np.empty(len(data.rows))
    for piece in pieces(len(data.rows)):
        scaled = _scaled_vectors(data, scale, piece)
        squares[piece] = np.einsum("ij,ij->i", scaled, scaled)
    kernel_squares = _kernel_squares(data)
    row = math.sqrt(float(np.max((squares + kernel_squares)[data.free], initial=0.0)))
    row_at_kinks = 0.0
    for priced in data.priced:
        if priced.penalty.kinked:
            widths = priced.width_at_kink(data.rows[data.free][:, priced.columns])
            row_at_kinks += float(np.max(widths, initial=0.0))
    diameter = 0.0
    for block in data.blocks:
        members = members_of_block(data, block) & data.free
        if np.any(members):
            distance = _largest_distance_to_middle(data, scale, members, squares, kernel_squares)
            diameter = max(diameter, 2.0 * distance)
    return RowSizes(row * ROUND_UP, diameter * ROUND_UP, row_at_kinks * ROUND_UP)


def _scaled_vectors(data: WeightingData, scale: Array, piece: slice) -> Array:
    """Rows of vectors of a piece of the records, times the scale of every column."""
    return np.asarray(data.rows[piece, : data.vector_columns] * scale)


def _largest_distance_to_middle(
    data: WeightingData,
    scale: Array,
    members: NDArray[np.bool_],
    squares: Array,
    kernel_squares: Array,
) -> float:
    """Bound of the distances of rows to their mean, in vectors and features of kernels.

    Parameters
    ----------
    data
        The dataset.
    scale
        Scale of every column of vectors.
    members
        Whose rows (n,), of at least one record.
    squares
        Squares (n,) of the norms of the scaled rows of vectors.
    kernel_squares
        Squares (n,) of the norms of the rows of kernel features, whose mean is not known.
    """
    total = np.zeros(data.vector_columns)
    for piece in pieces(len(members)):
        total += np.sum(_scaled_vectors(data, scale, piece)[members[piece]], axis=0)
    mean = total / np.count_nonzero(members)
    largest = 0.0
    for piece in pieces(len(members)):
        differences = _scaled_vectors(data, scale, piece)[members[piece]] - mean
        # A common vector is subtracted, so that its rounding does not matter; that of the rows
        # does.
        rounding = 8.0 * UNIT * np.sqrt(squares[piece][members[piece]])
        distances = np.sqrt(np.einsum("ij,ij->i", differences, differences)) + rounding
        of_kernels = np.sqrt(kernel_squares[piece][members[piece]])
        largest = max(largest, float(np.max(np.hypot(distances, of_kernels), initial=0.0)))
    return largest


def members_of_block(data: WeightingData, block: SumOfBlock) -> NDArray[np.bool_]:
    """Whether a record (n,) is in a block."""
    inside = np.zeros(len(data.arms), dtype=bool)
    inside[block.members] = True
    return inside


def _kernel_squares(data: WeightingData) -> Array:
    """Squares of the norms of the rows of kernel features (n,), from the diagonals."""
    total = np.zeros(len(data.arms))
    units = 1.0 + 2.0 * (data.entry_units + 8.0) * UNIT
    for squares in data.similarities:
        total += np.diag(squares.pull)[data.arms] * np.maximum(squares.diagonal, 0.0) * units
    return total


def pieces(n: int) -> Iterator[slice]:
    """Records in pieces of :data:`PIECE`."""
    for begin in range(0, n, PIECE):
        yield slice(begin, min(begin + PIECE, n))


def blocked_sum(weights: Array, rows: Array) -> Array:
    """``weights' rows`` (K,) of weights (n,) and rows (n, K).

    It is off by :func:`sum_units` of roundoff.
    """
    n = len(weights)
    width = rows.shape[1]
    chunks = n // CHUNK
    full = chunks * CHUNK
    parts = np.matmul(
        weights[:full].reshape(chunks, 1, CHUNK),
        np.ascontiguousarray(rows[:full]).reshape(chunks, CHUNK, width),
    )
    total = np.zeros(width)
    for part in parts[:, 0, :]:
        total += part
    return total + weights[full:] @ rows[full:]


def blocked_sum_of_sizes(weights: Array, rows: Array) -> Array:
    """``weights' |rows|`` (K,) of weights (n,) and rows (n, K), no further off."""
    total = np.zeros(rows.shape[1])
    for piece in pieces(len(weights)):
        total += blocked_sum(weights[piece], np.abs(rows[piece]))
    return total


def blocked_total(numbers: Array) -> float:
    """The sum of numbers (n,), off by :func:`sum_units` of roundoff of the sum of their sizes."""
    chunks = len(numbers) // CHUNK
    parts = np.sum(numbers[: chunks * CHUNK].reshape(chunks, CHUNK), axis=1)
    return float(np.sum(parts)) + float(np.sum(numbers[chunks * CHUNK :]))


def sum_units(n: int) -> float:
    """Units of roundoff of the sum of sizes by which :func:`blocked_sum` of n terms may be off."""
    return min(n, CHUNK) + math.ceil(n / CHUNK) + 2.0


def weighting_data(form: WeightingForm, records: Records) -> WeightingData:
    """Read a form at a dataset.

    Parameters
    ----------
    form
        The form.
    records
        As many records as the form has.

    Returns
    -------
    WeightingData

    Raises
    ------
    DeclarationError
        For a number of records that is not that of the form, weights that may be negative, and
        kernels whose imbalance is priced by anything but squares.
    SolverError
        Where a kernel has too many features on these records; shown to the data holder only.
    InfeasibleError
        Where no weights within the boxes have the sums; shown to the data holder only.
    """
    arms = arms_of_records(records)
    _check_arms(form, arms)
    # Covariates themselves are needed of kernels alone.
    X = np.zeros((form.n, 0))
    if any(features.kernel is not None for features in form.features):
        X = covariates_of_records(records)
    vectors = vectors_of_records(form, records)
    vector_columns = _vector_columns(form, vectors, arms)
    similarities = []
    entry_units = 0.0
    for features, stacked in kernel_factors(form).items():
        units = kernel_of(features).entry_error(records.space.features_bound, X.shape[1])
        entry_units = max(entry_units, units)
        similarities.append(_similarities(features, stacked, X))
    blocks = tuple(_blocks(form, arms))
    curve = _curve(form, arms, vectors, blocks)
    columns = [vector_columns]
    kernel_columns = _columns_of_kernels(similarities, X, entry_units, arms)
    if kernel_columns is None:
        _refuse_pairs(form)
    else:
        columns += kernel_columns
    priced = list(priced_vectors(form))
    width = vector_columns.rows.shape[1]
    begin = width
    price_error = np.zeros(form.n)
    for of_kernel in columns[1:]:
        end = begin + of_kernel.rows.shape[1]
        priced.append(PricedColumns(ImbalancePenalty(0.5), slice(begin, end)))
        price_error = price_error + of_kernel.price_error
        begin = end
    return WeightingData(
        form=form,
        rows=_beside_one_another([one.rows for one in columns]),
        targets=np.concatenate([one.targets for one in columns]),
        target_errors=np.concatenate([one.target_errors for one in columns]),
        priced=tuple(priced),
        linear=linear_terms(form, vectors, arms),
        curve=curve,
        blocks=blocks,
        arms=arms,
        similarities=tuple(similarities),
        vector_columns=width,
        price_error=price_error,
        entry_units=entry_units,
    )


def _check_arms(form: WeightingForm, arms: Arms) -> None:
    """Refuse a wrong number of records, and an arm without records whose mean is a target.

    Raises DeclarationError and InfeasibleError.
    """
    if len(arms) != form.n:
        raise DeclarationError(f"{len(arms)} records: the problem was read for {form.n}")
    for arm in form.arms_of_means:
        if not np.any(arms == arm):
            raise InfeasibleError(f"no record has arm {arm}, whose mean is a target")


@dataclass(frozen=True)
class _Columns:
    """Some columns of the imbalance of n records.

    Parameters
    ----------
    rows
        Rows (n, r) in these columns.
    targets, target_errors
        Sum of targets and shift (r,), and bounds of their rounding.
    price_error
        Bound (n,) of what these columns may move a price by per unit of ``|w|_1 + n``; 0 for
        vectors.
    """

    rows: Array
    targets: Array
    target_errors: Array
    price_error: Array


def vectors_of_records(form: WeightingForm, records: Records) -> dict[str, Array]:
    """Features (n, width) of records that are no kernel's, by name."""
    vectors = {}
    for features in form.features:
        if features.of is not None:
            values = _joined(records.rows(features.of).each())
            vectors[features.name] = np.asarray(values, dtype=np.float64).reshape(
                -1, features.width
            )
    return vectors


def _joined(blocks: Iterable[Array]) -> Array:
    """Blocks of records after one another; one alone is not copied."""
    arrays = list(blocks)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _beside_one_another(columns: list[Array]) -> Array:
    """Columns of the same records beside one another; those of one kind alone are not copied."""
    return columns[0] if len(columns) == 1 else np.ascontiguousarray(np.hstack(columns))


def linear_terms(form: WeightingForm, vectors: Mapping[str, Array], arms: Arms) -> Array:
    """Number (n,) that is added to the slope of every record."""
    if form.linear is None:
        return np.zeros(len(arms))
    return form.linear.row(vectors[form.linear.features.name], arms)[:, 0]


def covariates_of_records(records: Records) -> Array:
    """Covariates (n, p) without the intercept, of records that may come in blocks."""
    return np.asarray(_joined(records.rows(attrgetter("covariates")).each()))


def arms_of_records(records: Records) -> Arms:
    """Treatment (n,) of records, which may come in blocks."""
    return np.asarray(_joined(records.rows(attrgetter("a")).each()))


def _kernel_of_group(group: Group) -> Features | None:
    """The kernel features that a group is made of; None for vectors."""
    kernels = [part.features for part in group if part.features.kernel is not None]
    if kernels and len(group) > 1:
        raise DeclarationError(
            f"features of {kernels[0].name} are added to others: price both imbalances by "
            "themselves"
        )
    return kernels[0] if kernels else None


def _vector_columns(form: WeightingForm, vectors: Mapping[str, Array], arms: Arms) -> _Columns:
    """Rows and targets of all coordinates that are no features of kernels."""
    targets = [np.zeros(0)]
    errors = [np.zeros(0)]
    sums = {name: sums_by_arm(phi, arms) for name, phi in vectors.items()}
    arm_sizes: Array = np.bincount(arms, minlength=2).astype(np.float64)
    for group, shift in _shifted_vector_groups(form):
        target, error = _target(group, sums, shift, form.n)
        if any(np.any(part.mean) for part in group):
            means, mean_errors = mean_targets(group, sums, arm_sizes)
            target = target + means
            error = error + mean_errors + 2.0 * UNIT * np.abs(target)
        targets.append(target)
        errors.append(error)
    return _Columns(
        rows=rows_of_records(form, vectors, arms),
        targets=np.concatenate(targets),
        target_errors=np.concatenate(errors),
        price_error=np.zeros(len(arms)),
    )


def priced_vectors(form: WeightingForm) -> tuple[PricedColumns, ...]:
    """Penalties of all coordinates that are no features of kernels, with the columns of each."""
    priced = []
    end = 0
    for imbalance in form.imbalances:
        begin = end
        for group in imbalance.groups:
            if _kernel_of_group(group) is None:
                end += len(group[0].matrix)
        if end > begin:
            priced.append(PricedColumns(imbalance.penalty, slice(begin, end)))
    return tuple(priced)


def vector_shift(form: WeightingForm) -> Array:
    """Public targets (K,) of all coordinates that are no features of kernels."""
    return np.concatenate([np.zeros(0), *(shift for _, shift in _shifted_vector_groups(form))])


def rows_of_records(form: WeightingForm, vectors: Mapping[str, Array], arms: Arms) -> Array:
    """Rows (m, K) of records in all coordinates that are no features of kernels.

    Parameters
    ----------
    form
        The form.
    vectors
        Features (m, width) of the records by name.
    arms
        Their treatment (m,).
    """
    groups = vector_groups(form)
    rows = np.empty((len(arms), sum(len(group[0].matrix) for group in groups)))
    for piece in pieces(len(arms)):
        end = 0
        for group in groups:
            begin = end
            end += len(group[0].matrix)
            parts = [part.row(vectors[part.features.name][piece], arms[piece]) for part in group]
            rows[piece, begin:end] = _sum_of(parts)
    return rows


def targets_of_records(
    form: WeightingForm, vectors: Mapping[str, Array], arms: Arms
) -> tuple[Array, Array]:
    """Targets (m, K) of every record by itself, and bounds (m, K) of their rounding.

    Parameters
    ----------
    form, vectors, arms
        As of :func:`rows_of_records`.
    """
    targets = [np.zeros((len(arms), 0))]
    errors = [np.zeros((len(arms), 0))]
    for group in vector_groups(form):
        total = np.zeros((len(arms), len(group[0].matrix)))
        size = np.zeros_like(total)
        for part in group:
            phi = part.target[arms][:, None] * vectors[part.features.name]
            total = total + phi @ part.matrix.T
            size = size + np.abs(phi) @ np.abs(part.matrix).T
        targets.append(total)
        errors.append(_SLACK * (_group_units(group) + 6.0) * UNIT * size)
    return np.hstack(targets), np.hstack(errors)


def _group_units(group: Group) -> float:
    """Units of roundoff of the products with the matrices of a group, and of their sum."""
    return float(max(part.matrix.shape[1] for part in group) + len(group))


def vector_groups(form: WeightingForm) -> list[Group]:
    """Groups of all coordinates that are no features of kernels, in the order of the columns."""
    return [group for group, _ in _shifted_vector_groups(form)]


def _shifted_vector_groups(form: WeightingForm) -> list[tuple[Group, Array]]:
    """These groups, each with its part of the public targets."""
    groups = []
    for imbalance in form.imbalances:
        for group, shift in _groups(imbalance):
            if _kernel_of_group(group) is None:
                groups.append((group, shift))
    return groups


def _sum_of(parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _groups(imbalance: Imbalance) -> list[tuple[Group, Array]]:
    """Groups of an imbalance, each with its part of the shift."""
    groups = []
    begin = 0
    for group in imbalance.groups:
        end = begin + len(group[0].matrix)
        groups.append((group, np.asarray(imbalance.shift[begin:end], dtype=np.float64)))
        begin = end
    return groups


def sums_by_arm(phi: Array, arms: Arms) -> tuple[Array, Array]:
    """Sums (2, width) of features over the records of an arm, and the sums of their sizes."""
    treated = arms.astype(np.float64)
    sums = np.stack([blocked_sum(1.0 - treated, phi), blocked_sum(treated, phi)])
    sizes = np.stack([blocked_sum_of_sizes(1.0 - treated, phi), blocked_sum_of_sizes(treated, phi)])
    return sums, sizes


def _target(
    group: Group, sums: Mapping[str, tuple[Array, Array]], shift: Array, n: int
) -> tuple[Array, Array]:
    """Sum of the targets of a group and its shift (r,), and a bound of its rounding."""
    total = shift.copy()
    size = np.abs(shift)
    for part in group:
        sums_of_arms, sizes_of_arms = sums[part.features.name]
        total = total + part.matrix @ (part.target @ sums_of_arms)
        size = size + np.abs(part.matrix) @ (np.abs(part.target) @ sizes_of_arms)
    units = sum_units(n) + _group_units(group) + 6.0
    return total, _SLACK * units * UNIT * size


def mean_targets(
    group: Group, sums: Mapping[str, tuple[Array, Array]], arm_sizes: Array
) -> tuple[Array, Array]:
    """What means of arms are in the targets of a group, and bounds of their rounding.

    Parameters
    ----------
    group
        The group.
    sums
        Sums (..., 2, width) of the features over the records of each arm, and sums of their sizes,
        by name.
    arm_sizes
        Numbers of records of both arms (..., 2), above 0 where a mean is asked for.

    Returns
    -------
    tuple
        Targets (..., r), and bounds (..., r) of their rounding.
    """
    n = int(np.max(np.sum(arm_sizes, axis=-1)))
    total: Array = np.zeros((*arm_sizes.shape[:-1], len(group[0].matrix)))
    size = np.zeros_like(total)
    for part in group:
        sums_of_arms, sizes_of_arms = sums[part.features.name]
        # q n / n_a, the factor of every record of the arm a whose mean is counted q times.
        factors = part.mean * (n / np.maximum(arm_sizes, 1))
        means = np.einsum("...a,...aw->...w", factors, sums_of_arms)
        mean_sizes = np.einsum("...a,...aw->...w", np.abs(factors), sizes_of_arms)
        total = total + means @ part.matrix.T
        size = size + mean_sizes @ np.abs(part.matrix).T
    units = sum_units(n) + _group_units(group) + 16.0
    return total, _SLACK * units * UNIT * size


def kernel_of(features: Features) -> KernelOfRecords:
    """The kernel of features that have one."""
    assert features.kernel is not None
    return features.kernel


def kernel_factors(form: WeightingForm) -> dict[Features, Array]:
    """Factors (m, 7) of all squares of one kernel, for a price ``|m|^2 / 2``.

    The first two are those of rows by arm, the others those of targets in the order of
    :data:`TARGETS`.

    Parameters
    ----------
    form
        The form.

    Returns
    -------
    dict
        The factors by the features of the kernel.

    Raises
    ------
    DeclarationError
        For another price beside a kernel, or of its features.
    """
    factors: dict[str, list[Array]] = {}
    features: dict[str, Features] = {}
    for imbalance in form.imbalances:
        for group, shift in _groups(imbalance):
            kernel = _kernel_of_group(group)
            if kernel is None:
                continue
            if not imbalance.penalty.plain or np.any(shift):
                raise DeclarationError(
                    f"imbalance of the kernel features {kernel.name}: only its squares, without a "
                    "public target, are solved; write cp.sum_squares(..)"
                )
            part: FeatureRows = group[0]
            scale = math.sqrt(2.0 * imbalance.penalty.factor) * float(part.matrix[0, 0])
            own = np.concatenate([part.weighted, part.target, part.mean, np.array([part.public])])
            factors.setdefault(kernel.name, []).append(scale * own)
            features[kernel.name] = kernel
    if factors:
        _refuse_other_prices(form)
    return {features[name]: np.array(rows) for name, rows in factors.items()}


def products(stacked: Array) -> tuple[Array, Array]:
    """Products of factors (m, 7) of rows by arm and of targets: pull (2, 2) and push (2, 5)."""
    rows = stacked[:, :2]
    targets = stacked[:, 2:]
    return rows.T @ rows, rows.T @ targets


def _similarities(features: Features, stacked: Array, X: Array) -> Similarities:
    """Squares of one kernel at covariates X (n, p), with factors (m, 7) of rows and targets."""
    diagonal = kernel_of(features).diagonal(with_points(features, X))
    of_records = diagonal[: len(X)]
    pull, push = products(stacked)
    return Similarities(
        features=features,
        pull=pull,
        push=push,
        largest=float(np.max(of_records, initial=0.0)),
        diagonal=of_records,
        at_points=diagonal[len(X) :],
    )


def _columns_of_kernels(
    similarities: list[Similarities], X: Array, entry_units: float, arms: Arms
) -> list[_Columns] | None:
    """Columns of the features of every kernel; None where one has too many.

    Parameters
    ----------
    similarities
        Squares of the kernels.
    X
        Covariates (n, p).
    entry_units
        Units of roundoff by which entries of kernels may be off.
    arms
        Treatment (n,).
    """
    most = min(len(X) // RECORDS_PER_PIVOT, MOST_PIVOTS)
    columns = []
    for squares in similarities:
        every = with_points(squares.features, X)
        features = few_features(kernel_of(squares.features), every, most, entry_units)
        if features is None:
            return None
        columns.append(_kernel_columns(squares, features, arms))
    return columns


def with_points(features: Features, X: Array) -> Array:
    """Covariates (n + T, p) of records, and below them the T public points of a kernel."""
    if features.points is None:
        return X
    return np.vstack([X, features.points])


def target_counts(arm_sizes: Array) -> Array:
    """How often a record counts in a target (..., 4), in the order of :data:`TARGETS`.

    Public points are left out.

    Parameters
    ----------
    arm_sizes
        Numbers of records of both arms (..., 2).
    """
    n = np.sum(arm_sizes, axis=-1, keepdims=True)
    return np.concatenate([np.ones_like(arm_sizes), n / np.maximum(arm_sizes, 1.0)], axis=-1)


def push_size(push: Array) -> float:
    """Bound, over n, of the sum of the sizes of what ``push`` (2, 5) adds the kernels of.

    All records are in the targets of records, and each mean counts n times.
    """
    sizes = np.abs(push)
    of_records = np.max(sizes[:, SUM_TARGETS], axis=1)
    of_means = np.sum(sizes[:, AVERAGED_TARGETS], axis=1)
    return float(np.max(of_records + of_means))


def split_factors(pull: Array, push: Array) -> tuple[Array, Array, float]:
    """Factors (m, 2) and (m, 5) with ``left' left = pull``, ``left' right = push``.

    The third result is how far they are off.

    Directions of the rank of ``pull`` suffice, as ``push`` has its columns in the span of ``pull``.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(pull)
    # What is below some units of the largest eigenvalue is its rounding.
    in_rank = eigenvalues > 1e-14 * np.max(eigenvalues)
    root = np.sqrt(eigenvalues[in_rank])
    left = root[:, None] * eigenvectors[:, in_rank].T
    right = (eigenvectors[:, in_rank].T @ push) / root[:, None]
    pull_error = float(np.max(np.abs(left.T @ left - pull)))
    push_error = float(np.max(np.abs(left.T @ right - push)))
    return left, right, max(pull_error, push_error)


def _kernel_columns(squares: Similarities, features: FewFeatures, arms: Arms) -> _Columns:
    """Columns of the features of a kernel.

    Rows are ``row_factors[:, a_i] (x) f_i`` and targets sums of ``target_factors[:, a_j] (x) f_j``.
    """
    row_factors, target_factors, factor_error = split_factors(squares.pull, squares.push)
    n = len(arms)
    f = features.values[:n]
    rows = (row_factors[:, arms].T[:, :, None] * f[:, None, :]).reshape(n, -1)
    sums, sizes, units = _sums_of_targets(f, features.values[n:], arms)
    largest = max(squares.largest, float(np.max(squares.at_points, initial=0.0)))
    largest += float(np.max(features.entry_errors))
    factors = (squares.pull, squares.push, factor_error)
    return _Columns(
        rows=rows,
        targets=(target_factors @ sums).ravel(),
        target_errors=(units + 8.0) * UNIT * (np.abs(target_factors) @ sizes).ravel(),
        price_error=kernel_price_error(factors, features.entry_errors[:n], largest),
    )


def _sums_of_targets(f: Array, at_points: Array, arms: Arms) -> tuple[Array, Array, float]:
    """Sums (5, r) of features in the order of :data:`TARGETS`, with those of sizes.

    The last result is the units of their rounding.

    Parameters
    ----------
    f
        Features (n, r) of records.
    at_points
        Those of T public points (T, r).
    arms
        Treatment (n,).
    """
    n = len(f)
    T = len(at_points)
    arm_sizes: Array = np.bincount(arms, minlength=2).astype(np.float64)
    mean_counts = target_counts(arm_sizes)[MEAN_TARGETS, None]
    sums, sizes = sums_by_arm(f, arms)
    units = sum_units(n) + 4.0
    public_sum = np.zeros((1, f.shape[1]))
    public_size = np.zeros((1, f.shape[1]))
    if T:
        even = np.full(T, n / T)
        public_sum = blocked_sum(even, at_points)[None]
        public_size = blocked_sum(even, np.abs(at_points))[None]
        units += sum_units(T)
    every_sum = np.concatenate([sums, mean_counts * sums, public_sum])
    every_size = np.concatenate([sizes, mean_counts * sizes, public_size])
    return every_sum, every_size, units


def kernel_price_error(
    factors: tuple[Array, Array, float], entry_error: Array, largest: Array | float
) -> Array:
    """Bounds (m,) of what features of a kernel move a price by, per unit of ``|w|_1 + n``.

    Parameters
    ----------
    factors
        Products of the factors of rows by two arms (2, 2), of rows by arm and targets (2, 5), and
        how far those of the factors that are used are off.
    entry_error
        Bounds (m,) of the distance of products of features to the kernel.
    largest
        Bounds (m,), or one for all, of the entries of the kernel and of these products.

    Returns
    -------
    Array
        The bounds.
    """
    pull, push, factor_error = factors
    factor = max(float(np.max(np.abs(pull))), push_size(push))
    # Records share a target of sums, and what is off is off for every other one.
    n_others = np.count_nonzero(np.any(push[:, AVERAGED_TARGETS] != 0.0, axis=0))
    factor_error *= 1.0 + n_others
    error = (factor + factor_error) * entry_error
    error = error + (factor_error + 16.0 * UNIT * factor) * largest
    return np.asarray(1.001 * error)


def _refuse_other_prices(form: WeightingForm) -> None:
    """Refuse prices that are no squares beside a kernel. Raises DeclarationError.

    Few features suffice for some datasets, and all pairs of records are needed for others, which
    serve squares alone: a form that only some datasets have weights for would tell of the records.
    """
    for imbalance in form.imbalances:
        if not imbalance.penalty.plain:
            raise DeclarationError(
                f"{imbalance.text or 'a penalty'}: is no square, beside features of a kernel: "
                "write all imbalances as squares"
            )


def _refuse_pairs(form: WeightingForm) -> None:
    """Refuse more records than pairs of them serve. Raises SolverError."""
    if form.n > MOST_PAIRS:
        raise SolverError(
            f"kernel of too many features for {form.n:,} records: at most {MOST_PAIRS:,} are "
            "solved by pairs"
        )


def _blocks(form: WeightingForm, arms: Arms) -> list[SumOfBlock]:
    """Blocks of records with their sums; a block without records and with sum 0 is none."""
    kind = form.sums.kind
    n = float(form.n)
    controls = np.flatnonzero(arms == 0)
    treated = np.flatnonzero(arms == 1)
    if kind is SumKind.ALL:
        return [SumOfBlock(slice(None), n)]
    if kind is SumKind.CONTROLS:
        return [SumOfBlock(controls, n)]
    if kind is SumKind.TREATED:
        return [SumOfBlock(controls, float(len(treated)))]
    totals = (float(len(controls)), float(len(treated)))
    if kind is SumKind.PUBLIC:
        assert form.sums.public is not None
        totals = form.sums.public
    blocks = []
    for members, total in ((controls, totals[0]), (treated, totals[1])):
        if total > 0 or len(members):
            blocks.append(SumOfBlock(members, float(total)))
    return blocks


def boxes_of_records(
    form: WeightingForm, arms: Arms, vectors: Mapping[str, Array]
) -> tuple[Array, Array]:
    """Ends of the boxes of records, before their sums bound them.

    Parameters
    ----------
    form
        The form.
    arms
        Treatment of the records (m,).
    vectors
        Their features (m, width) by name.

    Returns
    -------
    tuple
        Least and largest weight of every record, (m,) each.

    Raises
    ------
    DeclarationError
        Where weights may be negative.
    """
    low = np.asarray(form.low, dtype=np.float64)[arms]
    cap = np.asarray(form.cap, dtype=np.float64)[arms]
    if form.low_of is not None:
        stated_low = form.low_of.row(vectors[form.low_of.features.name], arms)[:, 0]
        low = np.maximum(low, stated_low)
    if form.cap_of is not None:
        stated_cap = form.cap_of.row(vectors[form.cap_of.features.name], arms)[:, 0]
        cap = np.minimum(cap, stated_cap)
    if form.sums.kind is SumKind.CONTROLS:
        low = np.where(arms == 1, 0.0, low)
        cap = np.where(arms == 1, 0.0, cap)
    if form.sums.kind is SumKind.TREATED:
        low = np.where(arms == 1, 1.0, low)
        cap = np.where(arms == 1, 1.0, cap)
    base = np.ones(len(arms))
    if form.base is not None:
        base = vectors[form.base.name][:, 0]
    first, last = form.dispersion.ends
    low = np.maximum(low, first * base)
    cap = np.minimum(cap, last * base)
    if np.any(low < 0.0):
        raise DeclarationError("weights may be negative: write w >= 0 among the constraints")
    return low, cap


def _curve(
    form: WeightingForm, arms: Arms, vectors: Mapping[str, Array], blocks: tuple[SumOfBlock, ...]
) -> InverseSlope:
    """Inverse slopes on the boxes of records, which a sum bounds as well.

    Raises InfeasibleError for boxes that cannot hold the sums.
    """
    low, cap = boxes_of_records(form, arms, vectors)
    for block in blocks:
        members = block.members
        total = block.total
        _check_holds(low[members], cap[members], total)
        # No weight exceeds the sum of its block, so that a box twice as wide changes no solution.
        cap[members] = np.maximum(np.minimum(cap[members], 2.0 * total + 1.0), low[members])
    base = None
    if form.base is not None:
        base = vectors[form.base.name][:, 0]
    return InverseSlope(form.dispersion, low, cap, base)


def _check_holds(low: Array, cap: Array, total: float) -> None:
    """Refuse boxes (m,) that cannot hold a sum. Raises InfeasibleError."""
    if total > 0.0 and not len(low):
        raise InfeasibleError(
            "an arm without records cannot hold its share of the weight: both need some"
        )
    least = math.fsum(low)
    most = math.fsum(np.minimum(cap, total + 1.0))
    if not least <= total <= most:
        raise InfeasibleError(
            f"{len(low)} records: no weights between {least:g} and {most:g} in all "
            f"have the sum {total:g}"
        )
