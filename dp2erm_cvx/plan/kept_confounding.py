"""How much confounding a rule leaves: from public quantities alone, before it is paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan.kept_imbalance import UNPREDICTED, shifted, varying
from dp2erm_cvx.plan.noise_range import public_covariates
from dp2erm_cvx.plan.rule import RulePlan
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps import CovariateMean, Fit, MeanSquare, Planned, Rows, RuleRows, Term
from dp2erm_cvx.universe import Universe

_LEAST, _TOLERANCE = 50, 1e-3
#: Draws of the noise, as many as bring the standard error of the share below this.
_FEWEST, _DRAWS, _ERROR = 4, 32, 0.03
#: Covariates beyond which nothing is solved for a prediction.
_MOST = 100


def kept_confounding(plan: RulePlan) -> float | None:
    """The share that stays of the bias by one covariate, whose arms differ by ``DIFFERENCE``.

    Solved on synthetic records: covariates as the domain makes one expect, arms of one size, no effect, an
    outcome that this covariate moves as far as its residuals spread, the public guess of the plan. The steps
    before the rule are solved at their gamma, clips and draws of their noise; the rule, at its gamma, has no
    noise of its own. Biases are taken without signs, relative to those of the same rule without center and
    factors. A prediction, without any data. None where the propensity is public (nothing is confounded in a
    trial), for more than a hundred covariates, and where synthetic records do not vary. A release that is
    paid for never fails by it.
    """
    stated = plan.study.settings.propensity
    if stated is not None and not isinstance(stated, str):
        return None
    if plan.study.universe.n_features > _MOST:
        return None
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = _kept(plan.steps, plan.study.start, plan.study.scale)
    except UNPREDICTED:
        return None
    return share if math.isfinite(share) else None


@lru_cache(maxsize=256)
def _kept(steps: tuple[Planned, ...], universe: Universe, scale: float) -> float:
    """The same for steps of which one is the rule, perhaps before its value."""
    rng = np.random.default_rng(universe.n_features)
    records = _confounded(universe, scale, rng)
    last = next(step for step in steps if step.name == "rule")
    before = steps[: steps.index(last)]
    # noise is divided by n
    less = records.n_samples / universe.n_samples
    placed: dict[str, Array] = {}
    for step in before:
        if isinstance(step.declared, CovariateMean | MeanSquare):
            placed[step.name] = np.array(step.declared.exact_sums(step, records, placed)) / less
            records = step.declared.mapped(step, records, placed)
    before = tuple(step for step in before if step.name not in placed)
    naive = _mean_effect(_uncorrected(last, universe.n_features), records, {})
    found: list[float] = []
    while len(found) < _FEWEST or (len(found) < _DRAWS and np.std(found) > _ERROR * np.sqrt(len(found))):
        released = dict(placed)
        for step in before:
            released[step.name] = _released(step, records, released, less, rng)
        found.append(abs(_mean_effect(last, records, released) / naive))
    return float(np.mean(found))


def _confounded(universe: Universe, scale: float, rng: np.random.Generator) -> Records:
    """Four records for all covariates drawn: in either arm, shifted, with residuals of either sign.

    Nothing else is confounded, by chance or otherwise.
    """
    domain, size = universe.domain, max(_LEAST, 2 * universe.n_features)
    drawn = public_covariates(domain, universe.n_features, size, rng)
    arm = np.repeat([0, 1, 0, 1], size)
    X = shifted(np.tile(drawn, (4, 1)), arm)
    residual = np.repeat([-1.0, -1.0, 1.0, 1.0], size) * np.tile(np.abs(rng.standard_normal(size)), 4)
    own, column = drawn[:, varying(drawn)], X[:, varying(drawn)]
    net = scale * ((column - own.mean()) / own.std() + residual)
    weights = None if domain.sampling is None else np.full(len(arm), domain.sampling.mean)
    return domain.records(X, arm, net + domain.outcome_center + domain.treatment_cost * arm, weights)


def _released(
    step: Planned, records: Records, released: Mapping[str, Array], less: float, rng: np.random.Generator
) -> Array:
    """What a step would release, with noise ``less`` times its own, as these records are fewer."""
    assert isinstance(step.calibration, Calibration)
    return _solved(step, records, released, less * simulate_noise(step.calibration, 1, rng)[0])


def _solved(step: Planned, records: Records, released: Mapping[str, Array], noise: Array) -> Array:
    """The coefficient (p,) of a regression with this noise."""
    fit = step.declared
    assert isinstance(fit, Fit)
    instance = fit.instance(step, *fit.mapped(records, released), noise)
    found = solve(instance, solver="newton", tolerance=_TOLERANCE)
    if fit.regression is None:
        return found.point
    return fit.regression.unscaled(found.value, records.n_features)


def _mean_effect(step: Planned, records: Records, released: Mapping[str, Array]) -> float:
    """What a rule estimates on average, without noise of its own."""
    assert isinstance(step.calibration, Calibration)
    theta = _solved(step, records, released, np.zeros(step.calibration.n_parameters))
    return float(np.mean(Rows.POOLED.predict(theta, records.covariates, 0.0)))


def _uncorrected(step: Planned, n_features: int) -> Planned:
    """The same rule without a center, at the factors of a propensity of one half."""
    fit = step.declared
    assert isinstance(fit, Fit)
    assert isinstance(fit.map, RuleRows)
    balance = fit.map.balance
    even = balance and replace(balance, log_odds=Term(Rows.POOLED, (0.0,) * (n_features + 1)))
    return replace(step, declared=replace(fit, map=replace(fit.map, after=(), balance=even)))
