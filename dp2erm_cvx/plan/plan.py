"""From what is declared to its plan: steps calibrated to their parts of the budget, and their
composition.
"""

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
        """Raise DeclarationError for what is no arithmetic, too many covariates, and arms if it
        knows two.
        """
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
        """The steps in their order, as for exact arithmetic; without the first one that is paid
        apart.
        """

    @property
    def opening(self) -> tuple[Step, Budget] | None:
        """A step before all others, which settings of theirs follow from, and its budget; mostly
        none.

        Both budgets are fixed in advance, so that they add up whatever it releases (Theorem 31).
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
        """A second stage whose loss saturates."""
        # no theorem needs this ball; within it every solve is certified to a public radius
        ball = L2Ball(LONGEST * self.universe.domain.outcome_bound)
        program: SecondStage = registry.build(
            registry.second_stages(), name, slope=slope, theta_set=ball
        )
        return program

    def regression(self, name: str, program: Any, rows: OutcomeRows, **how: Any) -> Fit:
        """A regression on mapped ``rows``, with what else a :class:`~dp2erm_cvx.steps.fit.Fit`
        takes.
        """
        return Fit(name=name, noise=self.noise, program=program, map=rows, either=True, **how)

    def logistic(self, universe: MappedUniverse, settings: CausalSettings) -> Fit:
        """The logistic regression of the treatment on (1, x) in a ball, at weights 1, in a
        ``universe``.
        """
        bound = WithConstant().universe(universe).space.covariate_bound
        how = {"ridge": 0.0, "radius": settings.radius / bound, "trim": settings.cap}
        program: Any = registry.build(registry.first_stages(), "ipw_private", **how)
        shares = {"share": settings.propensity_share, "split": settings.split}
        return self.regression("propensity", program, WithConstant(), **shares)


S = TypeVar("S", bound=Pipeline)

#: Above this, exp(epsilon) is no longer small against the probability of noise beyond its bound.
LARGEST_COUNTED = 500.0


@dataclass(frozen=True, repr=False)
class PlanResult:
    """Result of a run: what was ``released``, by step, and what must stay with the data holder.

    ``plan`` is what was run: that at what the first step released, where others follow from it.
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
        """True if every exact minimizer that the theorems speak of is within its tolerance, or not
        needed.
        """
        return all(result.certified for result in self.steps.values())

    @property
    def by_gap(self) -> bool:
        """True if one of those needed rests on its duality gap alone, which no public number
        bounds.
        """
        return any(result.by_gap for result in self.steps.values())


