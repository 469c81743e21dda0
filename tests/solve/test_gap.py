"""What a duality gap claims about a point, against minimizers that are found by another road.

A penalty with kinks and the elastic net of the same function have one minimizer: the elastic net's
is known to 50 digits, and judged without a gap.
"""

import math
from functools import lru_cache
from itertools import islice, product

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.model import supports
from dp2erm_cvx.model.sets import Box, ElasticNet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.model.supports import LoadedTerm
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.solve import SCS, Clarabel, OwnSolver, certify, conic, gap, solve
from tests import exact
from tests.helpers import kinked_net, make_records, penalized_rule
from tests.rows import slow

#: Sizes of the outcome, and of the noise over the slope of the loss.
UNITS = (1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9)
NOISE = (0.0, 10.0, 1e3, 1e6, 1e10)

#: Sets of theta for outcomes of size 1; those of size 1e12 are never felt, that of 1e-3 always is.
SETS = {
    "tiny ball": lambda unit: L2Ball(1e-3 * unit),
    "ball": lambda unit: L2Ball(3 * unit),
    "huge ball": lambda unit: L2Ball(1e12 * unit),
    "l1 ball": lambda unit: L1Ball(unit),
    "box": lambda unit: Box(0.5 * unit),
    "huge box": lambda unit: Box(1e12 * unit),
    "all": lambda unit: WholeSpace(),
}


