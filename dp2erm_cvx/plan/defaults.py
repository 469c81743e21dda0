"""Settings where nothing is declared: public rules of use in n, epsilon and the covariates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
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
from dp2erm_cvx.steps.nuisances import LEFT, STRETCH, Confounding, RidgeFit, TwoValues
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
#: Shares of the budget: at most of the mean of covariates, and of their mean square.
MEAN_SHARE, SPREAD_SHARE = 0.06, 0.03
#: The part of the share of means by arm that the mean square along their difference takes.
ALONG_SHARE = 0.25
#: Least and largest share of mean squares that are released one by one, and the noise that it
#: leaves each of them, over its guess; a little more where the share is the largest.
EACH_SHARES, EACH_NOISE = (0.06, 0.12), 0.25
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
#: Norm bounds that covariates are scaled to, so that their declared units do not matter. The mean
#: outcome is far from its public center more often than the mean effect is from 0: a center keeps
#: more of its intercept.
CENTER_NORM, RULE_NORM = 1.6, 2.4
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
    """The default settings, from public quantities alone: those of the least predicted mean squared
    error.

    For shares of ``epsilon``, at a rate ``smaller`` of the smaller arm. Where the propensity is
    ``known`` nothing is confounded, and no mean is worth its price. Settings that were ``planned``
    before the scale of the outcome was released keep their shares and their propensity.
    """
    universe, kind, two_values = study.universe, study.kind, study.two_values
    domain, p = universe.domain, universe.n_features
    bound, total = domain.outcome_bound, universe.mass * universe.n_samples * epsilon
    deviation = study.scale
    # an outcome that cannot lie two deviations off its center has no tails; a bent loss would bend
    # its lines
    slope = deviation if deviation <= 0.5 * bound else 2.0 * bound
    law, norm, centered = covariate_rule(universe, total, worth=not known)
    groups = max(len(domain.groups), 1)
    # in groups there are two sums of each, and an outcome that may lie off the common regression
    rate = max(0.02, min(0.1, (40.0 if groups == 1 else 120.0 * groups) / total))
    spread = spread_share(law, total)
    left = 1.0 - (0.0 if known else rate) - spread - (MEAN_SHARE if centered else 0.0)
    symmetric = min(kind.residuals * deviation, 2.0 * bound)
    residual = symmetric
    if not study.declares_scale:
        residual = min(max(kind.residuals, UNKNOWN) * deviation, 2.0 * bound)
    if two_values is not None:
        deviation = min(deviation, 0.5 * two_values.width)
        residual = symmetric = two_values.width
        slope = saturation(two_values.width, deviation, total)
        two_values = replace(two_values, slope=slope)
    # clips that are wide for long tails are no reason to do without a propensity, which they make
    # dearer
    declared, guesses = (
        Confounding(0.0) if known else study.assumed,
        (deviation, slope, law, norm, symmetric),
    )
    request = Request(
        kind, total / epsilon, p, epsilon, *guesses, declared, two_values, groups, smaller
    )
    if planned is None:
        tried = (0.0,) if known else _propensities(study, total)
        shares = itertools.product(np.arange(0.1, 0.95, 0.05).tolist(), tried)
        allowed = (pair for pair in shares if sum(pair) < 0.95 * left)
        center, propensity = min(allowed, key=lambda one: effect_error(request, left, *one))
    else:
        center = planned.center_share
        propensity = planned.propensity_share if planned.propensity == "logistic" else 0.0
    regression = request.regression(center)
    return EffectSettings(
        rows=kind.rows,
        arms=regression.arms,
        noise_ratio=regression.noise_ratio,
        slope=slope,
        norm_bound=norm,
        mean_share=MEAN_SHARE if centered else None,
        spread_share=spread,
        rate_share=rate,
        propensity="logistic" if propensity else "constant",
        radius=12.0,
        split=0.85,
        center_share=center,
        propensity_share=propensity or 0.2,
        cap=CAP,
        residual_bound=residual,
        score_bound=kind.reach[bool(propensity)] * residual,
    )


def _propensities(study: DeclaredEffect, total: float) -> tuple[float, ...]:
    """Shares of a logistic propensity that are tried at this n epsilon, 0 for a constant one."""
    shares = study.kind.propensities
    if 0.0 not in shares or len(shares) == 1:
        return shares
    if total < FEW * study.universe.n_features:
        return (0.0,)
    # weights take the place of either propensity; and as probabilities are no lines, a regression
    # alone errs more where an outcome has two values
    if study.confounding < FAR or study.weights is not None or study.two_values is not None:
        return shares
    if study.declared.get("propensity") == "logistic":
        return tuple(share for share in shares if share > 0.0)
    return (0.0,)


def rule_of_use(
    universe: Universe, budget: Budget, outcome_scale: float | None, expected: Collection[str] = ()
) -> RuleSettings:
    """The default settings, from public quantities alone.

    With k records times epsilon per column, the constant counted: below ``CENTER_FROM`` nothing but
    the rule, unless a main effect or confounding is expected; then a center; from
    ``PROPENSITY_FROM`` on a propensity as well, with matching factors. The study of rules says what
    this gains and what it costs.

    Parameters
    ----------
    universe, budget
        Datasets and what may be spent on them.
    outcome_scale
        Public guess of the standard deviation of the outcome, in its units; None: a third of its
        bound.
    expected
        Of ``EXPECTATIONS``. Raises DeclarationError for others.
    """
    for fact in expected:
        if fact not in EXPECTATIONS:
            raise DeclarationError(f"expected = {fact!r}: must be one of {', '.join(EXPECTATIONS)}")
    scale = universe.domain.outcome_bound / 3.0 if outcome_scale is None else outcome_scale
    total = universe.mass * universe.n_samples * budget.epsilon / (universe.n_features + 1)
    both = total >= PROPENSITY_FROM
    centered = both or total >= CENTER_FROM or bool(expected)
    worth = both and not universe.domain.uneven
    total *= universe.n_features + 1
    law, norm_bound, mean = covariate_rule(universe, total, RULE_MEAN_NOISE, worth=worth)
    if (
        universe.domain.ranges is None
    ):  # a declared norm is that of the records, and no corner of a box
        norm_bound = universe.domain.features_bound
    width = 2.0 * universe.domain.outcome_bound
    spread = spread_share(law, total) if both else None
    more = 0.5 * (spread - SPREAD_SHARE) if spread else 0.0  # a smaller rest costs decisions
    # residuals of an event are longer on one side: no clip cuts them
    clips = (
        (width, 2.0 * width)
        if universe.domain.binary_outcome
        else (min(2.8 * scale, width), 4.2 * scale)
    )
    return RuleSettings(
        center_share=(0.3 - more if both else 0.4) if centered else None,
        propensity="logistic" if both else None,
        propensity_share=0.15 - more,
        balance=Balance.MATCHING,
        cap=10.0,
        center_slope=0.35 * scale,
        slope=0.7 * scale,
        center_norm=CENTER_NORM,
        norm=RULE_NORM,
        radius=3.3,
        split=0.85,
        residual_bound=clips[0],
        score_bound=clips[1],
        norm_bound=norm_bound,
        mean_share=MEAN_SHARE if mean else None,
        spread_share=spread,
    )


def default_scale(bound: float, two_values: TwoValues | None) -> float:
    """The standard deviation of residuals where none is declared: the largest, or half of the
    bound.

    It is also the largest that is released: clips of four such deviations cut nothing.
    """
    return 0.5 * bound if two_values is None else 0.5 * two_values.width


def scale_share(total: float) -> float | None:
    """Share of the budget for the scale of the outcome at this n epsilon; None where it would be
    noise.
    """
    least, most = SCALE_SHARES
    if most * total < SCALE_TOTAL:
        return None
    return max(SCALE_TOTAL / total, least)


def prevalence(deviation: float) -> float:
    """The share q, at most 1/2, of an event whose indicator has this standard deviation, sqrt(q (1
    - q)).
    """
    return 0.5 * (1.0 - math.sqrt(max(1.0 - 4.0 * deviation**2, 0.0)))


def saturation(width: float, deviation: float, total: float) -> float:
    """C of the loss for two values a ``width`` apart, of this standard ``deviation``, at this n
    epsilon.

    A small c has less noise, a large one less bias where probabilities are no lines (measured).
    """
    share = prevalence(min(deviation / width, 0.5)) * (1.0 + 1e-9)
    if share <= 0.1 * (1.0 + 1e-6):
        return 0.2 * width
    return width if share >= 0.3 and total >= MANY else 0.45 * width


def covariate_rule(
    universe: Universe, total: float, noisiest: float = MEAN_NOISE, *, worth: bool = True
) -> tuple[CovariateLaw, float, bool]:
    """Law that covariates are guessed to have, the norm that they are shrunk to, and whether their
    mean pays.

    At this n epsilon: where a mean is ``worth`` any of it, and its noise is at most the
    ``noisiest``.
    """
    domain, p = universe.domain, universe.n_features
    law = CovariateLaw.of(domain, p)
    noise = _mean_noise(universe, law, MEAN_SHARE * total)
    centered = worth and noise <= noisiest
    if centered:
        law = replace(law, offsets=(noise,) * p)
    norm = law.quantile(0.95) * max(1.0, (total / (800.0 * p)) ** 0.25)
    widest = domain.features_bound * (2.0 if centered and domain.ranges is not None else 1.0)
    return law, min(norm, widest), centered


def _mean_noise(
    universe: Universe, law: CovariateLaw, total: float, *, by_arm: bool = False
) -> float:
    """Standard deviation of the noise of the mean of a covariate, at this n epsilon of the step.

    Of sums ``by_arm``, as of more than two arms they always are.
    """
    low, high = law.box(universe)
    n_arms = len(universe.domain.arms)
    if n_arms == 2 and not by_arm:
        return math.sqrt(2.0) * float(np.sum(high - low)) / total
    block = 1 + universe.n_features
    of_one_sum = 2.0 / total * math.sqrt((block + 1) * (block + 2) / 3.0)
    return of_one_sum * math.sqrt(n_arms * float(np.mean(np.square(0.5 * (high - low)))))


def spread_share(law: CovariateLaw, total: float) -> float:
    """The share of the mean square at this n epsilon: more where those of all numbers are worth
    it.
    """
    each = _each_noise(law) / (EACH_NOISE * total)
    least, most = EACH_SHARES
    return min(max(least, each), most) if 0.0 < each <= 1.2 * most else SPREAD_SHARE


def placing(
    study: DeclaredQuestion, norm: float, epsilon: float, *, by_arm: bool = False
) -> tuple[Universe, list[Step]]:
    """Where the first step finds its records, and those that center and scale covariates, to this
    ``norm``.

    Their shares are of this ``epsilon``. Where means ``by_arm`` are of use, and their noise is no
    larger than that of a mean that pays, sums of both arms are released in the place of those of
    all.

    Covariates are first shrunk to up to three times the norm, so that those which are larger than
    guessed lose nothing; where one mean square stands for all, its noise sets the limit. That of
    every number is released where its noise is a third of a guess at most.
    """
    universe, law, steps, reach = study.universe, study.law, list[Step](), norm
    centered, spread = study.settings.mean_share, study.settings.spread_share
    if spread is not None:
        total = spread * epsilon * universe.mass * universe.n_samples
        numbers = law.numbers if 3.0 * _each_noise(law) <= total else ()
        times = 3.0 if numbers else min(max(math.sqrt(total / 48.0), 1.0), 3.0)
        # less their mean covariates may be twice as long
        widest = universe.domain.features_bound * (1.0 if centered is None else 2.0)
        reach = max(min(norm * times, widest), norm)
        steps.append(MeanSquare(share=spread, law=law, norm=norm, numbers=numbers))
    if centered is None:
        return universe.shrunk(reach), steps
    # how far arms lie apart is what the interval needs
    kind, total = CovariateMean, centered * epsilon * universe.mass * universe.n_samples
    if (
        by_arm
        and _mean_noise(universe, law, (1.0 - ALONG_SHARE) * total, by_arm=True) <= MEAN_NOISE
    ):
        kind = ArmMeans
    if len(universe.domain.arms) > 2:
        kind = ArmMeans
    mean = kind(share=centered, noise=study.noise, law=law, norm=reach)
    return universe, [mean, *steps]


def with_difference(steps: list[Step]) -> list[Step]:
    """Steps that place covariates, and the mean square along the difference of two arms after them.

    It follows where means by arm are released of more than one covariate, and takes a part of their
    share.
    """
    found = next((step for step in steps if isinstance(step, ArmMeans)), None)
    if found is None or len(found.law.spreads) == 1:
        return steps
    share = found.share or 0.0
    less = replace(found, share=(1.0 - ALONG_SHARE) * share)
    along = DifferenceSquare(share=ALONG_SHARE * share, noise=found.noise, law=found.law)
    return [*(less if step is found else step for step in steps), along]


def _each_noise(law: CovariateLaw) -> float:
    """Standard deviation of the noise of the mean square of each number over its guess, times n
    epsilon.
    """
    return 9.0 * math.sqrt(2.0) * len(law.numbers)


def smaller_arm(known: float | None) -> float:
    """The rate of the smaller arm, where the probability of treatment is ``known``; else a
    guess.
    """
    return RATE if known is None else min(known, 1.0 - known)


def planned_fit(
    n: float, columns: int, epsilon: float, slope: float, norm: float, rows: Rows
) -> RidgeFit:
    """The outcome regression that this ``epsilon`` is predicted to buy, where all arms count
    alike.
    """
    square = 1.0 + NORM**2
    gamma, noise = (
        2.0 * square / (n * epsilon),
        2.0 * math.sqrt(square * (columns + 1)) * slope / epsilon,
    )
    return RidgeFit(gamma, noise, n, slope, NORM / norm, Arms.ALIKE, rows)


@dataclass(frozen=True)
class Request:
    """Public quantities that the predicted error of an effect, in each of ``groups``, depends on.

    ``n_samples`` are what all records count together, ``rate`` is that of the smaller arm, and of
    covariates all is scaled.
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
        """Regression of the outcome at the share ``center`` of the budget, at arm weights of least
        error.
        """
        kind, values, curvatures, rows = (
            self.kind,
            self.two_values,
            None,
            self.rows or self.kind.rows,
        )
        if values is not None:
            curvatures = (values.curvature(self.level),) * 2
        sizes = self.n_samples, len(rows.constants(self.n_features)), center * self.epsilon
        fit = replace(planned_fit(*sizes, self.slope, self.norm_bound, rows), curvatures=curvatures)
        if rows is not kind.rows:
            return fit
        if kind.arms is not Arms.BALANCED or rows is not Rows.COMMON:
            return replace(fit, arms=kind.arms)
        varying = self.confounding.typical * self.deviation
        if varying == 0.0:
            return fit
        noise = fit.errors(self.spread, self.deviation, 0.5, self.confounding.within(0.5))[1]
        return replace(fit, arms=kind.arms, noise_ratio=min(float(noise[0, 0]) / varying, 1.0))

    def remaining(self, regression: RidgeFit) -> tuple[Array, Array, Array]:
        """Shares of slopes that ridge takes; of stretched slopes, the noise and what is still
        missing.
        """
        within = self.confounding.within(self.rate)
        left, noise = regression.errors(self.spread, self.deviation, self.rate, within)
        stretch = np.minimum(1.0 / (1.0 - left), STRETCH)
        return left, noise * stretch, 1.0 - stretch * (1.0 - left)

    def noise_in_residuals(self, center: float) -> float:
        """Root mean square of what noise of the regression adds to residuals of an arm."""
        return math.sqrt(self.n_features + 1) * float(
            np.max(self.remaining(self.regression(center))[1])
        )

    @property
    def spread(self) -> Array:
        """Root mean square of one scaled covariate (1,) under the norm bound."""
        factor = self.law.mean_square(1.0, self.norm_bound)
        return np.full(1, self.norm_bound * math.sqrt(factor / self.n_features))

    @property
    def level(self) -> float:
        """Where the regression of an outcome of two values lies, which is guessed from its
        deviation.
        """
        assert self.two_values is not None
        low, width = self.two_values.low, self.two_values.width
        return self.two_values.bent(low + width * prevalence(self.deviation / width))


