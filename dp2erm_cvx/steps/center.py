"""Regressions on mapped records: of the outcome for the steps that follow, and of effects for a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.profiles import LossLaw, saturating_law
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.stability import own_factors
from dp2erm_cvx.steps.record_map import OutcomeRows, Rows
from dp2erm_cvx.steps.solving import rests_on_gap
from dp2erm_cvx.steps.step import Execution, Inputs, StepPlan, StepResult, divide
from dp2erm_cvx.steps.theta import Theta, ThetaPlan
from dp2erm_cvx.steps.weights import WeightsPlan
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class Center(Theta):
    """A private regression ``second`` of the outcome on ``map.rows``, from a ``share`` of the budget.

    Its residuals are what a score weights: nothing about the treatment is identified by it alone. With
    ``either`` law gamma noise takes the place of Gaussian noise where it is predicted to err less; steps that
    are all Gaussian share one delta instead.
    """

    name: ClassVar[str] = "center"
    takes_rest: ClassVar[bool] = False

    map: OutcomeRows = OutcomeRows(Rows.COMMON)
    share: float = 0.5
    either: bool = False

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """Pure noise leaves delta to the others."""
        return divide(budget, self.share, self.noise)

    def uncountable(self, universe: Universe) -> str | None:
        return super().uncountable(self.map.universe(universe))

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> CenterPlan:
        """Calibrate the noise on the mapped domain, whatever the earlier steps release (Theorem 10)."""
        mapped = self.map.universe(universe)
        resolved = replace(self, second=self.second.resolve(mapped.domain))
        laws = [self.noise, Noise.GAMMA] if self.either and not Noise(self.noise).pure else [self.noise]
        plans = [Theta.plan(replace(resolved, noise=law), mapped, budget, {}) for law in laws]
        found = min(plans, key=lambda plan: plan.predicted_error)  # delta is no reason for more noise
        known = {field.name: getattr(found, field.name) for field in fields(found)}
        known["reason"] = f"regressions on mapped records take calibration = {self.calibrator.name!r}"
        return self.planned(**known, map=self.map)

    @property
    def planned(self) -> type[CenterPlan]:
        """What it becomes when it is calibrated."""
        return CenterPlan

    def weights(self, universe: Universe, earlier: Mapping[str, StepPlan]) -> WeightsPlan:
        """1, or factors of each record at what was released."""
        n = universe.n_samples
        return WeightsPlan(None, own_factors(n, factored=self._factored(universe)), 0.0, n)

    def loss(self, universe: Universe) -> LossConstants:
        found = super().loss(universe)
        return found.factored() if self._factored(universe) else found

    def _factored(self, universe: Universe) -> bool:
        return self.map.factored or universe.domain.weighted


class Refit(Center):
    """The same regression of what the center left, so that the shrinkage of both multiplies."""

    name: ClassVar[str] = "refit"

    @property
    def planned(self) -> type[CenterPlan]:
        return RefitPlan


class ArmsFit(Center):
    """Either arm's regression of the outcome, for what a released rule is worth."""

    name: ClassVar[str] = "arms"

    @property
    def planned(self) -> type[CenterPlan]:
        return ArmsFitPlan


class RuleFit(Center):
    """The effect of treatment, linear in ``map.rows``, of which the sign is the rule: by all that is left."""

    name: ClassVar[str] = "rule"
    takes_rest: ClassVar[bool] = True

    @property
    def planned(self) -> type[CenterPlan]:
        return RuleFitPlan


@dataclass(frozen=True)
class CenterPlan(ThetaPlan):
    """The calibrated regression; its universe is that of the mapped records."""

    name: ClassVar[str] = "center"
    weighted: ClassVar[bool] = False

    map: OutcomeRows = OutcomeRows(Rows.COMMON)

    @property
    def loss_law(self) -> LossLaw | None:
        """That of Theorem 16 for a loss that saturates."""
        return saturating_law(self.calibration)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That a center which no step releases is public, beside those of the program."""
        found = super().assumptions
        if any(not isinstance(term.source, str) for term in self.map.after):
            found += ("the public center is public, or released from these records and paid for on its own",)
        return found

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the coefficient (p,) on the rows of the covariates as the domain scales them."""
        where = self.map.at(released, inputs.records.n_samples)
        records = where.records(inputs.records, released)
        factors = inputs.records.each(partial(where.factors, released=released))
        # no two draws of a run may share their bits
        own = replace(execution, seed=execution.label(self.name))
        found = self.minimize(records, factors, own)
        assert found.solution is not None
        theta = self.map.unscaled(found.released, inputs.records.n_features)  # post-processing
        return replace(found, released=theta, by_gap=rests_on_gap(found.solution))


class RefitPlan(CenterPlan):
    """That of a refit."""

    name: ClassVar[str] = "refit"


class ArmsFitPlan(CenterPlan):
    """That of both arms."""

    name: ClassVar[str] = "arms"


class RuleFitPlan(CenterPlan):
    """That of a rule."""

    name: ClassVar[str] = "rule"
