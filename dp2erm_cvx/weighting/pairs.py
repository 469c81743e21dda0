"""Squares of kernel features by all pairs of records: prices are ``Q omega - b``, with weights omega (n).

Every point is an element of the kernel's space, ``lambda = sum_i omega_i z_i - t``, so that what is missed is
``sum_i (omega_i - w_i) z_i`` and its norm the root of ``r'Qr``.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dp2erm_cvx.domain import Array
from dp2erm_cvx.weighting.certificate import Deviations, claimed, claimed_at_own_prices
from dp2erm_cvx.weighting.dataset import WeightingData
from dp2erm_cvx.weighting.inverse_slope import UNIT_ROUNDOFF
from dp2erm_cvx.weighting.multipliers import met_sums, weights_at

#: Newton's steps, halvings of each, and accelerated steps in between where they stall.
_MOST_STEPS, _HALVINGS, _ACCELERATED, _ROUNDS = 60, 25, 200, 4


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
        for one in data.similarities:
            kernel = one.features.kernel
            assert kernel is not None
            K = kernel.cross(X, X)
            K = (K + K.T) / 2.0
            self.Q += one.pull[np.ix_(arms, arms)] * K
            self.b += np.sum(one.push[np.ix_(arms, arms)] * K, axis=1)
            diagonal += np.diag(one.pull)[arms] * np.maximum(one.diagonal, 0.0)
            target_size += n * float(np.max(np.abs(one.push))) * one.largest
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
        self.largest = float(np.max(diagonal)) * (1.0 + 1e-12)
        #: Relative errors of a price: of the sizes of all terms that it is a sum of.
        self.units = (data.entry_units + rows.shape[1] + n + 24.0) * UNIT_ROUNDOFF
        #: Errors of a price per unit of ``|omega|_1``, and of the targets in it.
        self.entry_error = self.units * self.largest
        self.target_error = self.units * target_size
        if rows.shape[1]:
            moved = np.abs(rows) @ (root * data.target_errors[vectors])
            self.target_error += float(np.max(moved)) * (1.0 + 1e-12)

    def price(self, omega: Array) -> Array:
        """Slopes without multipliers (n,) at a point."""
        return -(self.Q @ omega - self.b) - self.data.linear

    def certified(self, omega: Array, multipliers: Array) -> tuple[Array, float]:
        """Weights at a point and a bound of their distance to the exact weights (Theorems 4 and 6)."""
        data = self.data
        price = self.price(omega)
        weights, argument = weights_at(data, price, multipliers)
        error = self._price_errors(price, argument, omega)
        radii = data.curve.radii(weights, argument, error)
        rest = omega - weights
        square = float(rest @ (self.Q @ rest)) + 2.0 * self.entry_error * float(np.sum(np.abs(rest))) ** 2
        row = math.sqrt(self.largest) * (1.0 + 1e-12)
        missed = math.sqrt(max(square, 0.0)) + 4.0 * UNIT_ROUNDOFF * row * float(
            np.sum(np.abs(omega) + weights)
        )
        found = Deviations(weights, radii, missed, 0.0, row, 2.0 * row)
        return weights, min(claimed(data, found), self._claimed_at_own_prices(weights, multipliers, row))

    def _price_errors(self, price: Array, argument: Array, omega: Array) -> Array:
        """Bounds (n,) of the distance of computed from exact arguments at a point."""
        size = np.abs(price) + np.abs(self.data.linear) + np.abs(argument - price)
        pulled = self.entry_error * float(np.sum(np.abs(omega))) + self.target_error
        return np.asarray(8.0 * UNIT_ROUNDOFF * size + pulled)

    def _claimed_at_own_prices(self, weights: Array, multipliers: Array, row: float) -> float:
        """A bound of the distance of weights to the exact weights by the prices that they have themselves."""
        data = self.data
        price = self.price(weights)
        argument = price.copy()
        for number, block in enumerate(data.blocks):
            argument[block.members] -= multipliers[number]
        error = self._price_errors(price, argument, weights)
        off = data.curve.arguments_off(weights, argument, error)
        return claimed_at_own_prices(data, weights, off, row)

    def even(self) -> tuple[Array, Array]:
        """The weights that no imbalance pulls at, and their multipliers."""
        start = np.zeros(len(self.data.blocks))
        weights, _, multipliers = met_sums(self.data, -self.data.linear, start)
        return weights, multipliers

    def newton(self) -> tuple[Array, Array, int]:
        """Points omega (n,) by Newton's method, the multipliers and the number of steps."""
        omega, multipliers = self.even()
        steps = 0
        for _ in range(_ROUNDS):
            omega, multipliers, done, small = self._newton_from(omega, multipliers)
            steps += done
            if small:
                break
            omega, multipliers = self._accelerated_from(omega, multipliers, self._smoothness(), _ACCELERATED)
            steps += _ACCELERATED
        return omega, multipliers, steps

    def _smoothness(self) -> float:
        """Smoothness of the part of the weights in the dual, from rates at the even weights."""
        rates = met_sums(self.data, -self.data.linear, np.zeros(len(self.data.blocks)))[1]
        return max(float(np.sum(rates)) * self.largest, 1.0)

    def _newton_from(self, omega: Array, multipliers: Array) -> tuple[Array, Array, int, bool]:
        weights, rates, multipliers = met_sums(self.data, self.price(omega), multipliers)
        rest = omega - weights
        size = self._size(rest)
        floor = 1e-14 * math.sqrt(self.largest) * len(omega)
        for step in range(_MOST_STEPS):
            if size <= floor:
                return omega, multipliers, step, True
            direction = self._direction(rates, rest) - rest
            length = 1.0
            for _ in range(_HALVINGS):
                there = omega + length * direction
                new_weights, new_rates, new_multipliers = met_sums(self.data, self.price(there), multipliers)
                new_size = self._size(there - new_weights)
                if new_size <= (1.0 - 0.1 * length) * size:
                    break
                length /= 2.0
            else:
                return omega, multipliers, step, size <= 1e3 * floor
            omega, weights, rates, multipliers, size = (
                there,
                new_weights,
                new_rates,
                new_multipliers,
                new_size,
            )
            rest = omega - weights
        return omega, multipliers, _MOST_STEPS, size <= 1e3 * floor

    def _size(self, rest: Array) -> float:
        return math.sqrt(max(float(rest @ (self.Q @ rest)), 0.0))

    def _direction(self, rates: Array, rest: Array) -> Array:
        """Newton's change of the weights: ``(Q + 1/rates) p = Q rest``, with the sums of the blocks kept."""
        n = len(rates)
        inside = np.zeros((n, len(self.data.blocks)))
        for number, block in enumerate(self.data.blocks):
            inside[block.members, number] = 1.0
        free = np.flatnonzero(rates > 0)
        change = np.zeros(n)
        if not len(free):
            return change
        matrix = self.Q[np.ix_(free, free)].copy()
        matrix[np.diag_indices(len(free))] += 1.0 / rates[free]
        factor = cho_factor(matrix, check_finite=False)
        across = inside[free]
        pulled = cho_solve(factor, (self.Q @ rest)[free], check_finite=False)
        spread = cho_solve(factor, across, check_finite=False)
        level = np.linalg.lstsq(across.T @ spread, across.T @ pulled, rcond=None)[0]
        change[free] = pulled - spread @ level
        return change

    def accelerated(self, smoothness: float, steps: int) -> tuple[Array, Array]:
        """Accelerated gradient steps on the dual, from the even weights; a point and its multipliers."""
        omega, multipliers = self.even()
        return self._accelerated_from(omega, multipliers, smoothness, steps)

    def _accelerated_from(
        self, omega: Array, multipliers: Array, smoothness: float, steps: int
    ) -> tuple[Array, Array]:
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
