"""Programs that are only CVXPY as first stages: what is derived, who certifies, what a release
says.
"""

import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError, ProgramError
from dp2erm_cvx.program import Ball, Bound, scheme
from dp2erm_cvx.solve import solve
from dp2erm_cvx.weighting.forms.form import WeightingForm
from tests.plugins.literature import entropy

DOMAIN = Domain(1.0, 1.0)
N = 60


def on_the_box(objective, rows=lambda records: records.signed):
    """A program of that objective of w and Z, rows of the records over the root of n."""

    def made(w, records):
        """A variant."""
        Z = rows(records) / math.sqrt(records.n)
        return cp.Problem(cp.Minimize(objective(Z, w)), [0.05 <= w, w <= 3.0])

    return scheme()(made)()


SOME = {
    "squares": lambda Z, w: cp.sum_squares(w - 1) + cp.sum_squares(Z.T @ w),
    "likelihood": lambda Z, w: -cp.sum(cp.log(w)) + cp.sum_squares(Z.T @ w),
    "power": lambda Z, w: cp.sum(cp.power(w, 1.5)) + cp.sum_squares(Z.T @ w),
    "norm": lambda Z, w: cp.sum_squares(w - 1) + cp.norm(Z.T @ w),
}


UNIVERSE, RNG = Universe(DOMAIN, N, 2), np.random.default_rng(0)
RECORDS = DOMAIN.records(RNG.uniform(-1, 1, (N, 2)) / 2, np.arange(N) % 2, RNG.uniform(-1, 1, N))
PROGRAMS = {"entropy": entropy(rho=1.0)}
PROGRAMS |= {name: on_the_box(objective) for name, objective in SOME.items()}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_solver_is_certified_and_finds_the_weights_of_a_conic_one(name):
    program = PROGRAMS[name].resolve(DOMAIN.space)
    (floor, cap), error = program.box(UNIVERSE), program.certified_error(UNIVERSE)
    assert (error is None) == (name == "norm")
    instance = program.instance(RECORDS)
    theirs = solve(instance, solver="clarabel", polish=False, throw=False)
    for solver in (
        "newton",
        "projected_gradient",
        "clarabel",
        "scs",
        *(["osqp"] * (name == "squares")),
    ):
        result = solve(instance, solver=solver)
        assert result.certified
        assert result.certificate.basis == "multiplier residual"
        assert floor <= result.value.min() <= result.value.max() <= cap
        assert result.certificate.relative_radius <= (1e-3 if name == "norm" else 1e-9)
        assert error is None or result.certificate.relative_radius <= error <= 1e-8
        assert result.value == pytest.approx(theirs.value, abs=1e-3)
        # the judge sees how far the conic solver's point is from it
        apart = np.linalg.norm(result.value - theirs.value)
        assert apart <= theirs.certificate.radius + result.certificate.radius


def test_data_beyond_their_bounds_are_clipped():
    short = on_the_box(
        SOME["squares"], lambda records: records.rows("own", lambda x, a, y: x, Ball(0.01))
    )
    assert np.max(np.linalg.norm(short.instance(RECORDS).data["own"], axis=1)) == pytest.approx(
        0.01
    )


def test_an_objective_outside_of_the_form_keeps_the_gap():
    convex = on_the_box(lambda Z, w: cp.sum_squares(w - 1) + cp.square(cp.norm(Z.T @ w, 1)))
    assert isinstance(convex.form(UNIVERSE), str)
    assert convex.unread(UNIVERSE) is None
    assert convex.certified_error(UNIVERSE) is None
    instance = convex.instance(RECORDS)
    assert instance.model is None
    assert solve(instance).certificate.basis == "duality gap"
    with pytest.raises(ProgramError, match="is not read"):
        convex.model(RECORDS)
    assert PROGRAMS["entropy"].unread(UNIVERSE) is None


