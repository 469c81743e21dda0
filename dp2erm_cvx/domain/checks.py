"""Declared ranges, bounds of coordinates and codebooks: refused where they make no domain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from dp2erm_cvx.codebook import SWITCH, Codebook, Named
from dp2erm_cvx.domain.clipping import LARGEST
from dp2erm_cvx.errors import DeclarationError, known_names, shown
from dp2erm_cvx.public import public_number


def norm_within(ranges: Mapping[str, Any] | Sequence[Any], codebook: Codebook | None) -> float:
    """What the norm of scaled covariates inside their ranges is at most: the root of their number.

    Covariates that a codebook makes of one column count once, see :meth:`~dp2erm_cvx.codebook.Codebook.norm`.
    """
    if codebook is None or not isinstance(ranges, Mapping):
        return math.sqrt(len(ranges))
    return codebook.norm(ranges)


def checked_codebook(codebook: object, ranges: object) -> Codebook | None:
    """The codebook, of plain values if need be. Raises DeclarationError where it is none of these ranges."""
    if codebook is None:
        return None
    if isinstance(codebook, Mapping):
        codebook = Codebook.from_dict(codebook)
    if not isinstance(codebook, Codebook):
        raise DeclarationError(f"codebook = {shown(codebook)}: must be a Codebook")
    if not isinstance(ranges, Mapping):
        return codebook
    for column in (*codebook.levels, *codebook.missing):
        own = codebook.covariates_of(column)
        if column in codebook.levels and column in ranges:
            raise DeclarationError(f"ranges[{column}]: has levels: take the ranges of Codebook.ranges")
        for name in own if column in codebook.levels else own[1:]:
            if name in ranges and ranges[name] != SWITCH:
                raise DeclarationError(f"ranges[{name}] = {shown(ranges[name])}: must be {SWITCH}")
    return codebook


def checked_widths(declared: Any) -> float | tuple[float, ...] | None:
    """The declared ``coordinate_bound``: one number, or one per covariate. Raises DeclarationError."""
    if declared is None:
        return None
    several = isinstance(declared, list | tuple | np.ndarray)
    entries = list(declared) if several else [declared]
    widths = tuple(public_number("coordinate_bound", one, above=0.0) for one in entries)
    if not widths or not all(1 / LARGEST <= width <= LARGEST for width in widths):
        raise DeclarationError(
            f"coordinate_bound = {shown(declared)}: must be from {1 / LARGEST:g} to {LARGEST:g}, one number "
            "or one per covariate"
        )
    return widths if several else widths[0]


def checked_ranges(
    ranges: Mapping[str, tuple[float, float]] | Sequence[tuple[float, float]] | None,
) -> Mapping[str, tuple[float, float]] | tuple[tuple[float, float], ...] | None:
    """The declared ``ranges`` as pairs of numbers. Raises DeclarationError where one is none."""
    if ranges is None:
        return None
    if isinstance(ranges, Sized) and not len(ranges):
        raise DeclarationError("ranges: declare at least one pair (low, high), or none at all")
    if isinstance(ranges, Mapping):
        return Named({str(name): _checked_pair(str(name), pair) for name, pair in ranges.items()})
    if isinstance(ranges, str) or not isinstance(ranges, Iterable):
        raise DeclarationError(f"ranges = {shown(ranges)}: must be pairs (low, high), one per covariate")
    return tuple(_checked_pair(str(index), pair) for index, pair in enumerate(ranges))


def checked_center(
    declared: Mapping[str, float] | Sequence[float] | None,
    ranges: Mapping[str, tuple[float, float]] | Sequence[tuple[float, float]] | None,
) -> Mapping[str, float] | tuple[float, ...] | None:
    """The declared typical values, each inside its range. Raises DeclarationError where one is not."""
    if declared is None:
        return None
    if ranges is None:
        raise DeclarationError("center: needs ranges, which typical values lie in")
    if isinstance(declared, str) or not isinstance(declared, Mapping | Sequence | np.ndarray):
        raise DeclarationError(f"center = {shown(declared)}: must be numbers, one per covariate or by name")
    if isinstance(declared, Mapping):
        if not isinstance(ranges, Mapping):
            raise DeclarationError("center: has names, and the ranges have none")
        for name in declared:
            if name not in ranges:
                raise DeclarationError(f"center: {known_names(str(name), list(ranges))}")
        named = {str(name): _typical(str(name), value, ranges[name]) for name, value in declared.items()}
        return Named(named)
    if len(declared) != len(ranges):
        raise DeclarationError(f"center: {len(declared)} are declared for {len(ranges)} covariates")
    pairs = ranges.values() if isinstance(ranges, Mapping) else ranges
    numbered = enumerate(zip(declared, pairs, strict=True))
    return tuple(_typical(str(index), value, pair) for index, (value, pair) in numbered)


def _typical(name: str, value: Any, pair: tuple[float, float]) -> float:
    number = public_number(f"center[{name}]", value)
    if not pair[0] <= number <= pair[1]:
        raise DeclarationError(
            f"center[{name}] = {number:g}: must be in its range, {pair[0]:g} to {pair[1]:g}"
        )
    return number


def _checked_pair(name: str, pair: Any) -> tuple[float, float]:
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise DeclarationError(f"ranges[{name}] = {shown(pair)}: must be a pair (low, high)") from None
    first = public_number(f"ranges[{name}] low", low)
    last = public_number(f"ranges[{name}] high", high)
    if not last / 4 - first / 4 > 0:
        raise DeclarationError(f"ranges[{name}] = ({shown(low)}, {shown(high)}): low must be below high")
    return first, last