def effect_error(request: Request, left: float, center: float, propensity: float) -> float:
    """The mean squared error of an effect, in squared units of the outcome, to first order.

    Of sampling, of the noise of the score, of noise and ridge of an outcome regression that spreads
    as far as its residuals, and of effects that vary. ``left`` is the share for center, propensity
    and score.
    """
    kind, rate = request.kind, request.rate
    n, p, sigma, declared = (
        request.n_samples,
        request.n_features,
        request.deviation,
        request.confounding,
    )
    values, spread = request.two_values, float(request.spread[0])
    regression = request.regression(center)
    by_arm = regression.rows is Rows.ARMS
    steepness = 1.0 if values is None else values.steepness(request.level)
    parts = np.array([[rate], [1.0 - rate]]) if by_arm else np.ones((1, 1))
    remains, noise, still = request.remaining(regression)
    noise = noise * steepness
    away = declared.distance
    if propensity:
        norm, paid = 1.0 + request.norm_bound**2, propensity * request.epsilon
        ridge = norm / (0.3 * n * paid)
        curvature = _VARIANCE * spread**2 + ridge
        log_noise = math.sqrt(p * norm * (p + 2)) / (0.65 * paid) * spread / (n * curvature)
        away = OPTIMISM * math.hypot(ridge / curvature * away, log_noise)
    # ``reach`` is that at a rate of one half for scores that divide by it
    widest = kind.reach[bool(propensity)] / kind.reach[0]
    scale = 2.0 * widest * kind.price * request.residual_bound / rate
    scale *= request.groups / (n * (left - center - propensity) * request.epsilon)
    # errors of the regression stay in the residuals that are weighted
    residuals = sigma**2 + float(np.mean(p * noise**2 + (still * sigma) ** 2))
    sampling = (request.groups * residuals / (rate * (1.0 - rate)) + away**2 * sigma**2) / n
    # an interval pays for the noise of the second moment as well, at 2B times that of the mean
    sampling += MARGIN * widest * request.residual_bound / rate * scale / n
    error = sampling + 2.0 * (1.0 + by_arm) * scale**2 + float(np.sum((parts * noise * away) ** 2))
    error += (regression.leaning(rate, kind.wanted(rate)) * declared.typical * sigma * away) ** 2
    return error + float(np.sum(parts * np.maximum(LEFT * remains, still) * away * sigma)) ** 2
