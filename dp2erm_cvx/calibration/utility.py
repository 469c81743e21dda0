"""What the noise and the ridge cost in the objective: the sharp bound, its tail, and the paper's theorem."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from dp2erm_cvx.calibration.base import Calibration, Perturbed
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.public import public_number, whole_number

#: Relative margin on a tail probability, far above the error of the special functions.
_ROUNDING = 1e-9

#: Norm of a usual theta in units of ``Z sqrt(2 / Lambda)``, which is M'/M for the squared loss of a rule,
#: M' for means. Small, as a rule does not suffer from being shrunk; chosen in simulations.
USUAL_SIZE = 0.125


def utility_bound(
    noise_norm: float,
    n_samples: int,
    calibration: Calibration,
    theta_norm: float,
    strong_convexity: float = 0.0,
) -> float:
    """Sharp bound on ``L(theta_priv) - L(theta_opt)``, in units of the objective L; it is attained.

    ``(||b||/n + gamma ||theta_opt||)^2 / (2 (rho + 2 gamma))``, L the weighted objective with its public
    regularizer but without gamma and noise, ``strong_convexity`` its rho >= 0, ``noise_norm`` ``||b||_2``.
    Raises DeclarationError.
    """
    norm = public_number("noise_norm", noise_norm, at_least=0.0)
    n = whole_number("n_samples", n_samples, at_least=1)
    theta = public_number("theta_norm", theta_norm, at_least=0.0)
    rho = public_number("strong_convexity", strong_convexity, at_least=0.0)
    total = norm / n + calibration.gamma * theta
    return total / (2.0 * (rho + 2.0 * calibration.gamma)) * total


def _usual_curvature(loss: LossConstants) -> float:
    """That of records of the largest trace, evenly spread; exact for a mean and two equal arms."""
    return loss.strong_convexity + loss.hessian_trace / loss.n_parameters


def predicted_distance(noise_norm: float, gamma: float, loss: LossConstants, n_samples: int) -> float:
    """How far noise of norm ``||b||`` and a ridge gamma move theta: a prediction, in units of theta.

    ``sqrt((||b|| / n)^2 + (gamma a)^2) / rho`` from public guesses: rho is ``mu_R + Lambda / p``, Lambda the
    ``hessian_trace``; the norm a of the minimizer is ``Z sqrt(2 / Lambda) / 8``, Z the ``outcome_bound``, and
    at most ``theta_bound``. What gamma takes off the noise does not count: it takes as much off the signal.
    """
    if not (math.isfinite(noise_norm) and math.isfinite(gamma)):
        return math.inf
    size = USUAL_SIZE * loss.outcome_bound * math.sqrt(2.0 / loss.hessian_trace)
    if loss.theta_bound is not None:
        size = min(size, loss.theta_bound)
    return math.hypot(noise_norm / n_samples, gamma * size) / _usual_curvature(loss)


def predicted_error(calibration: Calibration, loss: LossConstants, n_samples: int) -> float:
    """Predicted excess of the second-stage objective, by which calibrations are chosen; no guarantee.

    ``rho/2`` times the square of :func:`~dp2erm_cvx.calibration.utility.predicted_distance` at the expected
    noise; of a mean the noise is the distance.
    """
    distance = calibration.expected_noise
    if calibration.perturbed is not Perturbed.OUTPUT:
        distance = predicted_distance(distance, calibration.gamma, loss, n_samples)
    return 0.5 * _usual_curvature(loss) * distance * distance


def noise_tail(calibration: Calibration, level: float) -> float:
    """``P(||b||_2 >= level)``, rounded up; ``level`` in the units of the noise scale, any sign.

    For box noise a bound on it, by ``||b||_2 <= ||m||_2 max |b_j| / m_j``.
    """
    ratio = max(0.0, level * (1.0 - _ROUNDING) / calibration.unit)
    p = calibration.n_parameters
    if calibration.noise.pure:
        tail = float(special.gammaincc(p, ratio))
    else:
        tail = float(special.gammaincc(p / 2.0, min(ratio, 1e150) ** 2 / 2.0))
    # the smallest positive number where the true tail has underflowed
    return min(1.0, max(tail * (1.0 + _ROUNDING), 5e-324))


@dataclass(frozen=True)
class PaperUtility:
    """Constants of Theorem utility as printed (arXiv 2602.12604), and its tails.

    With ``A = (2 rho + 3 gamma) / (2 (rho + gamma)^2)``, ``B = a_0 gamma (rho + 3 gamma) / (rho + gamma)^2``,
    ``C = 2 a_0^2 gamma^2 (rho + 2 gamma) / (rho + gamma)^2`` and a_0 = ``||theta_opt||`` the excess is at
    most ``A (||b||/n)^2 + B ||b||/n + C``, in units of the objective.
    """

    A: float
    B: float
    C: float

    @classmethod
    def of(cls, gamma: float, theta_norm: float, strong_convexity: float = 0.0) -> PaperUtility:
        """Constants at ``gamma`` > 0, a_0 >= 0 and rho >= 0. Raises DeclarationError."""
        g = public_number("gamma", gamma, above=0.0)
        a = public_number("theta_norm", theta_norm, at_least=0.0)
        rho = public_number("strong_convexity", strong_convexity, at_least=0.0)
        total = rho + g
        pull = a * (g / total)
        return cls(
            A=(2.0 * rho + 3.0 * g) / total / (2.0 * total),
            B=pull * ((rho + 3.0 * g) / total),
            C=2.0 * pull * pull * (rho + 2.0 * g),
        )

    def noise_level(self, excess: float) -> float:
        """D_t for t = ``excess``: it needs ``||b|| >= n D_t``. Raises DeclarationError below C.

        ``D_t = 2 (t - C) / (B + sqrt(B^2 + 4 A (t - C)))``.
        """
        t = public_number("excess", excess, at_least=0.0)
        if t < self.C:
            raise DeclarationError(f"excess = {t:g}: the theorem begins at C = {self.C:g}")
        if t == self.C:
            return 0.0
        left = t - self.C
        return 2.0 * left / (self.B + math.hypot(self.B, 2.0 * math.sqrt(self.A) * math.sqrt(left)))

    def tail(self, excess: float, n_samples: int, calibration: Calibration) -> float:
        """Printed bound on the probability of an excess of t, at most 1; 1 below C.

        Gamma noise, and box noise by its longest vectors: ``C_p exp(-beta n D_t / 2)``, ``C_p = e (2 (p - 1)
        / e)^(p - 1)`` and ``C_1 = 1``. Gaussian noise: ``2 exp(-(n D_t - sigma sqrt(p))_+^2 / (2 sigma^2))``.
        ``calibration`` has the gamma that the constants were computed at. Raises DeclarationError.
        """
        n = whole_number("n_samples", n_samples, at_least=1)
        if public_number("excess", excess, at_least=0.0) < self.C:
            return 1.0
        ratio = n * self.noise_level(excess) / calibration.unit
        p = calibration.n_parameters
        if calibration.noise.pure:
            log_constant = 0.0 if p == 1 else 1.0 + (p - 1) * (math.log(2.0 * (p - 1)) - 1.0)
            exponent = log_constant - ratio / 2.0
        else:
            exponent = math.log(2.0) - max(ratio - math.sqrt(p), 0.0) ** 2 / 2.0
        return math.exp(min(exponent, 0.0))
