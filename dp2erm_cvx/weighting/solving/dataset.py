"""A weighting form at a dataset: rows, targets, boxes and blocks, with bounds of their rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
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
#: Features of a kernel are one per so many records at most, and no more than so many.
RECORDS_PER_PIVOT, MOST_PIVOTS = 8, 1000
#: Rounding of the few operations that a bound itself is made of.
OUTWARD = 1.0 + 1e-12
#: What the targets of kernel features are made of: sums over the records of both arms, n times the
#: means of both arms, and n times the mean of the public points.
TARGETS = (
    "sum of controls",
    "sum of treated",
    "mean of controls",
    "mean of treated",
    "public mean",
)
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

    @cached_property
    def row_sizes(self) -> Array:
        """Sizes of the entries of all rows (n, K)."""
        return np.abs(self.rows)

    @cached_property
    def row_bounds(self) -> RowSizes:
        """Bounds of the norms of the rows of records whose weights are free."""
        return _row_bounds(self)

    @property
    def smoothness(self) -> Array:
        """Smoothness (K,) of the price of every column; infinite for kinks and constraints."""
        found = np.ones(self.rows.shape[1])
        for one in self.priced:
            found[one.columns] = one.penalty.smoothness
        return found

    @property
    def by_pairs(self) -> bool:
        """Whether pairs of records stand in for features of kernels.

        They do where the records cannot pay for the features.
        """
        return bool(self.similarities) and self.rows.shape[1] == self.vector_columns


def _row_bounds(data: WeightingData) -> RowSizes:
    """Bounds of the norms of rows, and of twice the distance to the middle of a block."""
    vectors = slice(0, data.vector_columns)
    smoothness = data.smoothness[vectors]
    scale = np.sqrt(np.where(np.isfinite(smoothness), smoothness, 0.0))
    scaled = data.rows[:, vectors] * scale
    squares = np.einsum("ij,ij->i", scaled, scaled)
    similar = _kernel_squares(data)
    row = math.sqrt(float(np.max((squares + similar)[data.free], initial=0.0)))
    row_at_kinks = 0.0
    for one in data.priced:
        if one.penalty.kinked:
            widths = one.width_at_kink(data.rows[data.free][:, one.columns])
            row_at_kinks += float(np.max(widths, initial=0.0))
    diameter = 0.0
    for block in data.blocks:
        members = np.flatnonzero(data.free[block.members])
        if not len(members):
            continue
        inside = scaled[block.members][members]
        lengths = np.sqrt(squares[block.members][members])
        apart = inside - np.mean(inside, axis=0)
        # A common vector is subtracted, so that its rounding does not matter; that of the rows
        # does.
        distances = np.sqrt(np.einsum("ij,ij->i", apart, apart)) + 8.0 * UNIT * lengths
        distances = np.hypot(distances, np.sqrt(similar[block.members][members]))
        diameter = max(diameter, 2.0 * float(np.max(distances)))
    return RowSizes(row * OUTWARD, diameter * OUTWARD, row_at_kinks * OUTWARD)


def _kernel_squares(data: WeightingData) -> Array:
    """Squares of the norms of the rows of kernel features (n,), from the diagonals."""
    squares = np.zeros(len(data.arms))
    units = 1.0 + 2.0 * (data.entry_units + 8.0) * UNIT
    for one in data.similarities:
        squares += np.diag(one.pull)[data.arms] * np.maximum(one.diagonal, 0.0) * units
    return squares


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
    if len(arms) != form.n:
        raise DeclarationError(f"{len(arms)} records: the problem was read for {form.n}")
    for arm in form.arms_of_means:
        if not np.any(arms == arm):
            raise InfeasibleError(f"no record has arm {arm}, whose mean is a target")
    # covariates themselves are needed of kernels alone
    has_kernels = any(one.kernel is not None for one in form.features)
    X = covariates_of_records(records) if has_kernels else np.zeros((form.n, 0))
    vectors = {
        one.name: values_of_records(one, records) for one in form.features if one.of is not None
    }
    columns = _VectorColumns(form, vectors, arms)
    units = 0.0
    similarities = []
    for features, stacked in kernel_factors(form).items():
        units = max(units, _kernel(features).entry_error(records.space.features_bound, X.shape[1]))
        similarities.append(_similarities(features, stacked, X))
    blocks = tuple(_blocks(form, arms))
    curve = _curve(form, arms, vectors, blocks)
    rows, targets, errors = columns.rows, columns.targets, columns.target_errors
    priced = list(columns.priced)
    price_error = np.zeros(form.n)
    made = [_features(one, X, units) for one in similarities]
    if all(one is not None for one in made):
        for one, found in zip(similarities, made, strict=True):
            assert found is not None
            more, more_targets, more_errors, moved = _kernel_columns(one, found, arms)
            begin = rows.shape[1]
            rows = np.hstack([rows, more])
            targets = np.concatenate([targets, more_targets])
            errors = np.concatenate([errors, more_errors])
            priced.append(PricedColumns(ImbalancePenalty(0.5), slice(begin, rows.shape[1])))
            price_error = price_error + moved
    else:
        _refuse_pairs(form)
    linear = np.zeros(form.n)
    if form.linear is not None:
        linear = form.linear.row(vectors[form.linear.features.name], arms)[:, 0]
    return WeightingData(
        form,
        np.ascontiguousarray(rows),
        targets,
        errors,
        tuple(priced),
        linear,
        curve,
        blocks,
        arms,
        tuple(similarities),
        columns.rows.shape[1],
        price_error,
        units,
    )


def values_of_records(features: Features, records: Records) -> Array:
    """Vectors (n, width) of records, of features that are no kernel's."""
    assert features.of is not None
    values = np.concatenate(records.rows(features.of).each())
    return np.asarray(values, dtype=np.float64).reshape(-1, features.width)


