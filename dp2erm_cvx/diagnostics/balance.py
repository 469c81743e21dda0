"""Covariate balance before and after weighting. Not private: for the data holder only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.tables import as_array
from dp2erm_cvx.display import Shown, grid, heading
from dp2erm_cvx.errors import DataError

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

Mask = NDArray[np.bool_]

#: The arms in the order of a = 0, 1.
ARMS = ("control", "treated")
#: The row of an effect's table that no covariate has.
PREDICTED = "predicted outcome"
#: What is noted where an effect is adjusted by a regression alone.
UNWEIGHTED = "one propensity, hence no weights: an outcome regression adjusts"


@dataclass(frozen=True, eq=False)
class BalanceTable(Shown):
    """Means of the arms before and after weighting, covariate by covariate, and masses of the arms.

    Not private: for the data holder only. "Before" is with equal weights. An entry that is not
    defined is nan, and ``notes`` says why.

    Attributes
    ----------
    means_before, means_after
        (2, p) weighted means of the controls (row 0) and of the treated (row 1), in the units of X.
    smd_before, smd_after
        (p,) standardized mean differences: the mean of the treated less that of the controls, in
        units of the unweighted pooled standard deviation sqrt((s_1^2 + s_0^2)/2).
    records, mass_before, mass_after, effective_before, effective_after
        (2,) of the controls and of the treated: their number, their share of the total weight and
        their effective sample size.
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    columns: tuple[str, ...]
    means_before: Array
    means_after: Array
    smd_before: Array
    smd_after: Array
    records: NDArray[np.int64]
    mass_before: Array
    mass_after: Array
    effective_before: Array
    effective_after: Array
    notes: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Report, marked as not private."""
        yield heading("Balance before and after adjustment: not private: for the data holder only")
        covariates = grid(
            "covariate", "control", "after", "treated", "after", "SMD before", "SMD after"
        )
        for k, name in enumerate(self.columns):
            covariates.add_row(
                name,
                f"{self.means_before[0, k]:.4g}",
                f"{self.means_after[0, k]:.4g}",
                f"{self.means_before[1, k]:.4g}",
                f"{self.means_after[1, k]:.4g}",
                f"{self.smd_before[k]:+.3f}",
                f"{self.smd_after[k]:+.3f}",
            )
        yield covariates
        yield ""
        arms = grid("arm", "records", "mass before", "mass after", "ESS before", "ESS after")
        for arm, name in enumerate(ARMS):
            arms.add_row(
                name,
                str(self.records[arm]),
                f"{self.mass_before[arm]:.3f}",
                f"{self.mass_after[arm]:.3f}",
                f"{self.effective_before[arm]:.1f}",
                f"{self.effective_after[arm]:.1f}",
            )
        yield arms
        for note in self.notes:
            yield f"note: {note}"


def balance_table(
    X: ArrayLike, a: ArrayLike, weights: ArrayLike, columns: Sequence[str] | None = None
) -> BalanceTable:
    """Compare the arms before and after weighting. Not private: for the data holder only.

    Parameters
    ----------
    X, a, weights
        (n, p) covariates, (n,) treatments in {0, 1} and (n,) nonnegative weights of any scale.
    columns
        The p covariate names; x1, ..., xp if not given.

    Raises
    ------
    DataError
        Shapes differ, there are no records, or an entry is out of range; the message names it,
        counting rows from 0.
    """
    table, members, weight = _checked_records(X, a, weights)
    names = _checked_names(columns, table.shape[1])
    weight = _scaled(weight)
    records = np.array([arm.sum() for arm in members])
    control_variance, treated_variance = (_variance(table[arm]) for arm in members)
    pooled = np.sqrt((control_variance + treated_variance) / 2)
    scale = np.where(pooled > 0, pooled, np.nan)
    before = _means_by_arm(table, np.ones(len(table)), members)
    after = _means_by_arm(table, weight, members)
    notes = list(_about_arms(weight, members))
    for k in np.flatnonzero((control_variance == 0) & (treated_variance == 0)):
        notes.append(f"{names[int(k)]} does not vary within the arms: no difference is defined")
    return BalanceTable(
        columns=names,
        means_before=before,
        means_after=after,
        smd_before=(before[1] - before[0]) / scale,
        smd_after=(after[1] - after[0]) / scale,
        records=records,
        mass_before=records / len(table),
        mass_after=np.array([np.sum(weight[arm]) for arm in members]) / (np.sum(weight) or np.nan),
        effective_before=records.astype(np.float64),
        effective_after=np.array([effective_sample_size(weight[arm]) for arm in members]),
        notes=tuple(notes),
    )


def _checked_records(
    X: ArrayLike, a: ArrayLike, weights: ArrayLike
) -> tuple[Array, tuple[Mask, Mask], Array]:
    """Covariates (n, p), masks (n,) of the arms, and weights (n,), of at least one record.

    Raises
    ------
    DataError
        Where shapes differ, there are no records, or an entry is out of range.
    """
    table = numbers_where(X, "X", np.isfinite, "finite")
    members = arm_masks(a)
    weight = _weights(weights)
    shapes = [part.shape for part in (table, members[0], weight)]
    if table.ndim != 2 or shapes[1:] != [shapes[0][:1]] * 2:
        raise DataError(f"X, a and weights have shapes {shapes}: must be (n, p), (n,) and (n,)")
    if not len(table):
        raise DataError("X, a and weights hold no records")
    return table, members, weight


def _checked_names(columns: Sequence[str] | None, n_columns: int) -> tuple[str, ...]:
    """One name for each column of X; x1, x2, ... where none are given.

    Raises
    ------
    DataError
        For another number of names.
    """
    if columns is None:
        return tuple(f"x{place + 1}" for place in range(n_columns))
    names = tuple(columns)
    if len(names) != n_columns:
        raise DataError(f"columns: {len(names)} names for the {n_columns} columns of X")
    return names


def _means_by_arm(X: Array, weight: Array, members: tuple[Mask, Mask]) -> Array:
    """Weighted means (2, p) of the controls and of the treated."""
    return np.array([weighted_means(X[arm], weight[arm]) for arm in members])


def effective_sample_size(weights: ArrayLike) -> float:
    """(sum w)^2 / sum w^2 (Kish 1965) of (n,) nonnegative weights; 0 where no weight is positive.

    Raises
    ------
    DataError
        Where a weight is negative or not finite.
    """
    unit = _scaled(_weights(weights))
    if not unit.any():
        return 0.0
    return float(np.sum(unit) ** 2 / np.sum(unit**2))


class Estimate(NamedTuple):
    """An estimate of an effect, with its standard error.

    Parameters
    ----------
    value
        In units of the outcome.
    error
        Its standard error, as of independent records and known nuisances.
    """

    value: float
    error: float


def difference_of_means(data: Dataset) -> Estimate:
    """The plain difference of the arms' means, which adjusts for nothing."""
    controls = data.y[data.a == 0]
    treated = data.y[data.a == 1]
    value = float(np.mean(treated)) - float(np.mean(controls))
    variance = float(np.var(controls)) / len(controls) + float(np.var(treated)) / len(treated)
    return Estimate(value, math.sqrt(variance))


