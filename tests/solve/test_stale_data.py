"""A reused problem must give the solution of the new data, even where only the sparsity pattern changed.

Solvers that keep a workspace may return "optimal" for the old constraint matrix when its pattern changes
at an equal count of nonzeros. An arm flip does this: it moves the entries of one row from one block to the
other.
"""

import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.domain import Records
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests.helpers import make_records, output_distance

PROGRAMS: dict[str, Any] = dict(programs())
FLIPPED = 7


@pytest.fixture
def cache(monkeypatch):
    """An empty store of compiled problems, put aside afterwards."""
    store: OrderedDict[Any, Compiled] = OrderedDict()
    monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solvers"], "_cache", store)
    return store


def _flip(records: Records) -> Records:
    """Two records trade arms, so that arm sizes and the count of nonzeros stay the same."""
    a = records.a.copy()
    other = int(np.nonzero(a != a[FLIPPED])[0][0])
    a[FLIPPED], a[other] = a[other], a[FLIPPED]
    return Records(records.X, a, records.y, records.domain)


def assert_not_stale(cache, old, new, solver):
    """The problem that was compiled for the old data serves the new ones, and the old ones again."""
    truth, stale = solve(new).value, solve(old).value
    apart = output_distance(old.program, stale, truth)
    for instance, right in ((old, stale), (new, truth), (old, stale)):
        found = solve(instance, solver=solver, polish=False, throw=False).value
        assert len(cache) == 1, "the compiled problem was not reused, so this test shows nothing"
        assert output_distance(old.program, found, right) < 0.01 * apart


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
    records, program = make_records(60, 3), PROGRAMS[name](**changes)
    old, new = program.instance(records), program.instance(_flip(records))
    for key, value in old.data.items():
        assert np.count_nonzero(value) == np.count_nonzero(new.data[key])
    if name != "ipw_logistic":
        assert np.any((np.asarray(old.data["B"]) != 0) != (np.asarray(new.data["B"]) != 0))
    assert_not_stale(cache, old, new, solver)
