"""Whether repeated releases of the same data come closer to each other than fresh noise allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from dp2erm_cvx.audit.noise.closeness import chance_of_pair, closest, log_peak_density
from dp2erm_cvx.calibration import OutputCalibration
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.program import ElasticNet, WeightedLeastSquares
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.steps import ThetaPlan

#: A theta this close to the boundary, relative to its size, counts as on it: atoms repeat by design.
_MARGIN = 1e-3


@dataclass(frozen=True)
class RepeatAudit:
    """How close ``size`` releases of the same data came. It spends no budget and must not be published.

    ``p_value`` bounds the probability that fresh noise brings any two of the ``counted`` thetas within
    ``closest`` of each other; counted are those inside Theta and off the kinks of R, where theta has a
    density. Noise that is used twice gives 0, or little more where noise on a grid was added. No alarm is no
    proof: fewer than two may have counted, output perturbation may have a grid so coarse that its releases
    coincide by right, and noise that is used again only later is not seen.
    """

    p_value: float
    closest: float
    counted: int
    size: int
    level: float
    private: bool = field(default=False, init=False)

    @property
    def alarm(self) -> bool:
        """Whether the p-value is below ``level``; with fresh noise that has at most this probability."""
        return self.p_value < self.level

    def __str__(self) -> str:
        verdict = "noise was REUSED" if self.alarm else "no alarm, which is no proof"
        found = f"{self.counted} of {self.size} releases counted, closest pair {self.closest:.3g}"
        return f"{found}, p-value {self.p_value:.2g}; {verdict} at level {self.level:g}; not private"


def audit_repeats(
    model: PrivateTwoStageERM,
    X: ArrayLike,
    a: ArrayLike,
    y: ArrayLike,
    *,
    size: int = 64,
    level: float = 1e-3,
) -> RepeatAudit:
    """Release theta ``size`` times from the raw data X (n, k), a (n,), y (n,), and look for reused noise.

    The density of theta is at most that of the noise at 0 times the determinant of the Hessian (proof of
    Theorem 1), which the public trace bound limits, so that the chance of a close pair has a public bound. A
    generator with 256 states repeats itself among 64 releases with probability 0.9996. No ledger is charged:
    use synthetic data, or keep all of it with the data holder.

    Raises DeclarationError for a seeded model, an invalid argument, or a second stage other than weighted
    least squares with an elastic net.
    """
    size = whole_number("size", size, at_least=2)
    level = public_number("level", level, above=0.0)
    second = model.resolved_second_stage()
    if model.seed is not None:
        raise DeclarationError("a seeded model repeats its noise by design: leave the seed out")
    if not isinstance(second, WeightedLeastSquares) or not isinstance(second.regularizer, ElasticNet):
        raise DeclarationError(f"{second.name}: audit_repeats needs weighted least squares, an elastic net")
    fresh: PrivateTwoStageERM = clone(model).set_params(ledger=None, dataset=None)
    thetas = np.array([fresh.fit(X, a, y).theta_ for _ in range(size)])
    n = fresh.release_.n_samples
    step = fresh.plan(n, fresh.n_features_in_).theta
    theta_set = second.feasible(model.domain)
    # noise on a grid carries an atom this far into the inside, and hardly ever farther
    reach = 0.0 if step.precision is None else 50 * step.precision.grid.scale
    sizes = np.linalg.norm(thetas, axis=1, keepdims=True)
    outward = thetas * (1 + _MARGIN + np.divide(reach, sizes, out=np.zeros_like(sizes), where=sizes > 0))
    counted = thetas[[np.array_equal(theta_set.project(far), far) for far in outward]]
    if second.regularizer.l1 > 0:
        smallest = _MARGIN * np.max(np.abs(counted), axis=1, initial=0.0) + reach
        counted = counted[np.min(np.abs(counted), axis=1, initial=math.inf) > smallest]
    near = closest(counted, mirrored=False) if len(counted) > 1 else math.inf
    density = _log_largest_density(step, n)
    chance = chance_of_pair(near + _rounding(step), density, len(counted), thetas.shape[1], ways=1)
    return RepeatAudit(chance, near, len(counted), size, level)


def _log_largest_density(step: ThetaPlan, n: int) -> float:
    """Log of a bound on the density of theta, given whatever weights of sum n: public."""
    calibration = step.calibration
    if isinstance(calibration, OutputCalibration):
        return log_peak_density(calibration.law)
    p = calibration.n_parameters
    # the determinant is at most the mean eigenvalue to the power p
    mean = n * (step.loss.hessian_trace / p + calibration.gamma + step.loss.strong_convexity)
    return log_peak_density(calibration) + p * math.log(mean)


def _rounding(step: ThetaPlan) -> float:
    """How much closer two thetas may come by rounding and by the error of a solve: twice that of one."""
    if step.precision is None:
        return 0.0
    grid = step.precision.grid
    return 2 * (step.precision.tolerance + math.sqrt(grid.n_parameters) * math.ldexp(1.0, grid.exponent))
