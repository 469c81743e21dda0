"""Entropy balancing as the paper has it: a regularized dual whose rows are scaled by arm sizes.

minimize    n ( log sum_i q_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

then w_i is proportional to q_i exp(<b_i, lam>) with sum n; q is the base measure, 1/n each if
uniform.

With n_a records in arm a, g = (constant, balance(x)) and G its norm bound, rows and target are

b_i = n_min / (n_{a_i} G) e_{a_i} (x) g(x_i),  t = n_min / (n G) (gbar, gbar),

so that arm a is to weigh n_a. n_min is the declared floor of both arms; without one it is the size
of the smaller arm, which no bound covers. It is equation entropy_dual of the paper with its sign
reversed, and has the 2-norm ball of its stability theorem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dp2erm_cvx.arrays import CLOSED_FORM, UNIT, dot_error
from dp2erm_cvx.checks import numbers, public_size
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.composite import Sizes
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import sum_error
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.paper import entropy_balancing_paper_scaling
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import Array, Declaration, Params, Records, setting
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.entropy import EntropyFirstStage, ExponentialModel


@dataclass(frozen=True)
class PaperEntropyBalancing(EntropyFirstStage):
    """The program of the paper, which its printed bound and Theorem 4 are about.

    Parameters
    ----------
    ridge
        Relaxes exact balance.
    radius
        Bound on the dual; ``inf`` for none.
    base_measure
        q, one public positive number per record; None: uniform. Only the printed bound covers it.
    """

    ridge: float = setting(1.0, public_size, zero=True)
    radius: float = setting(math.inf, public_size, infinite=True)
    base_measure: tuple[float, ...] | None = setting(None, numbers, each="record", above=0)

    by_blocks = True
    name = "paper_entropy_balancing"
    formula = (
        "lam = argmin log mean exp(b_i'lam) - t'lam + mu/2 |lam|^2, |lam| <= R;  w_i ~ exp(b_i'lam)"
    )
    citation = "Hainmueller (2012); Lee & Chen (2026), Theorem entropy_weight_stability"
    theorem = "Theorem 4 (needs an arm floor)"
    defaults = MappingProxyType({"constant": "G_x"})

    def of_arms(self, size: Array, space: Space) -> tuple[Array, Array]:
        # An arm below the floor counts as being at the floor, so that the targets stay (gbar,
        # gbar).
        floor = space.arm_floor or np.maximum(np.min(size, axis=-1, keepdims=True), 1.0)
        n = np.sum(size, axis=-1, keepdims=True)
        share = np.maximum(size, floor) / n
        scale = floor / n / math.hypot(*self.bounds(space)) / share
        return scale, share

    def log_base(self, n_samples: int) -> Array:
        """log(n q_i), (n,). Raises DeclarationError unless q has one entry per record."""
        if self.base_measure is None:
            return np.zeros(n_samples)
        if len(self.base_measure) != n_samples:
            raise DeclarationError(
                f"base_measure has {len(self.base_measure)} entries for {n_samples} records"
            )
        log_q: Array = np.log(np.array(self.base_measure))
        return log_q - math.log(math.fsum(self.base_measure) / n_samples)

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
        constraints = {}
        if math.isfinite(self.radius):
            constraints["ball"] = cp.norm(lam, 2) <= data("radius", nonneg=True)
        return Declaration(objective, {"dual": lam}, constraints)

    def model(self, records: Records) -> ExponentialModel:
        log_base = None if self.base_measure is None else self.log_base(records.n_samples)
        rows, target = self.balanced(records)
        return ExponentialModel(rows, target, self.mu, self.radius, log_base=log_base)

    def certified_error(self, universe: MappedUniverse) -> float | None:
        """``||w_hat - w||_1 / n`` for rows ``||b|| <= 1`` and ``||t - mean(b)|| <= 2``.

        Rows are centered, so their norms are at most 2, the target's at most 3, and a score is
        wrong by ``(dot_error + 2 u) 2 ||v||``. The minimizer obeys
        ``mu ||v||^2 <= <t - mean(b), v>``. With a base measure q, ``|log(n q_i)| <= log_base`` is
        added to every score, which rounds by four units of it, and the mean is that under q.
        """
        n = universe.n_samples
        ridge = self.mu
        slope = 2.0  # bound on ||t - mean(b)||
        spread = 2.0  # bound on the norm of a centered row
        size = 4.0  # what centering rounds against
        log_base = 0.0
        if self.base_measure is not None:  # otherwise no array of n numbers is made for a plan
            log_base = float(np.max(np.abs(self.log_base(n))))
        dimension = 2 * (1 + self.balance.size(universe.n_features))
        per_norm = (dot_error(dimension) + 2 * UNIT) * spread  # error of a score, per unit of ||v||
        base_error = 4 * UNIT * log_base
        terms = 18 * UNIT + 2.2 * base_error + sum_error(n)
        sizes = Sizes(
            strong_convexity=n * ridge,
            smoothness=n * spread**2 + n * ridge,
            slope=n * slope,
            rounding=n * (spread * terms + 4 * UNIT * (1.0 + slope + size)),
            rounding_growth=n * (spread * 2.2 * per_norm + 4 * UNIT * ridge),
            minimizer_norm=min(slope / ridge, self.radius) if ridge > 0 else self.radius,
            set_norm=self.radius,
            set_rounding=L2Ball(1.0).rounding(dimension),
        )
        radius = sizes.radius()
        if radius is None:
            return math.inf
        norm = sizes.minimizer_norm + radius
        if not per_norm * norm + base_error <= 0.01:  # the growth above linearizes exp
            return math.inf
        return spread * radius + per_norm * norm + base_error + CLOSED_FORM

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        """Theorem 4. Raises CalibrationError with a base measure, and without an arm floor."""
        if self.base_measure is not None:
            raise CalibrationError(
                "entropy balancing with a base_measure has no sharp bound: leave it out, or use "
                "the paper's"
            )
        floor = universe.space.arm_floor
        return entropy_balancing_paper_scaling(universe.n_samples, self.mu, floor, self.radius)