def covariates_of_records(records: Records) -> Array:
    """Covariates (n, p) without the intercept, of records that may come in blocks."""
    return np.asarray(np.concatenate(records.rows(attrgetter("covariates")).each()))


def arms_of_records(records: Records) -> Arms:
    """Treatment (n,) of records, which may come in blocks."""
    return np.asarray(np.concatenate(records.rows(attrgetter("a")).each()))


def _kernel_of_group(group: Group) -> Features | None:
    """The kernel features that a group is made of; None for vectors."""
    kernels = [part.features for part in group if part.features.kernel is not None]
    if kernels and len(group) > 1:
        raise DeclarationError(
            f"features of {kernels[0].name} are added to others: price both imbalances by "
            "themselves"
        )
    return kernels[0] if kernels else None


class _VectorColumns:
    """Rows, targets and penalties of all coordinates that are no features of kernels."""

    def __init__(self, form: WeightingForm, vectors: Mapping[str, Array], arms: Arms) -> None:
        targets = [np.zeros(0)]
        errors = [np.zeros(0)]
        self.priced = priced_vectors(form)
        sums = {name: sums_by_arm(phi, arms) for name, phi in vectors.items()}
        by_arm: Array = np.bincount(arms, minlength=2).astype(np.float64)
        for imbalance in form.imbalances:
            for group, shift in _groups(imbalance):
                if _kernel_of_group(group) is not None:
                    continue
                target, error = _target(group, sums, shift, form.n)
                if any(np.any(part.mean) for part in group):
                    of_means, of_rounding = mean_targets(group, sums, by_arm)
                    target = target + of_means
                    error = error + of_rounding + 2.0 * UNIT * np.abs(target)
                targets.append(target)
                errors.append(error)
        self.rows = rows_of_records(form, vectors, arms)
        self.targets: Array = np.concatenate(targets)
        self.target_errors: Array = np.concatenate(errors)


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
    shifts = [np.zeros(0)]
    for imbalance in form.imbalances:
        shifts += [shift for group, shift in _groups(imbalance) if _kernel_of_group(group) is None]
    return np.concatenate(shifts)


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
    rows = [np.zeros((len(arms), 0))]
    for group in vector_groups(form):
        rows.append(_sum_of([part.row(vectors[part.features.name], arms) for part in group]))
    return np.hstack(rows)


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
        units = max(part.matrix.shape[1] for part in group) + len(group) + 6.0
        targets.append(total)
        errors.append(1.01 * units * UNIT * size)
    return np.hstack(targets), np.hstack(errors)


