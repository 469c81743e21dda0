"""Affine expressions of a problem in the weights: their coefficients, by evaluation.

Whatever an author writes, an expression that CVXPY knows to be affine in the variable and in the
parameters is ``constant + (linear in data) + (linear in weights) + (bilinear in both)``. Unit data
and unit weights give its coefficients; drawn data and weights then show whether the coefficient of
every weight is the same function of its own record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import printed
from dp2erm_cvx.program.rows import Datum
from dp2erm_cvx.program.weighting.data import (
    ONE,
    ByFeature,
    FeatureTable,
    at_features,
    is_mean,
    n_entries,
)
from dp2erm_cvx.program.weighting.few_records import at_few_records
from dp2erm_cvx.weighting.forms.features import SimilaritySet
from dp2erm_cvx.weighting.forms.form import FeatureRows, Group

#: An evaluation may differ from what was read by this many parts of the sum of the sizes of its
#: terms.
_ROUNDING = 1e-11
#: Coefficients below this part of the largest one are rounding errors of 0.
_NOTHING = 1e-12
#: Above so many records coefficients are read at few of them, where all are alike.
_MANY = 4096
#: Directions and factors are the same where they differ by less than this part.
_SAME = 1e-9


@dataclass(frozen=True)
class SumsOverRecords:
    """``sum_i w_i z_i - sum_i t_i - n u - shift`` of K entries.

    Rows and targets are linear in features.

    Parameters
    ----------
    rows, targets
        Matrices (2, K, width) by feature.
    shift
        Public numbers (K,).
    means
        Matrices (3, K, width) by feature, of the means over both arms and public points that u is
        made of.
    """

    rows: ByFeature
    targets: ByFeature
    shift: Array
    means: ByFeature = field(default_factory=dict)

    def times(self, matrix: Array) -> SumsOverRecords:
        """The sums (r,) that a public matrix (r, K) makes of these."""
        rows = {name: matrix @ tensor for name, tensor in self.rows.items()}
        targets = {name: matrix @ tensor for name, tensor in self.targets.items()}
        means = {name: matrix @ tensor for name, tensor in self.means.items()}
        return SumsOverRecords(rows, targets, matrix @ self.shift, means)

    @property
    def weighted(self) -> NDArray[np.bool_]:
        """Which entries hold weights, (K,)."""
        found = np.zeros(len(self.shift), dtype=bool)
        for tensor in self.rows.values():
            found |= np.any(tensor != 0.0, axis=(0, 2))
        return found

    def at(self, places: NDArray[np.int64]) -> SumsOverRecords:
        """The entries at these places."""
        rows = {name: tensor[:, places] for name, tensor in self.rows.items()}
        targets = {name: tensor[:, places] for name, tensor in self.targets.items()}
        means = {name: tensor[:, places] for name, tensor in self.means.items()}
        return SumsOverRecords(rows, targets, self.shift[places], means)


@dataclass(frozen=True)
class WeightLine:
    """An expression with one entry for every record, of its own weight and its own data.

    Entry i is ``slope w_i + total sum(w) + offset``, and of the features of record i ``data`` and
    w_i times ``crossed``.

    Parameters
    ----------
    slope, total, offset
        Public numbers.
    data, crossed
        Matrices (2, 1, width) by feature, empty where there are none.
    """

    slope: float
    total: float
    offset: float
    data: ByFeature
    crossed: ByFeature

    @property
    def public(self) -> bool:
        """True if no data are in it."""
        return not self.data and not self.crossed


def flat(value: Any) -> Array:
    """Numbers of an expression in the order in which CVXPY counts its entries."""
    dense = value.toarray() if hasattr(value, "toarray") else value
    return np.ravel(np.asarray(dense, dtype=np.float64), order="F")


class AffineReader:
    """Reads affine expressions of weights and data.

    Parameters
    ----------
    w
        The weights (n,).
    table
        The features that data are made of.
    compared
        Whether what is read at few of many records is compared with the expression at all of them.
    """

    def __init__(self, w: cp.Variable, table: FeatureTable, *, compared: bool = True) -> None:
        self.w = w
        self.table = table
        self.compared = compared
        self.n = int(w.size)

    def sums(self, e: Any) -> SumsOverRecords:
        """An expression as sums over records.

        Its coefficients are differences of its values at unit data and at the unit weight of the
        first record; drawn weights and data then show whether those of every record are the same.
        Of many records a copy at few of them is read, if it is known to have the same coefficients.

        Raises DeclarationError where it has a product of data, where the coefficient of a weight is
        not the same function of its own record for all, or has the mean of an arm in it.
        """
        self._refuse_products(e)
        data = [datum for datum in e.parameters() if not is_mean(datum)]
        averages = [datum for datum in e.parameters() if is_mean(datum)]
        of_all = _Evaluation(e, self.w, [*data, *averages])
        evaluation = self._of_few_records(of_all)
        self._refuse_places(e, evaluation)
        constant = evaluation(evaluation.unit_weight(None))
        of_one = evaluation(evaluation.unit_weight(0)) - constant
        targets = []
        rows = []
        for datum in data:
            target, row = self._at_unit_data(evaluation, datum, constant, of_one)
            targets.append(target)
            rows.append(row)
        means = []
        for datum in averages:
            mean, crossed = self._at_unit_data(evaluation, datum, constant, of_one)
            size = np.abs(mean) + np.abs(of_one) + np.abs(constant)
            if _differ(crossed, np.zeros_like(crossed), size):
                raise DeclarationError(
                    f"{printed(e)}: multiplies weights by {datum.name()}, which depends on all "
                    "records: write P.T @ w - records.n * mean for weights of sum n"
                )
            means.append(mean)
        coefficients = _Coefficients(constant, of_one, targets, rows, means)
        self._refuse_other_records(e, evaluation, coefficients)
        if self.compared and evaluation is not of_all:
            self._refuse_other_records(e, of_all, coefficients)
        return self._by_features(data, averages, coefficients.without_rounding(self.n))

    def _at_unit_data(
        self, evaluation: _Evaluation, datum: Datum, constant: Array, of_one: Array
    ) -> tuple[Array, Array]:
        """Coefficients of the entries of a datum (k, K), alone and times the first weight.

        Parameters
        ----------
        evaluation
            Evaluates the expression of K entries.
        datum
            The datum, of k entries.
        constant, of_one
            The value (K,) without weights and data, and the coefficient (K,) of a weight.
        """
        unit = evaluation.unit_weight(0)
        alone = []
        with_weight = []
        for k in range(n_entries(datum)):
            without, weighted = evaluation.at_unit_datum(datum, k, [None, unit])
            alone.append(without - constant)
            with_weight.append(weighted - constant)
        of_datum = np.array(alone)
        crossed = np.array(with_weight) - of_datum - of_one
        return of_datum, crossed

    def line(self, e: Any) -> WeightLine | None:
        """An expression with one entry for every record; None for any other.

        Raises DeclarationError where it has a product of data.
        """
        if e.size != self.n or any(is_mean(datum) for datum in e.parameters()):
            return None
        self._refuse_products(e)
        data = e.parameters()
        of_all = _Evaluation(e, self.w, data)
        evaluation = self._of_few_records(of_all, is_line=True)
        offset = evaluation(evaluation.unit_weight(None))

        # entry 1 holds the weight of record 0 in the sum of all weights alone
        of_first_weight = evaluation(evaluation.unit_weight(0)) - offset
        total = float(of_first_weight[1])
        slope = float(of_first_weight[0]) - total
        rng = np.random.default_rng(self.n)
        w = rng.uniform(0.5, 1.5, evaluation.n)
        of_weights = evaluation(w) - offset
        expected = slope * w + total * np.sum(w)
        if _differ(of_weights, expected, np.abs(of_weights) + np.abs(offset)):
            return None

        alone: ByFeature = {}
        crossed: ByFeature = {}
        for datum in data:
            of_data, of_both = _at_columns_of_ones(evaluation, datum, offset, of_weights, w)
            self._add(alone, datum, of_data[:, :1].T)
            self._add(crossed, datum, of_both[:, :1].T / w[0])
        line = WeightLine(slope, total, float(offset[0]), _kept(alone), _kept(crossed))
        if not self._is_line(evaluation, line, offset, data):
            return None
        if self.compared and evaluation is not of_all:
            offset = of_all(of_all.unit_weight(None))
            if not self._is_line(of_all, line, offset, data):
                return None
        if not np.ptp(offset) <= _SAME * (float(np.max(np.abs(offset))) + abs(slope)):
            raise DeclarationError(
                f"{printed(e)}: has other numbers for other records: write one for all"
            )
        return line

    def _of_few_records(self, evaluation: _Evaluation, *, is_line: bool = False) -> _Evaluation:
        """An evaluation with the same coefficients: at few records where there are many."""
        if self.n <= _MANY:
            return evaluation
        few = at_few_records(evaluation.e, self.w, evaluation.data, is_line=is_line)
        if few is None:
            return evaluation
        return _Evaluation(few.e, few.w, evaluation.data, few.data)

    def _refuse_products(self, e: Any) -> None:
        """Raise DeclarationError unless an expression is affine in the weights and in the data."""
        with cp.utilities.scopes.dpp_scope():
            affine = bool(e.is_affine())
        if not affine:
            names = sorted({datum.name() for datum in e.parameters()})
            instead = (
                "make anything else of one record by records.by_arm, records.rows or "
                "records.numbers"
            )
            if "x" in names and ("treatment" in names or "arms" in names):
                instead = (
                    "covariates times treatment are the columns of records.by_arm(1.0), of "
                    "controls and then of treated, and (2a - 1) x is records.signed"
                )
            raise DeclarationError(
                f"{printed(e)}: is no sum over records of {', '.join(names)}: data may be added, "
                f"or multiply weights; {instead}"
            )

    def _refuse_places(self, e: Any, evaluation: _Evaluation) -> None:
        """Raise DeclarationError where records with the same data have other coefficients.

        Sums have the coefficients that they are read with at every record: this only refuses what
        cannot be one before there are as many coefficients as it has entries.
        """
        rng = np.random.default_rng(self.n)
        data = []
        for datum in evaluation.data:
            row = rng.uniform(0.2, 1.8, (1, n_entries(datum)))
            data.append(np.tile(row, (evaluation.n_rows(datum), 1)))
        alone = evaluation.with_data(data, evaluation.unit_weight(None))
        first = evaluation.with_data(data, evaluation.unit_weight(0))
        last = evaluation.with_data(data, evaluation.unit_weight(evaluation.n - 1))
        if _differ(first, last, np.abs(first) + np.abs(last) + np.abs(alone)):
            raise DeclarationError(_no_sum(e))

    def _refuse_other_records(self, e: Any, evaluation: _Evaluation, read: _Coefficients) -> None:
        """Raise DeclarationError where drawn weights and data refute what was read."""
        rng = np.random.default_rng(self.n + 1)
        for _ in range(2):
            w = rng.uniform(0.5, 1.5, evaluation.n)
            drawn = evaluation.drawn(rng)
            value = evaluation.with_data(drawn, w)
            expected, size = read.at(w, drawn)
            if _differ(value, expected, size):
                raise DeclarationError(_no_sum(e))

    def _is_line(
        self, evaluation: _Evaluation, line: WeightLine, offset: Array, data: Sequence[Datum]
    ) -> bool:
        """True if drawn weights and data give what was read, with offsets (n,)."""
        rng = np.random.default_rng(self.n + 2)
        arms = rng.integers(0, 2, evaluation.n)
        w = rng.uniform(0.5, 1.5, evaluation.n)
        phi = {
            name: rng.uniform(0.1, 1.0, (evaluation.n, width))
            for name, width in self._widths(data).items()
        }
        values = {datum.name(): at_features(self.table.parts(datum), phi, arms) for datum in data}
        expected = line.slope * w + line.total * np.sum(w) + offset
        size = np.abs(line.slope) * w + abs(line.total) * evaluation.n + np.abs(offset) + 1e-300
        for name, tensor in line.data.items():
            rows = tensor[arms, 0]
            expected = expected + np.einsum("iw,iw->i", phi[name], rows)
            size = size + np.einsum("iw,iw->i", phi[name], np.abs(rows))
        for name, tensor in line.crossed.items():
            rows = tensor[arms, 0]
            expected = expected + w * np.einsum("iw,iw->i", phi[name], rows)
            size = size + w * np.einsum("iw,iw->i", phi[name], np.abs(rows))
        return not _differ(evaluation.with_data(values, w), expected, size)

    def _widths(self, data: Sequence[Datum]) -> dict[str, int]:
        """Widths of the features that data are made of, by name."""
        widths: dict[str, int] = {}
        for datum in data:
            for name, tensor in self.table.parts(datum).items():
                widths[name] = tensor.shape[2]
        return widths

    def _by_features(
        self, data: Sequence[Datum], averages: Sequence[Datum], read: _Coefficients
    ) -> SumsOverRecords:
        """Coefficients of data and of means of arms as those of features."""
        rows: ByFeature = {}
        targets: ByFeature = {}
        for datum, of_rows, of_targets in zip(data, read.rows, read.targets, strict=True):
            self._add(rows, datum, of_rows.T)
            self._add(targets, datum, -of_targets.T)
        if np.any(read.of_one):
            constant = np.array([read.of_one, read.of_one])[:, :, None]
            name = self.table.one().name
            rows[name] = rows.get(name, 0.0) + constant
        means: ByFeature = {}
        shift = -read.constant
        for datum, of_mean in zip(averages, read.means, strict=True):
            parts, public = self.table.parts_of_mean(datum)
            shift = shift - of_mean.T @ public
            for name, tensor in parts.items():
                means[name] = means.get(name, 0.0) - of_mean.T @ tensor / self.n
        return SumsOverRecords(_kept(rows), _kept(targets), shift, _kept(means))

    def _add(self, found: ByFeature, datum: Datum, matrix: Array) -> None:
        """Add a matrix (K, k) times a datum."""
        for name, tensor in self.table.parts(datum).items():
            found[name] = found.get(name, 0.0) + matrix @ tensor


def _at_columns_of_ones(
    evaluation: _Evaluation, datum: Datum, offset: Array, of_weights: Array, w: Array
) -> tuple[Array, Array]:
    """What the columns of a datum (k, n) add to every entry, alone and by the weights w.

    Parameters
    ----------
    evaluation
        Evaluates the expression of n entries.
    datum
        The datum, of k columns.
    offset, of_weights
        Its values without weights and data (n,), and what the weights w add to them.
    w
        Weights (n,).
    """
    alone = []
    with_weights = []
    for k in range(n_entries(datum)):
        without, weighted = evaluation.at_column_of_ones(datum, k, [None, w])
        alone.append(without - offset)
        with_weights.append(weighted - offset)
    of_data = np.array(alone)
    of_both = np.array(with_weights) - of_data - of_weights
    rounding = _NOTHING * (1.0 + np.abs(of_data) + np.abs(of_weights))
    of_both[np.abs(of_both) <= rounding] = 0.0
    return of_data, of_both


def _no_sum(e: Any) -> str:
    """What refuses an expression whose coefficients depend on the place of the record."""
    return (
        f"{printed(e)}: is no sum over records in which each weight has the same function of its "
        "own record as its factor: write P.T @ w and cp.sum(P, axis=0), P data of records"
    )


@dataclass(frozen=True)
class _Coefficients:
    """Coefficients of an affine expression of K entries.

    Parameters
    ----------
    constant
        Its value without weights and data, (K,).
    of_one
        Of a weight, without data, (K,).
    targets, rows
        Of the entries of each datum (k, K): alone, and times the weight of the record.
    means
        Of the entries of each mean of an arm (k, K).
    """

    constant: Array
    of_one: Array
    targets: list[Array]
    rows: list[Array]
    means: list[Array]

    def at(self, w: Array, data: Sequence[Array]) -> tuple[Array, Array]:
        """Value (K,) at weights (n,), data (n, k) and means (1, k), and the sum of sizes.

        The sizes are those of its terms.
        """
        n_data = len(self.rows)
        sum_of_weights = float(np.sum(w))
        value = self.constant + sum_of_weights * self.of_one
        size = np.abs(self.constant) + sum_of_weights * np.abs(self.of_one)
        for values, mean in zip(data[n_data:], self.means, strict=True):
            value = value + values[0] @ mean
            size = size + np.abs(values[0]) @ np.abs(mean)
        for values, target, row in zip(data[:n_data], self.targets, self.rows, strict=True):
            total = np.sum(values, axis=0)
            weighted = w @ values
            value = value + total @ target + weighted @ row
            size = size + total @ np.abs(target) + weighted @ np.abs(row)
        return value, size

    def without_rounding(self, n: int) -> _Coefficients:
        """These, with 0 for what is a rounding error beside another coefficient of the same entry.

        Means count for n records.
        """
        means_of_one = [mean / n for mean in self.means]
        every = np.vstack([self.of_one[None], *self.targets, *self.rows, *means_of_one])
        smallest = _NOTHING * np.max(np.abs(every), axis=0)
        return _Coefficients(
            self.constant,
            _above(self.of_one, smallest),
            [_above(target, smallest) for target in self.targets],
            [_above(row, smallest) for row in self.rows],
            [_above(mean, n * smallest) for mean in self.means],
        )


def _above(coefficients: Array, smallest: Array) -> Array:
    """Coefficients (K,) or (k, K), with 0 for those of a size of at most ``smallest`` (K,)."""
    return np.where(np.abs(coefficients) > smallest, coefficients, 0.0)


class _Evaluation:
    """Evaluates an expression at weights and data.

    What was set before is put back by whoever reads.

    Parameters
    ----------
    e
        The expression.
    w
        Its weights (n,).
    data
        Its data as the records have made them.
    leaves
        The parameters that stand for these data in a copy of few records; the data themselves where
        it is none.
    """

    def __init__(
        self, e: Any, w: cp.Variable, data: Sequence[Datum], leaves: Sequence[Any] | None = None
    ) -> None:
        self.e = e
        self.w = w
        self.n = int(w.size)
        self.data = data
        self.leaves = data if leaves is None else leaves
        self.zeros = [np.zeros(leaf.shape) for leaf in self.leaves]

    def __call__(self, weights: Array) -> Array:
        """Numbers of the expression without data."""
        return self.with_data(self.zeros, weights)

    def unit_weight(self, place: int | None) -> Array:
        """Weights 0 (n,), but 1 at a place."""
        w = np.zeros(self.n)
        if place is not None:
            w[place] = 1.0
        return w

    def with_data(self, values: Sequence[Array] | Mapping[str, Array], weights: Array) -> Array:
        """Numbers of the expression at data (n, k) or (n,), in the order of the data or by name."""
        for place, leaf in enumerate(self.leaves):
            value = values[leaf.name()] if isinstance(values, Mapping) else values[place]
            leaf.save_value(np.reshape(value, leaf.shape))
        self.w.save_value(weights)
        return flat(self.e.value).copy()  # the value of a parameter is the array that it was given

    def at_unit_datum(
        self, datum: Datum, column: int, weights: Sequence[Array | None]
    ) -> list[Array]:
        """Numbers where the first record has 1 in a column, at several weights.

        It is None for weights 0.
        """
        return self._changed(datum, column, slice(0, 1), weights)

    def at_column_of_ones(
        self, datum: Datum, column: int, weights: Sequence[Array | None]
    ) -> list[Array]:
        """Numbers where every record has 1 in a column, at several weights; None for weights 0."""
        return self._changed(datum, column, slice(None), weights)

    def drawn(self, rng: np.random.Generator) -> list[Array]:
        """Positive numbers (n, k) for every datum, (1, k) for a mean."""
        return [
            rng.uniform(0.2, 1.8, (self.n_rows(datum), n_entries(datum))) for datum in self.data
        ]

    def n_rows(self, datum: Datum) -> int:
        """Number of records of a datum; 1 for a mean."""
        return 1 if is_mean(datum) else self.n

    def _changed(
        self, datum: Datum, column: int, places: slice, weights: Sequence[Array | None]
    ) -> list[Array]:
        """Numbers where records at places have 1 in a column of a datum, at several weights."""
        is_datum = [one is datum for one in self.data]
        values = self.zeros[is_datum.index(True)].reshape(self.n_rows(datum), -1)
        values[places, column] = 1.0
        numbers = []
        for w in weights:
            numbers.append(self(np.zeros(self.n) if w is None else w))
        values[places, column] = 0.0
        return numbers


def feature_groups(
    sums: SumsOverRecords, table: FeatureTable, text: str
) -> tuple[tuple[Group, ...], NDArray[np.int64]]:
    """Coordinates of sums in groups of equal features and factors by arm.

    Parameters
    ----------
    sums
        Sums of K entries.
    table
        The features by name.
    text
        What messages call them.

    Returns
    -------
    groups, order
        The groups, and the places of their coordinates among the entries. Entries that are 0
        whatever the weights are left out.

    Raises
    ------
    DeclarationError
        Where a coordinate weighs other directions of a feature than its target has, or another
        combination of the features of a kernel than a multiple of all.
    """
    placed: dict[tuple[Any, ...], list[_Coordinate]] = {}
    for place in range(len(sums.shift)):
        coordinate = _coordinate(sums, place, table, text)
        if coordinate is not None:
            placed.setdefault(coordinate.key, []).append(coordinate)
    groups: list[Group] = []
    order: list[int] = []
    for coordinates in placed.values():
        for block in _blocks(coordinates, table, text):
            groups.append(_group(block, table))
            order += [coordinate.place for coordinate in block]
    return tuple(groups), np.array(order, dtype=np.int64)


@dataclass(frozen=True)
class _Coordinate:
    """One coordinate: of each feature a direction, and factors (7,).

    They are those of row, target and mean by arm, and of the mean of public points.
    """

    place: int
    directions: dict[str, Array]
    factors: dict[str, Array]

    @property
    def key(self) -> tuple[Any, ...]:
        """What coordinates of one group have in common."""
        return tuple(
            (name, *np.round(factors, 9).tolist()) for name, factors in self.factors.items()
        )


def _coordinate(
    sums: SumsOverRecords, place: int, table: FeatureTable, text: str
) -> _Coordinate | None:
    """The entry at a place; None where it is 0 whatever the weights and the data."""
    directions: dict[str, Array] = {}
    factors: dict[str, Array] = {}
    for name in sorted({*sums.rows, *sums.targets, *sums.means}):
        nothing = np.zeros((3, len(sums.shift), table.features[name].width))
        of_rows = sums.rows.get(name, nothing[:2])[:, place]
        of_targets = sums.targets.get(name, nothing[:2])[:, place]
        of_means = sums.means.get(name, nothing)[:, place]
        every = np.vstack([of_rows, of_targets, of_means])
        if np.any(every):
            direction, factor = _one_direction(every, name, text)
            directions[name] = direction
            factors[name] = factor
    if directions:
        return _Coordinate(place, directions, factors)
    if sums.shift[place] == 0.0:
        return None
    name = table.one().name
    return _Coordinate(place, {name: np.ones(1)}, {name: np.zeros(7)})


def _one_direction(every: Array, name: str, text: str) -> tuple[Array, Array]:
    """A direction u (width,) and factors f (7,) with ``every = f u'``.

    The largest entry of u has the size 1.
    """
    sizes = np.linalg.norm(every, axis=1)
    first = int(np.argmax(sizes >= sizes.max() * (1.0 - _SAME)))
    direction = every[first]
    factors = every @ direction / float(direction @ direction)
    factors[first] = 1.0
    if not np.max(np.abs(every - np.outer(factors, direction))) <= _SAME * sizes.max():
        raise DeclarationError(
            f"{text}: an entry weighs other {name} than it is compared with, or others in each "
            "arm: give each of them an entry of its own"
        )
    # factors are a half or a whole number more often than not, and then without rounding
    halves = np.round(2.0 * factors) / 2.0
    return direction, np.where(np.abs(factors - halves) <= _NOTHING, halves, factors)


def _blocks(
    coordinates: list[_Coordinate], table: FeatureTable, text: str
) -> list[list[_Coordinate]]:
    """Coordinates of equal factors, in blocks of one group each."""
    names = list(coordinates[0].directions)
    known = [name for name in names if isinstance(table.features[name].within, SimilaritySet)]
    if not known:
        return [coordinates]
    name = known[0]
    if len(names) > 1:
        raise DeclarationError(
            f"{text}: mixes {' and '.join(names)}: give each of them entries of its own"
        )
    return _multiples_of_all(coordinates, table.features[name].width, name, text)


def _multiples_of_all(
    coordinates: list[_Coordinate], width: int, name: str, text: str
) -> list[list[_Coordinate]]:
    """Blocks that hold the same multiple of every entry of a feature, in its order."""
    waiting: dict[float, list[list[_Coordinate]]] = {}
    for coordinate in coordinates:
        direction = coordinate.directions[name]
        entry = int(np.argmax(np.abs(direction)))
        multiple = float(f"{direction[entry]:.9e}")  # to ten digits, whatever its size
        if np.count_nonzero(direction) != 1:
            raise DeclarationError(_not_all(text, name))
        by_entry = waiting.setdefault(multiple, [[] for _ in range(width)])
        by_entry[entry].append(coordinate)
    blocks = []
    for by_entry in waiting.values():
        if len({len(found) for found in by_entry}) > 1:
            raise DeclarationError(_not_all(text, name))
        blocks += [list(block) for block in zip(*by_entry, strict=True)]
    return blocks


def _not_all(text: str, name: str) -> str:
    return (
        f"{text}: takes some of {name}, or a matrix of them: they are known by inner products "
        "alone, so that an imbalance has public multiples of all"
    )


def _group(block: list[_Coordinate], table: FeatureTable) -> Group:
    """The group of coordinates of equal factors."""
    parts = []
    for name, factors in block[0].factors.items():
        matrix = np.array([coordinate.directions[name] for coordinate in block])
        features = table.features[name]
        parts.append(
            FeatureRows(
                features, matrix, factors[:2], factors[2:4], factors[4:6], float(factors[6])
            )
        )
    return tuple(parts)


def is_constant(parts: ByFeature) -> bool:
    """True if a linear function of features is one public number for all of an arm."""
    return set(parts) <= {ONE}


def _kept(found: ByFeature) -> ByFeature:
    """Linear functions of features without those that are 0."""
    return {name: tensor for name, tensor in found.items() if np.any(tensor)}


def _differ(one: Array, other: Array, size: Array) -> bool:
    """True if numbers differ by more than rounding, relative to the sizes of their terms."""
    limit = _ROUNDING * np.maximum(size, 1e-300)
    return not bool(np.all(np.abs(one - other) <= limit))
