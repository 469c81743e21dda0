"""Points that stand at kinks are certified with all digits, against minimizers of 50 digits."""

from functools import cache
from itertools import product

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.model.affine import AffineWalk
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.model.supports import LoadedAffine, LoadedTerm, SupportedFunction
from dp2erm_cvx.solve import gap, kinks
from dp2erm_cvx.solve.gap import anchored
from tests.helpers import LOSSES, penalized

P, N, GAMMA, PRICE = 4, 24, 0.05, 0.0625
DOMAIN = Domain(1.0, 1.0)
#: Rows of kinks, of which each one is an absolute value, and groups of entries under a norm.
FUSED = (((1, -1, 0, 0), (0, 1, -1, 0), (0, 0, 1, -1)), ())
SPARSE = (((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)), ())
BENDS = (((1, -2, 1, 0), (0, 1, -2, 1)), ())
GROUPS = ((), ((0, 1), (2, 3)))
OVERLAPPING = ((), ((0, 1, 2), (2, 3)))
KINKS = {
    "fused": FUSED,
    "sparse": SPARSE,
    "bends": BENDS,
    "groups": GROUPS,
    "overlapping": OVERLAPPING,
}


@cache
def program_of(loss, kinked, theta_set):
    """A loss and a penalty with these kinks; it is read once for all datasets."""
    rows, groups = kinked

    def penalty(theta):
        parts = [PRICE * cp.norm(theta[list(group)]) for group in groups]
        if rows:
            parts.append(PRICE * cp.sum(cp.abs(np.array(rows, dtype=np.float64) @ theta)))
        return sum(parts)

    program = penalized(LOSSES[loss], penalty, columns=P)(theta_set=theta_set)
    return program.at(Universe(DOMAIN, N, P))


def instance_of(loss, kinked, seed, theta_set=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P))
    X /= np.linalg.norm(X, axis=1)[:, None] * 1.01
    y = np.clip(X @ np.array([0.5, 0.5, 0.1, 0.0]) + 0.2 * rng.normal(size=N), -1, 1)
    records = DOMAIN.records(X, rng.integers(0, 2, N), y)
    noise = rng.normal(size=P)
    program = program_of(loss, kinked, theta_set or WholeSpace())
    return records, noise, program.instance(records, np.ones(N), gamma=GAMMA, noise=noise)


def slopes(loss, v, record):
    """Slope and curvature of a record's loss along its row, and the row, with 50 digits."""
    X, a, y = record
    if loss == "squares":
        response = 2 * (2 * a - 1) * y
        s = sum(p * q for p, q in zip(X, v, strict=True)) - response
        return 2 * s, mpmath.mpf(2), X
    row = [(2 * a - 1) * one for one in X]
    s = sum(p * q for p, q in zip(row, v, strict=True))
    share = 1 / (1 + mpmath.exp(-s))
    return share, share * (1 - share), row


def standing(kinked, start):
    """Basis (k, p) of the points with the zero kinks of a start; the rows and groups that are off 0
    there.
    """
    rows, groups = kinked
    size = float(np.linalg.norm(start))
    at = [np.array(row) for row in rows if abs(np.array(row) @ start) <= 1e-9 * size]
    off = [row for row in rows if abs(np.array(row) @ start) > 1e-9 * size]
    for group in groups:
        if np.linalg.norm(start[list(group)]) <= 1e-9 * size:
            at += [np.eye(P, dtype=int)[k] for k in group]
    free = [group for group in groups if np.linalg.norm(start[list(group)]) > 1e-9 * size]
    null = np.eye(P)
    if at:
        _, values, basis = np.linalg.svd(np.array(at, dtype=float))
        rank = int(np.sum(values > 1e-9))
        plain = basis[rank:]
        # the rows are whole numbers, so that a basis in echelon form is of few digits
        for k in range(len(plain)):
            pivot = int(np.argmax(np.abs(plain[k])))
            plain[k] /= plain[k, pivot]
            for other in range(len(plain)):
                if other != k:
                    plain[other] -= plain[other, pivot] * plain[k]
        null = np.round(plain * 12) / 12
        assert np.allclose(null, plain, atol=1e-9)
    return null, off, free


