"""What a black-box audit reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from dp2erm_cvx.audit.density.result import Direction


@dataclass(frozen=True)
class Counted:
    """An event that was chosen first and then counted in ``runs`` other runs of each dataset.

    P is the law of the output on the dataset named first in ``direction``, Q that on the other. With the
    confidence of the audit P(event) is at least ``low`` and Q(event) at most ``high``, so that epsilon is at
    least ``epsilon_low`` = log((low - delta) / high), or 0.
    """

    direction: Direction
    event: str
    hits: int
    other_hits: int
    runs: int
    low: float
    high: float
    epsilon_low: float

    def __str__(self) -> str:
        return (
            f"{self.direction}: {self.hits} against {self.other_hits} of {self.runs} runs with {self.event}, "
            f"epsilon >= {self.epsilon_low:.3g}"
        )


@dataclass(frozen=True)
class BlackBoxAudit:
    """What runs of a mechanism on one pair of datasets say about its declared (``epsilon``, ``delta``).

    ``epsilon_low`` is a lower bound on the epsilon that the mechanism has at ``delta``, right with
    probability at least ``confidence`` if the runs are independent; ``counted`` holds both directions.
    ``ceiling`` is the most that so many runs can show, whatever the mechanism: a quiet audit says nothing
    about any epsilon above it. ``runs`` are those of each dataset, half of which chose the events;
    ``raised`` counts, for both datasets, those that ended in an exception. ``looked_at`` events were
    compared, of what ``searched`` says. ``seed`` repeats the runs of a mechanism that takes a generator.
    """

    epsilon: float
    delta: float
    epsilon_low: float
    ceiling: float
    confidence: float
    counted: tuple[Counted, Counted]
    runs: int
    raised: tuple[int, int]
    looked_at: int
    searched: str
    seed: int
    private: bool = field(default=False, init=False)

    @property
    def best(self) -> Counted:
        """The direction and event with the larger bound."""
        return max(self.counted, key=lambda found: found.epsilon_low)

    @property
    def exceeds(self) -> bool:
        """Whether the declared guarantee is violated; wrong with probability at most 1 - ``confidence``."""
        return self.epsilon_low > self.epsilon

    @property
    def able(self) -> bool:
        """Whether so many runs could show any violation at all."""
        return self.ceiling > self.epsilon

    def __str__(self) -> str:
        best = self.best
        declared = f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"
        found = f"epsilon >= {self.epsilon_low:.4g} with confidence {self.confidence:g}, {declared}"
        if self.exceeds:
            verdict = f"VIOLATED by {best.event} ({best.hits} against {best.other_hits} of {best.runs} runs)"
        else:
            verdict = "no violation found, which is no proof"
        limit = f"{self.runs} runs a dataset can show at most {self.ceiling:.4g}"
        if not self.able:
            limit += ", hence NO violation of this epsilon: more runs are needed"
        return f"{found}: {verdict}; {limit}; looked at {self.searched}; not private"
