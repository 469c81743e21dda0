"""The mean of an arm as a target: what is read, what is refused, and what follows from a program of
it.
"""

import re
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, InfeasibleError
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import Gaussian, PublicSample
from dp2erm_cvx.program.registry import known_meanwhile
from dp2erm_cvx.program.rows import Ball
from dp2erm_cvx.program.weighting.reader import read_weighting
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.weighting.forms.form import WeightingForm
from tests.weighting.declarations import (
    DOMAIN,
    MATRIX,
    MEANS,
    POINTS,
    Function,
    declared,
    minimized,
    of,
    to_treated,
)

N = 120


def read(function: Function, domain: Domain = DOMAIN) -> WeightingForm:
    problem, w, records = declared(function, 9, domain)
    return read_weighting(problem, w, records)


def refused(function: Function) -> str:
    with pytest.raises(DeclarationError) as error:
        read(function)
    assert "please report" not in str(error.value)
    return str(error.value)


def test_factors_are_those_that_are_written() -> None:
    form = read(MEANS["controls to the treated"])
    ((part,),) = form.imbalances[0].groups
    assert part.mean.tolist() == [0.0, 1.0]
    assert part.weighted.tolist() == [1.0, 1.0]
    assert part.target.tolist() == [0.0, 0.0]
    assert form.arms_of_means == (1,)
    both = read(MEANS["both means"])
    ((part,),) = both.imbalances[0].groups
    # rows x / n, and n times half of the mean over n
    assert (part.mean / part.weighted).tolist() == pytest.approx([0.5, 0.5])
    assert both.arms_of_means == (0, 1)


def test_the_mean_of_a_public_number_is_public() -> None:
    """The intercept of a mean is no datum: it needs no floor, and moves no target."""
    with_intercept = Domain(1.5, 2.0, intercept=0.5)
    form = read(
        of(lambda w, r: cp.square(r.x[:, 0] @ w - 3 * r.n * r.mean_of(r.x, "treated")[0])),
        with_intercept,
    )
    assert form.arms_of_means == ()
    assert form.imbalances[0].shift == pytest.approx([3 * 9 * 0.5])
    whole = read(MEANS["all to the treated"], with_intercept)
    assert whole.arms_of_means == (1,)


def compared(target: Function) -> Function:
    """Squares of covariates less a target."""
    return lambda w, r: cp.sum_squares(r.x.T @ w / r.n - target(w, r))


GAUSSIAN = Gaussian(1.0)


def to_points(*samples: PublicSample) -> Function:
    """Squares of features of a kernel less the means over public points."""

    def price(w: Any, r: Any) -> Any:
        features = r.features(GAUSSIAN)
        return sum(
            cp.sum_squares(features.T @ w / r.n - r.mean_of(features, one)) for one in samples
        )

    return price


@pytest.mark.parametrize(
    ("price", "says"),
    [
        (
            compared(lambda w, r: cp.sum(w) * r.mean_of(r.x, "treated")),
            "multiplies weights by mean_of",
        ),
        (lambda w, r: cp.sum(cp.multiply(w - r.mean_of(r.y, "treated"), w)), "is not convex"),
        (lambda w, r: cp.sum_squares(w - r.mean_of(r.y, "treated")), "no sum over records"),
        (lambda w, r: cp.square(r.mean_of(r.y, "treated")), "holds no weights"),
        (compared(lambda w, r: r.mean_of(r.x[:, 0], "treated")), "takes data of every"),
        (compared(lambda w, r: r.mean_of(r.x, "all")), "controls"),
        (
            compared(lambda w, r: r.mean_of(r.mean_of(r.x, "treated"), "treated")),
            "takes data of every",
        ),
        (compared(lambda w, r: r.mean_of(np.ones((r.n, 3)), "treated")), "takes data of every"),
        (compared(lambda w, r: r.mean_of(r.features(GAUSSIAN), "treated")), "is no sum|mixes"),
        (compared(lambda w, r: r.mean_of(r.x, POINTS)), "write the number"),
        (
            compared(lambda w, r: r.mean_of(r.features(GAUSSIAN, "treated"), POINTS)),
            "treatment does not matter",
        ),
        (to_points(POINTS, PublicSample(np.zeros((1, 3)))), "two samples"),
        (compared(lambda w, r: MATRIX @ r.mean_of(r.x, "treated")), "weighs other covariates"),
    ],
)
def test_what_is_no_target_is_refused(price: Function, says: str) -> None:
    assert re.search(says, refused(of(price)))


def test_a_box_of_a_mean_is_refused() -> None:
    box = minimized(
        lambda w, r: cp.sum_squares(w), lambda w, r: [w <= 3 + r.mean_of(r.y, "treated")]
    )
    assert "no sum over records" in refused(box)


