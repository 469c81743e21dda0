"""Fast scouts of whole families: coefficients of margin losses, and kernel mean matching."""

from __future__ import annotations

from typing import Any

import numpy as np

from dp2erm_cvx.audit.stability.batched import minimize_in_ball, minimize_on_simplices
from dp2erm_cvx.audit.stability.groups import records_at
from dp2erm_cvx.audit.stability.scout import Arms, Scout
from dp2erm_cvx.domain import Array
from dp2erm_cvx.program import FirstStage, SeparableFirstStage
from dp2erm_cvx.universe import Universe


class SeparableScout(Scout):
    """Weights of any :class:`~dp2erm_cvx.program.SeparableFirstStage`."""

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

    def __init__(self, program: FirstStage, universe: Universe) -> None:
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
