"""Programs of authors are solved on neighbors together, as the library's own are."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.neighbors import Neighborhood, Replacements
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import Gaussian
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.solving import TOLERANCE
from tests.helpers import placed
from tests.weighting.examples import records_of

N = 60
M = 40


@scheme(cap=3.0)
def capped_entropies(w: cp.Variable, records: Any, cap: float) -> cp.Problem:
    balance = cp.sum_squares(records.signed.T @ w) / records.n
    return cp.Problem(
        cp.Minimize(balance - cp.sum(cp.entr(w))), [cp.sum(w) == records.n, w >= 0, w <= cap]
    )


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


@scheme
def of_a_kernel(w: cp.Variable, records: Any) -> cp.Problem:
    phi = records.features(Gaussian(1.0), "signed")
    return cp.Problem(cp.Minimize(cp.sum_squares(phi.T @ w) / records.n + cp.sum_squares(w - 1)))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("declared", [capped_entropies, least_dispersion, of_a_kernel])
def test_neighbors_of_programs_are_solved_together(declared: Any) -> None:
    part = replacements()
    program = placed(declared(), part.base)
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
    part = replacements()
    program = placed(of_the_treated(), part.base)
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
    part = replacements(arm_floor=10)
    program = placed(controls_like_the_treated(), part.base)
    (found,) = Neighborhood(program, part.base).solve(part)
    assert not np.any(found.by_single)
    (weights,) = found.values
    np.testing.assert_allclose(np.sum(weights, axis=1), N, rtol=1e-10)
    for k in range(0, M, 8):
        one = solve(program.instance(part.neighbor(k)))
        apart = float(np.sum(np.abs(one.value - weights[k])))
        assert apart <= found.radius[k] + one.certificate.output_radius


def movement(program: Any, part: Replacements, k: int) -> tuple[float, float]:
    """V of neighbor k and its numerical error, by two single solves."""
    first = solve(program.instance(part.base))
    second = solve(program.instance(part.neighbor(k)))
    others = np.arange(N) != part.index[k]
    own = first.value[~others][0] + second.value[~others][0]
    moved = float(np.sum(np.abs(first.value - second.value)[others]) + own)
    return moved, first.certificate.output_radius + second.certificate.output_radius


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    "declared",
    [capped_entropies, of_the_treated, of_a_kernel, programs()["ipw_logistic"], programs()["mmd"]],
)
def test_movements_are_those_of_single_solves(declared: Any) -> None:
    part = replacements(12, arm_floor=5)
    program = placed(declared(), part.base)
    neighborhood = Neighborhood(program, part.base)
    found = neighborhood.movements(part)
    held = neighborhood.movements(part, weights=True)
    assert len(found) == 12
    assert found.weights is None
    assert held.weights.shape == (12, N)
    np.testing.assert_allclose(found.V, held.V, rtol=0, atol=1e-6)
    assert np.all(found.certified)
    assert np.all(found.alone) or neighborhood.shares
    for k in range(0, 12, 3):
        moved, error = movement(program, part, k)
        assert abs(found.V[k] - moved) <= found.error[k] + error + 1e-8
        np.testing.assert_allclose(found.S[k], found.V[k] - np.sum(found.own[k]), atol=1e-12)
    assert found.V_found == np.max(found.V - found.error)
    assert found.worst == int(np.argmax(found.V - found.error))
    assert f"largest V found {found.V_found:.6g}" in str(found)


@scheme
def within_a_tolerance(w: cp.Variable, records: Any) -> cp.Problem:
    balanced = cp.abs(records.signed.T @ w) <= 0.2 * records.n
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1)), [cp.sum(w) == records.n, w >= 0, balanced]
    )


def test_what_no_steps_are_shared_for_is_said() -> None:
    part = replacements(3)
    neighborhood = Neighborhood(within_a_tolerance(), part.base)
    assert not neighborhood.shares
    found = neighborhood.movements(part)
    assert np.all(found.alone)
    assert "0 neighbors solved together, 3 one by one, 3 not certified" in str(found)


def test_replacements_are_made_by_records() -> None:
    part = replacements(8)
    new = part.records()
    same = Replacements.by_records(part.base, part.index, new)
    np.testing.assert_array_equal(same.X, part.X)
    np.testing.assert_array_equal(same.a, part.a)
    other = Domain(2.0, 1.0).records(part.X, part.a, np.zeros(8))
    with pytest.raises(DeclarationError, match="another domain"):
        Replacements.by_records(part.base, part.index, other)
    with pytest.raises(DeclarationError, match="index must be"):
        Replacements.by_records(part.base, part.index + N, new)


def test_neighbors_outside_of_the_universe_are_told() -> None:
    drawn = records_of(N)
    treated = int(np.sum(drawn.a))
    floor = min(treated, N - treated)
    rare = 1 if treated == floor else 0
    records = Domain(1.0, 1.0, arm_floor=floor).records(drawn.X, drawn.a, drawn.y)
    index = np.array([np.flatnonzero(drawn.a == rare)[0], np.flatnonzero(drawn.a != rare)[0]])
    flipped = Replacements(records, index, drawn.X[index], 1 - drawn.a[index])
    np.testing.assert_array_equal(flipped.admitted, [False, True])
    kept = Replacements(records, index, drawn.X[index], drawn.a[index])
    assert np.all(kept.admitted)
    assert len(flipped[flipped.admitted]) == 1
    keep = Domain(1.0, 1.0, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    records = keep.records(drawn.X, drawn.a, drawn.y)
    assert not np.any(Replacements(records, index, drawn.X[index], 1 - drawn.a[index]).admitted)
