"""Effects by weights whose bound an author states: said before anything is charged, and conditional
after.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, Ledger, PrivateEffect
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.program import Bound, scheme
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.release.declaration import guarantee_of
from dp2erm_cvx.steps.weighted_residuals import weights_at_rate

N = 800
DOMAIN = Domain(1.5, 6.0)


def imbalance(w: cp.Variable, records: Any) -> cp.Expression:
    """Sums of (1, x) over each arm, less half of those over all records."""
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    return records.by_arm(1.0).T @ w - cp.hstack([half, half])


def priced(w: cp.Variable, records: Any) -> cp.Problem:
    """Weights of least variance, none above 3."""
    price = cp.sum_squares(imbalance(w, records)) / (0.2 * records.n)
    return cp.Problem(cp.Minimize(price + cp.sum_squares(w - 1) / 2), [w <= 3])


def neighboring(w: cp.Variable, records: Any) -> cp.Problem:
    """Also near those of the record before, which is no sum over records."""
    near = cp.sum_squares(cp.diff(w))
    problem = priced(w, records)
    return cp.Problem(cp.Minimize(problem.objective.args[0] + near), problem.constraints)


def stating(function: Any, l2: float) -> Scheme:
    """A scheme whose author states how far its weights move in the Euclidean norm."""
    made: Scheme = scheme()(function)

    @made.bound
    def stated(n: int) -> Bound:
        return Bound.from_l2(l2, w_max=3.0)

    return made


def model_of(weights: Any, **others: Any) -> PrivateEffect:
    return PrivateEffect(DOMAIN, Budget(4.0), residual_scale=1.0, weights=weights, **others)


def drawn() -> Mapping[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    a = rng.integers(0, 2, N)
    return {"X": X, "treatment": a, "outcome": X.sum(axis=1) + a + rng.normal(size=N)}


def test_a_stated_bound_is_said_before_the_charge_and_makes_the_release_conditional(
    tmp_path: Path,
) -> None:
    derived = model_of(scheme()(priced)()).plan(N, 2)
    weights = stating(priced, 0.05)()
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.declare("people", Budget(8.0))
    model = model_of(weights, ledger=ledger, dataset="people")
    plan = model.plan(N, 2)
    # Cauchy and Schwarz over the other records, and two weights of at most 3
    assert plan.bound.V == pytest.approx(np.sqrt(N - 1.0) * 0.05 + 6.0)
    assert plan.bound.V < derived.bound.V
    said = " ".join(str(plan).split())
    assert (
        "conditional: do not publish (the weights rest on a bound that their author states)" in said
    )
    X, a, y = drawn().values()
    with pytest.raises(DeclarationError, match="Nothing was charged"):
        model.fit(X, a, y)
    assert ledger.account("people").receipts == ()
    release = model.fit(X, a, y, conditional=True).release_
    assert (release.private, release.standing) == (False, Standing.CONDITIONAL)
    assert len(ledger.account("people").receipts) == 1
    assert any("stated bound" in text for text in release.guarantee.assumptions)
    assert "CONDITIONAL" in release.summary()


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (scheme()(neighboring), r"V is 2n, which would hide every effect, as w\[1:\] - w\[:-1\]"),
        (stating(neighboring, 0.05), "the V that its author states is of exact weights"),
    ],
)
def test_weights_that_nothing_certifies_are_refused_in_one_line(weights: Scheme, said: str) -> None:
    """Before any data are read: a plan is refused, and so is a fit."""
    model = model_of(weights())
    for run in (lambda: model.plan(N, 2), lambda: model.fit(*drawn().values())):
        with pytest.raises(DeclarationError) as refused:
            run()
        assert re.search(said, str(refused.value))
        assert "\n" not in str(refused.value)


def test_a_stated_bound_that_is_not_used_is_no_assumption() -> None:
    """Of a form V follows from what is minimized: a larger stated one changes neither noise nor
    standing.
    """
    plan = model_of(stating(priced, 5.0)()).plan(N, 2)
    assert plan.bound.theorem != "stated bound"
    assert plan.certified_by_design
    assert plan.standing is Standing.PRIVATE
    said = " ".join(str(plan).split())
    assert "Its release will be private." in said
    assert "the bound that its author states, V = 147.3, is not used" in said
    assumed = guarantee_of(plan, certified=True, by_gap=False).assumptions
    assert not any("stated bound" in text for text in assumed)


def rated(w: cp.Variable, records: Any, treated: float) -> cp.Problem:
    """Weights of least variance, none above 1.5 times what the share of the treated asks for."""
    return cp.Problem(priced(w, records).objective, [w <= 0.75 / min(treated, 1.0 - treated)])


def test_no_released_rate_makes_a_release_rest_on_a_bound_that_its_plan_does_not_use() -> None:
    """The stated bound is above V where half are treated, and below it where few are."""
    made = scheme(treated=0.5)(rated)

    @made.bound
    def stated(n: int) -> Bound:
        return Bound.from_l2(0.6, w_max=1.5)

    universe = Universe(DOMAIN, N, 2)
    assert weights_at_rate(made(), universe, 0.5).stability.V < np.sqrt(N - 1.0) * 0.6 + 3.0
    known = weights_at_rate(made(), universe, 0.05)
    assert known.stability.V > known.program.stability(universe).V
    assert known.stability == known.program.derived_bound(universe)
