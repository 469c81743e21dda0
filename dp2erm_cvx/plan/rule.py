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
    """A rule, fitted to what released nuisances leave of the outcome (Theorems 10, 13 and 20).

    An outcome regression (center) and a propensity are released before it, where settings give
    them a share. A declared ``value_share`` pays for what the rule is worth (Theorem 12).

    Parameters
    ----------
    universe, budget, noise, arithmetic, numerical_share
        As in :class:`~dp2erm_cvx.plan.Pipeline`.
    outcome_scale, expected
        As in :class:`~dp2erm_cvx.estimators.PrivateRule`.
    declared
        Settings that replace those of the public rule, by the names of
        :class:`~dp2erm_cvx.plan.RuleSettings`; a randomized trial declares its ``propensity``.

    Raises
    ------
    DeclarationError
        For an invalid argument.
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
        codebook = self.universe.domain.codebook
        if self.settings.value_share is not None:
            refuse(codebook, "value_share, the value of a rule", "sampling", "counts")
        if self.settings.mean_share is not None:
            what = "mean_share, in place of which typical values may be declared as center"
            refuse(codebook, what, "sampling", "counts")
        list(self.steps())  # what is declared is judged here, not where it is used

    @property
    def scale(self) -> float:
        """The guess of the outcome's standard deviation in force, in units of the outcome."""
        if self.outcome_scale is None:
            return self.universe.domain.outcome_bound / 3.0
        return self.outcome_scale

    @property
    def mass(self) -> float:
        """The public guess of the sum of the factors, over n."""
        has_factors = self.settings.propensity is not None
        if has_factors and self.settings.response_bound is None:
            return MASS * self.universe.mass
        return self.universe.mass

    @property
    def residual_scale(self) -> float:
        """The guess of the residual's standard deviation: a center is guessed to spread as far."""
        return math.sqrt(0.5) * self.scale

    @cached_property
    def settings(self) -> RuleSettings:
        """The settings in force: those of the public rule, with what is declared in their place."""
        declared = known_settings(RuleSettings, "a rule", self.declared)
        public_rule = self._public_rule(declared.get("propensity", "logistic"))
        settings = replace(public_rule, **declared)
        if isinstance(settings.propensity, tuple):
            needed = self.universe.n_features + 1
            moved = settings.norm_bound or settings.mean_share or settings.spread_share
            if moved or len(settings.propensity) != needed:
                raise DeclarationError(
                    f"propensity: {needed} public coefficients are needed, of the constant and of "
                    "every scaled covariate; norm_bound, mean_share and spread_share would move "
                    "those"
                )
        return settings

    def _public_rule(self, propensity: Any) -> RuleSettings:
        """The default settings for what is declared of the propensity, the noise and the value."""
        budget = Budget(self._share_beside_value * self.budget.epsilon, self.budget.delta)
        rule = defaults.rule_of_use(self.universe, budget, self.outcome_scale, self.expected)
        if rule.center_share is not None and rule.propensity and propensity != "logistic":
            # The center takes most of what a fitted propensity would have taken.
            rule = replace(rule, center_share=rule.center_share + 0.1)
        if self.noise is Noise.BOX:
            # Box noise follows the box: a ball takes nothing off it, and a mean doubles it.
            rule = replace(rule, norm_bound=None, mean_share=None)
        if isinstance(propensity, list | tuple):
            # Public coefficients are those of the covariates where the domain puts them.
            rule = replace(rule, norm_bound=None, mean_share=None, spread_share=None)
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
    def _share_beside_value(self) -> float:
        """Share of epsilon that the value of the rule leaves, which the other shares are of."""
        value_share = self.declared.get("value_share")
        if not value_share:
            return 1.0
        return 1.0 - public_fraction("value_share", value_share)

    @property
    def norm_bound(self) -> float:
        """The norm that scaled covariates are shrunk to."""
        declared = self.settings.norm_bound
        largest = self.universe.domain.features_bound
        if declared is None:
            return largest
        if self.settings.mean_share is not None:
            # Less their mean, covariates may be twice as long as the domain lets them be.
            return declared
        return min(declared, largest)

    @property
    def start(self) -> Universe:
        """Records with covariates at most so long; unshrunk where a mean is subtracted first."""
        return self._placing()[0]

    def _placing(self) -> tuple[Universe, list[Step]]:
        """The universe of the first step, and the steps that center and scale covariates."""
        epsilon = self._share_beside_value * self.budget.epsilon
        return defaults.placing(self, self.norm_bound, epsilon)

    def steps(self) -> Iterator[Step]:
        """The nuisances that settings give a share, then the rule, then what it is worth."""
        settings = self.settings
        steps = self._placing()[1]
        center: Term | None = None
        if settings.center_share is not None:
            program = self.saturating("saturating_regression", settings.center_slope)
            rows = OutcomeRows(Rows.POOLED, scale=settings.center_norm / self.norm_bound)
            steps.append(self.regression("center", program, rows, share=settings.center_share))
            center = Term(Rows.POOLED, "center")
        if settings.propensity == "logistic":
            steps.append(self.logistic(self.handed(steps), settings))
        yield from shares_in_turn(steps)
        yield self._rule_step(settings, center)
        if settings.value_share is not None:
            yield from self._value_steps(settings, settings.value_share)

    def _rule_step(self, settings: RuleSettings, center: Term | None) -> Step:
        """The regression of residuals that is the rule, at the factors of the propensity."""
        if settings.response_bound is None:
            loss = self.saturating("itr_saturating", settings.slope)
        else:
            loss = registry.build(registry.second_stages(), "regression")
        rows = RuleRows(
            Rows.POOLED,
            center,
            settings.norm / self.norm_bound,
            balance=self._factors(settings),
            response_bound=settings.response_bound,
        )
        return self.regression("rule", loss, rows)

    def _factors(self, settings: RuleSettings) -> Factors | None:
        """What records count in the rule, by the propensity; None for factors of 1."""
        propensity = settings.propensity
        if propensity is None:
            return None
        source: str | tuple[float, ...]
        if isinstance(propensity, float):
            log_odds = math.log(propensity) - math.log1p(-propensity)
            source = (log_odds, *([0.0] * self.universe.n_features))
        elif isinstance(propensity, str):
            source = "propensity"
        else:
            source = propensity
        # Inverse propensities stand on the response where that is bounded (Theorem 14).
        balance = settings.balance if settings.response_bound is None else Balance.INVERSE
        return Factors(Term(Rows.POOLED, source), balance, settings.cap)

    def _value_steps(self, settings: RuleSettings, share: float) -> Iterator[Step]:
        """What the rule is worth: counts by side of it, regressions by arm, sums of a score.

        The counts say how many records of either side of the rule are treated. They are left out
        where the propensity is public and every record counts 1.

        Parameters
        ----------
        settings
            The settings in force.
        share
            Share of the whole budget that all of these steps take together.
        """
        n_epsilon = share * self.budget.epsilon * self.universe.n_samples
        counts_share = self._counts_share(settings, n_epsilon)
        share_left = 1.0 - counts_share
        request = self._value_request(settings, share, n_epsilon)
        center_share = _center_share(request, share_left)
        steps: list[Step] = []
        if counts_share:
            steps.append(SideCounts(share=counts_share))
        program = self.saturating("saturating_regression", request.slope)
        rows = OutcomeRows(Rows.ARMS, scale=defaults.NORM / self.norm_bound)
        steps.append(self.regression("arms", program, rows, share=center_share))
        score = self._value_score(settings, request, center_share, share=share_left - center_share)
        if counts_share and counts_share * n_epsilon < STEADY:
            # Such counts are noise: no bound may follow them far.
            widest = 4.0 * self.universe.domain.outcome_bound / settings.score_bound
            score = replace(score, widest=max(widest, 1.0))
        steps.append(score)
        yield from shares_in_turn(steps, share)

    def _counts_share(self, settings: RuleSettings, n_epsilon: float) -> float:
        """Share of the value's budget for counts by side; 0 where none are needed.

        Parameters
        ----------
        settings
            The settings in force.
        n_epsilon
            n times the epsilon of the value.
        """
        if settings.propensity_is_public and not self.universe.domain.weighted:
            return 0.0
        return max(0.05, min(0.2, 80.0 / n_epsilon))

    def _value_request(
        self, settings: RuleSettings, share: float, n_epsilon: float
    ) -> defaults.Request:
        """What the predicted error of the value depends on, of which a side holds a part.

        Parameters
        ----------
        settings
            The settings in force.
        share
            Share of the whole budget for the value.
        n_epsilon
            n times the epsilon of the value.
        """
        domain = self.universe.domain
        slope = self.residual_scale
        values = None
        if domain.binary_outcome:
            width = 2.0 * domain.outcome_bound
            slope = defaults.saturation(width, self.scale, n_epsilon)
            values = TwoValues(-domain.outcome_bound, width, slope)
        distance = 0.0 if settings.propensity_is_public else 0.5
        return defaults.Request(
            kind=ValueScore,
            n_samples=self.universe.n_samples,
            n_features=self.universe.n_features,
            epsilon=share * self.budget.epsilon,
            deviation=self.residual_scale,
            slope=slope,
            law=self.law,
            norm_bound=self.norm_bound,
            residual_bound=0.5 * settings.score_bound,
            confounding=Confounding(distance),
            two_values=values,
        )

    def _value_score(
        self,
        settings: RuleSettings,
        request: defaults.Request,
        center_share: float,
        *,
        share: float,
    ) -> ValueScore:
        """The score of the gains, with its clips at this public or released propensity."""
        cap = settings.cap
        residual_bound = settings.residual_bound
        widening = 1.0
        if settings.propensity_is_public:
            # Where rates are released, the score is widened by what they turn out to be.
            inverse = 1.0 / self._least_probability(settings.propensity)
            cap = max(cap, min(2.0 * inverse, RAREST))
            widening = 0.5 * min(inverse, cap)
            # A clip that cuts what noise of the regressions adds to residuals would bias the value.
            at_rate = replace(request, rate=1.0 / inverse)
            added = at_rate.noise_in_residuals(center_share) / self.residual_scale
            largest = 2.0 * self.universe.domain.outcome_bound / residual_bound
            enlarged = max(min(math.hypot(1.0, added), largest), 1.0)
            residual_bound = residual_bound * enlarged
            widening = widening * enlarged
        return ValueScore(
            self._value_nuisances(settings, request.two_values),
            cap,
            residual_bound,
            widening * settings.score_bound,
            name="value",
            share=share,
        )

    def _value_nuisances(self, settings: RuleSettings, values: TwoValues | None) -> RuleNuisances:
        """Regressions by arm, and the propensity: public, or counted by side of the rule."""
        propensity = settings.propensity
        rate: float | str = "sides"
        log_odds = None
        if isinstance(propensity, float):
            rate = propensity
        elif isinstance(propensity, tuple):
            rate = 0.5
            log_odds = Term(Rows.POOLED, propensity)
        return RuleNuisances(
            term=Term(Rows.ARMS, "arms"),
            rate=rate,
            log_odds=log_odds,
            spreads=self.law.within(self.norm_bound),
            deviation=self.residual_scale,
            declared=Confounding(0.0 if settings.propensity_is_public else 1.0),
            two_values=values,
        )

    def _least_probability(self, propensity: Any) -> float:
        """The least probability of either arm, whatever the covariates, by a public propensity."""
        if isinstance(propensity, float):
            return defaults.smaller_arm(propensity)
        constant, *slopes = propensity
        largest_log_odds = abs(constant) + math.hypot(*slopes) * self.norm_bound
        return float(expit(-largest_log_odds))


