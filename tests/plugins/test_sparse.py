"""An l1 norm or a box of the coefficient of a separable scheme: solved as CVXPY does, and never
beyond V.
"""

import warnings

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.neighbors import Neighborhood, Replacements
from dp2erm_cvx.neighbors.neighborhood import fast_path
from dp2erm_cvx.program import scheme
from dp2erm_cvx.solve import solve
from tests.plugins import sparse
from tests.plugins.clusters import clustered, largest_movement
from tests.plugins.test_by_arm import records, sigma

DOMAIN = Domain(1.5, 1.0, intercept=0.5)
N, P = 60, 3
SCHEMES = [sparse.sparse_overlap, sparse.sparse_odds, sparse.overlap_in_a_box]
every = pytest.mark.parametrize("made", SCHEMES, ids=lambda one: one.name)


def minimizer(program, data):
    """The coefficient by Clarabel, of a problem that is written out in arrays."""
    v = cp.Variable(P + 1)
    loss = cp.sum(cp.logistic(cp.multiply(1 - 2 * data.a, data.X @ v)))
    penalty = program.mu / 2 * cp.sum_squares(v)
    constraints = []
    if "l1" in program.scheme.settings:
        penalty += program.number("l1") * cp.norm1(v)
    else:
        constraints = [cp.abs(v) <= program.number("box")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at tolerances that it hardly reaches
        tight = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}
        cp.Problem(cp.Minimize(loss / N + penalty), constraints).solve(solver="CLARABEL", **tight)
    return v.value


@every
def test_weights_are_those_of_cvxpy_alone(made):
    data = records()
    program = made().resolve(DOMAIN.space)
    u = data.X @ minimizer(program, data)
    f = sigma(-(2 * data.a - 1) * u)
    if made is sparse.sparse_odds:
        f = np.where(data.a == 1, 1.0, np.exp(u))
    instance = program.instance(data)
    for solver in ("auto", "clarabel"):
        solution = solve(instance) if solver == "auto" else solve(instance, solver=solver)
        np.testing.assert_allclose(solution.value, N * f / f.sum(), atol=2e-5)
        assert solution.certificate.output_radius <= 1e-8 * N


def test_the_norm_and_the_box_are_there():
    data = records(1)
    sparse_one = solve(sparse.sparse_overlap(l1=0.08).resolve(DOMAIN.space).instance(data)).point
    assert 0 < np.count_nonzero(sparse_one) < P + 1
    boxed = sparse.overlap_in_a_box(box=0.1).resolve(DOMAIN.space)
    assert np.max(np.abs(solve(boxed.instance(data)).point)) == pytest.approx(0.1, rel=1e-12)


@pytest.mark.one_row_in(3)
@every
def test_weights_move_by_no_more_than_their_bound(made):
    """Clustered datasets, of which the replaced record is at the far end."""
    domain = Domain(1.0, 1.0)
    program = made().resolve(domain.space)
    bound = program.stability(Universe(domain, 40, 1))
    worst = largest_movement(program, bound, clustered(domain))
    assert 0.1 * bound.V < worst <= bound.V


@every
def test_neighbors_are_solved_alone(made, monkeypatch):
    """The fast path of rows knows a ball alone. Planted: a program that offers its rows is solved
    alone.
    """
    data = records(4, 30)
    program = made().resolve(DOMAIN.space)
    new = records(5, 3)
    replaced = Replacements(data, np.array([0, 7, 11]), new.X, 1 - data.a[[0, 7, 11]])
    (chunk,) = Neighborhood(program, data).solve(replaced)
    for k in range(3):
        alone = solve(program.instance(replaced.neighbor(k))).value
        np.testing.assert_allclose(chunk.values[0][k], alone, atol=1e-6)

    def offers(self, records):
        return lambda old, new: (self.rows(new), None)

    monkeypatch.setattr(type(program), "row_neighbors", offers)
    instance = program.instance(data)
    assert fast_path(instance, data, solve(instance).point) is None


@pytest.mark.one_row_in(3)
@every
def test_a_release_is_private(made):
    data = records(6, 400)
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), made(), "arm_means").fit(
        data.covariates, data.a, data.y
    )
    assert model.release_.private


def odd(s):
    """Overlap weights."""
    return cp.logistic(-s), -cp.logistic(s)


def steep(s):
    """A loss of infinite curvature."""
    return cp.exp(-s), -s


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        (odd, {"box": 0.0}, "box"),
        (odd, {"box": -1.0}, "box"),
        (odd, {"box": 1.0, "radius": 2.0}, "not both"),
        (steep, {"box": 1.0}, "needs a radius"),
        (odd, {"l1": -0.1}, "l1"),
        (odd, {"l1": 0.1, "by_arm": True}, "one margin"),
    ],
)
def test_other_sets_are_refused_in_a_line(function, settings, message):
    with pytest.raises(DeclarationError, match=message) as refused:
        scheme.separable(ridge=0.1, **settings)(function)
    assert "\n" not in str(refused.value)


def test_the_formula_says_which_norm_and_set():
    assert "+ n l1 |v|_1" in sparse.sparse_overlap().formula
    assert "|v_k| <= box" in sparse.overlap_in_a_box().formula
