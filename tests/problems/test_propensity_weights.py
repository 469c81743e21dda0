"""Weights of a propensity against closed forms and the moments that they balance."""

import math
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.program import Moments
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe
from tests.helpers import declared_solution, make_records

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


def test_overlap_weights_without_a_ridge_balance_every_mean():
    """Li, Morgan & Zaslavsky (2018), Theorem 3; with a ridge they do not."""
    records = make_records(300, 4)
    treated = records.a == 1
    for ridge, exactly in ((0.0, True), (0.5, False)):
        weights = solve(PROGRAMS["overlap"](ridge=ridge).instance(records)).value
        one, other = (
            np.average(records.covariates[arm], axis=0, weights=weights[arm]) for arm in (treated, ~treated)
        )
        assert np.allclose(one, other, atol=1e-9) is exactly
        assert np.allclose(np.sum(weights[treated]), 150, atol=1e-7) is exactly


@pytest.mark.parametrize("balance", [Moments(1), Moments(2)], ids=str)
def test_tilting_without_a_ridge_brings_either_arm_to_the_whole_sample(balance):
    records = make_records(300, 2)
    program = PROGRAMS["inverse_probability_tilting"](ridge=0.0, radius=2.0, balance=balance)
    solution = solve(program.instance(records))
    assert np.linalg.norm(solution.point) < 1.9  # the ball is not what stopped it
    g = np.column_stack([np.ones(300), balance(records.covariates)])
    factors = np.empty(300)
    constant = program.bounds(records.domain)[1]
    for arm in (0, 1):
        inside = records.a == arm
        half = len(solution.point) // 2
        rows = np.column_stack([np.full(300, constant), balance(records.covariates)])
        factors[inside] = 1 + np.exp(-rows[inside] @ solution.point[arm * half : (arm + 1) * half])
        np.testing.assert_allclose(factors[inside] @ g[inside], g.sum(axis=0), atol=1e-7)
    np.testing.assert_allclose(solution.value, factors * 300 / np.sum(factors), rtol=1e-10)


def test_the_trace_of_a_private_coefficient_grows_with_the_squared_norm_of_rows():
    for M, name in ((0.5, "ipw_private"), (3.0, "overlap_private")):
        constants = PROGRAMS[name]().resolve(domain := Domain(M, 1.0)).loss_constants(Universe(domain, 50, 3))
        assert constants.hessian_trace == pytest.approx(0.25 * M**2, rel=1e-9)
