"""Everything that is fixed before the data are touched: the calibrated steps and their composition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dp2erm_cvx.blocked import BlockedDataset
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.plan.pipeline import Pipeline
from dp2erm_cvx.privacy import Budget, RenyiCurve, StabilityBound
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.solve import Solution
from dp2erm_cvx.steps import Execution, Inputs, MeanScorePlan, StepPlan, StepResult

_ROUND_UP = 1.0 + 1e-12


@dataclass(frozen=True, repr=False)
class PlanResult:
    """What a run found: what was ``released``, by step, and what must stay with the data holder."""

    inputs: Inputs
    steps: Mapping[str, StepResult]

    @property
    def released(self) -> dict[str, Array]:
        """What every step released."""
        return {name: result.released for name, result in self.steps.items()}

    @property
    def weights(self) -> Solution:
        """The weights of the first stage. Private."""
        assert self.inputs.weights is not None
        return self.inputs.weights

    @property
    def certified(self) -> bool:
        """Whether every exact minimizer that the theorems speak of is within its tolerance, or not needed."""
        return all(result.certified for result in self.steps.values())

    @property
    def by_gap(self) -> bool:
        """Whether one of those needed rests on its duality gap alone, which is no proof."""
        return any(result.by_gap for result in self.steps.values())


@dataclass(frozen=True)
class Plan:
    """The planned ``steps`` of what was declared, in their order, and what they guarantee together."""

    study: Pipeline[Any]
    steps: tuple[StepPlan, ...]

    def __post_init__(self) -> None:
        """A score predicts shrinkage from the noise that the regressions of this very plan have."""
        *others, last = self.steps
        if isinstance(last, MeanScorePlan):
            nuisances = last.score.nuisances.planned({step.name: step for step in others})
            last = replace(last, score=replace(last.score, nuisances=nuisances))
            object.__setattr__(self, "steps", (*others, last))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # certificates judge what comes of it
    def run(self, dataset: Dataset | BlockedDataset, execution: Execution) -> PlanResult:
        """Run the steps. No noise is ever drawn anew: whatever solver has to solve it, a vector stays.

        Raises DataError where the domain declares sampling weights and the dataset was made without them.
        """
        domain = self.study.start.domain
        if not dataset.weighted and domain.sampling is not None:
            raise DataError("the domain declares sampling weights: the dataset has none")
        records = dataset.records(partial(_inside, domain=domain), domain)
        inputs, results = Inputs(dataset, records), dict[str, StepResult]()
        for step in self.steps:
            released = {name: result.released for name, result in results.items()}
            if step.weighted and inputs.weights is None:
                inputs = replace(inputs, weights=self.find_weights(inputs, released, execution))
            found = results[step.name] = step.run(inputs, released, execution)
            inputs = step.hand_on(inputs, found, released | {step.name: found.released})
        return PlanResult(inputs, results)

    def step(self, name: str) -> StepPlan | None:
        """The step of this name, None where there is none."""
        return next((step for step in self.steps if step.name == name), None)

    def find_weights(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> Solution:
        """The weights (n,) of the steps that have any. Private."""
        raise NotImplementedError  # a plan with weighted steps says where theirs are from

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that its steps solve, each once."""
        return tuple(dict.fromkeys(program for step in self.steps for program in step.programs))

    @property
    def bound(self) -> StabilityBound:
        """How far weights move between neighbors, in the last step that has any."""
        return self.steps[-1].bound

    @property
    def proven(self) -> bool:
        """Whether a theorem certifies every step."""
        return all(step.proven for step in self.steps)

    @property
    def counted(self) -> bool:
        """Whether the guarantee covers floating-point arithmetic, in every step that adds noise."""
        return all(step.counted for step in self.steps)

    @property
    def certified_by_design(self) -> bool:
        """Whether public bounds say what every step is certified to on every dataset of the universe."""
        return all(step.certified_by_design for step in self.steps)

    @property
    def guarantee(self) -> Budget:
        """What is guaranteed, which may be less than the budget: gamma and Laplace noise spend no delta.

        Basic composition: the parts that the budget was divided into add up to at most the budget.
        """
        spent = [step.guarantee for step in self.steps]
        if len(spent) == 1 and self.steps[0].precision is None:
            return spent[0]
        budget = self.study.budget
        return Budget(budget.epsilon, budget.delta if any(part.delta for part in spent) else 0.0)

    @property
    def curve(self) -> RenyiCurve | None:
        """Renyi divergences of the whole release, for a ledger that adds them up; None if none is proven.

        A pure step has a curve as well; where all of them are pure, epsilon says it all. Where arithmetic is
        counted, the curve holds up to the event that some noise is longer than its public reach, of
        probability below ``exp(-1500)`` in each step. The conversion of a ledger pays for it out of delta.
        """
        stated = next((step.curve for step in self.steps if step.curve is not None), None)
        if stated is None:
            return None
        curves = []
        for step in self.steps:
            curve, spent = step.curve, step.guarantee
            if curve is None:
                if spent.delta > 0.0:
                    return None
                curve = RenyiCurve.pure(spent.epsilon * _ROUND_UP, stated.orders)
            curves.append(curve)
        return reduce(RenyiCurve.plus, curves)

    @property
    def theorem(self) -> str:
        """The privacy theorems in force."""
        found = "Theorem 10 (record maps) of " + ", ".join(step.theorem for step in self.steps)
        return f"{found}; one delta for all (Theorem 16)" if self.joint else found

    @property
    def joint(self) -> bool:
        """Whether the steps guarantee together more than basic composition of them says."""
        return math.fsum(step.guarantee.epsilon for step in self.steps) > self.study.budget.epsilon


def _inside(data: Dataset, *, domain: Domain) -> Records:
    return domain.records(data.X, data.a, data.y, data.sampling)
