"""The release of a treatment rule: its coefficient, and how sure its decisions are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.data.codebook import norm_within
from dp2erm_cvx.data.dataset import rows_to_predict
from dp2erm_cvx.data.space import clip_norm
from dp2erm_cvx.inference.interval import score_interval
from dp2erm_cvx.inference.rule_gain import value_error
from dp2erm_cvx.plan import Plan, RuleStudy
from dp2erm_cvx.plan.predict import residual_bias, rule_noise
from dp2erm_cvx.release.declaration import declaration_of, state_steps
from dp2erm_cvx.release.effect import Nuisance, narrow_columns, state_coefficient
from dp2erm_cvx.release.interval import EffectInterval
from dp2erm_cvx.release.record import BaseRelease, Guarantee
from dp2erm_cvx.release.two_stage import Release, rule_of
from dp2erm_cvx.release.units import OwnUnits, beside, own_units
from dp2erm_cvx.steps.covariates import CovariateMean, MeanSquare
from dp2erm_cvx.steps.record_map import Rows
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.sums import SideCounts

#: What the value of a rule is compared with.
_OTHERS = ("treating nobody", "treating everybody")


@dataclass(frozen=True)
class RuleGain(Stated):
    """The value of a rule less that of treating everybody, or nobody.

    Parameters
    ----------
    over
        What the rule is compared with.
    estimate
        The gain, in units of the net outcome.
    interval
        For the mean gain of the released rule. It allows for how much better the rule looks on the
        records that it was fitted to. Where the propensity is not public it also allows, to first
        order, for what the released regressions of both arms leave of the confounding
        (:func:`~dp2erm_cvx.inference.rule_gain.value_error`).
    """

    over: str
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True, kw_only=True)
class RuleRelease(BaseRelease):
    """Release of a treatment rule: treat where ``<(1, x), theta> > 0``.

    A record is scaled by the ``domain``, ``covariate_mean`` is subtracted, the rest is multiplied
    by ``covariate_scale`` and shrunk to ``covariate_norm``: in the fit as in every prediction.

    Parameters
    ----------
    theta
        Coefficient (p,) of the constant and of the scaled covariates. Its product with a record
        estimates the effect, in units of the outcome and net of the treatment cost.
    parameters
        One name (p,) for each coordinate of theta.
    noise_half_width
        Predicted to hold 95 % of the noise in each coordinate (p,).
    noise_effect
        Root mean square of what noise is predicted to do to the effect of one record.
    flipped_share
        Predicted share of the decisions that noise flips. It follows from theta, public guesses
        and a public spread of covariates, as ``noise_effect`` does.
    nuisances
        The released outcome regression and propensity.
    settings
        Public settings and guesses, such as the ``mass`` of the factors over n.
    gains
        What the rule is worth, where a share of the budget was declared for that.
    released
        The whole numbers that noise was added to for the gains.
    residual_bias
        Predicted share of a confounding bias that stays
        (:func:`~dp2erm_cvx.plan.predict.residual_bias`); None where it is not known.
    covariate_mean
        Released mean (k,) of the scaled covariates; empty where it is taken to be 0.
    covariate_norm
        Norm to which records are shrunk.
    covariate_scale
        Factors (k,) of the scaled covariates.
    narrow
        Covariates whose released mean square may be noise alone, where the propensity is not
        public.
    """

    goal: ClassVar[str] = "rule"
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")
    derived: ClassVar[tuple[str, ...]] = ("own_units", "caveats")

    theta: tuple[float, ...]
    parameters: tuple[str, ...]
    noise_half_width: tuple[float, ...]
    noise_effect: float
    flipped_share: float
    nuisances: tuple[Nuisance, ...]
    settings: dict[str, Any]
    gains: tuple[RuleGain, ...] = ()
    released: tuple[int, ...] = ()
    residual_bias: float | None = None
    covariate_mean: tuple[float, ...] = ()
    covariate_norm: float
    covariate_scale: tuple[float, ...]
    narrow: tuple[str, ...] = ()

    def effects_at(self, X: Array) -> Array:
        """Estimated net effect (m,) at raw covariates X (m, k), each record by itself."""
        rows = self.public.features(X)
        if self.public.intercept:
            rows = rows[:, 1:]
        if self.covariate_mean:
            rows = rows - np.array(self.covariate_mean)
        rows = clip_norm(rows * np.array(self.covariate_scale), self.covariate_norm)
        if self._ends is not None:
            rows = np.clip(rows, *self._ends)
        return Rows.POOLED.predict(self.theta, rows, 0.0)

    @property
    def _ends(self) -> tuple[Array, Array] | None:
        """The box (k,) that records are clipped to in the end; None without ranges."""
        ends = self.public.space.ends(len(self.columns))
        if ends is None or not self.covariate_mean:
            return ends
        return ends[0] - ends[1], ends[1] - ends[0]

    @property
    def own_units(self) -> OwnUnits | None:
        """Theta in the covariates' own units.

        None without ranges, and where there is no record that it surely holds for.
        """
        domain = self.public
        if domain.ranges is None:
            return None
        scale = np.array(self.covariate_scale)
        norm = self.covariate_norm / float(np.max(scale))
        slopes = dict(enumerate((scale * self.theta[1:]).tolist()))
        if self.covariate_mean:
            norm = min(norm, self._room_around_mean)
            if norm <= 0.0:
                # Noise took the mean beyond what the domain leaves as it is.
                return None
            wide = max(domain.covariate_bound, math.hypot(domain.intercept, norm))
            domain = replace(domain, covariate_bound=wide, center=self.middles)
        if self._ends is not None and np.any(scale != 1.0):
            norm = min(norm, float(np.min(np.abs(self._ends) / scale)))
        return own_units(domain, self.columns, slopes, self.theta[0], norm)

    @property
    def _room_around_mean(self) -> float:
        """How far a record may lie from the mean before the domain shrinks it.

        The domain shrinks records around its own center, and before the mean is subtracted;
        ``inf`` where it shrinks none.
        """
        domain = self.public
        if domain.center is None:
            assert domain.ranges is not None
            farthest = norm_within(domain.ranges, domain.codebook)
        else:
            farthest = math.hypot(*domain.space.widths(len(self.columns)) or ())
        if domain.features_bound >= farthest:
            return math.inf
        return domain.features_bound - math.hypot(*self.covariate_mean)

    @property
    def middles(self) -> tuple[float, ...]:
        """The raw covariates (k,) that count as 0, within the ranges.

        They are what scales to the released mean.
        """
        pairs = self.public.range_pairs
        means = self.covariate_mean or (0.0,) * len(pairs)
        middles = []
        for (low, high), middle, mean in zip(
            pairs, self.public.middles(len(pairs)), means, strict=True
        ):
            middles.append(min(max(middle + mean * (high / 2 - low / 2), low), high))
        return tuple(middles)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per coordinate of theta."""
        fields = {
            "noise_effect": self.noise_effect,
            "flipped_share": self.flipped_share,
            **self.cost(),
        }
        fields |= {f"gain over {gain.over}": gain.estimate for gain in self.gains}
        named = zip(self.parameters, self.theta, self.noise_half_width, strict=True)
        rows = [
            {"parameter": name, "value": value, "noise_half_width": width, **fields}
            for name, value, width in named
        ]
        return beside(rows, self)


