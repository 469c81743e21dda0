"""Everything that gives an outcome a number, by family."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dp2erm_cvx.audit.blackbox.outcome import Outcome
from dp2erm_cvx.audit.blackbox.statistic import bits, learned, table, tails
from dp2erm_cvx.domain import Array

#: Marks and repeated values, tails, learned scores, and the grid of floating point.
FAMILIES = ("values", "tails", "learned", "bits")

#: Kinds of output with fewer learning runs have no scores of their own, and at most so many kinds have.
_FEWEST, _MOST_KINDS = 10, 6


class Score(Protocol):
    """A number for every outcome, NaN where it has none."""

    @property
    def name(self) -> str:
        """In words."""

    def __call__(self, outcomes: Sequence[Outcome]) -> Array:
        """Scores (m,)."""


def scores(first: Sequence[Outcome], second: Sequence[Outcome], families: Sequence[str]) -> Iterator[Score]:
    """Scores for the learning runs of both datasets."""
    for name in sorted({name for outcome in (*first, *second) for name in outcome.own}):
        yield Own(name)
    if "values" in families:
        yield Favored.of(first, second)
    kinds = Counter(outcome.kind for outcome in (*first, *second) if len(outcome.numbers))
    names = {outcome.kind: outcome.names for outcome in (*first, *second)}
    for kind, count in kinds.most_common(_MOST_KINDS):
        if count < _FEWEST:
            break
        one, other = (_finite(part, kind, len(names[kind])) for part in (first, second))
        if len(one) + len(other) >= _FEWEST:
            if "tails" in families:
                yield from tails(one, other, kind, names[kind])
            if "learned" in families:
                yield from learned(one, other, kind, names[kind])
        if "bits" in families:
            yield from bits(kind, names[kind])


def _finite(outcomes: Sequence[Outcome], kind: str, width: int) -> Array:
    rows = table(outcomes, kind).reshape(-1, width)
    return rows[np.all(np.isfinite(rows), axis=1)]


@dataclass(frozen=True)
class Own:
    """A statistic of the caller's."""

    name: str

    def __call__(self, outcomes: Sequence[Outcome]) -> Array:
        """Its values (m,), NaN where it has none."""
        found = np.array([outcome.own.get(self.name, math.nan) for outcome in outcomes])
        found[~np.isfinite(found)] = np.nan
        return found


@dataclass(frozen=True)
class Favored:
    """How much more often the same output came from the first dataset than from the second: log odds (m,)."""

    odds: Mapping[str | bytes, float]
    name: str = "log odds of the same output among the learning runs"

    @classmethod
    def of(cls, first: Sequence[Outcome], second: Sequence[Outcome]) -> Favored:
        """From the learning runs."""
        mine, theirs = (Counter(outcome.key for outcome in part) for part in (first, second))
        keys = mine.keys() | theirs.keys()
        return cls({key: math.log((mine[key] + 0.5) / (theirs[key] + 0.5)) for key in keys})

    def __call__(self, outcomes: Sequence[Outcome]) -> Array:
        """0 for what was not seen."""
        return np.array([self.odds.get(outcome.key, 0.0) for outcome in outcomes])
