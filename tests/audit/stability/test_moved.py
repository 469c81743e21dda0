"""Movements of neighbors whose weights are not held, and audits of many records."""

import dataclasses
import sys

import numpy as np
import pytest

from dp2erm_cvx.audit import SearchPlan, Strategies, audit_stability
from dp2erm_cvx.audit import stability as module
from dp2erm_cvx.audit.neighbors import Base, Replacement, propose
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve.batch import neighbors
from dp2erm_cvx.universe import Universe
from tests.helpers import make_records

IPW = programs()["ipw_logistic"](ridge=0.05)
EVALUATIONS = SearchPlan(evaluations=200, seed=3)


def base_of(program, records):
    universe = Universe(records.domain, records.n_samples, records.covariates.shape[1])
    return Base(program, universe, records, records.covariates)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ipw_logistic", {"ridge": 0.05, "trim": 2.0}),
        ("entropy_balancing", {"ridge": 0.05}),
        ("mmd", {"ridge": 0.5}),
        ("ipw_randomized", {"propensity": 0.3}),
    ],
)
def test_movements_are_those_of_held_weights(name, settings):
    records = make_records(120, 3)
    base = base_of(programs()[name](**settings).resolve(records.domain), records)
    changes = propose(base, "extreme", 0, 25, np.random.default_rng(1))
    moved, held = base.moved(changes), base.resolved(changes)
    assert [change for change, _ in moved] == changes
    assert len(held) == 25
    for (change, read), item in zip(moved, held, strict=True):
        assert item.pair.changed == change.index
        for quantity, interval in item.movements.items():
            assert read[quantity].low <= interval.high
            assert interval.low <= read[quantity].high


def test_what_leaves_the_universe_is_left_out():
    keep = Domain(2.0, 4.0, relation=Neighboring("replace-one-keep-treatment"))
    floor = Domain(2.0, 4.0, arm_floor=10)
    for domain in (keep, floor):
        X, a = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3 == 0
        base = base_of(IPW.resolve(domain), domain.records(X, a.astype(int), np.zeros(30)))
        stays, leaves = Replacement(1, X[0], 0, "x"), Replacement(0, X[1], 0, "x")
        assert [change for change, _ in base.moved([leaves, stays])] == [stays]
        assert base.pair(leaves) is None
        assert base.moved([leaves]) == base.resolved([leaves]) == []


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_DECLARED", 100)


def test_many_records_are_audited_without_the_declared_problem(few, monkeypatch):
    records = make_records(120, 3)
    monkeypatch.setattr(sys.modules["dp2erm_cvx.solve.solve"], "_through_cvxpy", None)
    names = Strategies().chosen(True, few=False)
    assert "ascent" not in names
    assert "ascent" in Strategies().chosen(True)
    found = audit_stability(
        IPW, records, records.domain, strategies=Strategies(names[:-1]), search=EVALUATIONS
    )
    assert not found.violations
    assert found.check.solver == "newton"
    assert found.check.datasets >= 2
    assert found.check.disagreement <= 1
    # only the pairs that verdicts rest on
    assert 1 <= len(found.worst) <= len({verdict.claim.quantity for verdict in found.verdicts})
    assert "by newton" in str(found)


def test_a_wrong_batch_is_seen_by_the_check(few, monkeypatch):
    right = neighbors.minimize_together

    def wrong(*arguments, **more):
        found = right(*arguments, **more)
        points = found.points.copy()
        points[1:] *= 1 + 1e-4  # the first of every batch is judged by itself
        return dataclasses.replace(found, points=points)

    monkeypatch.setattr(neighbors, "minimize_together", wrong)
    records = make_records(120, 3)
    some = Strategies(("random", "flips"))
    assert (
        audit_stability(IPW, records, records.domain, strategies=some, search=EVALUATIONS).check.disagreement
        > 1
    )
