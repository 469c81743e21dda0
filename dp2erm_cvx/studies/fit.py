"""Theta under many draws of noise, for any number of plans on the same records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dp2erm_cvx.calibration import Calibration, OutputCalibration, Perturbed
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.solve import Solution, solve
from dp2erm_cvx.solve.batch import solve_draws
from dp2erm_cvx.studies.plans import PlannedRule


@dataclass(frozen=True)
class Fitted:
    """``thetas`` (draws, p), mean effective sample size of the weights over n, and if all was certified."""

    thetas: Array = field(repr=False)
    effective_share: float
    certified: bool


class Weights:
    """Weights of first stages on one dataset, each solved once."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._known: dict[FirstStage, Solution] = {}

    def __call__(self, first: FirstStage) -> Solution:
        """Weights (n,) of a first stage without noise, with their certificate."""
        if first not in self._known:
            self._known[first] = solve(first.instance(self.records), throw=False)
        return self._known[first]


def draw_thetas(rule: PlannedRule, weights: Weights, draws: int, rng: np.random.Generator) -> Fitted:
    """``draws`` draws of theta as the plan would release it, with exact arithmetic assumed."""
    if isinstance(rule.first, PrivateFirstStage):
        assert rule.plan.propensity is not None
        noises = simulate_noise(rule.plan.propensity.calibration, draws, rng)
        found = [_private_weights(rule, rule.first, weights.records, noise) for noise in noises]
        parts = [_thetas(rule, weights.records, w.value, 1, rng) for w in found]
        certified = all(w.certified for w in found) and all(fine for _, fine in parts)
        share = float(np.mean([effective_share(w.value) for w in found]))
        return Fitted(np.concatenate([thetas for thetas, _ in parts]), share, certified)
    w = weights(rule.first)
    thetas, fine = _thetas(rule, weights.records, w.value, draws, rng)
    return Fitted(thetas, effective_share(w.value), w.certified and fine)


def without_noise(first: FirstStage, second: SecondStage, weights: Weights) -> Fitted:
    """Theta of the two stages without privacy, and without the constraint that is there for its sake."""
    w = weights(first)
    found = solve(second.unconstrained().instance(weights.records, w.value, gamma=0.0), throw=False)
    return Fitted(found.value[None], effective_share(w.value), w.certified and found.certified)


def effective_share(w: Array) -> float:
    """Kish's effective sample size over n."""
    return float(np.sum(w)) ** 2 / float(w @ w) / len(w)


def _private_weights(rule: PlannedRule, first: PrivateFirstStage, records: Records, noise: Array) -> Solution:
    assert rule.plan.propensity is not None
    return solve(first.perturbed(records, rule.plan.propensity.calibration.gamma, noise), throw=False)


def _thetas(
    rule: PlannedRule, records: Records, w: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, bool]:
    calibration, theta_set = rule.plan.theta.calibration, rule.second.feasible(records.domain)
    if isinstance(calibration, OutputCalibration):
        exact = solve(rule.second.unconstrained().instance(records, w, gamma=0.0), throw=False)
        found, certified = exact.value + simulate_noise(calibration.law, draws, rng), exact.certified
    else:
        assert isinstance(calibration, Calibration)
        program = rule.plan.theta.program
        instance = program.instance(records, w, gamma=calibration.gamma)
        solved = solve_draws(instance, simulate_noise(calibration, draws, rng))
        found, certified = solved.thetas, bool(np.all(solved.certified))
    if rule.plan.theta.perturbed is not Perturbed.OBJECTIVE:  # theta is projected as in a release
        found = np.array([theta_set.project(theta) for theta in found])
    return found, certified
