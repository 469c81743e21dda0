"""Weights and second stages against closed forms, moments, CVXPY and other people's regressions."""

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import ElasticNet
from dp2erm_cvx.privacy import BoundFamily
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.program import Moments, WholeSpace
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests.helpers import declared_solution, make_records, make_weights
from tests.stability.movement import Pair, movement

PROGRAMS: dict[str, Any] = dict(programs())


def _factors(name: str, records: Any) -> np.ndarray:
    treated = records.a == 1
    if name == "uniform":
        return np.ones(records.n_samples)
    if name == "ipw_randomized":
        return np.minimum(np.where(treated, 1 / 0.2, 1 / 0.8), 4.0)
    score = records.X @ np.array([0.1, 1.0, -0.5, 0.0])
    propensity = 1 / (1 + np.exp(-score))
    return np.minimum(1 / np.where(treated, propensity, 1 - propensity), 3.0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("uniform", {}),
        ("ipw_randomized", {"propensity": 0.2, "trim": 4.0}),
        ("ipw_known", {"coefficient": (0.1, 1.0, -0.5, 0.0), "trim": 3.0}),
    ],
)
def test_closed_form_weights(name, settings):
    records = make_records(50, 3)
    factors = _factors(name, records)
    instance = PROGRAMS[name](**settings).instance(records)
    expected = factors * 50 / math.fsum(factors)
    np.testing.assert_allclose(solve(instance).value, expected, rtol=1e-13)
    np.testing.assert_allclose(declared_solution(instance, "weights"), expected, rtol=1e-7)


def test_the_interval_of_log_weights_is_enforced():
    class Narrow(PROGRAMS["ipw_known"]):
        _made = True
        log_range = lambda self, domain: (0.3, 0.4)  # noqa: E731

    weights = solve(Narrow(coefficient=(0.1, 1.0, -0.5, 0.0)).instance(make_records(50, 3))).value
    assert np.ptp(np.log(weights)) == pytest.approx(0.1)


def test_the_trace_of_a_private_coefficient_grows_with_the_squared_norm_of_rows():
    for M, name in ((0.5, "ipw_private"), (3.0, "overlap_private")):
        constants = PROGRAMS[name]().resolve(domain := Domain(M, 1.0)).loss_constants(Universe(domain, 50, 3))
        assert constants.hessian_trace == pytest.approx(0.25 * M**2, rel=1e-9)


def test_second_stage_with_l1_is_the_lasso():
    from sklearn.linear_model import Lasso

    records = make_records(200, 4)
    z = 2 * (2 * records.a - 1) * records.y
    itr = PROGRAMS["itr"](theta_set=WholeSpace(), regularizer=ElasticNet(l1=0.5))
    result = solve(itr.instance(records, np.ones(200), gamma=1e-9)).value
    # scikit-learn minimizes |z - X theta|^2 / (2n) + alpha |theta|_1
    lasso = Lasso(alpha=0.25, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(records.X, z)
    np.testing.assert_allclose(result, lasso.coef_, atol=1e-7)


def test_arm_means_are_the_weighted_arm_means():
    records = make_records(300, 3)
    weights = make_weights(records)
    program = PROGRAMS["arm_means"]()
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    means = [np.average(records.y[records.a == arm], weights=weights[records.a == arm]) for arm in (0, 1)]
    np.testing.assert_allclose(theta, means, atol=1e-8)
    assert program.effect(theta, records.domain, records.covariates[:4]) == pytest.approx(
        [means[1] - means[0]] * 4
    )


def test_plug_in_is_the_weighted_mean_of_the_transformed_outcome():
    records = make_records(300, 3)
    weights, gamma = make_weights(records), 0.1
    program = PROGRAMS["plug_in_ate"]()
    transformed = 2 * (2 * records.a - 1) * records.y
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    assert theta == pytest.approx([np.mean(weights * transformed)], abs=1e-8)
    noise = np.array([3.0])
    shrunk = solve(program.instance(records, weights, gamma=gamma, noise=noise)).value
    assert shrunk == pytest.approx(
        [(2 * np.sum(weights * transformed) - 3.0) / (300 * (2 + gamma))], rel=1e-12
    )


def test_regression_is_weighted_least_squares():
    records = make_records(200, 4)
    weights = make_weights(records)
    fit = LinearRegression(fit_intercept=False).fit(records.X, records.y, sample_weight=weights)
    program = PROGRAMS["regression"](theta_set=WholeSpace())
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    np.testing.assert_allclose(theta, fit.coef_, atol=1e-8)


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
def test_hard_weights_balance_every_mean_exactly(arm_mass, balance):
    records = make_records(60, 2)
    program = PROGRAMS["entropy_balancing_hard"](arm_mass=arm_mass, balance=balance)
    weights = solve(program.instance(records)).value
    treated = records.a == 1
    share = 0.5 if arm_mass == "equal" else np.mean(treated)
    assert np.sum(weights[treated]) == pytest.approx(60 * share, rel=1e-11)
    for arm in (treated, ~treated):
        means = np.average(balance(records.covariates)[arm], axis=0, weights=weights[arm])
        np.testing.assert_allclose(means, balance(records.covariates).mean(axis=0), atol=1e-11)


DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0, arm_floor=5)


