"""A plasmode of NHEFS: its covariates, and treatments and outcomes drawn from models fitted to it."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import expit

from dp2erm_cvx.datasets.effect_scenarios import EffectScenario, people_of
from dp2erm_cvx.datasets.nhefs import load_nhefs, nhefs_domain
from dp2erm_cvx.domain import Array

#: Norm of the ten scaled covariates.
_COVARIATES_BOUND = 2.5
#: In kg: saturating losses and clipped residuals need no tighter one.
_OUTCOME_BOUND = 40.0


@functools.cache
def nhefs_plasmode() -> EffectScenario:
    """A population in which everything about the effect is known and the covariates are real.

    Covariates are resampled from the 1,566 records. Treatments follow the logistic regression, outcomes the
    linear regressions of either arm, that fit these records, with the residuals of a record drawn at random.
    The effect varies, and both models are linear in the scaled covariates before any clip.
    """
    from sklearn.linear_model import LogisticRegression

    data = load_nhefs()
    bound = math.hypot(1.0, _COVARIATES_BOUND)
    domain = nhefs_domain(covariate_bound=bound, outcome_bound=_OUTCOME_BOUND, intercept=1.0)
    propensity = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, fit_intercept=False).fit(
        domain.features(data.X), data.a
    )
    coefficients, residuals = [], np.empty(len(data.a))
    for arm in (0, 1):
        rows = domain.features(data.X)[data.a == arm]
        fitted = np.linalg.lstsq(rows, data.y[data.a == arm])[0]
        residuals[data.a == arm] = data.y[data.a == arm] - rows @ fitted
        coefficients.append(fitted)
    slopes = np.column_stack(coefficients)

    def covariates(rng: np.random.Generator, n: int) -> Array:
        found: Array = data.X[rng.integers(len(data.X), size=n)]
        return found

    def treated(x: Array) -> Array:
        found: Array = expit(domain.features(x) @ propensity.coef_[0])
        return found

    def outcomes(rng: np.random.Generator, x: Array) -> Array:
        noise = residuals[rng.integers(len(residuals), size=len(x))]
        found: Array = domain.features(x) @ slopes + noise[:, None]
        return found

    effect = float(np.mean(domain.features(data.X) @ (slopes[:, 1] - slopes[:, 0])))
    return EffectScenario("nhefs plasmode", effect, domain, 7.0, people_of(covariates, outcomes), treated)