def test_stated_bounds_and_the_coupled_variation_that_obeys_them():
    def V(bound, n=50, curvature=0.0):
        return bound.at(n, curvature, frozenset()).V

    assert Bound.from_l2(0.1, w_max=3.0).at(50, 0.0, frozenset()).theorem == "stated bound"
    assert V(Bound.from_l2(0.1, w_max=3.0)) == pytest.approx(7 * 0.1 + 6.0)
    assert V(Bound.from_l2(100.0)) == 2 * 50
    assert V(Bound.from_gradient(0.2, w_max=3.0), curvature=2.0) == pytest.approx(7 * 0.1 + 6.0)
    with pytest.raises(CalibrationError, match="known strong convexity"):
        V(Bound.from_gradient(0.2))
    rng = np.random.default_rng(1)
    for _ in range(300):
        n = int(rng.integers(2, 9))
        w, v = (x / x.mean() for x in rng.exponential(size=(2, n)) ** rng.integers(1, 4))
        moved, largest = np.sum(np.abs(w - v)) + 2 * min(w[0], v[0]), max(1.0, w[0], v[0])
        assert moved <= V(Bound.from_l2(float(np.linalg.norm(w - v)), largest), n)


def outside(dispersion):
    """A program of a dispersion that the form of weights does not know."""

    @scheme(rho=0.1)
    def outside(w, records, rho):
        imbalance = rho / records.n * cp.sum_squares(records.signed.T @ w)
        return cp.Problem(
            cp.Minimize(cp.sum_squares(w - 1) + dispersion(w) + imbalance), [w <= 3.0]
        )

    return outside


#: Atoms that neither the form nor a gap reads, and what is to be written.
UNREAD = {
    "exponential": (
        lambda w: cp.sum(cp.exp(w)),
        r"write -cp\.sum\(cp\.entr\(w\)\) .* the atom exp",
    ),
    "logistic": (lambda w: cp.sum(cp.logistic(w)), r"write .* the atom logistic"),
    "determinant": (
        lambda w: -cp.log_det(np.eye(2) + cp.diag(w[:2])),
        r"write squares, entr, log, power or huber of weights.* the atom log_det",
    ),
}


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("name", UNREAD)
def test_what_neither_the_form_nor_a_gap_reads_is_refused_when_planned(name, stated):
    """Nothing certifies its weights, and a bound that its author states is of those."""
    dispersion, why = UNREAD[name]
    made = outside(dispersion)
    if stated:
        made.bound(lambda n: Bound.from_l2(0.1, w_max=3.0))
    assert made().stability(UNIVERSE).V == (pytest.approx(0.1 * 59**0.5 + 6.0) if stated else 2 * N)
    with pytest.raises(CalibrationError, match=why):
        PrivateTwoStageERM(DOMAIN, Budget(1.0), made(), "arm_means").plan(N, 2)


def test_a_stated_bound_outside_of_the_form_is_conditional():
    """No radius is public, so that the guarantee rests on the certificate of the solve."""
    X = RECORDS.covariates
    made = outside(lambda w: cp.norm(w - 1))
    releases = []
    for _ in range(2):
        model = PrivateTwoStageERM(DOMAIN, Budget(1.0), made(), "arm_means")
        model.fit(X, RECORDS.a, RECORDS.y, conditional=True)
        assert model.private_workings_.weights.certificate.basis == "duality gap"
        assert model.private_workings_.weights.certified
        releases.append(model.release_)
        made.bound(lambda n: Bound.from_l2(0.1, w_max=3.0))
    of_all, stated = releases
    assert of_all.mechanism.stability == 2 * N
    assert of_all.private
    assert stated.mechanism.stability < 8.0
    assert not stated.private
    assert stated.guarantee.stability_theorem == "stated bound"


def test_a_problem_without_known_curvature_is_refused_where_it_is_declared():
    with pytest.raises(
        DeclarationError, match=r"no strong convexity .* is known; exp\(w\): is not read here"
    ):

        @scheme()
        def exponential(w, records):
            return cp.Problem(cp.Minimize(cp.sum(cp.exp(w)) - cp.sum(cp.entr(w))), [w <= 3.0])


