"""The plan of a private average effect, and how far its nuisances are off by noise and shrinkage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfcx

from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan.noise_range import reference_spread
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.steps import CellSumsPlan, CenterPlan, MeanScorePlan, PropensityPlan, Rows, TreatmentRatePlan
from dp2erm_cvx.universe import Universe

if TYPE_CHECKING:
    from dp2erm_cvx.plan.effect import EffectStudy

#: Above this ratio the noise of the nuisances is not negligible against the error of the score.
NEGLIGIBLE = 3.0
#: e (1 - e), and the spread of e where it is not constant, of a propensity that nothing is known about.
_VARIANCE, _SPREAD = 0.2, 0.2
#: How much more a product of shrinkages counts: at the limit the bias is a quarter of the standard error.
_DIRECTED = 25.0


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
        """``4 (r_m r_e + 25 b_m b_e) sqrt(n) / s``: errors of both nuisances, multiplied.

        b are root mean squares of what gamma shrinks away of m and e, r those of shrinkage and noise
        together; s is twice the public guess ``residual_scale``. Noise has no direction; shrinkage is toward
        the raw comparison in both, and counts more. Predicted from the calibrations for covariates of a third
        of their range, or of two thirds of their norm bound; in cells for records that fill all of them
        alike, before any are pooled. A heuristic, which sees no misspecification.
        """
        universe, scale = self.study.universe, self.study.scale
        (noise_m, bias_m), (noise_e, bias_e) = self._center_error(), self._propensity_error()
        product = math.hypot(noise_m, bias_m) * math.hypot(noise_e, bias_e) + _DIRECTED * bias_m * bias_e
        return 4.0 * product * math.sqrt(universe.n_samples) / (2.0 * scale)

    @property
    def negligible(self) -> bool:
        """Whether the noise of the nuisances is negligible, by the ratio."""
        return self.nuisance_ratio <= NEGLIGIBLE

    def _center_error(self) -> tuple[float, float]:
        """Root mean squares of what noise and shrinkage do to m."""
        # the regression itself is guessed to spread as far as its residuals
        scale, variance, bias = self.study.scale, 0.0, self.study.scale**2
        cells = self.step("cells")
        if isinstance(cells, CellSumsPlan):
            return cells.errors(scale, _SPREAD)[0]
        for step in self.steps:
            if isinstance(step, CenterPlan):
                assert isinstance(step.calibration, Calibration)
                # the mean curvature of the saturating loss at normal residuals, or that of squared loss
                settings = self.study.settings
                bend = float(erfcx(scale / (math.sqrt(2.0) * settings.slope)))
                if settings.squared_radius is not None:
                    bend = 2.0
                moments = reference_moments(self.study, step.map.rows, step.map.scale)
                noise, kept = _error(step.calibration, bend, moments, self.study.universe)
                # a refit shrinks what the first fit has left, its noise included
                variance, bias = variance * kept + noise, bias * kept
        return math.sqrt(variance), math.sqrt(bias)

    def _propensity_error(self) -> tuple[float, float]:
        cells, step = self.step("cells"), self.step("propensity")
        if isinstance(cells, CellSumsPlan) and self.study.settings.known is None:
            return cells.errors(self.study.scale, _SPREAD)[1]
        if step is None:
            return 0.0, 0.0
        if isinstance(step, TreatmentRatePlan):
            return 0.0, _SPREAD
        assert isinstance(step, PropensityPlan)
        assert isinstance(step.calibration, Calibration)
        moments = reference_moments(self.study, Rows.POOLED)
        noise, kept = _error(step.calibration, _VARIANCE, moments, self.study.universe)
        return _VARIANCE * math.sqrt(noise), _SPREAD * math.sqrt(kept)


def reference_moments(study: EffectStudy, rows: Rows, scale: float = 1.0) -> Array:
    """Second moments (p,) of the columns of ``rows`` for covariates well inside the domain, balanced arms.

    The covariates are multiplied by ``scale``.
    """
    covariates = np.full(study.universe.n_features, reference_spread(study.universe) ** 2)
    # two records, one in either arm, whose rows have these squares on average
    x = np.tile(scale * np.sqrt(covariates), (2, 1))
    moments: Array = np.mean(rows.of(x, np.array([0.0, 1.0])) ** 2, axis=0)
    return moments


def _error(calibration: Calibration, bend: float, moments: Array, universe: Universe) -> tuple[float, float]:
    """Mean square of ``<x, noise>`` at the minimizer, and the share of a signal that gamma shrinks away."""
    curvature = universe.mass * bend * moments + calibration.gamma
    noise = float(np.sum(moments * calibration.variances / (universe.n_samples * curvature) ** 2))
    # intercepts are hardly shrunk, and slopes of the effect say little of its mean
    slope = float(np.sort(curvature)[len(curvature) // 2])
    return noise, (calibration.gamma / slope) ** 2
