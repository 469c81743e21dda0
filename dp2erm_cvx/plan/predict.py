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
_RECORDS, _DRAWS, _NOISES = 200, 8, 20_000
#: What a prediction on synthetic records may fail by, singular matrices included: it is then not
#: known.
UNPREDICTED = (Dp2ermError, ArithmeticError, ValueError)
_LEAST = 50
#: Draws of the noise, as many as bring the standard error of the share below this.
_FEWEST, _AT_MOST, _ERROR = 4, 32, 0.03
#: Covariates beyond which nothing is solved for a prediction.
_MOST = 100


@dataclass(frozen=True, eq=False)
class NoiseRange:
    """The 2.5-97.5 % range of the noise in theta: plus or minus ``half_width`` (p,), before Theta
    cuts in.

    Where the program has one effect ``<coefficients, theta>`` for everybody, ``effect`` is the half
    width of its noise; else both are None. ``bound`` is the largest value of one coordinate of
    theta over Theta (``inf`` where unbounded); ``shrinkage`` is the mean share by which gamma pulls
    theta toward 0. All but the last are in the units of theta.
    """

    half_width: Array
    effect: float | None
    coefficients: Array | None
    bound: float
    shrinkage: float

    @property
    def dominates(self) -> bool:
        """True if the effect, or half of the coordinates, moves by more than ``SHARE`` of
        ``bound``.

        Of what gamma leaves of ``bound``, as it shrinks noise and signal alike.
        """
        moved = np.median(self.half_width) if self.effect is None else self.effect
        return bool(moved > SHARE * (1.0 - self.shrinkage) * self.bound)


def noise_range(
    second: SecondStage, universe: Universe, calibration: Calibration, *, grid_scale: float = 0.0
) -> NoiseRange:
    """Simulate ``theta = -H^(-1) b / n``, b the noise and H the Hessian at public records with arms
    of n/2.

    The true Hessian is private: smaller arms and covariates that vary less make noise larger.
    ``grid_scale`` is that of the Laplace noise that covers the arithmetic of a perturbed objective.
    """
    rng, domain = (
        np.random.default_rng(0),
        universe.domain,
    )  # public: nothing drawn here is ever released
    X = public_covariates(domain, universe.n_features, 4096, rng)
    arm = np.arange(len(X)) % 2
    design = second.rows(domain.records(X, arm, np.zeros(len(X)))).Z
    p = design.shape[1]
    curvature = 2 * design.T @ design / len(X) + second.regularizer.strong_convexity * np.eye(p)
    if calibration.perturbed is Perturbed.OUTPUT:
        gamma, hessian = 0.0, curvature
        theta = simulate_noise(
            calibration, _NOISES, rng
        )  # its one draw covers the arithmetic as well
    else:
        gamma = calibration.gamma
        hessian = curvature + gamma * np.eye(p)
        theta = (
            -np.linalg.solve(hessian, simulate_noise(calibration, _NOISES, rng).T).T
            / universe.n_samples
        )
        theta = theta + rng.laplace(scale=grid_scale, size=theta.shape)
    effects = np.array([second.effect(unit, domain.space, X[:64]) for unit in np.eye(p)])
    coefficients = effects[:, 0] if np.all(effects == effects[:, :1]) else None
    return NoiseRange(
        half_width=np.quantile(np.abs(theta), 0.95, axis=0),
        effect=None
        if coefficients is None
        else float(np.quantile(np.abs(theta @ coefficients), 0.95)),
        coefficients=coefficients,
        bound=second.feasible(domain.space).norm_bound(1),
        shrinkage=gamma * float(np.trace(np.linalg.inv(hessian))) / p,
    )


def planned_range(plan: Plan[Study]) -> NoiseRange:
    """Noise range of a plan with a squared loss."""
    theta, second = plan.main, plan.study.second
    scale = 0.0 if theta.precision is None else theta.precision.grid.scale
    return noise_range(second, plan.study.universe, theta.calibration, grid_scale=scale)


def public_covariates(
    domain: Domain, n_features: int, size: int, rng: np.random.Generator, offset: float = 1.0
) -> Array:
    """Raw normal covariates (size, n_features) that stand in for the private ones.

    A declared range is 6 standard deviations wide, and the mean lies ``offset`` of them off what
    scales to 0, as nobody knows in advance where it lies. Without ranges, the same on a cube whose
    half diagonal is the bound. Levels are alike, and of numbers whose gaps are marked a share of
    ``MISSING`` is.
    """
    drawn: Array = (offset + rng.standard_normal((size, n_features))) / 3
    if domain.ranges is None:
        cube: Array = drawn * (domain.features_bound / np.sqrt(n_features))
        return cube
    low, high = np.array(domain.range_pairs).T
    spread: Array = np.array(domain.middles(n_features)) + (high / 2 - low / 2) * drawn
    return spread if domain.codebook is None else _coded(spread, domain, domain.codebook, rng)


