"""The calibrations that a release may declare: one more is a row of the table and a case."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from dp2erm_cvx.calibration.base import Calibration, Noise, Objective, predicted_error
from dp2erm_cvx.calibration.numbers import calibrate_output
from dp2erm_cvx.calibration.objective import calibrate, calibrate_saturating
from dp2erm_cvx.calibration.renyi import calibrate_renyi
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper import BoundFamily, calibrate_paper
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True, repr=False)
class Calibrator:
    """A calibration that a release declares by its name.

    Parameters
    ----------
    name
        What a release calls it.
    laws
        The noise that it has.
    family
        Whose stability bounds it consumes.
    splits
        Whether the share of epsilon that pays for the noise may be declared.
    """

    name: str
    laws: tuple[Noise, ...]
    family: BoundFamily = BoundFamily.SHARP
    splits: bool = False

    def __repr__(self) -> str:
        return f"calibrator({self.name!r})"

    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration:
        """The calibration of an objective; ``noise`` and ``split`` choose where there is a choice.

        Raises CalibrationError, with the reason, where the theorem does not cover the objective or
        no noise fits the budget, and DeclarationError for an invalid argument.
        """
        return self.explained(objective, budget, noise, split)[0]

    def explained(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> tuple[Calibration, str]:
        """The calibration and in one line why it was taken. Raises as :meth:`calibrate`."""
        if self.name == "auto":
            return _least(objective, budget)
        why = f"calibration = {self.name!r} was declared"
        if self.name in ("renyi", "output"):
            if objective.restriction is not None:
                raise CalibrationError(objective.restriction)
            law = calibrate_renyi if self.name == "renyi" else calibrate_output
            return law(objective, budget), why
        objective.loss.refuse_unbounded(objective.name, objective.theta_set)
        if self.name == "sharp":
            return _sharp(objective, budget, noise, split), why
        corrected = self.name == "paper-corrected"
        return calibrate_paper(objective, budget, noise=noise, corrected=corrected), why


def _least(objective: Objective, budget: Budget) -> tuple[Calibration, str]:
    """The valid sharp calibration of the least predicted error, and in one line why it is taken.

    Its noise may have any law. It is chosen from public quantities only.

    Raises
    ------
    CalibrationError
        With every reason, where nothing is valid.
    """
    valid: list[tuple[float, Calibration]] = []
    refused: list[str] = []
    for known, noise in _sharp_laws(objective):
        try:
            calibration = known.calibrate(objective, budget, noise)
        except CalibrationError as error:
            name = known.name if len(known.laws) == 1 else f"{known.name}-{noise}"
            refused.append(f"{objective.weights}, {name}: {error}")
            continue
        error_size = predicted_error(calibration, objective.loss, objective.n_samples)
        valid.append((error_size, calibration))
    if not valid:
        raise CalibrationError(f"no calibration is valid: {'; '.join(refused)}")
    size, best = min(valid, key=itemgetter(0))
    reason = (
        f"{best.theorem} with V = {best.V:.4g} ({objective.weights}): predicted error {size:.3g}"
    )
    return best, f"{reason}, the smallest of {len(valid)} valid calibrations"


def _sharp_laws(objective: Objective) -> Iterator[tuple[Calibrator, Noise]]:
    """The sharp calibrations, each with its laws of noise; box noise where a box is declared."""
    for known in CALIBRATORS:
        if known.family is not BoundFamily.SHARP:
            continue
        for noise in known.laws:
            if noise is not Noise.BOX or objective.loss.box is not None:
                yield known, noise


def _sharp(
    objective: Objective, budget: Budget, noise: Noise | str, split: float | None
) -> Calibration:
    """Theorems 1, 2, 16 and 17, or Theorems 15 and 16 without a split where the loss saturates.

    These are taken where no split is declared and the predicted error is less; in a ball Theorem 19
    at the gamma of Theorem 1, where its noise is less.
    """
    calibration = calibrate(objective, budget, noise=noise, split=split)
    saturation = objective.loss.saturation
    in_a_ball = saturation is not None and math.isfinite(saturation.margin_reach)
    in_a_ball = in_a_ball and calibration.noise.pure
    if saturation is None or (split is not None and not in_a_ball):
        return calibration
    gamma = calibration.gamma if in_a_ball else None
    try:
        other = calibrate_saturating(objective, budget, noise, gamma)
    except CalibrationError:
        return calibration  # no noise of Theorem 19 at so small a gamma
    # in a ball both have one gamma
    size = predicted_error(calibration, objective.loss, objective.n_samples)
    other_size = predicted_error(other, objective.loss, objective.n_samples)
    return other if other_size < size else calibration


_ALL = tuple(Noise)
_SPHERES = (Noise.GAMMA, Noise.GAUSSIAN)
#: Every calibration that is a theorem of its own.
CALIBRATORS = (
    Calibrator("sharp", _ALL, splits=True),
    Calibrator("paper", _SPHERES, BoundFamily.PAPER),
    Calibrator("paper-corrected", _SPHERES, BoundFamily.PAPER),
    Calibrator("renyi", (Noise.GAUSSIAN,)),
    Calibrator("output", (Noise.GAMMA,)),
)
_DECLARED = (*CALIBRATORS, Calibrator("auto", _ALL))
#: What a release may declare.
NAMES = tuple(one.name for one in _DECLARED)


def calibrator(name: str) -> Calibrator:
    """The calibration that a release declares. Raises DeclarationError naming the known ones."""
    for known in _DECLARED:
        if known.name == name:
            return known
    raise DeclarationError(f"calibration = {name!r}: must be one of {', '.join(NAMES)}")