def make_rule(
    plan: Plan[RuleStudy],
    released: Mapping[str, Array],
    columns: tuple[str, ...],
    guarantee: Guarantee,
) -> RuleRelease:
    """State what a run of a plan ``released``, by step, under its ``guarantee``."""
    study = plan.study
    theta = tuple(float(value) for value in released[plan.main.name])
    sums = tuple(int(number) for number in released.get("value", ()))
    noise = rule_noise(plan, theta, released)
    mean: tuple[float, ...] = ()
    mean_step = plan.step("mean")
    if isinstance(mean_step, CovariateMean):
        mean = tuple(mean_step.mean(released).tolist())
    scale = np.ones(len(columns))
    square = plan.step("spread")
    if isinstance(square, MeanSquare):
        scale = square.size(released)[2]
    narrow: tuple[str, ...] = ()
    if not study.settings.propensity_is_public:
        narrow = narrow_columns(square, columns, released)
    return RuleRelease(
        theta=theta,
        parameters=Rows.POOLED.names(columns),
        noise_half_width=tuple(noise.half_width.tolist()),
        noise_effect=noise.effect,
        flipped_share=noise.flipped_share,
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        nuisances=tuple(
            state_coefficient(step, released[step.name], columns, study.universe.domain)
            for step in plan.steps
            if step.name not in ("rule", "value")
        ),
        settings=_settings(study),
        domain=study.universe.domain.to_dict(),
        declared=declaration_of(plan),
        gains=tuple(gains(plan, released, sums)) if sums else (),
        released=sums,
        residual_bias=residual_bias(plan),
        covariate_mean=mean,
        covariate_norm=study.norm_bound,
        covariate_scale=tuple(scale.tolist()),
        narrow=narrow,
    )


