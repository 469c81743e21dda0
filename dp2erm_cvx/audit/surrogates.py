"""Movements of many pairs of groups, for searching: a few distinct rows stand for all n, or full
solves.

Small convex programs are solved side by side: Newton in a ball, and quadratics over simplices.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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

#: Starts of a round, how many of the best are refined, and pairs tried in each refinement: where
#: movements are cheap, and where each takes two full solves.
CHEAP, COSTLY = (280, 2, 1500), (35, 1, 150)
#: Pairs of earlier rounds that are refined again, and whether a part of them is drawn anew.
_AGAIN = (False, True)

#: Maps the distinct records of b datasets, m of each, and their counts (b, m) to weights per record
#: (b, m).
Weights = Callable[[Records, Array], Array]


@dataclass(frozen=True)
class Surrogate:
    """Uncertified movements of pairs of groups. What it finds is solved again in full.

    By the ``weights`` of distinct rows; where there are None, of any program or function, by all n
    records, one solve each.
    """

    weighing: Weighing
    universe: MappedUniverse
    weights: Weights | None = None

    @classmethod
    def of(
        cls, weighing: Weighing, universe: MappedUniverse, sample: Pairs | None = None
    ) -> Surrogate:
        """The fast one of a resolved program; full solves without one, or if it is off on
        ``sample``.
        """
        known = _known(weighing.program, universe) if isinstance(weighing, ProgramWeights) else None
        full, fast = cls(weighing, universe), cls(weighing, universe, known)
        if fast.exact or sample is None:
            return fast
        with np.errstate(all="ignore"):
            quick, slow = fast.movements(sample)[Quantity.V], full.movements(sample)[Quantity.V]
        return fast if np.allclose(quick, slow, rtol=1e-6, atol=1e-6, equal_nan=True) else full

    def movements(
        self, pairs: Pairs, until: Deadline | None = None, least: int = 1
    ) -> dict[Quantity, Array]:
        """Movements (b,), NaN where a pair lies outside of the universe or was not solved.

        Where each takes full solves, no further pair is solved after the deadline ``until`` once
        there are ``least``.
        """
        valid = np.flatnonzero(np.isfinite(pairs.count).all(axis=1))
        moved = {quantity: np.full(len(pairs), np.nan) for quantity in Quantity}
        if self.weights is None:
            until = until or Deadline()
            # read once, not for every dataset
            weighing = self.weighing.at(self.universe)
            for number, k in enumerate(valid):
                if number >= least and until.passed:
                    break
                pair = NeighborPair(*pairs.take(np.array([k])).records(self.universe.space), 0, "")
                for solved in resolve(weighing, [pair]):
                    for quantity, interval in solved.movements.items():
                        moved[quantity][k] = 0.5 * (interval.low + interval.high)
        elif len(valid):
            some = pairs.take(valid)
            ends = zip(some.distinct(False), some.distinct(True), strict=True)
            x, arm, count = (np.concatenate(parts) for parts in ends)
            with contextlib.suppress(np.linalg.LinAlgError):  # hardly any ridge
                records = records_at(self.universe.space, x.reshape(-1, x.shape[2]), arm.ravel())
                both = self.weights(records, count)
                w, v, n = both[: len(some)], both[len(some) :], count[: len(some)]
                gap, present = np.abs(w - v), n > 0
                squares, differ = np.sum(n * gap**2, axis=1), np.sum(n * (gap > 1e-7), axis=1)
                l1, product = np.sum(n * gap, axis=1), np.max(w * v * present, axis=1)
                moved[Quantity.V][valid] = l1 + 2 * np.minimum(
                    w[:, -1], v[:, -1]
                )  # the changed record is last
                moved[Quantity.L1][valid] = l1
                moved[Quantity.L2][valid] = np.sqrt(squares)
                moved[Quantity.L0][valid] = differ
                moved[Quantity.W1][valid] = l1 + 2 * np.max(np.minimum(w, v) * present, axis=1)
                moved[Quantity.W2][valid] = np.sqrt((squares + 2 * product) * (1 + differ))
                moved[Quantity.LARGEST][valid] = np.max(np.maximum(w, v) * present, axis=1)
        return moved

    @property
    def exact(self) -> bool:
        """True if every movement takes two full solves."""
        return self.weights is None

    @property
    def most(self) -> int:
        """Pairs that a climb tries at most."""
        starts, refined, evaluations = COSTLY if self.exact else CHEAP
        return starts + (refined + len(_AGAIN)) * evaluations

    def climb(
        self,
        quantity: Quantity,
        known: Sequence[Pairs],
        budget: int,
        rng: np.random.Generator,
        until: Deadline,
    ) -> tuple[Pairs, int]:
        """The pairs at the ends of the ascents of one round, and how many were tried, at most
        ``budget``.

        After the deadline ``until`` nothing is tried any more but one start.
        """
        universe = self.universe
        number, refined, evaluations = COSTLY if self.exact else CHEAP
        starts = Pairs.starts(universe, min(number, budget), rng)
        spent = len(starts)
        reached = self.movements(starts, until.part(0.5))[quantity]
        values = np.nan_to_num(reached, nan=-np.inf, posinf=-np.inf)
        highest = np.argsort(-values, kind="stable")[:refined]
        steps = rng.choice([0.1, 0.3], refined)  # small ones stay on a narrow hill
        chosen = [
            (starts.take(np.array([index])), step)
            for index, step in zip(highest, steps, strict=False)
        ]
        for anew in _AGAIN if known else ():  # with small steps
            pair = known[int(rng.integers(len(known)))]
            X, a, count = pair.X.copy(), pair.a.copy(), pair.count.copy()
            if anew:  # another hill: one common kind, and one end of the change, are drawn again
                kind = int(rng.integers(CLUSTERS))
                rows = [2 + kind, int(rng.integers(2))]
                X[0, rows] = universe.space.features_bound * directions(rng, 2, X.shape[2])
                a[0, rows], count[0, kind] = rng.integers(2, size=2), np.max(count) * rng.random()
            elif rng.random() < 0.5:
                place = int(rng.integers(CLUSTERS + 2))
                a[0, place] = 1 - a[0, place]
            chosen.append((Pairs.admitted(universe, X, a, count), 0.1))
        free, rooms = (
            [_free(universe, start) for start, _ in chosen],
            evaluations * np.arange(len(chosen)),
        )
        rooms = np.clip(budget - spent - rooms, 0, evaluations).tolist()
        climbs = [
            (u, step, room) for (u, _), (_, step), room in zip(free, chosen, rooms, strict=True)
        ]

        def heights(points: list[tuple[int, Array]]) -> list[Array]:
            if until.passed:
                return [np.full(len(u), np.nan) for _, u in points]
            tried = Pairs.joined([free[k][1](u) for k, u in points])
            moved = self.movements(tried, until, least=0)[quantity]
            return np.split(moved, np.cumsum([len(u) for _, u in points])[:-1])

        ends = [starts.take(np.array([int(np.argmax(values))]))]
        if until.passed:
            return ends[0], spent
        for k, (best, largest, tried) in enumerate(evolve(heights, climbs, rng)):
            spent += tried
            ends.append(free[k][1](best[None]) if np.isfinite(largest) else chosen[k][0])
        return Pairs.joined(ends), spent


def _free(universe: MappedUniverse, start: Pairs) -> tuple[Array, Callable[[Array], Pairs]]:
    """Free numbers of a pair: points of the kinds that are there, logs of their shares; and pairs
    by them.
    """
    active = np.flatnonzero(np.nan_to_num(start.count[0]) > 0)
    rows = np.concatenate([2 + active, [0, 1]]).astype(np.int64)
    d, bound = universe.n_features, universe.space.features_bound

    def pairs(u: Array) -> Pairs:
        X = np.repeat(start.X, len(u), axis=0)
        X[:, rows] = u[:, : len(rows) * d].reshape(len(u), len(rows), d) * bound
        share = np.zeros((len(u), CLUSTERS))
        share[:, active] = np.exp(np.clip(u[:, len(rows) * d :], -30.0, 30.0))
        return Pairs.admitted(universe, X, np.repeat(start.a, len(u), axis=0), share)

    logs = np.log(np.maximum(start.count[0, active], 0.3))
    return np.append(start.X[0, rows].ravel() / bound, logs), pairs


def _known(program: FirstStage, universe: MappedUniverse) -> Weights | None:
    """Fast weights of a resolved program, if there are any for the model that it is solved by."""
    if isinstance(program, ClosedFormWeights):
        return lambda records, count: _of_sum_n(
            program.unnormalized(records).reshape(count.shape), count
        )
    if isinstance(program, WeightsProgram):
        if not program.has_weights_of_kinds(universe):
            return None
        return partial(program.weights_of_kinds, universe)
    two = records_at(universe.space, np.zeros((2, universe.n_features)), np.array([0, 1]))
    try:
        model = program.model(two)
    except Dp2ermError:  # without a smooth form, or with a setting for every one of n records
        return None
    family, weights = _FAST.get(type(model), (None, None))
    if family is None or weights is None or not isinstance(program, family):
        return None
    if isinstance(program, SeparableFirstStage) and (
        not program.is_plain or program.target is not None
    ):
        return None
    return partial(weights, program, universe, model)


def _of_sum_n(f: Array, count: Array) -> Array:
    """Weights in the ratios of ``f`` (b, m), of sum n."""
    share = count / count.sum(axis=1, keepdims=True)
    return np.asarray(f / np.sum(share * f, axis=1, keepdims=True), dtype=np.float64)


def _entropy(
    program: Any, universe: MappedUniverse, model: Any, records: Records, count: Array
) -> Array:
    """Weights of the paper's entropy balancing: rows and targets are
    ``EntropyFirstStage.moments``.
    """
    arm = records.a.reshape(count.shape)
    rows = program.in_arm(records, records.a, np.ones(2)).reshape(*arm.shape, 2, -1)
    share = count / count.sum(axis=1, keepdims=True)
    treated = np.sum(count * arm, axis=1)
    size = np.column_stack([count.sum(axis=1) - treated, treated])
    scale, part = program.of_arms(size, universe.space)
    mean = np.einsum("bm,bmsd->bd", share, rows)  # a row is 0 in the arm that is not its own
    target = ((scale * part)[..., None] * mean[:, None, :]).reshape(len(arm), -1)
    Z = (rows * scale[:, None, :, None]).reshape(*arm.shape, -1)
    ball = model.penalty.set
    radius = ball.radius if isinstance(ball, L2Ball) else math.inf
    v = _fitted(Z, share, -target, model.ridge / model.n, radius)
    logs = np.einsum("bmd,bd->bm", Z, v)
    return _of_sum_n(np.exp(logs - np.max(logs, axis=1, keepdims=True)), count)


def _separable(
    program: Any, universe: MappedUniverse, model: Any, records: Records, count: Array
) -> Array:
    """Weights of any :class:`~dp2erm_cvx.program.SeparableFirstStage`."""
    Z = program.rows(records).reshape(*count.shape, -1)
    share = count / count.sum(axis=1, keepdims=True)
    terms = program.linear_terms(records)
    linear = 0.0 if terms is None else np.einsum("bm,bmd->bd", share, terms.reshape(Z.shape))
    arm = records.a.reshape(count.shape)
    loss, weight = program.loss.along(arm), program.log_weight.along(arm)
    v = _fitted(Z, share, linear, program.mu, program.ball(universe.space), loss)
    logs = weight.log(np.einsum("bmd,bd->bm", Z, v))
    return _of_sum_n(np.exp(logs - np.max(logs, axis=1, keepdims=True)), count)


def _fitted(
    Z: Array, share: Array, linear: Any, ridge: float, radius: float, loss: Any = None
) -> Array:
    """Coefficients (b, d) of ``<linear, v>``, a ridge and the mean ``loss`` of ``Z v``, or
    log-mean-exp.
    """

    def smooth(v: Array) -> tuple[Array, Array, Array]:
        s = np.einsum("bmd,bd->bm", Z, v)
        if loss is None:
            top = np.max(s, axis=1, keepdims=True)
            bend = share * np.exp(s - top)
            total = bend.sum(axis=1, keepdims=True)
            value, slope, bend = (top + np.log(total))[:, 0], bend / total, bend / total
        else:
            value = np.sum(share * loss.value(s), axis=1)
            slope, bend = share * loss.slope(s), share * loss.curvature(s)
        gradient = np.einsum("bm,bmd->bd", slope, Z)
        hessian = np.einsum("bm,bmd,bme->bde", bend, Z, Z) + ridge * np.eye(Z.shape[2])
        if loss is None:
            hessian -= gradient[:, :, None] * gradient[:, None, :]
        value = value + np.sum(v * (linear + 0.5 * ridge * v), axis=1)
        return value, gradient + linear + ridge * v, hessian

    return _minimize_in_ball(smooth, len(Z), Z.shape[2], radius)


#: By the model that a program is solved by, of exactly this type: a subclass could solve another
#: problem.
#: With the programs that rows are read from.
_FAST: dict[type[Composite], tuple[type[FirstStage], Callable[..., Array]]] = {
    MarginModel: (SeparableFirstStage, _separable),
    ExponentialModel: (EntropyFirstStage, _entropy),
}


def _minimize_in_ball(
    smooth: Callable[[Array], tuple[Array, Array, Array]], batch: int, dimension: int, radius: float
) -> Array:
    """Minimizers (b, d) of strongly convex functions over ``||v|| <= radius``; NaN where not
    converged.

    ``smooth`` maps points (b, d) to values (b,), gradients (b, d) and Hessians (b, d, d). Each step
    minimizes the quadratic model over the ball and is halved until the value falls.
    """
    v, done = np.zeros((batch, dimension)), np.zeros(batch, dtype=bool)
    value, gradient, hessian = smooth(v)
    for _ in range(80):
        step = _model_minimizer(v, gradient, hessian, radius) - v
        slope = np.sum(gradient * step, axis=1)
        size = np.sum(np.abs(step), axis=1)
        done = size <= 1e-11 * (1.0 + np.sum(np.abs(v), axis=1))
        if done.all():
            break
        share = np.ones(batch)
        for _ in range(30):
            trial = v + share[:, None] * step
            tried = smooth(trial)
            # below rounding the value decides nothing, and Newton's method needs no guard
            short = tried[0] > value + 1e-4 * share * slope + 1e-13 * (1.0 + np.abs(value))
            if not short.any():
                break
            share = np.where(short, 0.5 * share, share)
        v, (value, gradient, hessian) = trial, tried
    v[~done] = np.nan
    return v


def _model_minimizer(v: Array, gradient: Array, hessian: Array, radius: float) -> Array:
    """Minimizers over the ball of the quadratics with this gradient and Hessian at ``v``."""
    if math.isinf(radius):
        return np.asarray(v - np.linalg.solve(hessian, gradient[..., None])[..., 0])
    curvature, basis = np.linalg.eigh(hessian)
    pull = np.einsum("bij,bi->bj", basis, np.einsum("bij,bj->bi", hessian, v) - gradient)
    extra = np.zeros((len(v), 1))
    for _ in range(60):
        # Newton on 1/norm - 1/radius in the multiplier, concave and increasing: no step overshoots
        shifted = curvature + extra
        norm = np.maximum(np.linalg.norm(pull / shifted, axis=1, keepdims=True), 1e-300)
        outside = norm > radius * (1 + 1e-14)
        if not outside.any():
            break
        fall = np.sum(pull**2 / shifted**3, axis=1, keepdims=True)
        extra = np.where(
            outside, extra + (norm / radius - 1.0) * norm**2 / np.maximum(fall, 1e-300), extra
        )
    point: Array = np.einsum("bij,bj->bi", basis, pull / (curvature + extra))
    norm = np.linalg.norm(point, axis=1, keepdims=True)
    return np.asarray(point * np.minimum(1.0, radius / np.maximum(norm, 1e-300)))
