"""What a design hands back: candidates in order, and whether the first is worth reading."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.display import as_text
from dp2erm_cvx.tuning.designs.question import DesignQuestion
from dp2erm_cvx.tuning.designs.row import DesignRow, half_width

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: By how much a rule has to be right more often than the best constant.
MARGIN = 0.1


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
        """The first candidate: recommended where the design ``answers``."""
        return self.rows[0]

    @property
    def answers(self) -> bool:
        """Whether the first is worth reading.

        Its interval is shorter than the guessed effect and covers it at least ``COVERS`` of the time; or its
        rule is right more often than the best constant, by more than ``MARGIN`` and than simulation error.
        """
        best = self.best
        if best.reason:
            return False
        if self.question.goal == "effect":
            return best.holds and best.width < (abs(self.question.net_effect) or math.inf)
        gains = np.array(self.beside.scores) - np.array(best.scores)
        return float(np.mean(gains)) > max(MARGIN, half_width(gains))

    def blocks(self) -> Iterator[Block]:
        """What a reader should see: the guess, the table, and what it says."""
        from dp2erm_cvx.tuning.designs.text import design_blocks

        return design_blocks(self)

    def __str__(self) -> str:
        return as_text(self.blocks())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: the question, the guess, the rows and the verdict."""
        asked, guess = self.question, self.question.filled
        named = ("goal", "estimand", "n_samples", "n_features", "replicates", "seed")
        return {
            **{name: getattr(asked, name) for name in named},
            **asdict(asked.budget),
            "domain": asked.domain.to_dict(),
            "guess": asdict(guess),
            "guessed": [name for name, _, stated in asked.guess.stated(guess) if not stated],
            "confounded_by": self.confounded_by,
            "answers": self.answers,
            "enough": None if self.enough is None else asdict(self.enough),
            "beside": self.beside.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
        }
