"""From what is declared to its plan: calibrated steps, and what they guarantee together."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from dp2erm_cvx.arrays import ROUND_DOWN, ROUND_UP, Array
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.numbers import Arithmetic
from dp2erm_cvx.calibration.profiles import joint_delta, joint_relief
from dp2erm_cvx.checks import (
    check_settings,
    one_line,
    one_of,
    public_fraction,
    public_number,
    setting,
)
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.counts import refuse
from dp2erm_cvx.data.dataset import Dataset, refuse_undeclared
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.display import Shown
from dp2erm_cvx.errors import CalibrationError, DeclarationError, brief
from dp2erm_cvx.hooks import report_of
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.noise import secure_available
from dp2erm_cvx.plan.settings import CausalSettings
from dp2erm_cvx.privacy import Budget, RenyiCurve, StabilityBound, Standing
from dp2erm_cvx.program import SecondStage, registry
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.solve import Solution
from dp2erm_cvx.steps.covariates import CovariateLaw
from dp2erm_cvx.steps.execution import Execution, Inputs, StepResult
from dp2erm_cvx.steps.fit import Fit, enters_no_outcome
from dp2erm_cvx.steps.record_map import OutcomeRows, WithConstant
from dp2erm_cvx.steps.step import Step

#: Share of epsilon that covers the arithmetic where none is declared.
NUMERICAL_SHARE = 0.005

#: Bound on the norm of a regression coefficient, in outcome bounds: too wide to be felt.
LONGEST = 20.0

#: n epsilon of the rate of treatment from which on it is more than noise.
STEADY = 20.0

#: Solves and certificates take dense matrices of this order.
MOST_FEATURES = 2000


@dataclass(frozen=True, kw_only=True)
class Pipeline(abc.ABC):
    """Steps in their order: what is declared before any record is read.

    Parameters
    ----------
    universe
        The datasets that the guarantee is about.
    budget, noise, arithmetic, numerical_share
        As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`.
    """

    #: The step that answers what is asked.
    main: ClassVar[str]
    #: Whether treatments may have more than two arms.
    several_arms: ClassVar[bool] = False

    if TYPE_CHECKING:  # fields of every kind, in an order of its own

        @property
        def universe(self) -> Universe: ...

        @property
        def budget(self) -> Budget: ...

    noise: Noise | str = Noise.GAMMA
    arithmetic: Arithmetic | str = setting(Arithmetic.ASSUMED, one_of, kind=Arithmetic)
    numerical_share: float = setting(NUMERICAL_SHARE, public_fraction)
    #: Steps that an earlier question of the same study released, by name: ``of`` which one, and at
    #: which ``epsilon`` of which ``budget``. They are not released again, and spend none of the own
    #: budget.
    before: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise DeclarationError for too many covariates, and for arms where it knows only two."""
        if not self.several_arms:
            refuse(self.universe.domain.codebook, "a rule, or a fit with weights,", "arms")
        check_settings(self)
        if self.universe.n_features > MOST_FEATURES:
            text = f"at most {MOST_FEATURES}, because Hessians are dense; choose some publicly"
            raise DeclarationError(f"{self.universe.n_features} covariates: {text}")
        self.universe.domain.middles(self.universe.n_features)  # as many as there are ranges

    @property
    def main_step(self) -> str:
        """Name of the step that answers, as it is declared."""
        return self.main

    @property
    def start(self) -> Universe:
        """The public universe that the first step finds its records in."""
        return self.universe

    @abc.abstractmethod
    def steps(self) -> Iterator[Step]:
        """The steps in their order, as for exact arithmetic, without one that is paid apart."""

    @property
    def opening(self) -> tuple[Step, Budget] | None:
        """A step before all others and its budget; None where there is none.

        Settings of the others follow from what it releases. Both budgets are fixed in advance, so
        that they add up whatever that is (Theorem 31).
        """
        return None

    @property
    def rest(self) -> Budget:
        """The budget of all steps but the first one that is paid apart."""
        return self.budget

    def after(self, released: Array) -> Self:
        """The declarations once the first step has ``released``: mostly the same."""
        return self

    def handed(self, steps: Iterable[Step]) -> MappedUniverse:
        """Universe of the records that these first ``steps`` hand on."""
        where: MappedUniverse = self.start
        for step in steps:
            where = step.hands(where)
        return where

    @cached_property
    def law(self) -> CovariateLaw:
        """Law that is guessed of the covariates."""
        return CovariateLaw.of(self.universe.domain, self.universe.n_features)

    def saturating(self, name: str, slope: float) -> SecondStage:
        """A second stage of this ``name`` whose loss saturates, with this ``slope``."""
        # No theorem needs this ball: within it every solve is certified to a public radius.
        ball = L2Ball(LONGEST * self.universe.domain.outcome_bound)
        program: SecondStage = registry.build(
            registry.second_stages(), name, slope=slope, theta_set=ball
        )
        return program

    def regression(self, name: str, program: Any, rows: OutcomeRows, **how: Any) -> Fit:
        """A regression on mapped ``rows``; ``how`` is what else a Fit takes."""
        return Fit(name=name, noise=self.noise, program=program, map=rows, either=True, **how)

    def logistic(self, universe: MappedUniverse, settings: CausalSettings) -> Fit:
        """The logistic regression of the treatment on (1, x) in a ball, at weights 1.

        ``universe`` is that of the records that it is fitted to.
        """
        bound = WithConstant().universe(universe).space.covariate_bound
        program: Any = registry.build(
            registry.first_stages(),
            "ipw_private",
            ridge=0.0,
            radius=settings.radius / bound,
            trim=settings.cap,
        )
        return self.regression(
            "propensity",
            program,
            WithConstant(),
            share=settings.propensity_share,
            split=settings.split,
        )


S = TypeVar("S", bound=Pipeline)

#: Above this, exp(epsilon) is no longer small against the probability of noise beyond its bound.
LARGEST_COUNTED = 500.0


@dataclass(frozen=True, repr=False)
class PlanResult:
    """Result of a run: what was ``released``, by step, and what must stay with the data holder.

    Parameters
    ----------
    inputs
        Dataset, mapped records and weights. Private.
    steps
        What every step released, by its name, and how it was certified.
    plan
        What was run: the plan at what the first step released, where others follow from it.
    """

    inputs: Inputs
    steps: Mapping[str, StepResult]
    plan: Plan[Any]

    @property
    def released(self) -> dict[str, Array]:
        """Released numbers of every step."""
        return {name: result.released for name, result in self.steps.items()}

    @property
    def weights(self) -> Solution:
        """The weights of the first stage. Private."""
        assert self.inputs.weights is not None
        return self.inputs.weights

    @property
    def certified(self) -> bool:
        """True if every exact minimizer that a theorem needs is within its tolerance."""
        return all(result.certified for result in self.steps.values())

    @property
    def by_gap(self) -> bool:
        """True if a needed minimizer rests on its duality gap, which no public number bounds."""
        return any(result.by_gap for result in self.steps.values())


@dataclass(frozen=True)
class Plan(Shown, Generic[S]):
    """What is declared, its calibrated steps in their order, and what they guarantee together.

    Parameters
    ----------
    study
        What is declared.
    steps
        Its calibrated steps, in their order.
    certifies
        Whether the declared solver certifies every dataset that public bounds say can be certified.
    seeded
        Whether the noise comes from a seed.
    """

    study: S
    steps: tuple[Step, ...]
    certifies: bool = True
    seeded: bool = False

    def __post_init__(self) -> None:
        """A score predicts shrinkage from the noise that the regressions of this very plan have."""
        steps: dict[str, Step] = {}
        for step in self.steps:
            steps[step.name] = step.knowing(dict(steps))
        object.__setattr__(self, "steps", tuple(steps.values()))

    def blocks(self) -> Iterator[Any]:
        """Report: what is spent, step by step, and what is predicted."""
        return report_of(self)

    # Certificates judge what comes of an overflow.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def run(
        self,
        dataset: Dataset | BlockedDataset,
        execution: Execution,
        earlier: Mapping[str, StepResult] = MappingProxyType({}),
    ) -> PlanResult:
        """Run the steps in their order, each on the records that the ones before it hand on.

        No noise is ever drawn anew: whatever solver has to solve it, a vector stays. Where a step
        is paid apart, all others are planned once more at what it released.

        Parameters
        ----------
        dataset
            The raw records.
        execution
            Solver, workers and source of the noise.
        earlier
            Results of the steps that an earlier question released, by name.

        Raises
        ------
        DataError, DeclarationError
            Where the dataset is not of the declared domain.
        CalibrationError
            Where no plan follows from what the first step released, which is then spent.
        """
        domain = self.study.start.domain
        refuse_undeclared(domain, dataset)
        records = dataset.records(partial(_inside, domain=domain), domain)
        inputs = Inputs(dataset, records)
        results: dict[str, StepResult] = {}
        released: dict[str, Array] = {}
        plan = self
        steps = self.steps
        if self.study.opening is not None:
            opening = self.steps[0]
            results[opening.name] = opening.run(inputs, released, execution)
            released = {opening.name: results[opening.name].released}
            plan = self.after(released[opening.name])
            steps = plan.steps[1:]
        for step in steps:
            if step.weighted and inputs.weights is None:
                inputs = replace(inputs, weights=step.weights.find(inputs, released, execution))
            if step.name in self.study.before:
                # Never released again: nobody paid for a second time.
                result = earlier[step.name]
            else:
                result = step.run(inputs, released, execution)
            results[step.name] = result
            # A new mapping, as steps may keep the one that they were given.
            released = released | {step.name: result.released}
            inputs = step.hand_on(inputs, released)
        return PlanResult(inputs, results, plan)

    def after(self, released: Array) -> Plan[S]:
        """The plan once its first step, which is paid apart, has ``released``.

        Raises
        ------
        CalibrationError
            Where none follows.
        """
        plan = make_plan(self.study.after(released))
        return replace(plan, certifies=self.certifies, seeded=self.seeded)

    def step(self, name: str) -> Step | None:
        """The step of this name, None where there is none."""
        return next((step for step in self.steps if step.name == name), None)

    @property
    def main(self) -> Any:
        """The step that answers what is asked: the score of an effect, a rule, or theta."""
        return self.step(self.study.main_step)

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that its steps solve, each once."""
        solved = (program for step in self.steps for program in step.programs)
        return tuple(dict.fromkeys(solved))

    @property
    def bound(self) -> StabilityBound:
        """How far weights, or factors, move between neighbors in the main step."""
        bound: StabilityBound = self.main.bound
        return bound

    @property
    def proven(self) -> bool:
        """True if a theorem certifies every step."""
        return all(step.proven for step in self.steps)

    @property
    def counted(self) -> bool:
        """True if the guarantee covers floating-point arithmetic, in every step that adds noise."""
        return all(step.counted for step in self.steps)

    @property
    def certified_by_design(self) -> bool:
        """True if public bounds say what every step is certified to, whatever the records are."""
        return all(step.certified_by_design for step in self.steps)

    @property
    def standing(self) -> Standing:
        """What a release by this plan will be at best, whatever the records are."""
        released = self.study.universe.domain.released
        if self.seeded or (released is not None and not released.private):
            return Standing.NOT_PRIVATE
        if not self.proven:
            return Standing.UNPROVEN
        if not (self.certifies and self.certified_by_design):
            return Standing.CONDITIONAL
        return Standing.PRIVATE

    @property
    def guarantee(self) -> Budget:
        """Guaranteed budget, which may be less than the declared one.

        By basic composition the parts that the budget was divided into add up to at most the
        budget. Gamma and Laplace noise spend no delta.
        """
        spent = [step.guarantee for step in self.steps]
        if len(spent) == 1 and self.steps[0].precision is None:
            return spent[0]
        if self.study.before:
            return _together(spent)
        budget = self.study.budget
        spends_delta = any(part.delta for part in spent)
        if self.study.opening is not None and not Noise(self.study.noise).pure:
            # By which law later steps err less follows from what the first one releases.
            spends_delta = True
        return Budget(budget.epsilon, budget.delta if spends_delta else 0.0)

    @property
    def own(self) -> Budget:
        """Budget that is spent beside the steps that were released before, whose noise is pure."""
        before = self.study.before
        if not before:
            return self.guarantee
        return _together([step.guarantee for step in self.steps if step.name not in before])

    @property
    def curve(self) -> RenyiCurve | None:
        """Renyi divergences of the whole release, which a ledger adds up; None if none is proven.

        A pure step has a curve as well; where all of them are pure, epsilon says it all. Where
        arithmetic is counted, the curve holds up to the event that some noise is longer than its
        public reach, of probability below ``exp(-1500)`` in each step. The conversion of a ledger
        pays for it out of delta.
        """
        if self.study.opening is not None:
            # By what law later steps draw is not known yet.
            return None
        stated = [step.curve for step in self.steps]
        orders = next((curve.orders for curve in stated if curve is not None), None)
        if orders is None:
            return None
        curves = []
        for step, curve in zip(self.steps, stated, strict=True):
            if curve is not None:
                curves.append(curve)
            elif step.guarantee.delta > 0.0:
                return None
            else:
                curves.append(RenyiCurve.pure(step.guarantee.epsilon * ROUND_UP, orders))
        return reduce(RenyiCurve.plus, curves)

    @property
    def theorem(self) -> str:
        """The privacy theorems in force."""
        theorems = [step.theorem for step in self.steps]
        if self.main.weighted:
            if len(theorems) == 1:
                return theorems[0]
            return f"Theorem 9 (composition) of {' and '.join(theorems)}"
        maps = f"Theorem 10 (record maps) of {', '.join(theorems)}"
        if self.joint:
            return f"{maps}; one delta for all (Theorem 16)"
        return maps

    @property
    def joint(self) -> bool:
        """True if the steps guarantee together more than basic composition of them says."""
        return math.fsum(step.guarantee.epsilon for step in self.steps) > self.guarantee.epsilon


def _inside(data: Dataset, *, domain: Domain) -> Records:
    """Raw records of a dataset, mapped into the space of the ``domain``."""
    return domain.records(data.X, data.a, data.y, data.sampling, data.person, data.repeats)


def _together(spent: Sequence[Budget]) -> Budget:
    """The sum of what steps spend, rounded up."""
    epsilon = math.fsum(part.epsilon for part in spent)
    delta = math.fsum(part.delta for part in spent)
    return Budget(epsilon * ROUND_UP, delta * ROUND_UP)


def make_plan(study: S) -> Plan[S]:
    """Calibrate a release from public quantities alone.

    Raises
    ------
    DeclarationError
        For an invalid share.
    CalibrationError
        Where no theorem covers what is declared.
    """
    if _counts(study):
        plan = _planned(study, study.numerical_share)
        if plan.counted:
            return plan
        if study.arithmetic is Arithmetic.COUNTED:
            raise CalibrationError(
                "arithmetic = 'counted': the curvature is too small for floating point; use a "
                "smaller epsilon or a larger regularizer"
            )
    return _planned(study, None)


def plan_as_declared(study: S) -> Plan[S]:
    """A plan for arithmetic declared "counted" or "assumed", whatever can be drawn on this machine.

    Raises as :func:`make_plan` does.
    """
    is_counted = study.arithmetic is Arithmetic.COUNTED
    return _planned(study, study.numerical_share if is_counted else None)


def _counts(study: Pipeline) -> bool:
    """True if the arithmetic is counted.

    Raises
    ------
    DeclarationError, CalibrationError
        Where it is declared to be counted and cannot be.
    """
    if study.arithmetic is Arithmetic.ASSUMED:
        return False
    missing = _uncountable(study)
    if study.arithmetic is Arithmetic.AUTO:
        return missing is None and secure_available()
    if missing is not None:
        raise CalibrationError(f"arithmetic = 'counted': {missing}")
    if not secure_available():
        raise DeclarationError(
            "arithmetic = 'counted' needs the extra: pip install 'dp2erm-cvx[secure]'"
        )
    return True


def _uncountable(study: Pipeline) -> str | None:
    """What counted arithmetic lacks, of the last step that lacks anything; None for nothing."""
    epsilon = study.budget.epsilon
    if epsilon > LARGEST_COUNTED:
        return f"epsilon = {epsilon:g} is above {LARGEST_COUNTED:g}, where nothing is hidden anyway"
    missing = None
    universe: MappedUniverse = study.start
    for step in study.steps():
        missing = step.uncountable(universe) or missing
        universe = step.hands(universe)
    return missing


def _planned(study: S, numerical_share: float | None) -> Plan[S]:
    """Every step by the law that errs less.

    All of them are Gaussian, at one delta, where no step errs more by that.
    """
    steps = [replace(step, numerical_share=numerical_share) for step in study.steps()]
    plan = _calibrated(study, steps)
    gaussian = [_gaussian_alone(step) for step in steps]
    if gaussian == steps or any(Noise(step.noise).pure for step in steps):
        return plan
    shared = _calibrated(study, gaussian)
    if not shared.joint:
        return plan
    for one, other in zip(shared.steps, plan.steps, strict=True):
        if one.predicted_error > other.predicted_error:
            return plan
    return shared


def _gaussian_alone(step: Step) -> Step:
    """A step by the declared law alone, where it might choose the one that errs less."""
    if isinstance(step, Fit) and step.either:
        return replace(step, either=False, split=None)
    return step


def _calibrated(study: S, steps: Sequence[Step]) -> Plan[S]:
    """The plan of these ``steps``, each calibrated to its part of the budget."""
    budgets = divided(study.rest, steps) | _budgets_before(study, steps)
    planned: dict[str, Step] = {}
    universe: MappedUniverse = study.start
    if study.opening is not None:
        opening, opening_budget = study.opening
        opening = replace(opening, numerical_share=steps[0].numerical_share)
        planned[opening.name] = opening.plan(universe, opening_budget, {})
    for step in steps:
        if step.name in study.before and not enters_no_outcome(step):
            raise DeclarationError(
                f"before: {step.name} is of the outcome, which is each question's own"
            )
        planned[step.name] = step.plan(universe, budgets[step.name], dict(planned))
        universe = step.hands(universe)
    return _composed(Plan(study, tuple(planned.values())))


def _budgets_before(study: Pipeline, steps: Sequence[Step]) -> dict[str, Budget]:
    """Budgets of the steps that an earlier question released, which effects alone share.

    Raises
    ------
    DeclarationError
        For a step that this release does not have, and for what is no such entry.
    """
    names = {step.name for step in steps}
    budgets: dict[str, Budget] = {}
    for name, entry in study.before.items():
        is_shared = name in names and study.main == "score"
        if not is_shared or set(entry) != {"of", "epsilon", "budget"}:
            raise DeclarationError(
                f"before: {brief(name)} is no step of this release, of a question"
            )
        one_line(f"before.{name}", entry["of"])
        budgets[name] = Budget(entry["epsilon"])
        public_number(f"before.{name}.budget", entry["budget"], above=0.0)
    return budgets


def _composed(plan: Plan[S]) -> Plan[S]:
    """Less noise in Gaussian steps, where one delta covers the sum of their losses (Theorem 16)."""
    # A step that opens the release is paid on its own.
    joint_steps = plan.steps if plan.study.opening is None else plan.steps[1:]
    laws = [step.loss_law for step in joint_steps if step.loss_law is not None]
    if len(laws) < max(2, len(joint_steps)):
        return plan
    exact_budget = _budget_of_exact_mechanisms(plan)
    relief = joint_relief(laws, exact_budget)
    if relief <= 1.0:
        return plan
    composed = replace(plan, steps=tuple(step.relieved(relief) for step in plan.steps))
    laws = [step.loss_law for step in composed.steps if step.loss_law is not None]
    if not joint_delta(laws, exact_budget.epsilon) <= exact_budget.delta:
        return plan
    return composed


def _budget_of_exact_mechanisms(plan: Plan[S]) -> Budget:
    """What arithmetic leaves of the budget for the mechanisms in exact arithmetic together.

    With e the sum of the epsilons of all grids these are ``epsilon - 2e`` and ``delta exp(-e)``:
    each step pays twice the epsilon of its grid, as ``steps.step.reserve`` says.
    """
    grids = [step.precision.grid for step in plan.steps if step.precision is not None]
    grid_epsilon = math.fsum(grid.epsilon for grid in grids)
    budget = plan.study.rest
    epsilon = (budget.epsilon - 2.0 * grid_epsilon) * ROUND_DOWN
    return Budget(epsilon, budget.delta * math.exp(-grid_epsilon) * ROUND_DOWN)


def divided(budget: Budget, steps: Sequence[Step]) -> dict[str, Budget]:
    """The budget of each step by its name.

    A later step takes its share first, and the one step without a share takes the rest.

    Parameters
    ----------
    budget
        What all steps spend together at most.
    steps
        The steps in their order.
    """
    parts: dict[str, Budget] = {}
    remaining = budget
    for step in reversed(steps):
        if step.share is None:
            continue
        epsilon = remaining.epsilon * ROUND_DOWN
        # Pure noise leaves delta to the other steps.
        delta = remaining.delta if step.noise == Noise.GAUSSIAN else 0.0
        part = Budget(step.share * epsilon, step.share * delta * ROUND_DOWN)
        delta_left = (remaining.delta - part.delta) * ROUND_DOWN
        remaining = Budget((1.0 - step.share) * epsilon, delta_left)
        parts[step.name] = part
    without_share = [step for step in steps if step.share is None]
    delta_spent = math.fsum(part.delta for part in parts.values())
    if delta_spent > 0.0 and any(Noise(step.noise).pure for step in without_share):
        # The step without a share has no use for delta: the others divide all of it.
        factor = budget.delta / delta_spent * ROUND_DOWN
        parts = {name: Budget(part.epsilon, factor * part.delta) for name, part in parts.items()}
        remaining = Budget(remaining.epsilon)
    return parts | {step.name: remaining for step in without_share}
