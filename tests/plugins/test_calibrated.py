"""Public means, offsets and base weights of separable schemes: solved as CVXPY does, and never
beyond V.
"""

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.neighbors import Neighborhood, Replacements
from dp2erm_cvx.neighbors.neighborhood import fast_path
from dp2erm_cvx.program import private, scheme
from dp2erm_cvx.program.kernels import PublicSample
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.solve import solve
from tests.plugins import calibrated
from tests.plugins.clusters import largest_movement
from tests.plugins.test_by_arm import records, sigma

DOMAIN = Domain(1.5, 1.0, intercept=0.5)
N, P = 60, 3
SCHEMES = [
    calibrated.raking_to_public_means,
    calibrated.overlap_with_offset,
    calibrated.calibration_of_a_survey,
    calibrated.sampled_to_the_treated,
]
every = pytest.mark.parametrize("made", SCHEMES, ids=lambda one: one.name)


def in_numbers(program, data):
    """The mean loss in CVXPY and weights as a function of v, written out in arrays."""
    d = np.clip(0.5 + 1.5 * (data.covariates[:, 0] > 0), 0.5, 2.0)
    o = np.clip(0.4 * data.covariates[:, 1] * (2 * data.a - 1), -0.5, 0.5)
    scaled = DOMAIN.records([[0.1, 0.05, -0.1]], [0], [0.0]).X[0]
    v = cp.Variable(P + 1)
    u, sign = data.X @ v, 2 * data.a - 1
    name = program.name
    if name == "raking_to_public_means":
        return v, cp.sum(cp.exp(u)) - N * (scaled @ v), lambda v: np.exp(data.X @ v)
    if name == "overlap_with_offset":
        s = cp.multiply(sign, u) + o
        return v, cp.sum(cp.logistic(-s)), lambda v: sigma(-(sign * (data.X @ v) + o))
    if name == "calibration_of_a_survey":
        low, high = program.low, program.high
        scale = (high - low) / ((1 - low) * (high - 1))
        shift = math.log((1 - low) / (high - 1))
        bent = cp.sum(
            cp.multiply(d, low * u + (high - low) / scale * cp.logistic(scale * u + shift))
        )
        return (
            v,
            bent - N * (scaled @ v),
            lambda v: d * (low + (high - low) * sigma(scale * (data.X @ v) + shift)),
        )
    assert name == "sampled_to_the_treated"
    loss = cp.sum(cp.multiply(d, cp.logistic(cp.multiply(-sign, u + o))))
    return v, loss, lambda v: d * np.where(data.a == 1, 1.0, np.exp(data.X @ v + o))


@pytest.mark.one_row_in(4)
@every
@pytest.mark.parametrize("radius", [None, 0.15])
def test_weights_are_those_of_cvxpy_alone(made, radius):
    data = records()
    program = made() if radius is None else made(radius=radius)
    program = program.resolve(DOMAIN.space)
    v, loss, weights = in_numbers(program, data)
    largest = program.number("radius")
    constraints = [cp.norm(v) <= largest] if math.isfinite(largest) else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at tolerances that it hardly reaches
        tight = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}
        objective = loss / N + program.mu / 2 * cp.sum_squares(v)
        cp.Problem(cp.Minimize(objective), constraints).solve(solver="CLARABEL", **tight)
    f = weights(v.value)
    instance = program.instance(data)
    for solver in ("newton", "clarabel"):
        solution = solve(instance, solver=solver)
        np.testing.assert_allclose(solution.value, N * f / f.sum(), atol=2e-5)
        assert solution.certificate.output_radius <= 1e-8 * N


@pytest.mark.one_row_in(3)
@every
def test_weights_move_by_no_more_than_their_bound(made):
    """Clustered datasets, of which the replaced record is at the far end; numbers are at their
    ends.
    """
    n, domain = 40, Domain(1.0, 1.0)
    program = made().resolve(domain.space)
    if program.target is not None:
        program = made(target=PublicSample([[0.6, 0.0, 0.0]])).resolve(domain.space)
    bound = program.stability(Universe(domain, n, P))
    rng = np.random.default_rng(5)
    pairs = []
    for _ in range(40):
        signs = np.where(rng.uniform(size=n) < rng.choice([0.1, 0.9]), -1.0, 1.0)
        x = np.column_stack([0.7 * signs, 0.7 * rng.choice([-1.0, 1.0], n), np.zeros(n)])
        a = np.where(rng.uniform(size=n) < rng.uniform(), 1, 0)
        data = domain.records(x, a, np.zeros(n))
        x_new = np.array([rng.choice([-0.7, 0.7]), rng.choice([-0.7, 0.7]), 0.0])
        pairs.append((data, data.replaced(0, x_new, int(rng.integers(2)))))
    worst = largest_movement(program, bound, pairs)
    assert 0.1 * bound.V < worst <= bound.V


