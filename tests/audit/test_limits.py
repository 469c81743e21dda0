"""Every search keeps its limit in seconds, by a clock that counts work, and still looks at one
pair.
"""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, Universe
from dp2erm_cvx.audit import (
    Attack,
    Declared,
    SearchPlan,
    additive,
    audit_stability,
    noised_sums,
    search_additive,
    search_runs,
    weighing,
)
from dp2erm_cvx.audit.search import Deadline, OutOfTime
from dp2erm_cvx.conformance import check_program, checks
from dp2erm_cvx.neighbors import neighborhood as batch
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.registry import build, first_stages
from tests.audit.clock import WorkClock
from tests.helpers import make_records
from tests.rows import one_of

UNIVERSE = Universe(Domain(1.0, 1.0), n_samples=12, n_features=2)


@scheme(rho=1.0)
def nested(w: Any, records: Any, rho: float) -> Any:
    """A norm of a norm, each movement of which takes two solves in full."""
    balance = cp.norm(cp.hstack([cp.norm(records.signed.T @ w), 1.0]))
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * balance), [w <= 3])


class Hand:
    """A clock that is set by hand."""

    seconds = 0.0

    def __call__(self) -> float:
        """The seconds that were set."""
        return self.seconds


def test_a_deadline_divides_what_is_left() -> None:
    clock = Hand()
    until = SearchPlan(seconds=10.0, clock=clock).deadline()
    clock.seconds = 4.0
    assert until.left == 6.0
    assert until.part(0.5).at == 7.0
    until.check()
    clock.seconds = 12.0
    assert until.passed
    assert until.part(0.5).at == 12.0
    with pytest.raises(OutOfTime):
        until.check()
    never = SearchPlan(3, clock=clock).deadline()
    assert not never.passed
    assert never.part(0.5) == never == Deadline(clock=clock)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("seconds", one_of([1, 60], 2))
@pytest.mark.parametrize(
    ("strategy", "data"), [("base", False), ("random", True), ("ascent", True)]
)
def test_an_audit_of_weights_keeps_its_limit_in_seconds(
    monkeypatch, strategy, data, seconds
) -> None:
    records = make_records(12, 2)
    raw = (records.X, records.a, records.y) if data else None
    clock = WorkClock(monkeypatch, weighing, "solve")
    if data:
        solve = batch.solve

        def counted(*arguments: Any, **settings: Any) -> Any:
            clock.seconds += 1
            return solve(*arguments, **settings)

        monkeypatch.setattr(batch, "solve", counted)
    search = SearchPlan(seconds=seconds, clock=clock)
    universe = UNIVERSE if raw is None else UNIVERSE.domain
    result = audit_stability(nested(), raw, universe, search=search, strategies=strategy)
    assert result.verdicts
    # one pair, and one dataset that another solver checks, are solved in any case
    assert clock.seconds <= 1.1 * seconds + 12


@pytest.mark.parametrize("seconds", [1, 300])
def test_a_search_of_runs_keeps_its_limit_but_for_the_declared_runs(monkeypatch, seconds) -> None:
    clock = Hand()

    def mechanism(dataset: Any, rng: np.random.Generator) -> float:
        clock.seconds += 1.0
        return float(np.sum(dataset[2]) + rng.laplace(scale=2.0))

    attack = Attack(runs=40, takes_rng=True, seed=1)
    plan = SearchPlan(seconds=seconds, clock=clock)
    found = search_runs(mechanism, UNIVERSE, Declared(1.0), attack=attack, search=plan)
    assert found.counts["screened"] >= 1
    declared, first_attempt = 2 * 40, 2 * 40
    if seconds == 1:
        # whether the first pair lies on a path is drawn: each step of it takes two distances
        first_attempt *= 1 + 2 * 4
    assert clock.seconds <= 1.1 * seconds + declared + first_attempt


@pytest.mark.parametrize("seconds", [1, 50])
def test_a_search_of_sums_keeps_its_limit_in_seconds(monkeypatch, seconds) -> None:
    plan = PrivateEffect(Domain(outcome_bound=2.0, covariate_bound=1.0), Budget(1.0)).plan(12, 2)
    fits = {
        step.name: np.zeros(step.calibration.n_parameters)
        for step in plan.steps
        if not step.integers
    }
    clock = WorkClock(monkeypatch, additive, "_walk")
    search = SearchPlan(seconds=seconds, clock=clock)
    found = search_additive(
        noised_sums(plan, fits), plan.study.universe, Declared(1.0), search=search
    )
    assert 1 <= found.counts["screened"] <= seconds + 1
    assert clock.seconds <= seconds + 1


def test_a_check_of_a_program_keeps_its_limit_in_seconds(monkeypatch) -> None:
    program = type(build(first_stages(), "paper_entropy_balancing"))
    solves = WorkClock(monkeypatch, checks.Subject, "certified")
    plans = SearchPlan(40), SearchPlan(40, seconds=1.0, clock=solves)
    details = []
    for plan in plans:
        report = next(iter(check_program(program, search=plan)))
        assert report.passed
        details.append({outcome.check: outcome.detail for outcome in report.outcomes})
    whole, limited = details
    assert whole["movement"].startswith("14 pairs, n = 8 to 500: ")
    assert limited["movement"].startswith("1 pairs, n = 8 to 8: ")
