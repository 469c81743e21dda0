"""Theorem 8: the average treatment effect by output perturbation with Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass

from dp2erm_cvx.calibration.constants import Calibration, Noise
from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.calibration.limits import in_range
from dp2erm_cvx.calibration.sharp import refuse_uncovered
from dp2erm_cvx.privacy import Budget, Neighboring, StabilityBound
from dp2erm_cvx.public import public_number, whole_number


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


def calibrate_output(
    bound: StabilityBound,
    outcome_bound: float,
    n_samples: int,
    budget: Budget,
    *,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> OutputCalibration:
    """Calibrate Laplace noise for ``T = (1/n) sum w_i 2 (2 a_i - 1) (y_i - c)`` (Theorem 8).

    ``|y - c| <= outcome_bound`` = M', c public, weights of sum n. The positive and the negative part of
    ``sum w_i t_i - sum w'_i t'_i`` have total coefficient at most V/2 each and every ``t`` lies in
    ``[-2 M', 2 M']``, hence ``|T - T'| <= 2 M' V / n`` and ``scale = 2 M' V / (n epsilon)``. The guarantee is
    (epsilon, 0), also where the budget allows a positive delta.

    T is the treatment effect where each arm has weight n/2; elsewhere release arm means instead.

    Raises CalibrationError where the bound does not cover what is declared or the scale is out of
    floating-point range; DeclarationError for an invalid argument.
    """
    largest = public_number("outcome_bound", outcome_bound, above=0.0)
    n = whole_number("n_samples", n_samples, at_least=2)
    refuse_uncovered(bound, relation, budget, Noise.GAMMA)
    sensitivity = 2.0 * largest * (bound.V / n) * (1.0 + MARGIN)
    setting = f"epsilon = {budget.epsilon:g}, V = {bound.V:g}, outcome_bound = {largest:g}"
    return OutputCalibration(
        scale=in_range("noise scale", sensitivity / budget.epsilon * (1.0 + MARGIN), setting),
        sensitivity=sensitivity,
        V=bound.V,
        epsilon=budget.epsilon,
    )
