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

from dp2erm_cvx.arrays import UNIT, Array
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
    OUTWARD,
    boxes_of_records,
    kernel_factors,
    kernel_price_error,
    mean_targets,
    priced_vectors,
    products,
    rows_of_records,
    split_factors,
    target_counts,
    targets_of_records,
    values_of_records,
    vector_groups,
    vector_shift,
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
        width = max((one.columns.stop for one in priced), default=0)
        self.kernels = [
            _FactoredKernel(features, stacked) for features, stacked in kernel_factors(form).items()
        ]
        end = width
        for kernel in self.kernels:
            begin = end
            end += len(kernel.left) * n_kinds
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

        Raises
        ------
        DeclarationError
            For counts of other numbers of kinds or records.
        """
        form = self.form
        m = len(count)
        if count.shape != (m, self.n_kinds) or len(kinds.a) != count.size:
            raise DeclarationError(
                f"count: must be (m, {self.n_kinds}), one per kind of {len(kinds.a)}"
            )
        if (
            np.any(np.sum(count, axis=1) != form.n)
            or np.any(count < 0)
            or np.any(count != np.rint(count))
        ):
            raise DeclarationError(f"count: must be whole numbers of sum {form.n} in every dataset")
        arms = kinds.a.reshape(count.shape)
        vectors = {
            one.name: values_of_records(one, kinds) for one in form.features if one.of is not None
        }
        rows = rows_of_records(form, vectors, kinds.a).reshape(*count.shape, -1)
        targets, errors = self._targets(vectors, arms, count)
        kernel_rows, kernel_targets, kernel_errors, squares, moved = self._kernel_columns(
            kinds, arms, count
        )
        linear = np.zeros(count.shape)
        if form.linear is not None:
            linear = form.linear.row(vectors[form.linear.features.name], kinds.a)[:, 0].reshape(
                count.shape
            )
        base = np.zeros((m, 0))
        if form.base is not None:
            base = vectors[form.base.name][:, 0].reshape(count.shape)
        block = block_of_records(form, kinds.a).reshape(count.shape)
        inside = np.where(
            block[:, None, :] == np.arange(self.n_blocks)[:, None], count[:, None, :], 0.0
        )
        treated = np.sum(count * arms, axis=1)
        totals = totals_of_blocks(form, treated)
        low, cap = boxes_of_records(form, kinds.a, vectors)
        low = low.reshape(count.shape)
        cap = cap.reshape(count.shape)
        # No weight exceeds the sum of its block, so that a box twice as wide changes no solution.
        most = 2.0 * np.take_along_axis(totals, np.maximum(block, 0), axis=1) + 1.0
        cap = np.maximum(np.where(block >= 0, np.minimum(cap, most), cap), low)
        return KindsPart(
            targets=np.hstack([targets, kernel_targets]),
            target_errors=np.hstack([errors, kernel_errors]),
            totals=totals,
            low=low,
            cap=cap,
            base=base,
            feasible=_feasible(inside, totals, low, cap) & self._has_means(treated),
            count=count,
            treated=treated,
            rows=np.concatenate([rows, kernel_rows], axis=2),
            linear=linear,
            block=block,
            inside=inside,
            kernel_squares=squares,
            kernel_error=moved,
        )

    def _has_means(self, treated: Array) -> NDArray[np.bool_]:
        """Whether the arms whose means are targets have records (m,)."""
        found = np.ones(len(treated), dtype=bool)
        for arm in self.form.arms_of_means:
            found &= (treated if arm == 1 else self.n - treated) > 0
        return found

    def _targets(self, vectors: dict[str, Array], arms: Arms, count: Array) -> tuple[Array, Array]:
        """Sums of targets of vectors and shift (m, K), and bounds of their rounding."""
        own, own_errors = targets_of_records(self.form, vectors, arms.ravel())
        own = own.reshape(*count.shape, -1)
        own_errors = own_errors.reshape(*count.shape, -1)
        shift = vector_shift(self.form)
        means, mean_errors = self._means(vectors, arms, count)
        targets = np.sum(count[:, :, None] * own, axis=1) + shift + means
        size = np.sum(count[:, :, None] * np.abs(own), axis=1) + np.abs(shift) + np.abs(means)
        errors = np.sum(count[:, :, None] * own_errors, axis=1) + mean_errors
        return targets, (errors + (self.n_kinds + 6.0) * UNIT * size) * OUTWARD

    def _means(self, vectors: dict[str, Array], arms: Arms, count: Array) -> tuple[Array, Array]:
        """What means of arms are in the targets (m, K), and bounds of their rounding."""
        of_arm = np.stack([count * (arms == 0), count * (arms == 1)], axis=1)
        sums = {}
        for name, phi in vectors.items():
            values = phi.reshape(*count.shape, -1)
            sums[name] = of_arm @ values, of_arm @ np.abs(values)
        by_arm = np.sum(of_arm, axis=2)
        targets = [np.zeros((len(count), 0))]
        errors = [np.zeros((len(count), 0))]
        for group in vector_groups(self.form):
            target, error = mean_targets(group, sums, by_arm)
            targets.append(target)
            errors.append(error)
        return np.hstack(targets), np.hstack(errors)

    def _kernel_columns(
        self, kinds: Records, arms: Arms, count: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Rows (m, k, .), targets and errors (m, .), squares (m, k), errors of prices (m,)."""
        m, k = count.shape
        rows = [np.zeros((m, k, 0))]
        targets = [np.zeros((m, 0))]
        errors = [np.zeros((m, 0))]
        squares = np.zeros(count.shape)
        moved = np.zeros(m)
        for kernel in self.kernels:
            f, at_points, entry_error, diagonal = kernel.features_of(kinds, k)
            sums, sizes = _sums_of_targets(f, at_points, arms, count)
            left = np.moveaxis(kernel.left[:, arms], 0, 2)
            rows.append((left[:, :, :, None] * f[:, :, None, :]).reshape(m, k, -1))
            targets.append((kernel.right @ sums).reshape(m, -1))
            rounding = (k + 8.0) * UNIT
            errors.append(rounding * (np.abs(kernel.right) @ sizes).reshape(m, -1))
            largest = np.maximum(np.max(diagonal, axis=1), kernel.largest_at_points) + entry_error
            moved += kernel_price_error(
                (kernel.pull, kernel.push, kernel.off), entry_error, largest
            )
            squares += np.diag(kernel.pull)[arms] * (diagonal + entry_error[:, None]) * OUTWARD
        return np.concatenate(rows, axis=2), np.hstack(targets), np.hstack(errors), squares, moved

    def arguments(self, prices: Array, multipliers: Array, part: KindsPart) -> Array:
        argument = -np.einsum("mki,mi->mk", part.rows, prices) - part.linear
        return np.asarray(argument - self.levels(multipliers, part))

    def argument_sizes(self, prices: Array, multipliers: Array, part: KindsPart) -> Array:
        size = np.einsum("mki,mi->mk", np.abs(part.rows), prices) + np.abs(part.linear)
        return np.asarray(size + self.levels(multipliers, part))

    def levels(self, multipliers: Array, part: KindsPart) -> Array:
        """The multiplier (m, k) of the block of every kind, 0 outside of blocks."""
        own = np.take_along_axis(multipliers, np.maximum(part.block, 0), axis=1)
        return np.where(part.block >= 0, own, 0.0)

    def price_errors(self, weights: Array, part: KindsPart) -> Array:
        mass = self.total(weights, part) + self.n
        return np.asarray((part.kernel_error * mass)[:, None] * OUTWARD)

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

    def _free(self, part: KindsPart) -> NDArray[np.bool_]:
        """Whether the weight of a kind (m, k) that is there may move."""
        return np.asarray((part.cap > part.low) & (part.count > 0))

    def row_sizes(self, part: KindsPart) -> tuple[Array, Array]:
        free = self._free(part)
        scaled = (part.rows * self.scale)[:, :, : self.vector_columns]
        norms = np.sqrt(np.sum(np.square(scaled), axis=2) + part.kernel_squares)
        row = np.max(np.where(free, norms, 0.0), axis=1)
        farthest = np.zeros(len(part))
        for number in range(self.n_blocks):
            inside = free & (part.block == number)
            members = np.maximum(np.sum(inside, axis=1), 1)[:, None]
            middle = np.sum(np.where(inside[:, :, None], scaled, 0.0), axis=1) / members
            apart = np.hypot(
                distances_of_rows(scaled, middle[:, None, :]), np.sqrt(part.kernel_squares)
            )
            farthest = np.maximum(farthest, np.max(np.where(inside, apart, 0.0), axis=1))
        return row * OUTWARD, 2.0 * farthest * OUTWARD

    def kink_widths(self, place: int, part: KindsPart) -> Array:
        one = self.priced[place]
        sizes = one.width_at_kink(part.rows[:, :, one.columns])
        return np.asarray(np.max(np.where(self._free(part), sizes, 0.0), axis=1))


