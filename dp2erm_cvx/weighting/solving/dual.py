"""Weights of a form at a dataset, by the dual in prices and multipliers.

The dual is solved in an outer variable y (K): ``s = prox(y)`` is an imbalance and
``lambda = (y - s) / step`` its price, so that both belong together for squares, tolerances, Huber
penalties, balls, kinks and constraints alike. What is left is the equation ``s = m(w)``, where
weights are those at these prices and meet their sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.weighting.bounds.public_radius import StepConstants, public_steps
from dp2erm_cvx.weighting.forms.form import WeightingForm
from dp2erm_cvx.weighting.solving.certificate import (
    Point,
    Residual,
    certified_distance,
    residual_of,
)
from dp2erm_cvx.weighting.solving.dataset import (
    WeightingData,
    blocked_sum,
    covariates_of_records,
    members_of_block,
    pieces,
    weighting_data,
)
from dp2erm_cvx.weighting.solving.multipliers import met_sums
from dp2erm_cvx.weighting.solving.pairs import PairsProblem
from dp2erm_cvx.weighting.solving.separation import least_tolerance, separates

#: Newton's steps, halvings of each, and steps without a smaller claim, at most.
_MOST_STEPS, _HALVINGS, _MOST_STALLED = 100, 30, 12
#: Proximal gradient steps in a row, at most, where no step of Newton's helps.
_MOST_DESCENTS = 30
#: What is missed, relative to the weights and rows, from which on claims are made, and that is
#: rounding.
_NEAR, _ROUNDED = 1e-5, 1e-13
#: A claim, relative to n, that no second step is tried for once a step has not halved it.
_SMALL = 1e-9
#: Stages in which constraints are made sharp, each by this factor, and Newton's steps of one.
_STAGES, _SHARPER, _STEPS_OF_STAGE = 10, 0.1, 30
#: What a stage leaves, relative to the tolerances.
_LEFT_BY_STAGE = 1e-3


@dataclass(frozen=True)
class DualSolution:
    """Weights with a proved distance to the exact weights.

    Parameters
    ----------
    weights
        The weights (n,).
    prices
        Prices lambda (K,) of the imbalances; of pairs of records the weights (n,) that prices are
        made of.
    multipliers
        Multipliers of the sums, one per block.
    claim
        Proved bound of ``|weights - exact weights|_1``; infinite where nothing is proved, as under
        constraints of the imbalance.
    steps
        Steps of the solver.
    residual
        Under constraints of the imbalance, how far the weights are from solving the problem; else
        None.
    fallback
        Whether the records admit no weights, and weights 1 stand in their place.
    """

    weights: Array = field(repr=False)
    prices: Array = field(repr=False)
    multipliers: Array = field(repr=False)
    claim: float
    steps: int
    residual: Residual | None = None
    fallback: bool = False


@dataclass(frozen=True)
class OuterPoint:
    """A point of the dual in the outer variable.

    Parameters
    ----------
    y
        The outer variable (K,): an imbalance s and ``step`` times its price.
    multipliers
        Multipliers of the sums, one per block.
    step
        Lengths (K,) of the proximal steps in s, the same for all coordinates of one imbalance. As
        ``lambda = (y - s) / step``, the inverse of each is the length of a gradient step in the
        prices.
    """

    y: Array
    multipliers: Array
    step: Array


class DualProblem:
    """A form at a dataset.

    Parameters
    ----------
    form
        The form.
    records
        The records.

    Raises
    ------
    DeclarationError
        Where the form is none that is solved; see
        :func:`~dp2erm_cvx.weighting.solving.dataset.weighting_data`.
    InfeasibleError
        Where the boxes cannot hold the sums; shown to the data holder only.
    """

    def __init__(self, form: WeightingForm, records: Records) -> None:
        self.form = form
        self.data: WeightingData = weighting_data(form, records)
        self.pairs: PairsProblem | None = None
        if self.data.by_pairs:
            self.pairs = PairsProblem(self.data, covariates_of_records(records))

    def newton(self, tolerance: float = 1e-12) -> DualSolution:
        """Solve by Newton's method.

        Parameters
        ----------
        tolerance
            Claim, relative to n, at which it stops. Where rounding keeps the claim above it, the
            least one is returned.

        Returns
        -------
        DualSolution
        """
        if self.pairs is not None:
            omega, multipliers, steps = self.pairs.newton()
            return self._paired(omega, multipliers, steps)
        solver = _Newton(self.data, tolerance * self.form.n)
        state, steps = solver.run()
        unsolved = self.form.hard and solver.claim(state) > solver.goal
        if unsolved and _has_entries(self.data) and not _is_separated(self.data):
            again, more_steps = solver.run_from(*_sharpened(solver))
            steps += more_steps
            if solver.claim(again) < solver.claim(state):
                state = again
        return self._solution(state, steps)

    def outer_point(self, solution: DualSolution) -> OuterPoint:
        """The outer variable at a solution, from which neighbors of these records begin.

        Parameters
        ----------
        solution
            A solution by the features of the records, not by their pairs.

        Returns
        -------
        OuterPoint
        """
        step = _Newton(self.data, 0.0).step
        reached = blocked_sum(solution.weights, self.data.rows) - self.data.targets
        return OuterPoint(reached + step * solution.prices, solution.multipliers, step)

    def by_public_steps(self, constants: StepConstants) -> DualSolution:
        """Solve by a public number of steps.

        After it every dataset is within the public radius.

        Parameters
        ----------
        constants
            Public constants of the form, from which the number of steps and their size follow.

        Returns
        -------
        DualSolution

        Raises
        ------
        DeclarationError
            Where a price has a kink: smooth it.
        """
        if self.form.hard:
            return self.newton()
        if self.form.kinked:
            raise DeclarationError(
                "price with a kink: no public number of steps is proved; smooth the kink"
            )
        steps = public_steps(self.form, constants)
        if self.pairs is not None:
            omega, multipliers = self.pairs.accelerated(constants.dual_smoothness, steps)
            return self._paired(omega, multipliers, steps)
        return self._solution(self._accelerated(constants.dual_smoothness, steps), steps)

    def value(self, weights: Array) -> float:
        """The objective at weights (n,), up to a number that no weight changes."""
        data = self.data
        total = _dispersion_of(data, weights)
        if self.pairs is not None:
            square = float(weights @ (self.pairs.Q @ weights)) / 2.0
            return total + square - float(self.pairs.b @ weights)
        imbalance = blocked_sum(weights, data.rows) - data.targets
        return total + _penalty_at(data, imbalance)

    def slope(self, weights: Array) -> Array:
        """Slopes (n,) of the objective at weights (n,); at a kink those of one of its prices."""
        data = self.data
        of_dispersion = self.form.dispersion.slope(weights / _bases(data))
        if self.pairs is not None:
            return np.asarray(of_dispersion - self.pairs.price(weights))
        imbalance = blocked_sum(weights, data.rows) - data.targets
        prices = _prices_at(data, imbalance, np.zeros_like(imbalance))
        return np.asarray(of_dispersion + data.linear + data.rows @ prices)

    def _paired(self, omega: Array, multipliers: Array, steps: int) -> DualSolution:
        """The certified solution at a point of pairs of records."""
        assert self.pairs is not None
        weights, claim = self.pairs.certified(omega, multipliers)
        return DualSolution(weights, omega, multipliers, claim, steps)

    def _solution(self, state: _State, steps: int) -> DualSolution:
        """The certified solution of a state of a solver."""
        weights, claim = _certified(self.data, state)
        return DualSolution(weights, state.prices, state.multipliers, claim, steps, state.residual)

    def _accelerated(self, smoothness: float, steps: int) -> _State:
        """Accelerated proximal gradient steps on the dual, from the prices of the imbalance 0.

        In the norm of the penalty the dual is 1-strongly convex, and its part of the weights
        ``smoothness``-smooth: the momentum is constant (Theorem 34 of
        ``docs/theory/weights_certificate.md``).
        """
        data = self.data
        # In the coordinates of the theorem its ell, the inverse length of a step in the prices.
        step = np.full(len(data.targets), smoothness) / data.smoothness
        # beta = kappa^(-1/2) and kappa = 1 + ell; the momentum is (1 - beta) / (1 + beta).
        contraction = 1.0 / math.sqrt(1.0 + smoothness)
        momentum = (1.0 - contraction) / (1.0 + contraction)
        zero = np.zeros(len(data.targets))
        prices = _prices_at(data, zero, zero)
        multipliers = np.zeros(len(data.blocks))
        state = _state_at_prices(data, prices, multipliers)
        ahead = prices
        for _ in range(steps):
            y = step * ahead + state.reached
            s = _prox(data, y, step)
            new = _prices_at(data, s, (y - s) / step)
            ahead = new + momentum * (new - prices)
            prices = new
            state = _state_at_prices(data, ahead, state.multipliers)
            state.imbalance = s
        final = _state_at_prices(data, prices, state.multipliers)
        final.imbalance = state.imbalance
        return final


@dataclass
class _State:
    """A point of the dual: an imbalance with its price, and the weights at that price.

    Parameters
    ----------
    imbalance
        s (K,), of which ``prices`` is a slope of the penalty.
    prices
        lambda (K,).
    weights, rates, multipliers
        Weights at these prices, their derivatives, and multipliers of the sums.
    reached
        The imbalance m(w) (K,) of the weights.
    certified
        Weights at the point and their claim, once it was certified.
    residual
        Under constraints of the imbalance, their residual, once it was computed.
    """

    imbalance: Array
    prices: Array
    weights: Array
    rates: Array
    multipliers: Array
    reached: Array
    certified: tuple[Array, float] | None = None
    residual: Residual | None = None

    @property
    def missed(self) -> Array:
        """What the weights miss of the imbalance (K,)."""
        return self.imbalance - self.reached

    @property
    def size(self) -> float:
        """The norm of what is missed."""
        return float(np.linalg.norm(self.missed))


def _state_at_prices(data: WeightingData, prices: Array, start: Array) -> _State:
    """The weights at prices (K,) that meet their sums, from a guess of the multipliers."""
    argument = -(data.rows @ prices) - data.linear
    weights, rates, multipliers = met_sums(data, argument, start)
    reached = blocked_sum(weights, data.rows) - data.targets
    return _State(reached, prices, weights, rates, multipliers, reached)


def _certified(data: WeightingData, state: _State) -> tuple[Array, float]:
    """Weights at a state and the bound of their distance to the exact weights, computed once.

    Under constraints of the imbalance it is infinite, and the residual of the state is computed
    beside it.
    """
    if state.certified is None:
        point = Point(state.imbalance, state.prices, state.multipliers)
        if data.form.hard:
            weights, state.residual = residual_of(data, point)
            state.certified = weights, math.inf
        else:
            state.certified = certified_distance(data, point)
    return state.certified


def _bases(data: WeightingData) -> Array:
    """Base weights of all records (n,), or of one for all; 1 where the form has none."""
    if data.curve.base is None:
        return np.ones(1)
    return data.curve.base


def _dispersion_of(data: WeightingData, weights: Array) -> float:
    """The dispersion and the linear terms of weights (n,)."""
    base = _bases(data)
    dispersion = base * data.form.dispersion.value(weights / base)
    return float(np.sum(dispersion + data.linear * weights))


def _penalty_at(data: WeightingData, imbalance: Array) -> float:
    """The penalty of an imbalance (K,)."""
    return sum(priced.value(imbalance[priced.columns]) for priced in data.priced)


def _less_missed_sums(data: WeightingData, state: _State, value: float) -> float:
    """A value less what the sums of a state are off, at their multipliers."""
    for number, block in enumerate(data.blocks):
        off = float(np.sum(state.weights[block.members])) - block.total
        value -= float(state.multipliers[number]) * off
    return value


def _prox(data: WeightingData, y: Array, step: Array) -> Array:
    """Proximal steps of all imbalances, each of one step."""
    s = np.empty_like(y)
    for priced in data.priced:
        columns = priced.columns
        if len(y[columns]):
            s[columns] = priced.proximal_point(y[columns], float(step[columns][0]))
    return s


def _prices_at(data: WeightingData, s: Array, nearest: Array) -> Array:
    """Prices of imbalances s: slopes of their penalties, at kinks the one nearest to a price."""
    prices = np.empty_like(nearest)
    for priced in data.priced:
        prices[priced.columns] = priced.price(s[priced.columns], nearest[priced.columns])
    return prices


class _Newton:
    """Newton's method in y, with a line search on the dual value or the size of what is missed.

    Values are those of the negative dual, which :meth:`state` returns: a search lowers them.

    Parameters
    ----------
    data
        The dataset.
    goal
        Claim at which steps end.
    """

    def __init__(self, data: WeightingData, goal: float) -> None:
        self.data = data
        self.goal = goal
        squares = sum(np.sum(np.square(data.rows[piece])) for piece in pieces(data.form.n))
        mean_square = squares / max(data.rows.shape[1], 1)
        with np.errstate(divide="ignore"):
            step = 1.0 / data.smoothness
        # Kinks and constraints have no scale of their own: that of what weights do.
        rates = met_sums(data, -data.linear, np.zeros(len(data.blocks)))[1]
        of_kinks = max(float(np.mean(rates)), 1e-12) * max(float(mean_square), 1e-300)
        # Where a price is steep they are too near a constraint for steps of their own.
        self.step = np.maximum(step, of_kinks)
        largest = max(np.max(data.rows, initial=0.0), -np.min(data.rows, initial=0.0))
        self.scale = float(largest) * data.form.n

    def state(
        self, y: Array, multipliers: Array, step: Array | None = None
    ) -> tuple[_State, float]:
        """The state after a proximal step from y, and the negative dual value there.

        That value is ``f = P* + g`` of the page: solving the dual lowers it.
        """
        data = self.data
        if step is None:
            step = self.step
        s = _prox(data, y, step)
        prices = _prices_at(data, s, (y - s) / step)
        state = _state_at_prices(data, prices, multipliers)
        state.imbalance = s
        value = float(prices @ state.missed) - _penalty_at(data, s)
        value = value - _dispersion_of(data, state.weights)
        return state, _less_missed_sums(data, state, value)

    def claim(self, state: _State) -> float:
        """What decides when to stop: the certificate, or the residual of constraints."""
        if state.size > _NEAR * self.scale:
            # Far from a solution a claim is not worth its time.
            return math.inf
        _, claim = _certified(self.data, state)
        if state.residual is not None:
            return state.residual.largest * self.data.form.n
        return claim

    def run(self) -> tuple[_State, int]:
        """States until the goal or rounding stops them; the best one and the number of steps."""
        return self.run_from(np.zeros(len(self.data.targets)), np.zeros(len(self.data.blocks)))

    def run_from(self, y: Array, multipliers: Array) -> tuple[_State, int]:
        """The same from y (K,) and multipliers on."""
        state, value = self.state(y, multipliers)
        best = state
        claim = self.claim(state)
        stalled = 0
        lowest = math.inf
        for step in range(_MOST_STEPS):
            if claim <= self.goal or not len(y) or stalled == _MOST_STALLED:
                return best, step
            lowest = min(lowest, state.size)
            ahead = self._next(y, state, value, lowest)
            if ahead is None:
                return best, step
            y, state, value = ahead
            new_claim = self.claim(state)
            # Far from a solution there is no claim, and constraints without one have no end.
            nearer = state.size < 0.5 * lowest or not self.data.form.hard
            if new_claim < 0.5 * claim or (math.isinf(new_claim) and nearer):
                stalled = 0
            elif lowest <= _ROUNDED * self.scale or claim <= _SMALL * self.data.form.n:
                stalled = _MOST_STALLED
            else:
                stalled += 1
            if new_claim < claim or (math.isinf(claim) and state.size < best.size):
                best = state
                claim = new_claim
        return best, _MOST_STEPS

    def covariance(self, rates: Array) -> Array:
        """Derivative of the imbalance by minus the prices.

        It is the sum of rates times squares of rows, centered by block.
        """
        data = self.data
        width = data.rows.shape[1]
        covariance = np.zeros((width, width))
        members = [members_of_block(data, block) for block in data.blocks]
        sums_of_blocks = np.zeros((len(members), width))
        for piece in pieces(data.form.n):
            weighted = rates[piece, None] * data.rows[piece]
            covariance += weighted.T @ data.rows[piece]
            for number, inside in enumerate(members):
                sums_of_blocks[number] += np.sum(weighted[inside[piece]], axis=0)
        for block, sums in zip(data.blocks, sums_of_blocks, strict=True):
            total = float(np.sum(rates[block.members]))
            if total > 0:
                covariance -= np.outer(sums, sums) / total
        return covariance

    def _next(
        self, y: Array, state: _State, value: float, lowest: float
    ) -> tuple[Array, _State, float] | None:
        """The point, its state and value after one step, or None where no step is good.

        ``lowest`` is the least norm of what any state has missed.
        """
        ahead = self._searched(y, self._direction(y, state), state, value, lowest)
        if ahead is not None:
            return ahead
        if self.data.form.hard:
            # Prices of constraints have no end where these have no solution.
            return self._searched(y, -state.missed, state, value, state.size)
        return self._descended(state, value)

    def _direction(self, y: Array, state: _State) -> Array:
        """Newton's step of ``prox(y) = m(w(y))``."""
        data = self.data
        size = len(y)
        slope = np.zeros((size, size))
        for priced in data.priced:
            columns = priced.columns
            if len(y[columns]):
                _, slope[columns, columns] = priced.prox(y[columns], float(self.step[columns][0]))
        covariance = self.covariance(state.rates)
        jacobian = slope + covariance @ ((np.eye(size) - slope) / self.step[:, None])
        jacobian[np.diag_indices(size)] += 1e-14 * np.trace(np.abs(jacobian)) / size
        if np.all(np.isfinite(data.smoothness)):
            return np.asarray(-np.linalg.solve(jacobian, state.missed))
        # Prices of constraints that say the same are not unique: the shortest step moves them
        # least.
        return np.asarray(-np.linalg.lstsq(jacobian, state.missed, rcond=1e-12)[0])

    def _searched(
        self, y: Array, direction: Array, state: _State, value: float, least: float
    ) -> tuple[Array, _State, float] | None:
        """The first point of a line that is good enough, or None.

        It lowers the negative dual value that :meth:`state` returns, or it misses less than
        ``least``: the least that any step has missed, because less than the last step missed would
        let steps go round in circles.
        """
        length = 1.0
        for _ in range(_HALVINGS):
            there = y + length * direction
            ahead, new_value = self.state(there, state.multipliers)
            enough = ahead.size <= (1.0 - 0.1 * length) * least
            if enough or new_value < value - 1e-12 * abs(value):
                return there, ahead, new_value
            length /= 2.0
        return None

    def _descended(self, state: _State, value: float) -> tuple[Array, _State, float] | None:
        """The point after proximal gradient steps, or None where none of them is good.

        A step is good if it lowers the negative dual value that :meth:`state` returns. These steps
        find which kinks hold a price where Newton's steps jump between them, and take prices far
        along directions that no weight answers to.
        """
        lowered = False
        step = self.step
        for _ in range(_MOST_DESCENTS):
            y = state.reached + step * state.prices
            ahead, new_value = self.state(y, state.multipliers, step)
            if new_value < value - 1e-12 * abs(value):
                state = ahead
                value = new_value
                lowered = True
                # A smaller `step` is a longer move of the prices: this one doubles it.
                step = step / 2.0
            else:
                step = 4.0 * step
        if not lowered:
            return None
        return state.imbalance + self.step * state.prices, state, value


