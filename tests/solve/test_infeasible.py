"""Hard balance that no weights meet ends in an error that says what to do about it."""

import re
from inspect import signature

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import BalanceFunctions, Moments
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve

DOMAIN = Domain(2.0, 1.0, ranges={"age": (0, 100), "weight": (0, 200)})
HARD = ("stable_balancing_hard", "entropy_balancing_hard")


def records(*, separated: bool, constant: bool = False, empty: bool = False):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (40, 2))
    a = (X[:, 0] > 50).astype(int) if separated else np.arange(40) % 2
    if constant:
        X[a == 1, 1] = 70.0
    return DOMAIN.records(X, 0 * a if empty else a, np.zeros(40))


def weights(name, data, **settings):
    return solve(programs()[name](**settings).instance(data)).value


@pytest.mark.parametrize("name", HARD)
def test_the_error_names_the_covariate_and_its_arm(name):
    told = r"age \((control|treated)\).*(Allow|tolerance of) (?P<least>0\.\d+) or more"
    with pytest.raises(InfeasibleError, match=told) as caught:
        weights(name, records(separated=True))
    printed = re.search(told, str(caught.value))
    assert printed is not None
    # what is printed is taken up, so it must not be rounded below what is feasible
    assert 1.0 <= float(printed["least"]) / caught.value.smallest_tolerance < 1.02
    assert ("Allow" in str(caught.value)) == ("tolerance" in signature(programs()[name]).parameters)
    assert caught.value.covariates[0].startswith("age")
    assert 0.01 < caught.value.smallest_tolerance < 1.0


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(
    ("what", "told"), [("constant", r"weight \(treated\)"), ("empty", "arm without records")]
)
def test_a_constant_covariate_and_an_arm_without_records_are_named(name, what, told):
    with pytest.raises(InfeasibleError, match=told):
        weights(name, records(separated=False, **{what: True}))


@pytest.mark.parametrize("balance", [Moments(2), BalanceFunctions(lambda x: x * x[0], 4.0, "products")])
def test_the_smallest_tolerance_is_the_smallest(balance):
    data = records(separated=True)
    with pytest.raises(InfeasibleError) as caught:
        weights("stable_balancing_hard", data, balance=balance, tolerance=1e-3)
    least = caught.value.smallest_tolerance
    with pytest.raises(InfeasibleError):
        weights("stable_balancing_hard", data, balance=balance, tolerance=0.99 * least)
    found = weights("stable_balancing_hard", data, balance=balance, tolerance=2 * least)
    g = balance(data.covariates)
    for arm in (0, 1):
        rows = data.a == arm
        mean = found[rows] @ g[rows] / found[rows].sum()
        assert np.max(np.abs(mean - g.mean(axis=0))) <= 2 * least * (1 + 1e-9)
    names = {name.split(" (")[0] for name in caught.value.covariates}
    assert names <= {"age", "weight", "age^2", "weight^2", "products[0]", "products[1]"}
