"""The floating-point range in which a calibration is returned."""

from __future__ import annotations

from dp2erm_cvx.errors import CalibrationError

# squares of noise vectors have to stay finite as well
_SMALLEST, _LARGEST = 1e-140, 1e140


def in_range(name: str, value: float, setting: str) -> float:
    """Return ``value``; raises CalibrationError, naming the ``setting``, where floating point gives out."""
    if not _SMALLEST < value < _LARGEST:
        raise CalibrationError(
            f"{name} = {value:g} is out of floating-point range at {setting}: rescale the outcome or change "
            "the budget"
        )
    return value
