"""Where the ends of a released range may lie: a public grid, inside of wide bounds where there are any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import LARGEST, Array
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.public import public_number

#: 0 and 24 numbers to a decade, from 0.001 to a million, of either sign.
_SIZES = 10.0 ** (np.arange(-72, 145) / 24.0)
_GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
#: Equal steps that wide bounds add to it.
_STEPS = 128


@dataclass(frozen=True)
class Within:
    """Wide public bounds of a column whose range is released: it is looked for between them alone.

    Raises DeclarationError unless low is below high, both at most 1e30 in size.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            end = public_number(name, getattr(self, name))
            if abs(end) > LARGEST:
                raise DeclarationError(
                    f"{name} = {shown(getattr(self, name))}: must be at most {LARGEST:g} in size"
                )
            object.__setattr__(self, name, end)
        if not self.low < self.high:
            raise DeclarationError(f"({self.low:g}, {self.high:g}): low must be below high")


#: What is public about a column: its range, wide bounds of it, or nothing.
Known = tuple[float, float] | Within | None


def checked_known(name: str, known: object) -> Known:
    """What is declared about a column. Raises DeclarationError naming it."""
    if known is None or isinstance(known, Within):
        return known
    try:
        ends = Within(*known)  # type: ignore[misc]
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error}") from None
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{name} = {shown(known)}: must be a pair (low, high), Within(low, high) or None"
        ) from None
    return ends.low, ends.high


def candidates(known: Within | None) -> Array:
    """The grid of a column, in increasing order."""
    if known is None:
        return _GRID
    inside = _GRID[(_GRID > known.low) & (_GRID < known.high)]
    grid = np.sort(np.concatenate([inside, np.linspace(known.low, known.high, _STEPS + 1)]))
    # of two that differ by a rounding, one
    apart = np.diff(grid, prepend=-np.inf) > 1e-9 * (known.high / _STEPS - known.low / _STEPS)
    return grid[apart]
