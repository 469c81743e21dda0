"""Weights of many neighbors of one dataset at once, each with a proved distance to its exact weights.

All neighbors step together in the outer variable of the dual and the multipliers of the sums: first by the
inverse Jacobian of the dataset that they are neighbors of, then each by its own. The records that they share
are one matrix, and the replaced record of each is one row beside it. What is left is solved alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.weighting.dual import DualProblem
from dp2erm_cvx.weighting.form import WeightingForm
from dp2erm_cvx.weighting.neighbor_claims import NeighborClaims, NeighborPoints
from dp2erm_cvx.weighting.neighboring_data import NeighboringData, Numbers, ReplacedRecords

#: Steps with the Jacobian of the base dataset, the same where that of a neighbor is dear, and further steps.
_SHARED_STEPS, _MORE_SHARED_STEPS, _OWN_STEPS = 1, 8, 12
#: Weights that are held in a chunk, and the least and the most neighbors of one.
_CHUNK, _LEAST, _MOST = 2**17, 16, 512
#: Numbers in the table of products of rows, up to which it is made: 64 MB.
_MOST_PRODUCTS = 2**23
#: Part of the goal that an estimate has to reach, as a claim counts rounding as well.
_WITHIN = 0.1
#: Part of the goal that the base dataset is solved to.
_BASE = 0.01


@dataclass(frozen=True)
class NeighborWeights:
    """Weights of m neighbors.

    Parameters
    ----------
    weights
        Weights (m, n); not a number where a neighbor admits none.
    claims
        Proved bounds (m,) of ``|weights - exact weights|_1``; infinite where nothing is proved.
    steps
        Steps (m,) of the solver.
    alone
        Whether a neighbor (m,) was solved alone.
    """

    weights: Array = field(repr=False)
    claims: Array = field(repr=False)
    steps: Numbers = field(repr=False)
    alone: NDArray[np.bool_] = field(repr=False)


class FormNeighbors:
    """Neighbors of one dataset, which differ from it in one record.

    Parameters
    ----------
    form
        The form.
    records
        The records of the dataset.

    Raises
    ------
    DeclarationError
        Where the form is none that is solved.
    InfeasibleError
        Where the boxes cannot hold the sums; shown to the data holder only.
    """

    def __init__(self, form: WeightingForm, records: Records) -> None:
        self.form = form
        self.records = records
        problem = DualProblem(form, records)
        self._together: _Together | None = None
        # A new record is not in the span of features of a kernel that old ones made, and constraints of the
        # imbalance have no claim.
        if not problem.data.similarities and not form.hard:
            self._together = _Together(problem, records)

    @property
    def usable(self) -> bool:
        """Whether neighbors are solved together; one by one for kernels and constraints of the imbalance."""
        return self._together is not None

    def solve(self, index: Numbers, new_records: Records, tolerance: float = 1e-10) -> NeighborWeights:
        """Weights of all neighbors.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m records that take their places.
        tolerance
            Claim, relative to n, above which a neighbor is solved alone, as near as doubles get.

        Returns
        -------
        NeighborWeights

        Raises
        ------
        DeclarationError
            For numbers that are none of records, and not as many new records.
        """
        found = self.together(index, new_records, tolerance)
        alone = ~(found.claims <= tolerance * self.form.n)
        for k in map(int, np.flatnonzero(alone)):
            neighbor = self.records.replaced(int(index[k]), new_records.X[k], int(new_records.a[k]))
            neighbor = _with_outcome(neighbor, int(index[k]), float(new_records.y[k]))
            try:
                one = DualProblem(self.form, neighbor).newton()
            except (InfeasibleError, SolverError):
                found.weights[k] = np.nan
                found.claims[k] = np.inf
                continue
            if one.claim <= found.claims[k]:
                found.weights[k] = one.weights
                found.claims[k] = one.claim
            found.steps[k] += one.steps
        return replace(found, alone=alone)

    def together(self, index: Numbers, new_records: Records, tolerance: float = 1e-10) -> NeighborWeights:
        """Weights of all neighbors as they come from common steps, with infinite claims for the rest.

        Parameters
        ----------
        index, new_records, tolerance
            As of :meth:`solve`.

        Returns
        -------
        NeighborWeights

        Raises
        ------
        DeclarationError
            For numbers that are none of records, and not as many new records.
        """
        m = len(index)
        n = self.form.n
        if len(new_records.a) != m or np.any(index < 0) or np.any(index >= n):
            raise DeclarationError(f"index: must be numbers from 0 to {n - 1}, one per new record")
        weights = np.full((m, n), np.nan)
        claims = np.full(m, np.inf)
        steps = np.zeros(m, dtype=np.int64)
        if self._together is not None:
            size = min(max(_CHUNK // n, _LEAST), _MOST)
            for begin in range(0, m, size):
                chunk = slice(begin, begin + size)
                numbers = np.arange(m)[chunk]
                part = self._together.neighboring.replaced(index[chunk], new_records.at(numbers))
                solved = self._together.solved(part, tolerance * n)
                weights[chunk] = solved.weights
                claims[chunk] = solved.claims
                steps[chunk] = solved.steps
        return NeighborWeights(weights, claims, steps, np.zeros(m, dtype=bool))


def _with_outcome(records: Records, index: int, y: float) -> Records:
    """Records of which one has another outcome."""
    if records.y[index] == y:
        return records
    outcomes = records.y.copy()
    outcomes[index] = y
    return replace(records, y=outcomes)


@dataclass(frozen=True)
class _State:
    """Where m neighbors are: points of the dual, rates of their weights, and what is missed.

    Parameters
    ----------
    points
        The points.
    rates
        How fast weights rise with their arguments (m, n).
    missed
        What is missed of imbalances and what sums are off (m, K + B).
    """

    points: NeighborPoints
    rates: Array
    missed: Array


class _Together:
    """Common steps of neighbors of one dataset."""

    def __init__(self, problem: DualProblem, records: Records) -> None:
        self.data = problem.data
        self.neighboring = NeighboringData(problem.data, records)
        self.judge = NeighborClaims(self.neighboring)
        solution = problem.newton(_BASE * 1e-10)
        outer = problem.outer_point(solution)
        self.y = outer.y
        self.step = outer.step
        self.multipliers = self._multipliers(outer.multipliers)
        self.K = len(outer.y)
        self.lined: Array = np.hstack([problem.data.rows, self.neighboring.inside])
        self._upper = np.triu_indices(self.lined.shape[1])
        self._products: Array | None = None
        self.shared_steps = _MORE_SHARED_STEPS
        if len(self.lined) * len(self._upper[0]) <= _MOST_PRODUCTS:
            self.shared_steps = _SHARED_STEPS
            self._products = self.lined[:, self._upper[0]] * self.lined[:, self._upper[1]]
        self.rates = self._base_rates()
        self.response = float(np.sum(self.rates)) * 2.0
        moments = (self.lined * self.rates[:, None]).T @ self.lined
        self.inverse: Array = np.linalg.pinv(self._jacobians(self.y[None], moments[None])[0])

    def _multipliers(self, found: Array) -> Array:
        """Multipliers (B,) of all blocks; 0 of one that the dataset has no records of."""
        multipliers = np.zeros(self.neighboring.n_blocks)
        for number, block in enumerate(self.data.blocks):
            members = np.arange(self.neighboring.n)[block.members]
            if len(members):
                multipliers[self.neighboring.block[members[0]]] = found[number]
        return multipliers

    def _base_rates(self) -> Array:
        """How fast the weights of the dataset rise with their arguments (n,)."""
        s = self._imbalance(self.y[None])[0]
        prices = self._prices(s[None], self.y[None])[0]
        argument = -(self.data.rows @ prices) - self.data.linear
        argument = argument - self.neighboring.inside @ self.multipliers
        _, rates = self.data.curve.at(argument, slice(None))
        return rates

    def solved(self, part: ReplacedRecords, goal: float) -> NeighborWeights:
        """Weights of some neighbors with claims; nothing is proved of those that the steps do not serve.

        Parameters
        ----------
        part
            The replaced records.
        goal
            Claim that the steps aim at.
        """
        m = len(part)
        n = self.neighboring.n
        y = np.tile(self.y, (m, 1))
        multipliers = np.tile(self.multipliers, (m, 1))
        weights = np.full((m, n), np.nan)
        claims = np.full(m, np.inf)
        steps = np.zeros(m, dtype=np.int64)
        live = np.flatnonzero(part.feasible)
        last = self.shared_steps + _OWN_STEPS
        for step in range(last + 1):
            if not len(live):
                break
            here = part if len(live) == m else part.take(live)
            state = self._state(y[live], multipliers[live], here)
            missed, off = state.missed[:, : self.K], state.missed[:, self.K :]
            near = self.judge.estimates(missed, off, self.response) <= _WITHIN * goal
            if step == last:
                near[:] = True
            steps[live] = step
            done = live[near]
            if len(done):
                points = _taken(state.points, near)
                weights[done] = points.weights
                claims[done] = self.judge.claims(points, part.take(done))
            live = live[~near]
            if not len(live):
                break
            if step < self.shared_steps:
                change = -(state.missed[~near] @ self.inverse.T)
            else:
                change = self._own_steps(y[live], state, ~near, part.take(live))
            y[live] += change[:, : self.K]
            multipliers[live] += change[:, self.K :]
        return NeighborWeights(weights, claims, steps, np.zeros(m, dtype=bool))

    def _state(self, y: Array, multipliers: Array, part: ReplacedRecords) -> _State:
        neighboring = self.neighboring
        s = self._imbalance(y)
        prices = self._prices(s, y)
        argument = -neighboring.scores(prices, part)
        argument -= self.data.linear
        places = np.arange(len(part)), part.index
        argument -= neighboring.levels(multipliers, part)
        argument[places] = -np.sum(prices * part.rows, axis=1) - part.linear
        argument[places] -= neighboring.own_levels(multipliers, part)
        flat, flat_rates = neighboring.curve(part).at(argument.ravel(), slice(None))
        weights = flat.reshape(argument.shape)
        rates = flat_rates.reshape(argument.shape)
        missed = s - neighboring.imbalances(weights, part)
        off = neighboring.sums(weights, part) - part.totals
        points = NeighborPoints(s, prices, multipliers, argument, weights)
        return _State(points, rates, np.hstack([missed, off]))

    def _imbalance(self, y: Array) -> Array:
        """Proximal points s (m, K) of outer variables y (m, K)."""
        s = np.empty_like(y)
        for one in self.data.priced:
            if one.columns.stop > one.columns.start:
                s[:, one.columns] = one.proximal_point(y[:, one.columns], self._step_of(one.columns))
        return s

    def _prices(self, s: Array, y: Array) -> Array:
        """Slopes (m, K) of the penalties at proximal points s of y."""
        otherwise = (y - s) / self.step
        prices = np.empty_like(y)
        for one in self.data.priced:
            prices[:, one.columns] = one.price(s[:, one.columns], otherwise[:, one.columns])
        return prices

    def _step_of(self, columns: slice) -> float:
        return float(self.step[columns.start])

    def _own_steps(self, y: Array, state: _State, chosen: NDArray[np.bool_], part: ReplacedRecords) -> Array:
        """Newton's steps (m, K + B), each by the Jacobian of its neighbor; 0 where that is singular."""
        jacobians = self._jacobians(y, self._moments(state.rates[chosen], part))
        right = -state.missed[chosen]
        try:
            return np.asarray(np.linalg.solve(jacobians, right[:, :, None])[:, :, 0])
        except np.linalg.LinAlgError:
            return np.zeros_like(right)

    def _moments(self, rates: Array, part: ReplacedRecords) -> Array:
        """Sums (m, K + B, K + B) of rates times products of rows, with the blocks as further columns."""
        places = np.arange(len(part)), part.index
        own = rates[places]
        rates[places] = 0.0
        size = self.lined.shape[1]
        moments = np.empty((len(part), size, size))
        if self._products is not None:
            upper = rates @ self._products
            moments[:, self._upper[0], self._upper[1]] = upper
            moments[:, self._upper[1], self._upper[0]] = upper
        else:
            for k, rate in enumerate(rates):
                moments[k] = (self.lined * rate[:, None]).T @ self.lined
        new = np.hstack([part.rows, part.block[:, None] == np.arange(self.neighboring.n_blocks)])
        moments += (own[:, None] * new)[:, :, None] * new[:, None, :]
        return moments

    def _jacobians(self, y: Array, moments: Array) -> Array:
        """Derivatives (m, K + B, K + B) of what is missed by the outer variable and the multipliers."""
        K = self.K
        size = moments.shape[1]
        proximal = np.zeros((len(y), K, K))
        for one in self.data.priced:
            if one.columns.stop > one.columns.start:
                _, slope = one.prox(y[:, one.columns], self._step_of(one.columns))
                proximal[:, one.columns, one.columns] = slope
        through = np.zeros((len(y), size, size))
        through[:, :K, :K] = (np.eye(K) - proximal) / self.step[:, None]
        through[:, range(K, size), range(K, size)] = 1.0
        jacobians = moments @ through
        jacobians[:, K:] *= -1.0
        jacobians[:, :K, :K] += proximal
        diagonal = np.abs(jacobians[:, range(size), range(size)])
        slack = 1e-14 * np.mean(diagonal, axis=1, keepdims=True)
        jacobians[:, range(K), range(K)] += slack
        jacobians[:, range(K, size), range(K, size)] -= slack
        return np.asarray(jacobians)


def _taken(points: NeighborPoints, chosen: NDArray[np.bool_]) -> NeighborPoints:
    """Points of some neighbors."""
    return NeighborPoints(
        points.imbalance[chosen],
        points.prices[chosen],
        points.multipliers[chosen],
        points.argument[chosen],
        points.weights[chosen],
    )
