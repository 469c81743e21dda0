"""The calibrations that a release may declare: one more is a class in its theorem's file and a line here."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dp2erm_cvx.calibration.calibrator import Calibrator, Objective
from dp2erm_cvx.calibration.constants import Calibration, Noise, OutputCalibration
from dp2erm_cvx.calibration.output import OutputPerturbation
from dp2erm_cvx.calibration.paper import Paper
from dp2erm_cvx.calibration.renyi import Renyi
from dp2erm_cvx.calibration.saturating import SaturatingLoss
from dp2erm_cvx.calibration.sharp import Sharp
from dp2erm_cvx.calibration.utility import predicted_error
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants

#: Every calibration that is a theorem of its own.
CALIBRATORS: tuple[Calibrator, ...] = (
    Sharp("sharp"),
    Paper("paper"),
    Paper("paper-corrected", corrected=True),
    Renyi("renyi"),
    OutputPerturbation("output"),
    SaturatingLoss("saturating"),
)
_SHARP = tuple(one for one in CALIBRATORS if one.family is BoundFamily.SHARP)


@dataclass(frozen=True)
class RankedCalibration:
    """A valid calibration. ``predicted_error`` is that of :func:`predicted_error`; ``reason`` is one line."""

    name: str
    calibration: Calibration | OutputCalibration
    predicted_error: float
    reason: str


@dataclass(frozen=True)
class Ranking:
    """``valid`` by predicted error, smallest first; ``refused`` are (name, reason)."""

    valid: tuple[RankedCalibration, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def best(self) -> RankedCalibration:
        """The calibration with the smallest predicted error."""
        return self.valid[0]


def rank(objective: Objective, budget: Budget, calibrators: Collection[Calibrator] = _SHARP) -> Ranking:
    """Every valid calibration by predicted error, from public quantities only, in each of its noise laws.

    Without ``calibrators``, all that use the sharp stability bounds are compared.

    Raises CalibrationError with every reason where nothing is valid; DeclarationError for an invalid
    argument.
    """
    loss = objective.loss
    found: list[tuple[str, Calibration | OutputCalibration, float]] = []
    refused: list[tuple[str, str]] = []
    for name, one, noise in _laws(calibrators, loss):
        try:
            one.applies(objective)
            calibration = one.calibrate(objective, budget, noise)
        except CalibrationError as error:
            refused.append((name, str(error)))
            continue
        size = predicted_error(calibration, loss, objective.n_samples)
        found.append((name, calibration, size))
    if not found:
        reasons = "; ".join(f"{objective.weights}, {name}: {reason}" for name, reason in refused)
        raise CalibrationError(f"no calibration is valid: {reasons}")
    found.sort(key=lambda item: item[2])
    least, weights = found[0][2], objective.weights
    valid = []
    for name, calibration, size in found:
        reason = f"{calibration.theorem} with V = {calibration.V:.4g} ({weights}): predicted error {size:.3g}"
        if size == least:
            reason += f", the smallest of {len(found)} valid calibrations"
        elif least > 0.0:
            reason += f", {size / least:.3g} times the smallest"
        valid.append(RankedCalibration(name, calibration, size, reason))
    return Ranking(tuple(valid), tuple(refused))


def _laws(
    calibrators: Collection[Calibrator], loss: LossConstants
) -> Iterator[tuple[str, Calibrator, Noise]]:
    for one in calibrators:
        # where nothing declares a box there is nothing to refuse
        for noise in (law for law in one.laws if law is not Noise.BOX or loss.box is not None):
            yield (one.name if len(one.laws) == 1 else f"{one.name}-{noise}"), one, noise


class Automatic(Calibrator):
    """The smallest predicted error among the sharp calibrations that apply; it chooses the noise as well."""

    laws = tuple(Noise)

    def applies(self, objective: Objective) -> None:
        """Wherever another does: :func:`rank` raises elsewhere, with every reason."""

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration | OutputCalibration:
        return rank(objective, budget).best.calibration

    def explained(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> tuple[Calibration | OutputCalibration, str]:
        best = rank(objective, budget).best
        return best.calibration, best.reason


_DECLARED: tuple[Calibrator, ...] = (*CALIBRATORS, Automatic("auto"))
#: What a release may declare.
NAMES = tuple(one.name for one in _DECLARED)


def calibrator(name: str) -> Calibrator:
    """The calibration that a release declares. Raises DeclarationError naming the known ones."""
    for one in _DECLARED:
        if one.name == name:
            return one
    raise DeclarationError(f"calibration = {name!r}: must be one of {', '.join(NAMES)}")
