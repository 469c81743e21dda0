"""Whether the arms overlap, from propensities. Not private: for the data holder only."""

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
    numbers,
    probabilities,
    same_length,
)
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

#: Where the advice changes: a share of records and an area that are ours, not a theorem's.
_MANY, _APART = 0.1, 0.9
#: The rule of thumb of Crump, Hotz, Imbens and Mitnik (2009).
LIMITS = (0.1, 0.9)
#: Of the propensities of an arm, from its minimum to its maximum.
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class ArmOverlap:
    """The propensities of one arm: quantiles at the minimum, 5, 25, 50, 75, 95 % and the maximum, and shares.

    Not private: for the data holder only. nan where the arm is empty.
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    n_samples: int
    quantiles: tuple[float, ...]
    outside_limits: float
    outside_support: float


@dataclass(frozen=True)
class OverlapTable:
    """Where the propensities of the arms lie. Not private: for the data holder only.

    Attributes
    ----------
    limits
        The public interval they are compared with.
    control, treated
        Quantiles and shares of each arm.
    outside_limits
        Share of all records strictly outside ``limits``.
    support
        The common support: from the larger of the two minima to the smaller of the two maxima. Its lower
        end is above its upper end where the arms do not overlap; nan where an arm is empty.
    outside_support
        Share of all records outside of it; 1 where there is none.
    auc
        Area under the ROC curve in [0, 1]: how often a treated record has a larger propensity than a
        control, ties counted half (Hanley and McNeil 1982); 1/2 where nothing tells the arms apart.
    advice
        What follows from it, in a sentence.
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    limits: tuple[float, float]
    control: ArmOverlap
    treated: ArmOverlap
    outside_limits: float
    support: tuple[float, float]
    outside_support: float
    auc: float
    advice: str

    def rows(self) -> list[tuple[str, ...]]:
        """One (arm, n, quantiles, share outside the limits, outside the support) per arm, as text."""
        return [
            (
                name,
                str(arm.n_samples),
                *(f"{value:.3f}" for value in arm.quantiles),
                f"{arm.outside_limits:.1%}",
                f"{arm.outside_support:.1%}",
            )
            for name, arm in zip(ARMS, (self.control, self.treated), strict=True)
        ]

    def __str__(self) -> str:
        levels = ("minimum", *(f"{level:.0%}" for level in LEVELS[1:-1]), "maximum")
        head = ("propensity", "n", *levels, "outside limits", "outside support")
        lower, upper = self.limits
        return "\n".join(
            [
                f"Overlap ({NOT_PRIVATE})",
                *aligned([head, *self.rows()]),
                f"outside the limits [{lower:g}, {upper:g}]: {self.outside_limits:.1%} of all records",
                f"outside the common support [{self.support[0]:.3f}, {self.support[1]:.3f}]: "
                f"{self.outside_support:.1%} of all records",
                f"area under the ROC curve: {self.auc:.3f}",
                f"advice: {self.advice}",
                "A choice made after this look is not covered by the privacy guarantee.",
            ]
        )


def overlap_table(
    propensity: ArrayLike, a: ArrayLike, *, limits: tuple[float, float] = LIMITS
) -> OverlapTable:
    """Compare the propensities of the arms. Not private: for the data holder only.

    Parameters
    ----------
    propensity, a
        (n,) probabilities of treatment in [0, 1] and (n,) treatments in {0, 1}.
    limits
        Public, 0 <= lower < upper <= 1; 0.1 and 0.9 as in Crump, Hotz, Imbens and Mitnik (2009).

    Raises
    ------
    DataError
        Shapes differ, there are no records, or an entry is out of range; the message names it.
    DeclarationError
        ``limits`` are not two increasing numbers in [0, 1].
    """
    score, arm = numbers(propensity, "propensity"), numbers(a, "a")
    same_length("(n,) and (n,)", propensity=score, a=arm)
    probabilities(score, "propensity")
    members = arms(arm)
    low, high = _checked_limits(limits)
    wide = (score < low) | (score > high)
    own = [score[one] for one in members]
    nobody = not all(len(one) for one in own)
    support = (math.nan,) * 2 if nobody else (max(map(np.min, own)), min(map(np.max, own)))
    bare = (score < support[0]) | (score > support[1])  # all of them where the ends are crossed
    shares = float(np.mean(wide)), math.nan if nobody else float(np.mean(bare))
    auc = math.nan if nobody else _auc(*own)
    control, treated = (_arm(score, one, wide, bare, nobody) for one in members)
    return OverlapTable(
        limits=(low, high),
        control=control,
        treated=treated,
        outside_limits=shares[0],
        support=(float(support[0]), float(support[1])),
        outside_support=shares[1],
        auc=auc,
        advice=_advice(nobody, support[0] > support[1], shares[0], auc),
    )


def _arm(score: Array, members: Mask, wide: Mask, bare: Mask, nobody: bool) -> ArmOverlap:
    if not members.any():
        return ArmOverlap(0, (math.nan,) * len(LEVELS), math.nan, math.nan)
    return ArmOverlap(
        n_samples=int(members.sum()),
        quantiles=tuple(float(value) for value in np.quantile(score[members], LEVELS)),
        outside_limits=float(np.mean(wide[members])),
        outside_support=math.nan if nobody else float(np.mean(bare[members])),
    )


def _auc(control: Array, treated: Array) -> float:
    """The Mann-Whitney statistic over the number of pairs."""
    ordered = np.sort(control)
    below, up_to = (np.searchsorted(ordered, treated, side=side) for side in ("left", "right"))
    return float(np.mean(below + up_to)) / 2 / len(control)


def _checked_limits(limits: object) -> tuple[float, float]:
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        raise DeclarationError("limits: must be two numbers, the lower and the upper")
    low, high = (public_number("limits", value) for value in limits)
    if not 0 <= low < high <= 1:
        raise DeclarationError(f"limits = ({low:g}, {high:g}): must satisfy 0 <= lower < upper <= 1")
    return low, high


def _advice(nobody: bool, apart: bool, outside: float, auc: float) -> str:
    """One sentence, from whether an arm is empty, the supports are apart, the share outside and the area."""
    if nobody:
        return "one arm is empty: nothing can be compared."
    if apart:
        return (
            "the arms do not overlap: no weights on these records make them comparable; study a population "
            "in which both treatments occur."
        )
    if outside > _MANY:
        return (
            f"overlap is poor ({outside:.1%} of the records are outside the limits): the estimate will rest "
            "on few records; take a trim or a larger ridge, or narrow the population by a public rule rather "
            "than by these propensities."
        )
    if auc > _APART:
        return (
            f"few records are outside the limits, but the arms are nearly told apart (area {auc:.2f}): a "
            "smaller ridge of the propensity may show poor overlap."
        )
    if outside > 0:
        return f"{outside:.1%} of the records are outside the limits: expect large weights, or trim them."
    return "every record is within the limits: overlap is no reason against any first stage."
