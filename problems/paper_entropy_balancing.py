"""Entropy balancing as the paper has it: weights from a regularized dual, whose rows are scaled by arm sizes.

minimize    n ( log mean_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

then w_i = n f_i / sum_j f_j, f_i = q_i min(exp(<b_i, lam>), trim), q the base measure (uniform: the mean is
that of q otherwise). With b_i = e_{a_i} (x) g(x_i), g = (constant, balance(x)), and t = (gbar, gbar)/2 (equal
arm mass) or (n_0 gbar, n_1 gbar)/n (proportional), it is equation entropy_dual of the paper with its sign
reversed. It has the 2-norm ball of its stability theorem, and a scaling that does not depend on the data.
"""

import math
from dataclasses import dataclass

import cvxpy as cp

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import Declaration, Params, Records, setting
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.entropy import RidgedEntropyFirstStage
from dp2erm_cvx.public import numbers


@dataclass(frozen=True)
class PaperEntropyBalancing(RidgedEntropyFirstStage):
    """The program of the paper, whose printed bound and whose Theorem 4' are about it.

    Parameters
    ----------
    trim
        Public cap on exp(<b_i, lam>) before the weights are normalized. It does not go together with a base
        measure.
    base_measure
        q, one public positive number per record; None: uniform.
    """

    trim: float = setting(math.inf, above=0, infinite=True)
    base_measure: tuple[float, ...] | None = setting(None, numbers, each="record", above=0)

    name = "paper_entropy_balancing"
    formula = "lam = argmin log mean exp(b_i'lam) - t'lam + mu/2 |lam|^2, |lam| <= R;  w_i ~ exp(b_i'lam)"
    citation = "Hainmueller (2012); Lee & Chen (2026), Theorem entropy_weight_stability"
    theorem = "Theorem 4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base_measure is not None and math.isfinite(self.trim):
            raise DeclarationError("trim and base_measure: declare one of them")

    def data(self, records: Records) -> dict[str, Value]:
        data = super().data(records) | {"curvature": records.n_samples * self.mu}
        if self.base_measure is not None:
            data["log_base"] = self.log_base(records.n_samples)
        return data if math.isinf(self.radius) else data | {"radius": self.radius}

    def declare(self, data: Params) -> Declaration:
        B = data("B")
        n, dimension = B.shape
        lam = cp.Variable(dimension, name="dual")
        scores = B @ lam
        if self.base_measure is not None:
            scores = scores + data("log_base")
        log_mean = cp.log_sum_exp(scores) - math.log(n)
        ridge = data("curvature", nonneg=True) / 2 * cp.sum_squares(lam)
        objective = n * (log_mean - data("target") @ lam) + ridge
        ball = {} if math.isinf(self.radius) else {"ball": cp.norm(lam, 2) <= data("radius", nonneg=True)}
        return Declaration(objective, {"dual": lam}, ball)
