"""The plan of a private average effect, and how far its nuisances are off by noise and shrinkage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfcx

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.steps import CellsPlan, CenterPlan, MeanScorePlan, PropensityPlan, Rows, TreatmentRatePlan

if TYPE_CHECKING:
    from dp2erm_cvx.plan.effect import EffectStudy

#: Above this ratio the noise of the nuisances is not negligible against the error of the score.
NEGLIGIBLE = 5.0
#: e (1 - e), and the spread of e where it is not constant, of a propensity that nothing is known about.
_VARIANCE, _SPREAD = 0.2, 0.2


@dataclass(frozen=True)
class EffectPlan(Plan):
    """The planned steps of an effect ``study``: the score is the last of them."""

    study: EffectStudy

    @property
    def score(self) -> MeanScorePlan:
        """The step that releases the effect."""
        found = self.steps[-1]
        assert isinstance(found, MeanScorePlan)
        return found

    @property
    def nuisance_ratio(self) -> float:
        """``4 r_m r_e sqrt(n) / s``: the error of both nuisances, multiplied, against that of the score.

        r_m and r_e are root mean squares of what noise and shrinkage do to m and e, predicted from the
        calibrations and the public guess ``residual_scale``, for covariates that spread evenly over the
        domain, in cells before any are pooled; s is twice that guess. A heuristic: it sees no
        misspecification.
        """
        universe, scale = self.study.universe, self.study.scale
        product = self._center_error() * self._propensity_error()
        return 4.0 * product * math.sqrt(universe.n_samples) / (2.0 * scale)

    @property
    def negligible(self) -> bool:
        """Whether the noise of the nuisances is negligible, by the ratio."""
        return self.nuisance_ratio <= NEGLIGIBLE

    def _center_error(self) -> float:
        # the regression itself is guessed to spread as far as its residuals
        scale, variance, bias = self.study.scale, 0.0, self.study.scale**2
        for step in self.steps:
            if isinstance(step, CellsPlan):
                bias = step.mean_squares(scale, _SPREAD)[0]
            if isinstance(step, CenterPlan):
                assert isinstance(step.calibration, Calibration)
                # the mean curvature of the saturating loss at normal residuals
                bend = float(erfcx(scale / (math.sqrt(2.0) * self.study.settings.slope)))
                moments = reference_moments(self.study, step.map.rows)
                noise, kept = _error(step.calibration, bend, moments, self.study.universe.n_samples)
                # a refit shrinks what the first fit has left, its noise included
                variance, bias = variance * kept + noise, bias * kept
        return math.sqrt(variance + bias)

    def _propensity_error(self) -> float:
        cells, step = self.step("cells"), self.step("propensity")
        if isinstance(cells, CellsPlan) and self.study.settings.known is None:
            return math.sqrt(cells.mean_squares(self.study.scale, _SPREAD)[1])
        if step is None:
            return 0.0
        if isinstance(step, TreatmentRatePlan):
            return _SPREAD
        assert isinstance(step, PropensityPlan)
        assert isinstance(step.calibration, Calibration)
        moments = reference_moments(self.study, Rows.POOLED)
        noise, kept = _error(step.calibration, _VARIANCE, moments, self.study.universe.n_samples)
        return math.sqrt(_VARIANCE**2 * noise + _SPREAD**2 * kept)


def reference_moments(study: EffectStudy, rows: Rows) -> Array:
    """Second moments (p,) of the columns of ``rows`` for covariates that spread evenly and balanced arms."""
    domain, k = study.universe.domain, study.universe.n_features
    covariates = np.full(k, min(1.0 / 3.0, domain.features_bound**2 / k))
    arms = np.full(2, 0.5)
    if rows is Rows.COMMON:
        return np.concatenate([arms, covariates])
    if rows is Rows.MIX:
        return np.concatenate([arms, covariates, covariates / 4.0])
    own = np.concatenate([[1.0], covariates])
    if rows is Rows.ARMS:
        return np.tile(own, 2) / 2.0
    return own


def _error(calibration: Calibration, bend: float, moments: Array, n_samples: int) -> tuple[float, float]:
    """Mean square of ``<x, noise>`` at the minimizer, and the share of a signal that gamma shrinks away."""
    p = calibration.n_parameters
    variance = calibration.scale**2 * ((p + 1) if calibration.noise is Noise.GAMMA else 1)
    curvature = bend * moments + calibration.gamma
    noise = float(np.sum(moments * variance / (n_samples * curvature) ** 2))
    return noise, float(np.mean((calibration.gamma / curvature) ** 2))
