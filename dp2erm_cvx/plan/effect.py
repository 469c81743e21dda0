"""Declarations about a private average effect, made before any record is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from dp2erm_cvx.arrays import ROUND_DOWN, Array
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.checks import one_of, public_fraction, public_number, public_size, setting
from dp2erm_cvx.data.counts import refuse
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.inference.nuisances import EffectFacts, Residuals
from dp2erm_cvx.inference.rehearsal import REHEARSED, normal_records
from dp2erm_cvx.inference.weighted import WeightedFacts, expected_interval
from dp2erm_cvx.plan import defaults
from dp2erm_cvx.plan.arms import AVERAGE, AVERAGE_SHARE, arms_error, arms_rule, check_arms
from dp2erm_cvx.plan.plan import STEADY, Pipeline, Plan, plan_as_declared
from dp2erm_cvx.plan.settings import EffectSettings, chosen_noise, known_settings, shares_in_turn
from dp2erm_cvx.plan.weighted import check_weights, weighted_steps, weighting_settings
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, registry
from dp2erm_cvx.steps.covariates import CovariateMean, DifferenceSquare, MeanSquare
from dp2erm_cvx.steps.fit import ArmPropensity
from dp2erm_cvx.steps.nuisances import (
    ArmNuisances,
    Confounding,
    LinearNuisances,
    Nuisances,
    TwoValues,
)
from dp2erm_cvx.steps.outcome_scale import OutcomeScale
from dp2erm_cvx.steps.record_map import Arms, OutcomeRows, Rows, Term
from dp2erm_cvx.steps.score import (
    ArmScores,
    AverageScore,
    EffectScore,
    GroupScore,
    OverlapScore,
    RiskScores,
    TreatedScore,
)
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import TreatmentRate
from dp2erm_cvx.steps.weighted_residuals import WEIGHTED_SUM, ResidualSquares

#: Per root of n epsilon^2, the factors that may multiply residuals of an event before a clip cuts
#: them: such residuals are longer on one side, so that what is cut is a bias, and noise soon hides
#: none of it.
_EVENT_REACH = 0.03
#: Level of the interval that an error is predicted from, and the normal quantile of that level.
_LEVEL, _NORMAL = 0.95, 1.96
#: What the ends of an outcome in [0, 1] may round to.
_ROUNDED = 1e-12
#: What may be estimated.
SCORES = {kind.estimand: kind for kind in (AverageScore, TreatedScore, OverlapScore, RiskScores)}


@dataclass(frozen=True)
class ReleasedScale:
    """What the first step of an effect released.

    Parameters
    ----------
    value
        Standard deviation of the outcome, in its units.
    planned
        The settings before it was released, whose shares stay.
    """

    value: float
    planned: EffectSettings


@dataclass(frozen=True)
class EffectStudy(Pipeline):
    """Private nuisances, then one score per record (Theorems 10 and 12).

    Parameters
    ----------
    universe, budget, noise, arithmetic, numerical_share, before
        As in :class:`~dp2erm_cvx.plan.Pipeline`.
    estimand, residual_scale, confounding, collinearity, heterogeneity, effect_center, weights
        As in :class:`~dp2erm_cvx.estimators.PrivateEffect`. Predictions of bias and the interval
        rest on the third to the fifth.
    declared
        Settings that replace those of the public rule, by the names of
        :class:`~dp2erm_cvx.plan.EffectSettings`.
    released_scale
        The scale of the outcome, once it is released; None before.

    Raises DeclarationError for an invalid argument.
    """

    main: ClassVar[str] = "score"
    several_arms: ClassVar[bool] = True

    universe: Universe
    budget: Budget
    estimand: str = "ate"
    residual_scale: float | None = setting(None, public_size)
    confounding: float = setting(1.0, at_least=0.0, at_most=100.0)
    collinearity: float = setting(1.0, above=0.0, at_most=1.0)
    heterogeneity: float = setting(0.25, at_least=0.0, at_most=100.0)
    effect_center: float | None = None
    declared: Mapping[str, Any] = field(default_factory=dict)
    weights: str | FirstStage | None = None
    released_scale: ReleasedScale | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        law = self.noise
        put(self, "noise", chosen_noise(law, self.universe))
        self._check_estimand()
        self._check_scale()
        if self.weights is not None:
            check_weights(self)
        if self.estimand == RiskScores.estimand:
            what = "two risks, which are three private means with the size of the population"
            refuse(self.universe.domain.codebook, what, "sampling", "counts")
        if law == "auto":
            put(self, "noise", chosen_noise(law, self.handed(self._placing()[1])))
        if self._several:
            check_arms(self)
        elif self.settings.propensity == "multinomial":
            raise DeclarationError(
                "propensity = 'multinomial': is for more than two arms; take 'logistic'"
            )
        list(self.steps())  # what is declared is judged here, not where it is used

    @property
    def main_step(self) -> str:
        return self.main if self.weights is None else WEIGHTED_SUM

    @property
    def scale(self) -> float:
        """The residual's standard deviation, which clips and predictions of errors rest on.

        It is declared, or it is that of the outcome, which is released first; a guess before.
        """
        values, bound = self.two_values, self.universe.domain.outcome_bound
        if self.released_scale is not None:
            return self.released_scale.value
        if self.residual_scale is None:
            return defaults.default_scale(bound, values)
        return (
            self.residual_scale if values is None else min(self.residual_scale, 0.5 * values.width)
        )

    @property
    def declares_scale(self) -> bool:
        """True if the scale of residuals is declared."""
        return self.residual_scale is not None

    @cached_property
    def scale_share(self) -> float | None:
        """Share of the whole budget for the scale of the outcome; None where it is not released."""
        if self.residual_scale is not None or self.two_values is not None:
            return None
        total = self.universe.mass * self.universe.n_samples * self.budget.epsilon
        declared = self.declared.get("scale_share", defaults.scale_share(total))
        return None if declared is None else public_fraction("scale_share", declared)

    @cached_property
    def opening(self) -> tuple[OutcomeScale, Budget] | None:
        """The release of the scale of the outcome, with its budget, where it is not declared."""
        if self.scale_share is None:
            return None
        return OutcomeScale(), Budget(self.scale_share * self.budget.epsilon)

    @property
    def rest(self) -> Budget:
        """The budget of all other steps."""
        if self.opening is None:
            return self.budget
        _, own = self.opening
        left = (self.budget.epsilon - own.epsilon) * ROUND_DOWN
        return Budget(left, self.budget.delta)

    def after(self, released: Array) -> EffectStudy:
        """The study at the scale that was ``released``, by its counts."""
        assert self.opening is not None
        step, own = self.opening
        scale = step.plan(self.start, own, {}).scale(released)
        return replace(self, released_scale=ReleasedScale(scale, self.settings))

    @property
    def two_values(self) -> TwoValues | None:
        """Both values of the centered outcome, where it has no others: of an event, or as declared.

        The slope is the outcome bound until there are settings.
        """
        domain = self.universe.domain
        if self.estimand != RiskScores.estimand and not domain.binary_outcome:
            return None
        return TwoValues(-domain.outcome_bound, 2.0 * domain.outcome_bound, domain.outcome_bound)

    @property
    def residuals(self) -> Residuals:
        """What is public of the residuals of its outcome regression."""
        domain = self.universe.domain
        persons = domain.units is not None
        return Residuals(self.settings.residual_bound, self.scale, domain.outcome_bound, persons)

    @property
    def predicted_error(self) -> float:
        """The mean squared error that the settings in force are predicted to have."""
        return self.error_at(0.5)

    def error_at(self, treated: float) -> float:
        """Predicted mean squared error where so large a share is treated; arms are at most as is
        guessed.

        By weights of a scheme it is that of a normal estimate whose interval is as wide as the one
        expected.
        """
        if self.weights is not None:
            return (self._expected_half_width(treated) / _NORMAL) ** 2
        universe, settings, values = self.universe, self.settings, self.two_values
        if self._several:
            return arms_error(self, settings, self.rest.epsilon)
        spent = (settings.mean_share or 0.0) + (settings.spread_share or 0.0)
        spent += settings.rate_share if settings.known is None else 0.0
        n, epsilon = universe.mass * universe.n_samples, self.rest.epsilon
        guesses = self.scale, settings.slope, self.law, settings.norm_bound, settings.residual_bound
        apart = self.assumed if settings.known is None else Confounding(0.0)
        values = values and replace(values, slope=settings.slope)
        groups = max(len(universe.domain.groups), 1)
        rate = min(treated, 1.0 - treated, defaults.smaller_arm(settings.known))
        rows = settings.rows if settings.rows in (Rows.COMMON, Rows.ARMS) else None
        kind, k = SCORES[self.estimand], universe.n_features
        request = defaults.Request(kind, n, k, epsilon, *guesses, apart, values, groups, rate, rows)
        logistic = settings.propensity_share if settings.propensity == "logistic" else 0.0
        return defaults.effect_error(request, 1.0 - spent, settings.center_share, logistic)

    def _expected_half_width(self, treated: float) -> float:
        """Half width of the 95 % interval by weights, at what is expected to be released."""
        plan = plan_as_declared(self)
        size = min(self.universe.n_samples, REHEARSED)
        records = normal_records(self.start, size, treated, self.confounding)
        interval, _ = expected_interval(weighted_facts(plan), records, _LEVEL)
        return 0.5 * (interval.high - interval.low)

    @property
    def assumed(self) -> Confounding:
        """Assumptions about the arms, collinear covariates and effects that vary."""
        return Confounding(self.confounding, self.collinearity, self.heterogeneity)

    @property
    def predicts_bias(self) -> bool:
        """True if the confounding that nuisances leave is predicted: an interval then allows for
        it.
        """
        settings, kind = self.settings, SCORES[self.estimand]
        if kind is RiskScores:
            return False
        exact = kind is not OverlapScore or settings.arms is Arms.MATCHED
        by_arm = settings.rows is Rows.ARMS
        return settings.known is not None or by_arm or (exact and settings.rows is not Rows.POOLED)

    @cached_property
    def settings(self) -> EffectSettings:
        """The settings in force: those of the public rule, with what is declared in their place."""
        declared = known_settings(EffectSettings, "an effect", self.declared)
        for name, members in (("rows", Rows), ("arms", Arms)):
            if declared.get(name) is not None:
                declared[name] = one_of(name, declared[name], members)
        epsilon = self.rest.epsilon
        planned = None if self.released_scale is None else self.released_scale.planned
        declared["scale_share"] = self.scale_share
        if self.weights is not None:
            declared = {**weighting_settings(self), **declared}
        known = declared.get("propensity")
        kind = self.kind
        if kind is ArmScores:
            return replace(arms_rule(self, epsilon, planned), **declared)
        # where it is public, it is that of everybody: nothing confounds, and no factor is beyond
        # its inverse
        public = (
            None
            if known is None or isinstance(known, str)
            else public_fraction("propensity", known)
        )
        rate = defaults.smaller_arm(public)
        rule = defaults.effect_rule(self, epsilon, rate, known=public is not None, planned=planned)
        cap = public_number("cap", declared.get("cap", max(defaults.CAP, 2.0 / rate)), at_least=2.0)
        total = math.sqrt(self.universe.mass * self.universe.n_samples) * epsilon
        reach = _reach(kind, known, cap, rule) * rule.residual_bound
        weighted = issubclass(kind, AverageScore | RiskScores) or (
            kind is TreatedScore and public is None
        )
        if self.two_values is not None and weighted:
            reach = self._event_reach(declared.get("propensity", rule.propensity), total)
        rule = replace(rule, cap=cap, score_bound=reach)
        if rule.arms is Arms.CONTROLS and declared.get("rows", Rows.COMMON) is not Rows.COMMON:
            rule = replace(rule, arms=Arms.ALIKE)
        return replace(rule, **declared)

    def steps(self) -> Iterator[Step]:
        """Rate, mean and spread, center and propensity; then the score."""
        settings = self.settings
        steps, nuisances = self._lines(settings)
        if self.weights is not None:
            assert isinstance(nuisances, LinearNuisances)
            yield from weighted_steps(self, steps, nuisances)
            return
        yield from shares_in_turn(steps)
        # delta is worth more in a regression: Laplace noise of few numbers is shorter
        yield replace(self._score(nuisances, settings), noise=Noise.GAMMA)

    def _lines(self, settings: EffectSettings) -> tuple[list[Step], Nuisances]:
        rows, n_arms = settings.rows, len(self.universe.domain.arms)
        rate: str | float = "rate" if settings.known is None else settings.known
        steps: list[Step] = [TreatmentRate(share=settings.rate_share)] if rate == "rate" else []
        placed = self._placing()[1]
        steps += placed if self._several else defaults.with_difference(placed)
        fitted, log_odds = list[Step](), None
        if settings.propensity == "logistic":
            fitted, log_odds = (
                [self.logistic(self.handed(steps), settings)],
                Term(Rows.POOLED, "propensity"),
            )
        elif settings.propensity == "multinomial":
            multinomial = registry.build(registry.parts(), "multinomial_propensity", n_arms=n_arms)
            fitted = [ArmPropensity(program=multinomial, share=settings.propensity_share)]
            log_odds = Term(Rows.ARMS, "propensity", n_arms=n_arms)
        # what the outcome regression is weighted by is released before it
        own = log_odds if settings.arms is Arms.MATCHED else None
        steps += fitted if own is not None else []
        program = self.saturating("saturating_regression", settings.slope)
        mapped = OutcomeRows(
            rows,
            scale=defaults.NORM / settings.norm_bound,
            arms=settings.arms,
            rate=rate,
            log_odds=own,
            noise_ratio=settings.noise_ratio,
            n_arms=n_arms,
        )
        steps.append(self.regression("center", program, mapped, share=settings.center_share))
        steps += fitted if own is None else []
        # where no mean square is released, what the bound leaves of the squares that were guessed
        spreads, values = self.law.within(settings.norm_bound), self.two_values
        center = Term(rows, "center", n_arms=n_arms)
        declared = center, rate, log_odds, spreads, self.scale, self.assumed
        if not self._several:
            values = values and replace(values, slope=settings.slope)
            return steps, LinearNuisances(*declared, two_values=values)
        # the mean of the covariates that the regressions see, which are averaged there: lines are
        # not bent
        plain, left = (0.0,) * self.universe.n_features, AVERAGE_SHARE * (1.0 - settings.spent)
        law = replace(self.law, shares=plain, zeros=plain)
        how: Any = {"law": law, "norm": settings.norm_bound, "subtracted": False}
        steps.append(CovariateMean(name=AVERAGE, share=left, **how))
        public = settings.propensity if isinstance(settings.propensity, tuple) else ()
        return steps, ArmNuisances(*declared, shares=public)

    @property
    def start(self) -> Universe:
        """Inputs with covariates shrunk to their norm bound, unless their mean is to be subtracted
        first.
        """
        return self._placing()[0]

    def _whole(self, step: str) -> float:
        """Epsilon that the share of a step is of: that of the question that released it before, if
        any.
        """
        return float(self.before[step]["budget"]) if step in self.before else self.rest.epsilon

    def _placing(self) -> tuple[Universe, list[Step]]:
        # a scheme's interval follows from a rehearsal at the declared distance, before anything is
        # released
        by_arm = self.weights is None
        return defaults.placing(
            self, self.settings.norm_bound, self._whole("spread"), by_arm=by_arm
        )

    @property
    def _several(self) -> bool:
        return len(self.universe.domain.arms) > 2

    def _score(self, nuisances: Nuisances, settings: EffectSettings) -> EffectScore:
        clips, domain = (
            (settings.cap, settings.residual_bound, settings.score_bound),
            self.universe.domain,
        )
        sampled = domain.uneven and not self._several
        if domain.units is not None:  # of whom a part may be treated, or in a group
            sampled = sampled or self.kind in (TreatedScore, GroupScore)
        missing = domain.weighted and not sampled
        score = self.kind(nuisances, *clips, self.effect_center, sampled, missing)
        if self.kind is RiskScores:
            score = replace(score, other_bound=domain.outcome_bound)
        total = (
            self.universe.mass * self.universe.n_samples * self._whole("rate") * settings.rate_share
        )
        total /= max(len(domain.groups), 1)
        if total < STEADY:  # the released rate is noise: no bound may follow it far
            score = replace(
                score, widest=max(4.0 * domain.outcome_bound / settings.score_bound, 1.0)
            )
        return score

    @property
    def kind(self) -> type[EffectScore]:
        """The score of what is estimated, in groups where the domain declares any."""
        if self._several:
            return ArmScores
        return GroupScore if self.universe.domain.groups else SCORES[self.estimand]

    def _event_reach(self, propensity: str | float, total: float) -> float:
        """How far the score of an outcome of two values reaches at this propensity, at a rate of
        one half.

        That of a risk is measured from the middle of the outcome, in which it lies; for the treated
        residuals are weighted by odds. ``total`` is sqrt(n) epsilon.
        """
        fitted, equal = (
            min(max(4.0, _EVENT_REACH * total), defaults.CAP),
            2.0 - (self.kind is TreatedScore),
        )
        inverse = (
            {"constant": equal}.get(propensity, fitted) if isinstance(propensity, str) else 0.0
        )
        if not isinstance(propensity, str):
            inverse = 1.0 / max(min(propensity, 1.0 - propensity), 0.01)
        assert self.two_values is not None
        less = 0.5 if self.estimand == RiskScores.estimand else 0.0
        return self.two_values.width * (inverse - less)

    def _check_scale(self) -> None:
        """Raise DeclarationError for a share of a scale that is not released, and for what is no
        release.
        """
        if not isinstance(self.released_scale, ReleasedScale | None):
            raise DeclarationError("released_scale: is released, and cannot be declared")
        share = self.declared.get("scale_share")
        if share is not None and self.residual_scale is not None:
            raise DeclarationError(
                "scale_share: a residual_scale is declared as well: leave one of them out"
            )
        if share is not None and self.two_values is not None:
            raise DeclarationError(
                "scale_share: two values of the outcome say its scale: leave it out"
            )

    def _check_estimand(self) -> None:
        """Raise DeclarationError where what is declared is for another estimand."""
        domain, declared = self.universe.domain, self.declared
        fitted = declared.get("propensity") == "logistic"
        low, high = (domain.outcome_center + side * domain.outcome_bound for side in (-1.0, 1.0))
        risks, grouped = self.estimand == RiskScores.estimand, bool(domain.groups)
        reaches = (
            f"the declared outcome reaches from {low:g} to {high:g}, and a risk is of an event, 0 "
            "or 1"
        )
        for wrong, text in (
            (self.estimand not in SCORES, f"must be one of {', '.join(SCORES)}"),
            (
                risks and max(abs(low), abs(high - 1.0)) > _ROUNDED,
                f"{reaches}: declare outcome_center = outcome_bound = 0.5, or estimand = 'ate'",
            ),
            (
                risks and (domain.treatment_cost or self.effect_center is not None),
                "takes no treatment cost, which is in no risk, and no effect_center",
            ),
            (
                grouped and self.estimand != AverageScore.estimand,
                "by: only 'ate' is released by group",
            ),
            (grouped and fitted, "by: the propensity is that of every group, or a public one"),
        ):
            if wrong:
                raise DeclarationError(f"estimand = {brief(self.estimand)}: {text}")


def _reach(kind: type[EffectScore], known: Any, cap: float, rule: EffectSettings) -> float:
    """B over M_r with the declared propensity ``known``, that of the settings ``rule`` where none
    is.
    """
    if known == "logistic":
        return kind.reach[1]
    if known is None or isinstance(known, str) or kind is OverlapScore:
        return rule.score_bound / rule.residual_bound
    rate = public_number("propensity", known)
    if kind is TreatedScore:  # residuals of the untreated are weighted by its odds
        return max(rate, 1.0 - rate) / max(1.0 - rate, 1.0 / cap)
    return 1.0 / defaults.smaller_arm(rate)


def effect_facts(plan: Plan[EffectStudy]) -> EffectFacts:
    """What errors of the nuisances of a planned effect follow from, beside what is released."""
    study = plan.study
    rate, mean, spread = plan.step("rate"), plan.step("mean"), plan.step("spread")
    along = plan.step("along")
    return EffectFacts(
        universe=study.universe,
        estimand=study.estimand,
        score=plan.main,
        kind=study.kind,
        rate=rate if isinstance(rate, TreatmentRate) else None,
        mean=mean if isinstance(mean, CovariateMean) else None,
        spread=spread if isinstance(spread, MeanSquare) else None,
        along=along if isinstance(along, DifferenceSquare) else None,
        propensity=plan.step("propensity"),
        average=plan.step(AVERAGE),
        law=study.law,
        assumed=study.assumed,
        known_propensity=study.settings.known is not None,
        residuals=study.residuals,
        two_values=study.two_values,
    )


def weighted_facts(plan: Plan[EffectStudy]) -> WeightedFacts:
    """What the interval of an effect by the weights of a scheme follows from, beside what is
    released.
    """
    squares = plan.step("squares")
    assert isinstance(squares, ResidualSquares)
    return WeightedFacts(effect_facts(plan), squares)
