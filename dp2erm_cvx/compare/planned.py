"""What a release would cost in accuracy, predicted from public quantities alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.calibration import OutputCalibration
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.plan import Study, TwoStagePlan, make_plan
from dp2erm_cvx.plan.predict import kept_imbalance, planned_range
from dp2erm_cvx.program import WeightedLeastSquares

AUTOMATIC = "auto"


@dataclass(frozen=True)
class GridRow:
    """A planned release: its settings, nan where the program lacks one, and its results.

    ``refusal`` says why nothing covers it; the results are then None. ``V`` is the bound on the coupled
    variation, ``scale`` the noise scale, ``noise`` the expected size of the noise in the averaged objective
    (``E||b||/n``) or, for output perturbation, in the release itself. ``spread`` and ``shrinkage`` are those
    of :class:`~dp2erm_cvx.plan.predict.NoiseRange`, ``kept`` the share of an imbalance that the weights
    are predicted to leave. ``automatic`` names the theorem that calibration = "auto" would follow.
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
    kept: float | None = None
    automatic: str | None = None


def plan_row(study: Study) -> GridRow:
    """What a study would cost, as declared and as calibration = "auto" would have it.

    A private first stage is paid from the same epsilon; its noise is not part of the prediction.
    """
    settings = {name: float(getattr(study.first, name, math.nan)) for name in ("ridge", "radius", "trim")}
    row = GridRow(
        n_samples=study.universe.n_samples,
        epsilon=study.budget.epsilon,
        delta=study.budget.delta,
        **settings,  # type: ignore[arg-type]
    )
    made = automatic = _tried(replace(study, calibration=AUTOMATIC, split=None))
    if study.calibration != AUTOMATIC:
        made = _tried(study)
    if isinstance(automatic, TwoStagePlan):
        row = replace(row, automatic=automatic.theta.theorem)
    if isinstance(made, str):
        return replace(row, refusal=made)
    spread, shrinkage = _spread(made)
    kept = kept_imbalance(made)
    return replace(_planned(row, made), spread=spread, shrinkage=shrinkage, kept=kept)


def _tried(study: Study) -> TwoStagePlan | str:
    try:
        return make_plan(study)
    except CalibrationError as error:
        return str(error)


def _planned(row: GridRow, made: TwoStagePlan) -> GridRow:
    theta = made.theta
    calibration, output = theta.calibration, isinstance(theta.calibration, OutputCalibration)
    return replace(
        row,
        V=made.bound.V,
        theorem=calibration.theorem,
        scale=calibration.scale,
        gamma=getattr(calibration, "gamma", 0.0),
        noise=calibration.expected_noise / (1 if output else row.n_samples),
        predicted_error=theta.predicted_error,
    )


def _spread(made: TwoStagePlan) -> tuple[float | None, float | None]:
    if not isinstance(made.study.second, WeightedLeastSquares):
        return None, None
    moved = planned_range(made)
    return float(np.median(moved.half_width)) if moved.effect is None else moved.effect, moved.shrinkage
