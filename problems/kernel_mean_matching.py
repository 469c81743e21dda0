"""Kernel mean matching: weights under which a source sample looks like a target sample.

minimize    ||F'w||^2 - 2 <c, w> + n ridge ||w||^2
subject to  sum over the source of w_i = n,  w >= 0

K = F F' the kernel matrix of the source and c_i = n mean_j K(x_i, t_j) over the target: up to a constant,
||sum_i w_i phi(x_i) - n mean_j phi(t_j)||^2, n^2 times the squared discrepancy. For transfer of a regression
to a population with other covariates (covariate shift), with ``regression`` as the second stage.
"""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx import stability
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.composite import kernel_weights_error
from dp2erm_cvx.model.sums import UNIT, sum_error
from dp2erm_cvx.program import (
    Array,
    Declaration,
    FirstStage,
    Gaussian,
    Kind,
    Params,
    Records,
    StabilityBound,
    Universe,
    setting,
)
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.kernels import CHOICES, Kernel, MatchingModel, PublicSample, refuse_matrix
from dp2erm_cvx.public import declared_choice, public_size


def _public_sample(name: str, value: object) -> PublicSample:
    if not isinstance(value, PublicSample):
        raise DeclarationError(f"{name}: must be a PublicSample, or None for the treated records")
    return value


@dataclass(frozen=True)
class KernelMeanMatching(FirstStage):
    """For transfer to a population with other covariates.

    Its constants are stated: those of a kernel between two samples, of which a record may change sides
    (Theorem 6 with one block).

    Parameters
    ----------
    target
        A public sample, and every record is a source; or None: the treated records are the target. These
        are private data as well, and get weight 0; both samples then need the domain's ``arm_floor``. A side
        without records is replaced by the other.
    ridge
        Above 0; keeps the weights even, and stable.
    kernel
        A public kernel on the covariates.
    """

    target: PublicSample | None = setting(None, _public_sample)
    ridge: float = setting(1.0, public_size)
    kernel: Kernel = setting(Gaussian(), declared_choice, kinds=CHOICES)

    kind = Kind.QUADRATIC
    name = "kernel_mean_matching"
    balances_arms = False
    formula = "w = argmin |sum_i w_i phi(x_i) - n mean_j phi(t_j)|^2 + n mu |w|^2, sum w = n, w >= 0"
    citation = "Huang et al. (2006); Gretton et al. (2009)"
    theorem = "Theorem 6 with one block"

    def samples(self, records: Records) -> tuple[NDArray[np.int64], Array]:
        """Rows of the source, and the scaled covariates of the target (T, p)."""
        everyone = np.arange(records.n_samples)
        if self.target is not None:
            skipped = 1 if records.domain.intercept else 0
            if self.target.X.shape[1] != records.covariates.shape[1]:
                raise DeclarationError(
                    f"target has {self.target.X.shape[1]} columns, the records {records.covariates.shape[1]}"
                )
            return everyone, records.domain.features(self.target.X)[:, skipped:]
        source, target = everyone[records.a == 0], everyone[records.a == 1]
        if not (len(source) and len(target)):
            source = target = everyone
        return source, records.covariates[target]

    def data(self, records: Records) -> dict[str, Value]:
        model, n = self.model(records), records.n_samples
        F = self.kernel.features(records.covariates[model.where])
        return {"F": F, "c": model.c, "curvature": n * self.ridge, "total": float(n)}

    def declare(self, data: Params) -> Declaration:
        F = data("F")
        w = cp.Variable(F.shape[0], name="weights", nonneg=True)
        objective = cp.sum_squares(F.T @ w) - 2 * data("c") @ w
        objective += data("curvature", nonneg=True) * cp.sum_squares(w)
        return Declaration(objective, {"weights": w}, {"total": cp.sum(w) == data("total", nonneg=True)})

    def model(self, records: Records) -> MatchingModel:
        source, target = self.samples(records)
        refuse_matrix(len(source))
        n, samples = records.n_samples, (records.covariates[source], target)
        error = self.kernel.entry_error(records.domain.features_bound, records.n_features)
        return MatchingModel(self.kernel, samples, n * self.ridge, source, n, error)

    def certified_error(self, universe: Universe) -> float | None:
        n, bound = universe.n_samples, universe.domain.features_bound
        refuse_matrix(n)
        rows = n if self.target is None else len(self.target.X)
        # in units of sqrt(m) C n the model counts an entry 6 times, 4 for K and 2 for c, whose sum over the
        # target counts 2 and whose products 32 more; kernel_weights_error counts 4 for what it is given
        entry = self.kernel.entry_error(bound, universe.n_features)
        units, C = 1.5 * entry + 0.5 * (sum_error(rows) / UNIT) + 8.0, self.kernel.bound(bound)
        return kernel_weights_error(n, kernel_bound=C, ridge=self.ridge, pooled=True, entry_error=units)

    def bound(self, universe: Universe) -> StabilityBound:
        n, domain, kernel, M = (
            universe.n_samples,
            universe.domain,
            self.kernel,
            universe.domain.features_bound,
        )
        signed, public = kernel.negative_within(M), self.target is not None
        constants = stability.KernelConstants(kernel.bound(M), n * self.ridge, alpha=1.0, signed=signed)
        return stability.kernel_mean_matching(
            n, constants, public_target=public, arm_floor=domain.arm_floor, relation=domain.relation
        )
