"""How an audit attacks a mechanism: how often it runs it, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dp2erm_cvx.audit.blackbox.scores import FAMILIES
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import whole_workers
from dp2erm_cvx.public import public_fraction, whole_number

#: What each family is called in a report.
_NAMES = {
    "values": "marks and repeated values",
    "tails": "tails of coordinates and norms",
    "learned": "learned scores",
    "bits": "the lowest bits of coordinates",
}


@dataclass(frozen=True)
class Attack:
    """Runs of a mechanism on each of two datasets, and the events that are looked for in its outputs.

    Parameters
    ----------
    runs
        On each dataset, at least 40.
    confidence
        Probability at least which the bound is right with, in (0, 1).
    events
        Families to look at: "values", "tails", "learned", "bits"; may be empty if there are ``statistics``.
    statistics
        Functions from an output to a number of your own, whose tails are looked at as well.
    takes_rng
        Whether the mechanism takes a ``numpy.random.Generator`` after the dataset.
    seed
        Seeds the generators of a mechanism that takes one; drawn and reported if None.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the result.

    Raises DeclarationError for anything else.
    """

    runs: int = 2000
    confidence: float = 0.99
    events: Sequence[str] = FAMILIES
    statistics: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    takes_rng: bool = False
    seed: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", whole_number("runs", self.runs, at_least=40))
        object.__setattr__(self, "confidence", public_fraction("confidence", self.confidence))
        object.__setattr__(self, "events", _families(self.events, own=bool(self.statistics)))
        object.__setattr__(self, "statistics", dict(self.statistics))
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed, at_least=0))
        object.__setattr__(self, "workers", whole_workers(self.workers))

    @property
    def names(self) -> list[str]:
        """What is looked at, in words."""
        own = [f"{len(self.statistics)} own statistics"] if self.statistics else []
        return [_NAMES[family] for family in self.events] + own


def _families(events: Sequence[str], *, own: bool) -> tuple[str, ...]:
    chosen = (events,) if isinstance(events, str) else tuple(events)
    for family in chosen:
        if family not in FAMILIES:
            raise DeclarationError(f"events: {family!r} is unknown: choose from {', '.join(FAMILIES)}")
    if not chosen and not own:
        raise DeclarationError("events: choose at least one family, or give statistics")
    return tuple(family for family in FAMILIES if family in chosen)