def _has_entries(data: WeightingData) -> bool:
    """Whether every imbalance has entries that are constrained, to tolerances on both sides."""
    for priced in data.priced:
        penalty = priced.penalty
        if not penalty.hard or penalty.sided or penalty.norm not in (None, math.inf):
            return False
    return True


def _is_separated(data: WeightingData) -> bool:
    """Whether it is proved that no weights meet the constraints.

    Then no more steps are worth their time.
    """
    least = least_tolerance(data)
    return least is not None and separates(data, least.direction) > 0.0


def _sharpened(solver: _Newton) -> tuple[Array, Array]:
    """A start for constraints of moments that depend on each other.

    Newton's steps alone are lost between them.

    The dual holds ``t |lambda_k|`` of a tolerance t, which ``t sqrt(lambda_k^2 + mu^2)`` stands
    for: a smooth function, that is minimized for smaller and smaller mu.

    Parameters
    ----------
    solver
        The solver, at a dataset whose imbalances all have entries with tolerances.

    Returns
    -------
    tuple
        The outer variable y (K,), and multipliers.
    """
    stage = _Stage.first(solver)
    for _ in range(_STAGES):
        stage.minimize()
        stage = stage.sharper()
    y = stage.imbalance() + solver.step * stage.prices
    if not len(solver.data.blocks):
        return y, np.zeros(0)
    return y, stage.state(stage.prices).multipliers


