"""A linear rule in the covariates' own units: arithmetic on what was released and on public ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.domain import Array, Domain


@dataclass(frozen=True)
class OwnUnits:
    """``constant + sum of slopes[j] x_j``: what theta says of raw covariates x (k,).

    Inside the domain that is what the scaled theta says, but for rounding: each covariate within its public
    range, and their scaled norm at most ``norm``. A record beyond is clipped and shrunk by the domain first.
    ``slopes`` (k,) are per unit of the ``columns``, which ``per`` names; of what is 0 or 1 it names the
    level.
    """

    constant: float
    columns: tuple[str, ...]
    slopes: tuple[float, ...]
    per: tuple[str, ...]
    norm: float

    def at(self, X: ArrayLike) -> Array:
        """The same (m,) at raw covariates (m, k) of these ``columns``, each record by itself."""
        found: Array = self.constant + np.sum(np.asarray(X, dtype=np.float64) * self.slopes, axis=1)
        return found

    def numbers(self) -> list[tuple[float, str]]:
        """The constant, then every slope, each with what it is per."""
        return [(self.constant, ""), *zip(self.slopes, self.per, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """As the JSON of a release states it."""
        return {"constant": self.constant, "slopes": dict(zip(self.columns, self.slopes, strict=True))}

    def told(self) -> str:
        """For which records it is the same as the scaled theta."""
        return (
            "Own units: the same rule of raw covariates, its constant where all of them are 0. It holds "
            f"inside the ranges, as long as the norm of the scaled covariates is at most {self.norm:.4g}; a "
            "record beyond is clipped and shrunk first."
        )


def own_units(
    domain: Domain, columns: Sequence[str], slopes: Mapping[int, float], constant: float, norm: float
) -> OwnUnits | None:
    """A linear rule with a ``constant`` and ``slopes`` on the scaled covariates of these numbers.

    ``norm`` is what it shrinks those to. None where no ranges scale them, and where no double holds the
    result: ranges can be as short, or as far off, as they like.
    """
    if domain.ranges is None:
        return None
    pairs, middles = domain.range_pairs, domain.middles(len(columns))
    terms, raw = [constant], list[float]()
    for index, value in slopes.items():
        low, high = pairs[index]
        raw.append(value / (high / 2 - low / 2))
        terms.append(-raw[-1] * middles[index])
    try:
        total = math.fsum(terms) + 0.0
    except (OverflowError, ValueError):
        return None
    if not all(map(math.isfinite, [total, *raw])):
        return None
    named = tuple(columns[index] for index in slopes)
    per = tuple(_per(domain.codebook, name) for name in named)
    return OwnUnits(total, named, tuple(raw), per, min(norm, domain.features_bound))


def _per(book: Codebook | None, name: str) -> str:
    column, level = (name, None) if book is None else book.origin(name)
    if level is not None:
        assert book is not None
        known = "missing" if column in book.missing else level or "missing"
        return f"where {column} is {known}"
    unit = None if book is None else book.units.get(column)
    return f"per {unit}" if unit else "per unit"
