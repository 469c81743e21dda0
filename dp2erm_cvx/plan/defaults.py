"""Settings where nothing is declared: public rules of use in n, epsilon and the covariates."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, Array
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.limits import FAR
from dp2erm_cvx.plan.declared import DeclaredEffect, DeclaredQuestion
from dp2erm_cvx.plan.settings import EffectSettings, RuleSettings
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.covariates import (
    ArmMeans,
    CovariateLaw,
    CovariateMean,
    DifferenceSquare,
    MeanSquare,
)
from dp2erm_cvx.steps.nuisances import LEFT, Confounding, RidgeFit, StretchedErrors, TwoValues
from dp2erm_cvx.steps.record_map import Arms, Balance, Rows
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.step import Step

#: The curvature of a logistic regression, e (1 - e), of a propensity that nothing is known about.
_VARIANCE = 0.2
#: F where none is declared; a larger one says that overlap is poor.
CAP = 10.0
#: Norm that the outcome regression scales covariates to, so that their declared units do not
#: matter.
NORM = 3.0
#: Share of the budget for the mean of covariates, where it is released.
MEAN_SHARE = 0.06
#: Least share of the budget for their mean square.
SPREAD_SHARE = 0.03
#: The part of the share of means by arm that the mean square along their difference takes.
ALONG_SHARE = 0.25
#: Least and largest share of the budget for mean squares that are released one by one.
EACH_SHARES = (0.06, 0.12)
#: Noise that such a share leaves each of them, over its guess; a little more where the share is the
#: largest.
EACH_NOISE = 0.25
#: The mean of covariates is released where its noise is at most this, two thirds of their standard
#: deviation.
MEAN_NOISE = 2.0 / 9.0
#: n epsilon from which on common events have a loss that hardly saturates.
MANY = 80_000.0
#: n epsilon per covariate from which on a logistic propensity is tried where a constant one may do:
#: it costs nothing there where outcomes are linear, and saves some bias where they are not.
FEW = 800.0
#: What an interval adds to the second moment of a score for its noise, in bounds times scales of
#: the mean: at a level of .95 it is exceeded once in 400.
MARGIN = 2.0 * math.log(200.0)
#: What the error of a logistic propensity is multiplied by: first order flatters it where arms lie
#: far apart.
OPTIMISM = 1.5
#: n times the epsilon of the scale of the outcome: with so much its counts hold for one record in a
#: few hundred of any law that was tried (measured).
SCALE_TOTAL = 100.0
#: Least and largest share of the budget for the scale of the outcome.
SCALE_SHARES = (0.03, 0.1)
#: M_r in standard deviations of the outcome, where nobody says what law residuals have: costs and
#: durations are long on one side, and what is cut there is missing in the effect (measured).
UNKNOWN = 4.0
#: Share of the budget of a logistic propensity that somebody declares where the rule has none.
LOGISTIC_SHARE = 0.2
#: The rate of the smaller arm that shares are chosen for.
RATE = 1.0 / 3.0
#: n epsilon per column from which a center pays, whatever is expected.
CENTER_FROM = 50.0
#: The same for a propensity.
PROPENSITY_FROM = 150.0
#: The largest noise of a mean of covariates that a rule subtracts, a third of their guessed
#: deviation: a noisier one costs more decisions than covariates off their middle do.
RULE_MEAN_NOISE = 1.0 / 9.0
#: Norm bound that the outcome regression of a rule scales covariates to, so that their declared
#: units do not matter. The mean outcome is far from its public center more often than the mean
#: effect is from 0: a center keeps more of its intercept than a rule does.
CENTER_NORM = 1.6
#: The same for the rule.
RULE_NORM = 2.4
#: What may be expected of the population in advance.
EXPECTATIONS = ("main effect", "confounding")


def effect_rule(
    study: DeclaredEffect,
    epsilon: float,
    smaller_rate: float,
    *,
    propensity_is_public: bool,
    planned: EffectSettings | None = None,
) -> EffectSettings:
    """The default settings of an effect: those of the least predicted mean squared error.

    They follow from public quantities alone.

    Parameters
    ----------
    study
        What is declared.
    epsilon
        What the shares are shares of.
    smaller_rate
        Rate of the smaller arm.
    propensity_is_public
        Whether the propensity is declared: nothing is confounded then, and no mean is worth its
        price.
    planned
        Settings from before the scale of the outcome was released, whose shares and kind of
        propensity stay; None where nothing is released before.
    """
    universe = study.universe
    kind = study.kind
    n_epsilon = universe.mass * universe.n_samples * epsilon
    law, norm, is_centered = covariate_rule(
        universe, n_epsilon, mean_may_pay=not propensity_is_public
    )
    n_groups = max(len(universe.domain.groups), 1)
    clips = _outcome_clips(study, n_epsilon)
    rate_share = _rate_share(n_groups, n_epsilon)
    square_share = spread_share(law, n_epsilon)
    share_left = 1.0
    if not propensity_is_public:
        share_left -= rate_share
    share_left -= square_share
    if is_centered:
        share_left -= MEAN_SHARE
    request = Request(
        kind=kind,
        n_samples=n_epsilon / epsilon,
        n_features=universe.n_features,
        epsilon=epsilon,
        deviation=clips.deviation,
        slope=clips.slope,
        law=law,
        norm_bound=norm,
        residual_bound=clips.symmetric_bound,
        confounding=Confounding(0.0) if propensity_is_public else study.assumed,
        two_values=clips.two_values,
        groups=n_groups,
        rate=smaller_rate,
    )
    if planned is not None:
        center_share = planned.center_share
        logistic_share = planned.propensity_share if planned.propensity == "logistic" else 0.0
    else:
        tried = (0.0,) if propensity_is_public else _propensities(study, n_epsilon)
        center_share, logistic_share = _best_shares(request, share_left, tried)
    regression = request.regression(center_share)
    is_logistic = logistic_share > 0.0
    return EffectSettings(
        rows=kind.rows,
        arms=regression.arms,
        noise_ratio=regression.noise_ratio,
        slope=clips.slope,
        norm_bound=norm,
        mean_share=MEAN_SHARE if is_centered else None,
        spread_share=square_share,
        rate_share=rate_share,
        propensity="logistic" if is_logistic else "constant",
        radius=12.0,
        split=0.85,
        center_share=center_share,
        propensity_share=logistic_share if is_logistic else LOGISTIC_SHARE,
        cap=CAP,
        residual_bound=clips.residual_bound,
        score_bound=kind.bound_over_clip[is_logistic] * clips.residual_bound,
    )


@dataclass(frozen=True)
class _OutcomeClips:
    """Scale and clips of residuals, all in units of the outcome.

    Parameters
    ----------
    deviation
        Guess of their standard deviation.
    slope
        c of the saturating loss.
    residual_bound
        M_r, which residuals are clipped to.
    symmetric_bound
        M_r of symmetric residuals, which predictions of errors rest on. Clips that are wide for
        long tails are no reason to do without a propensity, which they make dearer.
    two_values
        Both values of an outcome that has no others, at this slope.
    """

    deviation: float
    slope: float
    residual_bound: float
    symmetric_bound: float
    two_values: TwoValues | None


def _outcome_clips(study: DeclaredEffect, n_epsilon: float) -> _OutcomeClips:
    """Scale and clips of residuals at this n epsilon."""
    bound = study.universe.domain.outcome_bound
    deviation = study.scale
    values = study.two_values
    if values is not None:
        deviation = min(deviation, 0.5 * values.width)
        slope = saturation(values.width, deviation, n_epsilon)
        bent = replace(values, slope=slope)
        return _OutcomeClips(deviation, slope, values.width, values.width, bent)
    # An outcome that cannot lie two deviations off its center has no tails, and a bent loss would
    # bend its lines.
    slope = deviation if deviation <= 0.5 * bound else 2.0 * bound
    symmetric_bound = min(study.kind.residuals * deviation, 2.0 * bound)
    residual_bound = symmetric_bound
    if not study.declares_scale:
        residual_bound = min(max(study.kind.residuals, UNKNOWN) * deviation, 2.0 * bound)
    return _OutcomeClips(deviation, slope, residual_bound, symmetric_bound, None)


def _rate_share(n_groups: int, n_epsilon: float) -> float:
    """Share of the budget for the rate of treatment at this n epsilon.

    In groups there are two sums of each, and an outcome that may lie off the common regression.
    """
    needed = 40.0 if n_groups == 1 else 120.0 * n_groups
    return max(0.02, min(0.1, needed / n_epsilon))


def _propensities(study: DeclaredEffect, n_epsilon: float) -> tuple[float, ...]:
    """Shares of a logistic propensity that are tried at this n epsilon, 0 for a constant one."""
    shares = study.kind.propensities
    if 0.0 not in shares or len(shares) == 1:
        return shares
    if n_epsilon < FEW * study.universe.n_features:
        return (0.0,)
    # Weights take the place of either propensity; and as probabilities are no lines, a regression
    # alone errs more where an outcome has two values.
    if study.confounding < FAR or study.weights is not None or study.two_values is not None:
        return shares
    if study.declared.get("propensity") == "logistic":
        return tuple(share for share in shares if share > 0.0)
    return (0.0,)


def _best_shares(
    request: Request, share_left: float, logistic_shares: Sequence[float]
) -> tuple[float, float]:
    """Shares of the outcome regression and of a propensity with the least predicted error.

    Parameters
    ----------
    request
        What that error depends on.
    share_left
        Share for outcome regression, propensity and score together; the score keeps a twentieth of
        it at least.
    logistic_shares
        Shares of a logistic propensity to choose from, 0 for a constant one.
    """
    errors: dict[tuple[float, float], float] = {}
    for center_share in np.arange(0.1, 0.95, 0.05).tolist():
        regression = request.regression(center_share)
        for logistic_share in logistic_shares:
            if center_share + logistic_share < 0.95 * share_left:
                score_share = share_left - center_share - logistic_share
                error = effect_error(request, regression, score_share, logistic_share)
                errors[center_share, logistic_share] = error
    return min(errors, key=errors.__getitem__)


def rule_of_use(
    universe: Universe, budget: Budget, outcome_scale: float | None, expected: Collection[str] = ()
) -> RuleSettings:
    """The default settings of a rule, from public quantities alone.

    With k records times epsilon per column, the constant counted: below ``CENTER_FROM`` nothing but
    the rule, unless a main effect or confounding is expected; then a center; from
    ``PROPENSITY_FROM`` on a propensity as well, with matching factors. The study of rules says what
    this gains and what it costs.

    Parameters
    ----------
    universe
        The datasets that the guarantee is about.
    budget
        What may be spent on them.
    outcome_scale
        Public guess of the standard deviation of the outcome, in its units; None: a third of its
        bound.
    expected
        What is expected of the population, of ``EXPECTATIONS``.

    Raises
    ------
    DeclarationError
        For another expectation.
    """
    for fact in expected:
        if fact not in EXPECTATIONS:
            raise DeclarationError(f"expected = {fact!r}: must be one of {', '.join(EXPECTATIONS)}")
    domain = universe.domain
    scale = domain.outcome_bound / 3.0 if outcome_scale is None else outcome_scale
    n_columns = universe.n_features + 1
    n_epsilon_of_column = universe.mass * universe.n_samples * budget.epsilon / n_columns
    with_propensity = n_epsilon_of_column >= PROPENSITY_FROM
    with_center = with_propensity or n_epsilon_of_column >= CENTER_FROM or bool(expected)
    n_epsilon = n_epsilon_of_column * n_columns
    law, norm_bound, with_mean = covariate_rule(
        universe,
        n_epsilon,
        RULE_MEAN_NOISE,
        mean_may_pay=with_propensity and not domain.uneven,
    )
    if domain.ranges is None:
        # A declared norm is that of the records, and no corner of a box.
        norm_bound = domain.features_bound
    center_share = None
    propensity_share = 0.15
    square_share = None
    if with_propensity:
        square_share = spread_share(law, n_epsilon)
        # Center and propensity pay for a larger share of the mean square: a smaller rest costs
        # decisions.
        half_of_excess = 0.5 * (square_share - SPREAD_SHARE)
        center_share = 0.3 - half_of_excess
        propensity_share = 0.15 - half_of_excess
    elif with_center:
        center_share = 0.4
    width = 2.0 * domain.outcome_bound
    if domain.binary_outcome:
        # Residuals of an event are longer on one side: no clip cuts them.
        residual_bound = width
        score_bound = 2.0 * width
    else:
        residual_bound = min(2.8 * scale, width)
        score_bound = 4.2 * scale
    return RuleSettings(
        center_share=center_share,
        propensity="logistic" if with_propensity else None,
        propensity_share=propensity_share,
        balance=Balance.MATCHING,
        cap=10.0,
        center_slope=0.35 * scale,
        slope=0.7 * scale,
        center_norm=CENTER_NORM,
        norm=RULE_NORM,
        radius=3.3,
        split=0.85,
        residual_bound=residual_bound,
        score_bound=score_bound,
        norm_bound=norm_bound,
        mean_share=MEAN_SHARE if with_mean else None,
        spread_share=square_share,
    )


def default_scale(bound: float, two_values: TwoValues | None) -> float:
    """The standard deviation of residuals where none is declared, in units of the outcome.

    It is half of the outcome bound, or of the distance of ``two_values``, which is the largest
    there. It is also the largest that is released: clips of four such deviations cut nothing.
    """
    if two_values is None:
        return 0.5 * bound
    return 0.5 * two_values.width


def scale_share(n_epsilon: float) -> float | None:
    """Share of the budget for the scale of the outcome; None where n epsilon leaves it to noise."""
    least, most = SCALE_SHARES
    if most * n_epsilon < SCALE_TOTAL:
        return None
    return max(SCALE_TOTAL / n_epsilon, least)


def prevalence(deviation: float) -> float:
    """The share q, at most 1/2, of an event whose indicator has the deviation ``sqrt(q (1-q))``."""
    return 0.5 * (1.0 - math.sqrt(max(1.0 - 4.0 * deviation**2, 0.0)))


def saturation(width: float, deviation: float, n_epsilon: float) -> float:
    """C of the saturating loss for an outcome of two values, in units of the outcome.

    A small c has less noise, a large one less bias where probabilities are no lines (measured).

    Parameters
    ----------
    width
        Distance of both values, in units of the outcome.
    deviation
        Guess of the standard deviation, in units of the outcome.
    n_epsilon
        n epsilon.
    """
    # A share that is declared as .1 or .3 counts as that, whatever its deviation was rounded to.
    share = prevalence(min(deviation / width, 0.5)) * ROUND_UP_SUMS
    if share <= 0.1 * (1.0 + 1e-6):
        return 0.2 * width
    if share >= 0.3 and n_epsilon >= MANY:
        return width
    return 0.45 * width


def covariate_rule(
    universe: Universe,
    n_epsilon: float,
    largest_noise: float = MEAN_NOISE,
    *,
    mean_may_pay: bool = True,
) -> tuple[CovariateLaw, float, bool]:
    """What is guessed of the covariates, the norm that they are shrunk to, whether their mean pays.

    Parameters
    ----------
    universe
        The datasets that the guarantee is about.
    n_epsilon
        n epsilon.
    largest_noise
        Largest noise of a mean that pays, in scaled covariates.
    mean_may_pay
        Whether a mean is worth any of the budget, where its noise allows.

    Returns
    -------
    CovariateLaw
        Guessed law of the scaled covariates.
    float
        Norm that they are shrunk to.
    bool
        Whether their mean is released and subtracted.
    """
    domain = universe.domain
    p = universe.n_features
    law = CovariateLaw.of(domain, p)
    noise = _mean_noise(universe, law, MEAN_SHARE * n_epsilon)
    is_centered = mean_may_pay and noise <= largest_noise
    if is_centered:
        law = replace(law, offsets=(noise,) * p)
    norm = law.quantile(0.95) * max(1.0, (n_epsilon / (800.0 * p)) ** 0.25)
    largest_norm = domain.features_bound
    if is_centered and domain.ranges is not None:
        # Less their mean, covariates may be twice as long.
        largest_norm = domain.features_bound * 2.0
    return law, min(norm, largest_norm), is_centered


def _mean_noise(
    universe: Universe, law: CovariateLaw, n_epsilon: float, *, by_arm: bool = False
) -> float:
    """Standard deviation of the noise of the mean of a covariate, at this n epsilon of the step.

    The mean may be of sums ``by_arm``, as that of more than two arms always is.
    """
    low, high = law.box(universe)
    n_arms = len(universe.domain.arms)
    if n_arms == 2 and not by_arm:
        return math.sqrt(2.0) * float(np.sum(high - low)) / n_epsilon
    block = 1 + universe.n_features
    of_one_sum = 2.0 / n_epsilon * math.sqrt((block + 1) * (block + 2) / 3.0)
    return of_one_sum * math.sqrt(n_arms * float(np.mean(np.square(0.5 * (high - low)))))


def spread_share(law: CovariateLaw, n_epsilon: float) -> float:
    """Share of the mean square at this n epsilon, larger where that of every number is worth it."""
    needed = _each_noise(law) / (EACH_NOISE * n_epsilon)
    least, most = EACH_SHARES
    if 0.0 < needed <= 1.2 * most:
        return min(max(least, needed), most)
    return SPREAD_SHARE


def _each_noise(law: CovariateLaw) -> float:
    """Noise of the mean square of each number over its guess (standard deviation), at n epsilon 1.

    It falls in proportion to n epsilon.
    """
    return 9.0 * math.sqrt(2.0) * len(law.numbers)


def placing(
    study: DeclaredQuestion, norm: float, epsilon: float, *, by_arm: bool = False
) -> tuple[Universe, list[Step]]:
    """The universe of the first step, and the steps that center and scale covariates.

    Covariates are first shrunk to up to three times the norm, so that those which are larger than
    guessed lose nothing; where one mean square stands for all, its noise sets the limit. That of
    every number is released where its noise is a third of a guess at most.

    Parameters
    ----------
    study
        What is declared.
    norm
        Norm that the steps bring covariates to.
    epsilon
        What the shares of the steps are shares of.
    by_arm
        Whether means by arm are of use: sums of both arms are then released in the place of those
        of all, where their noise is no larger than that of a mean that pays.
    """
    universe = study.universe
    mean_share = study.settings.mean_share
    square_share = study.settings.spread_share
    first_norm = norm
    steps: list[Step] = []
    if square_share is not None:
        n_epsilon = square_share * epsilon * universe.mass * universe.n_samples
        numbers = study.law.numbers
        if 3.0 * _each_noise(study.law) > n_epsilon:
            numbers = ()
        first_norm = _first_norm(study, norm, n_epsilon, by_number=bool(numbers))
        steps.append(MeanSquare(share=square_share, law=study.law, norm=norm, numbers=numbers))
    if mean_share is None:
        return universe.shrunk(first_norm), steps
    kind = _kind_of_mean(study, mean_share, epsilon, by_arm)
    mean = kind(share=mean_share, noise=study.noise, law=study.law, norm=first_norm)
    return universe, [mean, *steps]


def _first_norm(
    study: DeclaredQuestion, norm: float, n_epsilon: float, *, by_number: bool
) -> float:
    """Norm that covariates are shrunk to before their mean square is released.

    Parameters
    ----------
    study
        What is declared.
    norm
        Norm that the steps bring covariates to.
    n_epsilon
        n epsilon of the mean square.
    by_number
        Whether that of every number is released.
    """
    times = 3.0
    if not by_number:
        times = min(max(math.sqrt(n_epsilon / 48.0), 1.0), 3.0)
    largest_norm = study.universe.domain.features_bound
    if study.settings.mean_share is not None:
        # Less their mean, covariates may be twice as long.
        largest_norm = largest_norm * 2.0
    return max(min(norm * times, largest_norm), norm)


def _kind_of_mean(
    study: DeclaredQuestion, mean_share: float, epsilon: float, by_arm: bool
) -> type[CovariateMean]:
    """The step that releases the mean: by arm for more than two arms, or where that is of use."""
    universe = study.universe
    if len(universe.domain.arms) > 2:
        return ArmMeans
    if not by_arm:
        return CovariateMean
    # How far arms lie apart is what the interval needs.
    n_epsilon = mean_share * epsilon * universe.mass * universe.n_samples
    noise = _mean_noise(universe, study.law, (1.0 - ALONG_SHARE) * n_epsilon, by_arm=True)
    return ArmMeans if noise <= MEAN_NOISE else CovariateMean


def with_difference(steps: list[Step]) -> list[Step]:
    """Steps that place covariates, with the mean square along the difference of two arms at last.

    It follows where means by arm are released of more than one covariate, and takes a part of their
    share.
    """
    arm_means = next((step for step in steps if isinstance(step, ArmMeans)), None)
    if arm_means is None or len(arm_means.law.spreads) == 1:
        return steps
    share = arm_means.share or 0.0
    cheaper = replace(arm_means, share=(1.0 - ALONG_SHARE) * share)
    along = DifferenceSquare(share=ALONG_SHARE * share, noise=arm_means.noise, law=arm_means.law)
    placed: list[Step] = [cheaper if step is arm_means else step for step in steps]
    return [*placed, along]


def smaller_arm(rate: float | None) -> float:
    """Rate of the smaller arm at this probability of treatment; a guess where that is None."""
    if rate is None:
        return RATE
    return min(rate, 1.0 - rate)


def planned_fit(
    n: float, columns: int, epsilon: float, slope: float, norm: float, rows: Rows
) -> RidgeFit:
    """The outcome regression that this ``epsilon`` is predicted to buy, where arms count alike.

    Parameters
    ----------
    n
        What all records count together.
    columns
        Coefficients of the regression.
    epsilon
        Budget of the step.
    slope
        c of its loss, in units of the outcome.
    norm
        Norm bound of the scaled covariates.
    rows
        Rows of the regression.
    """
    square = 1.0 + NORM**2
    gamma = 2.0 * square / (n * epsilon)
    noise = 2.0 * math.sqrt(square * (columns + 1)) * slope / epsilon
    return RidgeFit(gamma, noise, n, slope, NORM / norm, Arms.ALIKE, rows)


@dataclass(frozen=True)
class Request:
    """Public quantities that the predicted error of an effect depends on.

    Parameters
    ----------
    kind
        Class of the score.
    n_samples
        What all records count together.
    n_features
        Number p of the covariates.
    epsilon
        What the shares are shares of.
    deviation
        Standard deviation of residuals, in units of the outcome.
    slope
        c of the loss of the outcome regression, in units of the outcome.
    law
        Law of the scaled covariates.
    norm_bound
        Norm that they are shrunk to.
    residual_bound
        M_r, in units of the outcome.
    confounding
        What is assumed of both arms.
    two_values
        Both values of an outcome that has no others.
    groups
        Number of groups, in each of which the effect is estimated.
    rate
        Rate of the smaller arm.
    rows
        Rows of the outcome regression; None for those of the score.
    """

    kind: type[EffectScore]
    n_samples: float
    n_features: int
    epsilon: float
    deviation: float
    slope: float
    law: CovariateLaw
    norm_bound: float
    residual_bound: float
    confounding: Confounding
    two_values: TwoValues | None = None
    groups: int = 1
    rate: float = RATE
    rows: Rows | None = None

    def regression(self, center: float) -> RidgeFit:
        """Regression of the outcome at the share ``center``, at arm weights of least error."""
        rows = self.rows or self.kind.rows
        fit = planned_fit(
            n=self.n_samples,
            columns=len(rows.constants(self.n_features)),
            epsilon=center * self.epsilon,
            slope=self.slope,
            norm=self.norm_bound,
            rows=rows,
        )
        if self.two_values is not None:
            fit = replace(fit, curvatures=(self.two_values.curvature(self.level),) * 2)
        arms = self.kind.arms
        if rows is not self.kind.rows:
            return fit
        if arms is not Arms.BALANCED or rows is not Rows.COMMON:
            return replace(fit, arms=arms)
        varying = self.confounding.typical * self.deviation
        if varying == 0.0:
            return fit
        noise = fit.errors(self.spread, self.deviation, 0.5, self.confounding.within(0.5))[1]
        return replace(fit, arms=arms, noise_ratio=min(float(noise[0, 0]) / varying, 1.0))

    def slope_errors(self, regression: RidgeFit) -> StretchedErrors:
        """Predicted errors of the slopes of a regression, before an event's loss is unbent."""
        within = self.confounding.within(self.rate)
        return regression.stretched_errors(self.spread, self.deviation, self.rate, within)

    def noise_in_residuals(self, center: float) -> float:
        """Root mean square of what noise of the regression adds to residuals of an arm."""
        noise = self.slope_errors(self.regression(center)).noise
        return math.sqrt(self.n_features + 1) * float(np.max(noise))

    def log_odds_error(self, share: float) -> float:
        """Error of a logistic propensity at this share of the budget, along the distance of arms.

        It is to first order, multiplied by ``OPTIMISM``: what ridge takes of the distance, and
        noise.
        """
        spread = float(self.spread[0])
        square = 1.0 + self.norm_bound**2
        paid = share * self.epsilon
        ridge = square / (0.3 * self.n_samples * paid)
        curvature = _VARIANCE * spread**2 + ridge
        p = self.n_features
        noise = math.sqrt(p * square * (p + 2)) / (0.65 * paid) * spread
        noise = noise / (self.n_samples * curvature)
        shrunk = ridge / curvature * self.confounding.distance
        return OPTIMISM * math.hypot(shrunk, noise)

    @cached_property
    def spread(self) -> Array:
        """Root mean square of one scaled covariate (1,) under the norm bound."""
        factor = self.law.mean_square(1.0, self.norm_bound)
        return np.full(1, self.norm_bound * math.sqrt(factor / self.n_features))

    @property
    def level(self) -> float:
        """Where the regression of an outcome of two values is guessed to lie, by its deviation."""
        assert self.two_values is not None
        low, width = self.two_values.low, self.two_values.width
        return self.two_values.bent(low + width * prevalence(self.deviation / width))


