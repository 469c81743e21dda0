"""One candidate in the table of a design, and the order of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from dp2erm_cvx.tuning.designs.candidates import Model
from dp2erm_cvx.tuning.designs.question import DesignQuestion
from dp2erm_cvx.tuning.designs.trials import SimulatedRun

#: Share of the intervals that have to cover the effect, whose level is .95.
COVERS = 0.9
#: Standard errors of a half width.
_Z = 1.96


@dataclass(frozen=True)
class DesignRow:
    """One candidate; nan where something does not apply. ``..._half`` is the half width of simulation error.

    Attributes
    ----------
    name, command, words
        The candidate, its command of ``dp2erm``, and the options of that beside data, domain and budget.
    bias, deviation, error
        Mean, standard deviation and root mean square of estimate less truth, in units of the outcome.
    noise
        Half width that noise alone leaves an effect (95 %); of a rule, how far noise moves the effect of one
        record (root mean square).
    width, covers
        Median width of the interval, and how often it covers the effect.
    right, lost
        Share of right decisions, and the mean effect that the wrong ones forgo.
    tied
        Whether it is within simulation error of the best.
    reason
        Why there is nothing, empty otherwise.
    scores
        What is ranked, by replicate: squared errors, or shares of wrong decisions.
    model
        The unfitted estimator; None for what is no candidate.
    """

    name: str
    command: str = ""
    words: tuple[str, ...] = ()
    bias: float = math.nan
    bias_half: float = math.nan
    deviation: float = math.nan
    error: float = math.nan
    error_half: float = math.nan
    noise: float = math.nan
    width: float = math.nan
    covers: float = math.nan
    covers_half: float = math.nan
    right: float = math.nan
    right_half: float = math.nan
    lost: float = math.nan
    tied: bool = False
    reason: str = ""
    scores: tuple[float, ...] = field(default=(), repr=False)
    model: Model | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_effect(cls, name: str, trials: Sequence[SimulatedRun], noise: float) -> DesignRow:
        """The row of an effect; ``noise`` is that of weights, which state none."""
        off, low, high, own = np.array([(one.off, one.low, one.high, one.noise) for one in trials]).T
        many, squares = len(off), off**2
        error = math.sqrt(float(np.mean(squares)))
        held = (low <= 0.0) & (high >= 0.0)
        # two more on either side, so that the error of a share of 1 is not 0
        share = (float(np.sum(held)) + 2.0) / (many + 4.0)
        found = cls(
            name,
            bias=float(np.mean(off)),
            bias_half=half_width(off),
            deviation=float(np.std(off, ddof=1)),
            error=error,
            error_half=half_width(squares) / max(2.0 * error, 1e-300),
            noise=noise if np.isnan(own).all() else float(np.nanmedian(own)),
            scores=tuple(squares.tolist()),
        )
        if np.isnan(low).any():
            return found
        half = _Z * math.sqrt(share * (1.0 - share) / (many + 4.0))
        width = float(np.median(high - low))
        return replace(found, width=width, covers=float(np.mean(held)), covers_half=half)

    @classmethod
    def of_rule(cls, name: str, trials: Sequence[SimulatedRun]) -> DesignRow:
        """The row of a rule, or of a constant."""
        wrong, noise, lost = np.array([(one.off, one.noise, one.lost) for one in trials]).T
        return cls(
            name,
            noise=math.nan if np.isnan(noise).any() else float(np.mean(noise)),
            right=1.0 - float(np.mean(wrong)),
            right_half=half_width(wrong),
            lost=float(np.mean(lost)),
            scores=tuple(wrong.tolist()),
        )

    @property
    def holds(self) -> bool:
        """Whether there is an interval, and it covers the effect often enough."""
        return self.covers >= COVERS

    def to_dict(self) -> dict[str, Any]:
        """Everything but scores and model, as plain values."""
        left_out = ("scores", "model")
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}
        return plain | {"words": list(self.words)}


def ranked(question: DesignQuestion, rows: Sequence[DesignRow]) -> tuple[DesignRow, ...]:
    """The rows in order: those tied for the first place as they were declared, then by what is ranked.

    Effects whose intervals cover too seldom, or that have none, come after all others, by their coverage.
    """
    done = [row for row in rows if not row.reason]
    pool = [row for row in done if question.goal == "rule" or row.holds]
    best = min(pool, key=_mean, default=None)
    first = [replace(row, tied=True) for row in pool if best is not None and _within(row, best)]
    names = [row.name for row in first]
    rest = sorted((row for row in pool if row.name not in names), key=_mean)
    others = sorted((row for row in done if row not in pool), key=_uncovered)
    return (*first, *rest, *others, *(row for row in rows if row.reason))


def _mean(row: DesignRow) -> float:
    return float(np.mean(row.scores))


def _uncovered(row: DesignRow) -> tuple[float, float]:
    return 2.0 if math.isnan(row.covers) else 1.0 - row.covers, _mean(row)


def _within(row: DesignRow, best: DesignRow) -> bool:
    """Whether paired differences do not tell a row from the best."""
    behind = np.array(row.scores) - np.array(best.scores)
    return float(np.mean(behind)) <= half_width(behind)


def half_width(values: np.ndarray) -> float:
    """The half width of the simulation error of their mean."""
    return _Z * float(np.std(values, ddof=1)) / math.sqrt(len(values))
