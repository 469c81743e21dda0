"""Lebeda, Even, Bellet and Josse (2025): nuisances of other folds, averaged, and noise on the mean alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dp2erm_cvx.audit.additive import Split, Stages
from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.fits import noisy, ridge_line, ridge_logistic
from dp2erm_cvx.studies.published.method import StagedEffect, group_count


@dataclass(frozen=True)
class FoldNuisances(StagedEffect):
    """K folds fit nuisances without noise; a record's are the means of those of the other folds.

    Regressions are clipped to the outcomes' interval and inverse probabilities to [1/(1 - clip), 1/clip]
    before they are averaged. A replaced record moves its own term by at most ``own``, and one of K - 1 models
    in the terms of n - n/K others by at most ``others``: the mean by ``own/n + others/K``.

    Parameters
    ----------
    estimator
        "g" (regressions alone), "ipw" or "aipw".
    per_column
        Records in a fold for every column, which fixes K.
    ridge
        Of both nuisances, but for their constants.
    clip
        The least probability of either arm.
    """

    source: ClassVar[str] = "Lebeda, Even, Bellet & Josse (2025), arXiv 2505.19589"
    assumes: ClassVar[str] = "outcomes"

    estimator: Literal["g", "ipw", "aipw"] = "aipw"
    per_column: float = 8.0
    ridge: float = 0.01
    clip: float = 0.1

    def __post_init__(self) -> None:
        if self.estimator not in ("g", "ipw", "aipw"):
            raise DeclarationError(f"estimator = {self.estimator!r}: must be g, ipw or aipw")

    def sensitivity(self, records: Records, folds: int) -> float:
        """How far the mean moves at most; folds of different sizes count as the smallest.

        With w in [1/(1 - clip), 1/clip] and regressions in [-B, B] a term of "aipw" is ``w y - (w - 1) m_1 -
        m_0`` in the first arm, at most 2 B w. It moves by ``(w' - w)(y - m_1) - (w' - 1)(m_1' - m_1) -
        (m_0' - m_0)`` if a model of each is replaced.
        """
        B, high = records.domain.outcome_bound, 1.0 / self.clip
        spread = high - 1.0 / (1.0 - self.clip)
        own, others = {
            "g": (4.0 * B, 4.0 * B),
            "ipw": (2.0 * B * high, B * spread),
            "aipw": (4.0 * B * high, 2.0 * B * (spread + high)),
        }[self.estimator]
        n = records.n_samples
        return own / n + others * (n - n // folds) / (n * (folds - 1))

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """See :class:`StagedEffect`."""
        n, p = records.X.shape
        members = yield Split(n, group_count(n, p, self.per_column))
        total = np.zeros((4, n))
        for rows in members:
            found = self._of_fold(records, rows)
            total += found
            total[:, rows] -= found[:, rows]
        m_0, m_1, inverse_0, inverse_1 = total / (len(members) - 1)
        y, treated = records.y, records.a == 1
        if self.estimator == "g":
            terms = m_1 - m_0
        elif self.estimator == "ipw":
            terms = np.where(treated, inverse_1 * y, -inverse_0 * y)
        else:
            terms = m_1 - m_0 + np.where(treated, inverse_1 * (y - m_1), -inverse_0 * (y - m_0))
        sensitivity = self.sensitivity(records, len(members))
        released = yield noisy(float(np.mean(terms)), sensitivity, budget)
        return Estimate(released, math.nan)

    def _of_fold(self, records: Records, rows: Array) -> Array:
        """Both regressions and both inverse probabilities (4, n) of all records, by one fold's models."""
        X, a, B = records.X, records.a[rows], records.domain.outcome_bound
        found = np.zeros((4, len(X)))
        ridge = np.full(X.shape[1], self.ridge)
        if records.domain.intercept:
            ridge[0] = 1e-6
        if self.estimator != "ipw":
            for arm in (0, 1):
                own = rows[a == arm]
                found[arm] = np.clip(X @ ridge_line(X[own], records.y[own], ridge), -B, B)
        if self.estimator != "g":
            logit = X @ ridge_logistic(X[rows], a.astype(np.float64), ridge)
            odds = np.exp(np.clip(logit, -50.0, 50.0))
            found[2:] = np.clip([1.0 + odds, 1.0 + 1.0 / odds], 1.0 / (1.0 - self.clip), 1.0 / self.clip)
        return found