def augmented(data: Dataset, *, estimand: str = "ate") -> Estimate:
    """Augmented inverse propensity weighting by a line in either arm and a logistic propensity.

    Parameters
    ----------
    data
        The records.
    estimand
        "ate", "att" or "overlap", which weights records by min(e, 1 - e) at their propensities e.
    """
    rows = np.column_stack([np.ones(len(data.a)), data.X])
    control_line = _line_in_arm(rows, data, 0)
    treated_line = _line_in_arm(rows, data, 1)
    e = fitted_propensity(data)
    treated = data.a == 1
    # the estimate is the ratio of the means of these two, score and share
    if estimand == "att":
        share = treated * 1.0
        score = np.where(treated, 1.0, -e / (1.0 - e)) * (data.y - control_line)
    else:
        share = np.ones(len(e))
        if estimand == "overlap":
            share = np.minimum(e, 1.0 - e)
        # m_1 - m_0 + a (y - m_1)/e - (1 - a) (y - m_0)/(1 - e), of the lines m of the arms
        of_treated = (data.y - treated_line) / e
        of_controls = -(data.y - control_line) / (1.0 - e)
        residual = np.where(treated, of_treated, of_controls)
        score = share * (treated_line - control_line + residual)
    value = float(np.mean(score) / np.mean(share))
    deviation = float(np.std((score - value * share) / np.mean(share)))
    return Estimate(value, deviation / math.sqrt(len(score)))