def _coded(X: Array, domain: Domain, book: Codebook, rng: np.random.Generator) -> Array:
    """The covariates that a codebook makes of levels and gaps put in the place of normal ones."""
    names = list(domain.columns or ())
    for column in (*book.covariate_levels, *book.marked):
        own = [names.index(name) for name in book.covariates_of(column) if name in names]
        if column in book.covariate_levels:
            level = rng.integers(max(len(own), 1), size=(len(X), 1))
            X[:, own] = level == np.arange(len(own))
        elif len(own) == 2:
            absent = rng.random(len(X)) < MISSING
            X[:, own[1]] = absent
            X[absent, own[0]] = book.missing[column]
    return X


def residual_imbalance(plan: Plan[Study]) -> float | None:
    """The share of a difference of ``DIFFERENCE`` in the first covariate that varies which the
    weights leave.

    Solved on synthetic records: covariates as the domain makes one expect, arms of one size. At a
    private coefficient it is averaged over draws of its noise, sizes of the difference without
    their signs. A prediction, without any data: stronger or other imbalance leaves other shares.
    None where the weights are not for balancing arms, or cannot be had on these records. A release
    that is paid for never fails by it.
    """
    first, universe, step = plan.study.first, plan.study.universe, plan.step("propensity")
    if not first.balances_arms:
        return None
    noise = None
    if isinstance(first, PrivateFirstStage) and step is not None:
        noise = step.calibration, universe.n_samples
    # the same at every epsilon, unless the coefficient is private
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
    rng = np.random.default_rng(n_features)
    arm = np.arange(_RECORDS) % 2
    X = public_covariates(domain, n_features, _RECORDS, rng)
    records = domain.of_records.records(shifted(X, arm), arm, np.zeros(_RECORDS))
    x = records.covariates[:, varying(X)]

    def difference(weights: Array) -> float:
        treated, untreated = (np.average(x[arm == a], weights=weights[arm == a]) for a in (1, 0))
        return float(treated - untreated)

    if noise is None:
        weights = [solve(first.instance(records), tolerance=1e-4).value]
    else:
        assert isinstance(first, PrivateFirstStage)
        calibration, n_samples = noise
        # noise is divided by n
        drawn = simulate_noise(calibration, _DRAWS, rng) * (_RECORDS / n_samples)
        made = (first.perturbed(records, calibration.gamma, b) for b in drawn)
        weights = [solve(instance, solver="newton", tolerance=1e-4).value for instance in made]
    left = np.mean(np.abs([difference(each) for each in weights]))
    return float(left) / abs(difference(np.ones(_RECORDS)))


def varying(X: Array) -> int:
    """The first of the covariates (n, k) that varies: a level may be that of all records, or of
    none.
    """
    return int(np.argmax(np.any(X != X[0], axis=0)))


def shifted(X: Array, arm: NDArray[np.int64]) -> Array:
    """Covariates (n, k) of which the first that varies differs between arms (n,) in {0, 1}, in
    public.
    """
    moved, column = X.copy(), varying(X)
    moved[:, column] += DIFFERENCE * (arm - 0.5) * X[:, column].std()
    return moved


#: Records of a public covariate spread, and draws of the noise of a rule, that predictions are
#: averaged over.
_POINTS, _RULES = 512, 512


def rule_noise(
    plan: Plan[RuleStudy], theta: ArrayLike, released: Mapping[str, Array] = MappingProxyType({})
) -> tuple[Array, float, float]:
    """Predicted noise of a rule: no bounds, and without that of a center or a propensity.

    The half width (p,) of the 2.5-97.5 % range of the noise in every coefficient; the root mean
    square of what it does to the effect of one record, in units of the outcome; and the share of
    the decisions of a released ``theta`` (p,) that it flips. For covariates that spread by their
    ``released`` mean square, or a public guess, residuals of the public guess ``outcome_scale``,
    and the public guess of the mass of the factors. The effects without noise are guessed to be
    those of theta, less the size that the noise gives them: 1/2 of the decisions are flipped where
    noise explains all of them.
    """
    made, spread, k = plan.main.map, plan.step("spread"), plan.study.universe.n_features
    spreads = np.array(plan.study.law.within(plan.study.norm_bound))
    if isinstance(spread, MeanSquare) and spread.name in released:
        spreads = spread.spreads(released)
    scaled, rows, coded = (
        _rule_rows(plan, spreads, *how)
        for how in ((made.scale, False), (1.0, False), (made.scale, True))
    )
    moved, each = _moved(plan, scaled, scaled), _moved(plan, np.eye(coded.shape[1]), coded)
    effects = np.sum(rows * np.asarray(theta, dtype=np.float64), axis=1)
    size, noise, flipped = float(np.mean(effects**2)), float(np.mean(moved**2)), 0.5
    if size > noise:
        true = effects * math.sqrt(1.0 - noise / size)
        # on either side of the boundary records are flipped as often
        flipped = float(np.mean((true + moved > 0) != (true > 0)))
    return made.unscaled(np.quantile(np.abs(each), 0.95, axis=0), k), math.sqrt(noise), flipped


