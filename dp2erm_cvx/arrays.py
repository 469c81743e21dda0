"""Arrays of doubles, and how far what is computed with them may be off."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: An array of double precision.
Array = NDArray[np.float64]

#: Unit roundoff of a double: half the distance of 1 to the next one.
UNIT = 2.0**-53

#: Factors beyond the rounding of a few operations: an upper bound times the first stays one, a
#: lower bound times the second, and parts of a budget times the second add up to no more than it.
ROUND_UP = 1.0 + 1e-12
ROUND_DOWN = 1.0 - 1e-12
#: The same for bounds that come from sums over many records, or from norms, eigenvalues and long
#: formulas. They are beyond about a million roundings of numbers that are not negative. Where two
#: such numbers are compared, a smaller difference is none.
ROUND_UP_SUMS = 1.0 + 1e-9
ROUND_DOWN_SUMS = 1.0 - 1e-9

#: More than what a norm or a square loses where squares underflow: for every entry of a vector, or
#: for all of them at any length here.
SQUARES_UNDERFLOW = 1e-150

#: Error of weights in closed form, and of the last exponentials of any others, relative to n.
CLOSED_FORM = 1e-12


def largest_bound(*bounds: float) -> float:
    """The largest of upper bounds; infinite where one of them is no number.

    The built-in ``max`` passes over what is no number, since every comparison with it is false.

    Parameters
    ----------
    bounds
        The bounds, at least one.
    """
    largest = float(np.max(bounds))
    return math.inf if math.isnan(largest) else largest


def dot_error(d: int) -> float:
    """Relative error of an inner product of d terms, relative to the sum of magnitudes."""
    return (d + 1) * UNIT / (1 - (d + 1) * UNIT)
