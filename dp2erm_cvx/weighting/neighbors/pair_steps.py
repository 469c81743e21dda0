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
    argument_per_weight
        Fall (n, n) of the arguments of all records per unit of such a change: M of the page.
    level_per_weight
        Rise (n, B) of the multipliers per unit of such a change, and of the arguments per unit of a
        sum: U of the page.
    level_per_sum
        Fall (B, B) of the multipliers per unit of a sum: the inverse of H of the page.
    """

    argument_per_weight: Array
    level_per_weight: Array
    level_per_sum: Array


def _response(Q: Array, rates: Array, blocks: Array) -> _Response:
    """The response (paragraph "Response" of the page).

    Parameters
    ----------
    Q
        Products of rows (n, n).
    rates
        How fast weights answer to their arguments (n,): D of the page.
    blocks
        Whether a record (n, B) is in a block: E of the page.
    """
    free = np.flatnonzero(rates > 0.0)
    root = np.sqrt(rates[free])
    # M_0 = Q - Q R (I + R Q R)^-1 R Q with R^2 = D, where half' half is what is subtracted.
    system = root[:, None] * Q[np.ix_(free, free)] * root
    system[np.diag_indices(len(free))] += 1.0
    factor, _ = scipy.linalg.cho_factor(system, lower=True, check_finite=False)
    half = scipy.linalg.solve_triangular(
        factor, root[:, None] * Q[free], lower=True, check_finite=False
    )
    argument_per_weight = Q - half.T @ half
    # L E = (I - M_0 D) E.
    block_answers = blocks - argument_per_weight @ (rates[:, None] * blocks)
    # H = E' D L E; a block whose weights all stand at the ends of their boxes has no answer to its
    # sum.
    level_per_sum = np.linalg.pinv((rates[:, None] * blocks).T @ block_answers)
    level_per_sum = (level_per_sum + level_per_sum.T) / 2.0
    # U = L E H^-1 and M = M_0 + U E' L'.
    level_per_weight = block_answers @ level_per_sum
    argument_per_weight += level_per_weight @ block_answers.T
    symmetric = (argument_per_weight + argument_per_weight.T) / 2.0
    return _Response(symmetric, level_per_weight, level_per_sum)


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

    #: These steps have no outer variable.
    n_duals = 0

    def solved(
        self, index: Numbers, new_records: Records, goal: float
    ) -> tuple[Array, Array, Numbers, Array]:
        """Weights (m, n) of some neighbors, claims (m,), numbers of steps (m,), and no duals.

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
        every = self.neighboring.replaced(index, new_records)
        m = len(every)
        weights = np.full((m, self.neighboring.n), np.nan)
        claims = np.full(m, np.inf)
        steps = np.zeros(m, dtype=np.int64)
        no_duals = np.zeros((m, 0))
        live = np.flatnonzero(every.feasible)
        if not len(live):
            return weights, claims, steps, no_duals
        part = every
        if len(live) < m:
            part = every.take(live)
        with np.errstate(all="ignore"):
            ends = self.newton.run(_changes(self, part), _WITHIN * goal)
        steps[live] = ends.steps
        near = ends.steps > 0
        done = live[near]
        if not len(done):
            return weights, claims, steps, no_duals
        if not np.all(near):
            part = part.take(near)
        weights[done] = ends.weights[near]
        claims[done] = self._claims(ends.weights[near], ends.multipliers[near], part, goal)
        return weights, claims, steps, no_duals

    def _claims(
        self, weights: Array, multipliers: Array, part: ReplacedPairs, goal: float
    ) -> Array:
        """Claims (m,) at the prices that weights have themselves, or by their radii."""
        arguments = self.neighboring.arguments(weights, multipliers, part)
        no_columns = np.zeros((len(part), 0))
        points = NeighborPoints(no_columns, no_columns, multipliers, arguments, weights)
        claims = self.judge.claims_at_own_prices(points, part)
        missed = ~(claims <= goal)
        if np.any(missed):
            by_radii = self.judge.claims(taken(points, missed), part.take(missed))
            claims[missed] = np.minimum(claims[missed], by_radii)
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

    def moved(self, response: _Response, changes: Array) -> Array:
        """What changes from outside (m, n) lower the arguments (m, n) by."""
        staying, new_weight = self._split(changes)
        moved = staying @ response.argument_per_weight
        moved += (self.gain * _inner_products(self.leaving, staying))[:, None] * self.leaving
        moved += new_weight[:, None] * self.column
        moved[self.places] = _inner_products(self.column, changes)
        return np.asarray(moved)

    def multipliers(self, response: _Response, changes: Array) -> Array:
        """Multipliers (m, B) at changes from outside (m, n)."""
        staying, new_weight = self._split(changes)
        taken_out = self.gain * _inner_products(self.leaving, staying)
        multipliers = self.levels + staying @ response.level_per_weight
        multipliers += new_weight[:, None] * self.level_column
        return np.asarray(multipliers + taken_out[:, None] * self.level_leaving)

    def moved_among(self, response: _Response, member: Numbers, chosen: Numbers) -> Array:
        """What changes of s records lower the arguments of these same records by.

        The result has the shape (k, s, s).

        Parameters
        ----------
        response
            The response of the base dataset.
        member
            Numbers (k,) of the neighbors that are meant.
        chosen
            Numbers (k, s) of the records of each.
        """
        rows = member[:, None]
        leaving = self.leaving[rows, chosen]
        moved = response.argument_per_weight[chosen[:, :, None], chosen[:, None, :]]
        moved += self.gain[member][:, None, None] * leaving[:, :, None] * leaving[:, None, :]
        column = self.column[rows, chosen]
        is_new = chosen == self.index[rows]
        moved = np.where(is_new[:, :, None], column[:, None, :], moved)
        return np.where(is_new[:, None, :], column[:, :, None], moved)

    def _split(self, changes: Array) -> tuple[Array, Array]:
        """Changes (m, n) of the records that stay, and the weight (m,) of the new one."""
        staying = changes.copy()
        staying[self.places] = 0.0
        return staying, changes[self.places]


