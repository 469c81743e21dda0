"""A private rule: what is declared before any record is read, its plan, and what noise may have flipped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, expit

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.calibration.numbers import Arithmetic
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.domain import Array, clip_norm
from dp2erm_cvx.errors import DeclarationError, known_names
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.defaults import NORM, Request, effect_error, rule_of_use, smaller_arm
from dp2erm_cvx.plan.pipeline import NUMERICAL_SHARE, STEADY, Pipeline, chosen_noise, shares_in_turn
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.plan.settings import RuleSettings
from dp2erm_cvx.privacy import Budget, StabilityBound
from dp2erm_cvx.public import public_fraction, public_size
from dp2erm_cvx.sampling import refuse_sampling
from dp2erm_cvx.steps import (
    Balance,
    Confounding,
    Factors,
    Fit,
    MeanScore,
    MeanSquare,
    OutcomeRows,
    Rows,
    RuleNuisances,
    RuleRows,
    SideCounts,
    Step,
    Term,
    ValueScore,
)
from dp2erm_cvx.steps.record_map import RAREST
from dp2erm_cvx.universe import Universe

#: Public guess of what factors below 1 add up to, in n: their sum is private.
MASS = 0.6
#: Records of a public covariate spread, and draws of the noise, that predictions are averaged over.
_POINTS, _DRAWS = 512, 512


@dataclass(frozen=True)
class RulePlan(Plan):
    """The planned steps of a rule's ``study``: the rule, perhaps nuisances before it and its value after."""

    study: RuleStudy

    @property
    def rule(self) -> Fit:
        """The step that releases the rule."""
        return next(step for step in self.steps if step.name == "rule" and isinstance(step, Fit))

    @property
    def rows(self) -> OutcomeRows:
        """What the rule is fitted to."""
        assert self.rule.regression is not None
        return self.rule.regression

    @property
    def bound(self) -> StabilityBound:
        """That of the factors of the rule."""
        return self.rule.bound

    @property
    def value(self) -> MeanScore | None:
        """The step that releases what the rule is worth; None where no share was declared for it."""
        found = self.step("value")
        assert found is None or isinstance(found, MeanScore)
        return found

    @property
    def mass(self) -> float:
        """The public guess of the sum of the factors, over n."""
        return (MASS if self.rows.factored else 1.0) * self.study.universe.mass

    @property
    def noise_effect(self) -> float:
        """Root mean square of what noise does to the effect of one record, in units of the outcome.

        Predicted for covariates of a public spread, residuals of the public guess ``outcome_scale``, and the
        public guess ``mass``: no bound. What noise does to a center or a propensity is not in it.
        """
        return self.noise_at(self.spreads({}))

    def noise_at(self, spreads: ArrayLike) -> float:
        """The same for scaled covariates of these ``spreads`` (k,)."""
        rows = self._rows(spreads, self.rows.scale)
        return float(np.sqrt(np.mean(self._moved(rows, rows) ** 2)))

    def spreads(self, released: Mapping[str, Array]) -> Array:
        """Standard deviations (k,) of scaled covariates: by their released mean square, or a public guess."""
        step = self.step("spread")
        if step is not None and isinstance(step, MeanSquare) and step.name in released:
            return step.spreads(released)
        return np.array(self.study.law.within(self.study.norm_bound))

    def flipped_share(self, theta: ArrayLike, spreads: ArrayLike | None = None) -> float:
        """Share of the decisions of a released ``theta`` (p,) that the noise in it is predicted to flip.

        For the same guesses, and covariates of these ``spreads`` (k,). The effects without noise are guessed
        to be those of theta, less the size that the noise gives them: 1/2 where noise explains all of them.
        """
        spreads = self.spreads({}) if spreads is None else spreads
        scaled, rows = self._rows(spreads, self.rows.scale), self._rows(spreads)
        moved = self._moved(scaled, scaled)
        effects = np.sum(rows * np.asarray(theta, dtype=np.float64), axis=1)
        size, noise = float(np.mean(effects**2)), float(np.mean(moved**2))
        if not size > noise:
            return 0.5
        true = effects * math.sqrt(1.0 - noise / size)
        # on either side of the boundary records are flipped as often
        return float(np.mean((true + moved > 0) != (true > 0)))

    def _rows(self, spreads: ArrayLike, scale: float = 1.0, *, coded: bool = False) -> Array:
        """Rows (m, p) of public covariates, ``scale`` times those of the domain.

        Where they are ``coded``, levels of one column add up to the same for everybody: noise that moves all
        of them at once changes no effect, and nothing holds it back.
        """
        k, domain = self.study.universe.n_features, self.study.universe.domain
        x = np.asarray(spreads) * np.random.default_rng(k).standard_normal((_POINTS, k))
        book, names = domain.codebook or Codebook(), domain.columns or ()
        for column in book.levels if coded else ():
            own = [place for place, name in enumerate(names) if book.origin(name)[0] == column]
            total = 0.0 if self.step("mean") is not None else 1.0
            x[:, own] += (total - x[:, own].sum(axis=1, keepdims=True)) / max(len(own), 1)
        x = scale * clip_norm(x, self.study.norm_bound)
        return self.rows.rows.of(x, np.zeros(_POINTS))

    def half_widths(self, spreads: ArrayLike) -> Array:
        """Half width (p,) of the 2.5-97.5 % range of the noise in every coefficient, for the same guesses."""
        rows = self._rows(spreads, self.rows.scale, coded=True)
        moved = self._moved(np.eye(rows.shape[1]), rows)
        return self.rows.unscaled(np.quantile(np.abs(moved), 0.95, axis=0), self.study.universe.n_features)

    def _moved(self, at: Array, rows: Array) -> Array:
        """What draws of the noise do to the effect ``at`` (m, p), (draws, m), for records of these rows."""
        calibration = self.rule.calibration
        assert isinstance(calibration, Calibration)
        # a center is guessed to spread as far as what it leaves, and residuals of 2 (y - m) to be normal
        left = self.study.scale * (math.sqrt(0.5) if self.rows.after else 1.0)
        squared, slope = self.study.settings.response_bound is not None, self.study.settings.slope
        bend = 2.0 if squared else float(erfcx(math.sqrt(2.0) * left / slope))
        p = rows.shape[1]
        hessian = bend * self.mass * (rows.T @ rows) / len(rows) + calibration.gamma * np.eye(p)
        drawn = simulate_noise(calibration, _DRAWS, np.random.default_rng(p))
        return np.asarray(drawn @ np.linalg.solve(hessian, at.T) / self.study.universe.n_samples)


