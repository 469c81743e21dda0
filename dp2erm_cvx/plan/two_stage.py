"""The plan of a weighted release: theta, perhaps a private propensity before it and a value after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.solve import Solution
from dp2erm_cvx.steps import Execution, Inputs, PropensityPlan, ThetaPlan, ValuePlan

if TYPE_CHECKING:
    from dp2erm_cvx.plan.study import Study


@dataclass(frozen=True)
class TwoStagePlan(Plan):
    """The planned steps of a ``study``: theta is always among them."""

    study: Study

    def find_weights(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> Solution:
        return self.theta.weights.find(inputs, released, execution)

    @property
    def propensity(self) -> PropensityPlan | None:
        """The coefficient of a private first stage (Theorem 9), None where it takes no noise."""
        found = self.step(PropensityPlan.name)
        return found if isinstance(found, PropensityPlan) else None

    @property
    def theta(self) -> ThetaPlan:
        """The step that releases theta."""
        found = self.step(ThetaPlan.name)
        assert isinstance(found, ThetaPlan)
        return found

    @property
    def value(self) -> ValuePlan | None:
        """The value of the rule, None where none is released."""
        found = self.step(ValuePlan.name)
        return found if isinstance(found, ValuePlan) else None

    @property
    def bound(self) -> StabilityBound:
        """How far the weights of the first stage move between neighbors."""
        return self.theta.bound

    @property
    def theorem(self) -> str:
        """The privacy theorem in force."""
        found = self.theta.theorem
        if self.propensity is not None:
            found = f"Theorem 9 (composition) of {self.propensity.theorem} and {found}"
        return found if self.value is None else f"{found}, then {self.value.theorem}"
