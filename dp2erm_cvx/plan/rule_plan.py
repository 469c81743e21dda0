"""The plan of a private rule, and how many of its decisions noise may have flipped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx

from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.domain import Array, clip_norm
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.steps import MeanSquarePlan, RuleFitPlan, RuleValuePlan

if TYPE_CHECKING:
    from dp2erm_cvx.plan.rule import RuleStudy

#: Public guess of what factors below 1 add up to, in n: their sum is private.
MASS = 0.6
#: Records of a public covariate spread, and draws of the noise, that predictions are averaged over.
_POINTS, _DRAWS = 512, 512


@dataclass(frozen=True)
class RulePlan(Plan):
    """The planned steps of a rule's ``study``: the rule, perhaps nuisances before it and its value after."""

    study: RuleStudy

    @property
    def rule(self) -> RuleFitPlan:
        """The step that releases the rule."""
        return next(step for step in self.steps if isinstance(step, RuleFitPlan))

    @property
    def bound(self) -> StabilityBound:
        """That of the factors of the rule."""
        return self.rule.bound

    @property
    def value(self) -> RuleValuePlan | None:
        """The step that releases what the rule is worth; None where no share was declared for it."""
        found = self.step(RuleValuePlan.name)
        return found if isinstance(found, RuleValuePlan) else None

    @property
    def mass(self) -> float:
        """The public guess of the sum of the factors, over n."""
        return (MASS if self.rule.map.factored else 1.0) * self.study.universe.mass

    @property
    def noise_effect(self) -> float:
        """Root mean square of what noise does to the effect of one record, in units of the outcome.

        Predicted for covariates of a public spread, residuals of the public guess ``outcome_scale``, and the
        public guess ``mass``: no bound. What noise does to a center or a propensity is not in it.
        """
        return self.noise_at(self.spreads({}))

    def noise_at(self, spreads: ArrayLike) -> float:
        """The same for scaled covariates of these ``spreads`` (k,)."""
        return float(np.sqrt(np.mean(self._moved(spreads) ** 2)))

    def spreads(self, released: Mapping[str, Array]) -> Array:
        """Standard deviations (k,) of scaled covariates: by their released mean square, or a public guess."""
        step = self.step(MeanSquarePlan.name)
        if isinstance(step, MeanSquarePlan) and step.name in released:
            return step.spreads(released)
        return np.array(self.study.law.within(self.study.norm_bound))

    def flipped_share(self, theta: ArrayLike, spreads: ArrayLike | None = None) -> float:
        """Share of the decisions of a released ``theta`` (p,) that the noise in it is predicted to flip.

        For the same guesses, and covariates of these ``spreads`` (k,). The effects without noise are guessed
        to be those of theta, less the size that the noise gives them: 1/2 where noise explains all of them.
        """
        spreads = self.spreads({}) if spreads is None else spreads
        moved, rows = self._moved(spreads), self._rows(spreads)
        effects = np.sum(rows * np.asarray(theta, dtype=np.float64), axis=1)
        size, noise = float(np.mean(effects**2)), float(np.mean(moved**2))
        if not size > noise:
            return 0.5
        true = effects * math.sqrt(1.0 - noise / size)
        # on either side of the boundary records are flipped as often
        return float(np.mean((true + moved > 0) != (true > 0)))

    def _rows(self, spreads: ArrayLike, scale: float = 1.0) -> Array:
        """Rows (m, p) of public covariates, ``scale`` times those of the domain."""
        k = self.study.universe.n_features
        drawn = np.random.default_rng(k).standard_normal((_POINTS, k))
        x = scale * clip_norm(np.asarray(spreads) * drawn, self.study.norm_bound)
        return self.rule.map.rows.of(x, np.zeros(_POINTS))

    def _moved(self, spreads: ArrayLike) -> Array:
        """What draws of the noise do to the effect at public covariates, (draws, m)."""
        calibration, rows = self.rule.calibration, self._rows(spreads, self.rule.map.scale)
        assert isinstance(calibration, Calibration)
        # a center is guessed to spread as far as what it leaves, and residuals of 2 (y - m) to be normal
        left = self.study.scale * (math.sqrt(0.5) if self.rule.map.after else 1.0)
        squared, slope = self.study.settings.response_bound is not None, self.study.settings.slope
        bend = 2.0 if squared else float(erfcx(math.sqrt(2.0) * left / slope))
        p = rows.shape[1]
        hessian = bend * self.mass * (rows.T @ rows) / len(rows) + calibration.gamma * np.eye(p)
        drawn = simulate_noise(calibration, _DRAWS, np.random.default_rng(p))
        return np.asarray(drawn @ np.linalg.solve(hessian, rows.T) / self.study.universe.n_samples)