def effect_error(
    request: Request, regression: RidgeFit, score_share: float, logistic_share: float
) -> float:
    """The mean squared error of an effect, in squared units of the outcome, to first order.

    It adds up what sampling does, the noise of the score, noise and ridge of an outcome regression
    that spreads as far as its residuals, and effects that vary.

    Parameters
    ----------
    request
        What is declared and guessed.
    regression
        The outcome regression that its share of the budget buys (:meth:`Request.regression`).
    score_share
        Share for the score.
    logistic_share
        Share for a logistic propensity; 0 for a constant one.
    """
    kind = request.kind
    rate = request.rate
    sigma = request.deviation
    errors = request.slope_errors(regression)
    if request.two_values is not None:
        steepness = request.two_values.steepness(request.level)
        errors = errors._replace(noise=errors.noise * steepness)
    # How far the arms lie apart where the propensity does not say so.
    distance = request.confounding.distance
    if logistic_share:
        distance = request.log_odds_error(logistic_share)

    # How much larger the bound of the score is than by a constant propensity: ``bound_over_clip``
    # is that at a rate of one half for scores that divide by it.
    widening = kind.bound_over_clip[bool(logistic_share)] / kind.bound_over_clip[0]
    score_scale = 2.0 * widening * kind.price * request.residual_bound / rate
    score_scale *= request.groups / (request.n_samples * score_share * request.epsilon)
    by_arm = regression.rows is Rows.ARMS
    noise_of_score = 2.0 * (1.0 + by_arm) * score_scale**2
    sampling = _sampling_error(request, errors, distance, widening, score_scale)

    # What is wrong with slopes of controls (first) matters for the treated, and vice versa.
    parts = np.array([[rate], [1.0 - rate]]) if by_arm else np.ones((1, 1))
    noise_of_slopes = float(np.sum((parts * errors.noise * distance) ** 2))
    leaning = regression.leaning(rate, kind.wanted(rate))
    varying_effects = (leaning * request.confounding.typical * sigma * distance) ** 2
    missing_slopes = np.maximum(LEFT * errors.shrunk, errors.missing)
    confounding_left = parts * missing_slopes * distance * sigma
    bias = float(np.sum(confounding_left)) ** 2
    return sampling + noise_of_score + noise_of_slopes + varying_effects + bias


def _sampling_error(
    request: Request,
    errors: StretchedErrors,
    distance: float,
    widening: float,
    score_scale: float,
) -> float:
    """What sampling adds to the mean squared error of an effect, in squared units of the outcome.

    Parameters
    ----------
    request
        What is declared and guessed.
    errors
        Predicted errors of the slopes of the outcome regression.
    distance
        How far arms lie apart where the propensity does not say so, in standard deviations.
    widening
        The bound of the score over that by a constant propensity.
    score_scale
        Scale of the noise of the mean score, in units of the outcome.
    """
    n = request.n_samples
    rate = request.rate
    sigma = request.deviation
    # Errors of the regression stay in the residuals that are weighted.
    slope_errors = request.n_features * errors.noise**2 + (errors.missing * sigma) ** 2
    residuals = sigma**2 + float(np.mean(slope_errors))
    weighted = request.groups * residuals / (rate * (1.0 - rate))
    sampling = (weighted + distance**2 * sigma**2) / n
    # An interval pays for the noise of the second moment as well, at 2B times that of the mean.
    return sampling + MARGIN * widening * request.residual_bound / rate * score_scale / n
