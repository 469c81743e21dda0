"""Which calibration is taken, and why."""

from __future__ import annotations

import enum

from dp2erm_cvx.calibration import (
    Calibration,
    Family,
    Noise,
    Option,
    OutputCalibration,
    SquaredLoss,
    calibrate,
    calibrate_output,
    calibrate_paper,
    calibrate_renyi,
    compare,
)
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, StabilityBound
from dp2erm_cvx.program import SecondStage


class Method(enum.StrEnum):
    """How noise is calibrated.

    ``SHARP``: Theorems 1 and 2. ``PAPER`` and ``PAPER_CORRECTED``: the paper's formulas and bounds, its
    Gaussian statement as printed or corrected. ``RENYI``: Theorem 7, theta projected afterwards.
    ``OUTPUT``: Theorem 8.
    ``AUTO``: the smallest predicted error among the sharp ones that apply.
    """

    SHARP = "sharp"
    PAPER = "paper"
    PAPER_CORRECTED = "paper-corrected"
    RENYI = "renyi"
    OUTPUT = "output"
    AUTO = "auto"

    @property
    def family(self) -> BoundFamily:
        """Whose stability bounds it calibrates to."""
        return BoundFamily.PAPER if self in (Method.PAPER, Method.PAPER_CORRECTED) else BoundFamily.SHARP


def declared(
    method: Method,
    bound: StabilityBound,
    second: SecondStage,
    loss: LossConstants,
    n: int,
    budget: Budget,
    domain: Domain,
    noise: Noise | str,
    split: float | None,
) -> Calibration | OutputCalibration:
    """The calibration of a declared method. Raises CalibrationError where it does not apply."""
    relation = domain.relation
    if method is Method.RENYI:
        second.unconstrained()  # refuses a regularizer, which Theorem 7 does not cover
        squared = squared_loss(loss)
        return calibrate_renyi(bound, squared, n, budget, relation=relation, theta_bound=loss.theta_bound)
    if method is Method.OUTPUT:
        second.unconstrained()
        return calibrate_output(bound, mean_bound(second.name, loss), n, budget, relation=relation)
    second.refuse_unbounded(loss, domain)
    if method is Method.SHARP:
        return calibrate(bound, loss, n, budget, noise=noise, relation=relation, split=split)
    if loss.gradient_bound is None:
        raise CalibrationError(f"{second.name} states no gradient_bound, which the paper's calibration needs")
    return calibrate_paper(
        bound,
        loss,
        n,
        budget,
        gradient_bound=loss.gradient_bound,
        noise=noise,
        relation=relation,
        corrected=method is Method.PAPER_CORRECTED,
    )


def automatic(
    name: str,
    bound: StabilityBound,
    second: SecondStage,
    loss: LossConstants,
    n: int,
    budget: Budget,
    domain: Domain,
) -> tuple[Calibration | OutputCalibration, str]:
    """The smallest predicted error among the sharp calibrations that apply, and the reason in one line."""
    try:
        second.unconstrained()
        squared = squared_loss(loss)
    except CalibrationError:
        squared = None
    comparison = compare(
        [Option(name, bound, budget)],
        loss,
        n,
        relation=domain.relation,
        squared_loss=squared,
        mean_outcome_bound=mean_bound(second.name, loss) if squared is not None and loss.is_mean else None,
        families=(Family.SHARP_GAMMA, Family.SHARP_GAUSSIAN, Family.RENYI, Family.OUTPUT),
    )
    return comparison.best.calibration, comparison.best.reason


def mean_bound(name: str, loss: LossConstants) -> float:
    """M' of Theorem 8, whose statistic has terms in ``[-2 M', 2 M']``: half of the bound on the response.

    Raises CalibrationError where the second stage is no weighted mean of a bounded response.
    """
    if not loss.is_mean:
        raise CalibrationError(f"Theorem 8 releases a weighted mean, and {name} is none: use plug_in_ate")
    if loss.response_bound is None or loss.covariate_bound != 1.0:
        raise CalibrationError(
            f"Theorem 8: {name} states no response_bound of a mean with covariate_bound = 1"
        )
    return 0.5 * loss.response_bound


def squared_loss(loss: LossConstants) -> SquaredLoss:
    """The constants of Theorem 7. Raises CalibrationError where the loss is not squared."""
    if loss.covariate_bound is None or loss.response_bound is None:
        raise CalibrationError("Theorem 7 needs a squared loss")
    return SquaredLoss(loss.n_parameters, loss.covariate_bound, loss.response_bound)
