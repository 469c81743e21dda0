"""Problems of CVXPY that stand already become schemes: read, solved and released as they are
written.
"""

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.registry import known_meanwhile
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.solve import certify_weights, solve
from tests.plugins import given_problems
from tests.plugins.given_problems import P

N = 80
DOMAIN = Domain(1.0, 1.0, arm_floor=25)


def halves(records: Any) -> Any:
    """Half of the sums of (1, x) over all records, for both arms."""
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    return cp.hstack([half, half])


def rows_by_arm(records: Any) -> Any:
    return records.by_arm(1.0)


#: Arguments of from_problem, and the values of the parameters that a user would set.
GIVEN: dict[str, tuple[dict[str, Any], Callable[[Records], dict[str, Array]]]] = {
    "stable_weights": (
        {"data": {"X": "signed"}, "settings": ["rho"]},
        lambda r: {"X": (2 * r.a - 1)[:, None] * r.covariates},
    ),
    "entropy_to_the_treated": (
        {
            "weights": "weights",
            "data": {"Z": "x", "goal": "target of treated", "treated": "treatment"},
            "settings": {"price": 3.0},
        },
        lambda r: {
            "Z": r.covariates,
            "goal": r.covariates[r.a == 1].mean(axis=0),
            "treated": r.a.astype(float),
            "price": np.array(3.0),
        },
    ),
    "within_a_tolerance": (
        {"data": {"X": "signed"}, "settings": ["tolerance"]},
        lambda r: {"X": (2 * r.a - 1)[:, None] * r.covariates},
    ),
    "to_a_census": ({"data": {"X": "x"}}, lambda r: {"X": r.covariates}),
    "by_arm": (
        {
            "data": {"G": rows_by_arm, "A": "arms", "half": halves},
            "settings": ["rho"],
            "columns": P,
        },
        lambda r: {
            "G": np.hstack(
                [
                    (r.a == arm)[:, None] * np.column_stack([np.ones(N), r.covariates])
                    for arm in (0, 1)
                ]
            ),
            "A": np.column_stack([1 - r.a, r.a]).astype(float),
            "half": np.tile(np.append(N / 2, r.covariates.sum(axis=0) / 2), 2),
        },
    ),
}


def scheme_of(name: str) -> Any:
    return scheme.from_problem(getattr(given_problems, name), **GIVEN[name][0])


def records_of(seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N, P)) / 2
    a = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    return DOMAIN.records(X, a, np.clip(X[:, 0] + a / 2, -1.0, 1.0))


def as_its_user_solves_it(name: str, records: Records) -> Array:
    """Weights by CVXPY alone, from the problem as it stands."""
    problem = getattr(given_problems, name)(N)
    values = GIVEN[name][1](records)
    for parameter in problem.parameters():
        if parameter.name() in values:
            parameter.value = values[parameter.name()]
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", **tight)
    return np.asarray(problem.variables()[0].value)


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("name", GIVEN)
def test_weights_are_those_of_the_problem(name: str) -> None:
    records = records_of()
    program = scheme_of(name)()
    theirs = as_its_user_solves_it(name, records)
    ours = solve(program.instance(records))
    assert np.sum(np.abs(ours.value - theirs)) <= 1e-4 * N
    by_clarabel = solve(program.instance(records), solver="clarabel", polish=False, tolerance=1e-4)
    assert np.sum(np.abs(by_clarabel.value - ours.value)) <= by_clarabel.certificate.output_radius
    found = certify_weights(program, records, theirs)
    assert found.radius >= np.sum(np.abs(ours.value - theirs))
    assert found.relative <= 1e-4
    assert not found.other_total


@pytest.mark.one_row_in(5)
@pytest.mark.parametrize("name", GIVEN)
def test_a_given_problem_becomes_a_release(name: str) -> None:
    records = records_of()
    made = scheme_of(name)
    V = made().stability(Universe(DOMAIN, N, P)).V
    assert V < 2 * N
    model = PrivateTwoStageERM(DOMAIN, Budget(4.0), made(), "regression").fit(
        records.X, records.a, records.y
    )
    assert model.release_.private
    declared = model.release_.to_json()
    assert "given_problems.py" in declared
    with known_meanwhile(made):
        assert verify(model.release_).refuted == ()


def test_settings_are_those_that_are_named() -> None:
    made = scheme_of("stable_weights")
    assert made().value("rho") == 10.0
    bounds = [made(rho=rho).stability(Universe(DOMAIN, N, P)).V for rho in (1.0, 10.0)]
    assert bounds[0] < bounds[1]


