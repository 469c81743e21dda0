"""Whether a guarantee counts its floating-point error."""

from __future__ import annotations

import enum

from dp2erm_cvx.errors import DeclarationError

#: Share of epsilon that covers the arithmetic where none is declared.
NUMERICAL_SHARE = 0.005
#: Above this, exp(epsilon) is no longer small against the probability of noise beyond its bound.
LARGEST_COUNTED = 500.0


class Arithmetic(enum.StrEnum):
    """Whether a guarantee counts its floating-point error.

    ``COUNTED``: it does; needs the extra ``secure``. ``ASSUMED``: exact arithmetic is assumed, and the
    release says so. ``AUTO``: counted where the extra is installed and the programs state what they are
    certified to.
    """

    AUTO = "auto"
    COUNTED = "counted"
    ASSUMED = "assumed"


def arithmetic_by_name(value: Arithmetic | str) -> Arithmetic:
    """Raises DeclarationError naming the known ones."""
    try:
        return Arithmetic(value)
    except ValueError:
        known = ", ".join(kind.value for kind in Arithmetic)
        raise DeclarationError(f"arithmetic = {value!r}: must be one of {known}") from None