@pytest.mark.parametrize("which", ["curvature", "cap"])
def test_a_curvature_or_a_box_that_changes_with_the_columns_is_refused(which):
    """A curvature of 2/k read at three columns would claim a tenth of what neighbors move at
    thirty.
    """
    with pytest.raises(DeclarationError, match="its problem changes with the records"):

        @scheme(rho=0.05)
        def by_columns(w, records, rho):
            """Weights whose pull to 1 or whose cap depends on the number of columns."""
            n, k = records.x.shape
            curvature, cap = (1 / k, 3) if which == "curvature" else (1, 1 + 30 / k)
            pull = curvature * cp.sum_squares(w - 1) + 1e-3 / n * cp.sum_squares(records.x.T @ w)
            return cp.Problem(cp.Minimize(pull + rho * records.y @ w), [w <= cap])


def balanced(*constraints):
    """A program of squares under these constraints, for a bound that its author states."""

    @scheme()
    def balanced(w, records):
        imbalance = cp.sum_squares(records.signed.T @ w) / records.n
        sets = [constraint(w, records) for constraint in constraints]
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + imbalance), sets)

    return balanced


def test_a_stated_bound_of_weights_that_are_multiplied_for_a_release_is_refused():
    """20 treated of 100 make a control of weight 4 one of weight 10: the box says nothing about
    it.
    """
    as_many = balanced(
        lambda w, r: cp.multiply(r.treatment, w - 1) == 0,
        lambda w, r: (1 - r.treatment) @ w == cp.sum(r.treatment),
        lambda w, r: w <= 4,
    )
    universe = Universe(Domain(1.0, 1.0, arm_floor=20), 100, 2)
    derived = as_many().at(universe).stability(universe)
    assert derived.w_max > 4.0
    as_many.bound(lambda n: Bound.from_l2(0.1))
    with pytest.raises(CalibrationError, match="multiplied by"):
        as_many().at(universe).stability(universe)


def test_a_stated_bound_of_weights_that_are_smoothed_is_refused():
    """Weights of the envelope are others than those that the author bounds."""

    @scheme()
    def robust(w, records):
        return cp.Problem(
            cp.Minimize(cp.sum_squares(w - 1) + cp.norm(records.signed.T @ w)), [w <= 3]
        )

    universe = Universe(DOMAIN, 100, 2)
    robust.bound(lambda n: Bound.from_l2(0.1))
    assert robust().at(universe).stability(universe).theorem == "stated bound"
    with pytest.raises(CalibrationError, match=r"smoothing = 0\.02"):
        robust(smoothing=0.02).at(universe).stability(universe)


def test_a_bound_from_gradients_is_refused_where_the_set_of_weights_moves():
    """Two datasets of x = 0, one more treated: the same gradient everywhere, and other weights."""
    halves = balanced(lambda w, r: r.treatment @ w == r.n / 2, lambda w, r: w <= 4)
    universe = Universe(Domain(1.0, 1.0, arm_floor=20), 60, 2)
    before, after = np.arange(60) < 20, np.arange(60) < 21
    weights = []
    for a in (before, after):
        records = universe.domain.records(np.zeros((60, 2)), a, np.zeros(60))
        weights.append(halves().instance(records).model.anchor.weights)
    assert np.linalg.norm(weights[0] - weights[1]) > 0.5
    halves.bound(lambda n: Bound.from_gradient(0.01))
    with pytest.raises(CalibrationError, match="one set of weights"):
        halves().at(universe).stability(universe)
    fixed = balanced(lambda w, r: w <= 4)
    fixed.bound(lambda n: Bound.from_gradient(0.01))
    assert fixed().at(universe).stability(universe).theorem == "stated bound"


@pytest.mark.parametrize("p", [1, 2, 5])
def test_a_problem_of_one_covariate_is_that_of_many(p):
    """CVXPY copies a number into the entries of a vector, and leaves it alone where there is one
    entry.
    """

    @scheme(ridge=1.0)
    def to_the_sample(w, records, ridge):
        missed = records.signed.T @ w - cp.sum(records.x, axis=0) / 2
        return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + ridge * cp.sum_squares(missed)))

    universe = Universe(Domain(1.0, 1.0), 20, p)
    assert isinstance(to_the_sample().at(universe).form(universe), WeightingForm)
