"""What a calibration consumes, and what makes one that a release may declare."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.calibration.constants import Calibration, Noise, OutputCalibration
from dp2erm_cvx.calibration.gaussian import LARGEST_EPSILON, SMALLEST_DELTA
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, Neighboring, StabilityBound
from dp2erm_cvx.public import whole_number

#: Smallest epsilon that is calibrated; the noise leaves floating point near there.
SMALLEST_EPSILON = 1e-100


@dataclass(frozen=True)
class Objective:
    """The weighted objective that a release minimizes, by what is public of it.

    ``bound`` says how far its weights move between neighbors of the ``relation``, ``loss`` what is public of
    its loss, its regularizer and its set; ``n_samples`` is at least 2. ``name``, ``weights`` and
    ``theta_set`` are what texts call the program, the one that its weights are from, and its set.
    ``restriction`` says why the program is no plain squared loss over R^p, None where it is one once its set
    is left out (Theorems 7 and 8).

    Raises DeclarationError for a number of samples that is none.
    """

    bound: StabilityBound
    loss: LossConstants
    n_samples: int
    relation: Neighboring = Neighboring.REPLACE_ONE
    name: str = "the second stage"
    weights: str = "the first stage"
    theta_set: str = "the parameter set"
    restriction: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_samples", whole_number("n_samples", self.n_samples, at_least=2))

    def refuse_restricted(self) -> None:
        """Raise CalibrationError where the program has no form over R^p, which Theorems 7 and 8 need."""
        if self.restriction is not None:
            raise CalibrationError(self.restriction)

    def refuse_unbounded(self) -> None:
        """Raise CalibrationError where zeta_c is infinite, which Theorems 1 and 2 need finite."""
        self.loss.refuse_unbounded(self.name, self.theta_set)


@dataclass(frozen=True)
class Calibrator(abc.ABC):
    """A calibration that a release declares by its ``name``.

    ``laws`` are the noise it has, among which a declaration chooses. ``family`` says whose stability bounds
    it consumes, ``splits`` whether the share of epsilon that pays for the noise may be declared.
    """

    name: str

    laws: ClassVar[tuple[Noise, ...]]
    family: ClassVar[BoundFamily] = BoundFamily.SHARP
    splits: ClassVar[bool] = False

    @abc.abstractmethod
    def applies(self, objective: Objective) -> None:
        """Raise CalibrationError, with the reason, where the theorem does not cover the objective."""

    @abc.abstractmethod
    def calibrate(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> Calibration | OutputCalibration:
        """The calibration of an objective to which the theorem applies.

        ``noise`` chooses where there is a choice, and ``split`` where one may be declared. Raises
        CalibrationError where the bound does not cover what is declared or no noise fits the budget, and
        DeclarationError for an invalid argument.
        """

    def explained(
        self, objective: Objective, budget: Budget, noise: Noise | str, split: float | None = None
    ) -> tuple[Calibration | OutputCalibration, str]:
        """The calibration and in one line why it was taken. Raises where it does not apply."""
        self.applies(objective)
        calibration = self.calibrate(objective, budget, noise, split)
        return calibration, f"calibration = {self.name!r} was declared"


def refuse_uncovered(bound: StabilityBound, relation: Neighboring, budget: Budget, kind: Noise) -> None:
    """Raise CalibrationError where a bound does not cover what is declared, or a budget is out of range."""
    if not bound.private:
        raise CalibrationError(
            f"the stability bound of {bound.theorem} was read off the data: declare its constants publicly"
        )
    if relation not in bound.relations:
        raise CalibrationError(
            f"{bound.theorem} does not cover the neighboring relation {relation.value!r}: "
            f"it covers {', '.join(sorted(known.value for known in bound.relations)) or 'none'}"
        )
    if not (math.isfinite(bound.V) and bound.V > 0.0):
        raise CalibrationError(
            f"{bound.theorem} gives V = {bound.V!r}: no finite noise covers it; use a larger ridge, "
            "a smaller radius or a trim"
        )
    if not SMALLEST_EPSILON <= budget.epsilon <= LARGEST_EPSILON:
        raise CalibrationError(
            f"epsilon = {budget.epsilon!r}: must be between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}"
        )
    if kind is Noise.GAUSSIAN and budget.delta < SMALLEST_DELTA:
        raise CalibrationError(
            f"delta = {budget.delta!r}: Gaussian noise needs at least {SMALLEST_DELTA:g}: declare one, or "
            "take gamma noise"
        )
