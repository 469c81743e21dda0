"""Noise on what is released: Theorem 8 for a mean."""

from __future__ import annotations

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective, refuse_uncovered
from dp2erm_cvx.calibration.constants import Noise, OutputCalibration, in_range
from dp2erm_cvx.calibration.curvature import MARGIN
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number


def calibrate_output(objective: Objective, budget: Budget) -> OutputCalibration:
    """Calibrate Laplace noise for ``T = (1/n) sum w_i 2 (2 a_i - 1) (y_i - c)`` (Theorem 8).

    ``|y - c| <= M'``, half of the ``response_bound`` of a loss whose minimizer is a weighted mean; c public,
    weights of sum n. The positive and the negative part of ``sum w_i t_i - sum w'_i t'_i`` have total
    coefficient at most V/2 each and every ``t`` lies in ``[-2 M', 2 M']``, hence ``|T - T'| <= 2 M' V / n``
    and ``scale = 2 M' V / (n epsilon)``. The guarantee is (epsilon, 0), also where the budget allows a
    positive delta.

    T is the treatment effect where each arm has weight n/2; elsewhere release arm means instead.

    Raises CalibrationError where the loss is no such mean, the bound does not cover what is declared or the
    scale is out of floating-point range; DeclarationError for an invalid argument.
    """
    bound, largest = objective.bound, _outcome_bound(objective)
    refuse_uncovered(bound, objective.relation, budget, Noise.GAMMA)
    sensitivity = 2.0 * largest * (bound.V / objective.n_samples) * (1.0 + MARGIN)
    setting = f"epsilon = {budget.epsilon:g}, V = {bound.V:g}, outcome_bound = {largest:g}"
    return OutputCalibration(
        scale=in_range("noise scale", sensitivity / budget.epsilon * (1.0 + MARGIN), setting),
        sensitivity=sensitivity,
        V=bound.V,
        epsilon=budget.epsilon,
    )


def _outcome_bound(objective: Objective) -> float:
    """M', half of the bound on the response."""
    loss, name = objective.loss, objective.name
    if not loss.is_mean:
        raise CalibrationError(f"Theorem 8 releases a weighted mean, and {name} is none: use plug_in_ate")
    if loss.response_bound is None or loss.covariate_bound != 1.0:
        raise CalibrationError(
            f"Theorem 8: {name} states no response_bound of a mean with covariate_bound = 1"
        )
    return 0.5 * public_number("response_bound", loss.response_bound, above=0.0)


class OutputPerturbation(Calibrator):
    """Theorem 8: noise on the minimizer itself, where it is a weighted mean."""

    laws = (Noise.GAMMA,)

    def applies(self, objective: Objective) -> None:
        objective.refuse_restricted()
        _outcome_bound(objective)

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> OutputCalibration:
        return calibrate_output(objective, budget)