@dataclass(frozen=True)
class Plan(Shown, Generic[S]):
    """The planned ``steps`` of a declared ``study``, in their order, and what they guarantee
    together.

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
        known: dict[str, Step] = {}
        for step in self.steps:
            known[step.name] = step.knowing(dict(known))
        object.__setattr__(self, "steps", tuple(known.values()))

    def blocks(self) -> Iterator[Any]:
        """Report: what is spent, step by step, and what is predicted."""
        return report_of(self)

    @np.errstate(
        over="ignore", invalid="ignore", divide="ignore"
    )  # certificates judge what comes of it
    def run(
        self,
        dataset: Dataset | BlockedDataset,
        execution: Execution,
        earlier: Mapping[str, StepResult] = MappingProxyType({}),
    ) -> PlanResult:
        """Run the steps. No noise is ever drawn anew: whatever solver has to solve it, a vector
        stays.

        Where a step is paid apart, all others are planned once more at what it released.

        ``earlier`` are the results of the steps that were released before.

        Raises DataError or DeclarationError where the dataset is not of the declared domain, and
        CalibrationError where no plan follows from what the first step released, which is then
        spent.
        """
        domain = self.study.start.domain
        refuse_undeclared(domain, dataset)
        records = dataset.records(partial(_inside, domain=domain), domain)
        inputs, results, released = (
            Inputs(dataset, records),
            dict[str, StepResult](),
            dict[str, Array](),
        )
        plan, steps = self, self.steps
        if self.study.opening is not None:
            first, *_ = self.steps
            results[first.name] = first.run(inputs, released, execution)
            released[first.name] = results[first.name].released
            plan = self.after(released[first.name])
            steps = plan.steps[1:]
        for step in steps:
            if step.weighted and inputs.weights is None:
                inputs = replace(inputs, weights=step.weights.find(inputs, released, execution))
            known = step.name in self.study.before  # never again: nobody paid for a second time
            output = earlier[step.name] if known else step.run(inputs, released, execution)
            results[step.name], released = output, released | {step.name: output.released}
            inputs = step.hand_on(inputs, released)
        return PlanResult(inputs, results, plan)

    def after(self, released: Array) -> Plan[S]:
        """The plan once its first step, which is paid apart, has ``released``.

        Raises CalibrationError where none follows.
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
        """True if public bounds say what every step is certified to on every dataset of the
        universe.
        """
        return all(step.certified_by_design for step in self.steps)

    @property
    def standing(self) -> Standing:
        """What a release by this plan will be at best, by what is declared and whatever the records
        are.
        """
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
        """Guaranteed budget, which may be less than the declared one: gamma and Laplace noise spend
        no delta.

        Basic composition: the parts that the budget was divided into add up to at most the budget.
        """
        spent = [step.guarantee for step in self.steps]
        if len(spent) == 1 and self.steps[0].precision is None:
            return spent[0]
        if self.study.before:
            return _together(spent)
        budget = self.study.budget
        delta = any(part.delta for part in spent)
        if (
            self.study.opening is not None
        ):  # by which law later steps err less follows from what it releases
            delta = delta or not Noise(self.study.noise).pure
        return Budget(budget.epsilon, budget.delta if delta else 0.0)

    @property
    def own(self) -> Budget:
        """Budget that is spent beside the steps that were released before, whose noise is pure."""
        if not self.study.before:
            return self.guarantee
        return _together(
            [step.guarantee for step in self.steps if step.name not in self.study.before]
        )

    @property
    def curve(self) -> RenyiCurve | None:
        """Renyi divergences of the whole release, for a ledger that adds them up; None if none is
        proven.

        A pure step has a curve as well; where all of them are pure, epsilon says it all. Where
        arithmetic is counted, the curve holds up to the event that some noise is longer than its
        public reach, of probability below ``exp(-1500)`` in each step. The conversion of a ledger
        pays for it out of delta.
        """
        curved = next((step.curve for step in self.steps if step.curve is not None), None)
        if (
            curved is None or self.study.opening is not None
        ):  # by what law later steps draw is not known yet
            return None
        curves = []
        for step in self.steps:
            curve, spent = step.curve, step.guarantee
            if curve is None:
                if spent.delta > 0.0:
                    return None
                curve = RenyiCurve.pure(spent.epsilon * ROUND_UP, curved.orders)
            curves.append(curve)
        return reduce(RenyiCurve.plus, curves)

    @property
    def theorem(self) -> str:
        """The privacy theorems in force."""
        if self.main.weighted:
            joined = " and ".join(step.theorem for step in self.steps)
            return joined if len(self.steps) == 1 else f"Theorem 9 (composition) of {joined}"
        maps = "Theorem 10 (record maps) of " + ", ".join(step.theorem for step in self.steps)
        return f"{maps}; one delta for all (Theorem 16)" if self.joint else maps

    @property
    def joint(self) -> bool:
        """True if the steps guarantee together more than basic composition of them says."""
        return math.fsum(step.guarantee.epsilon for step in self.steps) > self.guarantee.epsilon


def _inside(data: Dataset, *, domain: Domain) -> Records:
    return domain.records(data.X, data.a, data.y, data.sampling, data.person, data.repeats)


def _together(spent: Sequence[Budget]) -> Budget:
    """The sum of what steps spend, rounded up."""
    epsilon, delta = (
        math.fsum(getattr(part, name) for part in spent) for name in ("epsilon", "delta")
    )
    return Budget(epsilon * ROUND_UP, delta * ROUND_UP)


