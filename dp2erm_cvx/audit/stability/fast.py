"""Fast scouts: equal records have equal weights, so a few distinct rows stand for all n."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp2erm_cvx.audit.stability.batched import minimize_in_ball, minimize_on_simplices
from dp2erm_cvx.audit.stability.claims import Quantity
from dp2erm_cvx.audit.stability.groups import Groups, records_at
from dp2erm_cvx.audit.stability.scout import Arms, InFull, Scout
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, SeparableFirstStage
from dp2erm_cvx.program.entropy import RidgedEntropyFirstStage
from dp2erm_cvx.program.exponential import ExponentialModel
from dp2erm_cvx.program.kernel_model import FactoredKernelModel, KernelModel, MatchingModel
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.universe import Universe


class EntropyScout(Scout):
    """Weights of entropy balancing with a ridge."""

    family = RidgedEntropyFirstStage
    program: RidgedEntropyFirstStage

    def __init__(self, program: FirstStage, universe: Universe, model: ExponentialModel) -> None:
        super().__init__(program, universe)
        self.ridge, self.radius, self.trim = model.ridge / model.n, _radius(model), model.trim

    def rows(self, x: Array, arm: Arms, count: Array) -> tuple[Array, Array]:
        """Rows b (b, m, 2k) and targets t (b, 2k), as ``EntropyFirstStage.moments`` has them."""
        program, domain = self.program, self.universe.domain
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

    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """See :meth:`Scout.weights`."""
        B, target = self.rows(x, arm, count)
        share = count / count.sum(axis=1, keepdims=True)
        unit = self.ridge * np.eye(B.shape[2])

        def smooth(v: Array) -> tuple[Array, Array, Array]:
            s = np.einsum("bmd,bd->bm", B, v)
            top = np.max(s, axis=1, keepdims=True)
            p = share * np.exp(s - top)
            total = p.sum(axis=1, keepdims=True)
            p = p / total
            m = np.einsum("bm,bmd->bd", p, B)
            value = (top + np.log(total))[:, 0] + np.sum(v * (0.5 * self.ridge * v - target), axis=1)
            spread = np.einsum("bm,bmd,bme->bde", p, B, B) - m[:, :, None] * m[:, None, :]
            return value, m - target + self.ridge * v, spread + unit

        v = minimize_in_ball(smooth, len(B), B.shape[2], self.radius)
        s = np.minimum(np.einsum("bmd,bd->bm", B, v), math.log(self.trim))
        f = np.exp(s - np.max(s, axis=1, keepdims=True))
        return np.asarray(f / np.sum(share * f, axis=1, keepdims=True), dtype=np.float64)


class KernelScout(Scout):
    """Weights of a kernel balance."""

    family = KernelFirstStage
    program: KernelFirstStage

    def __init__(
        self, program: FirstStage, universe: Universe, model: KernelModel | FactoredKernelModel
    ) -> None:
        super().__init__(program, universe)
        self.pooled = model.scale == 1.0
        self.cap = math.inf if self.pooled else getattr(model.penalty.set, "cap", math.inf)

    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """See :meth:`Scout.weights`."""
        m = arm.shape[1]
        alpha = self.program.alpha
        K = np.stack([self.program.kernel.matrix(rows) for rows in x])
        n = count.sum(axis=1, keepdims=True)
        same = arm[:, :, None] == arm[:, None, :]
        present = count > 0
        # masses u = count p of the groups: sum p_i^2 over a group is u^2 / count
        ridge = self.universe.n_samples * self.program.mu / np.where(present, count, 1.0)
        Q = np.where(same, 1.0, alpha - 1.0) * K + ridge[:, :, None] * np.eye(m)
        c = (0.5 if self.pooled else 1.0) * alpha * np.einsum("bij,bj->bi", K, count / n)
        sizes = np.stack([np.sum(count * (arm == side), axis=1) for side in (0, 1)], axis=1)
        alone = (sizes == 0).any(axis=1, keepdims=True)
        # an arm that is alone has twice the total of masses
        total = np.where(self.pooled | ~alone, 1.0, 2.0)
        # no mass exceeds 1, so that twice as much never binds
        room = self.cap / n * count / total if math.isfinite(self.cap) else np.full(arm.shape, 2.0)
        upper = np.asarray(np.where(present, room, 0.0), dtype=np.float64)
        u = minimize_on_simplices(Q, c / total, np.zeros_like(arm) if self.pooled else arm, upper)
        weight = total * (n if self.pooled else 0.5 * n)
        return np.where(present, weight * u / np.where(present, count, 1.0), 0.0)


class SeparableScout(Scout):
    """Weights of any :class:`~dp2erm_cvx.program.SeparableFirstStage`."""

    family = SeparableFirstStage
    program: SeparableFirstStage

    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """See :meth:`Scout.weights`."""
        program = self.program
        records = records_at(self.universe, x.reshape(-1, x.shape[2]), arm.ravel())
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

        v = minimize_in_ball(smooth, len(Z), Z.shape[2], program.ball(self.universe.domain))
        other = program.weight_rows(records)
        U = Z if other is None else other.reshape(Z.shape)
        logs = program.log_weight.log(np.einsum("bmd,bd->bm", U, v))
        f = np.exp(logs - np.max(logs, axis=1, keepdims=True))
        return np.asarray(f / np.sum(share * f, axis=1, keepdims=True), dtype=np.float64)


class MatchingScout(Scout):
    """Weights of kernel mean matching: to a public target, or to the treated records."""

    def __init__(self, program: FirstStage, universe: Universe, model: MatchingModel) -> None:
        super().__init__(program, universe)
        matching: Any = program
        self.kernel, self.ridge = matching.kernel, universe.n_samples * matching.ridge
        self.target: Array | None = None
        if matching.target is not None:
            skipped = 1 if universe.domain.intercept else 0
            self.target = universe.domain.features(matching.target.X)[:, skipped:]

    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """See :meth:`Scout.weights`."""
        n, present = count.sum(axis=1, keepdims=True), count > 0
        K = np.stack([self.kernel.matrix(rows) for rows in x])
        if self.target is None:
            source = present & (arm == 0)
            pulls = np.where(arm == 1, count, 0.0)
            alone = ~source.any(axis=1, keepdims=True) | (pulls.sum(axis=1, keepdims=True) == 0)
            source, pulls = present & ((arm == 0) | alone), np.where(alone, count, pulls)
            c = np.einsum("bij,bj->bi", K, pulls / pulls.sum(axis=1, keepdims=True))
        else:
            source = present
            c = np.stack([self.kernel.cross(rows, self.target).mean(axis=1) for rows in x])
        # masses u = count p of the groups, as in the scout of a kernel balance
        ridge = self.ridge / np.where(source, count, 1.0)
        upper = np.where(source, 2.0, 0.0)
        u = minimize_on_simplices(K + ridge[:, :, None] * np.eye(arm.shape[1]), c, np.zeros_like(arm), upper)
        return np.where(source, n * u / np.where(source, count, 1.0), 0.0)


class ClosedFormScout(Scout):
    """Weights that are functions of each record."""

    program: ClosedFormWeights

    def weights(self, x: Array, arm: Arms, count: Array) -> Array:
        """See :meth:`Scout.weights`."""
        records = records_at(self.universe, x.reshape(-1, x.shape[2]), arm.ravel())
        f = self.program.unnormalized(records).reshape(arm.shape)
        total = count.sum(axis=1, keepdims=True)
        return np.asarray(f * total / np.sum(count * f, axis=1, keepdims=True), dtype=np.float64)


def _radius(model: ExponentialModel) -> float:
    ball = model.penalty.set
    return ball.radius if isinstance(ball, L2Ball) else math.inf


def scout_for(program: FirstStage, universe: Universe, sample: Groups) -> Scout:
    """The fast scout of a program, where there is one that agrees with its full solves on ``sample``."""
    solved = InFull(program, universe)
    scout = known_scout(program, universe)
    if scout is None:
        return solved
    with np.errstate(all="ignore"):
        fast, full = scout.movements(sample), solved.movements(sample)
    agree = np.isclose(fast[Quantity.V], full[Quantity.V], rtol=1e-6, atol=1e-6, equal_nan=True)
    return scout if agree.all() else solved


#: By the model that a program is solved by, of exactly this type: a subclass could solve another problem.
SCOUTS: dict[type[Composite], type[Scout]] = {
    MarginModel: SeparableScout,
    ExponentialModel: EntropyScout,
    KernelModel: KernelScout,
    FactoredKernelModel: KernelScout,
    MatchingModel: MatchingScout,
}


def known_scout(program: FirstStage, universe: Universe) -> Scout | None:
    """The fast scout of a resolved program, if there is one for the model that it is solved by."""
    if isinstance(program, ClosedFormWeights):
        return ClosedFormScout(program, universe)
    two = records_at(universe, np.zeros((2, universe.n_features)), np.array([0, 1]))
    try:
        model = program.model(two)
    except Dp2ermError:  # without a smooth form, or with a setting for every one of n records
        return None
    scout = SCOUTS.get(type(model))
    return scout(program, universe, model) if scout and isinstance(program, scout.family) else None
