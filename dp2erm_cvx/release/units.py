"""Coefficients for readers: in own units, with their noise, and whom a rule treats by strata."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.display import grid

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block


@dataclass(frozen=True)
class OwnUnits:
    """``constant + sum of slopes[j] x_j``: what theta says of raw covariates x (k,).

    Inside the domain that is what the scaled theta says, but for rounding: each covariate within
    its public range, and their scaled norm at most ``norm``. A record beyond is clipped and shrunk
    by the domain first.

    Parameters
    ----------
    constant
        Value where all raw covariates are 0.
    columns
        Names (k,) of the covariates.
    slopes
        Change (k,) per unit of each covariate.
    per
        Unit (k,) of each covariate; of what is 0 or 1 its level.
    norm
        Scaled norm up to which both say the same.
    """

    constant: float
    columns: tuple[str, ...]
    slopes: tuple[float, ...]
    per: tuple[str, ...]
    norm: float

    def at(self, X: ArrayLike) -> Array:
        """Predictions (m,) at raw covariates (m, k) of these ``columns``, each record by itself."""
        terms = np.asarray(X, dtype=np.float64) * self.slopes
        effect: Array = self.constant + np.sum(terms, axis=1)
        return effect

    def to_dict(self) -> dict[str, Any]:
        """As the JSON of a release states it."""
        return {
            "constant": self.constant,
            "slopes": dict(zip(self.columns, self.slopes, strict=True)),
        }

    def in_words(self) -> str:
        """For which records it is the same as the scaled theta."""
        return (
            "Own units: the same rule of raw covariates, its constant where all of them are 0. It "
            f"holds inside the ranges, up to a norm of {self.norm:.4g} of the scaled covariates; a "
            "record beyond is clipped and shrunk first."
        )


def own_units(
    domain: Domain,
    columns: Sequence[str],
    slopes: Mapping[int, float],
    constant: float,
    norm: float,
) -> OwnUnits | None:
    """A linear rule of the raw covariates, from one of scaled covariates.

    Parameters
    ----------
    domain
        Scales the covariates.
    columns
        Names of the covariates.
    slopes
        Slopes on scaled covariates, by the place of the column.
    constant
        Value where all scaled covariates are 0.
    norm
        Norm that the rule shrinks scaled covariates to.

    Returns
    -------
    OwnUnits or None
        None where no ranges scale the covariates, and where no double holds the result: ranges can
        be as short, or as far off, as they like.
    """
    if domain.ranges is None:
        return None
    pairs = domain.range_pairs
    middles = domain.middles(len(columns))
    terms = [constant]
    raw: list[float] = []
    for index, value in slopes.items():
        low, high = pairs[index]
        slope = value / (high / 2 - low / 2)
        raw.append(slope)
        terms.append(-slope * middles[index])
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
    """The unit of a covariate in words; of what is 0 or 1 its level."""
    if book is None:
        return "per unit"
    column, level = book.origin(name)
    if level is not None:
        return f"where {column} is {level or 'missing'}"
    unit = book.units.get(column) if column == name else None
    return f"per {unit or 'unit'}"


def beside(rows: Sequence[Mapping[str, Any]], release: Any) -> list[Mapping[str, Any]]:
    """The rows of a data frame, those of parameters with their own units.

    They are None where there are none. Where theta has no constant, that of its own units comes
    last, unless it is 0. Noise of a constant in own units adds up that of all it is made of.
    """
    own = release.own_units
    if own is None:
        return [{**row, "own_units": None, "own_noise": None, "per": ""} for row in rows]
    values = (own.constant, *own.slopes)
    noise = _own_noise(rows, release, len(values))
    numbers = list(zip(values, noise, ("", *own.per), strict=True))
    table = list(rows)
    if len(table) < len(numbers):
        constant, *slopes = numbers
        numbers = [*slopes, constant] if own.constant else slopes
    if len(table) < len(numbers):
        table.append({**rows[-1], "parameter": "constant", "value": None, "noise_half_width": None})
    return [
        {**row, "own_units": value, "own_noise": noise, "per": unit}
        for row, (value, noise, unit) in zip(table, numbers, strict=True)
    ]


def _own_noise(
    rows: Sequence[Mapping[str, Any]], release: Any, number: int
) -> Sequence[float | None]:
    """Half widths of the noise in own units, the constant first; ``number`` times None for none.

    They are what the rule with the half widths for theta says in own units, with signs by which all
    of them add up in the constant.
    """
    widths = [row["noise_half_width"] for row in rows[: len(release.theta)]]
    if None in widths:
        return [None] * number
    if release.goal == "rule":
        middles = release.middles
    else:
        middles = release.public.middles(len(release.columns))
    negative = {name for name, middle in zip(release.columns, middles, strict=True) if middle > 0.0}
    signed = []
    for row, width in zip(rows, widths, strict=False):
        signed.append(-width if row["parameter"] in negative else width)
    own = replace(release, theta=tuple(signed)).own_units
    if own is None:
        return [None] * number
    return [abs(value) for value in (own.constant, *own.slopes)]


#: Public people whose decisions make a table.
_PEOPLE = 4096
#: Parts of a range that they are divided into.
_PARTS = 3
#: Columns with rows of their own in that table.
_SHOWN = 4


@dataclass(frozen=True)
class PublicPeople:
    """Public people, spread evenly over the ranges and levels of a domain.

    Parameters
    ----------
    X
        Raw covariates (m, k), in the order of the columns of a release.
    strata
        By column, the number of the part (m,) that each of them is in, and the names of the parts.
    """

    X: Array
    strata: dict[str, tuple[NDArray[np.int64], list[str]]]

    @classmethod
    def of_release(cls, release: Any) -> PublicPeople | None:
        """Those of the domain of a release. No data: the domain alone. None without ranges."""
        domain = release.public
        if domain.ranges is None:
            return None
        rng = np.random.default_rng(0)
        book = domain.codebook or Codebook()
        X = np.zeros((_PEOPLE, len(release.columns)))
        strata: dict[str, tuple[NDArray[np.int64], list[str]]] = {}
        pairs = zip(release.columns, domain.range_pairs, strict=True)
        for place, (name, (low, high)) in enumerate(pairs):
            column, level = book.origin(name)
            if level is None:
                part = rng.integers(_PARTS, size=_PEOPLE)
                share = (part + rng.random(_PEOPLE)) / _PARTS
                X[:, place] = low * (1.0 - share) + high * share
                strata[column] = part, _names_of_parts(low, high, in_logs=column in book.log)
            elif column in book.covariate_levels:
                levels = book.covariate_levels[column]
                drawn = rng.integers(len(levels), size=_PEOPLE)
                names = [one or "missing" for one in levels]
                part, _ = strata.setdefault(column, (drawn, names))
                X[:, place] = part == levels.index(level)
        return cls(X, strata)


def _names_of_parts(low: float, high: float, *, in_logs: bool) -> list[str]:
    """Both ends of every part of a range in words, in the units of the column."""
    cuts = [low * (1.0 - k / _PARTS) + high * k / _PARTS for k in range(_PARTS + 1)]
    if in_logs:
        cuts = [math.exp(cut) for cut in cuts]
    return [f"{first:.4g} to {last:.4g}" for first, last in pairwise(cuts)]


def share_treated(release: Any) -> float | None:
    """Share of public people that a rule treats, from theta and the domain; None without ranges."""
    people = PublicPeople.of_release(release)
    if people is None:
        return None
    return float(np.mean(release.effects_at(people.X) > 0.0))


def percent_text(share: float) -> str:
    """A share in whole percent: 0 % and 100 % say none and all of them."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return f"{min(max(share, 0.01), 0.99):.0%}"


