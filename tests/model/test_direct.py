"""Programs that are only CVXPY: the certificate against 45 digits, public constants, the public radius."""

import math

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.model import terms
from dp2erm_cvx.model.direct import MOST_STEPS, DirectModel, PublicConstants, judge_groups, newton_step
from dp2erm_cvx.model.terms import ReadObjective
from tests.exact import to_mp

CAP = 3.0


def determinant(w, Z, k):
    # rows of Z are outer products of two covariates
    return cp.sum_squares(w - 1) - k * cp.log_det(np.eye(2) + cp.reshape(Z.T @ w, (2, 2), order="F"))


def exponentials(w, Z, k):
    return cp.sum_squares(w) + k * cp.sum(cp.exp(Z.T @ w / w.size)) + cp.sum(cp.logistic(Z.T @ w)) - w[0]


#: Objective and floor of the weights.
PROGRAMS = {
    "squares": (lambda w, Z, k: cp.sum_squares(w - 1) + k * cp.sum_squares(Z.T @ w), 0.0),
    "entropy": (lambda w, Z, k: -cp.sum(cp.entr(w)) + k * cp.sum_squares(Z.T @ w - 1), 0.01),
    "likelihood": (lambda w, Z, k: -cp.sum(cp.log(w)) + cp.sum_squares(Z.T @ w) * k / 2, 0.05),
    "powers": (lambda w, Z, k: cp.sum(cp.power(w, 1.5)) + k * cp.sum_squares(w @ Z), 0.01),
    "exponentials": (exponentials, 0.0),
    "determinant": (determinant, 0.0),
}
#: The gradient (n,) of w in parts: that of each weight alone, and that of the sums s = Z'w.
GRADIENTS = {
    "squares": (lambda x: 2 * (x - 1), lambda s, k, n: [2 * k * v for v in s]),
    "entropy": (lambda x: mpmath.log(x) + 1, lambda s, k, n: [2 * k * (v - 1) for v in s]),
    "likelihood": (lambda x: -1 / x, lambda s, k, n: [k * v for v in s]),
    "powers": (lambda x: 1.5 * mpmath.sqrt(x), lambda s, k, n: [2 * k * v for v in s]),
    "exponentials": (
        lambda x: 2 * x,
        lambda s, k, n: [k * mpmath.exp(v / n) / n + 1 / (1 + mpmath.exp(-v)) for v in s],
    ),
    "determinant": (
        lambda x: 2 * (x - 1),
        lambda s, k, n: [
            k * v / ((1 + s[0]) * (1 + s[3]) - s[1] * s[2]) for v in (-1 - s[3], s[1], s[2], -1 - s[0])
        ],
    ),
}


def exact_gradient(name, w, Z, k):
    """The gradient (n,) at any number of digits, by formulas of their own."""
    own, of_sums = GRADIENTS[name]
    back = of_sums([mpmath.fdot(w, column) for column in zip(*Z, strict=True)], k, len(w))
    gradient = [own(x) + mpmath.fdot(row, back) for x, row in zip(w, Z, strict=True)]
    gradient[0] -= name == "exponentials"
    return gradient


def program(name, n, p, k, bound=1.0):
    declared, floor = PROGRAMS[name]
    w, Z = cp.Variable(n), cp.Parameter((n, p), name="Z")
    read = ReadObjective(declared(w, Z, k), w, {"Z": Z}, eigenvalue_floor=1.0)
    return read, PublicConstants.of(read, read.bound_vector({"Z": bound}), floor, CAP), floor


def bound_to(read, public, floor, Z):
    return DirectModel(read.at(read.vector({"Z": Z})), public, floor, CAP)


def rows(name, rng, n, p, scale=1.0):
    Z = scale * rng.uniform(-1, 1, (n, p))
    return Z if name != "determinant" else np.einsum("ij,ik->ijk", Z[:, :2], Z[:, :2]).reshape(n, 4)