def _center_share(request: defaults.Request, share_left: float) -> float:
    """Share for regressions by arm of least predicted error.

    Parameters
    ----------
    request
        What that error depends on.
    share_left
        Share that counts leave for regressions and score together.
    """
    shares = [float(part) for part in np.arange(0.1, 0.9, 0.05) * share_left]

    def predicted_error(share: float) -> float:
        return defaults.effect_error(request, request.regression(share), share_left - share, 0.0)

    return min(shares, key=predicted_error)


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

    Raises
    ------
    DeclarationError
        For an invalid argument.
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
        put(self, "first", self._read_anew(self.first))
        put(self, "second", self._read_anew(self.second))

    def _read_anew(self, program: Any) -> Any:
        """A program as it is read for this universe, whatever was read of it before."""
        refuse_patched(program)
        universe = self.universe
        read = program.read_at(universe.space, universe.n_samples, universe.n_columns)
        refuse_taken_name(read.made_by)
        return read

    @property
    def calibrator(self) -> Calibrator:
        """The calibration of theta by its name. Raises DeclarationError naming the known ones."""
        return calibrator(self.calibration)

    def steps(self) -> Iterator[Step]:
        """The private coefficient of the first stage, where it has one, then theta."""
        first = self.first
        calibration = self.calibrator
        if isinstance(first, PrivateFirstStage):
            yield Fit(
                name="propensity",
                share=first.share,
                program=first,
                family=calibration.family,
                noise=self.noise,
                tolerance=self.tolerance,
            )
        yield Fit(
            name="theta",
            program=self.second,
            first=first,
            calibrator=calibration,
            split=self.split,
            noise=self.noise,
            tolerance=self.tolerance,
        )
