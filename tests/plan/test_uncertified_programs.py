"""Programs without certified weights are refused by public facts, and never by private ones."""

import json
import warnings

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, Ledger, PrivateTwoStageERM, Universe
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.program import SeparableFirstStage, scheme
from dp2erm_cvx.solve import OwnSolver
from tests.helpers import planted

DOMAIN = Domain(1.0, 1.0, intercept=0.2)


def near_one(*limits, objective=lambda w: cp.sum_squares(w - 1)):
    """A program with further constraints by the weights and n, or another objective."""

    def made(w, records):
        """Weights near 1."""
        return cp.Problem(cp.Minimize(objective(w)), [limit(w, records.n) for limit in limits])

    return scheme()(made)()


def capped(w, n):
    return w <= 5


def entropy(w):
    return 1e-6 * cp.sum_squares(w) - cp.sum(cp.entr(w))


def unread_atom(w):
    return cp.sum_squares(w) + cp.log_sum_exp(w)


def two(w, n):
    return cp.sum(w[:2]) <= 5


#: What is declared, and what a refusal names.
REFUSED = {
    "capped entropy beside another limit": (
        near_one(capped, two, objective=entropy),
        "the atom entr",
    ),
    "an atom that is not read": (
        near_one(objective=unread_atom),
        "does not read the atom log_sum_exp",
    ),
    "an equation": (
        near_one(lambda w, n: w[0] == w[1]),
        "does not read .*: state it by inequalities",
    ),
    "a box that no dataset satisfies": (near_one(lambda w, n: w <= 0.5), "cap of at least 1"),
    "a box that is a little too small": (near_one(lambda w, n: w <= 0.9999), "cap of at least 1"),
    "a floor above the mean": (near_one(capped, lambda w, n: w >= 1.1), "floor in \\[0, 1\\]"),
    "weights of at least two": (near_one(capped, lambda w, n: 2 * w >= 4), "relax its constraints"),
    "more than all on one record": (near_one(capped, lambda w, n: w[0] >= 2 * n), "relax its"),
}


def records(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (n, 2)), np.arange(n) % 2, rng.uniform(-1, 1, n)


def estimator(program, **settings):
    return PrivateTwoStageERM(DOMAIN, Budget(1.0), program, "arm_means", **settings)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_dataset_certifies_is_refused_when_planned_and_charges_nothing(case, tmp_path):
    program, why = REFUSED[case]
    for n in (60, 800):
        with pytest.raises(CalibrationError, match=why) as caught:
            estimator(program).plan(n, 2)
        assert str(caught.value).startswith(f"{program.name}: ")
        assert ". " not in str(caught.value)
    ledger = Ledger(tmp_path / "book.db")
    ledger.declare("trial", Budget(5.0))
    model = estimator(program, ledger=ledger, dataset="trial")
    with pytest.raises(CalibrationError, match=program.name):
        model.fit(*records())
    assert not ledger.account("trial").receipts
    assert not hasattr(model, "release_")


def test_weights_at_the_declared_solver_and_number_of_records_alone_are_enough():
    with pytest.raises(CalibrationError, match="choose another program or solver"):
        estimator(near_one(capped, two), solver="newton").plan(60, 2)
    assert estimator(near_one(capped, two), solver="scs").plan(60, 2).bound.V == 120
    of_many = near_one(lambda w, n: 2 * w <= n / 300)
    assert estimator(of_many).plan(700, 2).bound.V == pytest.approx(2.0, abs=0.01)
    with pytest.raises(CalibrationError, match="relax its constraints"):
        estimator(of_many).plan(400, 2)


def test_a_program_without_a_hash_is_judged_as_well():
    class Mine(SeparableFirstStage):
        """Overlap weights of which no error is known, in a class without a hash."""

        __hash__ = None

        def certified_error(self, universe):
            return None

    unhashable = planted(Mine, overlap, "m")
    with pytest.raises(TypeError):
        hash(unhashable())
    assert estimator(unhashable()).plan(60, 2).bound.V < 120


@scheme()
def unread(w, records):
    """Balance, and a limit on two weights, which no reading takes."""
    balance = cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + balance), [w <= 5, cp.sum(w[:2]) <= 5])


def on_some_data(problem):
    """Gives up where seven records are treated, which no public example has."""
    problem.solve(solver="CLARABEL")
    signed = problem.param_dict.get("signed")
    if signed is not None and np.sum(signed.value[:, 0] > 0.0) == 7:
        raise cp.SolverError("gave up")


def test_private_records_without_weights_change_neither_plan_nor_guarantee():
    X, a, y = records()
    first = estimator(unread(), solver=OwnSolver(on_some_data, "some"))
    with warnings.catch_warnings(record=True) as heard:
        first.fit(X, a, y)
    assert not any("no solver" in str(warning.message) for warning in heard)
    other = estimator(unread(), solver=OwnSolver(on_some_data, "some"))
    with pytest.warns(UserWarning, match=r"unread: no solver found .* weights 1"):
        other.fit(X, (np.arange(60) < 7).astype(int), y)
    assert np.array_equal(other.private_workings_.weights.value, np.ones(60))
    assert not np.array_equal(first.private_workings_.weights.value, np.ones(60))
    stated = [json.loads(model.release_.to_json()) for model in (first, other)]
    for one in stated:
        one.pop("theta")
    assert stated[0] == stated[1]
    # neither says that these are the declared weights: the bound is that of any
    assert any(
        "V covers all weights of sum n" in one for one in stated[0]["guarantee"]["assumptions"]
    )
    assert "no solver" not in other.release_.to_json()


def test_a_public_example_keeps_to_its_universe():
    domain = Domain(2.0, 3.0, intercept=0.5, coordinate_bound=(0.1, 1.0, 2.0))
    for result in Universe(domain, 41, 3).examples():
        assert result.X.shape == (41, 4)
        assert np.all(np.linalg.norm(result.X, axis=1) <= 2.0)
        assert np.all(np.abs(result.covariates) <= [0.1, 1.0, 2.0])
        assert np.all(np.abs(result.y) <= 3.0)
        assert set(result.a) == {0, 1}
