"""A grid of declarations: what each would cost in accuracy, before any budget is spent."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import Noise, OutputCalibration
from dp2erm_cvx.compare.noise_range import noise_range
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.estimators import TOLERANCE
from dp2erm_cvx.plan import Arithmetic, Plan, Study, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import SecondStage, WeightedLeastSquares
from dp2erm_cvx.universe import Universe

AUTOMATIC = "auto"


@dataclass(frozen=True)
class GridRow:
    """A planned release: its settings, nan where the program lacks one, and its results.

    ``refusal`` says why nothing covers it; the results are then None. ``V`` is the bound on the coupled
    variation, ``scale`` the noise scale, ``noise`` the expected size of the noise in the averaged objective
    (``E||b||/n``) or, for output perturbation, in the release itself. ``spread`` is the half width of the
    2.5-97.5 % range of the second stage's noise, in units of theta: of the effect where the program has one
    for everybody, else of the median coordinate. ``shrinkage`` is the mean share by which gamma pulls theta
    toward 0. ``automatic`` names the theorem that calibration = "auto" would follow.
    """

    n_samples: int
    ridge: float
    radius: float
    trim: float
    epsilon: float
    delta: float
    V: float | None = None
    theorem: str | None = None
    scale: float | None = None
    gamma: float | None = None
    noise: float | None = None
    predicted_error: float | None = None
    refusal: str | None = None
    spread: float | None = None
    shrinkage: float | None = None
    automatic: str | None = None


def grid_size(*axes: Sequence[object]) -> int:
    """Number of rows."""
    return math.prod(len(axis) for axis in axes)


def plan_grid(
    program: str,
    settings: Mapping[str, Any],
    second: SecondStage,
    domain: Domain,
    n_features: int,
    *,
    n_samples: Sequence[int],
    grid: Mapping[str, Sequence[float]],
    epsilon: Sequence[float],
    delta: float = 0.0,
    method: str = AUTOMATIC,
    noise: Noise | str = Noise.GAMMA,
) -> Iterator[GridRow]:
    """Rows over n, every setting of ``grid`` (ridge, radius, trim) and epsilon, the last innermost.

    A private first stage is paid from the same epsilon; its noise is not part of the prediction.
    Raises DeclarationError at the first row whose setting is not valid in itself.
    """
    for n, values, level in itertools.product(n_samples, itertools.product(*grid.values()), epsilon):
        chosen = dict(zip(grid, values, strict=True))
        first = registry.build(registry.first_stages(), program, **settings, **chosen).resolve(domain)
        shown: dict[str, float] = {
            name: float(getattr(first, name, math.nan)) for name in ("ridge", "radius", "trim")
        }
        row = GridRow(n, shown["ridge"], shown["radius"], shown["trim"], level, delta)
        study = Study(
            first,
            second,
            Universe(domain, n, n_features),
            Budget(level, delta),
            calibration=AUTOMATIC,
            noise=noise,
            tolerance=TOLERANCE,
            arithmetic=Arithmetic.AUTO,
        )
        automatic = _tried(study)
        made = automatic
        if method != AUTOMATIC:
            made = _tried(dataclasses.replace(study, calibration=method))
        if isinstance(automatic, Plan):
            row = dataclasses.replace(row, automatic=automatic.theta.theorem)
        if isinstance(made, str):
            yield dataclasses.replace(row, refusal=made)
            continue
        spread, shrinkage = _spread(made)
        yield dataclasses.replace(_planned(row, made), spread=spread, shrinkage=shrinkage)


def _tried(study: Study) -> Plan | str:
    try:
        return make_plan(study)
    except CalibrationError as error:
        return str(error)


def _planned(row: GridRow, made: Plan) -> GridRow:
    theta = made.theta
    calibration, output = theta.calibration, isinstance(theta.calibration, OutputCalibration)
    return dataclasses.replace(
        row,
        V=made.bound.V,
        theorem=calibration.theorem,
        scale=calibration.scale,
        gamma=0.0 if isinstance(calibration, OutputCalibration) else calibration.gamma,
        noise=calibration.expected_noise / (1 if output else row.n_samples),
        predicted_error=theta.predicted_error,
    )


def _spread(made: Plan) -> tuple[float | None, float | None]:
    second, universe = made.theta.second, made.study.universe
    if not isinstance(second, WeightedLeastSquares):
        return None, None
    moved = noise_range(
        second,
        universe.domain,
        made.theta.calibration,
        n_samples=universe.n_samples,
        n_features=universe.n_features,
        grid=made.theta.grid,
    )
    return float(np.median(moved.half_width)) if moved.effect is None else moved.effect, moved.shrinkage
