"""Outcomes and treated shares of leaves from noisy sums, shrunk to what the leaves have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array


@dataclass(frozen=True, eq=False)
class LeafMeans:
    """Of every leaf: its noisy number of records (l,), outcomes by arm (l, 2) and treated share (l,).

    The outcomes are centered, in units of the outcome bound.
    """

    count: Array
    outcome: Array
    treated: Array


def leaf_means(sums: Array, cells: Array, spread: float, noise: float) -> LeafMeans:
    """Empirical Bayes means from ``sums`` (l, 2, 2) by leaf, by arm, P and Q, in records. Post-processing.

    ``cells`` (l,) are added up in each leaf; ``spread`` and ``noise`` are those of
    :func:`~dp2erm_cvx.steps.cell_tree.grow`. A leaf's outcome is shrunk to that of all leaves, net of an
    effect common to all, and then that of either arm to both: the arms of a leaf are more alike than the same
    arm elsewhere. A treated share is shrunk to that of all.
    """
    arms = sums.sum(axis=2)
    totals = sums[:, :, 0] - sums[:, :, 1]
    held = np.maximum(arms, 0.0)
    own = 2.0 * noise * cells
    effect = _common_effect(totals, arms, own, spread)
    level = _ratio(float(totals.sum() - effect * arms[:, 1].sum()), float(arms.sum()))
    deviation = totals.sum(axis=1) - effect * arms[:, 1] - level * arms.sum(axis=1)
    variance = spread**2 * held.sum(axis=1) + own * (2.0 + level**2 + (level + effect) ** 2)
    common = level + _shrunk(deviation, arms.sum(axis=1), variance, 2.0 * own)
    outcome = np.empty_like(arms)
    for arm in (0, 1):
        base = np.clip(common + arm * effect, -1.0, 1.0)
        variance = spread**2 * held[:, arm] + own * (1.0 + base**2)
        outcome[:, arm] = base + _shrunk(totals[:, arm] - base * arms[:, arm], arms[:, arm], variance, own)
    count = arms.sum(axis=1)
    share = max(_ratio(float(arms[:, 1].sum()), float(count.sum())), 0.0)
    variance = share * (1.0 - share) * np.maximum(count, 0.0) + own * (share**2 + (1.0 - share) ** 2)
    treated = share + _shrunk(arms[:, 1] - share * count, count, variance, 2.0 * own)
    return LeafMeans(count, np.clip(outcome, -1.0, 1.0), np.clip(treated, 0.0, 1.0))


def _common_effect(totals: Array, arms: Array, noise: Array, spread: float) -> float:
    """The mean difference of the arms within leaves, by the inverse of its variance, in [-2, 2].

    Leaves with an arm whose count is within its noise are left out; 0 where this leaves none.
    """
    floor = 2.0 * np.sqrt(noise)[:, None]
    counts = np.maximum(arms, np.maximum(floor, 1.0))
    means = np.clip(totals / counts, -1.0, 1.0)
    variances = spread**2 / counts + noise[:, None] * (1.0 + means**2) / counts**2
    weights = np.where((arms > floor).all(axis=1), 1.0 / np.maximum(variances.sum(axis=1), 1e-200), 0.0)
    total = float(weights.sum())
    return float(np.sum(weights * (means[:, 1] - means[:, 0]))) / total if total > 0.0 else 0.0


def _shrunk(deviation: Array, mass: Array, variance: Array, mass_noise: Array) -> Array:
    """``deviation / mass`` of every leaf, shrunk to 0 as its ``variance`` asks for.

    The variance of what is estimated between leaves is that of the deviations beyond their own, by moments.
    """
    between = max(float(np.sum(deviation**2 - variance)), 0.0)
    between /= max(float(np.sum(mass**2 - mass_noise)), 1e-300)
    if not 0.0 < between < np.inf:
        return np.zeros_like(deviation)
    held = np.maximum(mass, 0.0)
    shrunk: Array = held * deviation / (held**2 + variance / between)
    return shrunk


def _ratio(total: float, count: float) -> float:
    """A mean of values in [-1, 1]."""
    return min(max(total / max(count, 1.0), -1.0), 1.0)