def add_kinks(g, H, v, off, free):
    """Add slopes and curvatures of kinks that are off 0."""
    price = N * mpmath.mpf(PRICE)
    for row in off:
        sign = mpmath.sign(sum(int(p) * q for p, q in zip(row, v, strict=True)))
        for j in range(P):
            g[j] += price * sign * int(row[j])
    for group in free:
        length = mpmath.sqrt(sum(v[k] ** 2 for k in group))
        for j in group:
            g[j] += price * v[j] / length
            for k in group:
                H[j, k] += price * ((j == k) - v[j] * v[k] / length**2) / length


def minimizer(loss, kinked, records, noise, start):
    """The minimizer near a start by Newton's method among points with its zero kinks, with 50
    digits.

    Its multipliers are not asked for: they were in the certificate that is judged.
    """
    null, off, free = standing(kinked, start)
    with mpmath.workdps(50):
        N_ = mpmath.matrix([[mpmath.mpf(round(12 * one)) / 12 for one in row] for row in null])
        z = mpmath.matrix(np.linalg.lstsq(null.T, start, rcond=None)[0].tolist())
        data = [
            ([mpmath.mpf(float(one)) for one in x], int(a), mpmath.mpf(float(y)))
            for x, a, y in zip(records.X, records.a, records.y, strict=True)
        ]
        ridge = N * mpmath.mpf(GAMMA)
        for _ in range(12 if len(null) else 0):
            v = N_.T * z
            g = [mpmath.mpf(float(b)) + ridge * one for b, one in zip(noise, v, strict=True)]
            H = ridge * mpmath.eye(P)
            for record in data:
                slope, bend, row = slopes(loss, v, record)
                for j in range(P):
                    g[j] += slope * row[j]
                    for k in range(P):
                        H[j, k] += bend * row[j] * row[k]
            add_kinks(g, H, v, off, free)
            step = mpmath.lu_solve(N_ * H * N_.T, N_ * mpmath.matrix(g))
            z = z - step
        v = N_.T * z if len(null) else mpmath.zeros(P, 1)
        return [v[k] for k in range(P)]


def apart(theta, point):
    with mpmath.workdps(50):
        squares = [
            (one - mpmath.mpf(float(other))) ** 2 for one, other in zip(theta, point, strict=True)
        ]
        return float(mpmath.sqrt(sum(squares)))


def excess(loss, name, seed):
    """Distance of the judge's point to the minimizer over its claim, and the claim over the point's
    size.
    """
    records, noise, instance = instance_of(loss, KINKS[name], seed)
    anchor = anchored(instance.kinked())
    theta = minimizer(loss, KINKS[name], records, noise, anchor.point)
    size = float(np.linalg.norm(anchor.point)) or 1.0
    return apart(theta, anchor.point) / anchor.radius, anchor.radius / size


@pytest.mark.one_row_in(7)
@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("loss", ["squares", "logistic"])
def test_a_point_at_kinks_is_certified_with_all_digits(loss, name):
    for seed in range(2):
        worst, claimed = excess(loss, name, seed)
        assert worst <= 1.0
        assert claimed <= 1e-9


@pytest.mark.slow
def test_a_ball_that_is_felt_keeps_what_was_proved():
    """A point on the boundary does not stand: a kink that is at 0 there keeps half of the
    digits.
    """
    for loss, name in product(["squares", "logistic"], ["fused", "groups"]):
        _, _, instance = instance_of(loss, KINKS[name], 0, L2Ball(0.05))
        anchor = anchored(instance.kinked())
        assert np.linalg.norm(anchor.point) == pytest.approx(0.05)
        assert anchor.radius / 0.05 <= 1e-5
        # the step is projected onto the ball, which rounds
        standing = gap._standing(
            instance.kinked(), gap.solved(instance.kinked())._replace(point=anchor.point)
        )
        assert standing.radius == np.inf


def nothing_left_out(self, a, error, u, slope_error, left_out):
    left_out[:] = 0.0


def long_slopes(self, v):
    return np.where(np.isfinite(v), v, 0.0)


