"""Whether a guarantee counts its floating-point error."""

from __future__ import annotations

import enum

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
