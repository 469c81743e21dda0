"""``calibration="auto"``: the valid calibrations of a declaration, by predicted error."""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dp2erm_cvx.calibration.constants import Calibration, Noise
from dp2erm_cvx.calibration.output import OutputCalibration, calibrate_output
from dp2erm_cvx.calibration.paper import calibrate_paper
from dp2erm_cvx.calibration.planning import predicted_error
from dp2erm_cvx.calibration.renyi import SquaredLoss, calibrate_renyi
from dp2erm_cvx.calibration.sharp import calibrate
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget, LossConstants, Neighboring, StabilityBound


class Family(enum.StrEnum):
    """The calibrations that are compared."""

    SHARP_GAMMA = "sharp-gamma"
    SHARP_GAUSSIAN = "sharp-gaussian"
    RENYI = "renyi"
    OUTPUT = "output"
    PAPER_GAMMA = "paper-gamma"
    PAPER_GAUSSIAN = "paper-gaussian"
    PAPER_CORRECTED_GAUSSIAN = "paper-corrected-gaussian"


@dataclass(frozen=True)
class Option:
    """A stability bound and what the second stage may spend on it.

    ``budget`` is the whole budget, or what a private first stage leaves of it (Theorem 9).
    """

    name: str
    bound: StabilityBound
    budget: Budget


@dataclass(frozen=True)
class Candidate:
    """A valid calibration. ``predicted_error`` is that of :func:`predicted_error`; ``reason`` is one line."""

    option: Option
    family: Family
    calibration: Calibration | OutputCalibration
    predicted_error: float
    reason: str


@dataclass(frozen=True)
class Comparison:
    """``valid`` by predicted error, smallest first; ``refused`` are (option, family, reason)."""

    valid: tuple[Candidate, ...]
    refused: tuple[tuple[str, Family, str], ...]

    @property
    def best(self) -> Candidate:
        """The candidate with the smallest predicted error."""
        return self.valid[0]


def compare(
    options: Sequence[Option],
    loss: LossConstants,
    n_samples: int,
    *,
    relation: Neighboring = Neighboring.REPLACE_ONE,
    gradient_bound: float | None = None,
    squared_loss: SquaredLoss | None = None,
    mean_outcome_bound: float | None = None,
    families: Collection[Family] = tuple(Family),
) -> Comparison:
    """Every valid calibration of every option, by predicted error, from public quantities only.

    ``gradient_bound`` (the paper's zeta) admits the paper's families, ``squared_loss`` admits Theorem 7,
    ``mean_outcome_bound`` = M' admits Theorem 8 and says that the loss is the plug-in ``(z - theta)^2``,
    whose strong convexity 2 is public. An option whose bound was given a part of the budget only is judged
    by its second stage: the error of its first stage is not part of the prediction.

    Raises CalibrationError with every reason where nothing is valid; DeclarationError for an invalid
    argument.
    """
    if not options:
        raise DeclarationError("options: at least one stability bound is needed")
    curvature = loss.strong_convexity + (0.0 if mean_outcome_bound is None else 2.0)
    found: list[tuple[Option, Family, Calibration | OutputCalibration, float]] = []
    refused: list[tuple[str, Family, str]] = []
    for option in options:
        for family in (known for known in Family if known in families):
            try:
                calibration = _build(
                    family,
                    option,
                    loss,
                    n_samples,
                    relation,
                    gradient_bound,
                    squared_loss,
                    mean_outcome_bound,
                )
            except CalibrationError as error:
                refused.append((option.name, family, str(error)))
                continue
            error_size = predicted_error(calibration, loss, n_samples, strong_convexity=curvature)
            found.append((option, family, calibration, error_size))
    if not found:
        reasons = "; ".join(f"{name}, {family}: {reason}" for name, family, reason in refused)
        raise CalibrationError(f"no calibration is valid: {reasons}")
    found.sort(key=lambda item: item[3])
    least = found[0][3]
    valid = tuple(
        Candidate(option, family, calibration, size, _reason(option, calibration, size, least, len(found)))
        for option, family, calibration, size in found
    )
    return Comparison(valid, tuple(refused))


def _build(
    family: Family,
    option: Option,
    loss: LossConstants,
    n: int,
    relation: Neighboring,
    gradient_bound: float | None,
    squared_loss: SquaredLoss | None,
    mean_outcome_bound: float | None,
) -> Calibration | OutputCalibration:
    bound, budget = option.bound, option.budget
    if family is Family.OUTPUT:
        if mean_outcome_bound is None:
            raise CalibrationError("Theorem 8 releases a weighted mean, which was not declared")
        return calibrate_output(bound, mean_outcome_bound, n, budget, relation=relation)
    if family is Family.RENYI:
        if squared_loss is None:
            raise CalibrationError("Theorem 7 needs an unconstrained squared loss, and none was declared")
        return calibrate_renyi(
            bound, squared_loss, n, budget, relation=relation, theta_bound=loss.theta_bound
        )
    if not math.isfinite(loss.gradient_radius):
        raise CalibrationError("the gradient of the loss is unbounded over the parameter set")
    noise = Noise.GAMMA if family in (Family.SHARP_GAMMA, Family.PAPER_GAMMA) else Noise.GAUSSIAN
    if family in (Family.SHARP_GAMMA, Family.SHARP_GAUSSIAN):
        return calibrate(bound, loss, n, budget, noise=noise, relation=relation)
    if gradient_bound is None:
        raise CalibrationError("the paper's calibration needs gradient_bound, and none was declared")
    corrected = family is Family.PAPER_CORRECTED_GAUSSIAN
    return calibrate_paper(
        bound,
        loss,
        n,
        budget,
        gradient_bound=gradient_bound,
        noise=noise,
        relation=relation,
        corrected=corrected,
    )


def _reason(
    option: Option, calibration: Calibration | OutputCalibration, size: float, least: float, count: int
) -> str:
    head = f"{calibration.theorem} with V = {calibration.V:.4g} ({option.name}): predicted error {size:.3g}"
    if size == least:
        return f"{head}, the smallest of {count} valid calibrations"
    return f"{head}, {size / least:.3g} times the smallest" if least > 0.0 else head