def exact_minimizer(name, floor, Z, k, near):
    """The minimizer to 33 digits, its conditions checked; Newton on the free weights of ``near``."""
    n, data, x = len(near), to_mp(Z), to_mp(near)
    low, high = mpmath.mpf(floor), mpmath.mpf(CAP)
    free = [i for i in range(n) if floor < near[i] < CAP]

    def at(values):
        given = iter(values)
        point = [next(given) if i in free else x[i] for i in range(n)]
        return point, exact_gradient(name, point, data, mpmath.mpf(k))

    def conditions(*values):
        point, g = at(values)
        return [g[i] - values[-1] for i in free] + [mpmath.fsum(point) - n]

    inside = [x[i] for i in free]
    nu = mpmath.fsum(at(inside)[1][i] for i in free) / len(free)
    root = mpmath.findroot(conditions, [*inside, nu], tol=mpmath.mpf(10) ** -68)
    x, g = at(root)
    assert max(abs(v) for v in conditions(*root)) < mpmath.mpf(10) ** -33
    assert all(low <= v <= high for v in x)
    assert all(g[i] >= root[-1] if x[i] == low else g[i] <= root[-1] for i in range(n) if i not in free)
    return x


def worst_ratio(seeds):
    """Largest true distance over the claimed one, l2 and l1, over small programs of every kind."""
    worst = 0.0
    with mpmath.workdps(45):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            name = list(PROGRAMS)[seed % len(PROGRAMS)]
            n, scale, k = int(rng.integers(2, 6)), 10 ** rng.uniform(-3, 1), 10 ** rng.uniform(-3, 1.5)
            p = 4 if name == "determinant" else 2
            read, public, floor = program(name, n, p, k, bound=max(scale, scale**2))
            Z = rows(name, rng, n, p, scale)
            model = bound_to(read, public, floor, Z)
            solution, _ = model.minimized(model.start(), 100)
            if not np.any((solution > floor) & (solution < CAP)):
                continue
            exact = exact_minimizer(name, floor, Z, k, solution)
            # the computed point, others on the simplex at many distances, and others off it
            moved = [solution + size * rng.standard_normal(n) for size in (1e-15, 1e-12, 1e-8, 1e-3)]
            inside = [model.penalty.set.project(one) for one in moved]
            for point in (solution, *inside, *(np.clip(one, floor, CAP) for one in moved)):
                claim = model.judged(point)
                off = [abs(v - e) for v, e in zip(to_mp(point), exact, strict=True)]
                two, one = mpmath.sqrt(mpmath.fsum(v * v for v in off)), mpmath.fsum(off)
                for distance, claimed in ((two, claim.two), (one, claim.one)):
                    worst = max(worst, float(distance / claimed) if claimed or distance else 0.0)
    return worst


def test_no_point_is_farther_from_the_minimizer_than_claimed():
    assert 0.3 < worst_ratio(range(24)) <= 1.0


def test_without_the_rounding_of_the_gradient_some_point_is(monkeypatch):
    monkeypatch.setattr(terms, "UNIT", 0.0)
    assert worst_ratio(range(12)) > 1.0


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradient_is_that_of_cvxpy(name):
    rng, n, w = np.random.default_rng(0), 7, cp.Variable(7)
    Z, x = rows(name, rng, n, 4), rng.uniform(0.1, 2, n)
    expression = PROGRAMS[name][0](w, cp.Constant(Z), 0.7)
    w.value = x
    model = bound_to(*program(name, n, 4, 0.7), Z)
    assert model.value(x) == pytest.approx(float(expression.value), rel=1e-12)
    assert model.gradient(x) == pytest.approx(np.ravel(expression.grad[w].toarray()), rel=1e-11, abs=1e-12)
    step = 1e-6 * np.eye(n)
    slopes = [(model.gradient(x + d) - model.gradient(x - d)) / 2e-6 for d in step]
    assert model.hessian(x) == pytest.approx(np.array(slopes), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_public_constants_cover_every_dataset_in_the_bounds(name):
    rng = np.random.default_rng(1)
    n, p = 6, 4
    read, public, floor = program(name, n, p, 0.7)
    for trial in range(20):
        scale = 1.0 if trial % 2 else rng.uniform()
        Z = rows(name, rng, n, p, scale)
        Z = np.where(rng.random(Z.shape) < 0.5, np.sign(Z), Z) if trial % 3 == 0 and p != 4 else Z
        model = bound_to(read, public, floor, Z)
        x = model.penalty.set.project(rng.exponential(size=n) ** 3)
        assert model.rounding(x) <= public.error
        assert np.linalg.eigvalsh(model.hessian(x))[-1] <= public.smoothness
        h, B = model.objective.diagonal(x), model.objective.half_hessian(x)
        assert np.all(h >= public.strong_convexity * (1 - 1e-12))
        assert np.linalg.norm(B, 2) ** 2 <= public.coupling * (1 + 1e-12)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "exponentials"])