@pytest.mark.one_row_in(2)
@every
def test_neighbors_have_their_own_weights(made):
    """The fast path of rows knows a target, but no offset and no factor, and takes none for 0 and
    1.
    """
    data = records(4, 30)
    program = made().resolve(DOMAIN.space)
    instance = program.instance(data)
    path = fast_path(instance, data, solve(instance).point)
    assert (path is None) == bool(program.own_calls())
    new = records(5, 3)
    replaced = Replacements(data, np.array([0, 7, 11]), new.X, 1 - data.a[[0, 7, 11]])
    (chunk,) = Neighborhood(program, data).solve(replaced)
    assert np.all(chunk.by_single == bool(program.own_calls()))
    for k in range(3):
        alone = solve(program.instance(replaced.neighbor(k))).value
        np.testing.assert_allclose(chunk.values[0][k], alone, atol=1e-6)


@pytest.mark.one_row_in(3)
@every
def test_public_bounds_hold_on_a_dataset(made):
    universe = Universe(DOMAIN, N, P)
    program = made().at(universe)
    error = program.certified_error(universe)
    assert error is not None
    assert error < 1e-5
    solution = solve(program.instance(records(9)))
    sizes = program.margin_sum(universe).sizes()
    assert np.linalg.norm(solution.point) <= sizes.minimizer_norm
    assert solution.certificate.output_radius <= error * N


@pytest.mark.one_row_in(6)
@every
def test_a_release_is_private_and_states_what_is_the_authors(made):
    data = records(6, 400)
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), made(), "arm_means").fit(
        data.covariates, data.a, data.y
    )
    assert model.release_.private
    assumed = "; ".join(model.release_.guarantee.assumptions)
    assert all(name in assumed for name in made().own_data())


def test_a_target_has_the_columns_of_the_records():
    with pytest.raises(DeclarationError, match="2 columns"):
        calibrated.raking_to_public_means(target=PublicSample([[0.1, 0.2]])).stability(
            Universe(DOMAIN, 40, P)
        )


def test_a_target_is_met_as_the_ridge_falls():
    data = records(10, 400)
    program = calibrated.calibration_of_a_survey(ridge=1e-6, low=0.01, high=30.0)
    weights = solve(program.resolve(DOMAIN.space).instance(data)).value
    assert weights @ data.covariates / 400 == pytest.approx(
        DOMAIN.records([[0.1, 0.05, -0.1]], [0], [0.0]).covariates[0], abs=1e-3
    )


def odd(s):
    """Overlap weights."""
    return cp.logistic(-s), -cp.logistic(s)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": (calibrated.design, 0.0, 2.0)}, "above 0"),
        ({"base": (calibrated.design, 2.0, 0.5)}, "high"),
        ({"offset": calibrated.design}, "function, low, high"),
        ({"offset": (calibrated.design, 0.0)}, "function, low, high"),
        ({"target": (0.1, 0.2)}, "PublicSample"),
        ({"offset": (lambda x, a: x @ np.ones((2, 2)), 0.0, 1.0)}, "the offset"),
    ],
)
def test_what_has_no_interval_is_refused_in_a_line(settings, message):
    with pytest.raises(DeclarationError, match=message) as refused:
        scheme.separable(ridge=0.1, **settings)(odd)().stability(Universe(DOMAIN, 40, P))
    assert "\n" not in str(refused.value)


def test_no_private_variant_has_them():
    with pytest.raises(DeclarationError, match="private coefficient"):
        private(calibrated.overlap_with_offset, ridge=0.1, radius=1.0)
    with pytest.raises(DeclarationError, match="private coefficient"):
        calibrated.raking_to_public_means().private()
    with pytest.raises(DeclarationError, match="one margin"):
        scheme.separable(ridge=0.1, by_arm=True, target=PublicSample([[0.1, 0.2, 0.3]]))


def test_the_formula_says_where_they_enter():
    formula = calibrated.calibration_of_a_survey().formula
    assert "base * (" in formula
    assert "- n <t, v>" in formula
    assert "w_i ~ base * exp(" in formula
    assert "s = (2a - 1) <x, v> + offset" in calibrated.overlap_with_offset().formula
    rows = dict(describe(calibrated.sampled_to_the_treated(), Universe(DOMAIN, 400, P)))
    assert "at n = 400" in rows["V"]
