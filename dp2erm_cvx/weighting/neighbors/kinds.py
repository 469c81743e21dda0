"""A weighting form at many datasets of few kinds of records, each with its number.

Records that are alike have the same exact weight: the objective is strictly convex in the weights,
and two like records that change places leave the same dataset. So one weight for each kind is all
that is solved for, and every sum over records counts a kind as often as it is there
(``docs/theory/weights_certificate.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.forms.features import Features, KernelOfRecords
from dp2erm_cvx.weighting.forms.form import Arms, ImbalancePenalty, WeightingForm
from dp2erm_cvx.weighting.forms.proximal import PricedColumns
from dp2erm_cvx.weighting.neighbors.data import distances_of_rows
from dp2erm_cvx.weighting.neighbors.many_datasets import (
    MARGIN,
    DatasetsOfRows,
    DatasetsPart,
    Numbers,
    block_of_records,
    totals_of_blocks,
)
from dp2erm_cvx.weighting.solving.dataset import (
    MEAN_TARGETS,
    boxes_of_records,
    kernel_factors,
    kernel_price_error,
    linear_terms,
    mean_targets,
    priced_vectors,
    products,
    rows_of_records,
    split_factors,
    target_counts,
    targets_of_records,
    vector_groups,
    vector_shift,
    vectors_of_records,
)


@dataclass(frozen=True)
class KindsPart(DatasetsPart):
    """m datasets of k kinds of records.

    Parameters
    ----------
    count
        How many records (m, k) there are of every kind; some may be 0.
    treated
        Number of treated records (m,).
    rows
        Rows (m, k, K).
    linear
        Number (m, k) that is added to a slope.
    block
        Block (m, k), or ``OUTSIDE``.
    inside
        How many records (m, B, k) of every kind a block has.
    kernel_squares
        Bounds (m, k) of the squares of the norms of features of kernels, in the norm of their
        price.
    kernel_error
        Bound (m,) of what these features move a price by per unit of ``|w|_1 + n``.
    """

    count: Array
    treated: Array
    rows: Array
    linear: Array
    block: Numbers
    inside: Array
    kernel_squares: Array
    kernel_error: Array


class KindsData(DatasetsOfRows[KindsPart]):
    """A form at datasets of few kinds of records.

    Parameters
    ----------
    form
        The form.
    n_kinds
        Number k of kinds of every dataset.

    Raises
    ------
    DeclarationError
        For a constraint of the imbalance, which has no claim, and prices that no dataset is solved
        for.
    """

    def __init__(self, form: WeightingForm, n_kinds: int) -> None:
        if form.hard:
            raise DeclarationError(
                "constraints of the imbalance have no claim: solve datasets one by one"
            )
        priced = list(priced_vectors(form))
        width = max((imbalance.columns.stop for imbalance in priced), default=0)
        self.kernels = [
            _FactoredKernel(features, stacked) for features, stacked in kernel_factors(form).items()
        ]
        end = width
        for kernel in self.kernels:
            begin = end
            end += len(kernel.row_factors) * n_kinds
            priced.append(PricedColumns(ImbalancePenalty(0.5), slice(begin, end)))
        super().__init__(form, tuple(priced))
        self.vector_columns = width
        self.n_kinds = n_kinds

    def part(self, kinds: Records, count: Array) -> KindsPart:
        """Datasets by their kinds.

        Parameters
        ----------
        kinds
            The m k kinds, those of one dataset after the other.
        count
            How many records (m, k) there are of each, n in every dataset.

        Returns
        -------
        KindsPart

        Raises
        ------
        DeclarationError
            For counts of other numbers of kinds or records.
        """
        self._check_counts(kinds, count)
        form = self.form
        arms = kinds.a.reshape(count.shape)
        vectors = vectors_of_records(form, kinds)
        rows = rows_of_records(form, vectors, kinds.a).reshape(*count.shape, -1)
        targets, target_errors = self._targets(vectors, arms, count)
        kernels = self._kernel_columns(kinds, arms, count)
        base: Array = np.zeros((len(count), 0))
        if form.base is not None:
            base = vectors[form.base.name][:, 0].reshape(count.shape)
        block = block_of_records(form, kinds.a).reshape(count.shape)
        of_block = block[:, None, :] == np.arange(self.n_blocks)[:, None]
        inside = np.where(of_block, count[:, None, :], 0.0)
        treated = np.sum(count * arms, axis=1)
        totals = totals_of_blocks(form, treated)
        low, cap = self._boxes(vectors, arms, block, totals)
        return KindsPart(
            targets=np.hstack([targets, kernels.targets]),
            target_errors=np.hstack([target_errors, kernels.target_errors]),
            totals=totals,
            low=low,
            cap=cap,
            base=base,
            feasible=_feasible(inside, totals, low, cap) & self._has_means(treated),
            count=count,
            treated=treated,
            rows=np.concatenate([rows, kernels.rows], axis=2),
            linear=linear_terms(form, vectors, kinds.a).reshape(count.shape),
            block=block,
            inside=inside,
            kernel_squares=kernels.squares,
            kernel_error=kernels.price_error,
        )

    def arguments(self, prices: Array, multipliers: Array, part: KindsPart) -> Array:
        argument = -np.einsum("mki,mi->mk", part.rows, prices) - part.linear
        return np.asarray(argument - self.levels(multipliers, part))

    def argument_sizes(self, prices: Array, multipliers: Array, part: KindsPart) -> Array:
        size = np.einsum("mki,mi->mk", np.abs(part.rows), prices) + np.abs(part.linear)
        return np.asarray(size + self.levels(multipliers, part))

    def levels(self, multipliers: Array, part: KindsPart) -> Array:
        """The multiplier (m, k) of the block of every kind, 0 outside of blocks."""
        of_block = multipliers
        if self.n_blocks > 1:
            of_block = np.take_along_axis(multipliers, np.maximum(part.block, 0), axis=1)
        return np.where(part.block >= 0, of_block, 0.0)

    def price_errors(self, weights: Array, part: KindsPart) -> Array:
        mass = self.total(weights, part) + self.n
        return np.asarray((part.kernel_error * mass)[:, None] * ROUND_UP)

    def row_norms(self, columns: slice, part: KindsPart) -> Array:
        return np.asarray(np.linalg.norm(part.rows[:, :, columns], axis=2))

    def imbalances(self, weights: Array, part: KindsPart) -> Array:
        return np.asarray(np.einsum("mk,mki->mi", part.count * weights, part.rows) - part.targets)

    def reached(self, weights: Array, part: KindsPart) -> tuple[Array, Array]:
        size = np.einsum("mk,mki->mi", part.count * weights, np.abs(part.rows))
        return self.imbalances(weights, part), np.asarray(size)

    @property
    def reached_units(self) -> float:
        return self.n_kinds + 4.0

    def sums(self, numbers: Array, part: KindsPart) -> Array:
        return np.asarray(np.matmul(part.inside, numbers[:, :, None])[:, :, 0])

    @property
    def summed_units(self) -> float:
        return self.n_kinds + 2.0

    def total(self, numbers: Array, part: KindsPart) -> Array:
        return np.asarray(np.sum(part.count * numbers, axis=1))

    def counts(self, part: KindsPart) -> Array:
        return part.count

    def summed(self, part: KindsPart) -> NDArray[np.bool_]:
        return np.asarray(part.block >= 0)

    def moments(self, rates: Array, part: KindsPart) -> Array:
        inside = part.block[:, :, None] == np.arange(self.n_blocks)
        lined = np.concatenate([part.rows, inside], axis=2)
        weighted = lined * (part.count * rates)[:, :, None]
        return np.asarray(np.swapaxes(weighted, 1, 2) @ lined)

    def row_sizes(self, part: KindsPart) -> tuple[Array, Array]:
        free = self._free(part)
        scaled = (part.rows * self.scale)[:, :, : self.vector_columns]
        norms = np.sqrt(np.sum(np.square(scaled), axis=2) + part.kernel_squares)
        row = np.max(np.where(free, norms, 0.0), axis=1)
        farthest = np.zeros(len(part))
        for number in range(self.n_blocks):
            inside = free & (part.block == number)
            n_inside = np.maximum(np.sum(inside, axis=1), 1)[:, None]
            middle = np.sum(np.where(inside[:, :, None], scaled, 0.0), axis=1) / n_inside
            vector_distances = distances_of_rows(scaled, middle[:, None, :])
            distances = np.hypot(vector_distances, np.sqrt(part.kernel_squares))
            farthest = np.maximum(farthest, np.max(np.where(inside, distances, 0.0), axis=1))
        return row * ROUND_UP, 2.0 * farthest * ROUND_UP

    def kink_widths(self, place: int, part: KindsPart) -> Array:
        priced = self.priced[place]
        sizes = priced.width_at_kink(part.rows[:, :, priced.columns])
        return np.asarray(np.max(np.where(self._free(part), sizes, 0.0), axis=1))

    def _check_counts(self, kinds: Records, count: Array) -> None:
        """Refuse counts of other numbers of kinds or records. Raises DeclarationError."""
        if count.shape != (len(count), self.n_kinds) or len(kinds.a) != count.size:
            raise DeclarationError(
                f"count: must be (m, {self.n_kinds}), one per kind of {len(kinds.a)}"
            )
        whole = np.all(count >= 0) and np.all(count == np.rint(count))
        if not whole or np.any(np.sum(count, axis=1) != self.form.n):
            raise DeclarationError(
                f"count: must be whole numbers of sum {self.form.n} in every dataset"
            )

    def _targets(self, vectors: dict[str, Array], arms: Arms, count: Array) -> tuple[Array, Array]:
        """Sums of targets of vectors and shift (m, K), and bounds of their rounding."""
        of_kinds, errors_of_kinds = targets_of_records(self.form, vectors, arms.ravel())
        of_kinds = of_kinds.reshape(*count.shape, -1)
        errors_of_kinds = errors_of_kinds.reshape(*count.shape, -1)
        counted = count[:, :, None]
        shift = vector_shift(self.form)
        means, mean_errors = self._means(vectors, arms, count)
        targets = np.sum(counted * of_kinds, axis=1) + shift + means
        sizes = np.sum(counted * np.abs(of_kinds), axis=1) + np.abs(shift) + np.abs(means)
        errors = np.sum(counted * errors_of_kinds, axis=1) + mean_errors
        return targets, (errors + (self.n_kinds + 6.0) * UNIT * sizes) * ROUND_UP

    def _means(self, vectors: dict[str, Array], arms: Arms, count: Array) -> tuple[Array, Array]:
        """What means of arms are in the targets (m, K), and bounds of their rounding."""
        count_of_arm = _count_by_arm(count, arms)
        sums = {}
        for name, phi in vectors.items():
            values = phi.reshape(*count.shape, -1)
            sums[name] = count_of_arm @ values, count_of_arm @ np.abs(values)
        arm_sizes = np.sum(count_of_arm, axis=2)
        targets = [np.zeros((len(count), 0))]
        errors = [np.zeros((len(count), 0))]
        for group in vector_groups(self.form):
            target, error = mean_targets(group, sums, arm_sizes)
            targets.append(target)
            errors.append(error)
        return np.hstack(targets), np.hstack(errors)

    def _kernel_columns(self, kinds: Records, arms: Arms, count: Array) -> _KernelColumns:
        """The columns of all kernels, side by side."""
        m, k = count.shape
        each = [kernel.columns(kinds, arms, count) for kernel in self.kernels]
        rows = [np.zeros((m, k, 0))]
        targets = [np.zeros((m, 0))]
        target_errors = [np.zeros((m, 0))]
        squares = np.zeros(count.shape)
        price_error = np.zeros(m)
        for columns in each:
            rows.append(columns.rows)
            targets.append(columns.targets)
            target_errors.append(columns.target_errors)
            squares += columns.squares
            price_error += columns.price_error
        return _KernelColumns(
            rows=np.concatenate(rows, axis=2),
            targets=np.hstack(targets),
            target_errors=np.hstack(target_errors),
            squares=squares,
            price_error=price_error,
        )

    def _boxes(
        self, vectors: dict[str, Array], arms: Arms, block: Numbers, totals: Array
    ) -> tuple[Array, Array]:
        """Ends (m, k) of the boxes, which the sum of a block bounds as well."""
        low, cap = boxes_of_records(self.form, arms.ravel(), vectors)
        low = low.reshape(arms.shape)
        cap = cap.reshape(arms.shape)
        # No weight exceeds the sum of its block, so that a box twice as wide changes no solution.
        twice_total = 2.0 * np.take_along_axis(totals, np.maximum(block, 0), axis=1) + 1.0
        cap = np.where(block >= 0, np.minimum(cap, twice_total), cap)
        return low, np.maximum(cap, low)

    def _has_means(self, treated: Array) -> NDArray[np.bool_]:
        """Whether the arms whose means are targets have records (m,)."""
        arm_sizes = (self.n - treated, treated)
        present = np.ones(len(treated), dtype=bool)
        for arm in self.form.arms_of_means:
            present &= arm_sizes[arm] > 0
        return present

    def _free(self, part: KindsPart) -> NDArray[np.bool_]:
        """Whether the weight of a kind (m, k) that is there may move."""
        return np.asarray((part.cap > part.low) & (part.count > 0))


def _count_by_arm(count: Array, arms: Arms) -> Array:
    """How many records (m, 2, k) of every kind are in each arm."""
    return np.stack([count * (arms == 0), count * (arms == 1)], axis=1)


def _feasible(inside: Array, totals: Array, low: Array, cap: Array) -> NDArray[np.bool_]:
    """Whether the boxes (m, k) hold the sums of all blocks (m, B) by more than rounding (m,)."""
    least = np.sum(inside * low[:, None, :], axis=2)
    # A fixed weight outside of all blocks may have no cap.
    finite_cap = np.where(np.isfinite(cap), cap, 0.0)
    most = np.sum(inside * finite_cap[:, None, :], axis=2)
    held = (least <= totals * (1.0 - MARGIN)) & (totals <= most * (1.0 - MARGIN))
    return np.asarray(np.all(held, axis=1))


@dataclass(frozen=True)
class _KernelColumns:
    """Columns of the features of kernels, of m datasets of k kinds.

    Parameters
    ----------
    rows
        Rows (m, k, r) of the kinds in these columns.
    targets, target_errors
        Sums of targets (m, r), and bounds of their rounding.
    squares
        Bounds (m, k) of the squares of the norms of the rows, in the norm of their price.
    price_error
        Bound (m,) of what these features move a price by, per unit of ``|w|_1 + n``.
    """

    rows: Array
    targets: Array
    target_errors: Array
    squares: Array
    price_error: Array


@dataclass(frozen=True)
class _KindFeatures:
    """Features f of the k kinds of m datasets, whose products are a kernel up to an error.

    Parameters
    ----------
    values
        The features (m, k, k).
    at_points
        The vector g (m, k) for which ``<f_j, g>`` is the mean of the kernel over the public points;
        0 without any.
    entry_error
        Bounds (m,) of ``|K_jk - <f_j, f_k>|``, epsilon of Theorem 35, measured on all pairs.
    diagonal
        Diagonal entries (m, k) of the kernel.
    """

    values: Array
    at_points: Array
    entry_error: Array
    diagonal: Array


class _FactoredKernel:
    """Squares of the features of one kernel, times public factors by arm.

    Parameters
    ----------
    features
        The features of the kernel.
    stacked
        Factors (r, 7) of rows by arm and of targets.
    """

    def __init__(self, features: Features, stacked: Array) -> None:
        assert features.kernel is not None
        self.kernel: KernelOfRecords = features.kernel
        self.points = features.points
        self.largest_at_points = 0.0
        if features.points is not None:
            self.largest_at_points = float(np.max(features.kernel.diagonal(features.points)))
        self.pull, self.push = products(stacked)
        factors = split_factors(self.pull, self.push)
        self.row_factors, self.target_factors, self.factor_error = factors

    def columns(self, kinds: Records, arms: Arms, count: Array) -> _KernelColumns:
        """Columns of this kernel.

        Rows are products of ``row_factors[:, a_j]`` and the features f_j of the kind j, targets
        those of ``target_factors`` and sums of features.

        Parameters
        ----------
        kinds
            The m k kinds.
        arms, count
            Treatment and number (m, k) of the kinds.

        Returns
        -------
        _KernelColumns
        """
        m, k = count.shape
        features = self.features_of(kinds, k)
        f = features.values
        factors = np.moveaxis(self.row_factors[:, arms], 0, 2)
        rows = (factors[:, :, :, None] * f[:, :, None, :]).reshape(m, k, -1)
        sums, sizes = _sums_of_targets(f, features.at_points, arms, count)
        targets = (self.target_factors @ sums).reshape(m, -1)
        target_sizes = (np.abs(self.target_factors) @ sizes).reshape(m, -1)
        target_errors = (k + 8.0) * UNIT * target_sizes
        largest = np.maximum(np.max(features.diagonal, axis=1), self.largest_at_points)
        price_error = kernel_price_error(
            (self.pull, self.push, self.factor_error),
            features.entry_error,
            largest + features.entry_error,
        )
        entries = features.diagonal + features.entry_error[:, None]
        squares = np.diag(self.pull)[arms] * entries * ROUND_UP
        return _KernelColumns(rows, targets, target_errors, squares, price_error)

    def features_of(self, kinds: Records, k: int) -> _KindFeatures:
        """Features of the kinds of m datasets (section "Records that are alike" of the page).

        They are the rows of ``U Lambda_+^(1/2)``, where ``K = U Lambda U'`` is the kernel of the
        kinds as it is computed. How far their products are from it is measured.

        Parameters
        ----------
        kinds
            The m k kinds.
        k
            Number of kinds of every dataset.

        Returns
        -------
        _KindFeatures
        """
        X = np.asarray(kinds.covariates)
        X = X.reshape(-1, k, X.shape[1])
        K = np.stack([self.kernel.cross(x, x) for x in X])
        K = (K + np.swapaxes(K, 1, 2)) / 2.0
        eigenvalues, eigenvectors = np.linalg.eigh(K)
        diagonal = np.maximum(np.diagonal(K, axis1=1, axis2=2), 0.0)
        largest = np.max(diagonal, axis=1)
        roots = np.sqrt(np.maximum(eigenvalues, self._least_eigenvalue(largest)[:, None]))
        f = eigenvectors * roots[:, None, :]
        error = np.max(np.abs(f @ np.swapaxes(f, 1, 2) - K), axis=(1, 2))
        units = self.kernel.entry_error(kinds.space.features_bound, X.shape[2]) + 2.0 * k + 16.0
        at_points = np.zeros((len(X), k))
        if self.points is not None:
            # g = Lambda_+^(-1/2) U' kbar, with kbar the mean of the kernel over the points.
            mean = np.stack([np.mean(self.kernel.cross(x, self.points), axis=1) for x in X])
            at_points = np.einsum("mki,mk->mi", eigenvectors, mean) / roots
            missed = np.einsum("mki,mi->mk", f, at_points) - mean
            error = np.maximum(error, np.max(np.abs(missed), axis=1))
            largest = np.maximum(largest, self.largest_at_points)
            units += len(self.points)
        entry_error = (error + units * UNIT * (largest + error)) * ROUND_UP
        return _KindFeatures(f, at_points, entry_error, diagonal)

    def _least_eigenvalue(self, largest: Array) -> Array:
        """What eigenvalues (m,) of kernels with these largest entries are raised to at least.

        The mean of public points is written in the features, which must not vanish for that.
        """
        if self.points is None:
            return np.zeros(len(largest))
        return np.asarray(UNIT * np.maximum(largest, np.finfo(np.float64).tiny))


def _sums_of_targets(f: Array, at_points: Array, arms: Arms, count: Array) -> tuple[Array, Array]:
    """Sums (m, 5, k) of features in the order of the targets of a kernel, and sums of their sizes.

    Parameters
    ----------
    f
        Features (m, k, k) of the kinds.
    at_points
        The vector (m, k) that stands for the mean of the public points.
    arms, count
        Treatment and number (m, k) of the kinds.
    """
    count_of_arm = _count_by_arm(count, arms)
    n = float(np.sum(count[0]))
    mean_counts = target_counts(np.sum(count_of_arm, axis=2))[:, MEAN_TARGETS, None]

    def targets_of(values: Array, mean: Array) -> Array:
        sums = count_of_arm @ values
        return np.concatenate([sums, mean_counts * sums, n * mean[:, None, :]], axis=1)

    return targets_of(f, at_points), targets_of(np.abs(f), np.abs(at_points))
