"""Levels that public cuts make of the range of a number, and of two columns that are crossed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.checks import list_of, one_line, public_number
from dp2erm_cvx.errors import DeclarationError, brief

#: Most levels that two crossed columns may make: each is a covariate.
MOST_CROSSED = 200


def declared_cuts(name: str, declared: object) -> tuple[float, ...]:
    """The public points at which a range is cut, checked.

    Parameters
    ----------
    name
        What messages call them.
    declared
        A list of finite numbers that increase, at least one.

    Raises
    ------
    DeclarationError
        For anything else.
    """
    cuts = list_of(name, declared, public_number, "[30, 50]")
    if not cuts:
        raise DeclarationError(f"{name} = []: one bin is no choice: name at least one cut")
    for low, high in pairwise(cuts):
        if not low < high:
            order = f"{number_in_words(high)} stands behind {number_in_words(low)}"
            raise DeclarationError(f"{name}: {order}: cuts must increase")
    return cuts


def declared_pair(name: str, declared: object) -> tuple[str, str]:
    """The names of two different columns to cross. Raises DeclarationError for anything else."""
    columns = list_of(name, declared, one_line, '["age", "stage"]')
    if len(columns) != 2:
        raise DeclarationError(
            f"{name} = {brief(list(columns))}: two columns are crossed, no other number"
        )
    first, second = columns
    if first == second:
        raise DeclarationError(f"{name}: {brief(first)} is crossed with itself: name two columns")
    return first, second


def bin_levels(cuts: Sequence[float]) -> tuple[str, ...]:
    """Names of the bins between cuts, in words: a cut belongs to the bin above it."""
    texts = [number_in_words(cut) for cut in cuts]
    inner = [f"{low} to below {high}" for low, high in pairwise(texts)]
    return (f"below {texts[0]}", *inner, f"{texts[-1]} or more")


def number_in_words(number: float) -> str:
    """A number as a name holds it, such that another number has another name."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def bin_places(
    cuts: Sequence[float], numbers: NDArray[np.float64], missing: int
) -> NDArray[np.int64]:
    """The place (n,) of the bin of every number.

    Parameters
    ----------
    cuts
        The points that bins lie between, in increasing order.
    numbers
        (n,), nan where one is missing.
    missing
        The place of a missing number.
    """
    places = np.searchsorted(np.array(cuts), numbers, side="right")
    return np.where(np.isnan(numbers), missing, places)


def middle_bin(cuts: Sequence[float]) -> int:
    """The place of the bin that holds the middle between the first and the last cut."""
    middle = cuts[0] / 2 + cuts[-1] / 2
    return sum(cut <= middle for cut in cuts)


def refuse_cuts_outside(name: str, cuts: Sequence[float], declared: object) -> None:
    """Raise DeclarationError unless every cut lies inside of the declared range of a column."""
    if not isinstance(declared, tuple | list) or len(declared) != 2:
        raise DeclarationError(f"bins: {brief(name)}: declare its range (low, high), which is cut")
    low, high = (public_number(f"ranges[{name}]", end) for end in declared)
    for cut in cuts:
        if not low < cut < high:
            raise DeclarationError(
                f"bins: {brief(name)}: the cut {number_in_words(cut)} is not inside of its range "
                f"({number_in_words(low)}, {number_in_words(high)})"
            )


def crossed_name(pair: tuple[str, str]) -> str:
    """Name of two crossed columns, which the covariates of their levels begin with."""
    first, second = pair
    return f"{first} x {second}"


def crossed_levels(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Names of the levels of two crossed columns: those of the second within each of the first."""
    pairs = product(first, second)
    return tuple(f"{one or 'missing'}, {other or 'missing'}" for one, other in pairs)


def crossed_places(
    first: NDArray[np.int64], second: NDArray[np.int64], sizes: tuple[int, int]
) -> NDArray[np.int64]:
    """The place (n,) among crossed levels; behind all of them where a column has none.

    Parameters
    ----------
    first, second
        Places (n,) of the levels of both columns, the number of levels where a record has none.
    sizes
        Numbers of levels of both columns.
    """
    n_first, n_second = sizes
    has_no_level = (first == n_first) | (second == n_second)
    return np.where(has_no_level, n_first * n_second, first * n_second + second)
