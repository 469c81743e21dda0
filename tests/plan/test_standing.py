"""Before anything is spent a plan says what its release will be, and one that is not private is
refused.
"""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.program import Bound, scheme
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.solve import Newton

DOMAIN = Domain(1.0, 1.0)
N = 40
RNG = np.random.default_rng(0)
TABLE = RNG.uniform(-0.5, 0.5, (N, 2)), np.arange(N) % 2, RNG.uniform(-1, 1, N)


@scheme(cap=3.0, rho=1.0)
def kinked(w, records, cap, rho):
    """Weights near 1 under the norm of the imbalance."""
    imbalance = cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * imbalance), [w <= cap])


@kinked.bound
def _(M, cap, rho):
    return Bound.from_l2((2 * rho * M * cap) ** 0.5, w_max=cap)


@scheme()
def covered(w, records):
    """Weights outside of the form: V is 2n."""
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + cp.norm(w - 1)), [w <= 3.0])


def model(first, **settings):
    return PrivateTwoStageERM(DOMAIN, Budget(1.0), first, "arm_means", **settings)


def test_a_plan_says_what_its_release_will_be():
    plan = model("uniform").plan(N, 2)
    assert plan.standing is Standing.PRIVATE
    assert "Its release will be private." in str(plan)
    plan = model("uniform", seed=1).plan(N, 2)
    assert plan.standing is Standing.NOT_PRIVATE
    assert "Its release will be not private: do not publish (the noise is seeded)." in str(plan)
    plan = model("uniform", solver=Newton(max_iterations=1)).plan(N, 2)
    assert plan.standing is Standing.CONDITIONAL
    assert "the declared solver does not certify every dataset" in str(plan).replace("\n", " ")


@pytest.mark.slow
def test_a_plan_names_what_no_public_number_bounds_and_the_bound_that_is_not_used():
    plan = model(kinked()).plan(N, 2)
    text = str(plan).replace("\n", " ")
    assert "conditional: do not publish (no public number bounds the numerical error" in text
    assert "of the weights of kinked)" in text
    stated, used = (
        bound.V for bound in (kinked()._bound_of_author(plan.study.universe), plan.bound)
    )
    assert f"the bound that its author states, V = {stated:.4g}, is not used: V = {used:.3}" in text
    rows = dict(describe(kinked(), Universe(DOMAIN, N, 2)))
    assert "is not used" in rows["stated"]
    assert rows["standing"].startswith("conditional: do not publish")


def test_a_plan_says_where_its_noise_covers_every_weight():
    plan = model(covered()).plan(N, 2)
    assert plan.standing is Standing.PRIVATE
    assert "V = 2n: the noise covers every possible weight of covered." in str(plan)
    rows = dict(describe(covered(), Universe(DOMAIN, N, 2)))
    assert rows["standing"] == "private. V = 2n: the noise covers every possible weight"


@pytest.mark.slow
def test_a_conditional_fit_is_refused_before_the_charge(tmp_path):
    ledger = Ledger(tmp_path / "book.db")
    ledger.declare("trial", Budget(5.0))
    account = {"ledger": ledger, "dataset": "trial"}
    own = model(kinked(), **account)
    with pytest.raises(DeclarationError, match=r"conditional: do not publish .*conditional=True"):
        own.fit(*TABLE)
    assert ledger.account("trial").receipts == ()
    release = own.fit(*TABLE, conditional=True).release_
    assert release.standing is Standing.CONDITIONAL
    assert len(ledger.account("trial").receipts) == 1
    # a seed is a consent of its own: nothing is protected and nothing is charged
    assert model(kinked(), seed=1).fit(*TABLE).release_.standing is Standing.NOT_PRIVATE


def test_a_step_that_learned_from_the_records_is_refused_before_the_charge():
    pipeline = make_pipeline(StandardScaler(), model("uniform"))
    with pytest.raises(DeclarationError, match="step standardscaler of this Pipeline read all"):
        pipeline.fit(TABLE[0], TABLE[1], privatetwostageerm__y=TABLE[2])
    assert model("uniform").fit(*TABLE).release_.private
