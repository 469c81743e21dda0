"""Giddens, Zhou, Krull, Brinkman, Song and Liu (2023): outcome weighted learning by private weighted ERM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.audit.additive import Stages
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.fits import noisy, ridge_logistic
from dp2erm_cvx.studies.published.method import PublishedRule

#: Without noise: as little as keeps a minimizer.
_LEAST_RIDGE = 1e-5


@dataclass(frozen=True)
class WeightedLearning(PublishedRule):
    """Classify the treatment, each record weighted by its outcome over the probability of its arm.

    Outcomes count from the lower end of their interval, probabilities are at least ``clip``: weights are in
    [0, 1] in units of ``2 B/clip``. For rows of norm 1 and the logistic loss a term's gradient is at most
    its weight, so that the minimizer moves by at most ``2/(n ridge)``, to which noise is added.

    Parameters
    ----------
    ridge
        For rows scaled to norm 1 and weights of at most 1.
    clip
        The least probability of an arm.
    """

    source: ClassVar[str] = "Giddens, Zhou, Krull, Brinkman, Song & Liu (2023), arXiv 2307.13127"
    assumes: ClassVar[str] = "norms of covariates, outcomes; a known propensity"

    ridge: float = 0.01
    clip: float = 0.1

    def stages(self, records: Records, propensity: Array, budget: Budget | None) -> Stages[Array]:
        """See :class:`PublishedRule`."""
        domain = records.domain
        X, a = records.X / domain.covariate_bound, records.a.astype(np.float64)
        share = np.maximum(np.where(records.a == 1, propensity, 1.0 - propensity), self.clip)
        weight = (records.y + domain.outcome_bound) / (2.0 * domain.outcome_bound) * self.clip / share
        if budget is None:
            return ridge_logistic(X, a, _LEAST_RIDGE, weight)
        theta = ridge_logistic(X, a, self.ridge, weight)
        released: Array = yield noisy(theta, 2.0 / (len(X) * self.ridge), budget)
        return released
