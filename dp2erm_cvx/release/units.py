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
        effect: Array = self.constant + np.sum(
            np.asarray(X, dtype=np.float64) * self.slopes, axis=1
        )
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
    """A linear rule with a ``constant`` and ``slopes`` on the scaled covariates of these numbers.

    ``norm`` is what it shrinks those to. None where no ranges scale them, and where no double holds
    the result: ranges can be as short, or as far off, as they like.
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
        return f"where {column} is {level or 'missing'}"
    unit = None if book is None or column != name else book.units.get(column)
    return f"per {unit}" if unit else "per unit"


def beside(rows: Sequence[Mapping[str, Any]], release: Any) -> list[Mapping[str, Any]]:
    """The rows of a data frame, those of parameters with their own units; None where they have
    none.

    Where theta has no constant, that of its own units comes last, unless it is 0. Noise of a
    constant in own units adds up that of all it is made of.
    """
    known, table = release.own_units, list(rows)
    if known is None:
        return [{**row, "own_units": None, "own_noise": None, "per": ""} for row in rows]
    values, per = (known.constant, *known.slopes), ("", *known.per)
    numbers = list(zip(values, _own_noise(rows, release, len(values)), per, strict=True))
    if len(table) < len(numbers):
        numbers = numbers[1:] + (numbers[:1] if known.constant else [])
    if len(table) < len(numbers):
        table.append({**rows[-1], "parameter": "constant", "value": None, "noise_half_width": None})
    return [
        {**row, "own_units": value, "own_noise": noise, "per": unit}
        for row, (value, noise, unit) in zip(table, numbers, strict=True)
    ]


def _own_noise(
    rows: Sequence[Mapping[str, Any]], release: Any, number: int
) -> Sequence[float | None]:
    """Half widths of the noise in own units, the constant first: theta with signs that all add
    up.
    """
    middles = (
        release.middles if release.goal == "rule" else release.public.middles(len(release.columns))
    )
    below = {name for name, middle in zip(release.columns, middles, strict=True) if middle > 0.0}
    widths = [row["noise_half_width"] for row in rows[: len(release.theta)]]
    if None in widths:
        return [None] * number
    signed = (
        -one if row["parameter"] in below else one for row, one in zip(rows, widths, strict=False)
    )
    own = replace(release, theta=tuple(signed)).own_units
    return [None] * number if own is None else [abs(one) for one in (own.constant, *own.slopes)]


#: Public people whose decisions make a table, parts of a range, and columns with rows of their own.
_PEOPLE, _PARTS, _SHOWN = 4096, 3, 4


@dataclass(frozen=True)
class PublicPeople:
    """Public people, spread evenly over the ranges and levels of a domain: thirds of a range, and
    levels.

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
        rng, book = np.random.default_rng(0), domain.codebook or Codebook()
        X = np.zeros((_PEOPLE, len(release.columns)))
        strata = dict[str, tuple[NDArray[np.int64], list[str]]]()
        for place, (name, (low, high)) in enumerate(
            zip(release.columns, domain.range_pairs, strict=True)
        ):
            column, level = book.origin(name)
            if level is None:
                part = rng.integers(_PARTS, size=_PEOPLE)
                share = (part + rng.random(_PEOPLE)) / _PARTS
                X[:, place] = low * (1.0 - share) + high * share
                cuts = [low * (1.0 - k / _PARTS) + high * k / _PARTS for k in range(_PARTS + 1)]
                if column in book.log:
                    cuts = [math.exp(one) for one in cuts]
                strata[column] = (
                    part,
                    [f"{one:.4g} to {other:.4g}" for one, other in pairwise(cuts)],
                )
            elif column in book.covariate_levels:
                levels = book.covariate_levels[column]
                drawn = rng.integers(len(levels), size=_PEOPLE)
                part, _ = strata.setdefault(column, (drawn, [one or "missing" for one in levels]))
                X[:, place] = part == levels.index(level)
        return cls(X, strata)


def share_treated(release: Any) -> float | None:
    """Share of public people that a rule treats, from theta and the domain alone; None without
    ranges.
    """
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
    strata, effect = people.strata, release.effects_at(people.X)

    def moved(column: str) -> float:
        part, texts = strata[column]
        return float(np.std([effect[part == k].mean() for k in range(len(texts))]))

    first, *rest = sorted(strata, key=moved, reverse=True)
    part, texts = strata[first]
    inside = [np.ones(_PEOPLE, dtype=np.bool_), *(part == k for k in range(len(texts)))]

    def row(title: str, which: NDArray[np.bool_]) -> tuple[str, ...]:
        shares = (float(np.mean(effect[which & own] > 0.0)) for own in inside)
        return title, *map(percent_text, shares)

    rows = [row("all", inside[0])]
    for column in rest[:_SHOWN]:
        part, names = strata[column]
        rows += [row(f"{column}: {name}", part == k) for k, name in enumerate(names)]
    return ("treated", "all", *(f"{first}: {one}" for one in texts)), rows


def coefficients(listed: Sequence[Mapping[str, Any]]) -> Block:
    """Every coefficient as it was released, with 95 % of its noise, and in its own units."""
    noisy, own = (
        any(row.get(name) is not None for row in listed)
        for name in ("noise_half_width", "own_units")
    )
    within = " ± 95 % of the noise" if noisy else ""
    rows = [
        (row["parameter"], _noisy(row["value"], row["noise_half_width"]))
        + ((f"{_noisy(row['own_units'], row['own_noise'])} {row['per']}".strip(),) if own else ())
        for row in listed
    ]
    return grid(
        "parameter", f"theta{within}", *([f"own units{within}"] if own else []), left=3, rows=rows
    )


def _noisy(value: float | None, noise: float | None) -> str:
    """A coefficient beside its noise."""
    return "" if value is None else f"{value:+.4g}" + ("" if noise is None else f" ±{noise:.2g}")
