"""Kernel (maximum mean discrepancy) weights on one simplex per arm, or on one for all records."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Records, Universe
from dp2erm_cvx.model.composite import kernel_weights_error
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.sums import column_sums
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import memory
from dp2erm_cvx.program.declaration import Declaration, Params, Value
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.kernels import FactoredKernelModel, Kernel, KernelModel
from dp2erm_cvx.program.stage import Kind
from dp2erm_cvx.public import public_size, setting
from dp2erm_cvx.stability import KernelConstants, kernel_balancing, pooled_kernel_balancing

#: Seconds of a solve over n^3, measured at the default ridge on one core, and those of a solve that is long.
_SECONDS, _LONG = 5e-10, 10.0
#: Records up to which a Gram matrix is formed even where the kernel has few features.
DENSE = 2000


@dataclass(frozen=True)
class KernelFirstStage(FirstStage):
    """Direct weights by a quadratic balance of kernel features, on a simplex per arm or one for all records.

    Programs are stated in ``problems/mmd.py``; an arm without records leaves all weight to the other. All
    pairs of records enter a quadratic form, which no theorem on sums of losses covers: Theorems 5 and 6 take
    the bound and the sign of the kernel.

    Parameters
    ----------
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    ridge
        Above 0: lambda_MMD over n. At a fixed ridge the stability bound stays bounded in n.
    """

    kind: ClassVar[Kind] = Kind.QUADRATIC

    #: Whether all records share one simplex; otherwise every arm has its own.
    pooled: ClassVar[bool] = False
    #: A public cap on every weight; a setting of one of them.
    cap = math.inf

    alpha: float = setting(0.5, at_least=0, at_most=1)
    ridge: float | None = setting(1.0, public_size)

    @property
    @abc.abstractmethod
    def kernel(self) -> Kernel:
        """The kernel, public."""

    def constants(self, universe: Universe) -> KernelConstants:
        """Constants of a resolved program, for Theorems 5 and 6."""
        bound = universe.domain.features_bound
        signed = self.kernel.negative_within(bound)
        return KernelConstants(self.kernel.bound(bound), universe.n_samples * self.mu, self.alpha, signed)

    def bound(self, universe: Universe) -> StabilityBound:
        """Theorem 6 of a pooled program, else Theorem 5."""
        n, domain, constants = universe.n_samples, universe.domain, self.constants(universe)
        if self.pooled:
            return pooled_kernel_balancing(n, constants)
        return kernel_balancing(n, constants, domain.arm_floor, self.cap, domain.relation)

    def feasible(self, records: Records) -> Simplices:
        """The set of v: every arm that has records gets n, or 2n where it is alone."""
        n = records.n_samples
        if self.pooled:
            return Simplices(np.zeros(n, dtype=np.int64), float(n))
        arms = np.concatenate(records.rows(attrgetter("a")).each())
        return Simplices(arms, 2 * n / len(np.unique(arms)), 2 * self.cap)

    def data(self, records: Records) -> dict[str, Value]:
        """Data F0, F1 (n, k): the kernel's features, or its factor, with the rows of one arm; t; n ridge.

        Raises DeclarationError where a Gram matrix is needed that does not fit into memory.
        """
        if self.kernel.n_features(records.n_features) is None:
            refuse_matrix(records.n_samples)
        F, treated = self.kernel.features(records.covariates), records.a[:, None]
        data: dict[str, Value] = {"F0": (1 - treated) * F, "F1": treated * F}
        data |= {"target": F.sum(axis=0) / (2 if self.pooled else 1), "curvature": len(F) * self.mu}
        if self.pooled:
            return data
        data |= {"treated": records.a.astype(np.float64), "totals": self.feasible(records).totals()}
        return data if math.isinf(self.cap) else data | {"cap": 2 * self.cap}

    def declare(self, data: Params) -> Declaration:
        n, name = data("F0").shape[0], "weights" if self.pooled else "doubled_weights"
        v = cp.Variable(n, name=name, nonneg=True)
        constraints = {"total": cp.sum(v) == n}
        if not self.pooled:
            treated, totals = data("treated"), data("totals", nonneg=True)
            constraints = {"treated_total": treated @ v == totals[1], "total": cp.sum(v) == cp.sum(totals)}
            if not math.isinf(self.cap):
                constraints["cap"] = v <= data("cap", nonneg=True)
        F0v, F1v, target = data("F0").T @ v, data("F1").T @ v, data("target")
        to_sample = cp.sum_squares(F0v - target) + cp.sum_squares(F1v - target)
        ridge = data("curvature", nonneg=True) * cp.sum_squares(v)
        objective = self.alpha * to_sample + (1 - self.alpha) * cp.sum_squares(F0v - F1v) + ridge
        return Declaration(objective, {name: v}, constraints)

    def certified_error(self, universe: Universe) -> float | None:
        bound, k = universe.domain.features_bound, self.kernel.n_features(universe.n_features)
        refuse_matrix(universe.n_samples, self._few(universe.n_samples, universe.n_features))
        return kernel_weights_error(
            universe.n_samples,
            kernel_bound=self.kernel.bound(bound),
            ridge=self.mu,
            pooled=self.pooled,
            entry_error=self.kernel.entry_error(bound, universe.n_features) + _product_error(k),
        )

    def cost(self, universe: Universe) -> str | None:
        n = universe.n_samples
        seconds = _SECONDS * n**3
        if seconds < _LONG or self.takes_blocks(universe):
            return None
        return (
            f"{self.name} at n = {n:,}: a Gram matrix with its working copies takes "
            f"{memory.COPIES * 8.0 * n**2 / 1e9:,.1f} GB (as n^2), and a solve some {seconds:,.0f} seconds "
            "(as n^3), more at a smaller ridge"
        )

    def model(self, records: Records) -> KernelModel:
        """The declared objective: by features where they are few, else by a Gram matrix.

        Raises DeclarationError where they do not fit into memory.
        """
        n, share, kernel = records.n_samples, self.target_share, self.kernel
        settings = n * self.mu, self.feasible(records), 1.0 if self.pooled else 0.5
        error = kernel.entry_error(records.domain.features_bound, records.n_features)
        k = self._few(n, records.n_features)
        refuse_matrix(n, k)
        if k is not None:
            F = np.concatenate(records.rows(self._features).each())
            sign = np.where(np.concatenate(records.rows(attrgetter("a")).each()) == 1, 1.0, -1.0)[:, None]
            # "1 within an arm, alpha - 1 across" has eigenvalues alpha on (1, 1) and 2 - alpha on (1, -1)
            G = np.hstack([math.sqrt(self.alpha / 2) * F, math.sqrt(1 - self.alpha / 2) * (sign * F)])
            return FactoredKernelModel(G, F @ (share * column_sums(F)), *settings, error + _product_error(k))
        K = kernel.cross(records.covariates, records.covariates)
        Q = np.where(records.a[:, None] == records.a, 1.0, self.alpha - 1.0) * K
        return KernelModel(Q, share * K.sum(axis=1), *settings, error)

    def takes_blocks(self, universe: Universe) -> bool:
        return self._few(universe.n_samples, universe.n_features) is not None

    def _few(self, n_samples: int, p: int) -> int | None:
        """The number of features where they are few: no matrix of all pairs of records is then made."""
        k = self.kernel.n_features(p) if n_samples > DENSE else None
        return k if k is not None and 4 * k <= n_samples else None

    def _features(self, records: Records) -> Array:
        return self.kernel.features(records.covariates)

    @property
    def target_share(self) -> float:
        """The factor of the row sums of the kernel matrix in the linear term of the model."""
        return 0.5 * self.alpha if self.pooled else self.alpha


def refuse_matrix(n_samples: int, k: int | None = None) -> None:
    """Raise DeclarationError where a Gram matrix, or one of k features, and its copies do not fit."""
    remedy = "declare a kernel with few features (RandomFourier, Linear)"
    if k is None:
        memory.refuse_size(n_samples, n_samples, "a Gram matrix", remedy)
    else:
        memory.refuse_size(n_samples, 2 * k, f"a matrix of {k} features", remedy)


def _product_error(k: int | None) -> float:
    """Units of roundoff of an inner product of rows of G, twice as long as those of F (n, k); 0 without."""
    return 0.0 if k is None else 4.0 * k + 4.0
