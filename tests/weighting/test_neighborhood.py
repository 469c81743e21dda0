"""Programs of authors are solved on neighbors together, as the library's own are."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.program import scheme
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.batch import Neighborhood, Replacements
from dp2erm_cvx.solve.solving import TOLERANCE
from tests.weighting.examples import records_of

N = 60
M = 40


@scheme(cap=3.0)
def capped_entropies(w: cp.Variable, records: Any, cap: float) -> cp.Problem:
    balance = cp.sum_squares(records.signed.T @ w) / records.n
    return cp.Problem(cp.Minimize(balance - cp.sum(cp.entr(w))), [cp.sum(w) == records.n, w >= 0, w <= cap])


@scheme
def least_dispersion(w: cp.Variable, records: Any) -> cp.Problem:
    beyond = cp.pos(cp.abs(records.signed.T @ w) - 0.02 * records.n)
    objective = cp.sum_squares(w - 1) + 10 * cp.sum_squares(beyond) / records.n
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == records.n, w >= 0])


def replacements(m: int = M, arm_floor: int | None = None) -> Replacements:
    drawn = records_of(N)
    records = Domain(1.0, 1.0, arm_floor=arm_floor).records(drawn.X, drawn.a, drawn.y)
    generator = np.random.default_rng(4)
    new = records_of(m, seed=9)
    return Replacements(records, generator.integers(0, N, m), new.X, new.a)


@pytest.mark.parametrize("declared", [capped_entropies, least_dispersion])
def test_neighbors_of_programs_are_solved_together(declared: Any) -> None:
    program = declared()
    part = replacements()
    (found,) = Neighborhood(program, part.base).solve(part)
    assert not np.any(found.by_single)
    assert np.all(found.certified)
    (weights,) = found.values
    moved = 0.0
    for k in range(0, M, 8):
        one = solve(program.instance(part.neighbor(k)))
        apart = float(np.sum(np.abs(one.value - weights[k])))
        assert apart <= found.radius[k] + one.certificate.output_radius
        moved = max(moved, float(np.sum(np.abs(weights[k] - weights[0]))))
    assert np.all(found.radius <= TOLERANCE * N)
    assert moved > 1e-2


@scheme
def of_the_treated(w: cp.Variable, records: Any) -> cp.Problem:
    balance = cp.sum_squares(records.signed.T @ w) / records.n
    controls = records.arms.T @ w == cp.sum(records.arms, axis=0)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + balance), [controls, w >= 0])


def test_sums_that_a_flip_changes() -> None:
    program = of_the_treated()
    part = replacements()
    (found,) = Neighborhood(program, part.base).solve(part)
    assert not np.any(found.by_single)
    (weights,) = found.values
    for k in range(0, M, 8):
        treated = part.neighbor(k).a
        np.testing.assert_allclose(float(weights[k] @ treated), float(np.sum(treated)), rtol=1e-10)


@scheme
def controls_like_the_treated(w: cp.Variable, records: Any) -> cp.Problem:
    balance = cp.sum_squares(records.signed.T @ w) / records.n
    treated = records.treatment
    sums = [(1 - treated) @ w == cp.sum(treated), cp.multiply(treated, w - 1) == 0, w >= 0]
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + balance), sums)


def test_released_weights_of_the_treated_have_sum_n() -> None:
    program = controls_like_the_treated()
    part = replacements(arm_floor=10)
    (found,) = Neighborhood(program, part.base).solve(part)
    assert not np.any(found.by_single)
    (weights,) = found.values
    np.testing.assert_allclose(np.sum(weights, axis=1), N, rtol=1e-10)
    for k in range(0, M, 8):
        one = solve(program.instance(part.neighbor(k)))
        apart = float(np.sum(np.abs(one.value - weights[k])))
        assert apart <= found.radius[k] + one.certificate.output_radius
