"""The draws of a run: of a linear term, and on the grid that covers the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.calibration import Calibration, GridNoise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.mechanism import draw, draw_within, perturb_on_grid
from dp2erm_cvx.steps.precision import Precision


@dataclass(frozen=True, repr=False)
class Sample:
    """A drawn linear term (p,), private, and a bound on its distance to an exact draw."""

    noise: Array
    distance: float


def sample(calibration: Calibration, precision: Precision | None, seed: int | str | None) -> Sample:
    """Draw the linear term, within the sampling error of the ``precision`` or as if arithmetic were exact."""
    if precision is None:
        return Sample(draw(calibration, seed=seed), 0.0)
    found = draw_within(calibration, precision.sampling_error, seed=seed)
    return Sample(found.value, found.distance)


def on_grid(values: Array, noise: GridNoise, seed: int | str | None) -> Array:
    """``values`` (p,) on the grid with discrete Laplace noise; what is no finite number counts as 0.

    A solver that failed may leave anything; its release is conditional, and still has to be made.
    """
    finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return perturb_on_grid(finite, noise, seed=seed)
