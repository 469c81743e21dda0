"""Entropy balancing: the forms of one program against each other, SciPy and 50 digits."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import Moments
from dp2erm_cvx.program.entropy import ExponentialModel
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests import exact
from tests.helpers import declared_solution, make_records

PROGRAMS: dict[str, Any] = dict(programs())


@pytest.mark.parametrize("arm_mass", ["equal", "proportional"])
@pytest.mark.parametrize("radius", [math.inf, 0.1])
@pytest.mark.parametrize("scaling", ["public", "paper"])
def test_entropy_dual_and_regularized_primal_have_the_same_weights(arm_mass, radius, scaling):
    records = make_records(60, 3)
    settings = {"ridge": 0.02, "radius": radius, "arm_mass": arm_mass, "scaling": scaling}
    dual = solve(PROGRAMS["entropy_balancing"](**settings).instance(records))
    if math.isfinite(radius) and scaling == "public":
        assert np.linalg.norm(dual.point) == pytest.approx(radius, rel=1e-12)
    primal = declared_solution(PROGRAMS["entropy_balancing_primal"](**settings).instance(records), "weights")
    np.testing.assert_allclose(primal, dual.value, atol=2e-5)


@pytest.mark.parametrize("arm_mass", ["equal", "proportional"])
def test_hard_primal_and_flat_dual_have_the_same_weights(arm_mass):
    records = make_records(100, 3)
    hard_program = PROGRAMS["entropy_balancing_hard"](arm_mass=arm_mass)
    hard = solve(hard_program.instance(records))
    flat = PROGRAMS["entropy_balancing"](ridge=0.0, arm_mass=arm_mass).instance(records)
    dual = solve(flat, throw=False)
    # the multipliers are not unique, and no strong convexity can be claimed along the flat direction
    assert not dual.certified
    np.testing.assert_allclose(dual.value, hard.value, atol=1e-7)
    np.testing.assert_allclose(
        declared_solution(hard_program.instance(records), "weights"), hard.value, atol=1e-7
    )
    # and the limit of small ridges
    small = solve(
        PROGRAMS["entropy_balancing"](ridge=1e-7, arm_mass=arm_mass).instance(records), tolerance=1e-4
    )
    np.testing.assert_allclose(small.value, hard.value, atol=1e-3)


@pytest.mark.parametrize("balance", [Moments(1), Moments(2)], ids=str)
@pytest.mark.parametrize("arm_mass", ["equal", "proportional"])
def test_hard_entropy_balancing_against_scipy(arm_mass, balance):
    records = make_records(60, 2)
    program = PROGRAMS["entropy_balancing_hard"](arm_mass=arm_mass, balance=balance)
    instance = program.instance(records)
    weights = solve(instance).value
    B, target = program.moments(records)
    found = minimize(
        lambda w: float(np.sum(w * np.log(w))),
        np.ones(60),
        jac=lambda w: np.log(w) + 1,
        method="SLSQP",
        bounds=[(1e-12, None)] * 60,
        constraints={"type": "eq", "fun": lambda w: B.T @ w / 60 - target, "jac": lambda w: B.T / 60},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success
    np.testing.assert_allclose(weights, found.x, atol=1e-4)
    assert np.linalg.norm(B.T @ weights / 60 - target) < 1e-11
    treated = records.a == 1
    share = 0.5 if arm_mass == "equal" else np.mean(treated)
    assert np.sum(weights[treated]) == pytest.approx(60 * share, rel=1e-11)
    for arm in (treated, ~treated):
        means = np.average(balance(records.covariates)[arm], axis=0, weights=weights[arm])
        np.testing.assert_allclose(means, balance(records.covariates).mean(axis=0), atol=1e-11)


@pytest.mark.parametrize("scaling", ["public", "paper"])
def test_hard_weights_to_fifty_digits(scaling):
    """With the treated constant's multiplier fixed at 0 the dual has one minimizer, at any scaling."""
    records = make_records(30, 2, seed=3)
    program = PROGRAMS["entropy_balancing_hard"](arm_mass="proportional", scaling=scaling)
    rows, target = exact.entropy_rows(program, records)
    flat = len(target) // 2
    kept = [k for k in range(len(target)) if k != flat]
    solution = solve(program.instance(records))
    start = np.zeros(len(kept))
    for _ in range(40):  # damped steps in doubles, to land where the 50-digit Newton method converges
        model = ExponentialModel(
            np.array([[float(b[k]) for k in kept] for b in rows]),
            np.array([float(target[k]) for k in kept]),
            0.0,
            math.inf,
        )
        start = start - 0.5 * np.linalg.solve(model.hessian(start), model.gradient(start))
    _, weights = exact.entropy_dual(
        [[b[k] for k in kept] for b in rows],
        [target[k] for k in kept],
        mp.mpf(0),
        math.inf,
        exact.to_mp(start),
    )
    error = exact.distance(weights, solution.value, 1)
    assert error <= solution.certificate.output_radius
    assert solution.certificate.output_radius <= 30 * 1e-9


