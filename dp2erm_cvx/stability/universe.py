"""Checks of what a bound says about its universe of datasets: arm floor and neighboring relation."""

from __future__ import annotations

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability.declared import sample_size


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
    try:
        return Neighboring(relation) is Neighboring.REPLACE_ONE
    except ValueError:
        names = ", ".join(known.value for known in Neighboring)
        raise DeclarationError(f"relation = {relation!r}: must be one of {names}") from None