def _line_in_arm(rows: Array, data: Dataset, arm: int) -> Array:
    """Outcomes (n,) of all records by the least squares line of one arm."""
    inside = data.a == arm
    coefficients = np.linalg.lstsq(rows[inside], data.y[inside])[0]
    return np.asarray(rows @ coefficients)


def fitted_propensity(data: Dataset) -> Array:
    """Probabilities of treatment (n,) by a logistic regression without a ridge."""
    from sklearn.linear_model import LogisticRegression

    spread = np.std(data.X, axis=0)
    X = (data.X - np.mean(data.X, axis=0)) / np.where(spread > 0, spread, 1.0)
    fitted = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8).fit(X, data.a)
    propensity: Array = fitted.predict_proba(X)[:, 1]
    return propensity


def numbers_where(values: Any, name: str, holds: Callable[[Array], Mask], must: str) -> Array:
    """The values as float64 of any shape.

    Parameters
    ----------
    values
        The values.
    name
        What messages call them.
    holds
        A mask of those that are in range.
    must
        What is said of any other: must be this.

    Raises
    ------
    DataError
        Where they are no numbers, and at the first that is out of range.
    """
    array = as_array(values, name)
    # numpy would turn dates into counts and complex numbers into their real parts
    try:
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float64 if array.dtype.kind in "buifO" else "V")
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty(0, "V")
    if numbers.dtype != np.float64:
        raise DataError(f"{name}: must hold numbers")
    for place in np.argwhere(~holds(numbers)):
        index = ", ".join(map(str, place))
        raise DataError(f"{name}[{index}] = {numbers[tuple(place)]}: must be {must}")
    return numbers


def arm_masks(a: ArrayLike) -> tuple[Mask, Mask]:
    """Masks (n,) of the controls and of the treated.

    Raises DataError at the first a that is neither 0 nor 1.
    """
    arms = numbers_where(a, "a", lambda arm: (arm == 0) | (arm == 1), "0 or 1")
    return arms == 0, arms == 1


def _weights(values: ArrayLike) -> Array:
    """Weights (n,) as float64; DataError at the first that is negative or not finite."""
    return numbers_where(
        values, "weights", lambda v: np.isfinite(v) & (v >= 0), "finite and at least 0"
    )


def _scaled(weight: Array) -> Array:
    """The weights in units of the largest, so that no sum or square of them over- or underflows."""
    largest = float(np.max(weight, initial=0.0))
    return weight / largest if largest > 0 else weight


def weighted_means(X: Array, w: Array) -> Array:
    """Weighted means (p,) of X (n, p); nan where there is no weight."""
    total = np.sum(w)
    return w @ X / total if total > 0 else np.full(X.shape[1], np.nan)


def _variance(X: Array) -> Array:
    """Variances (p,) of X (n, p); nan for fewer than two records."""
    if len(X) < 2:
        return np.full(X.shape[1], np.nan)
    # rounding of the mean would leave a constant column a little variance
    variance: Array = np.where(np.ptp(X, axis=0) == 0, 0.0, np.var(X, axis=0, ddof=1))
    return variance


def _about_arms(weight: Array, members: tuple[Mask, Mask]) -> Iterator[str]:
    """One note for each arm that has too few records or too little weight."""
    for name, member in zip(ARMS, members, strict=True):
        if not member.any():
            yield f"the {name} arm is empty: no difference is defined"
        elif not weight[member].any():
            yield f"the {name} arm has no weight: no difference is defined after weighting"
        elif member.sum() == 1:
            yield f"the {name} arm has one record: no standard deviation is defined"
