"""Movements of many pairs of groups, for searching.

A few distinct rows stand for all n records, and their small convex programs are solved side by side
by Newton's method in a ball. Where that is not possible, all n records are solved.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.movement import NeighborPair, Quantity, resolve
from dp2erm_cvx.audit.pairs import CLUSTERS, Pairs, directions, records_at
from dp2erm_cvx.audit.search import Deadline, evolve
from dp2erm_cvx.audit.weighing import ProgramWeights, Weighing
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, SeparableFirstStage
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.entropy import EntropyFirstStage, ExponentialModel
from dp2erm_cvx.program.margin_model import MarginModel

Arms = NDArray[np.int64]


class Effort(NamedTuple):
    """How many pairs one round tries.

    Attributes
    ----------
    starts
        Pairs that are drawn.
    refined
        How many of the best of them begin an ascent.
    evaluations
        Pairs that each ascent tries at most.
    """

    starts: int
    refined: int
    evaluations: int


#: Where movements are cheap.
CHEAP = Effort(280, 2, 1500)
#: Where each movement takes two full solves.
COSTLY = Effort(35, 1, 150)
#: Pairs of earlier rounds that are refined again, and whether a part of them is drawn anew.
_AGAIN = (False, True)

#: Maps the distinct records of b datasets, m of each, and their counts (b, m) to weights per record
#: (b, m).
Weights = Callable[[Records, Array], Array]


@dataclass(frozen=True)
class Surrogate:
    """Uncertified movements of pairs of groups. What it finds is solved again in full.

    Parameters
    ----------
    weighing
        The program or the function whose weights move.
    universe
        Where the pairs lie.
    weights
        Fast weights by distinct rows. None: all n records are solved, one dataset after the other.
    """

    weighing: Weighing
    universe: MappedUniverse
    weights: Weights | None = None

    @classmethod
    def of(
        cls, weighing: Weighing, universe: MappedUniverse, sample: Pairs | None = None
    ) -> Surrogate:
        """The fast one of a resolved program, if there is one that is right.

        Without a fast one, or if it is off on the pairs of ``sample``, it is that by full solves.
        """
        full = cls(weighing, universe)
        fast_weights = None
        if isinstance(weighing, ProgramWeights):
            fast_weights = _fast_weights(weighing.program, universe)
        if fast_weights is None:
            return full
        fast = cls(weighing, universe, fast_weights)
        if sample is None:
            return fast
        with np.errstate(all="ignore"):
            quick = fast.movements(sample)[Quantity.V]
            slow = full.movements(sample)[Quantity.V]
        right = np.allclose(quick, slow, rtol=1e-6, atol=1e-6, equal_nan=True)
        return fast if right else full

    def movements(
        self, pairs: Pairs, until: Deadline | None = None, least: int = 1
    ) -> dict[Quantity, Array]:
        """Movements of all pairs by every quantity.

        Parameters
        ----------
        pairs
            b pairs, of which some may lie outside of the universe.
        until
            Where each pair takes full solves, no further one is solved after this deadline.
        least
            The number of pairs that are solved whatever the time.

        Returns
        -------
        movements
            Movements (b,) by quantity, NaN where a pair lies outside of the universe or was not
            solved.
        """
        valid = np.flatnonzero(np.isfinite(pairs.count).all(axis=1))
        if self.weights is None:
            return self._solved_in_full(pairs, valid, until or Deadline(), least)
        moved = _no_movements(len(pairs))
        if len(valid):
            # a program with hardly any ridge has no movements
            with contextlib.suppress(np.linalg.LinAlgError):
                for quantity, values in self._moved_fast(pairs.take(valid), self.weights).items():
                    moved[quantity][valid] = values
        return moved

    def _solved_in_full(
        self, pairs: Pairs, valid: NDArray[np.int64], until: Deadline, least: int
    ) -> dict[Quantity, Array]:
        """Movements of the pairs ``valid`` by two solves of all n records each."""
        moved = _no_movements(len(pairs))
        # read once, not for every dataset
        weighing = self.weighing.at(self.universe)
        for number, k in enumerate(valid):
            if number >= least and until.passed:
                break
            first, second = pairs.take(np.array([k])).records(self.universe.space)
            for solved in resolve(weighing, [NeighborPair(first, second, 0, "")]):
                for quantity, interval in solved.movements.items():
                    moved[quantity][k] = 0.5 * (interval.low + interval.high)
        return moved

    def _moved_fast(self, pairs: Pairs, weights: Weights) -> dict[Quantity, Array]:
        """Movements (b,) of pairs in the universe by the weights of their distinct records."""
        before = pairs.distinct(False)
        after = pairs.distinct(True)
        x, arm, count = (np.concatenate(parts) for parts in zip(before, after, strict=True))
        records = records_at(self.universe.space, x.reshape(-1, x.shape[2]), arm.ravel())
        w, v = np.split(weights(records, count), [len(pairs)])
        return _movements_of_kinds(w, v, count[: len(pairs)])

    @property
    def exact(self) -> bool:
        """True if every movement takes two full solves."""
        return self.weights is None

    @property
    def most(self) -> int:
        """Pairs that a climb tries at most."""
        effort = self._effort
        return effort.starts + (effort.refined + len(_AGAIN)) * effort.evaluations

    @property
    def _effort(self) -> Effort:
        """How many pairs a climb tries."""
        return COSTLY if self.exact else CHEAP

    def climb(
        self,
        quantity: Quantity,
        known: Sequence[Pairs],
        budget: int,
        rng: np.random.Generator,
        until: Deadline,
    ) -> tuple[Pairs, int]:
        """The pairs at the ends of the ascents of one round.

        Parameters
        ----------
        quantity
            What climbs.
        known
            The best pairs of earlier rounds, some of which are refined again.
        budget
            Pairs that may be tried.
        rng
            Draws starts and candidates.
        until
            After this deadline nothing is tried any more but one start.

        Returns
        -------
        ends
            The highest start, then the end of every ascent.
        spent
            How many pairs were tried.
        """
        starts = Pairs.starts(self.universe, min(self._effort.starts, budget), rng)
        movements = self.movements(starts, until.part(0.5))[quantity]
        heights = np.nan_to_num(movements, nan=-np.inf, posinf=-np.inf)
        chosen, steps = self._chosen(starts, heights, known, rng)
        highest_start = starts.take(np.array([int(np.argmax(heights))]))
        if until.passed:
            return highest_start, len(starts)
        budget_left = budget - len(starts)
        ends, tried = self._ascents(quantity, chosen, steps, budget_left, rng, until)
        return Pairs.joined([highest_start, *ends]), len(starts) + tried

    def _chosen(
        self, starts: Pairs, heights: Array, known: Sequence[Pairs], rng: np.random.Generator
    ) -> tuple[list[Pairs], list[float]]:
        """Pairs at which ascents begin, and the first step of each.

        They are the highest starts, and known pairs that were changed a little.
        """
        refined = self._effort.refined
        highest = np.argsort(-heights, kind="stable")[:refined]
        chosen = [starts.take(np.array([index])) for index in highest]
        # small steps stay on a narrow hill
        steps = rng.choice([0.1, 0.3], refined)[: len(chosen)].tolist()
        if known:
            for anew in _AGAIN:
                chosen.append(self._again(known, anew, rng))
                steps.append(0.1)
        return chosen, steps

    def _ascents(
        self,
        quantity: Quantity,
        starts: Sequence[Pairs],
        steps: Sequence[float],
        budget: int,
        rng: np.random.Generator,
        until: Deadline,
    ) -> tuple[list[Pairs], int]:
        """The end of an ascent from every start, and how many pairs were tried."""
        evaluations = self._effort.evaluations
        free = [_FreeNumbers.of_pair(self.universe, start) for start in starts]
        climbs = []
        for place, step in enumerate(steps):
            budget_left = max(budget - place * evaluations, 0)
            climbs.append((free[place].start, step, min(budget_left, evaluations)))
        objective = partial(self._heights, quantity, free, until)
        ends = []
        spent = 0
        for place, (best, height, tried) in enumerate(evolve(objective, climbs, rng)):
            spent += tried
            end = starts[place]
            if np.isfinite(height):
                end = free[place].pairs(best[None])
            ends.append(end)
        return ends, spent

    def _again(self, known: Sequence[Pairs], anew: bool, rng: np.random.Generator) -> Pairs:
        """One of the known pairs, changed a little, as a start.

        With ``anew`` it starts on another hill: one common kind, and one end of the changed record,
        are drawn again.
        """
        pair = known[int(rng.integers(len(known)))]
        X = pair.X.copy()
        a = pair.a.copy()
        count = pair.count.copy()
        if anew:
            kind = int(rng.integers(CLUSTERS))
            rows = [2 + kind, int(rng.integers(2))]
            X[0, rows] = self.universe.space.features_bound * directions(rng, 2, X.shape[2])
            a[0, rows] = rng.integers(2, size=2)
            count[0, kind] = np.max(count) * rng.random()
        elif rng.random() < 0.5:
            place = int(rng.integers(CLUSTERS + 2))
            a[0, place] = 1 - a[0, place]
        return Pairs.admitted(self.universe, X, a, count)

    def _heights(
        self,
        quantity: Quantity,
        free: Sequence[_FreeNumbers],
        until: Deadline,
        points: list[tuple[int, Array]],
    ) -> list[Array]:
        """Movements by ``quantity`` at free numbers of several climbs; NaN after the deadline."""
        if until.passed:
            return [np.full(len(u), np.nan) for _, u in points]
        tried = Pairs.joined([free[k].pairs(u) for k, u in points])
        moved = self.movements(tried, until, least=0)[quantity]
        ends = np.cumsum([len(u) for _, u in points])
        return np.split(moved, ends[:-1])


def _no_movements(number: int) -> dict[Quantity, Array]:
    """NaN for every quantity of so many pairs."""
    return {quantity: np.full(number, np.nan) for quantity in Quantity}


def _movements_of_kinds(w: Array, v: Array, count: Array) -> dict[Quantity, Array]:
    """Movements (b,) by the weights of distinct records, of which the changed one is last.

    Parameters
    ----------
    w, v
        Weights (b, m) per record of both datasets.
    count
        How many records are alike, (b, m).
    """
    present = count > 0
    gap = np.abs(w - v)
    l1 = np.sum(count * gap, axis=1)
    squares = np.sum(count * gap**2, axis=1)
    differ = np.sum(count * (gap > 1e-7), axis=1)
    largest_product = np.max(w * v * present, axis=1)
    largest_common = np.max(np.minimum(w, v) * present, axis=1)
    return {
        Quantity.V: l1 + 2 * np.minimum(w[:, -1], v[:, -1]),
        Quantity.L1: l1,
        Quantity.L2: np.sqrt(squares),
        Quantity.L0: differ,
        Quantity.W1: l1 + 2 * largest_common,
        Quantity.W2: np.sqrt((squares + 2 * largest_product) * (1 + differ)),
        Quantity.LARGEST: np.max(np.maximum(w, v) * present, axis=1),
    }


@dataclass(frozen=True, eq=False)
class _FreeNumbers:
    """Numbers that a climb may change: points of the kinds that are there, logs of their shares.

    Parameters
    ----------
    universe
        Where the pairs lie.
    pair
        The pair at which the climb starts; it fixes the arms and the kinds.
    active
        The common kinds that are there.
    rows
        Their rows in the pair, then those of the changed record.
    """

    universe: MappedUniverse
    pair: Pairs
    active: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of_pair(cls, universe: MappedUniverse, pair: Pairs) -> _FreeNumbers:
        """Those of the kinds that a pair has."""
        active = np.flatnonzero(np.nan_to_num(pair.count[0]) > 0)
        rows = np.concatenate([2 + active, [0, 1]]).astype(np.int64)
        return cls(universe, pair, active, rows)

    @property
    def start(self) -> Array:
        """The free numbers of the pair itself."""
        points = self.pair.X[0, self.rows].ravel() / self.universe.space.features_bound
        logs = np.log(np.maximum(self.pair.count[0, self.active], 0.3))
        return np.append(points, logs)

    def pairs(self, u: Array) -> Pairs:
        """The pairs of the universe nearest to b vectors u (b, ...) of free numbers."""
        number = len(u)
        d = self.universe.n_features
        in_points = len(self.rows) * d
        X = np.repeat(self.pair.X, number, axis=0)
        points = u[:, :in_points].reshape(number, len(self.rows), d)
        X[:, self.rows] = points * self.universe.space.features_bound
        share = np.zeros((number, CLUSTERS))
        share[:, self.active] = np.exp(np.clip(u[:, in_points:], -30.0, 30.0))
        return Pairs.admitted(self.universe, X, np.repeat(self.pair.a, number, axis=0), share)


def _fast_weights(program: FirstStage, universe: MappedUniverse) -> Weights | None:
    """Fast weights of a resolved program, if there are any for the model that it is solved by."""
    if isinstance(program, ClosedFormWeights):
        return partial(_closed_form, program)
    if isinstance(program, WeightsProgram):
        if not program.has_weights_of_kinds(universe):
            return None
        return partial(program.weights_of_kinds, universe)
    two = records_at(universe.space, np.zeros((2, universe.n_features)), np.array([0, 1]))
    try:
        model = program.model(two)
    except Dp2ermError:  # without a smooth form, or with a setting for every one of n records
        return None
    if type(model) not in _FAST:
        return None
    family, weights = _FAST[type(model)]
    if not isinstance(program, family):
        return None
    if isinstance(program, SeparableFirstStage):
        plain = program.is_plain and program.target is None
        if not plain:
            return None
    return partial(weights, program, universe, model)


def _closed_form(program: ClosedFormWeights, records: Records, count: Array) -> Array:
    """Weights of a program that has a formula for them."""
    return _of_sum_n(program.unnormalized(records).reshape(count.shape), count)


def _of_sum_n(f: Array, count: Array) -> Array:
    """Weights in the ratios of ``f`` (b, m), of sum n."""
    share = count / count.sum(axis=1, keepdims=True)
    return np.asarray(f / np.sum(share * f, axis=1, keepdims=True), dtype=np.float64)


def _entropy(
    program: Any, universe: MappedUniverse, model: Any, records: Records, count: Array
) -> Array:
    """Weights of the paper's entropy balancing.

    Its rows and targets are those of ``EntropyFirstStage.moments``. A row is 0 in the arm that is
    not its own.
    """
    arm = records.a.reshape(count.shape)
    rows = program.in_arm(records, records.a, np.ones(2)).reshape(*arm.shape, 2, -1)
    share = count / count.sum(axis=1, keepdims=True)
    treated = np.sum(count * arm, axis=1)
    size = np.column_stack([count.sum(axis=1) - treated, treated])
    scale, part = program.of_arms(size, universe.space)
    mean = np.einsum("bm,bmsd->bd", share, rows)
    target = ((scale * part)[..., None] * mean[:, None, :]).reshape(len(arm), -1)
    Z = (rows * scale[:, None, :, None]).reshape(*arm.shape, -1)
    ball = model.penalty.set
    radius = ball.radius if isinstance(ball, L2Ball) else math.inf
    smooth = partial(_log_mean_exp, Z, share, -target, model.ridge / model.n)
    v = _minimize_in_ball(smooth, len(Z), Z.shape[2], radius)
    return _of_logs(np.einsum("bmd,bd->bm", Z, v), count)


def _separable(
    program: Any, universe: MappedUniverse, model: Any, records: Records, count: Array
) -> Array:
    """Weights of any :class:`~dp2erm_cvx.program.SeparableFirstStage`."""
    Z = program.rows(records).reshape(*count.shape, -1)
    share = count / count.sum(axis=1, keepdims=True)
    linear: Any = 0.0
    terms = program.linear_terms(records)
    if terms is not None:
        linear = np.einsum("bm,bmd->bd", share, terms.reshape(Z.shape))
    arm = records.a.reshape(count.shape)
    smooth = partial(_mean_loss, program.loss.along(arm), Z, share, linear, program.mu)
    v = _minimize_in_ball(smooth, len(Z), Z.shape[2], program.ball(universe.space))
    log_weight = program.log_weight.along(arm)
    return _of_logs(log_weight.log(np.einsum("bmd,bd->bm", Z, v)), count)


def _of_logs(logs: Array, count: Array) -> Array:
    """Weights whose logs are ``logs`` (b, m) but for a constant, of sum n."""
    return _of_sum_n(np.exp(logs - np.max(logs, axis=1, keepdims=True)), count)


#: Values (b,), gradients (b, d) and Hessians (b, d, d) of b functions.
_Smooth = tuple[Array, Array, Array]


def _log_mean_exp(Z: Array, share: Array, linear: Array, ridge: float, v: Array) -> _Smooth:
    """The objective ``log E[exp(Z v)] + <linear, v> + ridge/2 ||v||^2`` of an exponential tilt.

    Parameters
    ----------
    Z
        Rows (b, m, d) of the distinct records.
    share
        Their shares (b, m) of all records.
    linear
        Linear term (b, d).
    ridge
        Ridge.
    v
        Points (b, d).
    """
    s = np.einsum("bmd,bd->bm", Z, v)
    top = np.max(s, axis=1, keepdims=True)
    tilted = share * np.exp(s - top)
    total = tilted.sum(axis=1, keepdims=True)
    tilted = tilted / total
    mean = np.einsum("bm,bmd->bd", tilted, Z)
    second_moment = np.einsum("bm,bmd,bme->bde", tilted, Z, Z)
    hessian = second_moment + ridge * np.eye(Z.shape[2])
    hessian -= mean[:, :, None] * mean[:, None, :]
    value = (top + np.log(total))[:, 0] + np.sum(v * (linear + 0.5 * ridge * v), axis=1)
    return value, mean + linear + ridge * v, hessian


def _mean_loss(loss: Any, Z: Array, share: Array, linear: Any, ridge: float, v: Array) -> _Smooth:
    """The objective ``E[loss(Z v)] + <linear, v> + ridge/2 ||v||^2`` of a separable program.

    Parameters
    ----------
    loss
        The loss with its derivatives, of all records in their arms.
    Z, share, linear, ridge, v
        As in :func:`_log_mean_exp`.
    """
    s = np.einsum("bmd,bd->bm", Z, v)
    slope = share * loss.slope(s)
    curvature = share * loss.curvature(s)
    gradient = np.einsum("bm,bmd->bd", slope, Z)
    hessian = np.einsum("bm,bmd,bme->bde", curvature, Z, Z) + ridge * np.eye(Z.shape[2])
    mean = np.sum(share * loss.value(s), axis=1)
    value = mean + np.sum(v * (linear + 0.5 * ridge * v), axis=1)
    return value, gradient + linear + ridge * v, hessian


#: Fast weights by the model that a program is solved by, behind the programs that rows are read
#: from. The model is of exactly this type: a subclass could solve another problem.
_FAST: dict[type[Composite], tuple[type[FirstStage], Callable[..., Array]]] = {
    MarginModel: (SeparableFirstStage, _separable),
    ExponentialModel: (EntropyFirstStage, _entropy),
}


#: Newton steps, halves of each, and the size of the last step relative to the point.
_MOST_STEPS = 80
_MOST_HALVES = 30
_LAST_STEP = 1e-11


def _minimize_in_ball(
    smooth: Callable[[Array], _Smooth], batch: int, dimension: int, radius: float
) -> Array:
    """Minimizers (b, d) of strongly convex functions over ``||v|| <= radius``.

    Each step minimizes the quadratic model over the ball and is halved until the value falls.

    Parameters
    ----------
    smooth
        Maps points (b, d) to values (b,), gradients (b, d) and Hessians (b, d, d).
    batch
        How many functions there are (b).
    dimension
        Of how many numbers they are functions (d).
    radius
        Radius of the ball, which may be infinite.

    Returns
    -------
    minimizers
        The minimizers, NaN where they did not converge.
    """
    v = np.zeros((batch, dimension))
    is_minimizer = np.zeros(batch, dtype=bool)
    terms = smooth(v)
    for _ in range(_MOST_STEPS):
        _, gradient, hessian = terms
        step = _model_minimizer(v, gradient, hessian, radius) - v
        size = np.sum(np.abs(step), axis=1)
        is_minimizer = size <= _LAST_STEP * (1.0 + np.sum(np.abs(v), axis=1))
        if is_minimizer.all():
            break
        v, terms = _line_search(smooth, v, step, terms)
    v[~is_minimizer] = np.nan
    return v


def _line_search(
    smooth: Callable[[Array], _Smooth], v: Array, step: Array, terms: _Smooth
) -> tuple[Array, _Smooth]:
    """Points on the way from ``v`` (b, d) along ``step`` (b, d) at which the values are lower.

    ``terms`` are values, gradients and Hessians at ``v``; those at the new points are returned.
    """
    value, gradient, _ = terms
    slope = np.sum(gradient * step, axis=1)
    # below rounding the value decides nothing, and Newton's method needs no guard
    rounding = 1e-13 * (1.0 + np.abs(value))
    share = np.ones(len(v))
    for _ in range(_MOST_HALVES):
        trial = v + share[:, None] * step
        terms_at_trial = smooth(trial)
        value_at_trial, _, _ = terms_at_trial
        # a ten-thousandth of what the slope promises has to be gained
        falls_short = value_at_trial > value + 1e-4 * share * slope + rounding
        if not falls_short.any():
            break
        share = np.where(falls_short, 0.5 * share, share)
    return trial, terms_at_trial


def _model_minimizer(v: Array, gradient: Array, hessian: Array, radius: float) -> Array:
    """Minimizers over the ball of the quadratics with this gradient and Hessian at ``v``.

    They are ``(H + nu I)^-1 (H v - g)`` with the least nu >= 0 for which their norm is at most the
    radius.
    """
    if math.isinf(radius):
        return np.asarray(v - np.linalg.solve(hessian, gradient[..., None])[..., 0])
    curvature, basis = np.linalg.eigh(hessian)
    pull = np.einsum("bij,bi->bj", basis, np.einsum("bij,bj->bi", hessian, v) - gradient)
    multiplier = np.zeros((len(v), 1))
    for _ in range(60):
        # Newton on 1/norm - 1/radius in the multiplier, concave and increasing: no step overshoots
        shifted = curvature + multiplier
        norm = np.maximum(np.linalg.norm(pull / shifted, axis=1, keepdims=True), 1e-300)
        outside = norm > radius * (1 + 1e-14)
        if not outside.any():
            break
        fall = np.sum(pull**2 / shifted**3, axis=1, keepdims=True)
        newton_step = (norm / radius - 1.0) * norm**2 / np.maximum(fall, 1e-300)
        multiplier = np.where(outside, multiplier + newton_step, multiplier)
    point: Array = np.einsum("bij,bj->bi", basis, pull / (curvature + multiplier))
    norm = np.linalg.norm(point, axis=1, keepdims=True)
    return np.asarray(point * np.minimum(1.0, radius / np.maximum(norm, 1e-300)))
