"""Predictions about a release from public quantities alone: noise, imbalance, confounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Calibration, Perturbed
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import clip_norm
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.noise import simulate_noise
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.plan.rule import RuleStudy, Study
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.covariates import MISSING, CovariateMean, MeanSquare
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.record_map import Rows, RuleRows, Term
from dp2erm_cvx.steps.step import Step

#: The noise dominates where it reaches beyond this share of the largest value that Theta allows.
SHARE = 0.5
#: Difference of the arms' means of one covariate that is declared, in its standard deviations.
DIFFERENCE = 0.5
#: Synthetic records that weights are solved on.
_RECORDS = 200
#: Draws of the noise of a private coefficient.
_COEFFICIENT_DRAWS = 8
#: Draws of the noise of theta.
_THETA_DRAWS = 20_000
#: Public covariates that the Hessian of theta is taken at, and those that its effect is looked at.
_HESSIAN_RECORDS = 4096
_EFFECT_RECORDS = 64
#: What a prediction on synthetic records may fail by, singular matrices included: it is then not
#: known.
UNPREDICTED = (Dp2ermError, ArithmeticError, ValueError)
#: Fewest draws of covariates of a synthetic confounded population.
_FEWEST_COVARIATES = 50
#: Fewest and most draws of the noise of a share of bias.
_FEWEST_DRAWS = 4
_MOST_DRAWS = 32
#: Standard error of that share below which no more noise is drawn.
_SMALL_ERROR = 0.03
#: Number of covariates beyond which nothing is solved for a prediction.
_MOST_FEATURES = 100


@dataclass(frozen=True, eq=False)
class NoiseRange:
    """The 2.5-97.5 % range of the noise in theta, before Theta cuts in.

    Parameters
    ----------
    half_width
        (p,) half width of the range of every coordinate, in units of theta.
    effect
        Half width of the noise of the effect, in units of the outcome, where the program has one
        effect ``<coefficients, theta>`` for everybody; None elsewhere.
    coefficients
        (p,) what that effect multiplies theta by; None where ``effect`` is.
    bound
        Largest value of one coordinate of theta over Theta, in units of theta; ``inf`` where
        unbounded.
    shrinkage
        Mean share by which gamma pulls theta toward 0.
    """

    half_width: Array
    effect: float | None
    coefficients: Array | None
    bound: float
    shrinkage: float

    @property
    def dominates(self) -> bool:
        """True if the effect, or half of the coordinates, moves by more than a share of its bound.

        The share is ``SHARE`` of what gamma leaves of ``bound``, as it shrinks noise and signal
        alike.
        """
        moved = np.median(self.half_width) if self.effect is None else self.effect
        return bool(moved > SHARE * (1.0 - self.shrinkage) * self.bound)


def noise_range(
    second: SecondStage, universe: Universe, calibration: Calibration, *, grid_scale: float = 0.0
) -> NoiseRange:
    """Simulate the noise of theta by that of ``-H^(-1) b / n``.

    b is the noise of the objective, and H its Hessian at public records with arms of n/2. The true
    Hessian is private: smaller arms and covariates that vary less make noise larger.

    Parameters
    ----------
    second
        A second stage of squared loss.
    universe
        The datasets that theta is released from.
    calibration
        Of its noise.
    grid_scale
        Scale of the Laplace noise that covers the arithmetic of a perturbed objective, in units of
        theta.
    """
    # The seed is public: nothing that is drawn here is ever released.
    rng = np.random.default_rng(0)
    domain = universe.domain
    X = public_covariates(domain, universe.n_features, _HESSIAN_RECORDS, rng)
    arm = np.arange(len(X)) % 2
    design = second.rows(domain.records(X, arm, np.zeros(len(X)))).Z
    p = design.shape[1]
    curvature = 2 * design.T @ design / len(X) + second.regularizer.strong_convexity * np.eye(p)
    b = simulate_noise(calibration, _THETA_DRAWS, rng)
    if calibration.perturbed is Perturbed.OUTPUT:
        # The noise is that of theta itself, and one draw covers the arithmetic as well.
        gamma = 0.0
        hessian = curvature
        theta_noise = b
    else:
        gamma = calibration.gamma
        hessian = curvature + gamma * np.eye(p)
        theta_noise = -np.linalg.solve(hessian, b.T).T / universe.n_samples
        theta_noise = theta_noise + rng.laplace(scale=grid_scale, size=theta_noise.shape)
    coefficients = _effect_coefficients(second, domain, X[:_EFFECT_RECORDS], p)
    effect = None
    if coefficients is not None:
        effect = float(np.quantile(np.abs(theta_noise @ coefficients), 0.95))
    return NoiseRange(
        half_width=np.quantile(np.abs(theta_noise), 0.95, axis=0),
        effect=effect,
        coefficients=coefficients,
        bound=second.feasible(domain.space).norm_bound(1),
        shrinkage=gamma * float(np.trace(np.linalg.inv(hessian))) / p,
    )


def _effect_coefficients(second: SecondStage, domain: Domain, X: Array, p: int) -> Array | None:
    """What an effect that is the same for all multiplies theta by, (p,); None for another one.

    Parameters
    ----------
    second
        A second stage, whose effect is linear in theta.
    domain
        What is public of the records.
    X
        Raw covariates (m, k) at which effects are compared.
    p
        Number of coordinates of theta.
    """
    effects = np.array([second.effect(unit, domain.space, X) for unit in np.eye(p)])
    if not np.all(effects == effects[:, :1]):
        return None
    return np.asarray(effects[:, 0])


def planned_range(plan: Plan[Study]) -> NoiseRange:
    """Noise range of a plan with a squared loss."""
    theta = plan.main
    scale = 0.0 if theta.precision is None else theta.precision.grid.scale
    return noise_range(plan.study.second, plan.study.universe, theta.calibration, grid_scale=scale)


def public_covariates(
    domain: Domain, n_features: int, size: int, rng: np.random.Generator, offset: float = 1.0
) -> Array:
    """Raw normal covariates (size, n_features) that stand in for the private ones.

    A declared range is 6 standard deviations wide. Without ranges, the same holds on a cube whose
    half diagonal is the bound. All levels of a column are as frequent, and a share of ``MISSING``
    of the numbers whose gaps are marked is missing.

    Parameters
    ----------
    domain
        What is public of the records.
    n_features
        Number of covariates.
    size
        Number of records.
    rng
        Draws them.
    offset
        How far the mean lies off what scales to 0, in standard deviations: nobody knows in advance
        where it lies.
    """
    drawn: Array = (offset + rng.standard_normal((size, n_features))) / 3
    if domain.ranges is None:
        cube: Array = drawn * (domain.features_bound / np.sqrt(n_features))
        return cube
    low, high = np.array(domain.range_pairs).T
    spread: Array = np.array(domain.middles(n_features)) + (high / 2 - low / 2) * drawn
    if domain.codebook is None:
        return spread
    return _coded(spread, domain, domain.codebook, rng)


def _coded(X: Array, domain: Domain, book: Codebook, rng: np.random.Generator) -> Array:
    """The covariates that a codebook makes of levels and gaps put in the place of normal ones."""
    names = list(domain.columns or ())
    for column in (*book.covariate_levels, *book.marked):
        places = [names.index(name) for name in book.covariates_of(column) if name in names]
        if column in book.covariate_levels:
            level = rng.integers(max(len(places), 1), size=(len(X), 1))
            X[:, places] = level == np.arange(len(places))
        elif len(places) == 2:
            # a number, and the mark of its gaps
            number, mark = places
            is_missing = rng.random(len(X)) < MISSING
            X[:, mark] = is_missing
            X[is_missing, number] = book.missing[column]
    return X


def residual_imbalance(plan: Plan[Study]) -> float | None:
    """The share of a difference between the arms that weights leave, on synthetic records.

    The first covariate that varies differs by ``DIFFERENCE`` between arms of one size; covariates
    are as the domain makes one expect. At a private coefficient the share is averaged over draws of
    its noise, sizes of the difference without their signs. This is a prediction without any data:
    stronger or other imbalance leaves other shares.

    Returns
    -------
    float or None
        None where the weights are not for balancing arms, or cannot be had on these records. A
        release that is paid for never fails by it.
    """
    first = plan.study.first
    if not first.balances_arms:
        return None
    universe = plan.study.universe
    step = plan.step("propensity")
    noise = None
    if isinstance(first, PrivateFirstStage) and step is not None:
        noise = step.calibration, universe.n_samples
    # The share is the same at every epsilon, unless the coefficient is private.
    return _simulated(_residual_share, first, universe.domain, universe.n_features, noise)


def _simulated(share: Any, *declared: Any) -> float | None:
    """A share from synthetic records; None where they cannot be solved."""
    with suppress(*UNPREDICTED), np.errstate(divide="ignore", invalid="ignore"):
        try:
            value: float = share(*declared)
        except TypeError:  # a user's program need not be hashable
            value = share.__wrapped__(*declared)
        return value if math.isfinite(value) else None
    return None


@lru_cache(maxsize=256)
def _residual_share(
    first: FirstStage, domain: Domain, n_features: int, noise: tuple[Calibration, int] | None
) -> float:
    """The share that :func:`residual_imbalance` predicts.

    Parameters
    ----------
    first
        The first stage.
    domain
        What is public of the records.
    n_features
        Number of covariates.
    noise
        The calibration of a private coefficient, and the number of records that it is made for;
        None without one.
    """
    rng = np.random.default_rng(n_features)
    arm = np.arange(_RECORDS) % 2
    X = public_covariates(domain, n_features, _RECORDS, rng)
    records = domain.of_records.records(shifted(X, arm), arm, np.zeros(_RECORDS))
    x = records.covariates[:, varying(X)]

    def difference(weights: Array) -> float:
        """Difference of the weighted means of both arms."""
        treated_mean = np.average(x[arm == 1], weights=weights[arm == 1])
        control_mean = np.average(x[arm == 0], weights=weights[arm == 0])
        return float(treated_mean - control_mean)

    if noise is None:
        weights = [solve(first.instance(records), tolerance=1e-4).value]
    else:
        assert isinstance(first, PrivateFirstStage)
        weights = _weights_with_noise(first, records, *noise, rng)
    remaining_difference = np.mean(np.abs([difference(w) for w in weights]))
    return float(remaining_difference) / abs(difference(np.ones(_RECORDS)))


def _weights_with_noise(
    first: PrivateFirstStage,
    records: Records,
    calibration: Calibration,
    n_samples: int,
    rng: np.random.Generator,
) -> list[Array]:
    """Weights of synthetic records at draws of the noise of a private coefficient."""
    # Noise is divided by n, of which these records are a part.
    drawn = simulate_noise(calibration, _COEFFICIENT_DRAWS, rng) * (_RECORDS / n_samples)
    weights = []
    for noise_vector in drawn:
        instance = first.perturbed(records, calibration.gamma, noise_vector)
        weights.append(solve(instance, solver="newton", tolerance=1e-4).value)
    return weights


def varying(X: Array) -> int:
    """The first of the covariates (n, k) that varies between records; 0 where none does."""
    return int(np.argmax(np.any(X != X[0], axis=0)))


def shifted(X: Array, arm: NDArray[np.int64]) -> Array:
    """Covariates (n, k) whose first varying one differs by ``DIFFERENCE`` between the arms (n,)."""
    column = varying(X)
    moved = X.copy()
    moved[:, column] += DIFFERENCE * (arm - 0.5) * X[:, column].std()
    return moved


#: Records of a public covariate spread that predictions about a rule are averaged over.
_POINTS = 512
#: Draws of the noise of a rule.
_RULES = 512


@dataclass(frozen=True, eq=False)
class RuleNoise:
    """Predicted noise of a rule: no bounds, and without that of a center or a propensity.

    Parameters
    ----------
    half_width
        (p,) half width of the 2.5-97.5 % range of the noise in every coefficient.
    effect
        Root mean square of what noise does to the effect of one record, in units of the outcome.
    flipped_share
        Share of the decisions of the released rule that noise flips.
    """

    half_width: Array
    effect: float
    flipped_share: float


def rule_noise(
    plan: Plan[RuleStudy], theta: ArrayLike, released: Mapping[str, Array] = MappingProxyType({})
) -> RuleNoise:
    """Predict the noise of a rule from what was released and from public guesses.

    Covariates spread by their released mean square, or by a public guess; residuals by the public
    guess ``outcome_scale``; factors have the mass that is guessed. The effects without noise are
    guessed to be those of theta, less the size that the noise gives them: half of the decisions
    are flipped where noise explains all of them.

    Parameters
    ----------
    plan
        Plan of the rule.
    theta
        (p,) the released rule.
    released
        What else was released, by step.
    """
    rule_map = plan.main.map
    spread = plan.step("spread")
    spreads = np.array(plan.study.law.within(plan.study.norm_bound))
    if isinstance(spread, MeanSquare) and spread.name in released:
        spreads = spread.spreads(released)
    coded = _rule_rows(plan, spreads, rule_map.scale, coded=True)
    coefficient_noise = _effect_noise(plan, np.eye(coded.shape[1]), coded)
    half_width = np.quantile(np.abs(coefficient_noise), 0.95, axis=0)
    scaled = _rule_rows(plan, spreads, rule_map.scale)
    effect_noise = _effect_noise(plan, scaled, scaled)
    effects = np.sum(_rule_rows(plan, spreads) * np.asarray(theta, dtype=np.float64), axis=1)
    return RuleNoise(
        half_width=rule_map.unscaled(half_width, plan.study.universe.n_features),
        effect=math.sqrt(float(np.mean(effect_noise**2))),
        flipped_share=_flipped_share(effects, effect_noise),
    )


def _flipped_share(effects: Array, effect_noise: Array) -> float:
    """Share of the decisions of a released rule that noise flips.

    Parameters
    ----------
    effects
        Released effects (m,).
    effect_noise
        Draws (draws, m) of what noise does to them.
    """
    noise_square = float(np.mean(effect_noise**2))
    square = float(np.mean(effects**2))
    if not square > noise_square:
        return 0.5
    without_noise = effects * math.sqrt(1.0 - noise_square / square)
    # On either side of the boundary records are flipped as often.
    is_flipped = (without_noise + effect_noise > 0) != (without_noise > 0)
    return float(np.mean(is_flipped))


def _rule_rows(
    plan: Plan[RuleStudy], spreads: Array, scale: float = 1.0, *, coded: bool = False
) -> Array:
    """Rows (m, p) of public normal covariates of these ``spreads`` (k,), multiplied by ``scale``.

    Where they are ``coded``, levels of one column add up to the same for everybody.
    """
    n_features = plan.study.universe.n_features
    x = spreads * np.random.default_rng(n_features).standard_normal((_POINTS, n_features))
    if coded:
        _make_levels_add_up(plan, x)
    clipped = clip_norm(x, plan.study.norm_bound)
    rows: Array = plan.main.map.rows.of(scale * clipped, np.zeros(_POINTS))
    return rows


def _make_levels_add_up(plan: Plan[RuleStudy], x: Array) -> None:
    """Move covariates x (m, k) of levels so that those of one column add up to 1, in place.

    They add up to 0 where their mean is subtracted.
    """
    domain = plan.study.universe.domain
    codebook = domain.codebook or Codebook()
    names = domain.columns or ()
    total = 1.0 if plan.step("mean") is None else 0.0
    for column in codebook.covariate_levels:
        levels = [place for place, name in enumerate(names) if codebook.origin(name)[0] == column]
        missing = total - x[:, levels].sum(axis=1, keepdims=True)
        x[:, levels] += missing / max(len(levels), 1)


def _effect_noise(plan: Plan[RuleStudy], at: Array, rows: Array) -> Array:
    """Changes (draws, m) of the effect by draws of the noise: ``b' H^(-1) z / n`` at every row z.

    Parameters
    ----------
    plan
        Plan of the rule, whose noise is b.
    at
        The rows z (m, p) at which effects change.
    rows
        Rows (n, p) of the records that the Hessian H is that of.
    """
    calibration = plan.main.calibration
    study = plan.study
    if study.settings.response_bound is not None:
        bend = 2.0
    else:
        # A center is guessed to spread as far as what it leaves, and residuals of 2 (y - m) to be
        # normal.
        has_center = plan.main.map.after is not None
        deviation = study.scale * (math.sqrt(0.5) if has_center else 1.0)
        bend = float(erfcx(math.sqrt(2.0) * deviation / study.settings.slope))
    p = rows.shape[1]
    hessian = bend * study.mass * (rows.T @ rows) / len(rows) + calibration.gamma * np.eye(p)
    drawn = simulate_noise(calibration, _RULES, np.random.default_rng(p))
    return np.asarray(drawn @ np.linalg.solve(hessian, at.T) / study.universe.n_samples)


def residual_bias(plan: Plan[RuleStudy]) -> float | None:
    """The share that stays of the bias by one covariate, whose arms differ by ``DIFFERENCE``.

    Solved on synthetic records: covariates as the domain makes one expect, arms of one size, no
    effect, an outcome that this covariate moves as far as its residuals spread, the public guess of
    the plan. The steps before the rule are solved at their gamma, clips and draws of their noise;
    the rule, at its gamma, has no noise of its own. Biases are taken without signs, relative to
    those of the same rule without center and factors. This is a prediction without any data.

    Returns
    -------
    float or None
        None where the propensity is public (nothing is confounded in a trial), for more than a
        hundred covariates, and where synthetic records do not vary. A release that is paid for
        never fails by it.
    """
    public = plan.study.settings.propensity
    if not isinstance(public, str | None) or plan.study.universe.n_features > _MOST_FEATURES:
        return None
    return _simulated(_share_of_bias, plan.steps, plan.study.start, plan.study.scale)


@lru_cache(maxsize=256)
def _share_of_bias(steps: tuple[Step, ...], universe: Universe, scale: float) -> float:
    """The share that :func:`residual_bias` predicts, for residuals of the deviation ``scale``."""
    rng = np.random.default_rng(universe.n_features)
    records = _confounded(universe, scale, rng)
    rule = next(step for step in steps if step.name == "rule")
    assert isinstance(rule, Fit)
    steps_before = steps[: steps.index(rule)]
    # Noise is divided by n, of which these records are a part.
    part = records.n_samples / universe.n_samples
    placements: dict[str, Array] = {}
    for step in steps_before:
        if isinstance(step, CovariateMean | MeanSquare):
            placements[step.name] = np.array(step.exact_sums(records, placements)) / part
            records = step.mapped(records, placements)
    regressions = [step for step in steps_before if step.name not in placements]
    uncorrected_effect = _mean_effect(_uncorrected(rule, universe.n_features), records, {})
    shares: list[float] = []
    while _more_draws_are_needed(shares):
        released = dict(placements)
        for step in regressions:
            noise = simulate_noise(step.calibration, 1, rng)[0]
            released[step.name] = _solved(step, records, released, part * noise)
        shares.append(abs(_mean_effect(rule, records, released) / uncorrected_effect))
    return float(np.mean(shares))


def _uncorrected(rule: Fit, n_features: int) -> Fit:
    """The same rule without a center, at the factors of a propensity of one half."""
    assert isinstance(rule.map, RuleRows)
    balance = rule.map.balance
    if balance is not None:
        one_half = Term(Rows.POOLED, (0.0,) * (n_features + 1))
        balance = replace(balance, log_odds=one_half)
    return replace(rule, map=replace(rule.map, after=None, balance=balance))


def _more_draws_are_needed(shares: list[float]) -> bool:
    """True until the standard error of the mean of ``shares`` is small, within the limits."""
    if len(shares) < _FEWEST_DRAWS:
        return True
    if len(shares) >= _MOST_DRAWS:
        return False
    return bool(np.std(shares) > _SMALL_ERROR * np.sqrt(len(shares)))


def _confounded(universe: Universe, scale: float, rng: np.random.Generator) -> Records:
    """Synthetic confounded records without an effect, whose residuals have the size ``scale``.

    For all covariates drawn there are four: in either arm, shifted, with residuals of either sign.
    """
    domain = universe.domain
    size = max(_FEWEST_COVARIATES, 2 * universe.n_features)
    drawn = public_covariates(domain, universe.n_features, size, rng)
    arm = np.repeat([0, 1, 0, 1], size)
    X = shifted(np.tile(drawn, (4, 1)), arm)
    sign = np.repeat([-1.0, -1.0, 1.0, 1.0], size)
    residual = sign * np.tile(np.abs(rng.standard_normal(size)), 4)
    place = varying(drawn)
    standardized = (X[:, place] - drawn[:, place].mean()) / drawn[:, place].std()
    net = scale * (standardized + residual)
    outcome = net + domain.outcome_center + domain.treatment_cost * arm
    domain_of_records = domain.of_records
    weights = None
    if domain_of_records.sampling is not None:
        weights = np.full(len(arm), domain_of_records.sampling.mean)
    return domain_of_records.records(X, arm, outcome, weights)


def _solved(fit: Step, records: Records, released: Mapping[str, Array], noise: Array) -> Array:
    """Coefficients of a regression of these records, at its gamma and this ``noise`` (p,)."""
    assert isinstance(fit, Fit)
    instance = fit.instance(*fit.mapped(records, released), noise)
    fitted = solve(instance, solver="newton", tolerance=1e-3)
    if fit.regression is None:
        return fitted.point
    return fit.regression.unscaled(fitted.value, records.n_features)


def _mean_effect(step: Step, records: Records, released: Mapping[str, Array]) -> float:
    """Mean over the records of the effect by a rule without noise, in units of the outcome."""
    theta = _solved(step, records, released, np.zeros(step.calibration.n_parameters))
    return float(np.mean(Rows.POOLED.predict(theta, records.covariates, 0.0)))
