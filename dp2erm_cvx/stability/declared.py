"""Checks of the public declarations that stability bounds take."""

from __future__ import annotations

import operator

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.public import one_of, public_number


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


def declared_floor(n: int, arm_floor: int | None, at_least: int = 1) -> int:
    """Check a public floor on both arm sizes.

    Raises CalibrationError without one and DeclarationError outside ``[at_least, n/2]``.
    """
    if arm_floor is None:
        raise CalibrationError(
            "arm_floor is not declared: this program depends on the arm sizes, which are private; declare a "
            "public floor on both arm sizes"
        )
    floor = sample_size(arm_floor, name="arm_floor", at_least=at_least)
    if 2 * floor > n:
        raise DeclarationError(f"arm_floor = {arm_floor}: must be at most n/2 = {n / 2:g}")
    return floor


def treatment_may_flip(relation: Neighboring) -> bool:
    """Whether neighbors may differ in a treatment. Raises DeclarationError on an unknown relation."""
    return one_of("relation", relation, Neighboring) is Neighboring.REPLACE_ONE
