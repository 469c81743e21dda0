"""What the noise and the ridge cost in the objective."""

from __future__ import annotations

from dp2erm_cvx.calibration.constants import Calibration, whole_number
from dp2erm_cvx.privacy import public_number


def utility_bound(
    noise_norm: float,
    n_samples: int,
    calibration: Calibration,
    theta_norm: float,
    strong_convexity: float = 0.0,
) -> float:
    """Sharp bound on ``L(theta_priv) - L(theta_opt)``, in units of the objective L.

    ``(||b||/n + gamma ||theta_opt||)^2 / (2 (rho + 2 gamma))``, where L is the weighted objective
    with its public regularizer but without gamma and noise, ``theta_opt`` its minimizer and
    ``strong_convexity`` = rho >= 0 its strong convexity. It is attained. ``noise_norm`` is ``||b||_2``,
    for instance ``calibration.expected_noise`` or a public quantile of the noise.
    Raises DeclarationError for a negative or non-finite argument.
    """
    norm = public_number("noise_norm", noise_norm, at_least=0.0)
    n = whole_number("n_samples", n_samples, at_least=1)
    theta = public_number("theta_norm", theta_norm, at_least=0.0)
    rho = public_number("strong_convexity", strong_convexity, at_least=0.0)
    total = norm / n + calibration.gamma * theta
    return total / (2.0 * (rho + 2.0 * calibration.gamma)) * total
