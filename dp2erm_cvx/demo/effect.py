"""The lead of the demonstration: private effects on NHEFS, beside estimates without privacy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import nhefs_domain
from dp2erm_cvx.demo import settings
from dp2erm_cvx.estimators import PrivateEffect
from dp2erm_cvx.release.effect import EffectRelease

#: Covariates whose squares the textbook adds.
SQUARED = ("age", "wt71", "smokeintensity", "smokeyrs")


def private_effects(data: Dataset, seeds: Iterator[int | None]) -> Iterator[EffectRelease]:
    """Adjusted for two covariates that were named in public, then for all, at either budget.

    Every release is a separate one from the same data. A seed of None takes the operating system's entropy.
    """
    for prognostic in (settings.PROGNOSTIC, data.columns):
        for budget in settings.EFFECT_BUDGETS:
            model = PrivateEffect(
                nhefs_domain(),
                budget,
                prognostic=prognostic,
                residual_scale=settings.RESIDUAL_SCALE,
                seed=next(seeds),
            )
            yield model.fit(data.X, data.a, data.y).release_


def naive_effect(data: Dataset) -> float:
    """Difference of the two arms' mean outcomes. Not private."""
    return float(data.y[data.a == 1].mean() - data.y[data.a == 0].mean())


def textbook_effect(data: Dataset) -> float:
    """The textbook's estimate. Not private.

    Inverse propensity weights from a logistic regression without ridge or trim, on the unclipped covariates
    and the squares of :data:`SQUARED`; difference of the two weighted means (Hernan & Robins, What If,
    chapter 12).
    """
    from sklearn.linear_model import LogisticRegression

    squares = [data.columns.index(name) for name in SQUARED]
    X = np.hstack([data.X, data.X[:, squares] ** 2])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    fitted = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=200).fit(X, data.a)
    treated = fitted.predict_proba(X)[:, 1]
    means = [
        np.average(data.y[data.a == arm], weights=1 / share[data.a == arm])
        for arm, share in ((0, 1 - treated), (1, treated))
    ]
    return float(means[1] - means[0])
