"""The calibrations that a release may declare: one more is a row of the table and a case."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp2erm_cvx.calibration.base import Calibration, Noise, Objective, predicted_error
from dp2erm_cvx.calibration.numbers import calibrate_output
from dp2erm_cvx.calibration.objective import calibrate, calibrate_saturating
from dp2erm_cvx.calibration.renyi import calibrate_renyi
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper import BoundFamily, calibrate_paper
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True, repr=False)
class Calibrator:
    """A calibration that a release declares by its ``name``.

    ``laws`` are the noise it has; ``family`` says whose stability bounds it consumes, ``splits``
    whether the share of epsilon that pays for the noise may be declared.
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
        if (
            self.name == "auto"
        ):  # the smallest predicted error among the sharp ones, whatever its noise
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
    """The valid sharp calibration of the least predicted error, in any law, and in one line why it
    is taken.

    From public quantities only. Raises CalibrationError with every reason where nothing is valid.
    """
    loss, valid, refused = objective.loss, list[tuple[float, Calibration]](), list[str]()
    for known in CALIBRATORS:
        # where nothing declares a box there is nothing to refuse
        laws = [law for law in known.laws if law is not Noise.BOX or loss.box is not None]
        for noise in laws if known.family is BoundFamily.SHARP else ():
            try:
                calibration = known.calibrate(objective, budget, noise)
            except CalibrationError as error:
                name = known.name if len(known.laws) == 1 else f"{known.name}-{noise}"
                refused.append(f"{objective.weights}, {name}: {error}")
            else:
                valid.append((predicted_error(calibration, loss, objective.n_samples), calibration))
    if not valid:
        raise CalibrationError(f"no calibration is valid: {'; '.join(refused)}")
    size, best = min(valid, key=lambda pair: pair[0])
    reason = (
        f"{best.theorem} with V = {best.V:.4g} ({objective.weights}): predicted error {size:.3g}"
    )
    return best, f"{reason}, the smallest of {len(valid)} valid calibrations"


def _sharp(
    objective: Objective, budget: Budget, noise: Noise | str, split: float | None
) -> Calibration:
    """Theorems 1, 2, 16 and 17, or Theorems 15 and 16 without a split where the loss saturates.

    These are taken where no split is declared and the predicted error is less; in a ball Theorem 19
    at the gamma of Theorem 1, where its noise is less.
    """
    calibration = calibrate(objective, budget, noise=noise, split=split)
    saturation = objective.loss.saturation
    in_a_ball = saturation is not None and math.isfinite(saturation.ball) and calibration.noise.pure
    if saturation is None or (split is not None and not in_a_ball):
        return calibration
    try:
        other = calibrate_saturating(
            objective, budget, noise, calibration.gamma if in_a_ball else None
        )
    except CalibrationError:
        return calibration  # no noise of Theorem 19 at so small a gamma
    # in a ball both have one gamma
    return min(
        calibration,
        other,
        key=lambda law: predicted_error(law, objective.loss, objective.n_samples),
    )


_ALL, _SPHERES = tuple(Noise), (Noise.GAMMA, Noise.GAUSSIAN)
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
