"""Programs without certified weights are refused by public facts, and never by private ones."""

from __future__ import annotations

import dataclasses
import json
import warnings

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.program import DirectFirstStage
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(1.0, 1.0, intercept=0.2)


@dataclasses.dataclass(frozen=True)
class Boxed(DirectFirstStage):
    """minimize sum (w - 1)^2 subject to sum(w) = n, 0 <= w <= cap"""

    cap: float = 0.5

    name, _made = "boxed", True
    formula = "w = argmin sum (w - 1)^2, w <= cap"
    citation = "none"
    theorem = "none: universal corollary"

    def data(self, records):
        return {"cap": self.cap}

    def objective(self, leaf, weights):
        return cp.sum_squares(weights - 1)

    def constraints(self, leaf, weights):
        return {"cap": weights <= leaf("cap")}

    def strong_convexity(self, records):
        return 2.0


def variant(**members):
    made = type(
        "Variant", (Boxed,), {"__doc__": "minimize", "__module__": __name__, "_made": True, **members}
    )
    return dataclasses.dataclass(frozen=True)(made)(cap=5.0)


def entropy(self, leaf, weights):
    return -cp.sum(cp.entr(weights))


def softest(self, leaf, weights):
    return cp.sum_squares(weights) + cp.log_sum_exp(weights)


def steepest(self, leaf, weights):
    return cp.sum(weights[:2])


def none(self, records):
    return 0.0


def only(self, leaf, weights):
    """No constraint beside the box."""
    return {}


def limited(limit):
    """Further constraints by the weights and n."""
    return lambda self, leaf, w: {"cap": w <= leaf("cap"), "limit": limit(w, w.shape[0])}


#: What is declared, and what a refusal names.
REFUSED = {
    "capped entropy": (variant(objective=entropy), "second-order cone programs only"),
    "an atom that is not read": (variant(objective=softest, constraints=only), "second-order cone programs"),
    "no strong convexity": (
        variant(objective=steepest, constraints=only, strong_convexity=none),
        "no strong convexity",
    ),
    "a box that no dataset satisfies": (Boxed(), "cap of at least 1"),
    "a box that is a little too small": (Boxed(cap=0.9999), "cap of at least 1"),
    "a floor above the mean": (variant(floor=1.1), "floor in \\[0, 1\\]"),
    "weights of at least two": (variant(constraints=limited(lambda w, n: w >= 2)), "relax its constraints"),
    "half of the total": (variant(constraints=limited(lambda w, n: cp.sum(w) == n / 2)), "relax its"),
    "more than all on one record": (variant(constraints=limited(lambda w, n: w[0] >= n + 1)), "relax its"),
}


def records(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (n, 2)), np.arange(n) % 2, rng.uniform(-1, 1, n)


def estimator(program, **settings):
    return PrivateTwoStageERM(DOMAIN, Budget(1.0), program, "arm_means", **settings)


@pytest.mark.parametrize("n", [60, 800])
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_dataset_certifies_is_refused_when_planned(case, n):
    program, why = REFUSED[case]
    with pytest.raises(CalibrationError, match=why) as caught:
        estimator(program).plan(n, 2)
    assert str(caught.value).startswith(f"{program.name}: ")
    assert ". " not in str(caught.value)


@pytest.mark.parametrize("case", REFUSED)
def test_a_fit_of_it_releases_and_charges_nothing(case, tmp_path):
    program, _ = REFUSED[case]
    ledger = Ledger(tmp_path / "book.db")
    ledger.declare("trial", Budget(5.0))
    model = estimator(program, ledger=ledger, dataset="trial")
    with pytest.raises(CalibrationError, match=program.name):
        model.fit(*records())
    assert not ledger.account("trial").receipts
    assert not hasattr(model, "release_")


def test_a_solver_that_does_not_apply_is_refused_as_well():
    with pytest.raises(CalibrationError, match="choose another program or solver"):
        estimator(Boxed(cap=3.0), solver="newton").plan(60, 2)
    assert estimator(Boxed(cap=3.0), solver="scs").plan(60, 2).bound.V == 120


def test_a_program_without_a_hash_is_judged_as_well():
    unknown = {"certified_error": lambda self, universe: None, "__hash__": None}
    unhashable = dataclasses.dataclass(frozen=True)(
        type("Mine", (overlap,), {"name": "m", "_made": True, **unknown})
    )
    with pytest.raises(TypeError):
        hash(unhashable())
    assert estimator(unhashable()).plan(60, 2).bound.V < 120


def test_what_has_weights_at_the_declared_number_of_records_alone_is_planned():
    of_many = variant(constraints=limited(lambda w, n: w <= n / 600))
    assert estimator(of_many).plan(700, 2).bound.V == 1400
    with pytest.raises(CalibrationError, match="relax its constraints"):
        estimator(of_many).plan(400, 2)


def balanced(self, leaf, weights):
    return {"cap": weights <= leaf("cap"), "balance": leaf("signed") @ weights == 0.0}


def with_signed(self, records):
    return {"cap": self.cap, "signed": (2 * records.a - 1) * (1.0 + records.covariates[:, 0])}


#: Balance of the arms, which records of one arm alone have not.
ON_SOME_DATA = {"constraints": balanced, "data": with_signed}


def test_private_records_without_weights_change_neither_plan_nor_guarantee():
    X, a, y = records()
    first = estimator(variant(**ON_SOME_DATA))
    with warnings.catch_warnings(record=True) as heard:
        first.fit(X, a, y)
    assert not any("no solver" in str(warning.message) for warning in heard)
    other = estimator(variant(**ON_SOME_DATA))
    with pytest.warns(UserWarning, match=r"boxed: no solver found .* weights 1"):
        other.fit(X, np.zeros(60, dtype=int), y)
    assert np.array_equal(other.private_workings_.weights.value, np.ones(60))
    assert not np.array_equal(first.private_workings_.weights.value, np.ones(60))
    stated = [json.loads(model.release_.to_json()) for model in (first, other)]
    for one in stated:
        one.pop("theta")
    assert stated[0] == stated[1]
    # neither says that these are the declared weights: the bound is that of any
    assert any("V covers all weights of sum n" in one for one in stated[0]["guarantee"]["assumptions"])
    assert "no solver" not in other.release_.to_json()


def test_a_public_example_keeps_to_its_universe():
    domain = Domain(2.0, 3.0, intercept=0.5, coordinate_bound=(0.1, 1.0, 2.0))
    for found in Universe(domain, 41, 3).examples():
        assert found.X.shape == (41, 4)
        assert np.all(np.linalg.norm(found.X, axis=1) <= 2.0)
        assert np.all(np.abs(found.covariates) <= [0.1, 1.0, 2.0])
        assert np.all(np.abs(found.y) <= 3.0)
        assert set(found.a) == {0, 1}
