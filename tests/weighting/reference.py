"""A reference solver of forms with squares, for many datasets of a few classes of equal records at
once.

It shares no code with the package beyond the form itself: a damped Newton method in the prices of
the imbalance, with the multipliers of the sums by bisection inside. The last class of a dataset is
one record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.forms.form import Imbalance, SumKind, WeightingForm

#: Inverse slope of each family of dispersions, and 1 over its curvature.
Curve = tuple[Callable[[Array], Array], Callable[[Array], Array]]

#: For ``w log w`` and ``-log w``, as `forms` writes them.
CURVES: Mapping[str, Curve] = {
    "entropy": (lambda x: np.exp(np.clip(x - 1.0, -690.0, 50.0)), lambda w: w),
    "log": (lambda x: -1.0 / np.minimum(x, -1e-9), lambda w: w * w),
}


@dataclass(frozen=True)
class Datasets:
    """B datasets of m classes.

    Parameters
    ----------
    phi
        Features of a class by name, (B, m, width).
    arms
        Arm of a class, (B, m).
    counts
        Number of its records, (B, m); 1 in the last class.
    """

    phi: Mapping[str, Array]
    arms: NDArray[np.int64]
    counts: Array

    def chosen(self, index: NDArray[np.int64]) -> Datasets:
        return Datasets(
            {name: own[index] for name, own in self.phi.items()},
            self.arms[index],
            self.counts[index],
        )


@dataclass(frozen=True)
class Solved:
    """Weights of classes (B, m), and bounds of what is left of optimality (B,)."""

    weights: Array
    residual: Array


def rows_and_targets(form: WeightingForm, data: Datasets) -> tuple[Array, Array]:
    """Rows (B, m, K) times the root of twice the factor of their squares, and summed targets (B,
    K).
    """
    cases, classes = data.arms.shape
    flat = {name: own.reshape(cases * classes, -1) for name, own in data.phi.items()}
    arms = data.arms.reshape(-1)
    rows = []
    targets = []
    for imbalance in form.imbalances:
        root = np.sqrt(2.0 * imbalance.penalty.factor)
        rows.append(root * imbalance.rows(flat, arms))
        each = []
        for group in imbalance.groups:
            parts = [p.target[arms][:, None] * (flat[p.features.name] @ p.matrix.T) for p in group]
            each.append(sum(parts))
        own = np.hstack(each).reshape(cases, classes, -1)
        summed = np.einsum("bm,bmk->bk", data.counts, own) + means_of_arms(imbalance, data)
        targets.append(root * (summed + imbalance.shift))
    return np.hstack(rows).reshape(cases, classes, -1), np.hstack(targets)


def means_of_arms(imbalance: Imbalance, data: Datasets) -> Array:
    """What n times the means of arms, and of public points, are in the targets, (B, K).

    Public points are given by their features here.
    """
    n = np.sum(data.counts, axis=1, keepdims=True)
    coordinates = []
    for group in imbalance.groups:
        total = np.zeros((len(data.counts), len(group[0].matrix)))
        for part in group:
            for arm in (0, 1):
                inside = data.counts * (data.arms == arm)
                share = n * inside / np.maximum(np.sum(inside, axis=1, keepdims=True), 1.0)
                mean = np.einsum("bm,bmw->bw", share, data.phi[part.features.name])
                total += part.mean[arm] * (mean @ part.matrix.T)
            if part.features.points is not None:
                mean = np.mean(part.features.points, axis=0)
                total += n * part.public * (part.matrix @ mean)
        coordinates.append(total)
    return np.hstack(coordinates)


def solve(form: WeightingForm, data: Datasets, rounds: int = 60) -> Solved:
    """Weights of every dataset; residuals are l1 distances to a nearby problem's solution."""
    return _Solver(form, data).solve(rounds)


