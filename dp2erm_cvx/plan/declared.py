"""What rules of use read of a declared effect or rule, before its steps are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.plan.settings import CausalSettings, EffectSettings
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.steps.covariates import CovariateLaw
from dp2erm_cvx.steps.nuisances import Confounding, TwoValues
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.step import Step


class DeclaredQuestion(Protocol):
    """What is declared of an effect or of a rule."""

    @property
    def universe(self) -> Universe:
        """The datasets that the guarantee is about."""

    @property
    def budget(self) -> Budget:
        """Epsilon and delta of the whole release."""

    @property
    def noise(self) -> Noise | str:
        """The law of its noise."""

    @property
    def law(self) -> CovariateLaw:
        """What is guessed of the covariates."""

    @property
    def settings(self) -> CausalSettings:
        """Clips, shares and guesses in force."""


class DeclaredEffect(DeclaredQuestion, Protocol):
    """What is declared of an effect."""

    @property
    def estimand(self) -> str:
        """What is estimated, such as "ate"."""

    @property
    def kind(self) -> type[EffectScore]:
        """Class of the score that estimates it."""

    @property
    def rest(self) -> Budget:
        """The budget that settings are shares of: without what the scale of the outcome takes."""

    @property
    def scale(self) -> float:
        """Standard deviation of residuals, in units of the outcome; a guess where none is known."""

    @property
    def declares_scale(self) -> bool:
        """True if the scale of residuals is declared."""

    @property
    def confounding(self) -> float:
        """Largest distance of the arms, in standard deviations."""

    @property
    def assumed(self) -> Confounding:
        """The same, with collinearity and heterogeneity."""

    @property
    def effect_center(self) -> float | None:
        """Declared center of the effect, in units of the outcome; None for a released one."""

    @property
    def two_values(self) -> TwoValues | None:
        """Both values of an outcome that has no others."""

    @property
    def declared(self) -> Mapping[str, Any]:
        """Settings that replace those of the rule of use, by their names."""

    @property
    def weights(self) -> str | FirstStage | None:
        """The scheme whose weights answer, or its name; None for a score."""

    @property
    def settings(self) -> EffectSettings:
        """Clips, shares and guesses in force."""

    def steps(self) -> Iterator[Step]:
        """The steps in their order, as for exact arithmetic."""

    def handed(self, steps: Iterable[Step]) -> MappedUniverse:
        """Universe of the records that these first ``steps`` hand on."""
