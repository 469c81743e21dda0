"""Settings where nothing is declared: public rules of use in n, epsilon and the covariates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.arrays import Array
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
    smaller: float,
    *,
    known: bool,
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
    smaller
        Rate of the smaller arm.
    known
        Whether the propensity is public: nothing is confounded then, and no mean is worth its
        price.
    planned
        Settings from before the scale of the outcome was released, whose shares and kind of
        propensity stay; None where nothing is released before.
    """
    universe = study.universe
    kind = study.kind
    total = universe.mass * universe.n_samples * epsilon
    law, norm, centered = covariate_rule(universe, total, worth=not known)
    n_groups = max(len(universe.domain.groups), 1)
    clips = _outcome_clips(study, total)
    rate_share = _rate_share(n_groups, total)
    square_share = spread_share(law, total)
    left = 1.0
    if not known:
        left -= rate_share
    left -= square_share
    if centered:
        left -= MEAN_SHARE
    request = Request(
        kind=kind,
        n_samples=total / epsilon,
        n_features=universe.n_features,
        epsilon=epsilon,
        deviation=clips.deviation,
        slope=clips.slope,
        law=law,
        norm_bound=norm,
        residual_bound=clips.symmetric_bound,
        confounding=Confounding(0.0) if known else study.assumed,
        two_values=clips.two_values,
        groups=n_groups,
        rate=smaller,
    )
    if planned is None:
        tried = (0.0,) if known else _propensities(study, total)
        center, propensity = _best_shares(request, left, tried)
    else:
        center = planned.center_share
        propensity = planned.propensity_share if planned.propensity == "logistic" else 0.0
    regression = request.regression(center)
    return EffectSettings(
        rows=kind.rows,
        arms=regression.arms,
        noise_ratio=regression.noise_ratio,
        slope=clips.slope,
        norm_bound=norm,
        mean_share=MEAN_SHARE if centered else None,
        spread_share=square_share,
        rate_share=rate_share,
        propensity="logistic" if propensity else "constant",
        radius=12.0,
        split=0.85,
        center_share=center,
        propensity_share=propensity or 0.2,
        cap=CAP,
        residual_bound=clips.residual_bound,
        score_bound=kind.bound_over_clip[bool(propensity)] * clips.residual_bound,
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


def _outcome_clips(study: DeclaredEffect, total: float) -> _OutcomeClips:
    """Scale and clips of residuals at this n epsilon."""
    bound = study.universe.domain.outcome_bound
    deviation = study.scale
    values = study.two_values
    if values is not None:
        deviation = min(deviation, 0.5 * values.width)
        slope = saturation(values.width, deviation, total)
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


def _rate_share(n_groups: int, total: float) -> float:
    """Share of the budget for the rate of treatment at this n epsilon.

    In groups there are two sums of each, and an outcome that may lie off the common regression.
    """
    needed = 40.0 if n_groups == 1 else 120.0 * n_groups
    return max(0.02, min(0.1, needed / total))


def _best_shares(
    request: Request, left: float, propensities: Sequence[float]
) -> tuple[float, float]:
    """Shares of the center and of a propensity with the least predicted error.

    Parameters
    ----------
    request
        What that error depends on.
    left
        Share for center, propensity and score together; the score keeps a twentieth of it at least.
    propensities
        Shares of a logistic propensity to choose from, 0 for a constant one.
    """

    def predicted_error(shares: tuple[float, float]) -> float:
        center, propensity = shares
        return effect_error(request, left, center, propensity)

    centers = np.arange(0.1, 0.95, 0.05).tolist()
    pairs = itertools.product(centers, propensities)
    return min((pair for pair in pairs if sum(pair) < 0.95 * left), key=predicted_error)


def _propensities(study: DeclaredEffect, total: float) -> tuple[float, ...]:
    """Shares of a logistic propensity that are tried at this n epsilon, 0 for a constant one."""
    shares = study.kind.propensities
    if 0.0 not in shares or len(shares) == 1:
        return shares
    if total < FEW * study.universe.n_features:
        return (0.0,)
    # Weights take the place of either propensity; and as probabilities are no lines, a regression
    # alone errs more where an outcome has two values.
    if study.confounding < FAR or study.weights is not None or study.two_values is not None:
        return shares
    if study.declared.get("propensity") == "logistic":
        return tuple(share for share in shares if share > 0.0)
    return (0.0,)


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
    total = universe.mass * universe.n_samples * budget.epsilon / (universe.n_features + 1)
    with_propensity = total >= PROPENSITY_FROM
    with_center = with_propensity or total >= CENTER_FROM or bool(expected)
    total *= universe.n_features + 1
    law, norm_bound, with_mean = covariate_rule(
        universe, total, RULE_MEAN_NOISE, worth=with_propensity and not domain.uneven
    )
    if domain.ranges is None:
        # A declared norm is that of the records, and no corner of a box.
        norm_bound = domain.features_bound
    square_share = spread_share(law, total) if with_propensity else None
    # Center and propensity pay for a larger share of the mean square: a smaller rest costs
    # decisions.
    less = 0.5 * (square_share - SPREAD_SHARE) if square_share else 0.0
    center_share = None
    if with_center:
        center_share = 0.3 - less if with_propensity else 0.4
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
        propensity_share=0.15 - less,
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


def scale_share(total: float) -> float | None:
    """Share of the budget for the scale of the outcome; None where n epsilon leaves it to noise."""
    least, most = SCALE_SHARES
    if most * total < SCALE_TOTAL:
        return None
    return max(SCALE_TOTAL / total, least)


def prevalence(deviation: float) -> float:
    """The share q, at most 1/2, of an event whose indicator has the deviation ``sqrt(q (1-q))``."""
    return 0.5 * (1.0 - math.sqrt(max(1.0 - 4.0 * deviation**2, 0.0)))


def saturation(width: float, deviation: float, total: float) -> float:
    """C of the saturating loss for an outcome of two values, in units of the outcome.

    A small c has less noise, a large one less bias where probabilities are no lines (measured).

    Parameters
    ----------
    width
        Distance of both values, in units of the outcome.
    deviation
        Guess of the standard deviation, in units of the outcome.
    total
        n epsilon.
    """
    share = prevalence(min(deviation / width, 0.5)) * (1.0 + 1e-9)
    if share <= 0.1 * (1.0 + 1e-6):
        return 0.2 * width
    if share >= 0.3 and total >= MANY:
        return width
    return 0.45 * width


def covariate_rule(
    universe: Universe, total: float, noisiest: float = MEAN_NOISE, *, worth: bool = True
) -> tuple[CovariateLaw, float, bool]:
    """What is guessed of the covariates, the norm that they are shrunk to, whether their mean pays.

    Parameters
    ----------
    universe
        The datasets that the guarantee is about.
    total
        n epsilon.
    noisiest
        Largest noise of a mean that pays, in scaled covariates.
    worth
        Whether a mean is worth any of the budget.

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
    noise = _mean_noise(universe, law, MEAN_SHARE * total)
    centered = worth and noise <= noisiest
    if centered:
        law = replace(law, offsets=(noise,) * p)
    norm = law.quantile(0.95) * max(1.0, (total / (800.0 * p)) ** 0.25)
    widest = domain.features_bound
    if centered and domain.ranges is not None:
        # Less their mean, covariates may be twice as long.
        widest = domain.features_bound * 2.0
    return law, min(norm, widest), centered


def _mean_noise(
    universe: Universe, law: CovariateLaw, total: float, *, by_arm: bool = False
) -> float:
    """Standard deviation of the noise of the mean of a covariate, at this n epsilon of the step.

    The mean may be of sums ``by_arm``, as that of more than two arms always is.
    """
    low, high = law.box(universe)
    n_arms = len(universe.domain.arms)
    if n_arms == 2 and not by_arm:
        return math.sqrt(2.0) * float(np.sum(high - low)) / total
    block = 1 + universe.n_features
    of_one_sum = 2.0 / total * math.sqrt((block + 1) * (block + 2) / 3.0)
    return of_one_sum * math.sqrt(n_arms * float(np.mean(np.square(0.5 * (high - low)))))


def spread_share(law: CovariateLaw, total: float) -> float:
    """Share of the mean square at this n epsilon, larger where that of every number is worth it."""
    each = _each_noise(law) / (EACH_NOISE * total)
    least, most = EACH_SHARES
    if 0.0 < each <= 1.2 * most:
        return min(max(least, each), most)
    return SPREAD_SHARE


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
    law = study.law
    mean_share = study.settings.mean_share
    square_share = study.settings.spread_share
    steps: list[Step] = []
    reach = norm
    if square_share is not None:
        total = square_share * epsilon * universe.mass * universe.n_samples
        numbers = law.numbers if 3.0 * _each_noise(law) <= total else ()
        times = 3.0 if numbers else min(max(math.sqrt(total / 48.0), 1.0), 3.0)
        # Less their mean, covariates may be twice as long.
        widest = universe.domain.features_bound * (1.0 if mean_share is None else 2.0)
        reach = max(min(norm * times, widest), norm)
        steps.append(MeanSquare(share=square_share, law=law, norm=norm, numbers=numbers))
    if mean_share is None:
        return universe.shrunk(reach), steps
    kind = CovariateMean
    if len(universe.domain.arms) > 2:
        kind = ArmMeans
    elif by_arm:
        # How far arms lie apart is what the interval needs.
        total = mean_share * epsilon * universe.mass * universe.n_samples
        noise = _mean_noise(universe, law, (1.0 - ALONG_SHARE) * total, by_arm=True)
        kind = ArmMeans if noise <= MEAN_NOISE else CovariateMean
    mean = kind(share=mean_share, noise=study.noise, law=law, norm=reach)
    return universe, [mean, *steps]


def with_difference(steps: list[Step]) -> list[Step]:
    """Steps that place covariates, with the mean square along the difference of two arms at last.

    It follows where means by arm are released of more than one covariate, and takes a part of their
    share.
    """
    found = next((step for step in steps if isinstance(step, ArmMeans)), None)
    if found is None or len(found.law.spreads) == 1:
        return steps
    share = found.share or 0.0
    means = replace(found, share=(1.0 - ALONG_SHARE) * share)
    along = DifferenceSquare(share=ALONG_SHARE * share, noise=found.noise, law=found.law)
    placed: list[Step] = [means if step is found else step for step in steps]
    return [*placed, along]


def _each_noise(law: CovariateLaw) -> float:
    """Noise of the mean square of each number over its guess (standard deviation), at n epsilon 1.

    It falls in proportion to n epsilon.
    """
    return 9.0 * math.sqrt(2.0) * len(law.numbers)


def smaller_arm(known: float | None) -> float:
    """Rate of the smaller arm at this probability of treatment; a guess where that is None."""
    if known is None:
        return RATE
    return min(known, 1.0 - known)


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
        """What is predicted to be wrong with the slopes of a regression."""
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

    @property
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


def effect_error(request: Request, left: float, center: float, propensity: float) -> float:
    """The mean squared error of an effect, in squared units of the outcome, to first order.

    It adds up what sampling does, the noise of the score, noise and ridge of an outcome regression
    that spreads as far as its residuals, and effects that vary.

    Parameters
    ----------
    request
        What is declared and guessed.
    left
        Share of the budget for center, propensity and score together.
    center
        Share for the outcome regression.
    propensity
        Share for a logistic propensity; 0 for a constant one.
    """
    kind = request.kind
    rate = request.rate
    n = request.n_samples
    sigma = request.deviation
    regression = request.regression(center)
    by_arm = regression.rows is Rows.ARMS
    # What is wrong with slopes of controls (first) matters for the treated, and vice versa.
    parts = np.array([[rate], [1.0 - rate]]) if by_arm else np.ones((1, 1))
    shrunk, noise, missing = request.slope_errors(regression)
    if request.two_values is not None:
        noise = noise * request.two_values.steepness(request.level)
    # How far the arms lie apart where the propensity does not say so.
    distance = request.confounding.distance
    if propensity:
        distance = request.log_odds_error(propensity)

    # ``bound_over_clip`` is that at a rate of one half for scores that divide by it.
    widest = kind.bound_over_clip[bool(propensity)] / kind.bound_over_clip[0]
    scale = 2.0 * widest * kind.price * request.residual_bound / rate
    scale *= request.groups / (n * (left - center - propensity) * request.epsilon)
    noise_of_score = 2.0 * (1.0 + by_arm) * scale**2

    # Errors of the regression stay in the residuals that are weighted.
    slope_errors = request.n_features * noise**2 + (missing * sigma) ** 2
    residuals = sigma**2 + float(np.mean(slope_errors))
    weighted = request.groups * residuals / (rate * (1.0 - rate))
    sampling = (weighted + distance**2 * sigma**2) / n
    # An interval pays for the noise of the second moment as well, at 2B times that of the mean.
    sampling += MARGIN * widest * request.residual_bound / rate * scale / n

    noise_of_slopes = float(np.sum((parts * noise * distance) ** 2))
    leaning = regression.leaning(rate, kind.wanted(rate))
    varying_effects = (leaning * request.confounding.typical * sigma * distance) ** 2
    confounding_left = parts * np.maximum(LEFT * shrunk, missing) * distance * sigma
    bias = float(np.sum(confounding_left)) ** 2
    return sampling + noise_of_score + noise_of_slopes + varying_effects + bias
