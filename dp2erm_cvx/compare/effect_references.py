"""Estimates of an effect without privacy, each with its standard error: what a private one stands beside."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array


class Estimate(NamedTuple):
    """``value`` and its standard error, as of independent records and known nuisances."""

    value: float
    error: float


def difference(data: Dataset) -> Estimate:
    """The naive difference of means."""
    arms = [data.y[data.a == arm] for arm in (0, 1)]
    means = [float(np.mean(arm)) for arm in arms]
    return Estimate(means[1] - means[0], math.sqrt(sum(float(np.var(arm)) / len(arm) for arm in arms)))


def hajek(data: Dataset, propensity: Array | None = None) -> Estimate:
    """The difference of means weighted by inverse propensities (n,), by default those of a logistic fit."""
    e = logistic(data) if propensity is None else propensity
    total, score = 0.0, np.zeros(len(data.a))
    for arm, sign, share in ((1, 1.0, e), (0, -1.0, 1.0 - e)):
        weight = (data.a == arm) / share
        mean = float(np.sum(weight * data.y) / np.sum(weight))
        total += sign * mean
        score += sign * weight * (data.y - mean) / np.mean(weight)
    return Estimate(total, _error(score))


def augmented(data: Dataset, *, treated_only: bool = False) -> Estimate:
    """Augmented inverse propensity weighting by a line in either arm and a logistic propensity.

    ``treated_only``: the effect among the treated.
    """
    rows = np.column_stack([np.ones(len(data.a)), data.X])
    m_0, m_1 = (rows @ np.linalg.lstsq(rows[data.a == arm], data.y[data.a == arm])[0] for arm in (0, 1))
    e, treated = logistic(data), data.a == 1
    if treated_only:
        score = np.where(treated, 1.0, -e / (1.0 - e)) * (data.y - m_0) / np.mean(treated)
        value = float(np.mean(score))
        return Estimate(value, _error(score - value * treated / np.mean(treated)))
    score = m_1 - m_0 + np.where(treated, (data.y - m_1) / e, -(data.y - m_0) / (1.0 - e))
    return Estimate(float(np.mean(score)), _error(score))


def logistic(data: Dataset) -> Array:
    """Fitted probabilities of treatment (n,), without a ridge."""
    from sklearn.linear_model import LogisticRegression

    spread = np.std(data.X, axis=0)
    X = (data.X - np.mean(data.X, axis=0)) / np.where(spread > 0, spread, 1.0)
    fitted = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8).fit(X, data.a)
    found: Array = fitted.predict_proba(X)[:, 1]
    return found


def _error(score: Array) -> float:
    return float(np.std(score)) / math.sqrt(len(score))
