"""Logistic propensity model: the composite that IPW weights are read from."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.program.composite import Composite, LocalError, Penalty
from dp2erm_cvx.program.sets import L2Ball, WholeSpace
from dp2erm_cvx.program.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error


class LogisticModel(Composite):
    """f(v) = sum_i log(1 + exp(-<z_i, v>)) + n ridge/2 ||v||^2 + <noise, v> over ``||v|| <= radius``.

    ``Z`` is (n, d) with rows ``z_i = (2 a_i - 1) x_i``. The output is the weights
    ``w = n f / sum(f)``, ``f_i = min(1 + exp(-<z_i, v>), trim)`` (equation IPW_weight_def).
    """

    def __init__(
        self, Z: Array, ridge: float, radius: float, trim: float, noise: Array | None = None
    ) -> None:
        self.Z, self.trim = Z, trim
        self.noise: Array = np.zeros(Z.shape[1]) if noise is None else noise
        self.n, self.dimension = len(Z), int(Z.shape[1])
        self.row_norms: Array = np.linalg.norm(Z, axis=1)
        self.ridge = self.n * ridge
        self.smoothness = 0.25 * float(np.linalg.norm(Z, 2)) ** 2 * (1 + 1e-12) + self.ridge
        self.self_concordance = float(np.max(self.row_norms, initial=0.0)) * (1 + 1e-12)
        self.penalty = Penalty(WholeSpace() if math.isinf(radius) else L2Ball(radius))

    def value(self, v: Array) -> float:
        loss = float(np.sum(np.logaddexp(0.0, -(self.Z @ v))))
        return loss + 0.5 * self.ridge * float(v @ v) + float(self.noise @ v)

    def gradient(self, v: Array) -> Array:
        return self.noise - blocked_rmatvec(self.Z, _expit(-(self.Z @ v))) + self.ridge * v

    def hessian(self, v: Array) -> Array:
        slope = _expit(self.Z @ v)
        return (self.Z.T * (slope * (1 - slope))) @ self.Z + self.ridge * np.eye(self.dimension)

    def hessian_rounding(self, v: Array) -> float:
        # 1/4 bounds the derivative of s (1 - s) in the margin; through tanh its error is absolute
        margin = dot_error(self.dimension) * self.row_norms * float(np.linalg.norm(v))
        slope = _expit(self.Z @ v)
        error = 0.25 * margin + 8 * UNIT + (product_error(self.n) + 8 * UNIT) * slope * (1 - slope)
        return float(np.sum(error * self.row_norms**2)) + 4 * UNIT * self.ridge

    def rounding(self, v: Array) -> float:
        norm = float(np.linalg.norm(v))
        margin = dot_error(self.dimension) * self.row_norms * norm  # error of <z_i, v>
        # the sigmoid has slope at most 1/4; through tanh its own error is absolute, not relative
        terms = self.row_norms * (0.25 * margin + 4 * UNIT + sum_error(self.n) * _expit(-(self.Z @ v)))
        linear = self.ridge * norm + float(np.linalg.norm(self.noise))
        return float(np.sum(terms)) + 4 * UNIT * linear

    def output(self, v: Array) -> Array:
        with np.errstate(over="ignore"):
            weight: Array = np.minimum(1.0 + np.exp(-(self.Z @ v)), min(self.trim, 1e300 / self.n))
        return weight * (self.n / math.fsum(weight))

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        # log f is 1-Lipschitz in the margin, trimmed or not: the tilt lemma without a changed record
        kappa = self.self_concordance * radius
        if local is not None:
            kappa = min(kappa, local.largest(self.Z))
        kappa += self.self_concordance * dot_error(self.dimension) * float(np.linalg.norm(v))
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)


def _expit(s: Array) -> Array:
    # scipy's expit costs several times as much per element
    half: Array = 0.5 * np.tanh(0.5 * s)
    return 0.5 + half