@lru_cache(maxsize=64)
def pair(theta_set, unit, ratio, *, gamma=0.1, l1=0.1, l2=0.0, n=12, seed=0):
    """The instance that a gap judges, the same one with an elastic net, and its minimizer to 50
    digits.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X /= np.linalg.norm(X, axis=1)[:, None] * 1.01
    records = Domain(1.0, unit).records(X, rng.integers(0, 2, n), unit * rng.uniform(-1, 1, n))
    weights = np.ones(n)
    noise = ratio * unit * rng.normal(size=2)
    size = l1 * unit
    judged = penalized_rule(kinked_net(size, l2))(theta_set=theta_set)
    known = itr(theta_set, ElasticNet(size, l2))
    bound = {"weights": weights, "gamma": gamma, "noise": noise}
    net = known.instance(records, **bound)
    truth = solve(net, throw=False)
    try:
        theta = exact.second_stage(net.program, records, weights, gamma, noise, truth.point)
    except (AssertionError, ZeroDivisionError):
        theta = None  # which bounds are active is too close to tell from doubles
    if theta is not None and exact.distance(theta, truth.point) > truth.certificate.radius:
        theta = None  # in tiny units the exact solve takes a coordinate for zero
    return judged.instance(records, **bound), truth, theta


def forged(truth, unit, rng):
    """Points that a broken, lazy or lying solver may leave."""
    size = float(np.linalg.norm(truth)) or unit
    yield np.zeros(2)
    yield truth
    yield -truth
    yield np.round(truth / size, 3) * size
    yield truth.astype(np.float32).astype(np.float64)
    yield 1e3 * truth
    for exponent in (-12, -6, -1, 3):
        yield truth + 10.0**exponent * size * rng.normal(size=2)
    yield unit * rng.normal(size=2)
    yield np.array([1e300, 1.0])
    yield np.array([math.nan, 0.0])
    yield np.array([math.inf, 0.0])


def apart(theta, truth, point):
    """Distance of a point to the minimizer, from below; infinite for one that is no number."""
    if not np.all(np.isfinite(point)):
        return math.inf
    if theta is not None:
        return exact.distance(theta, point)
    return exact.distance(exact.to_mp(truth.point), point) - truth.certificate.radius


def excess(name, unit, ratio, **settings):
    """Largest distance over claimed radius of forged points; what is claimed of the true one,
    relatively.
    """
    judged, truth, theta = pair(SETS[name](unit), unit, ratio, **settings)
    rng = np.random.default_rng(1)
    worst = 0.0
    claimed = certify(judged, truth.point).relative_radius
    for point in forged(truth.point, unit, rng):
        radius = certify(judged, point).radius
        distance = apart(theta, truth, point)
        if math.isinf(radius):
            continue
        worst = max(worst, distance / radius)
    return worst, claimed


SOME = [("ball", 1e-9, 10.0), ("huge ball", 1e9, 1e10), ("tiny ball", 1.0, 1e3), ("box", 1e3, 10.0)]
SOME += [("all", 1e-6, 1e6), ("l1 ball", 1.0, 10.0), ("huge box", 1.0, 0.0)]
ALL = [
    pytest.param(*one, marks=pytest.mark.slow)
    for one in product(SETS, UNITS, NOISE)
    if one not in SOME
]


@pytest.mark.one_row_in(7)
@pytest.mark.parametrize(("name", "unit", "ratio"), [*SOME, *ALL])
def test_no_forged_point_is_nearer_in_claim_than_in_truth(name, unit, ratio):
    for gamma, l2 in ((0.1, 0.0), (1e-8, 0.2)):
        worst, claimed = excess(name, unit, ratio, gamma=gamma, l2=l2)
        assert worst <= 1.0
        # and the claims are of use: the true point is certified
        assert claimed <= 1e-3


def zero(problem):
    for variable in problem.variables():
        variable.value = np.zeros(variable.shape)


def test_a_point_far_from_the_minimizer_is_not_certified_under_large_noise():
    """The judge's own solve once ended as unbounded here, and its iterate was believed all the
    same.
    """
    rng, n = np.random.default_rng(0), 30
    X = rng.normal(size=(n, 2))
    X /= np.linalg.norm(X, axis=1)[:, None] * 1.01
    records = Domain(1.0, 1.0).records(X, rng.integers(0, 2, n), rng.uniform(-1, 1, n))
    bound = {"weights": np.ones(n), "gamma": 1.0, "noise": 1e10 * np.array([1.0, -0.5])}
    own = penalized_rule(kinked_net(0.1, 0.0))(theta_set=L2Ball(1e12)).instance(records, **bound)
    truth = solve(itr(L2Ball(1e12), ElasticNet(l1=0.1)).instance(records, **bound))
    wrong = solve(own, solver=OwnSolver(zero, "zero"), throw=False)
    assert not wrong.certified
    assert wrong.certificate.radius >= np.linalg.norm(truth.value) - truth.certificate.radius
    assert solve(own, solver="clarabel").certified


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("ratio", [10.0, slow(1e3), 1e5])
def test_the_unit_of_the_outcome_decides_nothing(ratio):
    for solver in (Clarabel(), SCS(), "first_certified"):
        relative = []
        for unit in UNITS:
            judged, truth, theta = pair(L2Ball(3 * unit), unit, ratio, n=100)
            solution = solve(judged, solver=solver)
            assert solution.certified
            assert apart(theta, truth, solution.point) <= solution.certificate.radius
            relative.append(solution.certificate.relative_radius)
        assert max(relative) <= 1e-4


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_of_the_outcome_decides_nothing_for_an_elastic_net(unit):
    """By the point of a conic solver itself, before it is polished."""
    rng, n = np.random.default_rng(2), 60
    X = rng.uniform(-0.7, 0.7, (n, 2))
    records = Domain(1.0, unit).records(X, rng.integers(0, 2, n), unit * rng.uniform(-1, 1, n))
    noise = 30 * unit * rng.normal(size=2)
    instance = itr(L2Ball(unit), ElasticNet(0.01 * unit)).instance(
        records, np.ones(n), gamma=0.1, noise=noise
    )
    for solver in ("clarabel", "scs", "osqp") if unit == 1.0 else ("clarabel", "scs"):
        if solver == "osqp":
            box = itr(Box(unit), ElasticNet(0.01 * unit))
            instance = box.instance(records, np.ones(n), gamma=0.1, noise=noise)
        assert solve(instance, solver=solver, polish=False, tolerance=1e-5).certified


def test_the_first_certified_solution_of_a_gap_is_as_good_as_clarabels():
    judged, truth, theta = pair(L2Ball(1.0), 1.0, 1e6, gamma=1e-3)
    solution = solve(judged)
    assert solution.certified
    assert apart(theta, truth, solution.point) <= solution.certificate.radius


def early(monkeypatch, iterations):
    """The judge's own solve ends after so many iterations, and is used whatever its status is."""
    monkeypatch.setattr(conic, "_MOST_ITERATIONS", iterations)
    monkeypatch.setattr(conic, "USABLE", frozenset({"Solved", "AlmostSolved", "MaxIterations"}))


