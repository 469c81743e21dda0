"""Squares of kernel features by all pairs of records: prices are ``Q omega - b``.

Every point is an element of the kernel's space, ``lambda = sum_i omega_i z_i - t``, so that what is
missed is ``sum_i (omega_i - w_i) z_i`` and its norm the root of ``r'Qr``.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import scipy

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.weighting.forms.form import Arms
from dp2erm_cvx.weighting.solving.certificate import (
    Deviations,
    claimed,
    claimed_at_own_prices,
    claimed_by_eigenvalues,
)
from dp2erm_cvx.weighting.solving.dataset import WeightingData, push_size, target_counts
from dp2erm_cvx.weighting.solving.multipliers import met_sums, weights_at

#: Newton's steps, halvings of each, and what a share of the price is raised by where they stall.
_MOST_STEPS, _HALVINGS, _RAISED = 30, 25, 4.0
#: Share of the fall that a straight line promises, which a step has to reach.
_ARMIJO = 1e-4
#: A claim, relative to n, above which eigenvalues of the pairs are worth their time, and most
#: records of it.
_EIGENVALUES_FROM, _MOST_EIGENVALUES = 1e-11, 2000


class PairsProblem:
    """Squares of imbalances, with the products of the rows of all pairs of records.

    Parameters
    ----------
    data
        The dataset; all its penalties are squares.
    X
        Covariates (n, p).
    """

    def __init__(self, data: WeightingData, X: Array) -> None:
        self.data = data
        n = len(data.arms)
        arms = data.arms
        self.Q = np.zeros((n, n))
        self.b = np.zeros(n)
        diagonal = np.zeros(n)
        target_size = 0.0
        n_points = 0
        for one in data.similarities:
            kernel = one.features.kernel
            assert kernel is not None
            K = kernel.cross(X, X)
            K = (K + K.T) / 2.0
            self.Q += one.pull[np.ix_(arms, arms)] * K
            self.b += np.sum(_push_of_records(one.push, arms) * K, axis=1)
            diagonal += np.diag(one.pull)[arms] * np.maximum(one.diagonal, 0.0)
            largest = one.largest
            points = one.features.points
            if points is not None:
                self.b += one.push[arms, -1] * n * np.mean(kernel.cross(X, points), axis=1)
                n_points = max(n_points, len(points))
                largest = max(largest, float(np.max(one.at_points)))
            target_size += n * push_size(one.push) * largest
        # Features of a kernel, where the records have few, are among its pairs already.
        vectors = slice(0, data.vector_columns)
        root = np.sqrt(data.smoothness[vectors])
        rows = data.rows[:, vectors] * root
        targets = data.targets[vectors] * root
        if rows.shape[1]:
            self.Q += rows @ rows.T
            self.b += rows @ targets
            squares = np.sum(np.square(rows), axis=1)
            diagonal += squares
            target_size += math.sqrt(float(np.max(squares))) * float(np.linalg.norm(targets))
        self.largest = float(np.max(diagonal)) * ROUND_UP
        #: Relative errors of a price: of the sizes of all terms that it is a sum of.
        self.units = (data.entry_units + rows.shape[1] + n + n_points + 24.0) * UNIT
        #: Errors of a price per unit of ``|omega|_1``, and of the targets in it.
        self.entry_error = self.units * self.largest
        self.target_error = self.units * target_size
        if rows.shape[1]:
            moved = np.abs(rows) @ (root * data.target_errors[vectors])
            self.target_error += float(np.max(moved)) * ROUND_UP

    def price(self, omega: Array, share: float = 1.0) -> Array:
        """Slopes without multipliers (n,) at a point, of a share of the price of the imbalance."""
        return -share * (self.Q @ omega - self.b) - self.data.linear

    def certified(self, omega: Array, multipliers: Array) -> tuple[Array, float]:
        """Weights at a point and a bound of their distance to the exact weights.

        The bound is that of Theorems 35 and 36.
        """
        data = self.data
        price = self.price(omega)
        weights, argument = weights_at(data, price, multipliers)
        error = self._price_errors(price, argument, omega)
        radii = data.curve.radii(weights, argument, error)
        rest = omega - weights
        square = (
            float(rest @ (self.Q @ rest))
            + 2.0 * self.entry_error * float(np.sum(np.abs(rest))) ** 2
        )
        row = math.sqrt(self.largest) * ROUND_UP
        missed = math.sqrt(max(square, 0.0)) + 4.0 * UNIT * row * float(
            np.sum(np.abs(omega) + weights)
        )
        found = Deviations(weights, radii, missed, 0.0, row, 2.0 * row)
        return weights, min(
            claimed(data, found), self._claimed_at_own_prices(weights, multipliers, row)
        )

    def _price_errors(self, price: Array, argument: Array, omega: Array) -> Array:
        """Bounds (n,) of the distance of computed from exact arguments at a point."""
        size = np.abs(price) + np.abs(self.data.linear) + np.abs(argument - price)
        pulled = self.entry_error * float(np.sum(np.abs(omega))) + self.target_error
        return np.asarray(8.0 * UNIT * size + pulled)

    def _claimed_at_own_prices(self, weights: Array, multipliers: Array, row: float) -> float:
        """A bound of the distance to the exact weights, by prices of the weights themselves."""
        data = self.data
        price = self.price(weights)
        argument = price.copy()
        for number, block in enumerate(data.blocks):
            argument[block.members] -= multipliers[number]
        error = self._price_errors(price, argument, weights)
        off = data.curve.arguments_off(weights, argument, error)
        claim = claimed_at_own_prices(data, weights, off, row)
        n = len(weights)
        if claim <= _EIGENVALUES_FROM * n or n > _MOST_EIGENVALUES or not math.isfinite(claim):
            return claim
        return min(claim, claimed_by_eigenvalues(data, weights, off, row, self.least_eigenvalue))

    @cached_property
    def least_eigenvalue(self) -> float:
        """A lower bound of the eigenvalues of the exact products of rows of free weights."""
        free = np.flatnonzero(self.data.free)
        n = len(free)
        if not n:
            return 0.0
        # entries are off by their rounding, and computed eigenvalues by units of the norm
        error = n * self.entry_error + 64.0 * n * UNIT * n * self.largest
        least = float(np.linalg.eigvalsh(self.Q[np.ix_(free, free)])[0])
        return float(max(least - error, 0.0))

    def even(self) -> tuple[Array, Array]:
        """The weights that no imbalance pulls at, and their multipliers."""
        start = np.zeros(len(self.data.blocks))
        weights, _, multipliers = met_sums(self.data, -self.data.linear, start)
        return weights, multipliers

    def newton(self) -> tuple[Array, Array, int]:
        """Points omega (n,) by Newton's method, the multipliers and the number of steps."""
        omega, multipliers = self.even()
        omega, multipliers, steps, small = self._newton_from(omega, multipliers, 1.0)
        if small:
            return omega, multipliers, steps
        # Where most weights jump to the ends of their boxes, the price is raised in turns.
        omega, multipliers = self.even()
        share = min(1.0 / self._smoothness(), 1.0)
        while True:
            omega, multipliers, done, small = self._newton_from(omega, multipliers, share)
            steps += done
            if share == 1.0:
                return omega, multipliers, steps
            omega = met_sums(self.data, self.price(omega, share), multipliers)[0]
            share = min(_RAISED * share, 1.0)

    def _smoothness(self) -> float:
        """Smoothness of the part of the weights in the dual, from rates at the even weights."""
        rates = met_sums(self.data, -self.data.linear, np.zeros(len(self.data.blocks)))[1]
        return max(float(np.sum(rates)) * self.largest, 1.0)

    def _newton_from(
        self, omega: Array, multipliers: Array, share: float
    ) -> tuple[Array, Array, int, bool]:
        """Newton's steps at a share of the price.

        The results are a point, multipliers, the number of steps and whether little is missed.
        """
        weights, rates, multipliers = met_sums(self.data, self.price(omega, share), multipliers)
        rest = omega - weights
        size = self._size(rest)
        value = self._dual_value(omega, weights, multipliers, share)
        floor = 1e-14 * math.sqrt(self.largest) * len(omega)
        for step in range(_MOST_STEPS):
            if size <= floor:
                return omega, multipliers, step, True
            direction = self._direction(rates, rest, share) - rest
            fall = -share * float(direction @ (self.Q @ rest))
            length = 1.0
            for _ in range(_HALVINGS):
                there = omega + length * direction
                price = self.price(there, share)
                new_weights, new_rates, new_multipliers = met_sums(self.data, price, multipliers)
                new_size = self._size(there - new_weights)
                new_value = self._dual_value(there, new_weights, new_multipliers, share)
                lower = new_value <= value - _ARMIJO * length * fall
                # values near the solution differ by less than their rounding
                rounded = fall <= 1e-11 * abs(value) and new_size <= (1.0 - 0.1 * length) * size
                if lower or rounded:
                    break
                length /= 2.0
            else:
                return omega, multipliers, step, size <= 1e3 * floor
            omega = there
            weights = new_weights
            rates = new_rates
            multipliers = new_multipliers
            size = new_size
            value = new_value
            rest = omega - weights
        return omega, multipliers, _MOST_STEPS, size <= 1e3 * floor

    def _size(self, rest: Array) -> float:
        return math.sqrt(max(float(rest @ (self.Q @ rest)), 0.0))

    def _dual_value(self, omega: Array, weights: Array, multipliers: Array, share: float) -> float:
        """The negative value of the dual, with the derivative ``share Q (omega - weights)``."""
        data = self.data
        base = np.ones_like(weights) if data.curve.base is None else data.curve.base
        dispersion = base * data.form.dispersion.value(weights / base)
        value = share * float(omega @ (self.Q @ omega)) / 2.0 + float(
            self.price(omega, share) @ weights
        )
        value -= float(np.sum(dispersion))
        for number, block in enumerate(data.blocks):
            off = float(np.sum(weights[block.members])) - block.total
            value -= float(multipliers[number]) * off
        return value

    def _direction(self, rates: Array, rest: Array, share: float) -> Array:
        """Newton's change p of the weights: ``(s Q + 1/rates) p = s Q rest``.

        It keeps the sums of blocks.
        """
        n = len(rates)
        inside = np.zeros((n, len(self.data.blocks)))
        for number, block in enumerate(self.data.blocks):
            inside[block.members, number] = 1.0
        free = np.flatnonzero(rates > 0)
        change = np.zeros(n)
        if not len(free):
            return change
        matrix = share * self.Q[np.ix_(free, free)]
        matrix[np.diag_indices(len(free))] += 1.0 / rates[free]
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
        across = inside[free]
        pulled = scipy.linalg.cho_solve(factor, share * (self.Q @ rest)[free], check_finite=False)
        spread = scipy.linalg.cho_solve(factor, across, check_finite=False)
        level = np.linalg.lstsq(across.T @ spread, across.T @ pulled, rcond=None)[0]
        change[free] = pulled - spread @ level
        return change

    def accelerated(self, smoothness: float, steps: int) -> tuple[Array, Array]:
        """Accelerated gradient steps on the dual from even weights: a point, multipliers."""
        omega, multipliers = self.even()
        contraction = 1.0 / math.sqrt(1.0 + smoothness)
        momentum = (1.0 - contraction) / (1.0 + contraction)
        ahead = omega
        for _ in range(steps):
            weights, _, multipliers = met_sums(self.data, self.price(ahead), multipliers)
            new = ahead - (ahead - weights) / (1.0 + smoothness)
            ahead = new + momentum * (new - omega)
            omega = new
        _, _, multipliers = met_sums(self.data, self.price(omega), multipliers)
        return omega, multipliers


def _push_of_records(push: Array, arms: Arms) -> Array:
    """Factors (n, n) of the kernel of records i and j in the targets, by their arms (n,)."""
    by_arm: Array = np.bincount(arms, minlength=2).astype(np.float64)
    counts = target_counts(by_arm)
    of_arms = push[:, :2] + push[:, 2:4] * counts[2:]
    return np.asarray(of_arms[np.ix_(arms, arms)])
