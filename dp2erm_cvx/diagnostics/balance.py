"""Covariate balance before and after weighting. Not private: for the data holder only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.diagnostics.checks import (
    ARMS,
    NOT_PRIVATE,
    Array,
    Mask,
    aligned,
    arms,
    finite,
    nonnegative,
    numbers,
    same_length,
)
from dp2erm_cvx.diagnostics.statistics import effective_sample_size, ks_distance, mean, scaled, variance
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.tables import listed


@dataclass(frozen=True)
class ArmSummary:
    """One arm: its count, its share of the total weight and its effective sample size, before and after."""

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    n_samples: int
    mass_before: float
    mass_after: float
    effective_before: float
    effective_after: float


@dataclass(frozen=True, eq=False)
class BalanceTable:
    """What weighting did to the difference of the arms, covariate by covariate, and to each arm.

    Not private: for the data holder only. The names follow cobalt (Greifer). "Before" is with equal weights.
    An entry that is not defined is nan, and ``notes`` says why.

    Attributes
    ----------
    smd_before, smd_after
        (p,) standardized mean differences: the mean of the treated less that of the controls, in units of
        the unweighted pooled standard deviation sqrt((s_1^2 + s_0^2)/2).
    variance_ratio_before, variance_ratio_after
        (p,) variance of the treated over that of the controls (Austin 2009), with reliability weights:
        sum u (x - m)^2 / (1 - sum u^2), u = w / sum w within the arm. nan for covariates with two values,
        whose variance is a function of their mean.
    ks_before, ks_after
        (p,) Kolmogorov-Smirnov statistics in [0, 1]: the largest distance between the weighted distribution
        functions of the arms (Austin 2009).
    target_before, target_after
        (2, p) weighted mean of the controls (row 0) and of the treated (row 1) less the unweighted mean of
        the whole sample, in the units of the SMD: how far each arm is from the population whose average
        effect is estimated. Two arms may agree with each other and both miss it (Huling and Mak 2024).
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    columns: tuple[str, ...]
    smd_before: Array
    smd_after: Array
    control: ArmSummary
    treated: ArmSummary
    variance_ratio_before: Array
    variance_ratio_after: Array
    ks_before: Array
    ks_after: Array
    target_before: Array
    target_after: Array
    notes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str, str]]:
        """One (covariate, SMD before, SMD after) per covariate, as text."""
        return [
            (name, f"{before:+.3f}", f"{after:+.3f}")
            for name, before, after in zip(self.columns, self.smd_before, self.smd_after, strict=True)
        ]

    def distribution_rows(self) -> list[tuple[str, ...]]:
        """One (covariate, variance ratio before, after, KS before, after) per covariate, as text."""
        table = (self.variance_ratio_before, self.variance_ratio_after, self.ks_before, self.ks_after)
        return [(name, *(f"{v[k]:.3f}" for v in table)) for k, name in enumerate(self.columns)]

    def target_rows(self) -> list[tuple[str, ...]]:
        """One (covariate, control before, after, treated before, after) per covariate, as text."""
        table = [when[arm] for arm in (0, 1) for when in (self.target_before, self.target_after)]
        return [(name, *(f"{v[k]:+.3f}" for v in table)) for k, name in enumerate(self.columns)]

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
            for name, arm in zip(ARMS, (self.control, self.treated), strict=True)
        ]

    def __str__(self) -> str:
        parts: list[list[tuple[str, ...]]] = [
            [("covariate", "SMD before", "SMD after"), *self.rows()],
            [("covariate", "variance ratio", "after", "KS", "after"), *self.distribution_rows()],
            [("arm less all, in SD", "control", "after", "treated", "after"), *self.target_rows()],
            [("arm", "n", "mass before", "after", "ESS before", "after"), *self.arm_rows()],
        ]
        lines = [line for part in parts for line in ("", *aligned(part))]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([f"Balance ({NOT_PRIVATE})", *lines[1:], *notes])


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
        Shapes differ, there are no records, or an entry is out of range; the message names it, counting
        rows from 0.
    """
    table, arm, weight = numbers(X, "X"), numbers(a, "a"), nonnegative(weights)
    same_length("(n, p), (n,) and (n,)", X=table, a=arm, weights=weight)
    finite(table, "X")
    members, weight = arms(arm), scaled(weight)
    names = tuple(columns) if columns is not None else tuple(f"x{k + 1}" for k in range(table.shape[1]))
    if len(names) != table.shape[1]:
        raise DataError(f"columns: {len(names)} names for the {table.shape[1]} columns of X")

    equal = np.ones(len(table))
    before, after = (
        (variance(table, w * members[0]), variance(table, w * members[1])) for w in (equal, weight)
    )
    binary = np.array([len(np.unique(column)) == 2 for column in table.T], dtype=bool)
    spread = np.sqrt((before[1] + before[0]) / 2)
    scale = np.where(spread > 0, spread, np.nan)

    def target(w: Array) -> Array:
        return (np.array([mean(table, w * arm) for arm in members]) - mean(table, equal)) / scale

    def difference(w: Array) -> Array:
        return (mean(table, w * members[1]) - mean(table, w * members[0])) / scale

    def ratio(control: Array, treated: Array) -> Array:
        return treated / np.where((control > 0) & ~binary, control, np.nan)

    return BalanceTable(
        columns=names,
        smd_before=difference(equal),
        smd_after=difference(weight),
        control=_summary(weight, members[0]),
        treated=_summary(weight, members[1]),
        variance_ratio_before=ratio(*before),
        variance_ratio_after=ratio(*after),
        ks_before=ks_distance(table, *(equal * arm for arm in members)),
        ks_after=ks_distance(table, *(weight * arm for arm in members)),
        target_before=target(equal),
        target_after=target(weight),
        notes=(*_about_arms(weight, members), *_about_columns(names, binary, before, after)),
    )


def _summary(weight: Array, members: Mask) -> ArmSummary:
    total = float(np.sum(weight))
    return ArmSummary(
        n_samples=int(members.sum()),
        mass_before=float(members.mean()),
        mass_after=float(np.sum(weight[members])) / total if total > 0 else float("nan"),
        effective_before=float(members.sum()),
        effective_after=effective_sample_size(weight[members]),
    )


def _about_arms(weight: Array, arms: tuple[Mask, Mask]) -> Iterator[str]:
    """One note for each arm that has too few records or too little weight."""
    for name, members in zip(ARMS, arms, strict=True):
        if not members.any():
            yield f"the {name} arm is empty: no difference is defined"
        elif not weight[members].any():
            yield f"the {name} arm has no weight: no difference is defined after weighting"
        elif members.sum() == 1:
            yield f"the {name} arm has one record: no standard deviation is defined"


def _about_columns(
    names: Sequence[str], binary: Mask, before: tuple[Array, Array], after: tuple[Array, Array]
) -> Iterator[str]:
    """Notes on columns, from the (p,) variances of the two arms before and after weighting."""
    constant = (before[0] == 0) & (before[1] == 0)
    for k in np.flatnonzero(constant):
        yield f"{names[int(k)]} does not vary within the arms: no ratio or standardized difference is defined"
    if binary.any():
        told = listed([names[int(k)] for k in np.flatnonzero(binary)])
        yield f"variance ratios are left out for covariates with two values: {told}"
    if np.isnan(after).any() and not np.isnan(before).any():
        yield "an arm has its weight on fewer than two records: no variance ratio is defined after weighting"
    for when, (control, _) in (("", before), (" after weighting", after)):
        for k in np.flatnonzero((control == 0) & ~constant & ~binary):
            yield f"{names[int(k)]} does not vary among the controls: no variance ratio is defined{when}"
