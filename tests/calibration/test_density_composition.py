"""Theorem 9 on exact densities: the joint law of coefficient and released mean, both in one dimension."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain
from dp2erm_cvx.plan import Study, make_plan
from dp2erm_cvx.problems.arm_means import plug_in_ate
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe
from tests.plan.changed import changed

N, EPSILON, TRIM = 4, 1.0, 2.5
DOMAIN = Domain(1.0, 1.0)
FIRST = ipw_private(share=0.4, ridge=0.05, radius=np.inf, trim=TRIM)
SECOND = plug_in_ate(theta_set=WholeSpace())
PLAN = make_plan(Study(FIRST, SECOND, Universe(DOMAIN, N, 1), Budget(EPSILON)))
# the middle of the laws, where the weights move, and their far tails, where pure noise is nearly spent
LAM = np.concatenate([-np.geomspace(400, 8, 40), np.linspace(-7, 7, 281), np.geomspace(8, 400, 40)])
THETA = np.concatenate([-np.geomspace(3000, 8, 40), np.linspace(-7, 7, 141), np.geomspace(8, 3000, 40)])


def noise_for(z, lam, gamma):
    """The noise b whose perturbed logistic fit is lam, and minus its derivative."""
    s = np.multiply.outer(lam, z)
    b = special.expit(-s) @ z - N * (FIRST.ridge + gamma) * lam
    return b, special.expit(s) * special.expit(-s) @ z**2 + N * (FIRST.ridge + gamma)


def log_density(data, plan):
    """Log density of (lam, theta) on the grid, up to a constant that is common to all data."""
    x, a, y = data
    z = (2 * a - 1) * x
    b, slope = noise_for(z, LAM, plan.step("propensity").calibration.gamma)
    first = -np.abs(b) / plan.step("propensity").calibration.scale + np.log(slope)
    f = np.minimum(1 + np.exp(-np.multiply.outer(LAM, z)), TRIM)
    mean = (f / f.sum(axis=1, keepdims=True)) @ (2 * (2 * a - 1) * y)
    gamma = plan.main.calibration.gamma
    pull = N * (2 * (THETA[None, :] - mean[:, None]) + gamma * THETA[None, :])
    return first[:, None] - np.abs(pull) / plan.main.calibration.scale


def loss(plan):
    """Largest log ratio over neighbors with flips, many at the corners, or the first above epsilon."""
    rng, worst = np.random.default_rng(0), 0.0
    for k in range(400):
        x = rng.choice([-1.0, 0.0, 1.0], N) if k % 2 else rng.uniform(-1, 1, N)
        a, y = rng.integers(0, 2, N), rng.choice([-1.0, 1.0], N)
        x2, a2, y2 = x.copy(), a.copy(), y.copy()
        x2[0], a2[0], y2[0] = rng.choice([-1.0, 0.0, 1.0]), rng.integers(0, 2), rng.choice([-1.0, 1.0])
        if k % 4 == 1:  # the changed record is the heavy one on both sides: the most that Theorem 9 allows
            x[1:] = x2[1:] = -(2 * a[1:] - 1)
            x[0], x2[0] = 2 * a[0] - 1, 2 * a2[0] - 1
        gap = log_density((x, a, y), plan) - log_density((x2, a2, y2), plan)
        worst = max(worst, float(np.abs(gap).max()))
        if worst > EPSILON:
            break
    return worst


def test_the_fit_inverts_the_noise():
    rng = np.random.default_rng(1)
    for _ in range(10):
        x, a = rng.uniform(-1, 1, N), rng.integers(0, 2, N)
        records = DOMAIN.records(x[:, None], a, np.zeros(N))
        b = rng.normal(scale=3.0, size=1)
        gamma = PLAN.step("propensity").calibration.gamma
        solution = solve(FIRST.perturbed(records, gamma, b))
        lam = solution.point
        assert noise_for((2 * a - 1) * x, lam, gamma)[0] == pytest.approx(b, abs=1e-6)
        f = np.minimum(1 + np.exp(-(2 * a - 1) * x * lam[0]), TRIM)
        np.testing.assert_allclose(solution.value, N * f / f.sum(), rtol=1e-6)


def test_the_joint_law_keeps_the_budget_and_nearly_spends_it():
    spent = loss(PLAN)
    assert spent <= EPSILON
    assert spent > 0.7 * EPSILON


def test_planted_bugs_break_the_budget():
    stage_1, stage_2 = PLAN.step("propensity").calibration, PLAN.main.calibration
    for wrong in (
        changed(PLAN, calibration=dataclasses.replace(stage_2, scale=stage_2.scale / 2)),
        changed(PLAN, "propensity", calibration=dataclasses.replace(stage_1, scale=stage_1.scale / 3)),
    ):
        assert loss(wrong) > EPSILON