class _Solver:
    def __init__(self, form: WeightingForm, data: Datasets) -> None:
        self.inverse, self.response = self.curve(form)
        self.counts = data.counts
        self.rows, self.targets = rows_and_targets(form, data)
        self.base = np.ones_like(data.counts)
        if form.base is not None:
            self.base = data.phi[form.base.name][:, :, 0]
        self.linear = np.zeros_like(data.counts)
        if form.linear is not None:
            own = form.linear
            self.linear = own.weighted[data.arms] * (data.phi[own.features.name] @ own.matrix[0])
        self.low = form.low[data.arms]
        self.cap = form.cap[data.arms]
        if form.low_of is not None:
            own = form.low_of
            self.low = np.maximum(self.low, data.phi[own.features.name][:, :, 0] * own.matrix[0, 0])
        if form.cap_of is not None:
            own = form.cap_of
            self.cap = np.minimum(self.cap, data.phi[own.features.name][:, :, 0] * own.matrix[0, 0])
        kind = form.sums.kind
        treated = np.sum(data.counts * data.arms, axis=1)
        everyone = np.sum(data.counts, axis=1)
        if kind is SumKind.ALL:
            blocks = [np.ones_like(data.counts)]
            totals = [everyone]
        elif kind is SumKind.PUBLIC:
            assert form.sums.public is not None
            blocks = [1.0 - data.arms, 1.0 * data.arms]
            totals = [np.full_like(treated, total) for total in form.sums.public]
        elif kind is SumKind.COUNTS:
            blocks = [1.0 - data.arms, 1.0 * data.arms]
            totals = [everyone - treated, treated]
        else:
            fixed = 0.0 if kind is SumKind.CONTROLS else 1.0
            self.low = np.where(data.arms == 1, fixed, self.low)
            self.cap = np.where(data.arms == 1, fixed, self.cap)
            blocks = [1.0 - data.arms]
            totals = [everyone if kind is SumKind.CONTROLS else treated]
        self.blocks = np.stack(blocks, axis=2)
        self.totals = np.stack(totals, axis=1)

    @staticmethod
    def curve(form: WeightingForm) -> Curve:
        """The curve of a form; squares without a center are those with one, up to a constant of the
        sum.
        """
        part = form.dispersion.parts[0]
        if part.atom == "square":
            curvature = 2.0 * part.scale
            return lambda x: 1.0 + x / curvature, lambda w: np.full_like(w, 1.0 / curvature)
        return CURVES[part.atom]

    def at(self, x: Array, index: NDArray[np.int64]) -> tuple[Array, Array]:
        """Weights and their responses at slopes x."""
        base = self.base[index]
        raw = base * self.inverse(x - self.linear[index])
        weights = np.clip(raw, self.low[index], self.cap[index])
        free = (raw > self.low[index]) & (raw < self.cap[index])
        return weights, np.where(free, base * self.response(weights / base), 0.0)

    def weights(self, prices: Array, index: NDArray[np.int64]) -> tuple[Array, Array, Array]:
        """Weights at prices (b, K), with the sums of blocks met by bisection; responses; what sums
        miss.
        """
        blocks = self.blocks[index]
        counts = self.counts[index]
        pulled = -np.einsum("bmk,bk->bm", self.rows[index], prices)
        reach = 60.0 + np.max(np.abs(pulled) + np.abs(self.linear[index]), axis=1)
        low = np.tile(-reach[:, None], (1, blocks.shape[2]))
        high = -low
        level = (low + high) / 2.0
        for step in range(120):
            weights, response = self.at(pulled - np.einsum("bml,bl->bm", blocks, level), index)
            excess = np.einsum("bm,bml->bl", counts * weights, blocks) - self.totals[index]
            done = np.abs(excess) <= 1e-13 * (1.0 + self.totals[index])
            if np.all(done):
                break
            low = np.where(excess > 0.0, level, low)
            high = np.where(excess > 0.0, high, level)
            slope = np.einsum("bm,bml->bl", counts * response, blocks)
            newton = level + excess / np.maximum(slope, 1e-300)
            inside = (newton > low) & (newton < high) & (step % 4 != 3)
            level = np.where(done, level, np.where(inside, newton, (low + high) / 2.0))
        return weights, response, np.sum(np.abs(excess), axis=1)

    def residual(
        self, prices: Array, index: NDArray[np.int64]
    ) -> tuple[Array, Array, Array, Array]:
        weights, response, missed = self.weights(prices, index)
        achieved = np.einsum("bm,bmk->bk", self.counts[index] * weights, self.rows[index])
        return weights, response, prices - achieved + self.targets[index], missed

    def solve(self, rounds: int) -> Solved:
        cases, classes, coordinates = self.rows.shape
        prices = np.zeros((cases, coordinates))
        best = np.full(cases, np.inf)
        found = np.zeros((cases, classes))
        index = np.arange(cases)
        weights, response, left, missed = self.residual(prices, index)
        for _ in range(rounds):
            # ||w - w*||_1 <= sqrt(n R) |left| up to a factor: enough to say which are solved.
            size = np.sqrt(np.sum(self.counts[index], axis=1)) * np.linalg.norm(left, axis=1)
            claim = 2.0 * size + 2.0 * missed
            better = claim < best[index]
            best[index] = np.where(better, claim, best[index])
            found[index] = np.where(better[:, None], weights, found[index])
            open_ = claim > 1e-10
            if not np.any(open_):
                break
            index = index[open_]
            weights, response, left = weights[open_], response[open_], left[open_]
            step = self.newton(response, left, index)
            weights, response, left, missed = self.searched(prices, step, left, index)
        return Solved(found, best)

    def newton(self, response: Array, left: Array, index: NDArray[np.int64]) -> Array:
        """``(I + sum of centered z z' times responses) step = -left``."""
        moved = self.counts[index] * response
        blocks = self.blocks[index]
        rows = self.rows[index]
        mass = np.einsum("bm,bml->bl", moved, blocks)
        means = (
            np.einsum("bm,bml,bmk->blk", moved, blocks, rows) / np.maximum(mass, 1e-300)[:, :, None]
        )
        centered = rows - np.einsum("bml,blk->bmk", blocks, means)
        jacobian = np.einsum("bm,bmk,bmj->bkj", moved, centered, centered)
        jacobian += np.eye(rows.shape[2])
        return -np.linalg.solve(jacobian, left[:, :, None])[:, :, 0]

    def searched(
        self, prices: Array, step: Array, left: Array, index: NDArray[np.int64]
    ) -> tuple[Array, Array, Array, Array]:
        """Half the step until the slope of the dual along it is no longer positive, or the residual
        falls.
        """
        length = np.ones(len(index))
        start = prices[index]
        size = np.linalg.norm(left, axis=1)
        accepted = np.zeros(len(index), bool)
        for _ in range(30):
            trial = start + length[:, None] * step
            result = self.residual(trial, index)
            along = np.einsum("bk,bk->b", result[2], step)
            falls = np.linalg.norm(result[2], axis=1) < 0.9 * size
            accepted |= falls | (along <= 0.0)
            if np.all(accepted):
                break
            length = np.where(accepted, length, length / 2.0)
        prices[index] = trial
        return result


def variation(first: Array, second: Array, counts: Array) -> Array:
    """``sum_{i != j} |w_i - w'_i| + w_j + w'_j`` (B,) for a record j in the last class."""
    common = np.sum(counts[:, :-1] * np.abs(first[:, :-1] - second[:, :-1]), axis=1)
    return np.asarray(common + first[:, -1] + second[:, -1])