def vector_groups(form: WeightingForm) -> list[Group]:
    """Groups of all coordinates that are no features of kernels, in the order of the columns."""
    found: list[Group] = []
    for imbalance in form.imbalances:
        found.extend(group for group in imbalance.groups if _kernel_of_group(group) is None)
    return found


def _sum_of(parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _groups(imbalance: Imbalance) -> list[tuple[Group, Array]]:
    """Groups of an imbalance, each with its part of the shift."""
    found = []
    begin = 0
    for group in imbalance.groups:
        end = begin + len(group[0].matrix)
        found.append((group, np.asarray(imbalance.shift[begin:end], dtype=np.float64)))
        begin = end
    return found


def sums_by_arm(phi: Array, arms: Arms) -> tuple[Array, Array]:
    """Sums (2, width) of features over the records of an arm, and the sums of their sizes."""
    treated = arms.astype(np.float64)
    sums = np.stack([blocked_sum(1.0 - treated, phi), blocked_sum(treated, phi)])
    sizes = np.stack([blocked_sum(1.0 - treated, np.abs(phi)), blocked_sum(treated, np.abs(phi))])
    return sums, sizes


def _target(
    group: Group, sums: Mapping[str, tuple[Array, Array]], shift: Array, n: int
) -> tuple[Array, Array]:
    """Sum of the targets of a group and its shift (r,), and a bound of its rounding."""
    total = shift.copy()
    size = np.abs(shift)
    for part in group:
        by_arm, sizes = sums[part.features.name]
        total = total + part.matrix @ (part.target @ by_arm)
        size = size + np.abs(part.matrix) @ (np.abs(part.target) @ sizes)
    units = sum_units(n) + max(part.matrix.shape[1] for part in group) + len(group) + 6.0
    return total, 1.01 * units * UNIT * size


def mean_targets(
    group: Group, sums: Mapping[str, tuple[Array, Array]], by_arm: Array
) -> tuple[Array, Array]:
    """What means of arms are in the targets of a group, and bounds of their rounding.

    Parameters
    ----------
    group
        The group.
    sums
        Sums (..., 2, width) of the features over the records of each arm, and sums of their sizes,
        by name.
    by_arm
        Numbers of records of both arms (..., 2), above 0 where a mean is asked for.

    Returns
    -------
    tuple
        Targets (..., r), and bounds (..., r) of their rounding.
    """
    n = int(np.max(np.sum(by_arm, axis=-1)))
    total: Array = np.zeros((*by_arm.shape[:-1], len(group[0].matrix)))
    size = np.zeros_like(total)
    for part in group:
        of_arms, sizes = sums[part.features.name]
        shares = part.mean * (n / np.maximum(by_arm, 1))
        total = total + np.einsum("...a,...aw->...w", shares, of_arms) @ part.matrix.T
        size = size + np.einsum("...a,...aw->...w", np.abs(shares), sizes) @ np.abs(part.matrix).T
    units = sum_units(n) + max(part.matrix.shape[1] for part in group) + len(group) + 16.0
    return total, 1.01 * units * UNIT * size


def _kernel(features: Features) -> KernelOfRecords:
    assert features.kernel is not None
    return features.kernel


def kernel_factors(form: WeightingForm) -> dict[Features, Array]:
    """Factors (m, 7) of all squares of one kernel, for a price ``|m|^2 / 2``.

    They are of rows by arm and of targets.

    Targets come in the order of :data:`TARGETS`.

    Raises DeclarationError for another price beside a kernel, or of its features.
    """
    found: dict[str, list[Array]] = {}
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
            factors = [part.weighted, part.target, part.mean, np.array([part.public])]
            found.setdefault(kernel.name, []).append(scale * np.concatenate(factors))
            features[kernel.name] = kernel
    if found:
        _refuse_other_prices(form)
    return {features[name]: np.array(rows) for name, rows in found.items()}


def products(stacked: Array) -> tuple[Array, Array]:
    """Products of factors (m, 7) of rows by arm and of targets: pull (2, 2) and push (2, 5)."""
    rows = stacked[:, :2]
    targets = stacked[:, 2:]
    return rows.T @ rows, rows.T @ targets


def _similarities(features: Features, stacked: Array, X: Array) -> Similarities:
    diagonal = _kernel(features).diagonal(with_points(features, X))
    own = diagonal[: len(X)]
    pull, push = products(stacked)
    return Similarities(
        features, pull, push, float(np.max(own, initial=0.0)), own, diagonal[len(X) :]
    )


def _features(similarities: Similarities, X: Array, units: float) -> FewFeatures | None:
    most = min(len(X) // RECORDS_PER_PIVOT, MOST_PIVOTS)
    return few_features(
        _kernel(similarities.features), with_points(similarities.features, X), most, units
    )


def with_points(features: Features, X: Array) -> Array:
    """Covariates (n + T, p) of records, and below them the T public points of a kernel."""
    if features.points is None:
        return X
    return np.vstack([X, features.points])


def target_counts(by_arm: Array) -> Array:
    """How often a record counts in a target (..., 4), in the order of :data:`TARGETS`.

    Public points are left out.

    Parameters
    ----------
    by_arm
        Numbers of records of both arms (..., 2).
    """
    of_mean = np.sum(by_arm, axis=-1, keepdims=True) / np.maximum(by_arm, 1.0)
    return np.concatenate([np.ones_like(by_arm), of_mean], axis=-1)


def push_size(push: Array) -> float:
    """Bound, over n, of the sum of the sizes of what ``push`` (2, 5) adds the kernels of.

    All records are in the targets of records, and each mean counts n times.
    """
    sizes = np.abs(push)
    return float(np.max(np.max(sizes[:, :2], axis=1) + np.sum(sizes[:, 2:], axis=1)))


def split_factors(pull: Array, push: Array) -> tuple[Array, Array, float]:
    """Factors (m, 2) and (m, 5) with ``left' left = pull``, ``left' right = push``.

    The third result is how far they are off.

    Directions of the rank of ``pull`` suffice, as ``push`` has its columns in the span of ``pull``.
    """
    values, vectors = np.linalg.eigh(pull)
    kept = values > 1e-14 * np.max(values)
    root = np.sqrt(values[kept])
    left = root[:, None] * vectors[:, kept].T
    right = (vectors[:, kept].T @ push) / root[:, None]
    off_pull = float(np.max(np.abs(left.T @ left - pull)))
    off_push = float(np.max(np.abs(left.T @ right - push)))
    return left, right, max(off_pull, off_push)


def _kernel_columns(
    one: Similarities, found: FewFeatures, arms: Arms
) -> tuple[Array, Array, Array, Array]:
    """Rows, targets, their errors and the errors of prices, of features of a kernel.

    Rows are ``left[:, a_i] (x) f_i`` and targets ``right[:, a_j] (x) f_j``.
    """
    left, right, off = split_factors(one.pull, one.push)
    n = len(arms)
    f = found.values[:n]
    rows = (left[:, arms].T[:, :, None] * f[:, None, :]).reshape(n, -1)
    sums, sizes, units = _sums_of_targets(f, found.values[n:], arms)
    targets = (right @ sums).ravel()
    errors = (units + 8.0) * UNIT * (np.abs(right) @ sizes).ravel()
    largest = max(one.largest, float(np.max(one.at_points, initial=0.0)))
    largest += float(np.max(found.entry_errors))
    moved = kernel_price_error((one.pull, one.push, off), found.entry_errors[:n], largest)
    return rows, targets, errors, moved


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
    by_arm: Array = np.bincount(arms, minlength=2).astype(np.float64)
    of_means = target_counts(by_arm)[2:, None]
    sums, sizes = sums_by_arm(f, arms)
    public = [np.zeros((1, f.shape[1]))] * 2
    units = sum_units(n) + 4.0
    if len(at_points):
        T = len(at_points)
        even = np.full(T, n / T)
        public = [blocked_sum(even, at_points)[None], blocked_sum(even, np.abs(at_points))[None]]
        units += sum_units(T)
    every = np.concatenate([sums, of_means * sums, public[0]])
    every_size = np.concatenate([sizes, of_means * sizes, public[1]])
    return every, every_size, units


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
    """
    pull, push, off = factors
    factor = max(float(np.max(np.abs(pull))), push_size(push))
    # records share a target of sums, and what is off is off for every other one
    off *= 1.0 + np.count_nonzero(np.any(push[:, 2:] != 0.0, axis=0))
    error = (factor + off) * entry_error + (off + 16.0 * UNIT * factor) * largest
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
    both = [SumOfBlock(controls, float(totals[0])), SumOfBlock(treated, float(totals[1]))]
    return [one for one in both if one.total > 0 or not _is_empty(one)]


def _is_empty(block: SumOfBlock) -> bool:
    return not isinstance(block.members, slice) and len(block.members) == 0


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
        low = np.maximum(low, form.low_of.row(vectors[form.low_of.features.name], arms)[:, 0])
    if form.cap_of is not None:
        cap = np.minimum(cap, form.cap_of.row(vectors[form.cap_of.features.name], arms)[:, 0])
    if form.sums.kind in (SumKind.CONTROLS, SumKind.TREATED):
        fixed = 0.0 if form.sums.kind is SumKind.CONTROLS else 1.0
        low = np.where(arms == 1, fixed, low)
        cap = np.where(arms == 1, fixed, cap)
    first, last = form.dispersion.ends
    scale = np.ones(len(arms)) if form.base is None else vectors[form.base.name][:, 0]
    low = np.maximum(low, first * scale)
    cap = np.minimum(cap, last * scale)
    if np.any(low < 0.0):
        raise DeclarationError("weights may be negative: write w >= 0 among the constraints")
    return low, cap


def _curve(
    form: WeightingForm, arms: Arms, vectors: Mapping[str, Array], blocks: tuple[SumOfBlock, ...]
) -> InverseSlope:
    """Boxes by record, which a sum bounds as well; refuses those that cannot hold the sums."""
    low, cap = boxes_of_records(form, arms, vectors)
    for block in blocks:
        members = block.members
        least = math.fsum(low[members])
        most = math.fsum(np.minimum(cap[members], block.total + 1.0))
        if block.total > 0.0 and not len(low[members]):
            raise InfeasibleError(
                "an arm without records cannot hold its share of the weight: both need some"
            )
        if not least <= block.total <= most:
            raise InfeasibleError(
                f"{len(low[members])} records: no weights between {least:g} and {most:g} in all "
                f"have the sum {block.total:g}"
            )
        # No weight exceeds the sum of its block, so that a box twice as wide changes no solution.
        cap[members] = np.maximum(np.minimum(cap[members], 2.0 * block.total + 1.0), low[members])
    base = None
    if form.base is not None:
        base = vectors[form.base.name][:, 0]
    return InverseSlope(form.dispersion, low, cap, base)