def excesses(monkeypatch):
    """Distances over claims by candidates of the judge that are far from solved up to solved."""
    for iterations in (1, 3, 5, 8, 200):
        early(monkeypatch, iterations)
        for (name, ratio), (gamma, l1) in product(
            [("ball", 10.0), ("all", 1e3), ("box", 10.0), ("huge ball", 1e6)],
            [(0.1, 1.0), (1e-6, 0.0)],
        ):
            judged, truth, theta = pair(SETS[name](1.0), 1.0, ratio, gamma=gamma, l1=l1)
            anchor = gap.anchored(judged.kinked())
            # no point is claimed to be nearer than the judge's own
            yield apart(theta, truth, anchor.point) / certify(judged, anchor.point).radius


@pytest.mark.slow
def test_a_claim_is_right_whatever_the_judges_own_solve_returns(monkeypatch):
    assert max(excesses(monkeypatch)) <= 1.0


def without_what_is_left_out(self, a, error, u, support=LoadedTerm.support):
    slope, off, left_out = support(self, a, error, u)
    return slope, off, np.zeros_like(left_out)


def at_the_point_alone(problem, candidate, length, anchor=gap._anchor):
    """The residual is charged by its product with the point, not by all points that the minimizer
    may be.
    """
    honest = anchor(problem, candidate, length)
    product_with_point = 1e-3 * honest.residual * float(np.linalg.norm(honest.point))
    radius = math.sqrt(product_with_point / max(honest.strong_convexity, 1e-300))
    return honest._replace(radius=min(radius, honest.radius))


#: Errors of a claim: what is put in the place of what.
PLANTED = {
    "the residual is charged by the point alone": [(gap, "_anchor", at_the_point_alone)],
    "what slopes leave out is not charged": [(LoadedTerm, "support", without_what_is_left_out)],
    "slopes of any size are taken": [(LoadedTerm, "unit_slope", lambda self, v: 3.0 * v)],
}


@pytest.mark.parametrize("bug", PLANTED)
@pytest.mark.one_row_in(2)
def test_a_planted_error_of_a_claim_is_exceeded(bug, monkeypatch):
    # penalties are read once, at the first claims about them, before their terms are wrong
    assert max(islice(excesses(monkeypatch), 8)) <= 1.0
    for place in PLANTED[bug]:
        monkeypatch.setattr(*place)
    assert any(worst > 1.0 for worst in excesses(monkeypatch))


def excesses_at_the_minimizer(monkeypatch):
    """Distances over claims where the judge's candidate is the minimizer but for its rounding."""
    for seed in range(20):
        judged, truth, theta = pair(WholeSpace(), 1.0, 10.0, l1=0.0, l2=0.2, seed=seed)
        problem = judged.kinked()
        candidate = conic.solved(problem)._replace(point=np.array([float(x) for x in theta]))
        monkeypatch.setattr(gap, "solved", lambda one, candidate=candidate: candidate)
        anchor = gap.anchored(problem)
        yield apart(theta, truth, anchor.point) / anchor.radius


@pytest.mark.slow
def test_the_rounding_of_every_sum_is_counted(monkeypatch):
    largest = max(excesses_at_the_minimizer(monkeypatch))
    assert 1e-3 < largest <= 1.0
    for place in (
        (MarginModel, "rounding", lambda self, v: 0.0),
        (supports, "gamma", lambda k: 0.0),
        (supports, "UNIT", 0.0),
        (gap, "UNIT", 0.0),
    ):
        monkeypatch.setattr(*place)
    assert max(excesses_at_the_minimizer(monkeypatch)) > 1.0


def test_a_solve_of_the_judge_counts_with_its_status_alone(monkeypatch):
    judged, truth, _ = pair(L2Ball(3.0), 1.0, 10.0)
    assert certify(judged, truth.point).certifies(1e-3)
    monkeypatch.setattr(conic, "_MULTIPLES", (1.0,))
    monkeypatch.setattr(conic, "_MOST_ITERATIONS", 2)
    assert certify(judged, truth.point).radius == math.inf
    early(monkeypatch, 2)
    assert certify(judged, truth.point).radius < math.inf


