"""How uneven the weights are. Not private: for the data holder only."""

from __future__ import annotations

import math
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
    nonnegative,
    numbers,
    same_length,
)
from dp2erm_cvx.diagnostics.statistics import effective_sample_size, scaled
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

#: A weight this close to the trim, relative to it, counts as at it: weights are solved for, not exact.
_CLOSE = 1e-6


@dataclass(frozen=True)
class ArmWeights:
    """The weights of one arm, on the scale they were given in. Not private: for the data holder only.

    Attributes
    ----------
    n_samples
        Records in the arm. Where there is none, the numbers below are nan.
    minimum, median, maximum
        Of the weights; zeros count.
    coefficient_of_variation
        Standard deviation (n - 1) over mean, as in WeightIt; nan for fewer than two records or no weight.
    effective
        Effective sample size in records (Kish 1965); n / (1 + CV^2 (n - 1) / n).
    largest
        (row, weight) of the largest weights, the largest first; rows count from 0 over all records.
    share_of_largest
        Share of the weight of the arm that they hold.
    at_trim
        Share of the records of the arm whose weight is at or above the trim; None without one.
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    n_samples: int
    minimum: float
    median: float
    maximum: float
    coefficient_of_variation: float
    effective: float
    largest: tuple[tuple[int, float], ...]
    share_of_largest: float
    at_trim: float | None


@dataclass(frozen=True)
class WeightSummary:
    """The weights of both arms, and the ``trim`` they are compared with. Not private."""

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    control: ArmWeights
    treated: ArmWeights
    trim: float | None = None

    def rows(self) -> list[tuple[str, ...]]:
        """One (arm, n, minimum, median, maximum, CV, ESS, share at the trim) per arm, as text."""
        return [
            (
                name,
                str(arm.n_samples),
                *(f"{value:.4g}" for value in (arm.minimum, arm.median, arm.maximum)),
                f"{arm.coefficient_of_variation:.3f}",
                f"{arm.effective:.1f}",
                "-" if arm.at_trim is None else f"{arm.at_trim:.1%}",
            )
            for name, arm in zip(ARMS, (self.control, self.treated), strict=True)
        ]

    def __str__(self) -> str:
        head = ("arm", "n", "minimum", "median", "maximum", "CV", "ESS", "at the trim")
        lines = [f"Weights ({NOT_PRIVATE})", *aligned([head, *self.rows()])]
        for name, arm in zip(ARMS, (self.control, self.treated), strict=True):
            if arm.largest:
                told = ", ".join(f"row {row}: {weight:.4g}" for row, weight in arm.largest)
                lines.append(f"largest of the {name} arm ({arm.share_of_largest:.1%} of its weight): {told}")
        return "\n".join(lines)


def weight_summary(
    weights: ArrayLike, a: ArrayLike, *, trim: float | None = None, largest: int = 5
) -> WeightSummary:
    """Summarize the weights of each arm. Not private: for the data holder only.

    Parameters
    ----------
    weights, a
        (n,) nonnegative weights of any scale and (n,) treatments in {0, 1}.
    trim
        A public cap, in the units of ``weights``. A program that divides by the sum of its trimmed weights
        leaves no public cap: multiply its weights back, or leave this out.
    largest
        How many of the largest weights to list, at most those of the arm.

    Raises
    ------
    DataError
        Shapes differ, there are no records, or an entry is out of range; the message names it.
    DeclarationError
        ``trim`` is not a positive number, or ``largest`` not a whole number of at least 1.
    """
    weight, arm = nonnegative(weights), numbers(a, "a")
    same_length("(n,) and (n,)", weights=weight, a=arm)
    cap = None if trim is None else public_number("trim", trim, above=0)
    count = public_number("largest", largest, at_least=1)
    if count != int(count):
        raise DeclarationError(f"largest = {largest!r}: must be a whole number")
    control, treated = (_summary(weight, members, cap, int(count)) for members in arms(arm))
    return WeightSummary(control, treated, cap)


def _summary(weight: Array, members: Mask, trim: float | None, count: int) -> ArmWeights:
    rows = np.flatnonzero(members)
    own = weight[rows]
    unit = scaled(own)
    top = np.argsort(-own, kind="stable")[:count]
    few = len(own) < 2 or not own.any()
    return ArmWeights(
        n_samples=len(own),
        minimum=float(np.min(own)) if len(own) else math.nan,
        median=float(np.median(own)) if len(own) else math.nan,
        maximum=float(np.max(own)) if len(own) else math.nan,
        coefficient_of_variation=math.nan if few else float(np.std(unit, ddof=1) / np.mean(unit)),
        effective=effective_sample_size(own) if len(own) else math.nan,
        largest=tuple((int(rows[k]), float(own[k])) for k in top),
        share_of_largest=float(np.sum(unit[top]) / np.sum(unit)) if own.any() else math.nan,
        at_trim=None if trim is None else (_share(own >= trim * (1 - _CLOSE))),
    )


def _share(chosen: Mask) -> float:
    return float(np.mean(chosen)) if len(chosen) else math.nan
