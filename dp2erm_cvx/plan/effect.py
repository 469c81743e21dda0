"""Declarations about a private average effect, made before any record is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
#: Level of the interval that an error is predicted from.
_LEVEL = 0.95
#: Normal quantile of that level.
_NORMAL = 1.96
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
    """Private nuisances, then one score per record (Theorems 10, 12 and 41).

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

    Raises
    ------
    DeclarationError
        For an invalid argument.
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
        self.steps()  # what is declared is judged here, not where it is used

    @property
    def main_step(self) -> str:
        return self.main if self.weights is None else WEIGHTED_SUM

    @property
    def scale(self) -> float:
        """The residual's standard deviation, which clips and predictions of errors rest on.

        It is declared, or it is that of the outcome, which is released first; a guess before.
        """
        if self.released_scale is not None:
            return self.released_scale.value
        values = self.two_values
        if self.residual_scale is None:
            return defaults.default_scale(self.universe.domain.outcome_bound, values)
        if values is None:
            return self.residual_scale
        return min(self.residual_scale, 0.5 * values.width)

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
        if declared is None:
            return None
        return public_fraction("scale_share", declared)

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
        bound = domain.outcome_bound
        return TwoValues(low=-bound, width=2.0 * bound, slope=bound)

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
        """Predicted mean squared error where the share ``treated`` of the records is treated.

        No arm is taken to be larger than the settings guess. By the weights of a scheme it is that
        of a normal estimate whose interval is as wide as the one expected.

        Parameters
        ----------
        treated
            Share of the records, in (0, 1).

        Returns
        -------
        float
            In squared units of the outcome.
        """
        if self.weights is not None:
            return (self._expected_half_width(treated) / _NORMAL) ** 2
        settings = self.settings
        if self._several:
            return arms_error(self, settings, self.rest.epsilon)
        spent = (settings.mean_share or 0.0) + (settings.spread_share or 0.0)
        if settings.known is None:
            spent += settings.rate_share
        logistic_share = 0.0
        if settings.propensity == "logistic":
            logistic_share = settings.propensity_share
        request = self._request(treated)
        regression = request.regression(settings.center_share)
        score_share = 1.0 - spent - settings.center_share - logistic_share
        return defaults.effect_error(request, regression, score_share, logistic_share)

    def _request(self, treated: float) -> defaults.Request:
        """What the predicted error of a score of two arms depends on, at this treated share."""
        settings = self.settings
        universe = self.universe
        values = self.two_values
        if values is not None:
            values = replace(values, slope=settings.slope)
        declared_rows = settings.rows in (Rows.COMMON, Rows.ARMS)
        return defaults.Request(
            kind=SCORES[self.estimand],
            n_samples=universe.mass * universe.n_samples,
            n_features=universe.n_features,
            epsilon=self.rest.epsilon,
            deviation=self.scale,
            slope=settings.slope,
            law=self.law,
            norm_bound=settings.norm_bound,
            residual_bound=settings.residual_bound,
            confounding=self.assumed if settings.known is None else Confounding(0.0),
            two_values=values,
            groups=max(len(universe.domain.groups), 1),
            rate=min(treated, 1.0 - treated, defaults.smaller_arm(settings.known)),
            rows=settings.rows if declared_rows else None,
        )

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
    def allows_one_bias(self) -> bool:
        """True if the interval of one effect allows for the confounding that nuisances leave.

        Risks have errors by arm, which are added when a release is made.
        """
        settings = self.settings
        kind = SCORES[self.estimand]
        if kind is RiskScores:
            return False
        if settings.known is not None or settings.rows is Rows.ARMS:
            return True
        wants_matched_arms = kind is OverlapScore
        if wants_matched_arms and settings.arms is not Arms.MATCHED:
            return False
        return settings.rows is not Rows.POOLED

    @cached_property
    def settings(self) -> EffectSettings:
        """The settings in force: those of the public rule, with what is declared in their place."""
        declared = known_settings(EffectSettings, "an effect", self.declared)
        for name, members in (("rows", Rows), ("arms", Arms)):
            if declared.get(name) is not None:
                declared[name] = one_of(name, declared[name], members)
        declared["scale_share"] = self.scale_share
        if self.weights is not None:
            declared = {**weighting_settings(self), **declared}
        if self.kind is ArmScores:
            public_rule = arms_rule(self, self.rest.epsilon, self._planned_before)
        else:
            public_rule = self._public_rule(declared)
        return replace(public_rule, **declared)

    @property
    def _planned_before(self) -> EffectSettings | None:
        """The settings before the scale of the outcome was released, if it was."""
        if self.released_scale is None:
            return None
        return self.released_scale.planned

    def _public_rule(self, declared: Mapping[str, Any]) -> EffectSettings:
        """The default settings of two arms for what is ``declared`` of propensity, cap and rows."""
        propensity = declared.get("propensity")
        # A public propensity is that of everybody: nothing confounds, and no factor is beyond its
        # inverse.
        public = None
        if propensity is not None and not isinstance(propensity, str):
            public = public_fraction("propensity", propensity)
        rate = defaults.smaller_arm(public)
        rule = defaults.effect_rule(
            self,
            self.rest.epsilon,
            rate,
            propensity_is_public=public is not None,
            planned=self._planned_before,
        )
        cap = public_number("cap", declared.get("cap", max(defaults.CAP, 2.0 / rate)), at_least=2.0)
        if self._weights_residuals_of_events(public):
            score_bound = self._event_bound(declared.get("propensity", rule.propensity))
        else:
            score_bound = _bound_over_clip(self.kind, propensity, cap, rule) * rule.residual_bound
        rule = replace(rule, cap=cap, score_bound=score_bound)
        if rule.arms is Arms.CONTROLS and declared.get("rows", Rows.COMMON) is not Rows.COMMON:
            rule = replace(rule, arms=Arms.ALIKE)
        return rule

    def _weights_residuals_of_events(self, public: float | None) -> bool:
        """True if residuals of an outcome of two values are multiplied by more than constants."""
        if self.two_values is None:
            return False
        if self.kind is TreatedScore:
            return public is None
        return issubclass(self.kind, AverageScore | RiskScores)

    def steps(self) -> Iterator[Step]:
        """Rate, mean and spread, outcome regression and propensity; then the score."""
        return iter(self._steps)

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        settings = self.settings
        steps, nuisances = self._steps_before_score(settings)
        if self.weights is not None:
            assert isinstance(nuisances, LinearNuisances)
            return tuple(weighted_steps(self, steps, nuisances))
        # Delta is worth more in a regression: Laplace noise of few numbers is shorter.
        score = replace(self._score(nuisances, settings), noise=Noise.GAMMA)
        return (*shares_in_turn(steps), score)

    def _steps_before_score(self, settings: EffectSettings) -> tuple[list[Step], Nuisances]:
        """The steps before the score, and the nuisances that they release.

        A propensity is released before the outcome regression where that is weighted by it, else
        after it.
        """
        steps: list[Step] = []
        if settings.known is None:
            steps.append(TreatmentRate(share=settings.rate_share))
        placed = self._placing()[1]
        if not self._several:
            placed = defaults.with_difference(placed)
        steps += placed
        propensity = self._propensity_step(steps, settings)
        log_odds = self._log_odds(settings)
        center_is_weighted = settings.arms is Arms.MATCHED
        if propensity is not None and center_is_weighted:
            steps.append(propensity)
        steps.append(self._center_step(settings, log_odds if center_is_weighted else None))
        if propensity is not None and not center_is_weighted:
            steps.append(propensity)
        if self._several:
            steps.append(self._average_step(settings))
        return steps, self._nuisances(settings, log_odds)

    def _propensity_step(self, before: Sequence[Step], settings: EffectSettings) -> Step | None:
        """The regression of the treatment on what the steps ``before`` map covariates to."""
        if settings.propensity == "logistic":
            return self.logistic(self.handed(before), settings)
        if settings.propensity == "multinomial":
            n_arms = len(self.universe.domain.arms)
            program = registry.build(registry.parts(), "multinomial_propensity", n_arms=n_arms)
            return ArmPropensity(program=program, share=settings.propensity_share)
        return None

    def _log_odds(self, settings: EffectSettings) -> Term | None:
        """The released linear predictor of the treatment; None where no regression gives one."""
        if settings.propensity == "logistic":
            return Term(Rows.POOLED, "propensity")
        if settings.propensity == "multinomial":
            return Term(Rows.ARMS, "propensity", n_arms=len(self.universe.domain.arms))
        return None

    def _center_step(self, settings: EffectSettings, log_odds: Term | None) -> Step:
        """The outcome regression (center), perhaps weighted by the propensity of ``log_odds``."""
        rows = OutcomeRows(
            settings.rows,
            scale=defaults.NORM / settings.norm_bound,
            arms=settings.arms,
            rate=_rate(settings),
            log_odds=log_odds,
            noise_ratio=settings.noise_ratio,
            n_arms=len(self.universe.domain.arms),
        )
        program = self.saturating("saturating_regression", settings.slope)
        return self.regression("center", program, rows, share=settings.center_share)

    def _average_step(self, settings: EffectSettings) -> Step:
        """The mean of the covariates that regressions of several arms are averaged at.

        Those lines are not bent, so that their average is their value there.
        """
        plain = (0.0,) * self.universe.n_features
        return CovariateMean(
            name=AVERAGE,
            share=AVERAGE_SHARE * (1.0 - settings.spent),
            law=replace(self.law, shares=plain, zeros=plain),
            norm=settings.norm_bound,
            subtracted=False,
        )

    def _nuisances(self, settings: EffectSettings, log_odds: Term | None) -> Nuisances:
        """What the steps before the score release, as the score reads it."""
        common: dict[str, Any] = {
            "term": Term(settings.rows, "center", n_arms=len(self.universe.domain.arms)),
            "rate": _rate(settings),
            "log_odds": log_odds,
            # Where no mean square is released: what the bound leaves of the squares guessed.
            "spreads": self.law.within(settings.norm_bound),
            "deviation": self.scale,
            "declared": self.assumed,
        }
        if self._several:
            public = settings.propensity if isinstance(settings.propensity, tuple) else ()
            return ArmNuisances(**common, shares=public)
        values = self.two_values
        if values is not None:
            values = replace(values, slope=settings.slope)
        return LinearNuisances(**common, two_values=values)

    @property
    def start(self) -> Universe:
        """Records with covariates at most so long; unshrunk where a mean is subtracted first."""
        return self._placing()[0]

    def _whole(self, step: str) -> float:
        """Epsilon that the share of a step is of.

        A step that another question released before took its share of the budget of that one.
        """
        if step in self.before:
            return float(self.before[step]["budget"])
        return self.rest.epsilon

    def _placing(self) -> tuple[Universe, list[Step]]:
        # The interval of a scheme follows from a rehearsal at the declared distance, before
        # anything is released: it has no use for means by arm.
        by_arm = self.weights is None
        return defaults.placing(
            self, self.settings.norm_bound, self._whole("spread"), by_arm=by_arm
        )

    @property
    def _several(self) -> bool:
        return len(self.universe.domain.arms) > 2

    def _score(self, nuisances: Nuisances, settings: EffectSettings) -> EffectScore:
        """The score at these ``nuisances``, with its public clips (Theorem 12)."""
        domain = self.universe.domain
        is_ratio = domain.uneven and not self._several
        if domain.units is not None:
            # Of the records of a person a part may be treated, or in a group.
            is_ratio = is_ratio or self.kind in (TreatedScore, GroupScore)
        score = self.kind(
            nuisances=nuisances,
            cap=settings.cap,
            residual_bound=settings.residual_bound,
            score_bound=settings.score_bound,
            center=self.effect_center,
            sampled=is_ratio,
            missing=domain.weighted and not is_ratio,
        )
        if self.kind is RiskScores:
            score = replace(score, other_bound=domain.outcome_bound)
        n_counting = self.universe.mass * self.universe.n_samples
        rate_total = n_counting * self._whole("rate") * settings.rate_share
        rate_total /= max(len(domain.groups), 1)
        if rate_total < STEADY:
            # The released rate is noise: no bound may follow it far.
            widest = 4.0 * domain.outcome_bound / settings.score_bound
            score = replace(score, widest=max(widest, 1.0))
        return score

    @property
    def kind(self) -> type[EffectScore]:
        """The score of what is estimated, in groups where the domain declares any."""
        if self._several:
            return ArmScores
        return GroupScore if self.universe.domain.groups else SCORES[self.estimand]

    def _event_bound(self, propensity: Any) -> float:
        """B of the score of an outcome of two values at this propensity, at a rate of one half.

        The score of a risk is measured from the middle of the outcome, in which it lies; for the
        treated residuals are weighted by odds.

        Parameters
        ----------
        propensity
            "constant", "logistic", or the public probability of treatment.

        Returns
        -------
        float
            In units of the outcome.
        """
        assert self.two_values is not None
        if not isinstance(propensity, str):
            rate = public_fraction("propensity", propensity)
            factor = 1.0 / max(min(rate, 1.0 - rate), 0.01)
        elif propensity == "constant":
            factor = 1.0 if self.kind is TreatedScore else 2.0
        else:
            total = math.sqrt(self.universe.mass * self.universe.n_samples) * self.rest.epsilon
            factor = min(max(4.0, _EVENT_REACH * total), defaults.CAP)
        if self.estimand == RiskScores.estimand:
            factor -= 0.5
        return self.two_values.width * factor

    def _check_scale(self) -> None:
        """Raise DeclarationError for a share of a scale that is not released."""
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
        for fault in self._faults_of_estimand():
            raise DeclarationError(f"estimand = {brief(self.estimand)}: {fault}")

    def _faults_of_estimand(self) -> Iterator[str]:
        """What is wrong with the estimand for these records, the name itself first."""
        domain = self.universe.domain
        if self.estimand not in SCORES:
            yield f"must be one of {', '.join(SCORES)}"
        if self.estimand == RiskScores.estimand:
            low = domain.outcome_center - domain.outcome_bound
            high = domain.outcome_center + domain.outcome_bound
            if max(abs(low), abs(high - 1.0)) > _ROUNDED:
                yield (
                    f"the declared outcome reaches from {low:g} to {high:g}, and a risk is of an "
                    "event, 0 or 1: declare outcome_center = outcome_bound = 0.5, or estimand = "
                    "'ate'"
                )
            if domain.treatment_cost or self.effect_center is not None:
                yield "takes no treatment cost, which is in no risk, and no effect_center"
        if domain.groups:
            if self.estimand != AverageScore.estimand:
                yield "by: only 'ate' is released by group"
            if self.declared.get("propensity") == "logistic":
                yield "by: the propensity is that of every group, or a public one"


