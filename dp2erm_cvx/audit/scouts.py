"""Movements of many pairs of groups, for searching: a few distinct rows stand for all n, or full solves.

Small convex programs are solved side by side: Newton in a ball, and quadratics over simplices.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.movement import NeighborPair, Quantity, resolve
from dp2erm_cvx.audit.pairs import Pairs, records_at
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, SeparableFirstStage
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.entropy import ExponentialModel, RidgedEntropyFirstStage
from dp2erm_cvx.program.kernel_model import FactoredKernelModel, KernelModel, MatchingModel
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.universe import Universe

Arms = NDArray[np.int64]

#: Entries of covariates of the datasets that are solved at once.
_TOGETHER = 500_000

#: Maps covariates (b, m, d), arms and counts (b, m) of b datasets of distinct rows to weights per record.
Weights = Callable[[Array, Arms, Array], Array]


@dataclass(frozen=True)
class Surrogate:
    """Uncertified movements of pairs of groups. What a scout finds is solved again in full.

    By the ``weights`` of distinct rows; where there are None, of any program, by all n records, one solve
    each.
    """

    program: FirstStage
    universe: Universe
    weights: Weights | None = None

    @classmethod
    def of(cls, program: FirstStage, universe: Universe, sample: Pairs | None = None) -> Surrogate:
        """The fast scout of a resolved program; full solves without one, or if it is off on ``sample``."""
        full, weights = cls(program, universe), _known(program, universe)
        surrogate = cls(program, universe, weights)
        if weights is None or sample is None:
            return surrogate
        with np.errstate(all="ignore"):
            fast, slow = surrogate.movements(sample)[Quantity.V], full.movements(sample)[Quantity.V]
        agree = np.isclose(fast, slow, rtol=1e-6, atol=1e-6, equal_nan=True)
        return surrogate if agree.all() else full

    @property
    def exact(self) -> bool:
        """True if every movement takes two full solves."""
        return self.weights is None

    def movements(self, pairs: Pairs) -> dict[Quantity, Array]:
        """Movements (b,), NaN where a pair lies outside of the universe or was not solved."""
        valid = np.flatnonzero(np.isfinite(pairs.count).all(axis=1))
        moved = {quantity: np.full(len(pairs), np.nan) for quantity in Quantity}
        if self.weights is None:
            for k in valid:
                pair = NeighborPair(*pairs.take(np.array([k])).records(self.universe.domain), 0, "")
                for solved in resolve(self.program, [pair]):
                    for quantity, interval in solved.movements.items():
                        moved[quantity][k] = 0.5 * (interval.low + interval.high)
        elif len(valid):
            some = pairs.take(valid)
            ends = zip(some.distinct(False), some.distinct(True), strict=True)
            x, arm, count = (np.concatenate(parts) for parts in ends)
            with contextlib.suppress(np.linalg.LinAlgError):  # hardly any ridge
                both = self.weights(x, arm, count)
                half = len(some)
                for quantity, values in _of_groups(both[:half], both[half:], count[:half]).items():
                    moved[quantity][valid] = values
        return moved


def _of_groups(w: Array, v: Array, count: Array) -> dict[Quantity, Array]:
    """The movements (b,) of b pairs of groups: ``w``, ``v`` weights per record and ``count`` (b, m).

    The last group is the changed record. Not certified: for searching.
    """
    gap = np.abs(w - v)
    moved = np.sum(count * gap, axis=1)
    present = count > 0
    squares = np.sum(count * gap**2, axis=1)
    differ = np.sum(count * (gap > 1e-7), axis=1)
    product = np.max(w * v * present, axis=1)
    return {
        Quantity.V: moved + 2 * np.minimum(w[:, -1], v[:, -1]),
        Quantity.L1: moved,
        Quantity.L2: np.sqrt(squares),
        Quantity.L0: differ,
        Quantity.W1: moved + 2 * np.max(np.minimum(w, v) * present, axis=1),
        Quantity.W2: np.sqrt((squares + 2 * product) * (1 + differ)),
        Quantity.LARGEST: np.max(np.maximum(w, v) * present, axis=1),
    }


def _known(program: FirstStage, universe: Universe) -> Weights | None:
    """Fast weights of a resolved program, if there are any for the model that it is solved by."""
    if isinstance(program, ClosedFormWeights):
        return partial(_closed_form, program, universe)
    if isinstance(program, WeightsProgram):
        return None if program.unread(universe) else partial(_direct, program, universe)
    two = records_at(universe.domain, np.zeros((2, universe.n_features)), np.array([0, 1]))
    try:
        model = program.model(two)
    except Dp2ermError:  # without a smooth form, or with a setting for every one of n records
        return None
    family, weights = _FAST.get(type(model), (None, None))
    if family is None or weights is None or not isinstance(program, family):
        return None
    return partial(weights, program, universe, model)


def _closed_form(program: ClosedFormWeights, universe: Universe, x: Array, arm: Arms, count: Array) -> Array:
    """Weights that are functions of each record."""
    records = records_at(universe.domain, x.reshape(-1, x.shape[2]), arm.ravel())
    return _of_sum_n(
        program.unnormalized(records).reshape(arm.shape), count / count.sum(axis=1, keepdims=True)
    )


def _direct(program: WeightsProgram, universe: Universe, x: Array, arm: Arms, count: Array) -> Array:
    """Weights that are the variable of a program."""
    step = max(1, _TOGETHER // (universe.n_samples * universe.n_columns))
    parts = []
    for k in range(0, len(x), step):
        rows, arms = x[k : k + step], arm[k : k + step]
        records = records_at(universe.domain, rows.reshape(-1, x.shape[2]), arms.ravel())
        parts.append(program.weights_of_kinds(universe, records, count[k : k + step]))
    return np.concatenate(parts)


def _of_sum_n(f: Array, share: Array) -> Array:
    """Weights in the ratios of ``f`` (b, m), of sum n."""
    return np.asarray(f / np.sum(share * f, axis=1, keepdims=True), dtype=np.float64)


def _entropy(
    program: RidgedEntropyFirstStage,
    universe: Universe,
    model: ExponentialModel,
    x: Array,
    arm: Arms,
    count: Array,
) -> Array:
    """Weights of entropy balancing with a ridge."""
    ridge = model.ridge / model.n
    B, target = _entropy_rows(program, universe.domain, x, arm, count)
    share = count / count.sum(axis=1, keepdims=True)
    unit = ridge * np.eye(B.shape[2])

    def smooth(v: Array) -> tuple[Array, Array, Array]:
        s = np.einsum("bmd,bd->bm", B, v)
        top = np.max(s, axis=1, keepdims=True)
        p = share * np.exp(s - top)
        total = p.sum(axis=1, keepdims=True)
        p = p / total
        m = np.einsum("bm,bmd->bd", p, B)
        value = (top + np.log(total))[:, 0] + np.sum(v * (0.5 * ridge * v - target), axis=1)
        spread = np.einsum("bm,bmd,bme->bde", p, B, B) - m[:, :, None] * m[:, None, :]
        return value, m - target + ridge * v, spread + unit

    ball = model.penalty.set
    radius = ball.radius if isinstance(ball, L2Ball) else math.inf
    v = minimize_in_ball(smooth, len(B), B.shape[2], radius)
    s = np.minimum(np.einsum("bmd,bd->bm", B, v), math.log(model.trim))
    return _of_sum_n(np.exp(s - np.max(s, axis=1, keepdims=True)), share)


def _entropy_rows(
    program: RidgedEntropyFirstStage, domain: Domain, x: Array, arm: Arms, count: Array
) -> tuple[Array, Array]:
    """Rows b (b, m, 2k) and targets t (b, 2k), as ``EntropyFirstStage.moments`` has them."""
    size, constant = program.bounds(domain)
    balance = program.balance(x.reshape(-1, x.shape[2])).reshape(*x.shape[:2], -1)
    g = np.concatenate([np.full((*arm.shape, 1), constant), balance], axis=2)
    n = count.sum(axis=1, keepdims=True)
    treated = np.sum(count * arm, axis=1, keepdims=True)
    arms = np.concatenate([n - treated, treated], axis=1)
    scale, share = np.ones_like(arms), arms / n
    if program.scaling == "paper":
        floor = domain.arm_floor or np.maximum(arms.min(axis=1, keepdims=True), 1.0)
        g = g * (floor / n / math.hypot(constant, size))[..., None]
        scale, share = n / np.maximum(arms, floor), np.maximum(arms, floor) / n
    if program.arm_mass == "equal":
        share = np.full_like(arms, 0.5)
    mean = np.einsum("bm,bmd->bd", count / n, g)
    side = np.stack([1 - arm, arm], axis=2) * scale[:, None, :]
    B = (side[..., None] * g[:, :, None, :]).reshape(*arm.shape, -1)
    return B, ((scale * share)[..., None] * mean[:, None, :]).reshape(len(B), -1)


def _separable(
    program: SeparableFirstStage, universe: Universe, model: MarginModel, x: Array, arm: Arms, count: Array
) -> Array:
    """Weights of any :class:`~dp2erm_cvx.program.SeparableFirstStage`."""
    records = records_at(universe.domain, x.reshape(-1, x.shape[2]), arm.ravel())
    Z = program.rows(records).reshape(*arm.shape, -1)
    share = count / count.sum(axis=1, keepdims=True)
    terms = program.linear_terms(records)
    linear = 0.0 if terms is None else np.einsum("bm,bmd->bd", share, terms.reshape(Z.shape))
    ridge, unit, loss = program.mu, program.mu * np.eye(Z.shape[2]), program.loss

    def smooth(v: Array) -> tuple[Array, Array, Array]:
        s = np.einsum("bmd,bd->bm", Z, v)
        value = np.sum(share * loss.value(s), axis=1) + np.sum(v * (linear + 0.5 * ridge * v), axis=1)
        gradient = np.einsum("bm,bmd->bd", share * loss.slope(s), Z) + linear + ridge * v
        hessian = np.einsum("bm,bmd,bme->bde", share * loss.curvature(s), Z, Z) + unit
        return value, gradient, hessian

    v = minimize_in_ball(smooth, len(Z), Z.shape[2], program.ball(universe.domain))
    other = program.weight_rows(records)
    U = Z if other is None else other.reshape(Z.shape)
    logs = program.log_weight.log(np.einsum("bmd,bd->bm", U, v))
    return _of_sum_n(np.exp(logs - np.max(logs, axis=1, keepdims=True)), share)


def _kernel(
    program: KernelFirstStage,
    universe: Universe,
    model: KernelModel | FactoredKernelModel,
    x: Array,
    arm: Arms,
    count: Array,
) -> Array:
    """Weights of a kernel balance."""
    pooled = model.scale == 1.0
    cap = math.inf if pooled else getattr(model.penalty.set, "cap", math.inf)
    m = arm.shape[1]
    alpha = program.alpha
    K = np.stack([program.kernel.matrix(rows) for rows in x])
    n = count.sum(axis=1, keepdims=True)
    same = arm[:, :, None] == arm[:, None, :]
    present = count > 0
    # masses u = count p of the groups: sum p_i^2 over a group is u^2 / count
    ridge = universe.n_samples * program.mu / np.where(present, count, 1.0)
    Q = np.where(same, 1.0, alpha - 1.0) * K + ridge[:, :, None] * np.eye(m)
    c = (0.5 if pooled else 1.0) * alpha * np.einsum("bij,bj->bi", K, count / n)
    sizes = np.stack([np.sum(count * (arm == side), axis=1) for side in (0, 1)], axis=1)
    alone = (sizes == 0).any(axis=1, keepdims=True)
    # an arm that is alone has twice the total of masses
    total = np.where(pooled | ~alone, 1.0, 2.0)
    # no mass exceeds 1, so that twice as much never binds
    room = cap / n * count / total if math.isfinite(cap) else np.full(arm.shape, 2.0)
    upper = np.asarray(np.where(present, room, 0.0), dtype=np.float64)
    u = minimize_on_simplices(Q, c / total, np.zeros_like(arm) if pooled else arm, upper)
    weight = total * (n if pooled else 0.5 * n)
    return np.where(present, weight * u / np.where(present, count, 1.0), 0.0)


def _matching(
    program: Any, universe: Universe, model: MatchingModel, x: Array, arm: Arms, count: Array
) -> Array:
    """Weights of kernel mean matching: to a public target, or to the treated records."""
    target: Array | None = None
    if program.target is not None:
        skipped = 1 if universe.domain.intercept else 0
        target = universe.domain.features(program.target.X)[:, skipped:]
    n, present = count.sum(axis=1, keepdims=True), count > 0
    K = np.stack([program.kernel.matrix(rows) for rows in x])
    if target is None:
        source = present & (arm == 0)
        pulls = np.where(arm == 1, count, 0.0)
        alone = ~source.any(axis=1, keepdims=True) | (pulls.sum(axis=1, keepdims=True) == 0)
        source, pulls = present & ((arm == 0) | alone), np.where(alone, count, pulls)
        c = np.einsum("bij,bj->bi", K, pulls / pulls.sum(axis=1, keepdims=True))
    else:
        source = present
        c = np.stack([program.kernel.cross(rows, target).mean(axis=1) for rows in x])
    # masses u = count p of the groups, as in the scout of a kernel balance
    ridge = universe.n_samples * program.ridge / np.where(source, count, 1.0)
    upper = np.where(source, 2.0, 0.0)
    u = minimize_on_simplices(K + ridge[:, :, None] * np.eye(arm.shape[1]), c, np.zeros_like(arm), upper)
    return np.where(source, n * u / np.where(source, count, 1.0), 0.0)


#: By the model that a program is solved by, of exactly this type: a subclass could solve another problem.
#: With the programs that rows are read from.
_FAST: dict[type[Composite], tuple[type[FirstStage], Callable[..., Array]]] = {
    MarginModel: (SeparableFirstStage, _separable),
    ExponentialModel: (RidgedEntropyFirstStage, _entropy),
    KernelModel: (KernelFirstStage, _kernel),
    FactoredKernelModel: (KernelFirstStage, _kernel),
    MatchingModel: (FirstStage, _matching),
}


#: Maps points (b, d) to values (b,), gradients (b, d) and Hessians (b, d, d) of b functions.
Smooth = Callable[[Array], tuple[Array, Array, Array]]

_ITERATIONS = 80


def minimize_in_ball(smooth: Smooth, batch: int, dimension: int, radius: float) -> Array:
    """Minimizers (b, d) of strongly convex functions over ``||v|| <= radius``; NaN where not converged.

    Each step minimizes the quadratic model over the ball and is halved until the value falls.
    """
    v = np.zeros((batch, dimension))
    value, gradient, hessian = smooth(v)
    done = np.zeros(batch, dtype=bool)
    for _ in range(_ITERATIONS):
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
        newton: Array = v - np.linalg.solve(hessian, gradient[..., None])[..., 0]
        return newton
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
        extra = np.where(outside, extra + (norm / radius - 1.0) * norm**2 / np.maximum(fall, 1e-300), extra)
    point: Array = np.einsum("bij,bj->bi", basis, pull / (curvature + extra))
    norm = np.linalg.norm(point, axis=1, keepdims=True)
    inside: Array = point * np.minimum(1.0, radius / np.maximum(norm, 1e-300))
    return inside


def minimize_on_simplices(Q: Array, c: Array, block: NDArray[np.int64], upper: Array) -> Array:
    """Minimizers (b, m) of ``u'Qu - 2 c'u`` with ``sum of u over a block = 1`` and ``0 <= u <= upper``.

    ``block`` (b, m) holds 0 or 1; ``upper`` 0 takes a variable out. Active sets by exchange: bounds that are
    violated are added, those whose multiplier is of the wrong sign released. NaN where that does not settle.
    """
    b, m = c.shape
    fixed = np.where(upper > 0, 0, -1)
    settled = np.zeros(b, dtype=bool)
    u = np.zeros((b, m))
    for attempt in range(6 * m):
        todo = np.flatnonzero(~settled)
        if not len(todo):
            break
        point, slope = _equality(Q[todo], c[todo], block[todo], upper[todo], fixed[todo])
        free, absent = fixed[todo] == 0, upper[todo] <= 0
        scale = 1e-12 * (1.0 + np.max(np.abs(slope), axis=1, keepdims=True))
        wrong = np.where(
            free,
            np.maximum(-point, point - upper[todo]),
            np.where(absent, 0.0, np.where(fixed[todo] < 0, -slope, slope) * 1e-3),
        )
        bad = wrong > np.where(free, 1e-13, scale)
        good = ~bad.any(axis=1) & np.isfinite(point).all(axis=1)
        u[todo[good]] = point[good]
        settled[todo[good]] = True
        change = bad
        if attempt >= m:  # one at a time, because exchanging many may cycle
            change = bad & (wrong == np.max(np.where(bad, wrong, -np.inf), axis=1, keepdims=True))
        below = np.where(point < 0, -1, 1)
        fixed[todo] = np.where(change, np.where(free, below, 0), fixed[todo])
    u[~settled] = np.nan
    return u


def _equality(
    Q: Array, c: Array, block: NDArray[np.int64], upper: Array, fixed: Array
) -> tuple[Array, Array]:
    """The point with ``fixed`` variables at their bounds, and how fast the Lagrangian grows in each."""
    b, m = c.shape
    free = fixed == 0
    bounds = np.where(fixed > 0, upper, 0.0)
    rows = np.stack([block == 0, block == 1], axis=1).astype(np.float64)
    A = np.zeros((b, m + 2, m + 2))
    A[:, :m, :m] = np.where(free[:, :, None], Q, np.eye(m))
    A[:, :m, m:] = np.where(free[:, :, None], rows.transpose(0, 2, 1), 0.0)
    A[:, m:, :m] = rows
    right = np.concatenate([np.where(free, c, bounds), np.ones((b, 2))], axis=1)
    # a block whose variables are all fixed has no multiplier to solve for
    empty = ~(rows * free[:, None, :]).any(axis=2)
    for side in (0, 1):
        A[empty[:, side], m + side] = np.eye(m + 2)[m + side]
        right[empty[:, side], m + side] = 0.0
    try:
        solution = np.linalg.solve(A, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        solution = np.full((b, m + 2), np.nan)
    point = solution[:, :m]
    multiplier = np.take_along_axis(solution[:, m:], block, axis=1)
    slope = np.einsum("bij,bj->bi", Q, point) - c + multiplier
    return point, slope