@dataclass(frozen=True)
class RuleStudy(Pipeline[RulePlan]):
    """Perhaps a center and a propensity, then a rule fitted to what they leave (Theorems 10, 13 and 20).

    A declared ``value_share`` pays for what the rule is worth (Theorem 12).

    Parameters
    ----------
    universe, budget
        The datasets that the guarantee is about, and (epsilon, delta).
    outcome_scale, expected
        As in :class:`~dp2erm_cvx.estimators.PrivateRule`.
    declared
        Settings that replace those of the public rule, by the names of
        :class:`~dp2erm_cvx.plan.RuleSettings`; a randomized trial declares its ``propensity``.
    noise
        "gamma" (pure), "gaussian" (pure noise in steps where that errs less), "box" (pure, needs ranges;
        Laplace noise on numbers), or "auto": gamma or box noise, the shorter for regressions on (1, x).
    arithmetic, numerical_share
        Whether that share of each step covers its numerical error.

    Raises DeclarationError for an invalid argument.
    """

    universe: Universe
    budget: Budget
    outcome_scale: float | None = None
    expected: Sequence[str] = ()
    declared: Mapping[str, Any] = field(default_factory=dict)
    noise: Noise | str = Noise.GAMMA
    arithmetic: Arithmetic | str = Arithmetic.ASSUMED
    numerical_share: float = NUMERICAL_SHARE

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "noise", chosen_noise(self.noise, self.universe))
        public_fraction("numerical_share", self.numerical_share)
        if self.outcome_scale is not None:
            put(self, "outcome_scale", public_size("outcome_scale", self.outcome_scale))
        if isinstance(self.expected, str):
            raise DeclarationError(f"expected = {self.expected!r}: must be a list")
        put(self, "expected", tuple(self.expected))
        if self.settings.value_share is not None:
            refuse_sampling(
                self.universe.domain.codebook,
                "value_share: what a rule is worth is not estimated where records count unequally",
            )
        if self.settings.mean_share is not None:
            refuse_sampling(
                self.universe.domain.codebook,
                "mean_share: what all records count together is private; declare typical values as center",
            )
        list(self.steps(None))  # what is declared is judged here, not where it is used

    @property
    def scale(self) -> float:
        """The guess of the outcome's standard deviation in force."""
        return self.universe.domain.outcome_bound / 3.0 if self.outcome_scale is None else self.outcome_scale

    @property
    def residual_scale(self) -> float:
        """The guess of the residual's standard deviation: a center is guessed to spread as far."""
        return math.sqrt(0.5) * self.scale

    @cached_property
    def settings(self) -> RuleSettings:
        """The settings in force: those of the public rule, with what is declared in their place."""
        known = [one.name for one in fields(RuleSettings)]
        for name in self.declared:
            if name not in known:
                raise DeclarationError(f"{name}: is no setting of a rule; {known_names(name, known)}")
        kept = 1.0 - public_fraction("value_share", self.declared.get("value_share") or 1e-300)
        left = Budget(kept * self.budget.epsilon, self.budget.delta)
        found = rule_of_use(self.universe, left, self.outcome_scale, self.expected)
        if found.center_share is not None and self.declared.get("propensity", "logistic") != "logistic":
            found = replace(found, center_share=0.4)  # what a propensity would have taken
        if self.noise is Noise.BOX:  # which follows the box: a ball takes nothing off it, a mean doubles it
            found = replace(found, norm_bound=None, mean_share=None)
        found = replace(found, **self.declared)
        coefficients = found.propensity
        if isinstance(coefficients, tuple) and len(coefficients) != self.universe.n_features + 1:
            raise DeclarationError(
                f"propensity: {self.universe.n_features + 1} public coefficients are needed, of the constant "
                "and of every scaled covariate"
            )
        return found

    @property
    def norm_bound(self) -> float:
        """The norm that scaled covariates are shrunk to."""
        settings, most = self.settings, self.universe.domain.features_bound
        if settings.norm_bound is None:
            return most
        # less their mean they may be twice as long
        return settings.norm_bound if settings.mean_share is not None else min(settings.norm_bound, most)

    @property
    def start(self) -> Universe:
        """That of covariates shrunk to their norm bound, unless their mean is to be subtracted first."""
        centered = self.settings.mean_share is not None
        return self.universe if centered else self.universe.shrunk(self.norm_bound)

    def steps(self, numerical_share: float | None) -> Iterator[Step]:
        """Perhaps mean and norm of covariates, perhaps a center, perhaps a propensity, then the rule."""
        settings, bound = self.settings, self.norm_bound
        center: tuple[Term, ...] = ()
        shares, exact = (settings.mean_share, settings.spread_share), numerical_share is not None
        steps = list(self.placing(*shares, bound, bound, exact=exact))
        if settings.center_share is not None:
            program = self.saturating("saturating_regression", settings.center_slope)
            rows = OutcomeRows(Rows.POOLED, scale=settings.center_norm / bound)
            share = settings.center_share
            steps.append(self.regression("center", program, rows, numerical_share, share))
            center = (Term(Rows.POOLED, "center"),)
        if settings.propensity == "logistic":
            steps.append(self.logistic(self.handed(steps), settings, numerical_share))
        yield from shares_in_turn(steps)
        factors = self._factors(settings)
        scale = settings.norm / bound
        response = settings.response_bound
        loss = registry.build(registry.second_stages(), "regression")
        if response is None:
            loss = self.saturating("itr_saturating", settings.slope)
        rule = RuleRows(Rows.POOLED, center, scale, balance=factors, response_bound=response)
        yield self.regression("rule", loss, rule, numerical_share)
        if settings.value_share is not None:
            yield from self._value(settings, settings.value_share, numerical_share)

    def _value(self, settings: RuleSettings, share: float, numerical_share: float | None) -> Iterator[Step]:
        """Counts by side of the rule where they are needed, regressions by arm, and the sums of a score."""
        domain, exact = self.universe.domain, numerical_share is not None
        public = settings.propensity not in (None, "logistic")
        total = share * self.budget.epsilon * self.universe.n_samples
        counts = 0.0 if public and not domain.weighted else max(0.05, min(0.2, 80.0 / total))
        request = Request(
            ValueScore,
            self.universe.n_samples,
            self.universe.n_features,
            share * self.budget.epsilon,
            self.residual_scale,
            self.residual_scale,
            self.law,
            self.norm_bound,
            0.5 * settings.score_bound,
            Confounding(0.0 if public else 0.5),  # a side holds a part of the records
        )
        left = 1.0 - counts
        shares = [float(one) for one in np.arange(0.1, 0.9, 0.05) * left]
        center = min(shares, key=lambda one: effect_error(request, left, one, 0.0))
        program = self.saturating("saturating_regression", self.residual_scale)
        rows = OutcomeRows(Rows.ARMS, scale=NORM / self.norm_bound)
        rate, log_odds = 0.5 if public else "sides", None
        if isinstance(settings.propensity, float):
            rate = settings.propensity
        elif isinstance(settings.propensity, tuple):
            log_odds = Term(Rows.POOLED, settings.propensity)
        nuisances = RuleNuisances(
            (Term(Rows.ARMS, "arms"),),
            rate,
            log_odds,
            self.law.within(self.norm_bound),
            self.residual_scale,
            Confounding(0.0 if public else 1.0),
        )
        cap, widening, residual = settings.cap, 1.0, settings.residual_bound
        if public:  # released rates widen the score by themselves
            inverse = 1.0 / self._least(settings.propensity)
            cap = max(cap, min(2.0 * inverse, RAREST))
            widening = 0.5 * min(inverse, cap)
            # a clip that cuts what noise of the regressions adds to residuals would bias the value
            added = replace(request, rate=1.0 / inverse).noise_in_residuals(center) / self.residual_scale
            enlarged = min(math.hypot(1.0, added), 2.0 * domain.outcome_bound / residual)
            residual, widening = residual * max(enlarged, 1.0), widening * max(enlarged, 1.0)
        score = ValueScore(nuisances, cap, residual, widening * settings.score_bound)
        if counts and counts * total < STEADY:  # no bound may follow noise far
            score = replace(score, widest=max(4.0 * domain.outcome_bound / settings.score_bound, 1.0))
        steps: list[Step] = [SideCounts(share=counts, exact=exact)] if counts else []
        steps.append(self.regression("arms", program, rows, numerical_share, center))
        steps.append(MeanScore(name="value", share=left - center, exact=exact, score=score))
        yield from shares_in_turn(steps, share)

    def _least(self, stated: Any) -> float:
        """The least probability of either arm, whatever the covariates, by a public propensity."""
        if isinstance(stated, float):
            return smaller_arm(stated)
        constant, *slopes = stated
        return float(expit(-abs(constant) - math.hypot(*slopes) * self.norm_bound))

    def _factors(self, settings: RuleSettings) -> Factors | None:
        stated = settings.propensity
        if stated is None:
            return None
        source: str | tuple[float, ...]
        if isinstance(stated, float):
            source = (math.log(stated) - math.log1p(-stated), *([0.0] * self.universe.n_features))
        else:
            source = "propensity" if isinstance(stated, str) else stated
        balance = settings.balance if settings.response_bound is None else Balance.INVERSE
        return Factors(balance, Term(Rows.POOLED, source), settings.cap)

    def planned(self, steps: Sequence[Step]) -> RulePlan:
        return RulePlan(self, tuple(steps))
