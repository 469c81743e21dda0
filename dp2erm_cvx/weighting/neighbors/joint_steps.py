"""Steps of many datasets of one form at once.

They are in the outer variable of the dual and the multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.neighbors.claims import NeighborClaims, NeighborPoints
from dp2erm_cvx.weighting.neighbors.many_datasets import DatasetsOfRows, Numbers, Part


@dataclass(frozen=True)
class JointState:
    """Where m datasets are: points of the dual, rates of their weights, and what is missed.

    Parameters
    ----------
    points
        The points.
    rates
        How fast weights rise with their arguments (m, k).
    missed
        What is missed of imbalances and what sums are off (m, K + B).
    """

    points: NeighborPoints
    rates: Array
    missed: Array


class JointSteps(Generic[Part]):
    """States of datasets at points of the dual, and Newton's steps.

    ``s = prox(y)`` is an imbalance and the slope of its penalty there its price, as of one dataset.

    Parameters
    ----------
    datasets
        The datasets.
    step
        Steps (K,) of the proximal steps, the same for all coordinates of one imbalance.
    """

    def __init__(self, datasets: DatasetsOfRows[Part], step: Array) -> None:
        self.datasets = datasets
        self.step = step
        self.K = len(step)
        self.judge = NeighborClaims(datasets)

    def state(self, y: Array, multipliers: Array, part: Part) -> JointState:
        """The state at outer variables y (m, K) and multipliers (m, B)."""
        datasets = self.datasets
        s = self.imbalance(y)
        prices = self.prices(s, y)
        argument = datasets.arguments(prices, multipliers, part)
        flat, flat_rates = datasets.curve(part).at(argument.ravel(), slice(None))
        weights = flat.reshape(argument.shape)
        rates = flat_rates.reshape(argument.shape)
        missed = s - datasets.imbalances(weights, part)
        off = datasets.sums(weights, part) - part.totals
        points = NeighborPoints(s, prices, multipliers, argument, weights)
        return JointState(points, rates, np.hstack([missed, off]))

    def imbalance(self, y: Array) -> Array:
        """Proximal points s (m, K) of outer variables y (m, K)."""
        s = np.empty_like(y)
        for priced in self.datasets.priced:
            columns = priced.columns
            if columns.stop > columns.start:
                s[:, columns] = priced.proximal_point(y[:, columns], self._step_of(columns))
        return s

    def prices(self, s: Array, y: Array) -> Array:
        """Slopes (m, K) of the penalties at proximal points s of y."""
        by_step = (y - s) / self.step
        prices = np.empty_like(y)
        for priced in self.datasets.priced:
            columns = priced.columns
            prices[:, columns] = priced.price(s[:, columns], by_step[:, columns])
        return prices

    def own_steps(
        self,
        y: Array,
        state: JointState,
        chosen: NDArray[np.bool_],
        part: Part,
        damping: Array | None = None,
    ) -> Array:
        """Newton's steps (m, K + B), each by the Jacobian of its dataset; 0 where that is singular.

        Parameters
        ----------
        y
            Outer variables (m, K) of the chosen datasets.
        state
            The state of all.
        chosen
            Which of the state are meant.
        part
            The chosen datasets.
        damping
            By how much more (m, K) than they do imbalances are taken to answer to their prices,
            which shortens the steps of prices; None for nothing.
        """
        moments = self.datasets.moments(state.rates[chosen], part)
        if damping is not None:
            diagonal = range(self.K)
            moments[:, diagonal, diagonal] += damping
        jacobians = self.jacobians(y, moments)
        right = -state.missed[chosen]
        try:
            return np.asarray(np.linalg.solve(jacobians, right[:, :, None])[:, :, 0])
        except np.linalg.LinAlgError:
            return np.zeros_like(right)

    def jacobians(self, y: Array, moments: Array) -> Array:
        """Derivatives (m, K + B, K + B) of what is missed.

        They are by the outer variable and the multipliers. With P the slope of ``s = prox(y)``,
        prices change by ``(I - P) / step``, and weights by minus their moments times the change of
        prices and multipliers.

        Parameters
        ----------
        y
            Outer variables (m, K).
        moments
            Sums (m, K + B, K + B) of rates times products of rows.
        """
        K = self.K
        size = moments.shape[1]
        proximal, through = self.price_slopes(y, size - K)
        jacobians = moments @ through
        jacobians[:, K:] *= -1.0
        jacobians[:, :K, :K] += proximal
        # A little of the mean diagonal entry keeps singular ones solvable.
        diagonal = np.abs(jacobians[:, range(size), range(size)])
        slack = 1e-14 * np.mean(diagonal, axis=1, keepdims=True)
        jacobians[:, range(K), range(K)] += slack
        jacobians[:, range(K, size), range(K, size)] -= slack
        return np.asarray(jacobians)

    def price_slopes(self, y: Array, n_blocks: int) -> tuple[Array, Array]:
        """Derivatives by the outer variable y (m, K), and by the multipliers of B blocks.

        Returns
        -------
        proximal
            Those of proximal points, (m, K, K).
        through
            Those of prices and multipliers, (m, K + B, K + B).
        """
        K = self.K
        size = K + n_blocks
        proximal = self._proximal_slopes(y)
        through = np.zeros((len(y), size, size))
        through[:, :K, :K] = (np.eye(K) - proximal) / self.step[:, None]
        through[:, range(K, size), range(K, size)] = 1.0
        return proximal, through

    def _proximal_slopes(self, y: Array) -> Array:
        """Slopes (m, K, K) of the proximal points of outer variables y (m, K)."""
        slopes = np.zeros((len(y), self.K, self.K))
        for priced in self.datasets.priced:
            columns = priced.columns
            if columns.stop > columns.start:
                _, slope = priced.prox(y[:, columns], self._step_of(columns))
                slopes[:, columns, columns] = slope
        return slopes

    def _step_of(self, columns: slice) -> float:
        """The step of an imbalance, the same for all of its coordinates."""
        return float(self.step[columns.start])


def taken(points: NeighborPoints, chosen: NDArray[np.bool_] | Numbers) -> NeighborPoints:
    """Points of some datasets."""
    return NeighborPoints(*(getattr(points, part.name)[chosen] for part in fields(points)))
