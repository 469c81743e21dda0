"""What calibrations return, and the checks of public constants that they share."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.public import public_number, whole_number


class Noise(enum.StrEnum):
    """Law of the linear term ``b``.

    ``GAMMA``: density proportional to ``exp(-||b|| / scale)``; pure differential privacy.
    ``GAUSSIAN``: ``N(0, scale^2 I)``; approximate differential privacy, needs ``delta > 0``.
    """

    GAMMA = "gamma"
    GAUSSIAN = "gaussian"

    @property
    def mechanism(self) -> str:
        """What the mechanism on numbers is called: one coordinate of gamma noise is a Laplace variable."""
        return "Laplace" if self is Noise.GAMMA else "Gaussian"


class Perturbed(enum.StrEnum):
    """What the noise of a step is added to."""

    OBJECTIVE = "objective"
    UNCONSTRAINED = "unconstrained objective, theta projected afterwards"
    OUTPUT = "output"


@dataclass(frozen=True)
class Calibration:
    """A calibrated mechanism: the noise law, the ridge, and the guarantee they give.

    ``scale`` is 1/beta for gamma noise and the standard deviation sigma of one coordinate for
    Gaussian noise, in units of ``n`` times the gradient of the averaged objective (the noise enters
    it as ``<b, theta> / n``). ``gamma`` is the coefficient of ``||theta||^2 / 2`` on every coordinate.
    ``split`` is the share q of epsilon that pays for the noise; the rest pays for the Jacobian.
    ``sensitivity`` is ``zeta_c * V``, the bound on the movement of the summed gradient.
    The guarantee is (``epsilon``, ``delta``); delta is 0 for gamma noise.
    """

    noise: Noise
    scale: float
    gamma: float
    split: float
    n_parameters: int
    V: float
    sensitivity: float
    epsilon: float
    delta: float
    theorem: str

    @property
    def expected_noise(self) -> float:
        """``E ||b||_2``, in the units of ``scale``."""
        return self.scale * mean_norm(self.noise, self.n_parameters)


@dataclass(frozen=True)
class OutputCalibration:
    """Laplace noise for a released mean; ``scale`` and ``sensitivity`` in units of the outcome.

    Not a :class:`Calibration`: this noise is added to the mean itself, not to the objective times n.
    """

    scale: float
    sensitivity: float
    V: float
    epsilon: float
    delta: float = 0.0
    theorem: str = "Theorem 8 (output perturbation)"

    @property
    def expected_noise(self) -> float:
        """``E |noise|``, in units of the outcome."""
        return self.scale

    @property
    def law(self) -> Calibration:
        """The Laplace law as one coordinate of gamma noise: what :func:`dp2erm_cvx.mechanism.draw` takes.

        Its draw is to be added to the mean; as a linear term of an objective it would be far too small.
        """
        return Calibration(
            noise=Noise.GAMMA,
            scale=self.scale,
            gamma=0.0,
            split=1.0,
            n_parameters=1,
            V=self.V,
            sensitivity=self.sensitivity,
            epsilon=self.epsilon,
            delta=0.0,
            theorem=self.theorem,
        )


def mean_norm(noise: Noise, n_parameters: int) -> float:
    """``E ||b||_2`` at unit scale: p for gamma noise, the mean of chi_p for Gaussian noise."""
    if noise is Noise.GAMMA:
        return float(n_parameters)
    half = n_parameters / 2
    return math.sqrt(2.0) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))


def check_loss(loss: LossConstants) -> None:
    """Refuse constants outside their range: DeclarationError naming the constant.

    Positive: ``gradient_radius``, ``hessian_trace``, ``outcome_bound`` and ``theta_bound`` where there is
    one; ``strong_convexity`` may be 0.
    """
    whole_number("n_parameters", loss.n_parameters, at_least=1)
    public_number("gradient_radius", loss.gradient_radius, above=0.0)
    public_number("hessian_trace", loss.hessian_trace, above=0.0)
    public_number("strong_convexity", loss.strong_convexity, at_least=0.0)
    public_number("outcome_bound", loss.outcome_bound, above=0.0)
    if loss.theta_bound is not None:
        public_number("theta_bound", loss.theta_bound, above=0.0)


# squares of noise vectors have to stay finite as well
_SMALLEST, _LARGEST = 1e-140, 1e140


def in_range(name: str, value: float, setting: str) -> float:
    """Return ``value``; raises CalibrationError, naming the ``setting``, where floating point gives out."""
    if not _SMALLEST < value < _LARGEST:
        raise CalibrationError(
            f"{name} = {value:g} is out of floating-point range at {setting}: rescale the outcome or change "
            "the budget"
        )
    return value