def make_plan(study: S) -> Plan[S]:
    """Calibrate a release from public quantities alone.

    Raises DeclarationError for an invalid share, CalibrationError where no theorem covers what is
    declared.
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
    return _planned(
        study, study.numerical_share if study.arithmetic is Arithmetic.COUNTED else None
    )


def _counts(study: Pipeline) -> bool:
    """True if the arithmetic is counted. Raises DeclarationError or CalibrationError where it
    cannot be.
    """
    if study.arithmetic is Arithmetic.ASSUMED:
        return False
    missing = None
    universe: MappedUniverse = study.start
    epsilon = study.budget.epsilon
    for step in study.steps():  # what the step that takes the rest lacks is told first
        missing = step.uncountable(universe) or missing
        universe = step.hands(universe)
    if epsilon > LARGEST_COUNTED:
        missing = (
            f"epsilon = {epsilon:g} is above {LARGEST_COUNTED:g}, where nothing is hidden anyway"
        )
    if study.arithmetic is Arithmetic.AUTO:
        return missing is None and secure_available()
    if missing is not None:
        raise CalibrationError(f"arithmetic = 'counted': {missing}")
    if not secure_available():
        raise DeclarationError(
            "arithmetic = 'counted' needs the extra: pip install 'dp2erm-cvx[secure]'"
        )
    return True


def _planned(study: S, numerical_share: float | None) -> Plan[S]:
    """Every step by the law that errs less; all Gaussian, at one delta, where no step errs more by
    that.
    """
    steps = [replace(step, numerical_share=numerical_share) for step in study.steps()]
    plan = _calibrated(study, steps)
    alike = [
        replace(step, either=False, split=None) if isinstance(step, Fit) and step.either else step
        for step in steps
    ]
    if alike == steps or any(Noise(step.noise).pure for step in steps):
        return plan
    shared = _calibrated(study, alike)
    pairs = zip(shared.steps, plan.steps, strict=True)
    better = all(mine.predicted_error <= other.predicted_error for mine, other in pairs)
    return shared if shared.joint and better else plan


def _calibrated(study: S, steps: Sequence[Step]) -> Plan[S]:
    budgets = divided(study.rest, steps)
    for name, entry in study.before.items():
        known = name in budgets and study.main == "score"  # effects alone share steps
        if not known or set(entry) != {"of", "epsilon", "budget"}:
            raise DeclarationError(
                f"before: {brief(name)} is no step of this release, of a question"
            )
        one_line(f"before.{name}", entry["of"])
        budgets[name] = Budget(entry["epsilon"])
        public_number(f"before.{name}.budget", entry["budget"], above=0.0)
    planned: dict[str, Step] = {}
    universe: MappedUniverse = study.start
    if study.opening is not None:
        first, own = study.opening
        planned[first.name] = replace(first, numerical_share=steps[0].numerical_share).plan(
            universe, own, {}
        )
    for step in steps:
        if step.name in study.before and not enters_no_outcome(step):
            raise DeclarationError(
                f"before: {step.name} is of the outcome, which is each question's own"
            )
        planned[step.name] = step.plan(universe, budgets[step.name], dict(planned))
        universe = step.hands(universe)
    return _composed(Plan(study, tuple(planned.values())))


def _composed(plan: Plan[S]) -> Plan[S]:
    """Less noise in Gaussian steps, where one delta covers the sum of their losses (Theorem 16)."""
    apart = 0 if plan.study.opening is None else 1  # which is paid on its own
    laws = [step.loss_law for step in plan.steps[apart:] if step.loss_law is not None]
    if len(laws) < max(2, len(plan.steps) - apart):
        return plan
    # that of the exact mechanisms together: each pays for its grid once
    hidden = math.fsum(
        step.precision.grid.epsilon for step in plan.steps if step.precision is not None
    )
    whole = plan.study.rest
    exact = (whole.epsilon - 2.0 * hidden) * ROUND_DOWN
    left = Budget(exact, whole.delta * math.exp(-hidden) * ROUND_DOWN)
    relief = joint_relief(laws, left)
    if relief <= 1.0:
        return plan
    composed = replace(plan, steps=tuple(step.relieved(relief) for step in plan.steps))
    laws = [step.loss_law for step in composed.steps if step.loss_law is not None]
    return composed if joint_delta(laws, left.epsilon) <= left.delta else plan


def divided(budget: Budget, steps: Sequence[Step]) -> dict[str, Budget]:
    """The budget of each step: a later one takes its share first, and one step takes the rest."""
    parts, left = {}, budget
    for step in reversed(steps):
        if step.share is not None:
            # pure noise leaves delta to the rest
            epsilon, delta = (
                left.epsilon * ROUND_DOWN,
                left.delta if step.noise == Noise.GAUSSIAN else 0.0,
            )
            part = Budget(step.share * epsilon, step.share * delta * ROUND_DOWN)
            left = Budget((1.0 - step.share) * epsilon, (left.delta - part.delta) * ROUND_DOWN)
            parts[step.name] = part
    spent = math.fsum(part.delta for part in parts.values())
    if spent > 0.0 and any(step.share is None and Noise(step.noise).pure for step in steps):
        # the last step has no use for what is left of delta
        more = budget.delta / spent * ROUND_DOWN
        parts = {name: Budget(part.epsilon, more * part.delta) for name, part in parts.items()}
        left = Budget(left.epsilon)
    return parts | {step.name: left for step in steps if step.share is None}
