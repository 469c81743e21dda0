"""The half width that an effect by declared weights is predicted to have, from public numbers alone.

With s = 2a - 1, weights w of sum n and residuals r of a released outcome regression, clipped at r0,

    T = theta_1 - theta_0 + (2/n) sum_i s_i w_i r_i + Laplace(2 r0 V / (n epsilon_1))

is an effect whose weighted sum moves by at most ``r0 V`` where one record is replaced: ``sum_i w_i delta_i``
changes by a signed measure of variation V, and ``|s r| <= r0``. Its error is the weighted sum of noise in the
outcomes, the Laplace noise, and what weights leave of the distance D of the arms times the error of the
regression's slopes. Section "The half width" of ``docs/from_scheme_to_effect.md`` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.plan.defaults import Request
from dp2erm_cvx.plan.effect import EffectStudy
from dp2erm_cvx.plan.effect_error import HEAVIER
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release.interval import biased_quantile
from dp2erm_cvx.steps.nuisances import LEFT
from dp2erm_cvx.steps.score import AverageScore

#: Residuals are clipped at so many of their standard deviations, r0.
CLIPPED = 2.0
#: Share of epsilon for the outcome regression.
REGRESSION = 0.3
#: The outcome is declared within so many standard deviations of residuals.
OUTCOMES = 6.0
#: What is taken of the distance that weights leave on public records, as private ones may differ.
MORE_LEFT = 1.1
#: Share of residuals that may lie beyond the clip.
BEYOND = 0.1
#: Level of the interval, and what of its miss pays for the noise of the sum of squares.
LEVEL, OF_SQUARES = 0.95, 0.005
#: Mass of an arm off a half by the noise of the released rate (three scales), at these n epsilon.
RATE_AT, RATE_MASS = (500.0, 1000.0, 4000.0), (0.25, 0.09, 0.03)


@dataclass(frozen=True)
class SchemeAllowance:
    """What is public about the effect of a scheme before its weights are chosen, in residual deviations.

    Parameters
    ----------
    n_samples
        n.
    treated
        Share of the treated.
    epsilon
        What is left for the weighted sum, epsilon_1.
    squares
        Expected mean of ``(d r)^2``, d = 1 / (2 pi_a), with what its own noise may add to it.
    bias
        Bound of what shrinkage and effects that vary leave of the distance, B_1.
    deviation
        Standard deviation of the error that slopes add over the distance: their noise and their sampling.
    intercepts
        Standard deviation of the noise of both intercepts, v_0.
    mass
        Mass that the noise of the released rate moves between the arms.
    """

    n_samples: int
    treated: float
    epsilon: float
    squares: float
    bias: float
    deviation: float
    intercepts: float
    mass: float

    @classmethod
    def at(
        cls, n_samples: int, columns: int, epsilon: float, treated: float, distance: float
    ) -> SchemeAllowance:
        """The allowance at public numbers.

        The rate, mean, spreads and the outcome regression are those of an average effect at its defaults,
        with the share ``REGRESSION`` for the regression and a propensity that is that of everybody.

        Parameters
        ----------
        n_samples, columns
            Numbers of records and covariates.
        epsilon
            Of the whole release.
        treated, distance
            Share of the treated, and the declared distance of the arms in standard deviations.
        """
        domain = Domain(math.sqrt(columns), OUTCOMES, ranges=[(-1.0, 1.0)] * columns)
        declared = {"propensity": "constant", "center_share": REGRESSION}
        study = EffectStudy(
            Universe(domain, n_samples, columns),
            Budget(epsilon),
            residual_scale=1.0,
            confounding=distance,
            declared=declared,
        )
        settings = study.settings
        of_squares = min(0.1, max(0.02, 40.0 / (n_samples * epsilon)))
        spent = settings.rate_share + (settings.mean_share or 0.0) + (settings.spread_share or 0.0)
        left = epsilon * (1.0 - spent - REGRESSION - of_squares)
        request = Request(
            AverageScore,
            n_samples,
            columns,
            epsilon,
            1.0,
            settings.slope,
            study.law,
            settings.norm_bound,
            settings.residual_bound,
            study.assumed,
            rate=treated,
        )
        fit = replace(request.regression(REGRESSION), arms=settings.arms, noise_ratio=settings.noise_ratio)
        shrunk, noise, missing = request.remaining(fit)
        stays = float(np.max(np.maximum(LEFT * shrunk, missing)))
        varying = fit.leaning(treated, AverageScore.wanted(treated)) * study.heterogeneity
        sampling = HEAVIER / (n_samples * study.assumed.within(treated))
        curvature = np.maximum(fit.curvature(1.0, treated), 1e-12)
        intercepts = fit.noise / (n_samples * (curvature + fit.gamma))
        bases = 0.25 / treated + 0.25 / (1.0 - treated)
        steepest = 0.5 / min(treated, 1.0 - treated)
        noise_of_squares = (steepest * CLIPPED) ** 2 / (of_squares * epsilon)
        return cls(
            n_samples=n_samples,
            treated=treated,
            epsilon=left,
            squares=bases * _clipped_square() - math.log(OF_SQUARES) * noise_of_squares / n_samples,
            bias=distance * (stays + varying),
            deviation=distance * math.sqrt(float(np.max(noise)) ** 2 + sampling),
            intercepts=float(np.linalg.norm(intercepts)),
            mass=float(np.interp(math.log(n_samples * epsilon), np.log(RATE_AT), RATE_MASS)),
        )

    def half_width(self, V: float, left: float, treated: float, squares: float) -> float:
        """Predicted half width of the 95 % interval, in standard deviations of residuals.

        ``P(N + L > q - B) + P(N + L > q + B) = .05 - .005`` with L a Laplace variable of scale
        ``2 r0 V / (n epsilon_1)``, N a normal one of variance ``4 squares Q / n + l^2 deviation^2 +
        (.1 + mass)^2 v_0^2``, and ``B = l B_1``, ``l = min(1, 1.1 left)``.

        Parameters
        ----------
        V
            Bound on the movement of the weights.
        left
            Share of the distance of the arms that the weights leave on public records.
        treated
            Share of the weight that the treated have there.
        squares
            Sum of squared weights there, over that of weights ``1 / (2 pi_a)``.
        """
        n = self.n_samples
        laplace = 2.0 * CLIPPED * V / (n * self.epsilon)
        remains = min(1.0, MORE_LEFT * left)
        mass = abs(2.0 * treated - 1.0) + self.mass
        variance = 4.0 * max(squares, 1.0) * self.squares / n
        variance += (remains * self.deviation) ** 2 + ((BEYOND + mass) * self.intercepts) ** 2
        tail = 0.5 * (1.0 - LEVEL - OF_SQUARES)
        return biased_quantile(Noise.GAMMA, tail, remains * self.bias, math.sqrt(variance), laplace)


def _clipped_square() -> float:
    """The mean square of a standard normal variable that is clipped at ``CLIPPED``."""
    density = math.exp(-0.5 * CLIPPED**2) / math.sqrt(2.0 * math.pi)
    tail = float(ndtr(-CLIPPED))
    return 1.0 - 2.0 * tail - 2.0 * CLIPPED * density + 2.0 * CLIPPED**2 * tail
