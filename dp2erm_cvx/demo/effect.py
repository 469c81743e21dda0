"""The lead of the demonstration: private effects and rules on NHEFS, and estimates without privacy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.compare.effect_references import augmented, hajek
from dp2erm_cvx.data import Dataset, NamedColumns
from dp2erm_cvx.datasets import nhefs_domain
from dp2erm_cvx.demo import settings
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.rule_release import RuleRelease

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


def private_rules(
    data: Dataset, seeds: Iterator[int | None]
) -> Iterator[tuple[RuleRelease, NDArray[np.int64]]]:
    """Who gains more than the public cost, by features named in public, at either budget.

    Each with the records (n,) that it flags, which are not private.
    """
    chosen = [data.columns.index(name) for name in settings.FEATURES]
    domain = nhefs_domain(treatment_cost=settings.TREATMENT_COST).restricted(chosen)
    X = NamedColumns(data.X[:, chosen], settings.FEATURES)
    for budget in settings.RULE_BUDGETS:
        model = PrivateRule(domain, budget, outcome_scale=settings.OUTCOME_SCALE, seed=next(seeds))
        yield model.fit(X, data.a, data.y).release_, model.predict(data.X[:, chosen])


def robust_effect(data: Dataset) -> float:
    """Doubly robust, from all covariates and the records as the domain clips them. Not private."""
    domain = nhefs_domain()
    records = domain.records(data.X, data.a, data.y)
    return augmented(Dataset(records.X, records.a, records.y, data.columns)).value


def textbook_effect(data: Dataset) -> float:
    """The textbook's estimate. Not private.

    Inverse propensity weights from a logistic regression without ridge or trim, on the unclipped covariates
    and the squares of :data:`SQUARED`; difference of the two weighted means (Hernan & Robins, What If,
    chapter 12).
    """
    squares = [data.columns.index(name) for name in SQUARED]
    X = np.hstack([data.X, data.X[:, squares] ** 2])
    return hajek(Dataset(X, data.a, data.y, (*data.columns, *(f"{name}^2" for name in SQUARED)))).value
