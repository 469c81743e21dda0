"""Weights that are normalized by arm: made, certified, never beyond V, and refused without a
floor.
"""

import math

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.curves.log_weights import OVERLAP
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.neighbors.neighborhood import fast_path
from dp2erm_cvx.program import scheme
from dp2erm_cvx.solve import solve
from tests.plugins import normalized
from tests.plugins.clusters import largest_movement
from tests.plugins.test_by_arm import records, sigma
from tests.plugins.test_sparse import odd

FLOOR = Domain(1.5, 1.0, intercept=0.5, arm_floor=15)
N, P = 60, 3
SCHEMES = [normalized.hajek_overlap, normalized.saturated_overlap, normalized.hajek_odds]
every = pytest.mark.parametrize("made", SCHEMES, ids=lambda one: one.name)


def expected(program, data, point):
    """The weights at a coefficient, written out."""
    u = data.X @ point
    f = sigma(-(2 * data.a - 1) * u)
    if program.name == "hajek_odds":
        f = np.where(data.a == 1, 1.0, np.exp(u))
    sums = np.array([f[data.a == 0].sum(), f[data.a == 1].sum()])
    g = f / np.maximum(sums, data.n_samples * (program.arm_total or 0.0))[data.a]
    return data.n_samples * g / g.sum()


@every
def test_either_arm_has_half_of_the_weights(made):
    data = records(domain=FLOOR)
    program = made().resolve(FLOOR.space)
    for solver in ("newton", "clarabel"):
        solution = solve(program.instance(data), solver=solver)
        np.testing.assert_allclose(
            solution.value, expected(program, data, solution.point), rtol=1e-10
        )
        assert solution.value[data.a == 1].sum() == pytest.approx(N / 2, rel=1e-12)
        assert solution.certificate.output_radius <= 1e-8 * N
    # the same coefficient as with one normalization
    plain = scheme.separable(ridge="M**2 / 10", radius="2 / M")(made.function)
    np.testing.assert_allclose(solution.point, solve(plain().instance(data)).point, atol=1e-8)


def test_a_small_arm_has_less_than_half_where_it_is_saturated():
    data = records()
    few = Domain(1.5, 1.0, intercept=0.5).records(data.covariates, np.arange(N) < 2, data.y)
    program = normalized.saturated_overlap(arm_total=0.2).resolve(few.space)
    solution = solve(program.instance(few))
    np.testing.assert_allclose(solution.value, expected(program, few, solution.point), rtol=1e-10)
    assert solution.value[:2].sum() < 0.9 * N / 2
    assert solution.value.sum() == pytest.approx(N, rel=1e-12)


@every
def test_the_certificate_covers_points_nearby(made):
    """Weights at points within the claimed radius of a point differ by no more than is claimed."""
    data = records(2, domain=FLOOR)
    program = made().resolve(FLOOR.space)
    model = program.model(data)
    point = solve(program.instance(data)).point
    rng = np.random.default_rng(0)
    for radius in (1e-6, 1e-2, 0.3):
        claimed = model.output_radius(point, radius)
        for _ in range(20):
            step = rng.normal(size=len(point))
            moved = model.output(point + radius * step / np.linalg.norm(step))
            assert np.sum(np.abs(moved - model.output(point))) <= claimed


@pytest.mark.one_row_in(3)
@every
def test_weights_move_by_no_more_than_their_bound(made):
    """Clustered datasets, of which the replaced record is at the far end, with arms down to the
    floor.
    """
    n, floor = 40, 6
    domain = Domain(1.0, 1.0, arm_floor=floor)
    program = made().resolve(domain.space)
    bound = program.stability(Universe(domain, n, 1))
    rng = np.random.default_rng(5)
    pairs = []
    for _ in range(60):
        far = float(rng.uniform(0.3, 1.0))
        x = np.where(rng.uniform(size=n) < 0.9, -far, far)[:, None]
        size = int(rng.integers(floor + 1, n // 2))
        a = (np.arange(n) < size).astype(np.int64)
        a = a if rng.uniform() < 0.5 else 1 - a
        data = domain.records(x, a, np.zeros(n))
        other = data.replaced(0, np.array([float(rng.choice([-1.0, 1.0]))]), int(rng.integers(2)))
        pairs.append((data, other))
    worst = largest_movement(program, bound, pairs)
    assert 0.1 * bound.V < worst <= bound.V


@every
def test_neighbors_are_solved_alone(made, monkeypatch):
    """Planted: the fast path has one normalization, and is not taken where rows are offered all the
    same.
    """
    data = records(4, 40, FLOOR)
    program = made().resolve(FLOOR.space)
    assert program.row_neighbors(data) is None

    def offers(self, records):
        return lambda old, new: (self.rows(new), None)

    monkeypatch.setattr(type(program), "row_neighbors", offers)
    instance = program.instance(data)
    assert fast_path(instance, data, solve(instance).point) is None


@every
def test_public_bounds_hold_on_a_dataset(made):
    universe = Universe(FLOOR, N, P)
    program = made().at(universe)
    error = program.certified_error(universe)
    assert error is not None
    assert error < 1e-5
    assert solve(program.instance(records(9, domain=FLOOR))).certificate.output_radius <= error * N


@pytest.mark.one_row_in(3)
@every
def test_a_release_is_private(made):
    data = records(6, 400, FLOOR)
    model = PrivateTwoStageERM(FLOOR, Budget(4.0), made(), "arm_means").fit(
        data.covariates, data.a, data.y
    )
    assert model.release_.private


def test_without_a_floor_a_record_alone_in_its_arm_moves_half_of_the_weights():
    """So that a normalization by arm with neither floor nor total is refused."""
    domain = Domain(1.0, 1.0)
    program = normalized.hajek_overlap().resolve(domain.space)
    x, a = np.full((20, 1), 0.5), np.arange(20) < 1
    data = domain.records(x, a.astype(np.int64), np.zeros(20))
    other = data.replaced(0, np.array([-1.0]), 1)
    one, two = (solve(program.instance(each)).value for each in (data, other))
    assert np.sum(np.abs(one - two)) + 2 * min(one[0], two[0]) >= 20 * (1 - 1e-9)
    with pytest.raises(CalibrationError, match="alone in its arm"):
        program.stability(Universe(domain, 20, 1))
    assert math.isfinite(normalized.saturated_overlap().stability(Universe(domain, 20, 1)).V)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"normalize": "arms"}, "'all' or 'arm'"),
        ({"arm_total": 0.1}, "normalize='arm'"),
        ({"normalize": "arm", "arm_total": 0.0}, "arm_total"),
        ({"normalize": "arm", "by_arm": True}, "one margin"),
    ],
)
def test_other_normalizations_are_refused_in_a_line(settings, message):
    with pytest.raises(DeclarationError, match=message) as refused:
        scheme.separable(ridge=0.1, **settings)(odd)
    assert "\n" not in str(refused.value)


def test_formulas_name_the_normalization_by_arm():
    assert normalized.hajek_overlap().formula.endswith("w_i ~ exp(-logistic(s)), normalized by arm")
    assert normalized.hajek_overlap().log_weight == OVERLAP
