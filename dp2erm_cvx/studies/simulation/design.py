"""What the simulation study declares."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dp2erm_cvx.studies.engine import Design
from dp2erm_cvx.studies.rules import Constants, Scheme


class Tuning(BaseModel):
    """How settings are chosen on an independent simulated dataset.

    Every candidate is fitted on ``bootstraps`` resamples with every budget and judged by its out-of-bag
    accuracy against the optimal rule, averaged over budgets; for the line without privacy, by one fit without
    noise. ``candidates`` lists, by scheme, settings that replace the declared ones; ``constants`` public
    constants that do, which are tried first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstraps: int = Field(ge=1)
    candidates: dict[str, list[dict[str, Any]]]
    constants: list[dict[str, Any]] = []


class StudyDesign(Design):
    """What studies of rules share. ``draws`` of the noise are averaged within a replicate."""

    replicates: int = Field(ge=1)
    draws: int = Field(ge=1)
    epsilons: list[float]
    noises: list[str]
    families: list[str]
    constants: Constants
    schemes: dict[str, Scheme]
    tuning: Tuning | None = None

    def chosen(self, choice: dict[str, Any], name: str) -> tuple[Scheme, Constants]:
        """A scheme and the constants with what tuning chose for them."""
        scheme = self.schemes[name]
        settings = {**scheme.settings, **choice["settings"]}
        constants = self.constants.model_copy(update=choice["constants"])
        return scheme.model_copy(update={"settings": settings}), constants


class SimulationDesign(StudyDesign):
    """See ``designs/simulation.toml``."""

    scenarios: list[str]
    n_samples: int = Field(ge=10)
    n_test: int = Field(ge=10)
