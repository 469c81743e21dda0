"""Everything that gives an observation a number, by family."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dp2erm_cvx.audit.blackbox.observation import Observation
from dp2erm_cvx.audit.blackbox.statistic import bits, learned, numbers_of, tails
from dp2erm_cvx.domain import Array

#: Marks and repeated values, tails, learned scores, and the grid of floating point.
FAMILIES = ("values", "tails", "learned", "bits")

#: Kinds of output with fewer learning runs have no scores of their own, and at most so many kinds have.
_FEWEST, _MOST_KINDS = 10, 6


class Score(Protocol):
    """A number for every observation, NaN where it has none."""

    @property
    def name(self) -> str:
        """In words."""

    def __call__(self, observations: Sequence[Observation]) -> Array:
        """Scores (m,)."""


def scores(
    first: Sequence[Observation], second: Sequence[Observation], families: Sequence[str]
) -> Iterator[Score]:
    """Scores for the learning runs of both datasets."""
    for name in sorted({name for observation in (*first, *second) for name in observation.own}):
        yield Own(name)
    if "values" in families:
        yield Favored.of(first, second)
    kinds = Counter(observation.kind for observation in (*first, *second) if len(observation.numbers))
    names = {observation.kind: observation.names for observation in (*first, *second)}
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


def _finite(observations: Sequence[Observation], kind: str, width: int) -> Array:
    rows = numbers_of(observations, kind).reshape(-1, width)
    return rows[np.all(np.isfinite(rows), axis=1)]


@dataclass(frozen=True)
class Own:
    """A statistic of the caller's."""

    name: str

    def __call__(self, observations: Sequence[Observation]) -> Array:
        """Its values (m,), NaN where it has none."""
        values = np.array([observation.own.get(self.name, math.nan) for observation in observations])
        values[~np.isfinite(values)] = np.nan
        return values


@dataclass(frozen=True)
class Favored:
    """How much more often the same output came from the first dataset than from the second: log odds (m,)."""

    odds: Mapping[str | bytes, float]
    name: str = "log odds of the same output among the learning runs"

    @classmethod
    def of(cls, first: Sequence[Observation], second: Sequence[Observation]) -> Favored:
        """From the learning runs."""
        mine, theirs = (Counter(observation.key for observation in part) for part in (first, second))
        keys = mine.keys() | theirs.keys()
        return cls({key: math.log((mine[key] + 0.5) / (theirs[key] + 0.5)) for key in keys})

    def __call__(self, observations: Sequence[Observation]) -> Array:
        """0 for what was not seen."""
        return np.array([self.odds.get(observation.key, 0.0) for observation in observations])
