"""Steps of many neighbors of one dataset at once, by products of all pairs of rows.

In the base dataset weights answer to their arguments at rates, and arguments to weights by the
products of rows: one matrix says how arguments move where a weight is changed from outside. What a
neighbor changes is such a change of few weights: of the record that leaves, of the one that comes,
and of those that answer otherwise than in the base dataset. Each neighbor has a small system of
equations for them (section "Neighbors by pairs" of ``docs/theory/weights_certificate.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import scipy
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.curves.inverse_slope import InverseSlope
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.neighbors.claims import NeighborClaims, NeighborPoints
from dp2erm_cvx.weighting.neighbors.joint_steps import taken
from dp2erm_cvx.weighting.neighbors.many_datasets import OUTSIDE, Numbers
from dp2erm_cvx.weighting.neighbors.pairs import NeighboringPairs, ReplacedPairs
from dp2erm_cvx.weighting.solving.dual import DualProblem
from dp2erm_cvx.weighting.solving.pairs import PairsProblem

#: Steps at most.
_MOST_STEPS = 20
#: Weights that may answer otherwise than in the base dataset; neighbors with more are left.
_MOST_CHANGED = 64
#: Relative change of a rate from which on a weight is one of them; further steps see to smaller
#: ones.
_CHANGED = 0.1
#: Part of the goal that weights may be off at the end of the steps; and what may be rounding,
#: relative to n.
_WITHIN, _ROUNDED = 1e-3, 1e-7


@dataclass(frozen=True)
class _Response:
    """What moves where a weight of the base dataset is changed from outside, and all others answer.

    Parameters
    ----------
    arguments
        Fall (n, n) of the arguments of all records per unit of such a change.
    levels
        Rise (n, B) of the multipliers per unit of such a change, and of the arguments per unit of a
        sum.
    among
        Fall (B, B) of the multipliers per unit of a sum.
    """

    arguments: Array
    levels: Array
    among: Array


def _response(Q: Array, rates: Array, inside: Array) -> _Response:
    """The response at rates (n,), from products of rows (n, n) and blocks (n, B)."""
    free = np.flatnonzero(rates > 0.0)
    root = np.sqrt(rates[free])
    matrix = root[:, None] * Q[np.ix_(free, free)] * root
    matrix[np.diag_indices(len(free))] += 1.0
    factor, _ = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    half = scipy.linalg.solve_triangular(
        factor, root[:, None] * Q[free], lower=True, check_finite=False
    )
    arguments = Q - half.T @ half
    lines = inside - arguments @ (rates[:, None] * inside)
    # A block whose weights all stand at the ends of their boxes has no answer to its sum.
    among = np.linalg.pinv((rates[:, None] * inside).T @ lines)
    among = (among + among.T) / 2.0
    levels = lines @ among
    arguments += levels @ lines.T
    return _Response((arguments + arguments.T) / 2.0, levels, among)


class PairSteps:
    """Common steps of neighbors of one dataset.

    Parameters
    ----------
    problem
        The problem of the dataset, with features of kernels.
    records
        Its records.
    tolerance
        Claim, relative to n, that the dataset itself is solved to.
    """

    def __init__(self, problem: DualProblem, records: Records, tolerance: float) -> None:
        pairs = problem.pairs
        if pairs is None:
            pairs = PairsProblem(problem.data, records.covariates)
        neighboring = NeighboringPairs(problem.data, pairs, records)
        self.neighboring = neighboring
        self.judge = NeighborClaims(neighboring)
        solution = problem.newton(tolerance)
        self.weights = solution.weights
        self.multipliers = neighboring.multipliers_of(solution.multipliers)
        self.argument: Array = pairs.price(self.weights) - neighboring.inside @ self.multipliers
        _, self.rates = problem.data.curve.at(self.argument, slice(None))
        self.response = _response(pairs.Q, self.rates, neighboring.inside)
        self.newton = _Steps(self.response, problem.form.dispersion)

    def solved(
        self, index: Numbers, new_records: Records, goal: float
    ) -> tuple[Array, Array, Numbers]:
        """Weights (m, n) of some neighbors, claims (m,) and numbers of steps (m,).

        Claims are infinite where the steps do not serve.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        new_records
            The m records that take their places.
        goal
            Claim that is aimed at.
        """
        part = self.neighboring.replaced(index, new_records)
        m = len(part)
        weights = np.full((m, self.neighboring.n), np.nan)
        claims = np.full(m, np.inf)
        steps = np.zeros(m, dtype=np.int64)
        live = np.flatnonzero(part.feasible)
        if not len(live):
            return weights, claims, steps
        here = part if len(live) == m else part.take(live)
        with np.errstate(all="ignore"):
            found, multipliers, taken = self.newton.run(_changes(self, here), _WITHIN * goal)
        near = taken > 0
        steps[live] = taken
        done = live[near]
        if len(done):
            chosen = here if np.all(near) else here.take(near)
            arguments = self.neighboring.arguments(found[near], multipliers[near], chosen)
            nothing = np.zeros((len(done), 0))
            points = NeighborPoints(nothing, nothing, multipliers[near], arguments, found[near])
            weights[done] = found[near]
            claims[done] = self._claims(points, chosen, goal)
        return weights, claims, steps

    def _claims(self, points: NeighborPoints, part: ReplacedPairs, goal: float) -> Array:
        """Claims (m,) at the prices that weights have themselves, or by their radii."""
        claims = self.judge.claims_at_own_prices(points, part)
        left = ~(claims <= goal)
        if np.any(left):
            others = self.judge.claims(taken(points, left), part.take(left))
            claims[left] = np.minimum(claims[left], others)
        return claims


@dataclass(frozen=True)
class _Changes:
    """What m neighbors change, in numbers (m, n).

    The new record has the place of the one that leaves.

    Arguments are ``start`` less what changes from outside move them by, where all weights answer to
    them as in the base dataset. The record that leaves is taken out: its weight is 0 whatever its
    argument is.

    Parameters
    ----------
    index
        Number of the replaced record (m,).
    start
        Arguments (m, n) without changes from outside.
    fixed, rates
        Weights (m, n) at the argument 0, and how fast they answer; 0 for the new record.
    column
        Fall (m, n) of arguments per unit of weight of the new record.
    leaving, gain
        Fall (m, n) of arguments per unit of the weight that is taken out, 0 at the new record; and
        how much (m,) is taken out where the argument of that record falls by 1.
    levels, level_column, level_leaving
        Multipliers (m, B) without changes, and their rise per unit of the new weight and of the
        other one.
    low, cap, base
        Boxes of the weights (m, n) and their base weights; of no columns where there are none.
    """

    index: Numbers
    start: Array
    fixed: Array
    rates: Array
    column: Array
    leaving: Array
    gain: Array
    levels: Array
    level_column: Array
    level_leaving: Array
    low: Array
    cap: Array
    base: Array

    def take(self, chosen: NDArray[np.bool_]) -> _Changes:
        """Those neighbors alone."""
        if np.all(chosen):
            return self
        return _Changes(*(getattr(self, part.name)[chosen] for part in fields(self)))

    @property
    def places(self) -> tuple[Numbers, Numbers]:
        """Where the new records stand."""
        return np.arange(len(self.index)), self.index

    def _apart(self, changes: Array) -> tuple[Array, Array]:
        """Changes (m, n) of the records that stay, and the weight (m,) of the new one."""
        shared = changes.copy()
        shared[self.places] = 0.0
        return shared, changes[self.places]

    def moved(self, response: _Response, changes: Array) -> Array:
        """What changes from outside (m, n) lower the arguments (m, n) by."""
        shared, new = self._apart(changes)
        moved = shared @ response.arguments
        moved += (self.gain * _inner_products(self.leaving, shared))[:, None] * self.leaving
        moved += new[:, None] * self.column
        moved[self.places] = _inner_products(self.column, changes)
        return np.asarray(moved)

    def multipliers(self, response: _Response, changes: Array) -> Array:
        """Multipliers (m, B) at changes from outside (m, n)."""
        shared, new = self._apart(changes)
        taken_out = self.gain * _inner_products(self.leaving, shared)
        found = self.levels + shared @ response.levels + new[:, None] * self.level_column
        return np.asarray(found + taken_out[:, None] * self.level_leaving)

    def among(self, response: _Response, member: Numbers, chosen: Numbers) -> Array:
        """What changes of s records (k, s) of each of k neighbors lower their arguments by.

        The result has the shape (k, s, s).
        """
        rows = member[:, None]
        leaving = self.leaving[rows, chosen]
        found = response.arguments[chosen[:, :, None], chosen[:, None, :]]
        found += self.gain[member][:, None, None] * leaving[:, :, None] * leaving[:, None, :]
        column = self.column[rows, chosen]
        own = chosen == self.index[rows]
        found = np.where(own[:, :, None], column[:, None, :], found)
        return np.where(own[:, None, :], column[:, :, None], found)


def _inner_products(first: Array, second: Array) -> Array:
    """Inner products (m,) of the rows of two matrices (m, n)."""
    return np.asarray(np.einsum("ij,ij->i", first, second))


def _changes(base: PairSteps, part: ReplacedPairs) -> _Changes:
    """The changes of neighbors of a dataset (steps 1 to 3 of the theory page)."""
    response = base.response
    neighboring = base.neighboring
    places = part.places
    # Other targets and sums, to which all weights answer.
    shift = part.pulled - neighboring.pairs.b
    shift[places] = 0.0
    off = part.totals - neighboring.inside.T @ base.weights
    answered = shift * base.rates
    start = base.argument + shift - answered @ response.arguments + off @ response.levels.T
    levels = base.multipliers + answered @ response.levels - off @ response.among
    weights = base.weights + base.rates * (start - base.argument)
    # One unit of weight of the new record.
    block = np.maximum(part.block, 0)
    counted = (part.block != OUTSIDE)[:, None]
    answered = part.across * base.rates
    column = part.across - answered @ response.arguments
    column += np.where(counted, response.levels.T[block], 0.0)
    level_column = np.where(counted, response.among[block], 0.0) - answered @ response.levels
    own_start = part.pulled[places] - part.linear - neighboring.own_levels(levels, part)
    own_start -= _inner_products(part.across, weights)
    own_gain = (
        part.own - _inner_products(answered, column) + neighboring.own_levels(level_column, part)
    )
    # The record that leaves answers no longer, and its weight is taken out.
    leaving = response.arguments[part.index]
    level_leaving = response.levels[part.index]
    factor = 1.0 / (1.0 - base.rates[part.index] * leaving[places])
    taken_out = -factor * weights[places]
    gain = factor * base.rates[part.index]
    meets = column[places]
    start -= taken_out[:, None] * leaving
    start[places] = own_start - taken_out * meets
    column += (gain * meets)[:, None] * leaving
    column[places] = own_gain + gain * meets * meets
    leaving[places] = 0.0
    rates = np.tile(base.rates, (len(part), 1))
    rates[places] = 0.0
    fixed = np.tile(base.weights - base.rates * base.argument, (len(part), 1))
    fixed[places] = 0.0
    return _Changes(
        index=part.index,
        start=start,
        fixed=fixed,
        rates=rates,
        column=column,
        leaving=leaving,
        gain=gain,
        levels=levels + taken_out[:, None] * level_leaving,
        level_column=level_column + (gain * meets)[:, None] * level_leaving,
        level_leaving=level_leaving,
        low=part.low,
        cap=part.cap,
        base=part.base,
    )


class _Steps:
    """Newton's steps of neighbors in the arguments of their weights.

    Parameters
    ----------
    response
        The response of the base dataset.
    dispersion
        The dispersion of the form.
    """

    def __init__(self, response: _Response, dispersion: Dispersion) -> None:
        self.response = response
        self.dispersion = dispersion
        #: Whether weights between the ends of their boxes answer at one rate.
        self.straight = dispersion.family == "square"

    def run(self, changes: _Changes, goal: float) -> tuple[Array, Array, Numbers]:
        """Weights (m, n), multipliers (m, B) and numbers of steps (m,).

        They are 0 of neighbors that do not come within the goal.
        """
        m, n = changes.start.shape
        weights = np.full((m, n), np.nan)
        multipliers = np.full(changes.levels.shape, np.nan)
        steps = np.zeros(m, dtype=np.int64)
        live = np.arange(m)
        argument = self._first(changes)
        here = changes
        found, rates = self._answers(here, argument)
        last = np.full(m, np.inf)
        for step in range(1, _MOST_STEPS + 1):
            outside, more, other = self._beside(here, argument, found, rates)
            few = np.sum(other, axis=1) <= _MOST_CHANGED
            if not np.all(few):
                live = live[few]
                here = here.take(few)
                last, outside, more, other = last[few], outside[few], more[few], other[few]
            if not len(live):
                break
            outside = self._changed(here, outside, more, other)
            argument = here.start - here.moved(self.response, outside)
            expected = here.fixed + here.rates * argument + outside
            found, rates = self._answers(here, argument)
            apart = np.sum(np.abs(found - expected), axis=1)
            # What no longer falls is rounding, of which claims will say how much it is.
            near = (apart <= goal) | ((apart <= _ROUNDED * n) & (apart > 0.5 * last))
            done = live[near]
            if len(done):
                weights[done] = found[near]
                multipliers[done] = here.take(near).multipliers(self.response, outside[near])
                steps[done] = step
            live = live[~near]
            here = here.take(~near)
            argument, found, rates, last = argument[~near], found[~near], rates[~near], apart[~near]
        return weights, multipliers, steps

    def _first(self, changes: _Changes) -> Array:
        """Arguments (m, n) that steps begin at.

        They are those without changes, and that of the weight 1 for a new record.
        """
        argument = changes.start.copy()
        places = changes.places
        base = changes.base[places] if changes.base.size else np.ones(len(changes.index))
        even = np.clip(1.0, changes.low[places], changes.cap[places])
        argument[places] = self.dispersion.slope(even / base)
        return argument

    def _answers(self, changes: _Changes, argument: Array) -> tuple[Array, Array]:
        """Weights (m, n) at arguments, and their rates."""
        base = changes.base.ravel() if changes.base.size else None
        curve = InverseSlope(self.dispersion, changes.low.ravel(), changes.cap.ravel(), base)
        weights, rates = curve.at(argument.ravel(), slice(None))
        return weights.reshape(argument.shape), rates.reshape(argument.shape)

    def _beside(
        self, here: _Changes, argument: Array, weights: Array, rates: Array
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Weights less their answers in the base dataset, to a first order in the arguments.

        Returns
        -------
        tuple
            Numbers (m, n) at the argument 0; how much faster (m, n) the weights answer, where that
            is counted; and of which weights (m, n) it is. Numbers of other weights are those at
            their arguments.
        """
        more = rates - here.rates
        other = np.abs(more) > _CHANGED * here.rates
        more = np.where(other, more, 0.0)
        outside = weights - here.fixed - (here.rates + more) * argument
        if self.straight:
            # Weights that answer as in the base dataset have nothing beside their answers but
            # rounding.
            outside[~other & (rates > 0.0)] = 0.0
            other |= outside != 0.0
        return outside, more, other

    def _changed(
        self, here: _Changes, outside: Array, more: Array, other: NDArray[np.bool_]
    ) -> Array:
        """Changes from outside (m, n) after one of Newton's steps, from :meth:`_beside`."""
        member, chosen, used = _padded(other)
        across = here.among(self.response, member, chosen)
        rows = member[:, None]
        rate = np.where(used, more[rows, chosen], 0.0)
        right = here.start[rows, chosen]
        if self.straight:
            known = np.where(used, outside[rows, chosen], 0.0)
            right = right - np.matmul(across, known[:, :, None])[:, :, 0]
        else:
            right = right - here.moved(self.response, outside)[rows, chosen]
        system = across * rate[:, None, :]
        size = chosen.shape[1]
        system[:, range(size), range(size)] += 1.0
        try:
            solved = np.linalg.solve(system, right[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            solved = np.full(right.shape, np.nan)
        np.add.at(outside, (np.repeat(member, size), chosen.ravel()), (rate * solved).ravel())
        return outside


def _padded(other: NDArray[np.bool_]) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Neighbors (k,) with any such record, their numbers (k, s), and which of these are meant."""
    counts = np.sum(other, axis=1)
    member = np.flatnonzero(counts)
    size = int(np.max(counts, initial=0))
    chosen = np.zeros((len(member), size), dtype=np.int64)
    used = np.arange(size) < counts[member][:, None]
    chosen[used] = np.nonzero(other[member])[1]
    return member, chosen, used