@dataclass
class _Stage:
    """The dual with smoothed tolerances, at prices that are moved.

    Parameters
    ----------
    solver
        The solver.
    tolerance
        Tolerances (K,) of all entries.
    mu
        Size of a price up to which it is smoothed.
    prices
        Prices (K,), which :meth:`minimize` moves.
    multipliers
        Multipliers of the sums at the last prices.
    """

    solver: _Newton
    tolerance: Array
    mu: float
    prices: Array
    multipliers: Array

    @classmethod
    def first(cls, solver: _Newton) -> _Stage:
        """The first stage, whose mu is of the size of prices that a ridge would ask for."""
        data = solver.data
        width = len(data.targets)
        tolerance = np.zeros(width)
        for priced in data.priced:
            tolerance[priced.columns] = priced.penalty.tolerance
        start = _state_at_prices(data, np.zeros(width), np.zeros(len(data.blocks)))
        covariance = solver.covariance(start.rates)
        ridge = 1e-3 * float(np.trace(covariance)) / max(width, 1) + 1e-300
        ridge_prices = np.linalg.solve(covariance + ridge * np.eye(width), start.reached)
        mu = max(float(np.linalg.norm(ridge_prices)), 1e-3)
        return cls(solver, tolerance, mu, np.zeros(width), start.multipliers)

    def sharper(self) -> _Stage:
        """The next stage."""
        return replace(self, mu=_SHARPER * self.mu)

    def imbalance(self) -> Array:
        """The imbalance (K,) that has these prices."""
        return self.tolerance * self.prices / np.hypot(self.prices, self.mu)

    def state(self, prices: Array) -> _State:
        """The weights at prices (K,)."""
        return _state_at_prices(self.solver.data, prices, self.multipliers)

    def value(self, prices: Array, state: _State) -> float:
        """The negative value of the smoothed dual, where the sums are met."""
        data = self.solver.data
        allowed = float(self.tolerance @ np.hypot(prices, self.mu))
        value = allowed - float(prices @ state.reached) - _dispersion_of(data, state.weights)
        return _less_missed_sums(data, state, value)

    def minimize(self) -> None:
        """Move the prices by Newton's steps, each as long as lowers the value."""
        goal = _LEFT_BY_STAGE * float(np.linalg.norm(self.tolerance))
        goal = max(1e-13 * self.solver.scale, goal)
        state = self.state(self.prices)
        value = self.value(self.prices, state)
        for _ in range(_STEPS_OF_STAGE):
            missed = self.imbalance() - state.reached
            if np.linalg.norm(missed) <= goal:
                return
            direction = -np.linalg.solve(self._hessian(state), missed)
            slope = float(missed @ direction)
            length = 1.0
            for _ in range(_HALVINGS):
                there = self.prices + length * direction
                ahead = self.state(there)
                new_value = self.value(there, ahead)
                if new_value <= value + 1e-4 * length * slope + 1e-13 * abs(value):
                    break
                length /= 2.0
            self.prices = there
            self.multipliers = ahead.multipliers
            state = ahead
            value = new_value

    def _hessian(self, state: _State) -> Array:
        """The Hessian (K, K) of the smoothed dual, with a little more on its diagonal."""
        width = len(self.prices)
        root = np.hypot(self.prices, self.mu)
        hessian = self.solver.covariance(state.rates)
        hessian[np.diag_indices(width)] += self.tolerance * (self.mu / root) ** 2 / root
        hessian[np.diag_indices(width)] += 1e-13 * float(np.trace(hessian)) / width + 1e-300
        return hessian
