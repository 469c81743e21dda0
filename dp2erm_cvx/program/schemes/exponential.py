"""Log-partition dual of entropy balancing: the composite that its weights are read from."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error


class ExponentialModel(Composite):
    """f(v) = n (log mean_i exp(<b_i, v>) - <target, v> + ridge/2 ||v||^2) over ``||v|| <= radius``.

    ``B`` is (n, d), ``target`` (d,). The output is the weights ``w_i = n exp(<b_i, v>) / sum``
    (Proposition entropy_weight_duality with a uniform base measure). ``log_base`` (n,) is ``log(n q_i)``
    of another base measure q, added to every score; ``trim`` caps ``exp(<b_i, v>)`` in the output.
    """

    def __init__(
        self,
        B: Array,
        target: Array,
        ridge: float,
        radius: float,
        *,
        row_error: float = 0.0,
        trim: float = math.inf,
        log_base: Array | float = 0.0,
    ) -> None:
        self.trim, self.log_base = trim, log_base
        self.row_error = row_error  # norm of the error with which the rows were computed
        self.n, self.dimension = len(B), int(B.shape[1])
        # log mean exp(<b, v>) - <t, v> is unchanged by a common shift of b and t, which is chosen to lose
        # no digits
        self.center: Array = B.mean(axis=0)
        self.B: Array = B - self.center
        self.target: Array = target - self.center
        self.row_norms: Array = np.linalg.norm(self.B, axis=1)
        self.ridge = self.n * ridge
        self.spread = float(np.max(self.row_norms, initial=0.0)) * (1 + 1e-12)
        self.size = self.spread + 2 * float(np.linalg.norm(self.center))  # what centering rounds against
        self.smoothness = self.n * self.spread**2 + self.ridge
        # third central moments are at most the range 2 * spread * ||v|| times the variance
        self.self_concordance = 2 * self.spread
        self.penalty = Penalty(WholeSpace() if math.isinf(radius) else L2Ball(radius))

    def _log_mean_exp(self, v: Array) -> tuple[float, Array]:
        score = self.B @ v + self.log_base
        top = float(np.max(score))
        tilt = np.exp(score - top)
        total = math.fsum(tilt)
        return top + math.log(total / self.n), tilt / total

    def value(self, v: Array) -> float:
        log_mean, _ = self._log_mean_exp(v)
        return self.n * (log_mean - float(self.target @ v)) + 0.5 * self.ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        _, p = self._log_mean_exp(v)
        return self.n * (blocked_rmatvec(self.B, p) - self.target) + self.ridge * v

    def hessian(self, v: Array) -> Array:
        _, p = self._log_mean_exp(v)
        mean = self.B.T @ p
        second = (self.B.T * p) @ self.B
        covariance: Array = second - np.outer(mean, mean)
        return self.n * covariance + self.ridge * np.eye(self.dimension)

    def hessian_rounding(self, v: Array) -> float:
        # the second moment, the square of the mean and, by Jensen, what either rounds are at most second
        _, p = self._log_mean_exp(v)
        second = float(np.sum(p * self.row_norms**2 * (self._tilt_error(v) + product_error(self.n))))
        mean = float(p @ self.row_norms)
        total = 4 * second + 32 * UNIT * float(p @ self.row_norms**2) + 4 * self.row_error * mean
        return self.n * total + 4 * UNIT * self.ridge

    def _tilt_error(self, v: Array) -> Array:
        """Bound on the relative error of every computed ``exp(<b_i, v>) / sum``, (n,)."""
        # an absolute error of a score is a relative one of its exponential, and of the sum of them; capped,
        # because a dual that diverges for lack of a ridge would overflow here
        error = np.minimum(self._score_error(v), 150.0)
        relative: Array = np.expm1(error + np.max(error) + 8 * UNIT) + 8 * UNIT
        return relative

    def rounding(self, v: Array) -> float:
        _, p = self._log_mean_exp(v)
        relative = self._tilt_error(v)
        moment = float(np.sum(p * self.row_norms * relative)) + self.row_error
        moment += sum_error(self.n) * float(np.linalg.norm(np.abs(self.B).T @ p))
        shift = 4 * UNIT * (float(np.linalg.norm(self.target)) + self.size) + self.row_error
        return self.n * (moment + shift) + 4 * UNIT * self.ridge * float(np.linalg.norm(v))

    def _score_error(self, v: Array) -> Array:
        """Bound on the error of every computed ``<b_i, v>`` less the largest, (n,)."""
        score = self.B @ v + self.log_base
        product = dot_error(self.dimension) * (np.abs(self.B) @ np.abs(v)) + 2 * UNIT * np.abs(self.log_base)
        error: Array = product + self.row_error * np.linalg.norm(v) + UNIT * (np.max(score) - score)
        return error

    def output(self, v: Array) -> Array:
        if math.isinf(self.trim):
            return self.n * self._log_mean_exp(v)[1]
        # the cap is on the score without the common shift
        score = np.minimum(self.B @ v + float(self.center @ v), math.log(self.trim))
        tilt: Array = np.exp(score - np.max(score))
        return tilt * (self.n / math.fsum(tilt))

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        # tilt lemma without a changed record: the range of <b_i, error> is at most 2 kappa
        kappa = self.spread * radius
        if local is not None:
            kappa = min(kappa, local.largest(self.B))
        if math.isfinite(self.trim):
            # a cap breaks the common shift: every score counts with its own size
            kappa = self.size * (radius + dot_error(self.dimension) * float(np.linalg.norm(v)))
            kappa += 2 * UNIT * abs(math.log(self.trim))
        kappa += float(np.max(self._score_error(v)))
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)


class HardExponentialModel(ExponentialModel):
    """The dual without ridge, on the directions in which it is not flat.

    ``v = basis @ u`` with ``basis`` an orthonormal basis of the span of ``b_i - mean(b)``. Along every other
    direction the dual is constant where the targets can be met, so the weights do not depend on it.

    Raises InfeasibleError where the target leaves the affine span of the b_i.
    """

    def __init__(self, B: Array, target: Array, *, rank_tolerance: float = 1e-10) -> None:
        center = B.mean(axis=0)
        _, singular, rows = np.linalg.svd(B - center, full_matrices=False)
        largest = float(np.max(singular, initial=0.0))
        self.basis = rows[singular > rank_tolerance * max(largest, 1e-300)].T
        gap = target - center
        missed = gap - self.basis @ (self.basis.T @ gap)
        if np.linalg.norm(missed) > 1e-9 * (1.0 + np.linalg.norm(gap)):
            raise InfeasibleError(
                "the moment targets lie outside the span of the records: a balance function is constant "
                "within an arm. Set a positive ridge or drop that balance function"
            )
        # B @ basis rounds entry by entry
        row_error = dot_error(B.shape[1]) * math.sqrt(B.shape[1]) * float(np.max(np.linalg.norm(B, axis=1)))
        super().__init__(B @ self.basis, self.basis.T @ target, 0.0, math.inf, row_error=row_error)