def _rate(settings: EffectSettings) -> str | float:
    """The public probability of treatment, or the step that releases the rate of treatment."""
    return "rate" if settings.known is None else settings.known


def _bound_over_clip(
    kind: type[EffectScore], propensity: Any, cap: float, rule: EffectSettings
) -> float:
    """B over M_r of a score.

    Parameters
    ----------
    kind
        Class of the score.
    propensity
        What is declared of it; None for that of ``rule``.
    cap
        F, at least 2.
    rule
        The settings where nothing is declared.
    """
    if propensity == "logistic":
        return kind.bound_over_clip[1]
    if propensity is None or isinstance(propensity, str) or kind is OverlapScore:
        return rule.score_bound / rule.residual_bound
    rate = public_number("propensity", propensity)
    if kind is TreatedScore:
        # Residuals of controls are weighted by the odds of treatment.
        return max(rate, 1.0 - rate) / max(1.0 - rate, 1.0 / cap)
    return 1.0 / defaults.smaller_arm(rate)


def effect_facts(plan: Plan[EffectStudy]) -> EffectFacts:
    """What errors of the nuisances of a planned effect follow from, beside what is released."""
    study = plan.study
    rate = plan.step("rate")
    mean = plan.step("mean")
    spread = plan.step("spread")
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
    """What the interval of an effect by weights follows from, beside what is released."""
    squares = plan.step("squares")
    assert isinstance(squares, ResidualSquares)
    return WeightedFacts(effect_facts(plan), squares)
