"""Report of the value of a rule, and rows of parameters on the raw scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.calibration import EXACT_ARITHMETIC
from dp2erm_cvx.calibration.numbers import ValueStatistic, noise_half_width
from dp2erm_cvx.display import grid
from dp2erm_cvx.domain import Array

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.rule import OwnUnits
    from dp2erm_cvx.steps import Value


def beside(rows: Sequence[Mapping[str, Any]], known: OwnUnits | None) -> list[Mapping[str, Any]]:
    """The rows of a data frame, those of parameters with their own units; None where they have none.

    Where theta has no constant, that of its own units comes last, unless it is 0.
    """
    if known is None:
        return [{**row, "own_units": None, "per": ""} for row in rows]
    numbers, found = known.numbers(), list(rows)
    if len(rows) < len(numbers):
        numbers = [*numbers[1:], *(numbers[:1] if known.constant else [])]
    if len(rows) < len(numbers):
        found.append({**rows[-1], "parameter": "constant", "value": None, "noise_half_width": None})
    return [{**row, "own_units": value, "per": per} for row, (value, per) in zip(found, numbers, strict=True)]


EXACT_NOISE = "exact discrete Laplace noise; rounding is counted in its scale"
PROVEN_WIDTH = "at least 95 % for the noise alone"
FIRST_ORDER_WIDTH = "about 95 % for the noise alone, to first order in it"


@dataclass(frozen=True)
class ValueRelease:
    """Value of the rule less that of treating all and of treating none, in units of the net outcome.

    ``released`` holds the 8 or 2 numbers that noise of ``scale`` was added to, ``epsilon``-differentially
    private together; everything else follows from them and from public constants. ``half_widths``, of
    ``against_all`` and ``against_none``, and ``width`` say how far the noise may have moved them: nothing
    about sampling error, bias or confounding. ``arithmetic`` says whether the noise is exact.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    against_all: float
    against_none: float
    half_widths: tuple[float, float]
    width: str
    statistic: ValueStatistic
    released: tuple[float, ...]
    scale: float
    epsilon: float
    arithmetic: str

    def compared(self) -> list[tuple[str, float, float]]:
        """Each comparison: its name, the difference, and the half width of its noise."""
        found = (self.against_all, self.against_none)
        return list(zip(("treating all", "treating none"), found, self.half_widths, strict=True))

    def blocks(self) -> Iterator[Block]:
        """Report, from what was released and public numbers alone."""
        table = grid("value of the rule against", "difference", "95 % of the noise")
        for other, found, width in self.compared():
            table.add_row(other, f"{found:+.4g}", f"±{width:.3g}")
        yield table
        yield "Estimated by the weights of the first stage; the range is that of the noise alone."

    def named(self) -> dict[str, Any]:
        """The differences by name, as the data frame of a release has them beside theta."""
        return {f"value against {other}": found for other, found, _ in self.compared()}


def contrasts_from_cells(cells: ArrayLike, outcome_bound: float, scale: float) -> tuple[Array, Array]:
    """Contrasts (2,) from the eight numbers, and the standard deviation (2,) that their noise gives them.

    ``(m_0 + m_1) (S_1/m_1 - S_0/m_0)`` on either side of the rule: means within cells, so that it does not
    matter what the arms weigh. Masses are taken to be at least their noise ``scale / (M'/2)``, means at most
    M'. The deviations are of first order in the noise.
    """
    numbers, half = np.asarray(cells, dtype=np.float64), 0.5 * outcome_bound
    # in units of M'
    outcomes = numbers[:4].reshape(2, 2) / outcome_bound
    masses = np.maximum(numbers[4:].reshape(2, 2), scale) / half
    means = np.clip(outcomes / masses, -1.0, 1.0)
    side = np.minimum(masses.sum(axis=1, keepdims=True), 1.0)
    gains = side[:, 0] * (means[:, 1] - means[:, 0])
    slope = side / masses
    by_mass = (means[:, 1:] - means[:, :1]) + slope * means * [[1.0, -1.0]]
    unit = math.sqrt(2.0) * (scale / outcome_bound)  # of an outcome sum; a mass has twice as much
    deviation = unit * np.sqrt(np.sum(slope**2 + 4.0 * by_mass**2, axis=1))
    return outcome_bound * gains * [-1.0, 1.0], outcome_bound * deviation


def state_value(step: Value, released: ArrayLike) -> ValueRelease:
    """Value of a rule from the ``released`` numbers (8,) or (2,), by public constants alone."""
    numbers, noise = np.asarray(released, dtype=np.float64), step.calibration
    if step.kind is ValueStatistic.CELLS:
        bound = step.universe.domain.outcome_bound
        contrasts, deviations = contrasts_from_cells(numbers, bound, noise.scale)
        widths, width = 2.0 * deviations, FIRST_ORDER_WIDTH
    else:
        contrasts, widths, width = numbers, np.full(2, noise_half_width(noise)), PROVEN_WIDTH
    return ValueRelease(
        against_all=float(contrasts[0]),
        against_none=float(contrasts[1]),
        half_widths=(float(widths[0]), float(widths[1])),
        width=width,
        statistic=step.kind,
        released=tuple(float(number) for number in numbers),
        scale=noise.scale,
        epsilon=noise.epsilon,
        arithmetic=EXACT_NOISE if step.counted else EXACT_ARITHMETIC,
    )
