"""Checks of the public numbers that every stability bound takes."""

from __future__ import annotations

import operator

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.public import public_number


def sample_size(n: int, *, name: str = "n", at_least: int = 2) -> int:
    """Check a whole number of records; raises DeclarationError below ``at_least``."""
    try:
        whole = operator.index(n)
    except TypeError:
        whole = -1
    if isinstance(n, bool) or whole < at_least:
        raise DeclarationError(f"{name} = {n!r}: must be a whole number of at least {at_least}")
    return whole


def positive_ridge(ridge: float) -> float:
    """Check a ridge; raises CalibrationError at 0, where these bounds do not exist."""
    number = public_number("ridge", ridge, at_least=0.0)
    if number == 0.0:
        raise CalibrationError(
            "ridge = 0: without strong convexity one record can move the weights arbitrarily; "
            "declare a positive ridge"
        )
    return number
