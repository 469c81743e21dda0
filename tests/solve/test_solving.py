"""Newton from any start; reused problems give the solution of new data; infeasible balance is named."""

import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from dp2erm_cvx import Domain
from dp2erm_cvx.domain import Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import BalanceFunctions, Moments
from dp2erm_cvx.program.curves import Curve, Part
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.solving import minimize_by_newton
from tests.helpers import make_records, output_distance

#: Rows, offsets, multipliers, ridge, slope: a search that takes any halved residual, and any descent, in turn
#: walks in circles on these.
CIRCLES = [
    ([0.5, 0.1], [10.0, 1.0], [50, 1], 1.0, 1.0),
    ([0.5, 1.0], [-5.0, -10.0], [1, 10], 0.1, 0.1),
    ([0.1, 0.5, -0.1], [-10.0, -1.0, 5.0], [10, 1, 50], 0.01, 0.1),
]


def hostile_sums(count: int) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        rows, offset = (
            rng.choice([-1.0, -0.5, -0.1, 0.1, 0.5, 1.0], 4),
            rng.choice([-10.0, -1.0, 0.0, 1.0, 10.0], 4),
        )
        ridge, start = float(rng.choice([0.01, 1.0])), rng.choice([-500.0, 0.0, 500.0])
        yield rows, offset, rng.choice([1, 10, 50], size=4), ridge, 0.1, start


@pytest.mark.parametrize(
    ("sums", "most"), [([(*one, 0.0) for one in CIRCLES], 40), ([*hostile_sums(100)], 60)]
)
def test_newton_ends_at_the_root_on_flat_tails_and_from_a_far_start(sums, most):
    """One coefficient, of a sum of extremal losses, in a ball that is not felt."""
    for rows, offset, multipliers, ridge, slope, start in sums:
        rows, offset, multipliers = (np.array(one, dtype=float) for one in (rows, offset, multipliers))
        loss, ball = Curve((Part(1.0, atom("saturating", slope)),)), Penalty(L2Ball(1000.0))
        model = MarginModel(
            MarginRows(rows[:, None], offset), loss, ridge, ball, multipliers=multipliers, linear=np.zeros(1)
        )
        root = brentq(lambda v, model=model: float(model.gradient(np.array([v]))[0]), -900, 900, xtol=1e-13)
        point, iterations = minimize_by_newton(model, np.array([start]))
        assert iterations < most
        assert point[0] == pytest.approx(root, rel=1e-9, abs=1e-9)


PROGRAMS: dict[str, Any] = dict(programs())
FLIPPED = 7


@pytest.fixture
def cache(monkeypatch):
    """An empty store of compiled problems, put aside afterwards."""
    store: OrderedDict[Any, Compiled] = OrderedDict()
    monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_cache", store)
    return store


@pytest.mark.parametrize("solver", ["clarabel", "scs"])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ipw_logistic", {"ridge": 0.05, "radius": 0.3}),
        ("entropy_balancing", {"ridge": 0.1}),
        ("entropy_balancing_primal", {"ridge": 0.1}),
        ("entropy_balancing_primal", {"ridge": 0.1, "radius": 0.1}),
        ("entropy_balancing_hard", {}),
    ],
)
def test_a_flipped_arm_gives_the_new_weights(cache, name, changes, solver):
    """The problem that was compiled for the old data serves the new ones, and the old ones again."""
    records, program = make_records(60, 3), PROGRAMS[name](**changes)
    # two records trade arms, so that arm sizes and the count of nonzeros stay the same
    other = int(np.nonzero(records.a != records.a[FLIPPED])[0][0])
    a = records.a.copy()
    a[[FLIPPED, other]] = a[[other, FLIPPED]]
    old = program.instance(records)
    new = program.instance(Records(records.X, a, records.y, records.domain))
    for key, value in old.data.items():
        assert np.count_nonzero(value) == np.count_nonzero(new.data[key])
    if name != "ipw_logistic":
        assert np.any((np.asarray(old.data["B"]) != 0) != (np.asarray(new.data["B"]) != 0))
    truth, stale = solve(new).value, solve(old).value
    apart = output_distance(program, stale, truth)
    for instance, right in ((old, stale), (new, truth), (old, stale)):
        result = solve(instance, solver=solver, polish=False, throw=False).value
        assert len(cache) == 1, "the compiled problem was not reused, so this test shows nothing"
        assert output_distance(program, result, right) < 0.01 * apart


DOMAIN = Domain(2.0, 1.0, ranges={"age": (0, 100), "weight": (0, 200)})
HARD = ("stable_balancing_hard", "entropy_balancing_hard")


def records(what: str = "separated"):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (40, 2))
    a = (X[:, 0] > 50).astype(int) if what == "separated" else np.arange(40) % 2
    if what == "constant":
        X[a == 1, 1] = 70.0
    return DOMAIN.records(X, 0 * a if what == "empty" else a, np.zeros(40))


def weights(name, data, **settings):
    return solve(PROGRAMS[name](**settings).instance(data)).value


@pytest.mark.parametrize("name", HARD)
def test_the_error_names_the_covariate_and_its_arm(name):
    told = r"age \((control|treated)\).*(Allow|tolerance of) (?P<least>0\.\d+) or more"
    with pytest.raises(InfeasibleError, match=told) as caught:
        weights(name, records())
    printed = re.search(told, str(caught.value))
    assert printed is not None
    # what is printed is taken up, so it must not be rounded below what is feasible
    assert 1.0 <= float(printed["least"]) / caught.value.smallest_tolerance < 1.02
    assert ("Allow" in str(caught.value)) == ("tolerance" in signature(PROGRAMS[name]).parameters)
    assert caught.value.covariates[0].startswith("age")
    assert 0.01 < caught.value.smallest_tolerance < 1.0
    for what, told in (("constant", r"weight \(treated\)"), ("empty", "arm without records")):
        with pytest.raises(InfeasibleError, match=told):
            weights(name, records(what))


@pytest.mark.parametrize("balance", [Moments(2), BalanceFunctions(lambda x: x * x[0], 4.0, "products")])
def test_the_smallest_tolerance_is_the_smallest(balance):
    data = records()
    with pytest.raises(InfeasibleError) as caught:
        weights("stable_balancing_hard", data, balance=balance, tolerance=1e-3)
    least = caught.value.smallest_tolerance
    with pytest.raises(InfeasibleError):
        weights("stable_balancing_hard", data, balance=balance, tolerance=0.99 * least)
    result = weights("stable_balancing_hard", data, balance=balance, tolerance=2 * least)
    g = balance(data.covariates)
    for arm in (0, 1):
        rows = data.a == arm
        mean = result[rows] @ g[rows] / result[rows].sum()
        assert np.max(np.abs(mean - g.mean(axis=0))) <= 2 * least * (1 + 1e-9)
    names = {name.split(" (")[0] for name in caught.value.covariates}
    assert names <= {"age", "weight", "age^2", "weight^2", "products[0]", "products[1]"}
