"""Weights of many datasets of few kinds of records, each with a proved distance.

Newton's steps in the outer variable of the dual, for all datasets together and each by its own
Jacobian; the multipliers of the sums are solved for at every point, so that no dataset needs a
start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.form import WeightingForm
from dp2erm_cvx.weighting.neighbors.joint_steps import JointState, JointSteps, taken
from dp2erm_cvx.weighting.neighbors.kinds import KindsData, KindsPart
from dp2erm_cvx.weighting.neighbors.many_datasets import Numbers, release_factors

#: Newton's steps, halvings of each, and steps in a row without progress, at most.
_MOST_STEPS, _HALVINGS, _MOST_STALLED = 60, 30, 6
#: A step is progress where it leaves no more than this part of the least that was missed before.
_PROGRESS = 0.999
#: Part of the imbalance without prices at which a kink starts: on its side, but near 0.
_PART_OF_IMBALANCE = 1e-3
#: Damping of the first steps at kinks, as a part of what imbalances answer without prices.
_DAMPING = 0.1
#: Most steps for a multiplier, of which every fourth halves the bracket.
_MOST_ROOT_STEPS = 400
#: A sum is met where it is within so many units of roundoff of its size.
_SUM_UNITS = 4.0
#: Part of the goal that an estimate has to reach, as a claim counts rounding as well.
_WITHIN = 0.1
#: Datasets of one chunk.
_CHUNK = 1024


@dataclass(frozen=True)
class KindWeights:
    """Weights of m datasets of k kinds of records.

    Parameters
    ----------
    weights
        Weight (m, k) of a record of every kind; not a number where a dataset admits none.
    claims
        Proved bounds (m,) of ``|weights - exact weights|_1`` over all n records; infinite where
        nothing is proved.
    factor
        What weights are multiplied by (m,), so that released ones have sum n.
    """

    weights: Array = field(repr=False)
    claims: Array = field(repr=False)
    factor: Array = field(repr=False)


def weights_of_kinds(
    form: WeightingForm, kinds: Records, count: Array, tolerance: float = 1e-10
) -> KindWeights:
    """Weights of datasets that are made of few kinds of records.

    Parameters
    ----------
    form
        The form.
    kinds
        The m k kinds, those of one dataset after the other.
    count
        How many records (m, k) of each kind there are, n in every dataset.
    tolerance
        Claim, relative to n, that steps aim at.

    Returns
    -------
    KindWeights

    Raises
    ------
    DeclarationError
        For constraints of the imbalance, prices that no dataset is solved for, and wrong counts.
    """
    m, k = count.shape
    data = KindsData(form, k)
    weights = np.full((m, k), np.nan)
    claims = np.full(m, np.inf)
    factor = np.ones(m)
    for begin in range(0, m, _CHUNK):
        chunk = slice(begin, min(begin + _CHUNK, m))
        part = data.part(kinds.at(np.arange(chunk.start * k, chunk.stop * k)), count[chunk])
        factor[chunk] = release_factors(form, part.treated)
        usable = np.flatnonzero(part.feasible)
        if len(usable):
            with np.errstate(all="ignore"):
                # A dataset whose numbers overflow has no claim.
                solved = _Newton(data, part.take(usable)).solved(tolerance * form.n)
            weights[begin + usable], claims[begin + usable] = solved
    return KindWeights(weights, claims, factor)


class _Newton(JointSteps[KindsPart]):
    """Newton's method for m datasets.

    Parameters
    ----------
    data
        The form.
    part
        The datasets.
    """

    def __init__(self, data: KindsData, part: KindsPart) -> None:
        self.data = data
        self.part = part
        self.rising = data.form.dispersion.family in ("entropy", "log")
        weights_without_prices, rates = self._without_prices()
        #: Imbalances (m, K) where nothing is priced, and their norms (m,).
        self.first_imbalances: Array = data.imbalances(weights_without_prices, part)
        self.first_missed: Array = np.linalg.norm(self.first_imbalances, axis=1)
        #: Sums (m,) of how fast all weights rise with their arguments there.
        self.rate_sums: Array = data.total(rates, part)
        super().__init__(data, self._proximal_steps())
        # At a kink of the dispersion no weight moves as yet: there the rate of a mean weight stands
        # in.
        with np.errstate(divide="ignore"):
            usual = data.n / float(data.form.dispersion.curvature(np.ones(1))[0])
        self.response: Array = np.maximum(2.0 * self.rate_sums, usual)

    def solved(self, goal: float) -> tuple[Array, Array]:
        """Weights (m, k) and claims (m,), of steps that aim at claims of ``goal``."""
        m = len(self.part)
        y = self._start()
        multipliers = np.zeros((m, self.data.n_blocks))
        multipliers = self._multipliers(self._prices_at(y), multipliers, self.part)
        weights = np.full(self.part.count.shape, np.nan)
        claims = np.full(m, np.inf)
        live = np.arange(m)
        least_missed = np.full(m, np.inf)
        stalled = np.zeros(m, dtype=np.int64)
        for step in range(_MOST_STEPS + 1):
            here = self.part.take(live)
            state = self.state(y[live], multipliers[live], here)
            # At the limit of rounding what is missed goes up and down for ever, so that steps count
            # as progress only beside the least that was missed so far.
            missed = np.linalg.norm(state.missed[:, : self.K], axis=1)
            progress = missed < _PROGRESS * least_missed[live]
            stalled[live] = np.where(progress, 0, stalled[live] + 1)
            least_missed[live] = np.fmin(missed, least_missed[live])
            ended = self._near(state, here, live, goal) | (stalled[live] >= _MOST_STALLED)
            if step == _MOST_STEPS or self.K == 0:
                ended[:] = True
            done = live[ended]
            if len(done):
                points = taken(state.points, ended)
                weights[done] = points.weights
                claims[done] = self.judge.claims(points, self.part.take(done))
            live = live[~ended]
            if not len(live):
                break
            damping = self._damping(missed[~ended], live)
            ahead = self._searched(y[live], state, ~ended, self.part.take(live), damping)
            y[live] = ahead.y
            multipliers[live] = ahead.multipliers
        return weights, claims

    def _without_prices(self) -> tuple[Array, Array]:
        """Weights (m, k) where nothing is priced, and how fast they rise with their arguments."""
        data = self.data
        part = self.part
        prices = np.zeros_like(part.targets)
        start = np.zeros((len(part), data.n_blocks))
        argument = data.arguments(prices, self._multipliers(prices, start, part), part)
        weights, rates = data.curve(part).at(argument.ravel(), slice(None))
        return weights.reshape(argument.shape), rates.reshape(argument.shape)

    def _proximal_steps(self) -> Array:
        """Steps (K,): one over the smoothness, and no less than a step for kinks."""
        data = self.data
        part = self.part
        with np.errstate(divide="ignore"):
            step = 1.0 / data.smoothness
        # Kinks have no scale of their own: that of what weights do.
        squares = part.count[:, :, None] * np.square(part.rows)
        mean_square = np.sum(squares, axis=(1, 2)) / max(len(step), 1)
        mean_rate = self.rate_sums / data.n
        of_kinks = max(float(np.median(mean_rate)), 1e-12)
        of_kinks = of_kinks * max(float(np.median(mean_square)), 1e-300)
        return np.maximum(step, of_kinks)

    def _start(self) -> Array:
        """Outer variables (m, K) that steps start from.

        At 0 the price of a kink is one that leaves no imbalance, which Newton's step from there
        takes for granted. So a kink starts at its slope at the imbalance without prices, and at a
        small part of this imbalance; other prices start at 0.
        """
        y = np.zeros((len(self.part), self.K))
        for priced in self.data.priced:
            columns = priced.columns
            if priced.penalty.kinked:
                there = self.first_imbalances[:, columns]
                slope = priced.price(there, np.zeros_like(there))
                y[:, columns] = self.step[columns] * slope + _PART_OF_IMBALANCE * there
        return y

    def _near(
        self, state: JointState, part: KindsPart, live: Numbers, goal: float
    ) -> NDArray[np.bool_]:
        """Whether a dataset (m,) is so near its solution that a claim is worth its time.

        Where no more than rounding is missed, further steps only change what rounding leaves.
        """
        missed = state.missed[:, : self.K]
        off = state.missed[:, self.K :]
        estimate = self.judge.estimates(missed, off, self.response[live], part)
        near = estimate <= _WITHIN * goal
        return np.asarray(near | self.judge.within_rounding(state.points, part))

    def _damping(self, missed: Array, live: Numbers) -> Array | None:
        """Damping (m, K) of the steps at kinks, where so much (m,) is missed.

        Weights at the ends of their boxes answer to no price, and by the answers of the others
        alone Newton's steps go too far. Damping falls with what is missed, so that the last steps
        are Newton's own.
        """
        if not self.data.form.kinked:
            return None
        # 1e-300 is in the place of an imbalance that is 0 without prices.
        share = np.minimum(missed / np.maximum(self.first_missed[live], 1e-300), 1.0)
        of_kinks = np.where(np.isinf(self.data.smoothness), self.step, 0.0)
        return _DAMPING * share[:, None] * of_kinks

    def _searched(
        self,
        y: Array,
        state: JointState,
        chosen: NDArray[np.bool_],
        part: KindsPart,
        damping: Array | None,
    ) -> _Ahead:
        """Points of lines along Newton's steps at which less is missed, or the dual is higher.

        The slope of the concave dual at prices is what is missed there, with the other sign. Where
        it still points ahead at new prices, the dual has risen on all of the way to them.

        Where there is no such point, a proximal gradient step moves prices that no weight answers
        to as yet.

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
            Damping (m, K) of the steps, or None.
        """
        missed = state.missed[chosen][:, : self.K]
        size = np.linalg.norm(missed, axis=1)
        change = self.own_steps(y, state, chosen, part, damping)
        before = state.points.multipliers[chosen]
        prices_before = state.points.prices[chosen]
        ahead = _Ahead(y - missed, before.copy())
        better = np.zeros(len(y), dtype=bool)
        searching = np.flatnonzero(np.all(np.isfinite(change), axis=1))
        length = 1.0
        for _ in range(_HALVINGS):
            if not len(searching):
                break
            there = y[searching] + length * change[searching, : self.K]
            guess = before[searching] + length * change[searching, self.K :]
            some = part.take(searching)
            levels = self._multipliers(self._prices_at(there), guess, some)
            new_state = self.state(there, levels, some)
            new_missed = new_state.missed[:, : self.K]
            new_size = np.linalg.norm(new_missed, axis=1)
            less_missed = new_size <= (1.0 - 0.1 * length) * size[searching]
            price_change = new_state.points.prices - prices_before[searching]
            higher = np.sum(new_missed * price_change, axis=1) < 0.0
            enough = less_missed | higher
            done = searching[enough]
            ahead.y[done] = there[enough]
            ahead.multipliers[done] = levels[enough]
            better[done] = True
            searching = searching[~enough]
            length /= 2.0
        by_gradient = np.flatnonzero(~better)
        if len(by_gradient):
            prices = self._prices_at(ahead.y[by_gradient])
            levels = self._multipliers(prices, before[by_gradient], part.take(by_gradient))
            ahead.multipliers[by_gradient] = levels
        return ahead

    def _prices_at(self, y: Array) -> Array:
        """Prices (m, K) at outer variables y (m, K)."""
        return self.prices(self.imbalance(y), y)

    def _multipliers(self, prices: Array, start: Array, part: KindsPart) -> Array:
        """Multipliers (m, B) at which weights meet their sums, at prices (m, K).

        Newton's steps in a bracket of every multiplier, of which every fourth halves it.
        """
        data = self.data
        totals = part.totals
        curve = data.curve(part)
        price = data.arguments(prices, np.zeros_like(start), part)
        low, high = self._brackets(price, part)
        inside = (start > low) & (start < high)
        here = np.where(inside, start, (low + high) / 2.0)
        best = here.copy()
        least_off = np.full(here.shape, np.inf)
        price_rounding = UNIT * np.max(np.abs(price), axis=1, keepdims=True)
        for step in range(_MOST_ROOT_STEPS):
            argument = price - data.levels(here, part)
            weights, rates = curve.at(argument.ravel(), slice(None))
            summed = data.sums(weights.reshape(price.shape), part)
            slope = data.sums(rates.reshape(price.shape), part)
            off = summed - totals
            nearer = np.abs(off) < least_off
            best = np.where(nearer, here, best)
            least_off = np.where(nearer, np.abs(off), least_off)
            low = np.where(off > 0, here, low)
            high = np.where(off > 0, high, here)
            by_newton = here + self._root_step(off, summed, slope, totals)
            middle = low + (high - low) / 2.0
            usable = (by_newton > low) & (by_newton < high)
            if step % 4 == 3:
                usable[:] = False
            here = np.where(usable, by_newton, middle)
            met = least_off <= _SUM_UNITS * UNIT * totals
            narrow = high - low <= price_rounding + 2.0 * UNIT * np.abs(middle)
            if np.all(met | narrow | ~np.isfinite(middle)):
                break
        return best

    def _brackets(self, price: Array, part: KindsPart) -> tuple[Array, Array]:
        """Ends (m, B) that multipliers lie between (Theorem 34 (c) of the page).

        At ``c_i = low_i + theta (cap_i - low_i)``, which have the sum of the block, a multiplier
        below all of ``price_i - phi_i'(c_i)`` leaves no weight below c_i, one above all of them no
        weight above.
        """
        data = self.data
        low = np.zeros(part.totals.shape)
        high = np.zeros(part.totals.shape)
        base = np.ones((1, 1))
        if part.base.size:
            base = part.base
        for number in range(data.n_blocks):
            inside = part.inside[:, number] > 0
            bracketing = _bracketing_weights(part, number)
            level = price - data.form.dispersion.slope(bracketing / base)
            occupied = np.any(inside, axis=1)
            first = np.min(np.where(inside, level, np.inf), axis=1)
            first = np.where(occupied, first, 0.0)
            last = np.max(np.where(inside, level, -np.inf), axis=1)
            last = np.where(occupied, last, 0.0)
            sizes = 1.0 + np.abs(first) + np.abs(last) + np.max(np.abs(price), axis=1)
            slack = 64.0 * UNIT * sizes
            low[:, number] = first - slack
            high[:, number] = last + slack
        return low, high

    def _root_step(self, off: Array, summed: Array, slope: Array, totals: Array) -> Array:
        """Newton's step, or that of the logarithm of the sum where weights are steep."""
        if self.rising:
            return np.asarray(np.log(summed / totals) * summed / slope)
        return off / slope


@dataclass(frozen=True)
class _Ahead:
    """Where a search along Newton's steps leads m datasets.

    Parameters
    ----------
    y
        Outer variables (m, K).
    multipliers
        Multipliers (m, B).
    """

    y: Array
    multipliers: Array


def _bracketing_weights(part: KindsPart, number: int) -> Array:
    """Weights ``c = low + theta (cap - low)`` (m, k) that have the sum of a block."""
    count = part.inside[:, number]
    total = part.totals[:, number]
    # No weight exceeds the sum, to which a cap that may be infinite is cut.
    largest_low = np.max(np.where(count > 0, part.low, 0.0), axis=1)
    width = np.minimum(part.cap, np.maximum(total, largest_low)[:, None]) - part.low
    missing = total - np.sum(count * part.low, axis=1)
    # theta is the same for all records of a block; 1e-300 is in the place of an empty one.
    share = np.minimum(missing / np.maximum(np.sum(count * width, axis=1), 1e-300), 1.0)
    return np.asarray(part.low + share[:, None] * width)