def test_every_solve_meets_the_public_radius(name):
    rng = np.random.default_rng(2)
    for n, k, scale in ((2, 1.0, 1e-3), (5, 3.0, 1.0), (40, 0.1, 1.0), (60, 0.001, 10.0)):
        p = 4 if name == "determinant" else 2
        read, public, floor = program(name, n, p, k, bound=max(scale, scale**2))
        if public.radius is None:
            assert public.steps > MOST_STEPS
            continue
        for Z in (rows(name, rng, n, p, scale), np.tile(rows(name, rng, 1, p, scale), (n, 1))):
            model = bound_to(read, public, floor, Z)
            solution, _ = model.minimized(model.start(), 100)
            assert model.judged(solution).two <= public.radius
            if public.steps <= 700:
                slow, steps = model.proved(model.penalty.set.project(np.eye(n)[0] * n))
                assert steps <= public.steps
                assert model.judged(slow).two <= public.radius


def test_bisection_alone_reaches_what_its_theorem_says(monkeypatch):
    rng = np.random.default_rng(3)
    read, public, floor = program("squares", 3, 2, 0.02)
    model = bound_to(read, public, floor, rng.uniform(-1, 1, (3, 2)))
    fast = model.minimized(model.start(), 100)[0]
    monkeypatch.setattr("dp2erm_cvx.model.direct.PASSES", (True,))
    slow, steps = model.proved(model.start())
    assert 0 < steps <= public.steps
    assert model.judged(slow).two <= public.radius
    assert np.linalg.norm(slow - fast) <= 2 * public.radius


@pytest.mark.parametrize("kink", ["norm", "norm1", "max", "abs"])
def test_a_point_at_a_kink_is_certified_by_theorem_d(kink):
    n, rng = 30, np.random.default_rng(4)
    w, Z = cp.Variable(n), cp.Parameter((n, 2), name="Z")
    atom = {"norm": cp.norm, "norm1": cp.norm1, "max": cp.max, "abs": lambda v: cp.sum(cp.abs(v))}[kink]
    inner = cp.hstack([Z.T @ w, -Z.T @ w]) if kink == "max" else Z.T @ w
    declared = cp.sum_squares(w - 1) + 50.0 * atom(inner)
    read = ReadObjective(declared, w, {"Z": Z})
    public = PublicConstants.of(read, read.bound_vector({"Z": 1.0}), 0.0, CAP)
    data = rng.uniform(-1, 1, (n, 2))
    model = bound_to(read, public, 0.0, data)
    solution, _ = model.minimized(model.start(), 100)
    # at this price the imbalance is exactly 0: a projection onto a plane, by linear algebra alone
    A = np.column_stack([data, np.ones(n)])
    exact = 1.0 + A @ np.linalg.solve(A.T @ A, np.array([0.0, 0.0, n]) - A.T @ np.ones(n))
    assert np.all((exact > 0) & (exact < CAP))
    claim = model.judged(solution).two
    assert np.linalg.norm(solution - exact) <= claim <= 1e-4
    for size in (1e-3, 1e-1):
        point = model.penalty.set.project(solution + size * rng.standard_normal(n))
        assert np.linalg.norm(point - exact) <= model.judged(point).two