def _rule_rows(
    plan: Plan[RuleStudy], spreads: Array, scale: float = 1.0, coded: bool = False
) -> Array:
    """Rows (m, p) of public covariates of these ``spreads`` (k,), ``scale`` times those of the
    domain.

    Where they are ``coded``, levels of one column add up to the same for everybody.
    """
    k, domain = plan.study.universe.n_features, plan.study.universe.domain
    x = spreads * np.random.default_rng(k).standard_normal((_POINTS, k))
    book, names = domain.codebook or Codebook(), domain.columns or ()
    for column in book.covariate_levels if coded else ():
        own = [place for place, name in enumerate(names) if book.origin(name)[0] == column]
        total = 0.0 if plan.step("mean") is not None else 1.0
        x[:, own] += (total - x[:, own].sum(axis=1, keepdims=True)) / max(len(own), 1)
    rows: Array = plan.main.map.rows.of(
        scale * clip_norm(x, plan.study.norm_bound), np.zeros(_POINTS)
    )
    return rows


def _moved(plan: Plan[RuleStudy], at: Array, rows: Array) -> Array:
    """Changes (draws, m) of the effect ``at`` (m, p) by draws of the noise, for records of these
    rows.
    """
    calibration, study = plan.main.calibration, plan.study
    # a center is guessed to spread as far as what it leaves, and residuals of 2 (y - m) to be
    # normal
    left = study.scale * (1.0 if plan.main.map.after is None else math.sqrt(0.5))
    squared, slope = study.settings.response_bound is not None, study.settings.slope
    bend = 2.0 if squared else float(erfcx(math.sqrt(2.0) * left / slope))
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
    those of the same rule without center and factors. A prediction, without any data. None where
    the propensity is public (nothing is confounded in a trial), for more than a hundred covariates,
    and where synthetic records do not vary. A release that is paid for never fails by it.
    """
    public = plan.study.settings.propensity
    if not isinstance(public, str | None) or plan.study.universe.n_features > _MOST:
        return None
    return _simulated(_share_of_bias, plan.steps, plan.study.start, plan.study.scale)


@lru_cache(maxsize=256)
def _share_of_bias(steps: tuple[Step, ...], universe: Universe, scale: float) -> float:
    rng = np.random.default_rng(universe.n_features)
    records = _confounded(universe, scale, rng)
    last = next(step for step in steps if step.name == "rule")
    before = steps[: steps.index(last)]
    # noise is divided by n
    less = records.n_samples / universe.n_samples
    placed: dict[str, Array] = {}
    for step in before:
        if isinstance(step, CovariateMean | MeanSquare):
            placed[step.name] = np.array(step.exact_sums(records, placed)) / less
            records = step.mapped(records, placed)
    before = tuple(step for step in before if step.name not in placed)
    assert isinstance(last, Fit)
    assert isinstance(last.map, RuleRows)
    # the same rule without a center, at the factors of a propensity of one half
    even = last.map.balance
    even = even and replace(even, log_odds=Term(Rows.POOLED, (0.0,) * (universe.n_features + 1)))
    uncorrected = replace(last, map=replace(last.map, after=None, balance=even))
    naive = _mean_effect(uncorrected, records, {})
    parts: list[float] = []
    while len(parts) < _FEWEST or (
        len(parts) < _AT_MOST and np.std(parts) > _ERROR * np.sqrt(len(parts))
    ):
        released = dict(placed)
        for step in before:
            drawn = simulate_noise(step.calibration, 1, rng)[
                0
            ]  # less of it, as these records are fewer
            released[step.name] = _solved(step, records, released, less * drawn)
        parts.append(abs(_mean_effect(last, records, released) / naive))
    return float(np.mean(parts))


def _confounded(universe: Universe, scale: float, rng: np.random.Generator) -> Records:
    """Four records for all covariates drawn: in either arm, shifted, with residuals of either
    sign.
    """
    domain, size = universe.domain, max(_LEAST, 2 * universe.n_features)
    drawn = public_covariates(domain, universe.n_features, size, rng)
    arm = np.repeat([0, 1, 0, 1], size)
    X = shifted(np.tile(drawn, (4, 1)), arm)
    residual = np.repeat([-1.0, -1.0, 1.0, 1.0], size) * np.tile(
        np.abs(rng.standard_normal(size)), 4
    )
    own, column = drawn[:, varying(drawn)], X[:, varying(drawn)]
    net = scale * ((column - own.mean()) / own.std() + residual)
    alone, raw = domain.of_records, net + domain.outcome_center + domain.treatment_cost * arm
    weights = None if alone.sampling is None else np.full(len(arm), alone.sampling.mean)
    return alone.records(X, arm, raw, weights)


def _solved(fit: Step, records: Records, released: Mapping[str, Array], noise: Array) -> Array:
    assert isinstance(fit, Fit)
    instance = fit.instance(*fit.mapped(records, released), noise)
    fitted = solve(instance, solver="newton", tolerance=1e-3)
    if fit.regression is None:
        return fitted.point
    return fit.regression.unscaled(fitted.value, records.n_features)


def _mean_effect(step: Step, records: Records, released: Mapping[str, Array]) -> float:
    theta = _solved(step, records, released, np.zeros(step.calibration.n_parameters))
    return float(np.mean(Rows.POOLED.predict(theta, records.covariates, 0.0)))