def _changes(base: PairSteps, part: ReplacedPairs) -> _Changes:
    """The changes of neighbors of a dataset (paragraph "One record" of the page)."""
    response = base.response
    index = part.index
    places = part.places
    moved = _with_other_targets(base, part)
    new = _per_new_weight(base, part)
    own_argument = part.pulled[places] - part.linear
    own_argument = own_argument - base.neighboring.own_levels(moved.levels, part)
    own_argument -= _inner_products(part.across, moved.weights)
    # The record j that leaves has the change c_j = -(w_0j + D_j (X_j - X_0j)), where c_j itself
    # lowers X_j by M_jj c_j: both are divided by 1 - D_j M_jj.
    leaving = response.argument_per_weight[index]
    level_leaving = response.level_per_weight[index]
    factor = 1.0 / (1.0 - base.rates[index] * leaving[places])
    taken_out = -factor * moved.weights[places]
    gain = factor * base.rates[index]
    new_at_leaving = new.column[places]
    start = moved.argument
    start -= taken_out[:, None] * leaving
    start[places] = own_argument - taken_out * new_at_leaving
    column = new.column
    column += (gain * new_at_leaving)[:, None] * leaving
    column[places] = new.own + gain * new_at_leaving * new_at_leaving
    leaving[places] = 0.0
    rates = np.tile(base.rates, (len(part), 1))
    rates[places] = 0.0
    fixed = np.tile(base.weights - base.rates * base.argument, (len(part), 1))
    fixed[places] = 0.0
    return _Changes(
        index=index,
        start=start,
        fixed=fixed,
        rates=rates,
        column=column,
        leaving=leaving,
        gain=gain,
        levels=moved.levels + taken_out[:, None] * level_leaving,
        level_column=new.levels + (gain * new_at_leaving)[:, None] * level_leaving,
        level_leaving=level_leaving,
        low=part.low,
        cap=part.cap,
        base=part.base,
    )


@dataclass(frozen=True)
class _Moved:
    """Where the records of the base dataset are at the targets and sums of m neighbors.

    Parameters
    ----------
    argument
        Arguments (m, n).
    levels
        Multipliers (m, B).
    weights
        Weights (m, n), as they answer in the base dataset.
    """

    argument: Array
    levels: Array
    weights: Array


