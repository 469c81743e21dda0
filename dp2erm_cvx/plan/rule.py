"""Rules and releases at weights: what is declared before any record is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.checks import public_fraction, public_size, setting
from dp2erm_cvx.data.counts import KINDS, refuse
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.inference.nuisances import Residuals
from dp2erm_cvx.plan import defaults
from dp2erm_cvx.plan.plan import STEADY, Pipeline
from dp2erm_cvx.plan.settings import RuleSettings, chosen_noise, known_settings, shares_in_turn
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage, registry
from dp2erm_cvx.program.registry import refuse_taken_name
from dp2erm_cvx.program.trust import refuse_patched
from dp2erm_cvx.steps.calibrators import Calibrator, calibrator
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.nuisances import Confounding, RuleNuisances, TwoValues
from dp2erm_cvx.steps.record_map import RAREST, Balance, Factors, OutcomeRows, Rows, RuleRows, Term
from dp2erm_cvx.steps.score import ValueScore
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import SideCounts

#: Public guess of what factors below 1 add up to, in n: their sum is private.
MASS = 0.6


@dataclass(frozen=True)
class RuleStudy(Pipeline):
    """Perhaps a center and a propensity, then a rule fitted to what they leave (Theorems 10, 13 and
    20).

    A declared ``value_share`` pays for what the rule is worth (Theorem 12).

    Parameters
    ----------
    universe, budget, noise, arithmetic, numerical_share
        As in :class:`~dp2erm_cvx.plan.Pipeline`.
    outcome_scale, expected
        As in :class:`~dp2erm_cvx.estimators.PrivateRule`.
    declared
        Settings that replace those of the public rule, by the names of
        :class:`~dp2erm_cvx.plan.RuleSettings`; a randomized trial declares its ``propensity``.

    Raises DeclarationError for an invalid argument.
    """

    main: ClassVar[str] = "rule"

    universe: Universe
    budget: Budget
    outcome_scale: float | None = setting(None, public_size)
    expected: Sequence[str] = ()
    declared: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "noise", chosen_noise(self.noise, self.universe))
        if isinstance(self.expected, str):
            raise DeclarationError(f"expected = {self.expected!r}: must be a list")
        put(self, "expected", tuple(self.expected))
        if self.settings.value_share is not None:
            refuse(
                self.universe.domain.codebook,
                "value_share, the value of a rule",
                "sampling",
                "counts",
            )
        if self.settings.mean_share is not None:
            what = "mean_share, in place of which typical values may be declared as center"
            refuse(self.universe.domain.codebook, what, "sampling", "counts")
        list(self.steps())  # what is declared is judged here, not where it is used

    @property
    def scale(self) -> float:
        """The guess of the outcome's standard deviation in force."""
        return (
            self.universe.domain.outcome_bound / 3.0
            if self.outcome_scale is None
            else self.outcome_scale
        )

    @property
    def mass(self) -> float:
        """The public guess of the sum of the factors, over n."""
        settings = self.settings
        factored = settings.propensity is not None and settings.response_bound is None
        return (MASS if factored else 1.0) * self.universe.mass

    @property
    def residual_scale(self) -> float:
        """The guess of the residual's standard deviation: a center is guessed to spread as far."""
        return math.sqrt(0.5) * self.scale

    @cached_property
    def settings(self) -> RuleSettings:
        """The settings in force: those of the public rule, with what is declared in their place."""
        declared = known_settings(RuleSettings, "a rule", self.declared)
        left = Budget(self._rest * self.budget.epsilon, self.budget.delta)
        rule = defaults.rule_of_use(self.universe, left, self.outcome_scale, self.expected)
        public, needed = declared.get("propensity", "logistic"), self.universe.n_features + 1
        if rule.center_share is not None and rule.propensity and public != "logistic":
            more = rule.center_share + 0.1  # what a propensity would have taken
            rule = replace(rule, center_share=more)
        if (
            self.noise is Noise.BOX
        ):  # which follows the box: a ball takes nothing off it, a mean doubles it
            rule = replace(rule, norm_bound=None, mean_share=None)
        if isinstance(public, list | tuple):  # of covariates where they are
            rule = replace(rule, norm_bound=None, mean_share=None, spread_share=None)
        rule = replace(rule, **declared)
        moved = rule.norm_bound or rule.mean_share or rule.spread_share
        if isinstance(rule.propensity, tuple) and (moved or len(rule.propensity) != needed):
            raise DeclarationError(
                f"propensity: {needed} public coefficients are needed, of the constant and of "
                "every scaled covariate; norm_bound, mean_share and spread_share would move those"
            )
        return rule

    @property
    def residuals(self) -> Residuals:
        """What is public of the residuals that the value of the rule is estimated from."""
        domain = self.universe.domain
        persons = domain.units is not None
        return Residuals(
            self.settings.residual_bound, self.residual_scale, domain.outcome_bound, persons
        )

    @property
    def _rest(self) -> float:
        """Share of epsilon that the value of the rule leaves, which the other shares are of."""
        return 1.0 - public_fraction("value_share", self.declared.get("value_share") or 1e-300)

    @property
    def norm_bound(self) -> float:
        """The norm that scaled covariates are shrunk to."""
        settings, most = self.settings, self.universe.domain.features_bound
        if settings.norm_bound is None:
            return most
        # less their mean they may be twice as long
        return (
            settings.norm_bound
            if settings.mean_share is not None
            else min(settings.norm_bound, most)
        )

    @property
    def start(self) -> Universe:
        """Inputs with covariates shrunk to a norm bound, unless their mean is to be subtracted
        first.
        """
        return self._placing()[0]

    def _placing(self) -> tuple[Universe, list[Step]]:
        return defaults.placing(self, self.norm_bound, self._rest * self.budget.epsilon)

    def steps(self) -> Iterator[Step]:
        """Perhaps mean and spread of covariates, perhaps a center, perhaps a propensity, then the
        rule.
        """
        settings, bound = self.settings, self.norm_bound
        center: Term | None = None
        steps = self._placing()[1]
        if settings.center_share is not None:
            program = self.saturating("saturating_regression", settings.center_slope)
            rows = OutcomeRows(Rows.POOLED, scale=settings.center_norm / bound)
            steps.append(self.regression("center", program, rows, share=settings.center_share))
            center = Term(Rows.POOLED, "center")
        if settings.propensity == "logistic":
            steps.append(self.logistic(self.handed(steps), settings))
        yield from shares_in_turn(steps)
        factors, response = self._factors(settings), settings.response_bound
        loss = self.saturating("itr_saturating", settings.slope)
        if response is not None:
            loss = registry.build(registry.second_stages(), "regression")
        rule = RuleRows(
            Rows.POOLED, center, settings.norm / bound, balance=factors, response_bound=response
        )
        yield self.regression("rule", loss, rule)
        if settings.value_share is not None:
            yield from self._value(settings, settings.value_share)

    def _value(self, settings: RuleSettings, share: float) -> Iterator[Step]:
        """Counts by side of the rule where they are needed, regressions by arm, and the sums of a
        score.
        """
        domain = self.universe.domain
        public = settings.propensity not in (None, "logistic")
        total = share * self.budget.epsilon * self.universe.n_samples
        counts = 0.0 if public and not domain.weighted else max(0.05, min(0.2, 80.0 / total))
        values, slope = None, self.residual_scale
        if domain.binary_outcome:
            width = 2.0 * domain.outcome_bound
            slope = defaults.saturation(width, self.scale, total)
            values = TwoValues(-domain.outcome_bound, width, slope)
        n, k, epsilon = (
            self.universe.n_samples,
            self.universe.n_features,
            share * self.budget.epsilon,
        )
        guesses = self.residual_scale, slope, self.law, self.norm_bound, 0.5 * settings.score_bound
        # a side holds a part of the records
        request = defaults.Request(
            ValueScore, n, k, epsilon, *guesses, Confounding(0.0 if public else 0.5), values
        )
        left = 1.0 - counts
        shares = [float(part) for part in np.arange(0.1, 0.9, 0.05) * left]
        center = min(shares, key=lambda part: defaults.effect_error(request, left, part, 0.0))
        program = self.saturating("saturating_regression", slope)
        rows = OutcomeRows(Rows.ARMS, scale=defaults.NORM / self.norm_bound)
        known = settings.propensity
        rate = known if isinstance(known, float) else 0.5 if public else "sides"
        log_odds = Term(Rows.POOLED, known) if isinstance(known, tuple) else None
        outcome = Term(Rows.ARMS, "arms"), rate, log_odds, self.law.within(self.norm_bound)
        apart = Confounding(0.0 if public else 1.0)
        nuisances = RuleNuisances(*outcome, self.residual_scale, apart, two_values=values)
        cap, widening, residual = settings.cap, 1.0, settings.residual_bound
        if public:  # released rates widen the score by themselves
            inverse = 1.0 / self._least(settings.propensity)
            cap = max(cap, min(2.0 * inverse, RAREST))
            widening = 0.5 * min(inverse, cap)
            # a clip that cuts what noise of the regressions adds to residuals would bias the value
            added = (
                replace(request, rate=1.0 / inverse).noise_in_residuals(center)
                / self.residual_scale
            )
            enlarged = min(math.hypot(1.0, added), 2.0 * domain.outcome_bound / residual)
            residual, widening = residual * max(enlarged, 1.0), widening * max(enlarged, 1.0)
        clips = cap, residual, widening * settings.score_bound
        score = ValueScore(nuisances, *clips, name="value", share=left - center)
        if counts and counts * total < STEADY:  # no bound may follow noise far
            score = replace(
                score, widest=max(4.0 * domain.outcome_bound / settings.score_bound, 1.0)
            )
        steps: list[Step] = [SideCounts(share=counts)] if counts else []
        steps.append(self.regression("arms", program, rows, share=center))
        steps.append(score)
        yield from shares_in_turn(steps, share)

    def _least(self, source: Any) -> float:
        """The least probability of either arm, whatever the covariates, by a public propensity."""
        if isinstance(source, float):
            return defaults.smaller_arm(source)
        constant, *slopes = source
        return float(expit(-abs(constant) - math.hypot(*slopes) * self.norm_bound))

    def _factors(self, settings: RuleSettings) -> Factors | None:
        public = settings.propensity
        if public is None:
            return None
        source: str | tuple[float, ...]
        if isinstance(public, float):
            source = (math.log(public) - math.log1p(-public), *([0.0] * self.universe.n_features))
        else:
            source = "propensity" if isinstance(public, str) else public
        balance = settings.balance if settings.response_bound is None else Balance.INVERSE
        return Factors(Term(Rows.POOLED, source), balance, settings.cap)


