"""How an effect is estimated where nothing is declared: a public rule in n, epsilon and the covariates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of, public_fraction, public_number, public_size
from dp2erm_cvx.steps import (
    Arms,
    AverageScore,
    Confounding,
    CovariateLaw,
    EffectScore,
    RidgeFit,
    Rows,
    TwoValues,
    shrinkage,
)
from dp2erm_cvx.steps.nuisances import STRETCH
from dp2erm_cvx.steps.shrinkage import LEFT, VARIANCE
from dp2erm_cvx.universe import Universe

#: F where none is declared; a larger one says that overlap is poor.
CAP = 10.0
#: Norm that the outcome regression scales covariates to, so that their declared units do not matter.
NORM = 3.0
#: Shares of the budget: at most of the mean of covariates, and of their mean square.
MEAN_SHARE, SPREAD_SHARE = 0.06, 0.03
#: The mean of covariates is released where its noise is at most this, two thirds of their standard deviation.
MEAN_NOISE = 2.0 / 9.0
#: n epsilon from which on common events have a loss that hardly saturates.
MANY = 80_000.0
#: n epsilon per covariate from which on a logistic propensity is tried where a constant one may do: it costs
#: nothing there where outcomes are linear, and saves some bias where they are not.
FEW = 800.0
#: What an interval adds to the second moment of a score for its noise, in bounds times scales of the mean: at
#: a level of .95 it is exceeded once in 400.
MARGIN = 2.0 * math.log(200.0)
#: What the error of a logistic propensity is multiplied by: first order flatters it where arms lie far apart.
OPTIMISM = 1.5
#: The rate of the smaller arm that shares are chosen for.
RATE = 1.0 / 3.0


@dataclass(frozen=True)
class EffectSettings:
    """Everything that a private effect is calibrated from, beside the universe and the budget.

    Attributes
    ----------
    rows
        Of the outcome regression (center), see :class:`~dp2erm_cvx.steps.Rows`; None in cells, which have no
        use for ``arms``, ``slope``, ``first_fit``, ``norm_bound``, ``radius`` and ``split`` either.
    arms, noise_ratio
        What records count in it, see :class:`~dp2erm_cvx.steps.Arms`. The ratio is that of the rule's shares.
    slope
        c of the saturating loss of the center, in units of the outcome.
    norm_bound
        The scaled covariates are shrunk radially to this norm, once their released mean square has brought
        them to the size that their law guesses.
    mean_share, spread_share
        Shares of the budget for the mean of the covariates, which is then subtracted, and for their mean
        square, from which shrinkage is predicted; None where they are not released.
    rate_share
        That for the rate of treatment, where it is not public.
    first_fit
        Share of the center's budget for a first fit, whose residuals are fitted again; None for one fit.
    propensity
        "logistic", "constant", with ``cells`` "cells", or the public probability of treatment.
    radius
        Largest linear predictor of the logistic propensity: it is fitted in the ball ``M ||lam|| <= radius``.
    split
        Share of the propensity's epsilon that pays for its noise.
    center_share, propensity_share
        Shares of the budget for the outcome regression and a logistic propensity; the score has the rest.
    cap, residual_bound, score_bound
        F, M_r and B of :class:`~dp2erm_cvx.steps.EffectScore`, at a rate of one half.
    cells
        Cuts by covariate, or numbers of cells, see :func:`~dp2erm_cvx.steps.declared_partition`: outcome and
        propensity are then means in cells, from both shares, and no line has to be right. None for lines.

    Raises DeclarationError for an invalid value.
    """

    rows: Rows | None
    arms: Arms
    slope: float
    norm_bound: float
    mean_share: float | None
    spread_share: float | None
    rate_share: float
    first_fit: float | None
    propensity: str | float
    radius: float
    split: float
    center_share: float
    propensity_share: float
    cap: float
    residual_bound: float
    score_bound: float
    noise_ratio: float = 0.0
    cells: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", one_of("arms", self.arms, Arms))
        for name in ("slope", "norm_bound", "radius", "residual_bound", "score_bound"):
            public_size(name, getattr(self, name))
        public_number("cap", self.cap, at_least=2.0)
        public_number("noise_ratio", self.noise_ratio, at_least=0.0)
        self._check_propensity()
        for name in ("split", "first_fit", *_SHARES):
            if getattr(self, name) is not None or name in (
                "split",
                "rate_share",
                "center_share",
                "propensity_share",
            ):
                public_fraction(name, getattr(self, name))
        names = [name for name in _SHARES if getattr(self, name) is not None and self._spends(name)]
        if not sum(getattr(self, name) for name in names) < 1.0:
            raise DeclarationError(f"{', '.join(names)}: leave nothing to the score")
        if self.arms is Arms.CONTROLS and self.rows not in (Rows.COMMON, None):
            raise DeclarationError("arms = 'controls': one arm alone has rows = 'common'")

    def _spends(self, share: str) -> bool:
        """Whether a step takes this share of the budget."""
        if share == "propensity_share":
            return self.propensity in ("logistic", "cells")
        if share == "rate_share":
            return self.cells is None and self.known is None
        return share == "center_share" or self.cells is None

    def _check_propensity(self) -> None:
        lines = self.cells is None
        if lines is (self.rows is None):
            raise DeclarationError("rows and cells: one of the two is declared")
        if self.propensity in (("logistic", "constant") if lines else ("cells",)):
            return
        if isinstance(self.propensity, str):
            names = "logistic, constant," if lines else "cells"
            raise DeclarationError(
                f"propensity = {self.propensity!r}: must be {names} or a public probability"
            )
        least = 1.0 / self.cap
        if not least <= public_number("propensity", self.propensity) <= 1.0 - least:
            raise DeclarationError(
                f"propensity = {shown(self.propensity)}: must be from {least:g} to {1.0 - least:g}; declare "
                "a larger cap"
            )

    @property
    def known(self) -> float | None:
        """The probability of treatment where it is public, as in a randomized trial."""
        return None if isinstance(self.propensity, str) else self.propensity


_SHARES = ("rate_share", "mean_share", "spread_share", "center_share", "propensity_share")


def effect_rule(
    universe: Universe,
    budget: Budget,
    residual_scale: float | None,
    confounding: Confounding | None = None,
    kind: type[EffectScore] = AverageScore,
    two_values: TwoValues | None = None,
) -> EffectSettings:
    """The default settings, from public quantities alone: those of the least predicted mean squared error.

    Parameters
    ----------
    universe, budget
        Datasets and what may be spent on them.
    residual_scale
        Public guess of the standard deviation of the outcome given covariates, in units of the outcome; None:
        clips that no residual reaches, and a loss and a score of the order of the outcome bound.
    confounding
        What is declared of the distance of the arms and of collinear covariates; None where the propensity is
        public: nothing is confounded then, and no mean is worth its price.
    kind
        The score of what is estimated.
    two_values
        Of the outcome, where it has no others: no residual is longer than they lie apart.
    """
    domain, p, known = universe.domain, universe.n_features, confounding is None
    bound, total = domain.outcome_bound, universe.mass * universe.n_samples * budget.epsilon
    deviation = default_scale(bound, two_values) if residual_scale is None else residual_scale
    # an outcome that cannot lie two deviations off its center has no tails; a bent loss would bend its lines
    slope = deviation if deviation <= 0.5 * bound else 2.0 * bound
    law, norm, centered = covariate_rule(universe, total, worth=not known)
    groups = max(len(domain.groups), 1)
    # in groups there are two sums of each, and an outcome that may lie off the common regression
    rate = max(0.02, min(0.1, (40.0 if groups == 1 else 120.0 * groups) / total))
    left = 1.0 - (0.0 if known else rate) - SPREAD_SHARE - (MEAN_SHARE if centered else 0.0)
    residual = 2.0 * bound if residual_scale is None else min(kind.residuals * residual_scale, 2.0 * bound)
    if two_values is not None:
        deviation, residual = min(deviation, 0.5 * two_values.width), two_values.width
        slope = two_values.width * saturation(deviation / two_values.width, total)
        two_values = replace(two_values, slope=slope)
    request = Request(
        kind,
        total / budget.epsilon,
        p,
        budget.epsilon,
        deviation,
        slope,
        law,
        norm,
        residual,
        confounding or Confounding(0.0),
        two_values,
        groups=groups,
    )
    tried = (0.0,) if known else kind.propensities
    if 0.0 in tried and total < FEW * p:
        tried = (0.0,)
    shares = list(_candidates(left, tried))
    center, propensity = min(shares, key=lambda one: effect_error(request, left, *one))
    regression = request.regression(center)
    return EffectSettings(
        rows=kind.rows,
        arms=regression.arms,
        noise_ratio=regression.noise_ratio,
        slope=slope,
        norm_bound=norm,
        mean_share=MEAN_SHARE if centered else None,
        spread_share=SPREAD_SHARE,
        rate_share=rate,
        first_fit=None,
        propensity="logistic" if propensity else "constant",
        radius=12.0,
        split=0.85,
        center_share=center,
        propensity_share=propensity or 0.2,
        cap=CAP,
        residual_bound=residual,
        score_bound=kind.reach[bool(propensity)] * residual,
    )


def default_scale(bound: float, two_values: TwoValues | None) -> float:
    """The standard deviation of residuals where none is declared: the largest, or a third of the bound."""
    return bound / 3.0 if two_values is None else 0.5 * two_values.width


def prevalence(deviation: float) -> float:
    """The share q, at most 1/2, of an event whose indicator has this standard deviation, sqrt(q (1 - q))."""
    return 0.5 * (1.0 - math.sqrt(max(1.0 - 4.0 * deviation**2, 0.0)))


def saturation(deviation: float, total: float) -> float:
    """C of the loss for an event whose indicator has this standard ``deviation``, at this n epsilon.

    A small c has less noise, a large one less bias where probabilities are no lines (measured).
    """
    share = prevalence(deviation) * (1.0 + 1e-9)
    if share <= 0.1 * (1.0 + 1e-6):
        return 0.2
    return 1.0 if share >= 0.3 and total >= MANY else 0.45


def check_groups(domain: Domain, estimand: str, declared: Mapping[str, Any]) -> None:
    """Raise DeclarationError where the declared groups do not suit the estimand or the settings."""
    fitted = declared.get("propensity") in ("logistic", "cells") or declared.get("cells")
    if domain.groups and estimand != AverageScore.estimand:
        raise DeclarationError(f"by: estimand = {shown(estimand)}: only 'ate' is released by group")
    if domain.groups and fitted:
        raise DeclarationError("by: the propensity is that of every group, or a public one")
    if domain.codebook is not None and domain.codebook.where and estimand == "risks":
        raise DeclarationError("where: estimand = 'risks' counts all records; take 'ate' for a difference")


def covariate_rule(
    universe: Universe, total: float, noisiest: float = MEAN_NOISE, *, worth: bool = True
) -> tuple[CovariateLaw, float, bool]:
    """What covariates are guessed to be, the norm that they are shrunk to, and whether their mean pays.

    ``total`` is n epsilon of all that is released, ``worth`` whether a mean is worth any of it,
    and ``noisiest`` its largest noise that is.
    """
    domain, p = universe.domain, universe.n_features
    law = CovariateLaw.of(domain, p)
    low, high = law.box(universe)
    noise = math.sqrt(2.0) * float(np.sum(high - low)) / (MEAN_SHARE * total)
    centered = worth and noise <= noisiest
    if centered:
        law = replace(law, offsets=(noise,) * p)
    norm = law.quantile(0.95) * max(1.0, (total / (800.0 * p)) ** 0.25)
    widest = domain.features_bound * (2.0 if centered and domain.ranges is not None else 1.0)
    return law, min(norm, widest), centered


@dataclass(frozen=True)
class Request:
    """What the predicted error of an effect depends on; all of it is public.

    ``kind`` is the score of what is estimated, ``n_samples`` are what all records count together,
    ``deviation``, ``slope`` and ``residual_bound`` are in units of the outcome, ``law`` and ``norm_bound``
    are of scaled covariates. The effect is that in each of ``groups``.
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

    def regression(self, center: float) -> RidgeFit:
        """That of the outcome from the share ``center`` of the budget, at the arm weights of least error."""
        kind, values, curvatures = self.kind, self.two_values, None
        if values is not None:
            curvatures = (values.curvature(self.level),) * 2
        square, epsilon = 1.0 + NORM**2, center * self.epsilon
        found = RidgeFit(
            gamma=2.0 * square / (self.n_samples * epsilon),
            noise=2.0
            * math.sqrt(square * (len(kind.rows.constants(self.n_features)) + 1))
            * self.slope
            / epsilon,
            n_samples=self.n_samples,
            slope=self.slope,
            scale=NORM / self.norm_bound,
            arms=Arms.ALIKE,
            rows=kind.rows,
            curvatures=curvatures,
        )
        if kind.arms is not Arms.BALANCED or kind.rows is not Rows.COMMON:
            return replace(found, arms=kind.arms)
        varying = self.confounding.heterogeneity * self.deviation
        if varying == 0.0:
            return found
        noise = found.errors(self.spread, self.deviation, 0.5, self.confounding.within(0.5))[1]
        return replace(found, arms=kind.arms, noise_ratio=min(float(noise[0, 0]) / varying, 1.0))

    @property
    def spread(self) -> Array:
        """Of one scaled covariate (1,), as the norm bound leaves it."""
        factor = self.law.mean_square(1.0, self.norm_bound)
        return np.full(1, self.norm_bound * math.sqrt(factor / self.n_features))

    @property
    def level(self) -> float:
        """Where the regression of an outcome of two values lies, which is guessed from its deviation."""
        assert self.two_values is not None
        low, width = self.two_values.low, self.two_values.width
        return self.two_values.bent(low + width * prevalence(self.deviation / width))


