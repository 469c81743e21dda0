"""Theta under many draws of noise, for any number of plans on the same records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dp2erm_cvx.calibration import Calibration, OutputCalibration
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.experiments.rules.plans import PlannedRule
from dp2erm_cvx.mechanism import simulate
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.batch import solve_draws


@dataclass(frozen=True)
class Fitted:
    """``thetas`` (draws, p) and the mean effective sample size of the weights over n."""

    thetas: Array = field(repr=False)
    effective_share: float


class Weights:
    """Weights of first stages on one dataset, each solved once."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._known: dict[FirstStage, Array] = {}

    def __call__(self, first: FirstStage) -> Array:
        """Weights (n,) of a first stage without noise."""
        if first not in self._known:
            self._known[first] = solve(first.instance(self.records), throw=False).value
        return self._known[first]


def fitted(rule: PlannedRule, weights: Weights, draws: int, rng: np.random.Generator) -> Fitted:
    """``draws`` draws of theta as the plan would release it, with exact arithmetic assumed."""
    if isinstance(rule.first, PrivateFirstStage):
        assert rule.plan.propensity is not None
        noises = simulate(rule.plan.propensity, draws, rng)
        found = [_private_weights(rule, rule.first, weights.records, noise) for noise in noises]
        thetas = [_thetas(rule, weights.records, w, 1, rng)[0] for w in found]
        return Fitted(np.array(thetas), float(np.mean([effective_share(w) for w in found])))
    w = weights(rule.first)
    return Fitted(_thetas(rule, weights.records, w, draws, rng), effective_share(w))


def without_noise(first: FirstStage, second: SecondStage, weights: Weights) -> Fitted:
    """Theta of the two stages without privacy, and without the constraint that is there for its sake."""
    w = weights(first)
    theta = solve(second.unconstrained().instance(weights.records, w, gamma=0.0), throw=False).value
    return Fitted(theta[None], effective_share(w))


def effective_share(w: Array) -> float:
    """Kish's effective sample size over n."""
    return float(np.sum(w)) ** 2 / float(w @ w) / len(w)


def _private_weights(rule: PlannedRule, first: PrivateFirstStage, records: Records, noise: Array) -> Array:
    assert rule.plan.propensity is not None
    return solve(first.perturbed(records, rule.plan.propensity.gamma, noise), throw=False).value


def _thetas(rule: PlannedRule, records: Records, w: Array, draws: int, rng: np.random.Generator) -> Array:
    calibration, theta_set = rule.plan.calibration, rule.second.feasible(records.domain)
    if isinstance(calibration, OutputCalibration):
        exact = solve(rule.second.unconstrained().instance(records, w, gamma=0.0), throw=False).value
        found = exact + simulate(calibration.law, draws, rng)
    else:
        assert isinstance(calibration, Calibration)
        program = rule.second.unconstrained() if rule.plan.unconstrained else rule.second
        instance = program.instance(records, w, gamma=calibration.gamma)
        found = solve_draws(instance, simulate(calibration, draws, rng)).thetas
    # theta is projected as in a release
    return np.array([theta_set.project(theta) for theta in found]) if rule.plan.unconstrained else found