def test_many_datasets_are_solved_together():
    rng = np.random.default_rng(5)
    read, public, floor = program("entropy", 20, 2, 0.5)
    data, x = rng.uniform(-1, 1, (6, 20, 2)), np.ones((6, 20))
    objective = read.at(np.array([read.vector({"Z": Z}) for Z in data]))
    for _ in range(8):
        x = newton_step(objective, x, floor, CAP)
    for Z, point in zip(data, x, strict=True):
        assert bound_to(read, public, floor, Z).judged(point).two <= public.radius


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "exponentials"])
def test_groups_of_equal_weights_are_judged_as_their_records(name):
    """Not where a weight has a term of its own, as the first of "exponentials" has."""
    rng, k = np.random.default_rng(3), 0.5
    count = np.array([[5.0, 8.0, 0.0, 7.0]])
    kind, sizes = np.repeat(np.arange(4), count[0].astype(int)), np.maximum(count, 1.0)
    Z = rows(name, rng, 4, 2)[kind]
    read, public, floor = program(name, 20, Z.shape[1], k)
    model = bound_to(read, public, floor, Z)
    solution, _ = model.minimized(model.start(), 100)
    with mpmath.workdps(45):
        exact = exact_minimizer(name, floor, Z, k, solution)
    grouped = read.at(read.vector({"Z": Z})[None, :]).grouped(kind[None, :], count)
    for size in (0.0, 1e-9, 1e-6, 1e-2):
        near = np.maximum(solution[[0, 5, 0, 13]], floor + size) + size * rng.standard_normal(4)
        v = near * count
        v[0, 3] += 20.0 - v.sum()
        claim = judge_groups(grouped, model.ridge, floor * count, CAP * count, v)[0]
        point = (v / sizes)[0, kind]
        off = float(mpmath.fsum(abs(x - e) for x, e in zip(to_mp(point), exact, strict=True)))
        assert off <= claim
        assert claim == pytest.approx(model.judged(point).one, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    "declared",
    [
        lambda w, Z: cp.exp(cp.sum_squares(Z.T @ w)),  # another atom inside
        lambda w, Z: cp.log_sum_exp(Z.T @ w),  # not known
        lambda w, Z: cp.pnorm(Z.T @ w, 3),  # of another order
        lambda w, Z: cp.square(Z[0, 0]) * w[0],
        lambda w, Z: w[0] / Z[0, 0],
        lambda w, Z: -cp.sum_squares(w),
    ],
)
def test_what_is_not_read_is_refused_with_the_reason(declared):
    w, Z = cp.Variable(3), cp.Parameter((3, 2), name="Z")
    with pytest.raises(ProgramError, match=r"read|data\(\)|convex"):
        ReadObjective(declared(w, Z), w, {"Z": Z})


def test_without_public_numbers_no_radius_is_stated():
    w, Z = cp.Variable(4), cp.Parameter((4, 2), name="Z")

    def reason(declared, floor=0.0, bound=1.0):
        read = ReadObjective(declared, w, {"Z": Z})
        return PublicConstants.of(read, read.bound_vector({"Z": bound}), floor, CAP).reason

    assert "strong convexity" in reason(cp.sum_squares(Z.T @ w))
    assert "floor above 0" in reason(-cp.sum(cp.entr(w)))
    assert reason(-cp.sum(cp.entr(w)), floor=0.01) == ""
    assert "proved steps" in reason(cp.sum_squares(w) + 1e6 * cp.sum_squares(Z.T @ w))
    assert "no public bound" in reason(cp.sum_squares(w) + cp.sum_squares(Z.T @ w), bound=math.inf)
    assert "kink" in reason(cp.sum_squares(w) + cp.norm(Z.T @ w))
    read = ReadObjective(cp.sum_squares(w - Z[:, 0]), w, {"Z": Z})
    with pytest.raises(ProgramError, match="public bound of the entries of 'Z'"):
        read.bound_vector({})
