"""What a design hands back: candidates in order, and whether the first is worth reading."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.display import as_text
from dp2erm_cvx.tuning.design_candidates import Model
from dp2erm_cvx.tuning.design_question import DesignQuestion
from dp2erm_cvx.tuning.design_trials import Trial

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: Share of the intervals that have to hold the effect, whose level is .95.
COVERS = 0.9
#: What rules are compared with.
CONSTANT = "best constant rule"
#: By how much a rule has to be right more often than the best constant.
MARGIN = 0.1
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
        Median width of the interval, and how often it holds the effect.
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
    def of_effect(cls, name: str, trials: Sequence[Trial], noise: float) -> DesignRow:
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
            bias_half=_half(off),
            deviation=float(np.std(off, ddof=1)),
            error=error,
            error_half=_half(squares) / max(2.0 * error, 1e-300),
            noise=noise if np.isnan(own).all() else float(np.nanmedian(own)),
            scores=tuple(squares.tolist()),
        )
        if np.isnan(low).any():
            return found
        half = _Z * math.sqrt(share * (1.0 - share) / (many + 4.0))
        width = float(np.median(high - low))
        return replace(found, width=width, covers=float(np.mean(held)), covers_half=half)

    @classmethod
    def of_rule(cls, name: str, trials: Sequence[Trial]) -> DesignRow:
        """The row of a rule, or of a constant."""
        wrong, noise, lost = np.array([(one.off, one.noise, one.lost) for one in trials]).T
        return cls(
            name,
            noise=math.nan if np.isnan(noise).any() else float(np.mean(noise)),
            right=1.0 - float(np.mean(wrong)),
            right_half=_half(wrong),
            lost=float(np.mean(lost)),
            scores=tuple(wrong.tolist()),
        )

    @property
    def holds(self) -> bool:
        """Whether there is an interval, and it holds the effect often enough."""
        return self.covers >= COVERS

    def to_dict(self) -> dict[str, Any]:
        """Everything but scores and model, as plain values."""
        left_out = ("scores", "model")
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}
        return plain | {"words": list(self.words)}


@dataclass(frozen=True)
class Enough:
    """About how many records would do.

    ``found`` says how that is known: "simulated", "predicted" from public plans, or "more" where so many
    do not.
    """

    n_samples: int
    found: str


@dataclass(frozen=True)
class DesignResult:
    """The ranked candidates.

    ``beside`` is the default pipeline at a budget that hides nothing, or the best constant rule.
    ``confounded_by`` says how far the plain difference of means is off, in units of the outcome. ``enough``
    is there where nothing is worth reading.
    """

    question: DesignQuestion
    rows: tuple[DesignRow, ...]
    beside: DesignRow
    confounded_by: float
    enough: Enough | None = None

    @property
    def best(self) -> DesignRow:
        """The recommended candidate."""
        return self.rows[0]

    @property
    def effect(self) -> float:
        """The guessed average effect, net of the cost of treatment."""
        effect = self.question.filled.effect
        assert effect is not None
        return effect - self.question.domain.treatment_cost

    @property
    def answers(self) -> bool:
        """Whether the first is worth reading.

        Its interval is shorter than the guessed effect and holds it at least ``COVERS`` of the time; or its
        rule is right more often than the best constant, by more than ``MARGIN`` and than simulation error.
        """
        best = self.best
        if best.reason:
            return False
        if self.question.goal == "effect":
            return best.holds and (best.width < abs(self.effect) or not self.effect)
        gains = np.array(self.beside.scores) - np.array(best.scores)
        return float(np.mean(gains)) > max(MARGIN, _half(gains))

    def blocks(self) -> Iterator[Block]:
        """What a reader should see: the guess, the table, and what it says."""
        from dp2erm_cvx.tuning.design_text import design_blocks

        return design_blocks(self)

    def __str__(self) -> str:
        return as_text(self.blocks())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: the question, the guess, the rows and the verdict."""
        asked, guess = self.question, self.question.filled
        return {
            "goal": asked.goal,
            "estimand": asked.estimand if asked.goal == "effect" else None,
            "n_samples": asked.n_samples,
            "n_features": asked.n_features,
            "epsilon": asked.budget.epsilon,
            "delta": asked.budget.delta,
            "replicates": asked.replicates,
            "seed": asked.seed,
            "domain": asked.domain.to_dict(),
            "guess": asdict(guess),
            "guessed": [name for name, _, stated in asked.guess.stated(guess) if not stated],
            "confounded_by": self.confounded_by,
            "answers": self.answers,
            "enough": None if self.enough is None else asdict(self.enough),
            "beside": self.beside.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
        }


def ranked(question: DesignQuestion, rows: Sequence[DesignRow]) -> tuple[DesignRow, ...]:
    """The rows in order: those tied for the first place as they were declared, then by what is ranked."""
    done = [row for row in rows if not row.reason]
    honest = [row for row in done if row.holds] if question.goal == "effect" else done
    pool = honest or done
    if not pool:
        return tuple(rows)
    best = min(pool, key=_mean)
    first = [replace(row, tied=True) for row in pool if _within(row, best)]
    names = [row.name for row in first]
    rest = sorted((row for row in pool if row.name not in names), key=_mean)
    others = sorted((row for row in done if row not in pool), key=_mean)
    return (*first, *rest, *others, *(row for row in rows if row.reason))


def _mean(row: DesignRow) -> float:
    return float(np.mean(row.scores))


def _within(row: DesignRow, best: DesignRow) -> bool:
    """Whether paired differences do not tell a row from the best."""
    behind = np.array(row.scores) - np.array(best.scores)
    return float(np.mean(behind)) <= _half(behind)


def _half(values: np.ndarray) -> float:
    """The half width of the simulation error of their mean."""
    return _Z * float(np.std(values, ddof=1)) / math.sqrt(len(values))