def _settings(study: RuleStudy) -> dict[str, Any]:
    """The settings in force, with the public guesses."""
    settings = asdict(study.settings)
    if isinstance(settings["propensity"], tuple):
        settings["propensity"] = list(settings["propensity"])  # as JSON has it
    return {
        **settings,
        "outcome_scale": study.scale,
        "expected": list(study.expected),
        "mass": study.mass,
    }


def gains(
    plan: Plan[RuleStudy], released: Mapping[str, Array], sums: tuple[int, ...]
) -> Iterator[RuleGain]:
    """What the rule is worth over treating nobody and over treating everybody, from one release.

    Each mean has the second moment of both, which is at least its own. A rule that is fitted to the
    same records looks better than it is, by up to a public bound (page "Private rules"). Half of
    the bound is taken off a gain, and its interval allows for the other half. Where records may not
    count, both are of those that do.

    Parameters
    ----------
    plan
        What was run.
    released
        Released numbers of every step.
    sums
        Released sums: of both gains, and of their common second moment.
    """
    step = plan.step("value")
    assert isinstance(step, EffectScore)
    assert step.calibration.law is SumLaw.CONTRASTS
    # The common second moment is at least that of either mean.
    alone = replace(step.calibration, law=SumLaw.SCORE)
    widening = step.at(step.universe, released).widening
    spread = plan.step("spread")
    assert spread is None or isinstance(spread, MeanSquare)
    counts = _counts_of_sides(plan)
    part = 1.0
    if counts is not None:
        n_samples = counts.universe.n_samples
        part = min(max(float(counts.shares(released).sum()), 1.0 / n_samples), 1.0)
    # How much better the rule looks on the records that it was fitted to, in deviations, at most.
    better = math.sqrt(len(released["rule"]) / (2.0 * math.pi * step.universe.n_samples))
    *means, square = sums
    for over, mean, treats in zip(_OTHERS, means, (True, False), strict=True):
        uncorrected = score_interval(alone, (mean, square), 0.0, widening=widening)
        deviation = uncorrected.standard_deviation / math.sqrt(part)
        error = value_error(step, plan.study.residuals, spread, released, deviation, treats=treats)
        half_better = 0.5 * uncorrected.standard_deviation * better
        error = replace(error, bias=error.bias + half_better)
        if part < 1.0:
            assert counts is not None
            noise_of_part = 2.0 * math.sqrt(counts.predicted_error)
            relative = noise_of_part / (part * counts.universe.n_samples)
            error = replace(error, noise=math.hypot(error.noise, relative * uncorrected.estimate))
        interval = score_interval(
            alone, (mean, square), -half_better, widening=widening, error=error
        )
        yield RuleGain(over, interval.estimate / part, EffectInterval.of(interval, 1.0 / part))


def _counts_of_sides(plan: Plan[RuleStudy]) -> SideCounts | None:
    """The step that counts by side of the rule, where it says which part of the records counts."""
    counts = plan.step("sides")
    if isinstance(counts, SideCounts) and counts.universe.space.weighted:
        return counts
    return None


def effects(release: Release | RuleRelease, X: Any) -> Array:
    """Estimated net effect (m,) for raw covariates X, in units of the outcome.

    X is (m, k) with the columns of the release in their order, or a data frame, coded, scaled and
    clipped as in the fit; but where a column has none of its levels, they count by their mean.
    Raises DataError for other columns, DeclarationError for a release that is none.
    """
    rows = rows_to_predict(release.public, X, release.columns)
    if isinstance(release, RuleRelease):
        return release.effects_at(rows)
    second, domain = rule_of(release)
    return second.effect(np.array(release.theta), domain.space, rows)


def recommend(release: Release | RuleRelease, X: Any) -> NDArray[np.int64]:
    """Recommended treatment (m,), 1 where the effect is positive.

    Raises as :func:`effects` does.
    """
    if isinstance(release, RuleRelease):
        return (effects(release, X) > 0).astype(np.int64)
    rows = rows_to_predict(release.public, X, release.columns)
    second, domain = rule_of(release)
    return second.choices(np.array(release.theta), domain.space, rows)
