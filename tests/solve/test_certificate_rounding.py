"""The floating-point bounds that a certificate is made of, each against 50 digits."""

import math
from itertools import product
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx.arrays import UNIT
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.problems.itr import itr_huber
from dp2erm_cvx.program import Gaussian, SecondStage, WholeSpace
from dp2erm_cvx.program.kernels import (
    Energy,
    Laplace,
    Linear,
    RandomFourier,
)
from dp2erm_cvx.solve import certify, solve
from tests import exact, exact_kernel
from tests.drawn import PROGRAMS, hostile_records, instance_of

SMOOTH = [
    "overlap", "inverse_probability_tilting",
    "regression", "itr_huber", "itr_logistic",
]  # fmt: skip
KERNELS = [
    Energy(), RandomFourier(0.3, 20), RandomFourier(1e-5, 3), Gaussian(0.1),
    Laplace(0.1), Linear(0.3),
]  # fmt: skip


def near_pairs(rng, n, p):
    """Points of the unit ball of all sizes: nearly equal, opposite, collinear, nearly zero and
    zero.
    """
    X = rng.normal(size=(n, p))
    X *= (10.0 ** rng.choice([0, -1, -4, -9, -14], n) * 0.9 / np.linalg.norm(X, axis=1))[:, None]
    for i in range(1, n, 2):
        x = X[i - 1]
        near = np.nextafter(x, 1.0), x * (1 + 10.0 ** rng.integers(-15, -3)), -x * (1 - 1e-9)
        nearer = x + 1e-8 * rng.normal(size=p) * np.linalg.norm(x), x, X[i]
        X[i] = (*near, *nearer)[rng.integers(6)]
    X[-1] = 0.0
    return 0.9 * X


def ratio(error, allowed):
    return 0.0 if error == 0 else float(error / allowed) if allowed > 0 else math.inf


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("kind", KERNELS, ids=repr)
def test_every_entry_of_a_kernel_is_within_its_error(kind):
    rng, worst = np.random.default_rng(40), 0.0
    for p in (1, 2, 5, 60):
        X = near_pairs(rng, 16, p)
        rows, K = exact_kernel.features(kind, X), kind.cross(X, X)
        sizes = [mp.sqrt(exact_kernel.entry(kind, x, x)) for x in rows]
        units = mp.mpf(kind.entry_error(1.0, p) * UNIT)
        for (i, x), (j, y) in product(enumerate(rows), repeat=2):
            error = mp.fabs(exact_kernel.entry(kind, x, y) - mp.mpf(float(K[i, j])))
            worst = max(worst, ratio(error, units * sizes[i] * sizes[j]))
    assert 1e-4 < worst <= 1.0


def true_derivatives(instance, records, bound):
    """Gradient and Hessian of the smooth part to 50 digits; no Hessian where the model has none to
    check.
    """
    program = instance.program
    if isinstance(program, SecondStage):
        given = bound["weights"], bound["gamma"], bound["noise"]
        return exact.second_stage_derivatives(program, records, *given)
    if program.name == "overlap":
        return exact.propensity_derivatives(records, program.ridge)
    assert program.name == "inverse_probability_tilting"
    return exact.tilting_derivatives(program, records, program.ridge)


def some_point(rng, model):
    """A point of the feasible set, often near its edge."""
    start = model.start()
    size = 1.0 + float(np.max(np.abs(start), initial=0.0))
    return model.penalty.set.project(
        start + size * 10 ** rng.uniform(-3, 3) * rng.normal(size=model.dimension)
    )


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", SMOOTH)
def test_no_gradient_or_hessian_is_farther_off_than_it_says(name):
    rng, gradients, hessians = np.random.default_rng(42), [], []
    for _ in range(10):
        records = hostile_records(rng, int(rng.integers(2, 24)), int(rng.integers(1, 5)))
        instance, bound = instance_of(rng, name, records)
        model: Any = instance.model
        v = some_point(rng, model)
        gradient, hessian = true_derivatives(instance, records, bound)(exact.to_mp(v))
        gradients.append(ratio(exact.distance(gradient, model.gradient(v)), model.rounding(v)))
        # where the loss bends, which piece a margin is on is not known
        if hessian is not None and name != "itr_huber":
            error = exact.spectral_distance(hessian, model.hessian(v))
            hessians.append(ratio(error, model.hessian_rounding(v)))
    assert 1e-4 < max(gradients) <= 1.0
    assert 1e-4 < max(hessians, default=1.0) <= 1.0


def uniform_records(rng, n):
    X, a, y = rng.uniform(-1, 1, (n, 2)), np.arange(n) % 2, rng.uniform(-1, 1, n)
    return Domain(2.0, 1.0, intercept=1.0).records(X, a, y)


def pieces(rng):
    """A model whose Hessian jumps, and a point."""
    records = uniform_records(rng, 30)
    program = itr_huber(WholeSpace(), threshold=10 ** rng.uniform(-1, 0.5))
    model = program.instance(records, np.ones(30), gamma=1e-6).model
    return model, rng.normal(size=3) * 10 ** rng.uniform(-2, 1)


def test_no_hessian_nearby_is_below_the_bound_on_all_of_them():
    """At random points of the ball, and at those that take the margin of one record farthest."""
    rng, useful, closest = np.random.default_rng(45), 0, math.inf
    for _ in range(30):
        model, v = pieces(rng)
        distance = 10 ** rng.uniform(-4, 0)  # takes some margins across a jump
        lowest, rows = model.lowest_within(v, distance), model.Z
        useful += lowest > 2 * model.ridge
        steps = rng.normal(size=(30, len(v)))
        for step in np.vstack([steps, rows, -rows]):
            there = model.hessian(v + step * (distance / float(np.linalg.norm(step))))
            least = float(np.linalg.eigvalsh(there)[0])
            assert lowest <= least * (1 + 1e-9) + 1e-9
            closest = min(closest, least / lowest if lowest > 2 * model.ridge else math.inf)
    assert useful >= 3
    assert closest < 1.1


def test_a_huber_certificate_is_not_left_with_the_ridge():
    """The curvature of the records within the threshold counts, which a tiny gamma does not
    have.
    """
    records = uniform_records(np.random.default_rng(47), 60)
    solution = solve(itr_huber(threshold=1.0).instance(records, np.ones(60), gamma=1e-12))
    assert solution.certificate.strong_convexity > 1.0


@pytest.mark.parametrize("name", ["overlap", "inverse_probability_tilting"])
def test_a_solver_that_ends_far_outside_the_ball_is_judged_without_overflow(name):
    """Conic solvers do, where the ridge is tiny; an exponential loss is then out of floating-point
    range.
    """
    rng = np.random.default_rng(49)
    records = Domain(1.0, 1.0).records(
        rng.uniform(-0.5, 0.5, (12, 2)), np.arange(12) % 2, np.zeros(12)
    )
    instance = PROGRAMS[name](ridge=1e-9, radius=2.0).instance(records)
    model = instance.model
    outside = 1e4 * rng.normal(size=model.dimension)
    point = instance.program.read(instance, {"coefficient": outside}, {})
    assert np.linalg.norm(point) == pytest.approx(2.0, rel=1e-12)
    assert math.isfinite(certify(instance, point).relative_radius)