def _with_other_targets(base: PairSteps, part: ReplacedPairs) -> _Moved:
    """Where a shift of all arguments and of the sums moves the base dataset."""
    response = base.response
    shift = part.pulled - base.neighboring.pairs.b
    shift[part.places] = 0.0
    sum_shift = part.totals - base.neighboring.inside.T @ base.weights
    # delta X = s - M D s + U tau and delta nu = U' D s - H^-1 tau.
    answered = shift * base.rates
    argument = base.argument + shift - answered @ response.argument_per_weight
    argument = argument + sum_shift @ response.level_per_weight.T
    levels = base.multipliers + answered @ response.level_per_weight
    levels = levels - sum_shift @ response.level_per_sum
    weights = base.weights + base.rates * (argument - base.argument)
    return _Moved(argument, levels, weights)


@dataclass(frozen=True)
class _NewWeight:
    """What one unit of weight of the new record of m neighbors does.

    Parameters
    ----------
    column
        Fall (m, n) of the arguments of the base dataset: k of the page.
    levels
        Rise (m, B) of the multipliers.
    own
        Fall (m,) of the argument of the new record itself.
    """

    column: Array
    levels: Array
    own: Array


def _per_new_weight(base: PairSteps, part: ReplacedPairs) -> _NewWeight:
    """What one unit of weight of the new record does."""
    response = base.response
    block = np.maximum(part.block, 0)
    in_block = (part.block != OUTSIDE)[:, None]
    answered = part.across * base.rates
    # k = q - M D q + U e, for the products q of the new record with the others and its block e.
    column = part.across - answered @ response.argument_per_weight
    column += np.where(in_block, response.level_per_weight.T[block], 0.0)
    # Multipliers rise by H^-1 e - U' D q.
    levels = np.where(in_block, response.level_per_sum[block], 0.0)
    levels = levels - answered @ response.level_per_weight
    # Its own argument falls by d - q' D k + e' (H^-1 e - U' D q), with d the square of its row.
    own = part.own - _inner_products(answered, column)
    own = own + base.neighboring.own_levels(levels, part)
    return _NewWeight(column, levels, own)


def _inner_products(first: Array, second: Array) -> Array:
    """Inner products (m,) of the rows of two matrices (m, n)."""
    return np.asarray(np.einsum("ij,ij->i", first, second))


@dataclass(frozen=True)
class _Ends:
    """Where the steps of m neighbors end.

    Parameters
    ----------
    weights
        Weights (m, n); not a number for neighbors that do not come within the goal.
    multipliers
        Multipliers (m, B), the same.
    steps
        Numbers of steps (m,); 0 for neighbors that do not come within the goal.
    """

    weights: Array
    multipliers: Array
    steps: Numbers


