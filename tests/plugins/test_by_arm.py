"""Separable schemes by arm: weights of CVXPY alone, certified and released; and never moved beyond
V.
"""

import math
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.curves import curves
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.neighbors import Neighborhood, Replacements, rows
from dp2erm_cvx.neighbors.neighborhood import fast_path
from dp2erm_cvx.problems.att_calibration import att_calibration
from dp2erm_cvx.problems.odds_weights import odds_weights
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.solve import solve
from tests.plugins import by_arm
from tests.plugins.clusters import clustered, largest_movement

DOMAIN = Domain(1.5, 1.0, intercept=0.5)
N, P = 60, 3
SCHEMES = [
    att_calibration,
    odds_weights,
    by_arm.tailored_to_the_treated,
    by_arm.beta_family,
    by_arm.smooth_trimming,
    by_arm.bounded_to_the_treated,
]
every = pytest.mark.parametrize("made", SCHEMES, ids=lambda one: one.name)


def records(seed=0, n=N, domain=DOMAIN):
    """Confounded records."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, P)) / math.sqrt(P)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))).astype(np.int64)
    return domain.records(X, a, rng.uniform(-1.0, 1.0, n))


def sigma(u):
    return 1.0 / (1.0 + np.exp(-u))


def weights_in_numbers(program, u, a):
    """Weights before normalization, written out in arrays."""
    e = sigma(u)
    name = program.name
    if name in ("att_calibration", "bounded_to_the_treated"):
        low, high = program.low, program.high
        scale = (high - low) / ((1 - low) * (high - 1))
        of_controls = low + (high - low) * sigma(scale * u + math.log((1 - low) / (high - 1)))
        return np.where(a == 1, 1.0, of_controls)
    if name in ("odds_weights", "tailored_to_the_treated"):
        return np.where(a == 1, 1.0, np.exp(u))
    if name == "beta_family":
        tilt = e ** (program.treated - 1) * (1 - e) ** (program.controls - 1)
        return tilt / np.where(a == 1, e, 1 - e)
    assert name == "smooth_trimming"
    return np.where(a == 1, 1.0, np.exp(u)) / (1 + np.exp((e - program.cut) / program.width))


def minimizer(program, data, radius):
    """The coefficient by Clarabel, of a problem that is written out in arrays."""
    v = cp.Variable(data.X.shape[1])
    controls, treated = data.X[data.a == 0] @ v, data.X[data.a == 1] @ v
    if program.name in ("att_calibration", "bounded_to_the_treated"):
        low, high = program.low, program.high
        scale = (high - low) / ((1 - low) * (high - 1))
        shift = math.log((1 - low) / (high - 1))
        bent = cp.sum(cp.logistic(scale * controls + shift))
        loss = low * cp.sum(controls) + (high - low) / scale * bent - cp.sum(treated)
    elif program.name == "tailored_to_the_treated":
        loss = cp.sum(cp.exp(controls)) - cp.sum(treated)
    else:
        loss = cp.sum(cp.logistic(controls)) + cp.sum(cp.logistic(-treated))
    n = data.n_samples
    objective = loss / n + program.mu / 2 * cp.sum_squares(v)
    constraints = [cp.norm(v) <= radius] if math.isfinite(radius) else []
    tight = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at tolerances that it hardly reaches
        cp.Problem(cp.Minimize(objective), constraints).solve(solver="CLARABEL", **tight)
    return v.value


@pytest.mark.one_row_in(3)
@every
@pytest.mark.parametrize("radius", [None, 0.4])
def test_weights_are_those_of_cvxpy_alone(made, radius):
    data = records()
    program = made() if radius is None else made(radius=radius)
    program = program.resolve(DOMAIN.space)
    solution = solve(program.instance(data))
    u = data.X @ minimizer(program, data, program.number("radius"))
    f = weights_in_numbers(program, u, data.a)
    np.testing.assert_allclose(solution.value, N * f / f.sum(), atol=2e-5)
    assert solution.certificate.output_radius <= 1e-8 * N


@pytest.mark.one_row_in(2)
@every
def test_solvers_of_cvxpy_agree_with_ours_and_are_certified(made):
    data = records(1)
    instance = made().resolve(DOMAIN.space).instance(data)
    own = solve(instance)
    for solver in ("clarabel", "scs"):
        other = solve(instance, solver=solver)
        apart = float(np.sum(np.abs(other.value - own.value)))
        assert apart <= own.certificate.output_radius + other.certificate.output_radius
        assert other.certificate.output_radius <= 1e-8 * N


@pytest.mark.one_row_in(2)
@every
def test_records_in_parts_and_copies_have_the_same_weights(made):
    program = made()
    assert pickle.loads(pickle.dumps(program)) == program
    data = records(2)
    whole = program.resolve(DOMAIN.space).model(data)
    point = np.linspace(-0.2, 0.3, whole.dimension)
    pieces = whole.blocks
    assert len(pieces.each()) >= 1
    by_hand = weights_in_numbers(program.resolve(DOMAIN.space), data.X @ point, data.a)
    np.testing.assert_allclose(whole.output(point), N * by_hand / by_hand.sum(), rtol=1e-12)


@pytest.mark.one_row_in(3)
@every
@pytest.mark.parametrize("arm", [0, 1])
def test_an_empty_arm_has_certified_weights(made, arm):
    data = records(3)
    alone = DOMAIN.records(data.covariates, np.full(N, arm), data.y)
    instance = made().resolve(DOMAIN.space).instance(alone)
    for solver in ("newton", "clarabel"):
        solution = solve(instance, solver=solver)
        assert solution.certificate.output_radius <= 1e-8 * N
        assert solution.value.sum() == pytest.approx(N)


@pytest.mark.one_row_in(5)
@every
def test_weights_move_by_no_more_than_their_bound(made):
    """Clustered datasets, of which the replaced record is at the far end: what moves weights
    most.
    """
    domain = Domain(1.0, 1.0)
    program = made().resolve(domain.space)
    bound = program.stability(Universe(domain, 40, 1))
    worst = largest_movement(program, bound, clustered(domain))
    assert 0.1 * bound.V < worst <= bound.V


def replaced_records(data):
    """Three neighbors, each with a new record of the other arm."""
    new = records(5, 3)
    index = np.array([0, 7, 11])
    return Replacements(data, index, new.X, 1 - data.a[index])


@pytest.mark.one_row_in(2)
@every
def test_neighbors_are_solved_together_by_the_curves_of_their_arms(made):
    data = records(4, 30)
    program = made().resolve(DOMAIN.space)
    instance = program.instance(data)
    assert fast_path(instance, data, solve(instance).point) is not None
    replaced = replaced_records(data)
    (chunk,) = Neighborhood(program, data).solve(replaced)
    assert np.all(chunk.certified)
    assert not np.any(chunk.by_single)
    for k in range(3):
        alone = solve(program.instance(replaced.neighbor(k)))
        apart = np.sum(np.abs(chunk.values[0][k] - alone.value))
        assert apart <= chunk.radius[k] + alone.certificate.output_radius


def test_a_fast_path_that_takes_the_curves_of_the_other_arm_is_found_out(monkeypatch):
    data = records(4, 30)
    program = odds_weights().resolve(DOMAIN.space)
    replaced = replaced_records(data)
    monkeypatch.setattr(rows, "by_arm", lambda arm, own: curves.by_arm(1 - arm, own))
    (chunk,) = Neighborhood(program, data).solve(replaced)
    assert np.all(chunk.by_single)
    for k in range(3):
        alone = solve(program.instance(replaced.neighbor(k)))
        apart = np.sum(np.abs(chunk.values[0][k] - alone.value))
        assert apart <= chunk.radius[k] + alone.certificate.output_radius


@pytest.mark.one_row_in(6)
@every
def test_what_is_derived_is_on_one_screen(made):
    rows = dict(describe(made(), Universe(DOMAIN, 400, P)))
    assert "controls: l = " in rows["minimize"]
    assert "treated: l = " in rows["minimize"]
    assert rows["data"].startswith("rows: ||z||")
    assert "at n = 400" in rows["V"]


@pytest.mark.one_row_in(2)
@every
def test_a_release_is_private(made):
    data = records(6, 400)
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), made(), "arm_means").fit(
        data.covariates, data.a, data.y
    )
    assert model.release_.private


def test_both_arms_alike_are_one_scheme():
    """A function that returns one curve of its own margin in either arm is the scheme of that
    margin.
    """

    @scheme.separable(ridge=0.1)
    def by_margin(s):
        """Overlap weights."""
        return cp.logistic(-s), -cp.logistic(s)

    @scheme.separable(ridge=0.1)
    def by_arms(u, arm):
        """Overlap weights."""
        s = by_arm.own(u, arm)
        return cp.logistic(-s), -cp.logistic(s)

    data, universe = records(7), Universe(DOMAIN, N, P)
    one, two = (solve(program().instance(data)) for program in (by_margin, by_arms))
    np.testing.assert_allclose(one.value, two.value, atol=1e-9)
    assert by_arms().stability(universe).V == pytest.approx(
        by_margin().stability(universe).V, rel=0.02
    )


def test_one_curve_of_the_plain_margin_is_read():
    @scheme.separable(ridge=0.5)
    def plain(u):
        """A loss that does not know of arms."""
        return cp.logistic(u), -u

    data = records(8)
    v = solve(plain().instance(data)).point
    v_alone = cp.Variable(P + 1)
    objective = cp.sum(cp.logistic(data.X @ v_alone)) + N * 0.25 * cp.sum_squares(v_alone)
    cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL")
    np.testing.assert_allclose(v, v_alone.value, atol=1e-5)
    assert "u = <x, v>" in plain().formula


REFUSED = [
    (lambda u, arm: (cp.logistic(u), 0) if arm else (u, u), "u has no curvature.*log weight u"),
    (lambda u, arm: (u, 0), "no curvature: nothing keeps the coefficient"),
    (lambda u, arm: (cp.logistic(u), cp.log(0.0) if arm else u), "small weight"),
    (lambda u, arm: (cp.logistic(u), -math.inf if arm else u), "small weight"),
    (lambda u, arm: (cp.log(u), 0), "logistic|convex"),
    (lambda v, arm: (cp.logistic(v), v), "first argument is s.*or u"),
    (lambda u, treated: (cp.logistic(u), u), "'treated' must be a keyword.*'arm' is an argument"),
    (lambda u, arm: cp.logistic(u), "return \\(loss, log weight\\) of the margin u"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_what_has_no_bound_is_refused_in_a_line(function, message):
    with pytest.raises(DeclarationError, match=message) as refused:
        scheme.separable(ridge=0.1)(function)
    assert "\n" not in str(refused.value)


def test_the_arm_is_no_setting():
    with pytest.raises(DeclarationError, match="'arm': choose another name"):

        @scheme.separable(ridge=0.1, arm=3.0)
        def named(u, width, arm):
            return cp.logistic(u), u