def _candidates(left: float, tried: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Shares of the center, and those of a logistic propensity that are ``tried``, 0 for a constant one."""
    for center in np.arange(0.1, 0.95, 0.05):
        for propensity in tried:
            if center + propensity < 0.95 * left:
                yield float(center), propensity


def effect_error(request: Request, left: float, center: float, propensity: float) -> float:
    """The mean squared error of an effect, in squared units of the outcome, to first order.

    Sampling, Laplace noise of the score, noise of the outcome regression and what its ridge leaves of a
    regression that spreads as far as its residuals, both times the distance of the arms that the propensity
    leaves. ``left`` is the share of the budget for center, propensity and score.
    """
    kind = request.kind
    n, p, sigma, declared = request.n_samples, request.n_features, request.deviation, request.confounding
    values, by_arm, spread = request.two_values, kind.rows is Rows.ARMS, float(request.spread[0])
    steepness = 1.0 if values is None else values.steepness(request.level)
    regression = request.regression(center)
    parts = np.array([[RATE], [1.0 - RATE]]) if by_arm else np.ones((1, 1))
    kept, noise = shrinkage([regression], request.spread, sigma, RATE, declared)
    away = declared.distance
    if propensity:
        norm, paid = 1.0 + request.norm_bound**2, propensity * request.epsilon
        ridge = norm / (0.3 * n * paid)
        curvature = VARIANCE * spread**2 + ridge
        log_noise = math.sqrt(p * norm * (p + 2)) / (0.65 * paid) * spread / (n * curvature)
        away = OPTIMISM * math.hypot(ridge / curvature * away, log_noise)
    # ``reach`` is that at a rate of one half for scores that divide by it
    widest = kind.reach[bool(propensity)] / kind.reach[0]
    scale = 2.0 * widest * kind.price * request.residual_bound / RATE
    scale *= request.groups / (n * (left - center - propensity) * request.epsilon)
    stretch = np.minimum(1.0 / (1.0 - kept), STRETCH)
    still, noise = 1.0 - stretch * (1.0 - kept), noise * stretch * steepness
    # errors of the regression stay in the residuals that are weighted
    residuals = sigma**2 + float(np.mean(p * noise**2 + (still * sigma) ** 2))
    sampling = (request.groups * residuals / (RATE * (1.0 - RATE)) + away**2 * sigma**2) / n
    # an interval pays for the noise of the second moment as well, at 2B times that of the mean
    sampling += MARGIN * widest * request.residual_bound / RATE * scale / n
    error = sampling + 2.0 * (1.0 + by_arm) * scale**2 + float(np.sum((parts * noise * away) ** 2))
    error += (regression.leaning(RATE, kind.wanted(RATE)) * declared.heterogeneity * sigma * away) ** 2
    return error + float(np.sum(parts * np.maximum(LEFT * kept, still) * away * sigma)) ** 2
