"""Budgets as the decimals that they are written as, and Renyi curves as JSON text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from fractions import Fraction

from dp2erm_cvx.privacy import Budget, RenyiCurve


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


def encode(curve: RenyiCurve | None) -> str | None:
    """Numbers as they are written, null for an infinite divergence."""
    if curve is None:
        return None
    bounds = [None if math.isinf(bound) else bound for bound in curve.divergences]
    return json.dumps({"orders": curve.orders, "divergences": bounds}, allow_nan=False)


def decode(text: object) -> RenyiCurve | None:
    """The curve that was encoded. Raises ValueError for anything else."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("a curve is kept as text")
    try:
        plain = json.loads(text)
    except RecursionError:
        raise ValueError("a curve is nested too deeply") from None
    if not isinstance(plain, dict) or set(plain) != {"orders", "divergences"}:
        raise ValueError("a curve is kept as its orders and divergences")
    if not all(isinstance(values, list) for values in plain.values()):
        raise ValueError("orders and divergences are kept as lists")
    bounds = tuple(math.inf if bound is None else bound for bound in plain["divergences"])
    return RenyiCurve(tuple(plain["orders"]), bounds)