@dataclass(frozen=True)
class _Outside:
    """Weights less their answers in the base dataset, to a first order in the arguments.

    Parameters
    ----------
    changes
        Numbers (m, n) at the argument 0 where the faster answer is counted; elsewhere those at the
        arguments.
    faster
        How much faster (m, n) the weights answer, where that is counted; else 0.
    counted
        Of which weights (m, n) that is counted.
    """

    changes: Array
    faster: Array
    counted: NDArray[np.bool_]

    def take(self, chosen: NDArray[np.bool_]) -> _Outside:
        """Those neighbors alone."""
        return _Outside(self.changes[chosen], self.faster[chosen], self.counted[chosen])


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

    def run(self, changes: _Changes, goal: float) -> _Ends:
        """Steps of all neighbors, until weights are within the goal of their answers or rounding.

        Parameters
        ----------
        changes
            What the neighbors change.
        goal
            Distance in the 1-norm of weights to those that their arguments ask for.
        """
        m, n = changes.start.shape
        ends = _Ends(
            weights=np.full((m, n), np.nan),
            multipliers=np.full(changes.levels.shape, np.nan),
            steps=np.zeros(m, dtype=np.int64),
        )
        live = np.arange(m)
        here = changes
        argument = self._first(changes)
        weights, rates = self._answers(here, argument)
        last_distance = np.full(m, np.inf)
        for step in range(1, _MOST_STEPS + 1):
            outside = self._outside(here, argument, weights, rates)
            few = np.sum(outside.counted, axis=1) <= _MOST_CHANGED
            if not np.all(few):
                live = live[few]
                here = here.take(few)
                outside = outside.take(few)
                last_distance = last_distance[few]
            if not len(live):
                break
            solved = self._solved(here, outside)
            argument = here.start - here.moved(self.response, solved)
            expected = here.fixed + here.rates * argument + solved
            weights, rates = self._answers(here, argument)
            distance = np.sum(np.abs(weights - expected), axis=1)
            # What no longer falls is rounding, of which claims will say how much it is.
            rounding = (distance <= _ROUNDED * n) & (distance > 0.5 * last_distance)
            near = (distance <= goal) | rounding
            done = live[near]
            if len(done):
                ends.weights[done] = weights[near]
                ends.multipliers[done] = here.take(near).multipliers(self.response, solved[near])
                ends.steps[done] = step
            live = live[~near]
            here = here.take(~near)
            argument = argument[~near]
            weights = weights[~near]
            rates = rates[~near]
            last_distance = distance[~near]
        return ends

    def _first(self, changes: _Changes) -> Array:
        """Arguments (m, n) that steps begin at.

        They are those without changes, and that of the weight 1 for a new record.
        """
        argument = changes.start.copy()
        places = changes.places
        base = np.ones(len(changes.index))
        if changes.base.size:
            base = changes.base[places]
        even = np.clip(1.0, changes.low[places], changes.cap[places])
        argument[places] = self.dispersion.slope(even / base)
        return argument

    def _answers(self, changes: _Changes, argument: Array) -> tuple[Array, Array]:
        """Weights (m, n) at arguments, and their rates."""
        base = None
        if changes.base.size:
            base = changes.base.ravel()
        curve = InverseSlope(self.dispersion, changes.low.ravel(), changes.cap.ravel(), base)
        weights, rates = curve.at(argument.ravel(), slice(None))
        return weights.reshape(argument.shape), rates.reshape(argument.shape)

    def _outside(self, here: _Changes, argument: Array, weights: Array, rates: Array) -> _Outside:
        """Weights less their answers in the base dataset.

        ``c_i = h_i(X_i) - w_0i - D_i (X_i - X_0i)``, of slope Delta_i, which is counted where it is
        above a tenth of D_i.
        """
        faster = rates - here.rates
        counted = np.abs(faster) > _CHANGED * here.rates
        faster = np.where(counted, faster, 0.0)
        changes = weights - here.fixed - (here.rates + faster) * argument
        if self.straight:
            # Weights that answer as in the base dataset have nothing beside their answers but
            # rounding.
            changes[~counted & (rates > 0.0)] = 0.0
            counted |= changes != 0.0
        return _Outside(changes, faster, counted)

    def _solved(self, here: _Changes, outside: _Outside) -> Array:
        """Changes from outside (m, n) after one of Newton's steps."""
        changes = outside.changes
        member, chosen, used = _padded(outside.counted)
        rows = member[:, None]
        across = here.moved_among(self.response, member, chosen)
        faster = np.where(used, outside.faster[rows, chosen], 0.0)
        right = here.start[rows, chosen]
        if self.straight:
            constants = np.where(used, changes[rows, chosen], 0.0)
            right = right - np.matmul(across, constants[:, :, None])[:, :, 0]
        else:
            right = right - here.moved(self.response, changes)[rows, chosen]
        # (I + A Delta) X = start - A c for the arguments X of the records that are counted.
        system = across * faster[:, None, :]
        size = chosen.shape[1]
        system[:, range(size), range(size)] += 1.0
        try:
            arguments = np.linalg.solve(system, right[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            arguments = np.full(right.shape, np.nan)
        repeated = np.repeat(member, size)
        np.add.at(changes, (repeated, chosen.ravel()), (faster * arguments).ravel())
        return changes


def _padded(counted: NDArray[np.bool_]) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Neighbors (k,) with any such record, their numbers (k, s), and which of these are meant."""
    counts = np.sum(counted, axis=1)
    member = np.flatnonzero(counts)
    size = int(np.max(counts, initial=0))
    chosen = np.zeros((len(member), size), dtype=np.int64)
    used = np.arange(size) < counts[member][:, None]
    chosen[used] = np.nonzero(counted[member])[1]
    return member, chosen, used