def drawn_records(n: int, seed: int = 0, domain: Domain = DOMAIN):
    rng = np.random.default_rng(seed)
    a = (np.arange(n) % 3 == 0).astype(int)
    return domain.records(rng.normal(size=(n, 2)), a, rng.normal(size=n))


def test_a_base_measure_gives_the_weights_of_the_relative_entropy_to_it() -> None:
    data = drawn_records(40)
    q = np.random.default_rng(1).uniform(0.2, 3.0, 40)
    program = EntropyBalancing(ridge=0.3, base_measure=tuple(q)).resolve(DOMAIN)
    result = {
        name: solve(program.instance(data), solver=name).value for name in ("newton", "clarabel", "scs")
    }
    B, target = program.moments(data)
    p = cp.Variable(40)
    penalty = cp.sum_squares(B.T @ p - target) / (2 * 0.3)
    cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(p, q / q.sum())) + penalty), [cp.sum(p) == 1]).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    for weights in result.values():
        np.testing.assert_allclose(weights, result["newton"], atol=1e-8)
        np.testing.assert_allclose(weights / 40, p.value, atol=1e-6)
    uniform = solve(EntropyBalancing(ridge=0.3, base_measure=(2.0,) * 40).instance(data)).value
    np.testing.assert_allclose(uniform, solve(EntropyBalancing(ridge=0.3).instance(data)).value, atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_trimmed_weights_move_within_their_bound(seed) -> None:
    """Clusters, one record that jumps from one end to the other and may change its arm."""
    rng = np.random.default_rng(seed)
    free = Domain(covariate_bound=1.0, outcome_bound=1.0)
    largest = 0.0
    for _ in range(15):
        n, ridge = int(rng.integers(4, 40)), float(rng.choice([0.1, 0.5, 2.0]))
        radius, trim = float(rng.choice([0.3, 1.0, 2.0])), float(rng.choice([0.1, 0.5, 1.0, 1.5]))
        program = EntropyBalancing(ridge=ridge, radius=radius, trim=trim)
        x = np.sign(rng.normal(size=n)) * rng.choice([1.0, 0.5], size=n)
        rows = np.column_stack([rng.integers(0, 2, n), x])
        pair = Pair(rows[1:], np.ones(n - 1), rows[0], np.array([rng.integers(0, 2), -x[0]]))
        moved = movement(program, pair, free)
        largest = max(largest, moved / program.stability(Universe(free, n, 2)).V)
    assert 0.3 < largest <= 1.0


def test_the_trimmed_bound_is_not_the_untrimmed_one_with_a_smaller_weight() -> None:
    # a movement of 57.3 is known here; a bound with the trimmed weight inside the KL identity says 11.2
    trim = 3 * math.exp(-2 * math.sqrt(2))
    assert (
        stability.entropy_balancing(1000, stability.EntropyConstants(1.0, 1.0, 0.5, radius=2.0, trim=trim)).V
        >= 57.3
    )
    # a trim below every weight makes them all equal
    low = stability.entropy_balancing(1000, stability.EntropyConstants(1.0, 1.0, 0.5, radius=0.1, trim=0.5))
    assert low.V == pytest.approx(2.0, rel=1e-9)
    without_ball = stability.entropy_balancing(50, stability.EntropyConstants(1.0, 1.0, 0.5, trim=2.0))
    assert without_ball.V == pytest.approx(100.0)


def test_what_no_theorem_covers_is_refused() -> None:
    uneven = EntropyBalancing(ridge=1.0, radius=1.0, base_measure=(1.0,) * 39 + (2.0,))
    with pytest.raises(CalibrationError, match="base_measure"):
        uneven.stability(Universe(DOMAIN, 40, 2))
    paper = {"ridge": 1.0, "radius": 1.0, "scaling": "paper", "arm_mass": "proportional"}
    with pytest.raises(CalibrationError, match="trim"):
        EntropyBalancing(**paper, trim=2.0).stability(Universe(DOMAIN, 40, 2))
    with pytest.raises(CalibrationError, match="trim"):
        EntropyBalancing(**paper, trim=2.0).stability(Universe(DOMAIN, 40, 2), BoundFamily.PAPER)
    even = EntropyBalancing(**paper).stability(Universe(DOMAIN, 40, 2), BoundFamily.PAPER)
    q = EntropyBalancing(**paper, base_measure=(1.0,) * 39 + (2.0,))
    printed = stability.paper_entropy_balancing(40, 1.0, 1.0, 5, base_measure_ratio=2.0)
    assert printed.W1 > stability.paper_entropy_balancing(40, 1.0, 1.0, 5).W1
    assert q.stability(Universe(DOMAIN, 40, 2), BoundFamily.PAPER).V >= even.V
    assert q.printed_bound(Universe(DOMAIN, 40, 2)).W1 == pytest.approx(printed.W1, rel=1e-9)
    with pytest.raises(DeclarationError, match="one of them"):
        EntropyBalancing(trim=2.0, base_measure=(1.0, 2.0))
    with pytest.raises(DeclarationError, match="3 entries for 60"):
        EntropyBalancing(base_measure=(1.0, 2.0, 1.0)).instance(drawn_records(60))
    with pytest.raises(DeclarationError, match="trim"):
        EntropyBalancing(trim=0.0)