def _feasible(inside: Array, totals: Array, low: Array, cap: Array) -> NDArray[np.bool_]:
    """Whether the boxes (m, k) hold the sums of all blocks (m, B) by more than rounding (m,)."""
    least = np.sum(inside * low[:, None, :], axis=2)
    # a fixed weight outside of all blocks may have no cap
    most = np.sum(inside * np.where(np.isfinite(cap), cap, 0.0)[:, None, :], axis=2)
    held = (least <= totals * (1.0 - MARGIN)) & (totals <= most * (1.0 - MARGIN))
    return np.asarray(np.all(held, axis=1))


class _FactoredKernel:
    """Squares of the features of one kernel, times public factors by arm.

    Parameters
    ----------
    features
        The features of the kernel.
    stacked
        Factors (r, 4) of rows and targets by arm.
    """

    def __init__(self, features: Features, stacked: Array) -> None:
        assert features.kernel is not None
        self.kernel: KernelOfRecords = features.kernel
        self.points = features.points
        self.largest_at_points = 0.0
        if features.points is not None:
            self.largest_at_points = float(np.max(features.kernel.diagonal(features.points)))
        self.pull, self.push = products(stacked)
        self.left, self.right, self.off = split_factors(self.pull, self.push)

    def features_of(self, kinds: Records, k: int) -> tuple[Array, Array, Array, Array]:
        """Features (m, k, k) of the kinds of m datasets, with what is proved of them.

        Parameters
        ----------
        kinds
            The m k kinds.
        k
            Number of kinds of every dataset.

        Returns
        -------
        tuple
            The features; the mean (m, k) of those of the public points in their span, 0 without
            any; bounds (m,) of the distance of their products to the kernel, which is measured on
            all pairs of kinds; and the diagonal entries (m, k) of the kernel.
        """
        X = np.asarray(kinds.covariates)
        X = X.reshape(-1, k, X.shape[1])
        K = np.stack([self.kernel.cross(x, x) for x in X])
        K = (K + np.swapaxes(K, 1, 2)) / 2.0
        values, vectors = np.linalg.eigh(K)
        diagonal = np.maximum(np.diagonal(K, axis1=1, axis2=2), 0.0)
        largest = np.max(diagonal, axis=1)
        least = np.zeros(len(X))
        units = self.kernel.entry_error(kinds.space.features_bound, X.shape[2]) + 2.0 * k + 16.0
        if self.points is not None:
            # The mean of the points has to be written in the features, which must not vanish for
            # that.
            least = UNIT * np.maximum(largest, np.finfo(np.float64).tiny)
            units += len(self.points)
        roots = np.sqrt(np.maximum(values, least[:, None]))
        f = vectors * roots[:, None, :]
        apart = np.max(np.abs(f @ np.swapaxes(f, 1, 2) - K), axis=(1, 2))
        at_points = np.zeros((len(X), k))
        if self.points is not None:
            mean = np.stack([np.mean(self.kernel.cross(x, self.points), axis=1) for x in X])
            at_points = np.einsum("mki,mk->mi", vectors, mean) / roots
            missed = np.einsum("mki,mi->mk", f, at_points) - mean
            apart = np.maximum(apart, np.max(np.abs(missed), axis=1))
            largest = np.maximum(largest, self.largest_at_points)
        errors = (apart + units * UNIT * (largest + apart)) * OUTWARD
        return f, at_points, errors, diagonal


def _sums_of_targets(f: Array, at_points: Array, arms: Arms, count: Array) -> tuple[Array, Array]:
    """Sums (m, 5, k) of features in the order of the targets of a kernel, and sums of their sizes.

    Parameters
    ----------
    f
        Features (m, k, k) of the kinds.
    at_points
        Mean (m, k) of those of the public points.
    arms, count
        Treatment and number (m, k) of the kinds.
    """
    of_arm = np.stack([count * (arms == 0), count * (arms == 1)], axis=1)
    n = float(np.sum(count[0]))
    counts = target_counts(np.sum(of_arm, axis=2))[:, 2:, None]
    found = []
    for values, mean in ((f, at_points), (np.abs(f), np.abs(at_points))):
        sums = of_arm @ values
        found.append(np.concatenate([sums, counts * sums, n * mean[:, None, :]], axis=1))
    return found[0], found[1]