def test_proportional_masses_are_the_papers_scaling_by_substitution():
    """lambda_a -> (n_a / n) lambda_a turns the printed dual into the publicly scaled one at ridge 0."""
    records = make_records(80, 3)
    n, treated = 80, int(np.sum(records.a))
    public = PROGRAMS["entropy_balancing"](ridge=0.0, arm_mass="proportional")
    paper = PROGRAMS["entropy_balancing"](ridge=0.0, arm_mass="proportional", scaling="paper")
    first = ExponentialModel(*public.moments(records), 0.0, math.inf)
    second = ExponentialModel(*paper.moments(records), 0.0, math.inf)
    bound, constant = public.bounds(records.domain)
    unit = min(treated, n - treated) / n / math.hypot(bound, constant)
    size = np.repeat([n - treated, treated], first.dimension // 2) / n
    rng = np.random.default_rng(0)
    for _ in range(5):
        lam = rng.normal(size=first.dimension)
        np.testing.assert_allclose(first.output(lam), second.output(size * lam / unit), rtol=1e-10)
        assert first.value(lam) == pytest.approx(second.value(size * lam / unit), rel=1e-10, abs=1e-10)
    hard = PROGRAMS["entropy_balancing_hard"]
    one = solve(hard(arm_mass="proportional").instance(records)).value
    other = solve(hard(arm_mass="proportional", scaling="paper").instance(records)).value
    np.testing.assert_allclose(one, other, atol=1e-8)


def test_unreachable_moments_have_their_own_error():
    records = make_records(12, 2)
    far = records.X.copy()
    far[:, 1] = np.where(records.a == 1, 0.9, -0.9)  # neither arm reaches the common mean
    separated = type(records)(far, records.a, records.y, records.domain)
    with pytest.raises(InfeasibleError, match="ridge"):
        solve(PROGRAMS["entropy_balancing_hard"]().instance(separated))
    # inside the span of the records but outside the hull of an arm
    spread = far.copy()
    spread[:, 1] += 0.05 * np.random.default_rng(0).normal(size=12)
    with pytest.raises(InfeasibleError, match="ridge"):
        solve(
            PROGRAMS["entropy_balancing_hard"]().instance(
                type(records)(spread, records.a, records.y, records.domain)
            )
        )
    with pytest.raises(InfeasibleError, match="span"):
        ExponentialModel.hard(np.ones((4, 2)), np.array([1.0, 2.0]))


@pytest.mark.parametrize("arm", [0, 1])
def test_an_empty_arm_is_infeasible_for_hard_balance_only(arm):
    records = make_records(12, 2)
    empty = type(records)(records.X, np.full(12, arm), records.y, records.domain)
    with pytest.raises(InfeasibleError):
        solve(PROGRAMS["entropy_balancing_hard"]().instance(empty))
    weights = solve(PROGRAMS["entropy_balancing"]().instance(empty)).value
    assert math.fsum(weights) == pytest.approx(12, rel=1e-13)
