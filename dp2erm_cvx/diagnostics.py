"""Covariate balance before and after weighting.

Not differentially private: everything here is computed from the raw records and the exact weights.
It is for the data holder only and is never part of a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ArmSummary:
    """One arm: its count, its share of the total weight and its effective sample size, before and after."""

    n_samples: int
    mass_before: float
    mass_after: float
    effective_before: float
    effective_after: float


@dataclass(frozen=True, eq=False)
class BalanceTable:
    """Standardized mean differences (SMD) per covariate, and what weighting did to each arm.

    ``smd_before`` and ``smd_after`` are (p,): the mean of the treated less that of the controls, in units
    of the unweighted pooled standard deviation sqrt((s_1^2 + s_0^2)/2). An entry that is not defined is
    nan, and ``notes`` says why.
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    columns: tuple[str, ...]
    smd_before: Array
    smd_after: Array
    control: ArmSummary
    treated: ArmSummary
    notes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str, str]]:
        """One (covariate, SMD before, SMD after) per covariate, as text."""
        return [
            (name, f"{before:+.3f}", f"{after:+.3f}")
            for name, before, after in zip(self.columns, self.smd_before, self.smd_after, strict=True)
        ]

    def arm_rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """One (arm, count, mass before, mass after, effective size before, after) per arm, as text."""
        return [
            (
                name,
                str(arm.n_samples),
                f"{arm.mass_before:.3f}",
                f"{arm.mass_after:.3f}",
                f"{arm.effective_before:.1f}",
                f"{arm.effective_after:.1f}",
            )
            for name, arm in (("control", self.control), ("treated", self.treated))
        ]

    def __str__(self) -> str:
        covariates = [("covariate", "SMD before", "SMD after"), *self.rows()]
        arms = [("arm", "n", "mass before", "after", "ESS before", "after"), *self.arm_rows()]
        lines = [
            "Balance (not private: for the data holder only)",
            *_aligned(covariates),
            "",
            *_aligned(arms),
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def balance_table(
    X: ArrayLike, a: ArrayLike, weights: ArrayLike, columns: Sequence[str] | None = None
) -> BalanceTable:
    """Compare the arms before and after weighting.

    Parameters
    ----------
    X, a, weights
        (n, p) covariates, (n,) treatments in {0, 1} and (n,) nonnegative weights of any scale.
    columns
        The p covariate names; x1, ..., xp if not given.

    Raises
    ------
    DataError
        Shapes differ, or a weight is negative or not finite.
    """
    table, arm = np.asarray(X, dtype=np.float64), np.asarray(a)
    weight = _checked_weights(weights)
    if table.ndim != 2 or arm.shape != (len(table),) or weight.shape != (len(table),):
        raise DataError(
            f"X, a and weights have shapes {table.shape}, {arm.shape} and {weight.shape}: "
            "must be (n, p), (n,) and (n,)"
        )
    names = tuple(columns) if columns is not None else tuple(f"x{k + 1}" for k in range(table.shape[1]))
    if len(names) != table.shape[1]:
        raise DataError(f"columns: {len(names)} names for the {table.shape[1]} columns of X")

    notes: list[str] = []
    ones = np.ones(len(table))
    treated, control = arm == 1, arm == 0
    for name, members in (("control", control), ("treated", treated)):
        if not members.any():
            notes.append(f"the {name} arm is empty: no difference is defined")
        elif not weight[members].any():
            notes.append(f"the {name} arm has no weight: no difference is defined after weighting")
        elif members.sum() == 1:
            notes.append(f"the {name} arm has one record: no standard deviation is defined")
    spread = np.sqrt((_variance(table[treated]) + _variance(table[control])) / 2)
    for k in np.flatnonzero(spread == 0):
        notes.append(f"{names[k]} does not vary within the arms: no standardized difference is defined")
    scale = np.where(spread > 0, spread, np.nan)

    def difference(w: Array) -> Array:
        return (_mean(table, w * treated) - _mean(table, w * control)) / scale

    return BalanceTable(
        columns=names,
        smd_before=difference(ones),
        smd_after=difference(weight),
        control=_summary(weight, control),
        treated=_summary(weight, treated),
        notes=tuple(notes),
    )


def effective_sample_size(weights: ArrayLike) -> float:
    """Kish's (sum w)^2 / sum w^2 of (n,) nonnegative weights; 0 where no weight is positive."""
    weight = _checked_weights(weights)
    largest = float(np.max(weight, initial=0.0))
    if largest == 0.0:
        return 0.0
    unit = weight / largest
    return float(np.sum(unit) ** 2 / np.sum(unit**2))


def _checked_weights(weights: ArrayLike) -> Array:
    weight = np.asarray(weights, dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if wrong.size:
        raise DataError(f"weights[{wrong[0]}] = {weight.flat[wrong[0]]}: must be finite and at least 0")
    return weight


def _mean(X: Array, w: Array) -> Array:
    total = np.sum(w)
    return w @ X / total if total > 0 else np.full(X.shape[1], np.nan)


def _variance(X: Array) -> Array:
    return np.var(X, axis=0, ddof=1) if len(X) > 1 else np.full(X.shape[1], np.nan)


def _summary(weight: Array, members: NDArray[np.bool_]) -> ArmSummary:
    total = float(np.sum(weight))
    return ArmSummary(
        n_samples=int(members.sum()),
        mass_before=float(members.mean()),
        mass_after=float(np.sum(weight[members])) / total if total > 0 else float("nan"),
        effective_before=float(members.sum()),
        effective_after=effective_sample_size(weight[members]),
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