@dataclass(frozen=True)
class Study(Pipeline):
    """A first and a second stage, the universe of datasets, and the budget of one release.

    Parameters
    ----------
    first, second
        Programs; what they leave to the domain is filled in.
    universe, budget, noise, arithmetic, numerical_share
        As in :class:`~dp2erm_cvx.plan.Pipeline`; a calibration may leave no choice of the noise.
    calibration, split, tolerance
        As in :class:`~dp2erm_cvx.estimators.PrivateTwoStageERM`; a tolerance of 0 is that of exact
        weights.

    Raises DeclarationError for an invalid argument.
    """

    main: ClassVar[str] = "theta"

    first: FirstStage
    second: SecondStage
    universe: Universe
    budget: Budget
    calibration: str = "sharp"
    split: float | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        refuse(self.universe.domain.codebook, "a fit with the weights of a first stage", *KINDS)
        chosen = self.calibrator
        if self.split is not None and not chosen.splits:
            raise DeclarationError(
                f"split = {brief(self.split)}: calibration = {chosen.name!r} chooses its own"
            )
        for name in ("first", "second"):
            where = self.universe.space, self.universe.n_samples, self.universe.n_columns
            refuse_patched(getattr(self, name))
            program = getattr(self, name).read_at(*where)  # anew, whatever was read of it before
            put(self, name, program)
            refuse_taken_name(program.made_by)

    @property
    def calibrator(self) -> Calibrator:
        """The calibration of theta by its name. Raises DeclarationError naming the known ones."""
        return calibrator(self.calibration)

    def steps(self) -> Iterator[Step]:
        first, how = self.first, self.calibrator
        common: Any = {"noise": self.noise, "tolerance": self.tolerance}
        if isinstance(first, PrivateFirstStage):
            yield Fit(
                name="propensity", share=first.share, program=first, family=how.family, **common
            )
        yield Fit(
            name="theta",
            program=self.second,
            first=first,
            calibrator=how,
            split=self.split,
            **common,
        )
