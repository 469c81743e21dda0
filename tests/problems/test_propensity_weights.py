"""Weights of a propensity against closed forms and the moments that they balance."""

import math
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.domain import Domain
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


def test_the_trace_of_a_private_coefficient_grows_with_the_squared_norm_of_rows():
    for M, name in ((0.5, "ipw_private"), (3.0, "overlap_private")):
        constants = PROGRAMS[name]().resolve(domain := Domain(M, 1.0)).loss_constants(Universe(domain, 50, 3))
        assert constants.hessian_trace == pytest.approx(0.25 * M**2, rel=1e-9)
