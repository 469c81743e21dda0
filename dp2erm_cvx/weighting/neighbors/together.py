"""Weights of many neighbors of one dataset at once, each with a proved distance.

All neighbors step together in the outer variable of the dual and the multipliers of the sums: first
by the inverse Jacobian of the dataset that they are neighbors of, then each by its own. The records
that they share are one matrix, and the replaced record of each is one row beside it. What is left
is solved alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.weighting.forms.form import WeightingForm
from dp2erm_cvx.weighting.neighbors.data import NeighboringData, ReplacedRows
from dp2erm_cvx.weighting.neighbors.derivatives import NeighborDerivatives
from dp2erm_cvx.weighting.neighbors.joint_steps import JointSteps, taken
from dp2erm_cvx.weighting.neighbors.many_datasets import Numbers
from dp2erm_cvx.weighting.neighbors.pair_steps import PairSteps
from dp2erm_cvx.weighting.solving.dual import DualProblem

#: Steps with the Jacobian of the base dataset, the same where that of a neighbor is dear, and
#: further steps.
_SHARED_STEPS, _MORE_SHARED_STEPS, _OWN_STEPS = 1, 8, 12
#: Weights that are held in a chunk, and the least and the most neighbors of one.
_CHUNK, _LEAST, _MOST = 2**17, 16, 512
#: Records up to which neighbors are solved by pairs where few features of a kernel serve one
#: dataset.
_MOST_BESIDE_FEATURES = 5000
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
    duals
        Outer variables and multipliers (m, K + B) of common steps; of no columns where these have
        none.
    """

    weights: Array = field(repr=False)
    claims: Array = field(repr=False)
    steps: Numbers = field(repr=False)
    alone: NDArray[np.bool_] = field(repr=False)
    duals: Array = field(repr=False)


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
        self._together: _Together | PairSteps | None = None
        if form.hard:
            # Constraints of the imbalance have no claim.
            return
        if not problem.data.similarities:
            self._together = _Together(problem, records)
        elif problem.pairs is not None or form.n <= _MOST_BESIDE_FEATURES:
            self._together = PairSteps(problem, records, _BASE * 1e-10)

    @property
    def usable(self) -> bool:
        """Whether neighbors are solved together; not under constraints of the imbalance.

        Of kernels, where pairs of records serve one dataset as well, or records are few.
        """
        return self._together is not None

    def solve(
        self, index: Numbers, new_records: Records, tolerance: float = 1e-10
    ) -> NeighborWeights:
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
        neighbors = self.together(index, new_records, tolerance)
        alone = ~(neighbors.claims <= tolerance * self.form.n)
        for k in map(int, np.flatnonzero(alone)):
            replaced = self.records.replaced(int(index[k]), new_records.X[k], int(new_records.a[k]))
            replaced = _with_outcome(replaced, int(index[k]), float(new_records.y[k]))
            try:
                solution = DualProblem(self.form, replaced).newton()
            except (InfeasibleError, SolverError):
                neighbors.weights[k] = np.nan
                neighbors.claims[k] = np.inf
                continue
            if solution.claim <= neighbors.claims[k]:
                neighbors.weights[k] = solution.weights
                neighbors.claims[k] = solution.claim
            neighbors.steps[k] += solution.steps
        return replace(neighbors, alone=alone)

    def together(
        self, index: Numbers, new_records: Records, tolerance: float = 1e-10
    ) -> NeighborWeights:
        """Weights of all neighbors from common steps, with infinite claims where these fail.

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
        duals = np.zeros((m, 0))
        if self._together is not None:
            duals = np.zeros((m, self._together.n_duals))
            size = min(max(_CHUNK // n, _LEAST), _MOST)
            for begin in range(0, m, size):
                chunk = slice(begin, begin + size)
                numbers = np.arange(m)[chunk]
                solved = self._together.solved(index[chunk], new_records.at(numbers), tolerance * n)
                weights[chunk], claims[chunk], steps[chunk], duals[chunk] = solved
        return NeighborWeights(weights, claims, steps, np.zeros(m, dtype=bool), duals)

    @property
    def derivatives(self) -> Callable[[Array, Numbers, Records], NeighborDerivatives] | None:
        """Makes the derivatives at duals (m, K + B) of neighbors; None where none are known."""
        if not isinstance(self._together, _Together):
            return None
        return partial(NeighborDerivatives, self._together, self._together.neighboring)


def _with_outcome(records: Records, index: int, y: float) -> Records:
    """Records of which one has another outcome."""
    if records.y[index] == y:
        return records
    outcomes = records.y.copy()
    outcomes[index] = y
    return replace(records, y=outcomes)


class _Together(JointSteps[ReplacedRows]):
    """Common steps of neighbors of one dataset."""

    def __init__(self, problem: DualProblem, records: Records) -> None:
        neighboring = NeighboringData(problem.data, records)
        self.neighboring = neighboring
        self.data = problem.data
        solution = problem.newton(_BASE * 1e-10)
        outer = problem.outer_point(solution)
        super().__init__(neighboring, outer.step)
        self.y = outer.y
        self.multipliers = neighboring.multipliers_of(outer.multipliers)
        self.shared_steps = _SHARED_STEPS if neighboring.tabled else _MORE_SHARED_STEPS
        self.rates = self._base_rates()
        self.response = float(np.sum(self.rates)) * 2.0
        lined = neighboring.lined
        moments = (lined * self.rates[:, None]).T @ lined
        self.inverse: Array = np.linalg.pinv(self.jacobians(self.y[None], moments[None])[0])

    def _base_rates(self) -> Array:
        """How fast the weights of the dataset rise with their arguments (n,)."""
        s = self.imbalance(self.y[None])
        prices = self.prices(s, self.y[None])[0]
        argument = -(self.data.rows @ prices) - self.data.linear
        argument = argument - self.neighboring.inside @ self.multipliers
        _, rates = self.data.curve.at(argument, slice(None))
        return rates

    @property
    def n_duals(self) -> int:
        """Number of outer variables and multipliers."""
        return len(self.y) + len(self.multipliers)

    def solved(
        self, index: Numbers, new_records: Records, goal: float
    ) -> tuple[Array, Array, Numbers, Array]:
        """Weights (m, n) of some neighbors, claims (m,), numbers of steps (m,), and duals.

        Claims are infinite where the steps do not serve.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m records that take their places.
        goal
            Claim that the steps aim at.
        """
        part = self.neighboring.replaced(index, new_records)
        m = len(part)
        y = np.tile(self.y, (m, 1))
        multipliers = np.tile(self.multipliers, (m, 1))
        weights = np.full((m, self.neighboring.n), np.nan)
        claims = np.full(m, np.inf)
        steps = np.zeros(m, dtype=np.int64)
        live = np.flatnonzero(part.feasible)
        last = self.shared_steps + _OWN_STEPS
        for step in range(last + 1):
            if not len(live):
                break
            here = part
            if len(live) < m:
                here = part.take(live)
            state = self.state(y[live], multipliers[live], here)
            missed = state.missed[:, : self.K]
            off = state.missed[:, self.K :]
            near = self.judge.estimates(missed, off, self.response, here) <= _WITHIN * goal
            if step == last:
                near[:] = True
            steps[live] = step
            done = live[near]
            if len(done):
                points = taken(state.points, near)
                weights[done] = points.weights
                claims[done] = self.judge.claims(points, part.take(done))
            live = live[~near]
            if not len(live):
                break
            if step < self.shared_steps:
                change = -(state.missed[~near] @ self.inverse.T)
            else:
                change = self.own_steps(y[live], state, ~near, part.take(live))
            y[live] += change[:, : self.K]
            multipliers[live] += change[:, self.K :]
        return weights, claims, steps, np.hstack([y, multipliers])