PLANTED = {
    "what slopes leave out is not charged": [(LoadedTerm, "_sharpen", nothing_left_out)],
    "slopes of any size are taken": [(LoadedTerm, "unit_slope", long_slopes)],
}


def wrong_kinks(problem, candidate):
    """Candidates that take more arguments for 0 than are, or that have other slopes than their
    points.
    """
    everything = [np.full(len(term.group), term.kink) for term in problem.kinks.terms]
    found = kinks._minimized(problem, candidate, everything)
    if found is not None:
        yield found
    # a stationary point of the loss alone: slopes of 0 leave no residual, and what they leave out
    # is large
    plain = np.zeros(problem.kinks.dimension)
    for _ in range(30):
        plain = plain - np.linalg.solve(
            problem.smooth.hessian(plain), problem.smooth.gradient(plain)
        )
    yield candidate._replace(
        point=plain, slopes=[u if u is None else 0.0 * u for u in candidate.slopes]
    )


def test_points_at_kinks_of_which_there_are_none_claim_little():
    for loss, name in (("squares", "fused"), ("logistic", "groups")):
        _, _, instance = instance_of(loss, KINKS[name], 0)
        problem = instance.kinked()
        truth = anchored(problem)
        for candidate in wrong_kinks(problem, gap.solved(problem)):
            standing = gap._standing(problem, candidate)
            distance = float(np.linalg.norm(standing.point - truth.point)) - truth.radius
            assert standing.radius >= distance


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_error_is_exceeded(bug, monkeypatch):
    worst = 0.0
    truths = {}
    cases = list(product(["squares", "logistic"], ["fused", "groups"]))
    for loss, name in cases:
        _, _, instance = instance_of(loss, KINKS[name], 0)
        problem = instance.kinked()
        truths[loss, name] = problem, anchored(problem), gap.solved(problem)
    for place in PLANTED[bug]:
        monkeypatch.setattr(*place)
    for problem, truth, candidate in truths.values():
        for wrong in wrong_kinks(problem, candidate):
            radius = gap._standing(problem, wrong).radius
            worst = max(
                worst, (float(np.linalg.norm(wrong.point - truth.point)) - truth.radius) / radius
            )
    assert worst > 1.0


def affine(expression, theta):
    return SupportedFunction(expression, theta, {}).at({}).terms[0].matrix


def test_only_what_nothing_rounds_is_taken_for_exact():
    theta = cp.Variable(3)
    exact = [
        cp.norm(theta[1:]), cp.norm1(cp.diff(theta)), cp.norm1(cp.diff(theta, 2)),
        cp.norm(0.3 * theta),
        cp.norm1(np.array([[1.0, 2.0, -3.0]]) @ theta), cp.norm(theta - 0.1), cp.tv(theta),
    ]  # fmt: skip
    rounded = [
        cp.norm(3 * (0.1 * theta)), cp.norm1(0.1 * theta[1:] + 0.2 * theta[1:]), cp.norm(theta / 3),
    ]  # fmt: skip
    assert [affine(one, theta).exact for one in exact] == [True] * len(exact)
    assert [affine(one, theta).exact for one in rounded] == [False] * len(rounded)
    assert issubclass(SupportedFunction.__init__.__globals__["_NestedWalk"], AffineWalk)


def test_a_zero_is_one_of_rational_numbers():
    """``0.1 + 0.2 - 0.3`` is off 0, in doubles as well as exactly; a difference that is lost is no
    zero.
    """
    theta = cp.Variable(3)
    matrix = affine(cp.norm1(np.array([[1.0, 1.0, -1.0]]) @ theta), theta)
    assert isinstance(matrix, LoadedAffine)
    columns = matrix.A.shape[1]

    def at(*v):
        value, wrong = matrix.forward(np.array([*v, *np.zeros(columns - 3)]), np.zeros(columns))
        return value[0], wrong[0]

    assert at(0.25, 0.5, 0.75) == (0.0, 0.0)
    assert at(0.1, 0.2, 0.3)[1] > 0
    assert at(1.0, 2.0**-60, 1.0)[1] > 0  # which is 0 in doubles
    assert at(0.0, 0.0, 0.0)[1] == 0.0
