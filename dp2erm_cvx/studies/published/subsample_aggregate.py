"""Guha and Reiter (2024): estimates from disjoint groups, clipped, averaged and made noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.audit.additive import Split, Stages
from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.fits import noisy, probability, ridge_logistic
from dp2erm_cvx.studies.published.method import StagedEffect, group_count


@dataclass(frozen=True)
class SubsampleAggregate(StagedEffect):
    """Weighted means by a logistic propensity in each of M random groups, and noise on their average.

    An effect is in [-2B, 2B], and so is the estimate of a group; one record is in one group, so that the
    average moves by at most ``4 B/M``: 2/M for outcomes of two values, which the paper is about.

    Parameters
    ----------
    per_column
        Records in a group for every column of the propensity, which fixes M.
    ridge
        Of the logistic loss within a group.
    """

    source: ClassVar[str] = "Guha & Reiter (2024), arXiv 2408.14766"
    assumes: ClassVar[str] = "outcomes"
    serves_treated: ClassVar[bool] = True

    per_column: float = 8.0
    ridge: float = 1e-3

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """See :class:`StagedEffect`."""
        n, p = records.X.shape
        members = yield Split(n, group_count(n, p, self.per_column))
        largest = 2.0 * records.domain.outcome_bound
        found = [np.clip(self._of_group(records, rows), -largest, largest) for rows in members]
        sensitivity = 2.0 * largest / len(members)
        released = yield noisy(float(np.mean(found)), sensitivity, budget)
        return Estimate(released, math.nan)

    def _of_group(self, records: Records, rows: Array) -> float:
        X, a, y = records.X[rows], records.a[rows], records.y[rows]
        if np.all(a == a[0]):
            return 0.0  # a group without one of the arms says nothing
        e = probability(X @ ridge_logistic(X, a.astype(np.float64), self.ridge), 1e-6)
        treated, control = (a == 1, e / (1.0 - e)) if self.treated_only else ((a == 1) / e, 1.0 / (1.0 - e))
        control = (a == 0) * control
        return float(treated @ y / np.sum(treated) - control @ y / np.sum(control))