@scheme(ridge=0.2, cap=4.0)
def to_the_treated(w, records, ridge, cap):
    """Entropy balancing of the controls to the mean of the treated (Hainmueller 2012), priced."""
    n = records.n
    gap = records.x.T @ w / n - records.mean_of(records.x, "treated")
    dispersion = -cp.sum(cp.entr(w))
    price = n / (2 * ridge) * cp.sum_squares(gap)
    return cp.Problem(
        cp.Minimize(dispersion + price), [cp.sum(w) == n, w <= cap * (1 - records.treatment)]
    )


def moved(x: Any, a: int, y: float) -> Any:
    return x * abs(x[0])


@scheme(ridge=0.2, cap=4.0)
def to_own_rows(w, records, ridge, cap):
    """The treated of an own map, which is no other part of the problem, are the target of all
    covariates.
    """
    n = records.n
    target = records.mean_of(records.rows("moved", moved, Ball(1.0)), "treated")
    price = n / (2 * ridge) * cp.sum_squares(records.x.T @ w / n - target)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), [cp.sum(w) == n, w <= cap])


def drawn() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (N, 3)) / np.sqrt(3)
    a = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(1.0 - 2.0 * X[:, 0]))).astype(int)
    return X, a, np.clip(X[:, 0] + 0.5 * a + 0.3 * rng.normal(size=N), -2.0, 2.0)


FLOORED = Domain(1.0, 2.0, arm_floor=20)


@pytest.mark.parametrize(
    "program", [to_the_treated(cap=6.0), to_own_rows()], ids=["controls", "own rows"]
)
@pytest.mark.slow
def test_a_release_states_the_bound_and_its_floor(program: Any) -> None:
    X, a, y = drawn()
    bound = program.stability(Universe(FLOORED, N, 3))
    assert "each arm has at least 20 records" in bound.assumptions
    model = PrivateTwoStageERM(FLOORED, Budget(4.0), program, "regression").fit(X, a, y)
    assert model.release_.private
    assert model.release_.guarantee.stability_theorem == bound.theorem
    weights = model.private_workings_.weights
    assert weights.certified
    assert np.max(weights.value) <= bound.w_max * (1 + 1e-9)
    with known_meanwhile(program.scheme):
        assert verify(model.release_).refuted == ()


@pytest.mark.slow
def test_controls_have_the_mean_of_the_treated_but_for_the_ridge() -> None:
    X, a, y = drawn()
    program = to_the_treated(ridge=0.02, cap=20.0)
    model = PrivateTwoStageERM(FLOORED, Budget(4.0), program, "regression").fit(X, a, y)
    w = model.private_workings_.weights.value
    assert np.sum(w) == pytest.approx(N)
    assert np.max(w[a == 1]) <= 1e-9
    scaled = FLOORED.records(X, a, y).covariates
    treated = np.mean(scaled[a == 1], axis=0)
    before = np.linalg.norm(np.mean(scaled[a == 0], axis=0) - treated)
    after = np.linalg.norm(scaled.T @ w / N - treated)
    assert after < 0.2 * before


def test_without_a_floor_nothing_is_released() -> None:
    with pytest.raises(CalibrationError, match="declare an arm floor"):
        to_own_rows().stability(Universe(Domain(1.0, 2.0), N, 3))


@pytest.mark.slow
def test_a_larger_floor_lowers_the_bound() -> None:
    bounds = []
    for floor in (5, 10, 40):
        universe = Universe(replace(FLOORED, arm_floor=floor), N, 3)
        bounds.append(to_own_rows().stability(universe).V)
    assert bounds[0] > bounds[1] > bounds[2]


def test_data_below_the_floor_are_refused_before_weights() -> None:
    X, _, y = drawn()
    few = np.zeros(N, dtype=int)
    few[:10] = 1
    with pytest.raises(DataError, match="arm_floor"):
        PrivateTwoStageERM(FLOORED, Budget(4.0), to_own_rows(), "regression").fit(X, few, y)


def test_no_mean_of_no_records() -> None:
    problem, _, _ = declared(of(lambda w, r: cp.sum_squares(to_treated(w, r))), 9)
    (mean,) = [datum for datum in problem.parameters() if hasattr(datum, "averaged")]
    nobody = DOMAIN.records(np.zeros((9, 3)), np.zeros(9, dtype=int), np.zeros(9))
    with pytest.raises(InfeasibleError, match="no record has arm 1"):
        mean.of(nobody)


def test_outside_of_the_form_a_mean_is_refused() -> None:
    with pytest.raises(DeclarationError, match="mean_of"):

        @scheme()
        def outside(w, records):
            """A price that is not read, of a mean."""
            gap = records.x.T @ w / records.n - records.mean_of(records.x, "treated")
            return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + cp.sum_largest(gap, 2)))
