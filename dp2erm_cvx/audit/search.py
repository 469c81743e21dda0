"""How a search runs: what it may spend, what repeats it, and who does the work."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import whole_workers
from dp2erm_cvx.public import public_number, whole_number


@dataclass(frozen=True)
class Progress:
    """How far a search is: ``share`` of its limit, evaluations so far, the largest ratio to a bound."""

    share: float
    evaluations: int
    ratio: float


@dataclass(frozen=True)
class SearchPlan:
    """Limits of a search, and how it runs; at least one limit is needed.

    Parameters
    ----------
    evaluations
        At most so many neighbors, or audited pairs. Only a search without ``seconds`` is repeatable.
    seconds
        The search ends after whichever comes first.
    seed
        Repeats a search; it has nothing to do with a release.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the result.
    checkpoint
        File that holds the search as it goes. A search with the same arguments goes on from there, to the
        same result as without a break.
    progress
        Called after every round.

    Raises DeclarationError for anything else.
    """

    evaluations: int | None = None
    seconds: float | None = None
    seed: int = 0
    workers: int = 1
    checkpoint: Path | str | None = None
    progress: Callable[[Progress], None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.evaluations is None and self.seconds is None:
            raise DeclarationError("search: declare evaluations or seconds")
        if self.evaluations is not None:
            evaluations = whole_number("evaluations", self.evaluations, at_least=1)
            object.__setattr__(self, "evaluations", evaluations)
        if self.seconds is not None:
            object.__setattr__(self, "seconds", public_number("seconds", self.seconds, above=0.0))
        object.__setattr__(self, "seed", whole_number("seed", self.seed, at_least=0))
        object.__setattr__(self, "workers", whole_workers(self.workers))
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", Path(self.checkpoint))

    def share(self, part: float) -> SearchPlan:
        """The same search with a part of the limits."""
        evaluations = None if self.evaluations is None else max(1, round(part * self.evaluations))
        seconds = None if self.seconds is None else part * self.seconds
        return dataclasses.replace(self, evaluations=evaluations, seconds=seconds)

    def alone(self) -> SearchPlan:
        """The same search as one task of many: in one process, without a checkpoint and silent."""
        return dataclasses.replace(self, workers=1, checkpoint=None, progress=None)

    def start(self) -> Clock:
        """The search begins now."""
        return Clock(self, time.time())


@dataclass(frozen=True)
class Clock:
    """A search that began at ``began``, in seconds since the epoch, on any machine."""

    search: SearchPlan
    began: float

    @property
    def deadline(self) -> float:
        """When it ends at the latest."""
        return math.inf if self.search.seconds is None else self.began + self.search.seconds

    def left(self, spent: int) -> int | None:
        """Evaluations that are left, None for any number; 0 after the deadline."""
        if time.time() >= self.deadline:
            return 0
        return None if self.search.evaluations is None else max(0, self.search.evaluations - spent)

    def share(self, spent: int) -> float:
        """Share of the limit that is reached first."""
        limits = self.search
        shares = [] if limits.evaluations is None else [spent / limits.evaluations]
        shares += [] if limits.seconds is None else [(time.time() - self.began) / limits.seconds]
        return min(1.0, max(shares))


_T = TypeVar("_T")


def remembered(function: Callable[[Array], _T]) -> Callable[[Array], _T]:
    """The same function of a vector, for a search that asks for one again and again."""
    known = lru_cache(maxsize=64)(lambda key: function(np.frombuffer(key)))
    return lambda vector: known(vector.tobytes())