def with_a_bound_of_sizes(n):
    w = cp.Variable(n, name="w")
    delta = cp.Variable(P, name="delta")
    X = cp.Parameter((n, P), name="X")
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum(delta)), [cp.abs(X.T @ w) <= delta])


def of_two_products(n):
    w = cp.Variable(n, name="w")
    X = cp.Parameter((n, P), name="X")
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w) + cp.sum_squares(X @ (X.T @ w))), [cp.sum(w) == n]
    )


def without_a_sum(n):
    w = cp.Variable(n, name="w")
    X = cp.Parameter((n, P), name="X")
    return cp.Problem(cp.Minimize(cp.sum(cp.kl_div(w, 1)) + cp.sum_squares(X.T @ w) / n), [w <= 4])


def of_any_sign(n):
    w = cp.Variable(n, name="w")
    X = cp.Parameter((n, P), name="X")
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w) + cp.sum_squares(X.T @ w) / n), [cp.sum(w) == n, w <= 4]
    )


def of_one_size(n):
    w = cp.Variable(6, name="w")
    X = cp.Parameter((6, P), name="X")
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum_squares(X.T @ w)), [cp.sum(w) == 6])


@pytest.mark.parametrize(
    ("make", "words", "says"),
    [
        (given_problems.stable_weights(6), {"data": {"X": "signed"}}, "pass the function of n"),
        (with_a_bound_of_sizes, {"data": {"X": "x"}}, "delta is a variable beside the weights w"),
        (of_two_products, {"data": {"X": "x"}}, "is not DPP"),
        (without_a_sum, {"data": {"X": "x"}}, "states no sum of its weights"),
        (of_any_sign, {"data": {"X": "x"}}, "may be negative"),
        (of_one_size, {"data": {"X": "x"}}, "must have one variable w of shape"),
        (given_problems.stable_weights, {"data": {"X": "signed"}}, "say what rho is"),
        (
            given_problems.stable_weights,
            {"data": {"X": "sgned"}, "settings": ["rho"]},
            "did you mean signed",
        ),
        (
            given_problems.stable_weights,
            {"data": {"X": "arms"}, "settings": ["rho"]},
            "X has shape",
        ),
        (
            given_problems.stable_weights,
            {"data": {"X": "x", "Y": "x"}, "settings": ["rho"]},
            "no parameter is called Y",
        ),
        (
            given_problems.stable_weights,
            {"data": {"X": "x", "rho": "y"}, "settings": ["rho"]},
            "among the data and among the settings",
        ),
        (
            given_problems.entropy_to_the_treated,
            {**GIVEN["entropy_to_the_treated"][0], "settings": ["price"]},
            "price has no value",
        ),
        (
            given_problems.stable_weights,
            {"weights": "v", "data": {"X": "x"}},
            "w is a variable beside",
        ),
        (lambda n: None, {"data": {}}, "return a cp.Problem"),
        (3, {"data": {}}, "must be a function"),
    ],
)
def test_what_is_no_problem_of_weights_is_refused_in_a_line(
    make: Any, words: Any, says: str
) -> None:
    with pytest.raises(DeclarationError) as error:
        scheme.from_problem(make, **words)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_problem_under_a_decorator_is_told_the_way() -> None:
    problem = cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(3) - 1)))
    with pytest.raises(DeclarationError, match=r"a single problem .* scheme\.from_problem"):
        scheme(problem)


def test_records_with_other_columns_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"X has shape \(80, 4\)"):
        scheme_of("stable_weights")().stability(Universe(DOMAIN, N, 3))


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("name", GIVEN)
def test_the_problem_with_its_data_is_there_for_other_solvers(name: str) -> None:
    records = records_of()
    program = scheme_of(name)()
    problem = program.problem(records)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL")
    (w,) = problem.variables()
    assert certify_weights(program, records, w.value).relative <= 1e-3


def test_weights_of_another_scale_or_number_are_told() -> None:
    records = records_of()
    program = scheme_of("to_a_census")()
    exact = solve(program.instance(records)).value
    assert certify_weights(program, records, exact / N).other_total
    far = exact.copy()
    far[0] += 1.0
    assert certify_weights(program, records, far).radius == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(DataError, match="must be 80 numbers"):
        certify_weights(program, records, exact[1:])
    with pytest.raises(DataError, match="record 3 has the weight nan"):
        certify_weights(program, records, np.where(np.arange(N) == 2, np.nan, exact))
