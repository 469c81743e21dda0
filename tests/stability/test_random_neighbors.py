"""Random datasets and their neighbors: no movement exceeds a bound, and some come near it."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx import Domain, registry
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing,
    entropy_balancing_paper_scaling,
    kernel_balancing,
    paper_ipw_logistic,
    paper_kernel_balancing,
    pooled_kernel_balancing,
    usable,
)
from tests.drawn import first_stage
from tests.plugins.literature import matching, tailored
from tests.stability.movement import (
    DISK,
    INF,
    Pair,
    balancing,
    extremes,
    ipw,
    norm_bound,
    printed_quantities,
    program_of,
    ridge_regression_bound,
    ridge_regression_movement,
    scaled_entropy,
    solved,
)


class Drawn(NamedTuple):
    """A pair, what moves its weights, their bound, and for printed ones that of the 2-norm."""

    pair: Pair
    moved: Callable[[Pair], tuple[float, np.ndarray, np.ndarray]]
    bound: StabilityBound
    norm: float = INF


def entropy(rng, mass):
    n, constant = int(rng.integers(2, 7)), float(rng.choice([1e-9, 0.3, 1.0, 3.0]))
    ridge, radius = 10 ** rng.uniform(-1.5, 0.7), float(rng.choice([INF, 10 ** rng.uniform(-0.5, 0.7)]))
    rows = np.column_stack([rng.integers(0, 2, n + 1), rng.choice([-1.0, 1.0], n + 1)])
    rows[:, 1] *= rng.uniform(size=n + 1) ** 0.3
    program = program_of("entropy_balancing", arm_mass=mass, ridge=ridge, radius=radius, constant=constant)
    bound = entropy_balancing(n, EntropyConstants(1.0, constant, ridge, radius, mass))
    return Drawn(Pair.of_rows(rows), partial(solved, program), bound)


def fewest(arm):
    """Records in the smaller arm of both datasets."""
    return int(min(np.bincount(np.delete(arm, left), minlength=2).min() for left in (-1, -2)))


def scaled(rng):
    n = int(rng.integers(4, 13))
    floor, arm = int(rng.integers(1, n // 2 + 1)), rng.integers(0, 2, n + 1)
    g = rng.choice([-1.0, 1.0], (n + 1, 2)) * np.array([1.0, float(rng.integers(0, 2))])
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    if fewest(arm) < floor:
        return None
    ridge, radius = 10 ** rng.uniform(-1.5, 1), float(rng.choice([INF, 10 ** rng.uniform(-1, 0.5)]))
    moved = partial(solved, scaled_entropy(ridge, radius), domain=Domain(1.0, 1.0, arm_floor=floor))
    bound = entropy_balancing_paper_scaling(n, ridge, floor, radius)
    return Drawn(Pair.of_rows(np.column_stack([arm, g])), moved, bound)


def scaled_flip(rng, n=400, floor=100):
    u = rng.normal(size=(2, 2))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    corner = [(1.0, 0.0, -1.0, 0.0), (-1.0, 0.0, -1.0, 0.0), tuple(u.ravel())][int(rng.integers(3))]
    pair = extremes(rng.choice([0.2507, 0.3, 0.5, 0.7, 0.749]), n, corner)
    moved = partial(solved, scaled_entropy(1.0), domain=Domain(1.0, 1.0, arm_floor=floor))
    return Drawn(pair, moved, entropy_balancing_paper_scaling(n, 1.0, floor))


def kernel(rng, pooled, signed):
    """Random directions, or repeated orthogonal points, which make the extreme cases."""
    n, dim = int(rng.integers(4, 11)), int(rng.integers(1, 4))
    F = rng.normal(size=(n + 1, dim))
    if rng.random() < 0.5:
        F = np.eye(dim)[rng.integers(0, dim, n + 1)] * rng.choice([-1.0, 1.0], (n + 1, 1))
    F = F if signed else np.abs(F)
    arm = rng.integers(0, 2, n + 1)
    pair = Pair.of_rows(np.column_stack([arm, F / np.linalg.norm(F, axis=1, keepdims=True)]))
    floor = fewest(arm)
    if not pooled and floor < 2:
        return None
    ridge, alpha = n * 10 ** rng.uniform(-1, 1.5), float(rng.choice([0.0, 0.5, 1.0, rng.random()]))
    constants = KernelConstants(1.0, ridge, alpha=alpha, signed=signed)
    relation = list(Neighboring)[int(arm[-1] == arm[-2])]
    moved = partial(solved, balancing(n, ridge, pooled, signed=signed, alpha=alpha))
    if pooled:
        return Drawn(pair, moved, pooled_kernel_balancing(n, constants))
    return Drawn(pair, moved, kernel_balancing(n, constants, floor, relation=relation))


def printed_kernel(rng):
    """Neighbors that keep their treatment; the cap may bind, and what the argument gives is smaller."""
    n = int(rng.integers(4, 12))
    F = np.eye(2)[rng.integers(0, 2, n + 1)] * rng.choice([-1.0, 1.0], (n + 1, 1))
    arm = np.append(rng.permutation(np.arange(n - 1) % 2), [0, 0])
    ridge, alpha, cap = n * 10 ** rng.uniform(-1.5, 1.5), rng.random(), 1.25 * n / (2 * ((n - 1) // 2))
    printed = paper_kernel_balancing(n, 1.0, ridge, cap)
    corrected = n / ridge * math.sqrt((2 * cap + alpha) ** 2 / n + 4)
    assert corrected <= norm_bound(printed, n)
    moved = partial(solved, balancing(n, ridge, pooled=False, signed=True, alpha=alpha, cap=cap))
    return Drawn(Pair.of_rows(np.column_stack([arm, F])), moved, usable(n, printed), corrected)


def printed_propensity(rng):
    n = int(rng.integers(3, 30))
    ridge, R = 10 ** rng.uniform(-0.5, 2), 10 ** rng.uniform(-1, 0.3)
    z = rng.normal(size=(n + 1, 2))
    rows = np.column_stack([np.ones(n + 1), z / np.linalg.norm(z, axis=1, keepdims=True)])
    printed = paper_ipw_logistic(n, 1.0, ridge, R)
    moved = partial(solved, ipw(ridge, R))
    return Drawn(Pair.of_rows(rows), moved, usable(n, printed), norm_bound(printed, n))


def least_squares(rng):
    """A scheme of its own."""
    n = int(rng.integers(2, 30))
    points = np.column_stack([rng.integers(0, 2, n + 1), rng.choice([-1.0, 1.0], n + 1)])
    if rng.random() < 0.3:
        points[: n - 1] = points[0]
    ridge, tilt = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-1, 0.5)
    settings = ridge, float(rng.choice([INF, 10 ** rng.uniform(-1, 0)])), tilt
    moved = partial(ridge_regression_movement, *settings)
    return Drawn(Pair.of_rows(points), moved, ridge_regression_bound(n, *settings))


def clustered(rng, program, n):
    """Of clustered unit rows."""
    share, angle = rng.uniform(0.02, 0.5), rng.uniform(0.0, np.pi)
    near, far = np.array([1.0, 0.0]), np.array([np.cos(angle), np.sin(angle)])
    z = np.where((rng.random(n - 1) < share)[:, None], far, near) * rng.choice([0.3, 1.0, 1.0])
    ends = [sign * (far if rng.random() < 0.5 else near) for sign in rng.choice([-1.0, 1.0], 2)]
    pair = Pair.of_rows(np.column_stack([np.ones(n + 1), np.vstack([z, ends])]))
    return Drawn(pair, partial(solved, program), program.stability(Universe(DISK, n, 2)))


#: Settings of private programs, whose ball holds the coefficient; others are drawn as for certificates.
PRIVATE = {"ipw_private": 3.0, "overlap_private": 2.0, "tilting_private": 1.0}
FLOOR = 3


def registered(rng, name):
    """A registered program at random settings; each arm keeps FLOOR records in both datasets."""
    n, intercept = int(rng.integers(2 * FLOOR + 2, 25)), float(rng.choice([0.0, 0.5]))
    domain = Domain(1.0, 1.0, intercept=intercept, arm_floor=FLOOR)
    x = rng.choice([-3.0, -1.0, 0.0, 1.0, 3.0], (n + 1, 2)) * rng.choice([1.0, rng.uniform()], (n + 1, 2))
    a = (rng.uniform(size=n + 1) < rng.choice([0.2, 0.5, expit(2 * x[:, 0]).mean()])).astype(int)
    a[:FLOOR], a[FLOOR : 2 * FLOOR] = 0, 1
    x[-1] *= -5.0 * (rng.random() < 0.5) + 1
    if name in PRIVATE:
        radius = min(float(np.exp(rng.uniform(-2.3, 1.1))), PRIVATE[name])
        program = registry.first_stages()[name](radius=radius).resolve(domain)
        moved = partial(of_released, program, domain, rng.normal(size=8))
    else:
        program = first_stage(rng, name, domain, 3 if intercept else 2, least=-3)
        program = dataclasses.replace(program, cap=INF) if name == "mmd" else program
        moved = partial(solved, program, domain=domain)
    return Drawn(Pair.of_rows(np.column_stack([a, x])), moved, program.stability(Universe(domain, n, 2)))


def of_released(program, domain, direction, pair):
    """Theorem 9: the coefficient has been released; it is the same for both datasets."""
    ends = pair.records(domain)
    lam = direction[: program.model(ends[0]).dimension]
    lam = lam * min(1.0, min(program.radius, 5.0) / np.linalg.norm(lam))
    w, v = (program.perturbed(end, 0.0, np.zeros(len(lam))).model.output(lam) for end in ends)
    return float(np.abs(w - v)[:-1].sum() + w[-1] + v[-1]), w, v


#: A way to draw, how often, and what share of the bound is reached.
DRAWS = {
    "entropy, equal": (partial(entropy, mass="equal"), 80, 0.7),
    "entropy, proportional": (partial(entropy, mass="proportional"), 80, 0.7),
    "scaled entropy": (scaled, 120, 0.7),
    "scaled entropy, flips": (scaled_flip, 40, 0.4),
    **{
        f"kernel, pooled {pooled}, signed {signed}": (
            partial(kernel, pooled=pooled, signed=signed),
            120,
            0.85,
        )
        for pooled in (False, True)
        for signed in (False, True)
    },
    "printed kernel": (printed_kernel, 150, 0.7),
    "printed propensity": (printed_propensity, 100, 0.7),
    "least squares": (least_squares, 400, 0.98),
    "overlap, ridge .1": (partial(clustered, program=overlap(ridge=0.1), n=40), 30, 0.25),
    "overlap, ridge .01": (partial(clustered, program=overlap(ridge=0.01), n=60), 30, 0.25),
    "matching": (partial(clustered, program=matching(ridge=0.1, radius=INF), n=40), 30, 0.25),
    "tailored": (partial(clustered, program=tailored(ridge=0.5, radius=INF), n=40), 30, 0.25),
    **{
        name: (partial(registered, name=name), 4, 0.05)
        for name in registry.first_stages()
        if not name.endswith("_hard")  # which has no bound
    },
}


@pytest.mark.parametrize("kind", DRAWS)
def test_random_neighbors_stay_below_the_bound(kind):
    draw, count, least = DRAWS[kind]
    rng, largest, capped = np.random.default_rng(17), 0.0, 0
    for drawn in filter(None, (draw(rng) for _ in range(count))):
        (moved, w, v), bound = drawn.moved(drawn.pair), drawn.bound
        assert moved <= bound.V
        assert max(w.max(), v.max()) <= bound.w_max * (1 + 1e-9)
        capped += max(w.max(), v.max()) > bound.w_max * (1 - 1e-9)
        ratio = moved / bound.V if least < 0.1 or bound.V < 2 * len(w) else 0.0
        if bound.W1 is not None:
            first, second = printed_quantities(w, v)
            assert first <= bound.W1
            assert second <= bound.W2
            apart = np.linalg.norm(w - v) / drawn.norm
            assert apart <= 1.0
            ratio = max(first / bound.W1, apart)
        largest = max(largest, ratio)
    assert largest > least
    assert capped > 10 or kind != "printed kernel"