@pytest.mark.parametrize("left", [math.nan, math.inf])
def test_numbers_of_the_judge_that_are_none_claim_nothing(left, monkeypatch):
    judged, truth, _ = pair(L2Ball(3.0), 1.0, 10.0)

    class Broken:
        def __init__(self, P, q, A, *rest):
            self.rows = A.shape

        def solve(self):
            x, z = np.full(self.rows[1], left), np.full(self.rows[0], left)
            return type("Solution", (), {"status": "Solved", "x": x, "z": z})

    monkeypatch.setattr(conic.clarabel, "DefaultSolver", Broken)
    assert certify(judged, truth.point).radius == math.inf
    assert not solve(judged, solver=OwnSolver(zero, "zero"), throw=False).certified


RECORDS = make_records(40, 2, seed=3)


@scheme(rho=1.0)
def kinked(w, records, rho):
    """A kink that is judged in the dual."""
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * cp.norm(records.signed.T @ w)))


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("rho", [1.0, 1e12, 1e300])
def test_no_number_is_infinitely_far_by_every_basis(rho):
    by_kink = kinked(rho=rho).instance(RECORDS)
    by_gap, *_ = pair(Box(1.0), 1.0, 10.0)
    for instance, size in ((by_kink, 40), (by_gap, 2)):
        for left in (math.nan, math.inf, -math.inf):
            assert certify(instance, np.full(size, left)).radius == math.inf


@scheme(rho=1.0, size=0.5)
def limited(w, records, rho, size):
    """Atoms inside of one another, and limits beside the box."""
    moments = records.signed.T @ w
    objective = (
        cp.sum_squares(w - 1) + rho * cp.norm(cp.pos(moments)) + cp.square(cp.norm(moments, 1))
    )
    limits = [cp.norm(w - 1) <= size, cp.sum(w[:3]) <= 3.0 + size, cp.max(cp.abs(w - 1)) <= size]
    return cp.Problem(cp.Minimize(objective), limits)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("size", [0.05, 0.5, 5.0])
def test_limits_beside_the_box_are_part_of_the_proof(size):
    instance = limited(size=size).instance(RECORDS)
    solution = solve(instance, solver=Clarabel(tol=1e-11))
    assert solution.certified
    rng = np.random.default_rng(4)
    # another solver's point is another road to the minimizer, up to what both are certified to
    other = solve(instance, solver=SCS(eps=1e-10))
    both = solution.certificate.radius + other.certificate.radius
    assert np.linalg.norm(solution.point - other.point) <= both
    for exponent in (-8, -4, -1, 2):
        point = solution.point + 10.0**exponent * rng.normal(size=40)
        least = np.linalg.norm(point - solution.point) - solution.certificate.radius
        assert certify(instance, point).radius >= least


def test_weights_under_a_limit_are_those_of_a_closed_form():
    """``|w - 1|^2 + <c, w>`` within a ball around 1: the minimizer is on a line from 1."""
    slope = np.array(RECORDS.y) - np.mean(RECORDS.y)

    @scheme(size=0.1)
    def tilted(w, records, size):
        """A tilt within a ball."""
        return cp.Problem(
            cp.Minimize(cp.sum_squares(w - 1) + records.y @ w), [cp.norm(w - 1) <= size]
        )

    instance = tilted().instance(RECORDS)
    length = min(0.1, float(np.linalg.norm(slope)) / 2)
    truth = 1.0 - length * slope / np.linalg.norm(slope)
    solution = solve(instance, solver="clarabel")
    assert solution.certified
    assert np.linalg.norm(solution.point - truth) <= solution.certificate.radius + 1e-12
    assert certify(instance, np.ones(40)).radius >= length - 1e-12


def test_a_limit_that_is_not_slack_at_weights_of_1_claims_nothing():
    @scheme()
    def beyond(w, records):
        """A limit that weights 1 only just meet."""
        return cp.Problem(
            cp.Minimize(cp.sum_squares(w - 1) + records.y @ w), [cp.sum(w[:2]) <= 2.0]
        )

    instance = beyond().instance(RECORDS)
    claimed = certify(instance, np.ones(40)).radius
    least = float(np.linalg.norm(solve(instance, solver=SCS(), throw=False).point - 1.0))
    assert claimed >= least - 1e-6
