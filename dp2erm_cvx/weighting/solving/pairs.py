"""Squares of kernel features by all pairs of records: prices are ``Q omega - b``.

Every point is an element of the kernel's space, ``lambda = sum_i omega_i z_i - t``, so that what is
missed is ``sum_i (omega_i - w_i) z_i`` and its norm the root of ``r'Qr``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from dp2erm_cvx.weighting.solving.dataset import (
    MEAN_TARGETS,
    PUBLIC_TARGET,
    SUM_TARGETS,
    Similarities,
    WeightingData,
    kernel_of,
    push_size,
    target_counts,
)
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
        self.Q: Array = np.zeros((n, n))
        self.b: Array = np.zeros(n)
        #: Diagonal (n,) of Q, without the rounding of a product.
        self._diagonal: Array = np.zeros(n)
        #: Bound of the sizes of all terms of a target.
        self._target_size = 0.0
        for squares in data.similarities:
            self._add_kernel(squares, X)
        self._add_vectors()
        self.largest = float(np.max(self._diagonal)) * ROUND_UP
        #: Relative errors of a price: of the sizes of all terms that it is a sum of.
        self.units = (
            data.entry_units + data.vector_columns + n + self._most_points() + 24.0
        ) * UNIT
        #: Errors of a price per unit of ``|omega|_1``, and of the targets in it.
        self.entry_error = self.units * self.largest
        self.target_error = self.units * self._target_size + self._vector_target_error()

    def price(self, omega: Array, share: float = 1.0) -> Array:
        """Slopes without multipliers (n,) at a point, of a share of the price of the imbalance."""
        return -share * (self.Q @ omega - self.b) - self.data.linear

    def certified(self, omega: Array, multipliers: Array) -> tuple[Array, float]:
        """Weights at a point and a bound of their distance to the exact weights.

        The bound is that of Theorems 35 and 36.

        Parameters
        ----------
        omega
            Numbers (n,) that the point is made of.
        multipliers
            Multipliers, one per block.

        Returns
        -------
        tuple
            The weights (n,), and the bound.
        """
        data = self.data
        price = self.price(omega)
        weights, argument = weights_at(data, price, multipliers)
        error = self._price_errors(price, argument, omega)
        radii = data.curve.radii(weights, argument, error)
        row = math.sqrt(self.largest) * ROUND_UP
        deviations = Deviations(
            weights=weights,
            radii=radii,
            smooth=self._missed(omega, weights, row),
            kinks=0.0,
            row=row,
            diameter=2.0 * row,
        )
        claim = claimed(data, deviations)
        return weights, min(claim, self._claimed_at_own_prices(weights, multipliers, row))

    @cached_property
    def least_eigenvalue(self) -> float:
        """A lower bound of the eigenvalues of the exact products of rows of free weights."""
        free = np.flatnonzero(self.data.free)
        n = len(free)
        if not n:
            return 0.0
        # Entries are off by their rounding, and computed eigenvalues by units of the norm
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

    def accelerated(self, smoothness: float, steps: int) -> tuple[Array, Array]:
        """Accelerated gradient steps on the dual from even weights (Theorem 34).

        Parameters
        ----------
        smoothness
            Smoothness of the part of the weights in the dual: l of the theorem.
        steps
            Number of steps.

        Returns
        -------
        tuple
            A point omega (n,), and the multipliers there.
        """
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

    def _add_kernel(self, squares: Similarities, X: Array) -> None:
        """Add the squares of the features of one kernel, at covariates X (n, p).

        ``Q_ij = p_{a_i a_j} K_ij`` and ``b_i = sum_j p'_{a_i a_j} K_ij``, beside n times the mean
        of the kernel over public points.
        """
        arms = self.data.arms
        n = len(arms)
        kernel = kernel_of(squares.features)
        K = kernel.cross(X, X)
        K = (K + K.T) / 2.0
        self.Q += squares.pull[np.ix_(arms, arms)] * K
        self.b += np.sum(_push_of_records(squares.push, arms) * K, axis=1)
        self._diagonal += np.diag(squares.pull)[arms] * np.maximum(squares.diagonal, 0.0)
        largest = squares.largest
        points = squares.features.points
        if points is not None:
            means = np.mean(kernel.cross(X, points), axis=1)
            self.b += squares.push[arms, PUBLIC_TARGET] * n * means
            largest = max(largest, float(np.max(squares.at_points)))
        self._target_size += n * push_size(squares.push) * largest

    def _add_vectors(self) -> None:
        """Add the squares of vectors.

        Features of a kernel, where the records have few, are among its pairs already.
        """
        data = self.data
        if not data.vector_columns:
            return
        vectors = slice(0, data.vector_columns)
        root = np.sqrt(data.smoothness[vectors])
        rows = data.rows[:, vectors] * root
        targets = data.targets[vectors] * root
        self.Q += rows @ rows.T
        self.b += rows @ targets
        squares = np.sum(np.square(rows), axis=1)
        self._diagonal += squares
        longest = math.sqrt(float(np.max(squares)))
        self._target_size += longest * float(np.linalg.norm(targets))

    def _most_points(self) -> int:
        """Largest number of public points of a kernel."""
        most = 0
        for squares in self.data.similarities:
            if squares.features.points is not None:
                most = max(most, len(squares.features.points))
        return most

    def _vector_target_error(self) -> float:
        """What the rounding of the targets of vectors may move a price by."""
        data = self.data
        if not data.vector_columns:
            return 0.0
        vectors = slice(0, data.vector_columns)
        root = np.sqrt(data.smoothness[vectors])
        rows = data.rows[:, vectors] * root
        return float(np.max(np.abs(rows) @ (root * data.target_errors[vectors]))) * ROUND_UP

    def _missed(self, omega: Array, weights: Array, row: float) -> float:
        """Bound of ``|e|``, with ``|e|^2 = r'Qr`` for ``r = omega - w`` (Theorem 35)."""
        r = omega - weights
        rounding = 2.0 * self.entry_error * float(np.sum(np.abs(r))) ** 2
        square = float(r @ (self.Q @ r)) + rounding
        mass = float(np.sum(np.abs(omega) + weights))
        return math.sqrt(max(square, 0.0)) + 4.0 * UNIT * row * mass

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
        arguments_off = data.curve.arguments_off(weights, argument, error)
        claim = claimed_at_own_prices(data, weights, arguments_off, row)
        n = len(weights)
        if claim <= _EIGENVALUES_FROM * n or n > _MOST_EIGENVALUES or not math.isfinite(claim):
            return claim
        by_eigenvalues = claimed_by_eigenvalues(
            data, weights, arguments_off, row, self.least_eigenvalue
        )
        return min(claim, by_eigenvalues)

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
        here = self._state(omega, multipliers, share)
        floor = 1e-14 * math.sqrt(self.largest) * len(omega)
        for step in range(_MOST_STEPS):
            if here.size <= floor:
                return here.omega, here.multipliers, step, True
            ahead = self._searched(here, share)
            if ahead is None:
                return here.omega, here.multipliers, step, here.size <= 1e3 * floor
            here = ahead
        return here.omega, here.multipliers, _MOST_STEPS, here.size <= 1e3 * floor

    def _searched(self, here: _State, share: float) -> _State | None:
        """A point along Newton's step at which the dual is lower; None where none is found."""
        direction = self._direction(here.rates, here.missed, share) - here.missed
        fall = -share * float(direction @ (self.Q @ here.missed))
        length = 1.0
        for _ in range(_HALVINGS):
            ahead = self._state(here.omega + length * direction, here.multipliers, share)
            if ahead.value <= here.value - _ARMIJO * length * fall:
                return ahead
            # Values near the solution differ by less than their rounding.
            rounded = fall <= 1e-11 * abs(here.value)
            if rounded and ahead.size <= (1.0 - 0.1 * length) * here.size:
                return ahead
            length /= 2.0
        return None

    def _state(self, omega: Array, multipliers: Array, share: float) -> _State:
        """Weights and the dual at a point, from a guess of the multipliers."""
        weights, rates, multipliers = met_sums(self.data, self.price(omega, share), multipliers)
        missed = omega - weights
        size = math.sqrt(max(float(missed @ (self.Q @ missed)), 0.0))
        value = self._dual_value(omega, weights, multipliers, share)
        return _State(omega, multipliers, rates, missed, size, value)

    def _dual_value(self, omega: Array, weights: Array, multipliers: Array, share: float) -> float:
        """The negative value of the dual, with the derivative ``share Q (omega - weights)``."""
        data = self.data
        base = np.ones_like(weights)
        if data.curve.base is not None:
            base = data.curve.base
        dispersion = base * data.form.dispersion.value(weights / base)
        square = share * float(omega @ (self.Q @ omega)) / 2.0
        value = square + float(self.price(omega, share) @ weights)
        value -= float(np.sum(dispersion))
        for number, block in enumerate(data.blocks):
            off = float(np.sum(weights[block.members])) - block.total
            value -= float(multipliers[number]) * off
        return value

    def _direction(self, rates: Array, missed: Array, share: float) -> Array:
        """Newton's change p of the weights: ``(s Q + 1/rates) p = s Q missed``.

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
        blocks = inside[free]
        matrix = share * self.Q[np.ix_(free, free)]
        matrix[np.diag_indices(len(free))] += 1.0 / rates[free]
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
        right = share * (self.Q @ missed)[free]
        pulled = scipy.linalg.cho_solve(factor, right, check_finite=False)
        # The change of the multipliers that keeps the sums.
        per_level = scipy.linalg.cho_solve(factor, blocks, check_finite=False)
        level = np.linalg.lstsq(blocks.T @ per_level, blocks.T @ pulled, rcond=None)[0]
        change[free] = pulled - per_level @ level
        return change


@dataclass(frozen=True)
class _State:
    """Where Newton's method is.

    Parameters
    ----------
    omega
        The point (n,).
    multipliers
        Multipliers, one per block, at which the weights have their sums.
    rates
        How fast the weights (n,) rise with their arguments.
    missed
        The point less the weights (n,).
    size
        Norm of what is missed of the imbalance.
    value
        The negative value of the dual.
    """

    omega: Array
    multipliers: Array
    rates: Array
    missed: Array
    size: float
    value: float


def _push_of_records(push: Array, arms: Arms) -> Array:
    """Factors (n, n) of the kernel of records i and j in the targets, by their arms (n,).

    ``p'_{a_i a_j} + n q_{a_i a_j} / n_{a_j}``, as the mean of an arm counts q n times.
    """
    arm_sizes: Array = np.bincount(arms, minlength=2).astype(np.float64)
    counts = target_counts(arm_sizes)
    of_arms = push[:, SUM_TARGETS] + push[:, MEAN_TARGETS] * counts[MEAN_TARGETS]
    return np.asarray(of_arms[np.ix_(arms, arms)])
