"""Lee, Gresele, Park and Muandet (2019): a private propensity, then inverse probability weighting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.audit.additive import Split, Stages
from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Records
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.fits import noisy, probability, ridge_logistic
from dp2erm_cvx.studies.published.method import StagedEffect


@dataclass(frozen=True)
class PrivatePropensity(StagedEffect):
    """Half of the records fit the propensity, the other half are weighted by it; either spends the budget.

    Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011): for rows of norm at most 1 the minimizer
    moves by at most ``2/(m ridge)``. A mean of m terms ``a y/e - (1 - a) y/(1 - e)`` with e in
    [clip, 1 - clip] moves by at most ``2 B/(clip m)``. A record is in one half, so that nothing adds up.

    Parameters
    ----------
    ridge
        Of the logistic loss, for rows scaled to norm 1.
    clip
        The least probability of either arm that weights are computed from.
    """

    source: ClassVar[str] = "Lee, Gresele, Park & Muandet (2019), arXiv 1905.12592"
    assumes: ClassVar[str] = "norms of covariates, outcomes"

    ridge: float = 0.003
    clip: float = 0.1

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """See :class:`StagedEffect`."""
        n, domain = records.n_samples, records.domain
        X = records.X / domain.covariate_bound
        fit, rest = yield Split(n, 2)
        exact = ridge_logistic(X[fit], records.a[fit].astype(np.float64), self.ridge)
        w = yield noisy(exact, 2.0 / (len(fit) * self.ridge), budget)
        e = probability(X[rest] @ w, self.clip)
        a, y = records.a[rest], records.y[rest]
        value = float(np.mean(np.where(a == 1, y / e, -y / (1.0 - e))))
        released = yield noisy(value, 2.0 * domain.outcome_bound / (self.clip * len(rest)), budget)
        return Estimate(released, math.nan)
