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
            means = [
                when[arm, k] for arm in (0, 1) for when in (self.means_before, self.means_after)
            ]
            differences = self.smd_before[k], self.smd_after[k]
            covariates.add_row(
                name, *(f"{m:.4g}" for m in means), *(f"{v:+.3f}" for v in differences)
            )
        yield covariates
        yield ""
        arms = grid("arm", "records", "mass before", "mass after", "ESS before", "ESS after")
        for arm, name in enumerate(ARMS):
            sizes = [f"{v[arm]:.3f}" for v in (self.mass_before, self.mass_after)]
            sizes += [f"{v[arm]:.1f}" for v in (self.effective_before, self.effective_after)]
            arms.add_row(name, str(self.records[arm]), *sizes)
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
    table = numbers_where(X, "X", np.isfinite, "finite")
    members, weight = arm_masks(a), _weights(weights)
    shapes = [arm.shape for arm in (table, members[0], weight)]
    if table.ndim != 2 or shapes[1:] != [shapes[0][:1]] * 2:
        raise DataError(f"X, a and weights have shapes {shapes}: must be (n, p), (n,) and (n,)")
    if not len(table):
        raise DataError("X, a and weights hold no records")
    names = (
        tuple(columns) if columns is not None else tuple(f"x{k + 1}" for k in range(table.shape[1]))
    )
    if len(names) != table.shape[1]:
        raise DataError(f"columns: {len(names)} names for the {table.shape[1]} columns of X")

    weight, records = _scaled(weight), np.array([arm.sum() for arm in members])
    variances = [_variance(table[arm]) for arm in members]
    spread = np.sqrt((variances[0] + variances[1]) / 2)
    scale = np.where(spread > 0, spread, np.nan)
    before, after = (
        np.array([weighted_means(table[arm], w[arm]) for arm in members])
        for w in (np.ones(len(table)), weight)
    )
    constant = [names[int(k)] for k in np.flatnonzero((variances[0] == 0) & (variances[1] == 0))]
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
        notes=(
            *_about_arms(weight, members),
            *(
                f"{name} does not vary within the arms: no difference is defined"
                for name in constant
            ),
        ),
    )


#: The row of an effect's table that no covariate has.
PREDICTED = "predicted outcome"
#: What is noted where an effect is adjusted by a regression alone.
UNWEIGHTED = "one propensity, hence no weights: an outcome regression adjusts"


def effective_sample_size(weights: ArrayLike) -> float:
    """(sum w)^2 / sum w^2 (Kish 1965) of (n,) nonnegative weights; 0 where no weight is positive.

    Raises DataError where a weight is negative or not finite.
    """
    unit = _scaled(_weights(weights))
    return float(np.sum(unit) ** 2 / np.sum(unit**2)) if unit.any() else 0.0


class Estimate(NamedTuple):
    """``value`` and its standard error, as of independent records and known nuisances."""

    value: float
    error: float


def difference(data: Dataset) -> Estimate:
    """The naive difference of means."""
    arms = [data.y[data.a == arm] for arm in (0, 1)]
    means = [float(np.mean(arm)) for arm in arms]
    return Estimate(
        means[1] - means[0], math.sqrt(sum(float(np.var(arm)) / len(arm) for arm in arms))
    )


def augmented(data: Dataset, *, estimand: str = "ate") -> Estimate:
    """Augmented inverse propensity weighting by a line in either arm and a logistic propensity.

    ``estimand``: "ate", "att" or "overlap", records weighted by min(e, 1 - e) at their propensities
    e.
    """
    rows = np.column_stack([np.ones(len(data.a)), data.X])
    m_0, m_1 = (
        rows @ np.linalg.lstsq(rows[data.a == arm], data.y[data.a == arm])[0] for arm in (0, 1)
    )
    e, treated = logistic(data), data.a == 1
    if estimand == "att":
        share, score = treated * 1.0, np.where(treated, 1.0, -e / (1.0 - e)) * (data.y - m_0)
    else:
        share = np.minimum(e, 1.0 - e) if estimand == "overlap" else np.ones(len(e))
        residual = np.where(treated, (data.y - m_1) / e, -(data.y - m_0) / (1.0 - e))
        score = share * (m_1 - m_0 + residual)
    value = float(np.mean(score) / np.mean(share))
    deviation = float(np.std((score - value * share) / np.mean(share)))
    return Estimate(value, deviation / math.sqrt(len(score)))


def logistic(data: Dataset) -> Array:
    """Fitted probabilities of treatment (n,), without a ridge."""
    from sklearn.linear_model import LogisticRegression

    spread = np.std(data.X, axis=0)
    X = (data.X - np.mean(data.X, axis=0)) / np.where(spread > 0, spread, 1.0)
    fitted = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8).fit(X, data.a)
    propensity: Array = fitted.predict_proba(X)[:, 1]
    return propensity


def numbers_where(values: Any, name: str, holds: Callable[[Array], Mask], must: str) -> Array:
    """The values as float64 of any shape; DataError at the first for which something does not
    hold.
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
    """(n,) masks of the controls and of the treated; DataError at the first a that is neither 0 nor
    1.
    """
    arm = numbers_where(a, "a", lambda v: (v == 0) | (v == 1), "0 or 1")
    return arm == 0, arm == 1


def _weights(values: ArrayLike) -> Array:
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
