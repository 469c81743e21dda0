"""Exact sums of the decimals that budgets are written as."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from dp2erm_cvx.privacy import Budget


def decimal(number: float) -> Fraction:
    """The decimal that the number is written as, so that ten times 0.1 are 1."""
    return Fraction(repr(number))


def sums(budgets: Iterable[Budget]) -> tuple[Fraction, Fraction]:
    """The sum of the epsilons and that of the deltas."""
    listed = list(budgets)
    return (
        sum((decimal(one.epsilon) for one in listed), Fraction(0)),
        sum((decimal(one.delta) for one in listed), Fraction(0)),
    )


def up(number: Fraction) -> float:
    """The nearest float that is written as no less."""
    near = float(number)
    return near if decimal(near) >= number else math.nextafter(near, math.inf)


def down(number: Fraction) -> float:
    """The nearest float that is written as no more."""
    near = float(number)
    return near if decimal(near) <= number else math.nextafter(near, 0.0)
