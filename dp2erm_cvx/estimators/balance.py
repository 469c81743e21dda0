"""Covariate balance before and after what a run adjusted by: for the data holder only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.diagnostics import BalanceTable, balance_table
from dp2erm_cvx.diagnostics.balance import PREDICTED, UNWEIGHTED, arm_masks, weighted_means
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.plan.plan import PlanResult

Arms = NDArray[np.int64]


def adjusted_balance(plan: Plan[Any], result: PlanResult) -> tuple[BalanceTable, Array, Arms]:
    """Balance before and after what a release adjusts by, of the m records that count. Not private.

    Weights are those of residuals in the score of an effect, of records in a rule, or of the first
    stage. The table of an effect has one more row: the outcome that least squares without privacy
    predict from the covariates, and after adjusting, less what the released regression predicts.

    Parameters
    ----------
    plan
        What was run, as ``after_run`` of an estimator gets it.
    result
        What it found, of records in memory.

    Returns
    -------
    table
        Means of the arms before and after.
    propensity
        Propensities (m,). Where every one is the same, those of a logistic regression without
        privacy.
    arms
        The arms (m,), 0 or 1.
    """
    records = result.inputs.records
    assert isinstance(result.inputs.dataset, Dataset)
    inside = np.sum(np.reshape(records.counts, (records.n_samples, -1)), axis=1) > 0.0
    arms = records.a[inside]
    score: Any = plan.step("score")
    regression: Any = getattr(plan.step("rule"), "regression", None)
    propensity = np.ones(records.n_samples)
    weighted = result.inputs.weights is not None or plan.step("weighted_sum") is not None
    if result.inputs.weights is not None:
        weights = result.weights.value
    elif plan.step("weighted_sum") is not None:
        weights = plan.main.weights_of(records, result.released)
    elif score is not None:
        return _balance_of_scores(score, result, inside, plan.study.universe.domain.outcome_middle)
    elif getattr(regression, "balance", None) is not None:
        balance = regression.balance
        weights = balance.of(records.covariates, records.a, result.released)
        propensity = expit(balance.log_odds.predict(records.covariates, records.a, result.released))
    else:
        weights = np.ones(records.n_samples)
    data = result.inputs.dataset
    table = balance_table(data.X[inside], arms, weights[inside], data.columns)
    return _with_propensities(table, propensity, records, inside, weighted=weighted)


def _balance_of_scores(
    score: Any, result: PlanResult, inside: Array, middle: float
) -> tuple[BalanceTable, Array, Arms]:
    """Balance of an effect's scores: by the weights of residuals, and by the released regression.

    ``middle`` is the outcome of a control whose net outcome is 0.
    """
    records = result.inputs.records
    data = result.inputs.dataset
    assert isinstance(data, Dataset)
    arms = records.a[inside]
    own = score.at(score.universe, result.released)
    parts = own.parts(records, result.released)
    # A small residual alone, in place of all that enters a score, shows its weight.
    none = 0.0 * parts.e
    small = none + 1e-9 * own.score_bound
    residuals_alone = parts._replace(m_0=none, m_1=none, center=0.0, residual=small)
    weights = np.abs(own.score(residuals_alone))[inside]
    predicted = _predicted_outcomes(records, inside)
    table = np.column_stack([data.X, predicted + middle])
    made = balance_table(table[inside], arms, weights, (*data.columns, PREDICTED))
    # What weights and the released regression together leave of the predicted outcome.
    left = (predicted - 0.5 * (parts.m_0 + parts.m_1))[inside, None]
    made = _with_last_row(made, left, weights, arms)
    return _with_propensities(made, parts.e, records, inside, weighted=False)


def _predicted_outcomes(records: Records, inside: Array) -> Array:
    """Outcomes (n,) that least squares without privacy predict, halfway between the arms."""
    rows = np.column_stack([records.a - 0.5, np.ones(records.n_samples), records.covariates])
    line = np.linalg.lstsq(rows[inside], records.y[inside])[0]
    predicted: Array = rows[:, 1:] @ line[1:]
    return predicted


def _with_last_row(table: BalanceTable, left: Array, weights: Array, arms: Arms) -> BalanceTable:
    """The table whose last row is, after adjusting, what is ``left`` (m, 1) of the outcome."""
    means = table.means_after.copy()
    means[:, -1] = [weighted_means(left[mask], weights[mask])[0] for mask in arm_masks(arms)]
    gap_before = table.means_before[1, -1] - table.means_before[0, -1]
    gap_after = means[1, -1] - means[0, -1]
    smd = table.smd_after.copy()
    smd[-1] = table.smd_before[-1] * gap_after / gap_before if gap_before else np.nan
    return replace(table, means_after=means, smd_after=smd)


def _with_propensities(
    table: BalanceTable, propensity: Array, records: Records, inside: Array, *, weighted: bool
) -> tuple[BalanceTable, Array, Arms]:
    """The table and the propensities of the records inside.

    Where all propensities are one, they are those of a logistic regression without privacy.
    """
    from sklearn.linear_model import LogisticRegression

    arms = records.a[inside]
    if np.ptp(propensity[inside]) == 0.0 and np.ptp(arms) > 0:
        model = LogisticRegression(max_iter=1000).fit(records.covariates[inside], arms)
        propensity = model.predict_proba(records.covariates)[:, 1]
        if not weighted:
            table = replace(table, notes=(*table.notes, UNWEIGHTED))
    return table, propensity[inside], arms
