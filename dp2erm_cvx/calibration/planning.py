"""What a release will cost in accuracy, before any budget is spent: public quantities only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dp2erm_cvx.calibration.constants import Calibration
from dp2erm_cvx.calibration.output import OutputCalibration
from dp2erm_cvx.calibration.utility import utility_bound
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget, LossConstants, StabilityBound


def predicted_error(
    calibration: Calibration | OutputCalibration,
    loss: LossConstants,
    n_samples: int,
    *,
    strong_convexity: float | None = None,
) -> float:
    """Predicted excess of the second-stage objective, in its units (squared outcome for a squared loss).

    ``(E||b||/n + gamma a)^2 / (2 (rho + 2 gamma))``: the sharp utility bound at the expected noise, with
    ``a = theta_bound``, or ``M' sqrt(2 / (gamma + mu_R))`` where Theta is unbounded. rho is
    ``strong_convexity``, what is publicly known of the objective's; ``mu_R`` where it is not given.
    For output perturbation of a mean the excess of ``(z - theta)^2`` is the squared noise.
    A prediction, used to choose among calibrations; no guarantee rests on it.
    """
    if isinstance(calibration, OutputCalibration):
        return calibration.expected_noise**2
    mu = loss.strong_convexity
    theta = loss.theta_bound or loss.outcome_bound * math.sqrt(2.0 / (calibration.gamma + mu))
    rho = mu if strong_convexity is None else strong_convexity
    return utility_bound(calibration.expected_noise, n_samples, calibration, theta, rho)


class BoundOf(Protocol):
    """A stability bound as a function of public tuning constants."""

    def __call__(self, n: int, *, ridge: float, radius: float, trim: float) -> StabilityBound:
        """Bound for ``n`` records; raises CalibrationError where no theorem covers the setting."""


@dataclass(frozen=True)
class PlanRow:
    """One setting of the grid. Where nothing covers it, ``refusal`` says why and the results are None.

    ``V`` is the bound on the coupled variation, ``scale`` the noise scale, ``noise`` the expected size of
    the noise in the averaged objective (``E||b||/n``) or, for output perturbation, in the release itself.
    """

    n_samples: int
    ridge: float
    radius: float
    trim: float
    epsilon: float
    delta: float
    V: float | None = None
    theorem: str | None = None
    scale: float | None = None
    gamma: float | None = None
    noise: float | None = None
    predicted_error: float | None = None
    refusal: str | None = None


def plan(
    bound_of: BoundOf,
    calibrate: Callable[[StabilityBound, int, Budget], Calibration | OutputCalibration],
    loss: LossConstants,
    *,
    n_samples: Sequence[int],
    ridge: Sequence[float],
    radius: Sequence[float] = (math.inf,),
    trim: Sequence[float] = (math.inf,),
    epsilon: Sequence[float] = (1.0,),
    delta: float = 0.0,
    strong_convexity: float | None = None,
) -> Iterator[PlanRow]:
    """Rows over the grid of public tuning constants, in the order of the arguments, epsilon innermost.

    ``calibrate(bound, n, budget)`` is any calibration of this package with its other arguments fixed.
    ``loss`` and ``strong_convexity`` as in :func:`predicted_error`. The rows are computed as they are asked
    for, so that progress can be shown; a bound is computed once for all epsilon.

    Raises DeclarationError at the first row whose setting is not valid in itself.
    """
    for n, mu, R, F in itertools.product(n_samples, ridge, radius, trim):
        try:
            bound = bound_of(n, ridge=mu, radius=R, trim=F)
        except CalibrationError as error:
            for level in epsilon:
                yield PlanRow(n, mu, R, F, level, delta, refusal=str(error))
            continue
        for level in epsilon:
            try:
                found = calibrate(bound, n, Budget(level, delta))
            except CalibrationError as error:
                yield PlanRow(n, mu, R, F, level, delta, V=bound.V, refusal=str(error))
                continue
            output = isinstance(found, OutputCalibration)
            yield PlanRow(
                n,
                mu,
                R,
                F,
                level,
                delta,
                V=bound.V,
                theorem=found.theorem,
                scale=found.scale,
                gamma=0.0 if isinstance(found, OutputCalibration) else found.gamma,
                noise=found.expected_noise / (1 if output else n),
                predicted_error=predicted_error(found, loss, n, strong_convexity=strong_convexity),
            )