def decisions(release: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Shares of public people that the rule treats, by strata: the header of a table and its rows.

    The columns are by what moves the effect most, the rows by what does next. None without ranges.
    """
    people = PublicPeople.of_release(release)
    if people is None:
        return None
    strata = people.strata
    effect = release.effects_at(people.X)

    def moved(column: str) -> float:
        part, names = strata[column]
        return float(np.std([effect[part == k].mean() for k in range(len(names))]))

    first, *rest = sorted(strata, key=moved, reverse=True)
    first_part, first_names = strata[first]
    everybody = np.ones(_PEOPLE, dtype=np.bool_)
    cells = [everybody, *(first_part == k for k in range(len(first_names)))]

    def row(title: str, which: NDArray[np.bool_]) -> tuple[str, ...]:
        shares = [float(np.mean(effect[which & cell] > 0.0)) for cell in cells]
        return title, *map(percent_text, shares)

    rows = [row("all", everybody)]
    for column in rest[:_SHOWN]:
        part, names = strata[column]
        rows += [row(f"{column}: {name}", part == k) for k, name in enumerate(names)]
    header = ("treated", "all", *(f"{first}: {name}" for name in first_names))
    return header, rows


def coefficients(listed: Sequence[Mapping[str, Any]]) -> Block:
    """Every coefficient as it was released, with 95 % of its noise, and in its own units."""
    has_noise = any(row.get("noise_half_width") is not None for row in listed)
    has_own_units = any(row.get("own_units") is not None for row in listed)
    within = " ± 95 % of the noise" if has_noise else ""
    header = ["parameter", f"theta{within}"]
    if has_own_units:
        header.append(f"own units{within}")
    rows = []
    for row in listed:
        cells = [row["parameter"], _noisy(row["value"], row["noise_half_width"])]
        if has_own_units:
            own = _noisy(row["own_units"], row["own_noise"])
            cells.append(f"{own} {row['per']}".strip())
        rows.append(tuple(cells))
    return grid(*header, left=3, rows=rows)


def _noisy(value: float | None, noise: float | None) -> str:
    """A coefficient beside its noise; empty for none."""
    if value is None:
        return ""
    if noise is None:
        return f"{value:+.4g}"
    return f"{value:+.4g} ±{noise:.2g}"
