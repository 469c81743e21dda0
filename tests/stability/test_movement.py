"""One registry of worst pairs of neighbors: within the bound, and beyond every planted error of it."""

import math
from unittest import mock

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing,
    entropy_balancing_paper_scaling,
    kernel_balancing,
    pooled_kernel_balancing,
    separable,
)
from tests.helpers import logistic_propensity, planted_diameters
from tests.stability.movement import (
    INF,
    Pair,
    balancing,
    extremes,
    four_clusters,
    ipw,
    program_of,
    ridge_regression_bound,
    ridge_regression_movement,
    scaled_entropy,
    solved,
)

G = math.sqrt(0.5)
KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT


def logistic(n, ridge, radius, pair, least, planted=(), trim=INF):
    """A row: the movement of a pair and its bound, by need; what it moves at least, and planted errors."""
    program = ipw(ridge, radius, trim)
    bound = lambda: logistic_propensity(n, 1.0, ridge, radius, trim)  # noqa: E731
    return lambda: solved(program, pair), bound, least, planted


def entropy(mass, ridge, radius, common, before, after, least, planted=()):
    program = program_of("entropy_balancing", arm_mass=mass, ridge=ridge, radius=radius, constant=G)
    pair = Pair.of([((arm, G * x), count) for arm, x, count in common], before, after)

    def bound(factor=1.0):
        return entropy_balancing(400, EntropyConstants(G, G, factor * ridge, radius, mass))

    return lambda: solved(program, pair, Domain(G, 1.0)), bound, least, planted


def scaled(ridge, floor, pair, *planted):
    def bound(factor=1.0):
        return entropy_balancing_paper_scaling(400, factor * ridge, floor)

    domain = Domain(1.0, 1.0, arm_floor=floor)
    return lambda: solved(scaled_entropy(ridge), pair, domain), bound, 2.0, planted


def within(arm, features):
    """A record with features inside of the unit ball."""
    return arm, *(np.array(features) / max(1.0, np.linalg.norm(features)))


def kernel(ridge, groups, before, after, least, planted=(), *, pooled=False, n=400):
    """From groups of an arm, features and a count, and an arm with features before and after."""
    pair = Pair.of([(within(*point), count) for *point, count in groups], within(*before), within(*after))

    def bound(ridge=ridge, relation=Neighboring.REPLACE_ONE):
        constants = KernelConstants(1.0, ridge)
        if pooled:
            return pooled_kernel_balancing(n, constants)
        return kernel_balancing(n, constants, n // 4, relation=relation)

    return lambda: solved(balancing(n, ridge, pooled), pair), bound, least, planted


def least_squares(ridge, tilt, end, least, *planted):
    pair = Pair.of([((1.0, 1.0), 400)], end, (0.0, 1.0))
    bound = lambda: ridge_regression_bound(401, ridge, INF, tilt)  # noqa: E731
    return lambda: ridge_regression_movement(ridge, INF, tilt, pair), bound, least, planted


# planted errors: the V that a bound would then state
def one_weight_lost(bound):
    return bound().V - bound().w_max


def a_flip_forgotten(bound):
    with planted_diameters(0.5):
        return bound().V


def flips_forgotten(bound):
    return bound(relation=KEEP).V


def uniform_weight(bound):
    with mock.patch.object(KernelConstants, "arm_weight", lambda _, size, n: 1.0 / size):
        return bound().V


def divided_twice(_):
    """The movement of the coefficient divided by n twice."""
    return separable(401, 401 * 0.3, 2 * (1 + 1 / 0.3), 2 * 2.0, 0.5, 1 / 0.3).V


def divided_by_root_n(bound):
    return bound().V / math.sqrt(400)


def ridge_times(factor):
    return lambda bound: bound(factor).V


def clusters(*shape, n=400):
    return four_clusters(n, shape)


AXIS, WIDE, POINT = (0, 0, 1), (0.85, 0.527, 0), (0.86, 0, 0.51)
APART = [(1, AXIS, 100), (0, WIDE, 299)], (0, AXIS), (1, WIDE)
CORNERS = extremes(0.26, 400, (1.0, 0.0, -1.0, 0.0))
ONE_POINT = Pair.of([((0, 1, 0), 199), ((1, 1, 0), 200)], (0, 1, 0), (0, -1, 0))
ROOT, LOST, TWICE = (divided_by_root_n,), (one_weight_lost,), (ridge_times(2.0),)
#: Found by long searches; "at least" is what a pair moves, so that the tests stay sharp.
# fmt: off
WORST = {
    "logistic": [
        logistic(400, 0.003, 1.0, clusters(1.0, 0.956, 0.259, 0.0, 0.433, 0.719, 0.394), 16.1,
                 (divided_by_root_n, a_flip_forgotten)),
        logistic(10_000, 0.003, 2.0,
                 clusters(1.2042, 0.9583, 0.2956, -0.0002, 0.602, 0.8811, 0.3471, n=10_000), 40.0,
                 (lambda bound: bound().V / math.sqrt(10_000),)),
        logistic(400, 0.003, 4.0, clusters(0.58, 0.326, 0.341, 0.045, 0.579, 0.855, 0.56), 32.2, ROOT, 5.0),
        logistic(400, 0.003, 4.0, clusters(0.3694, 0.8825, 0.4707, 0.002, 0.1794, 0.9398, 0.3257), 100.0,
                 ROOT),
        logistic(400, 1.0, INF, Pair.of([((1, -0.768, -0.641), 399)], (1, 0.987, 0.162), (1, 0.769, 0.639)),
                 2.97),
        logistic(400, 0.1, INF, Pair.of([((1, -0.939, 0.344), 399)], (0, -0.939, 0.343), (1, -0.008, 0.056)),
                 10.0),
        logistic(400, 0.1, 1.0, Pair.of([((1, 0.998, 0.058), 399)], (1, -0.997, -0.076), (1, -0.59, -0.288)),
                 5.4),
        logistic(4, 1.0, INF, Pair.of([((1, 0.322, -0.947), 3)], (0, 0.322, -0.947), (1, 0.0, 0.0)), 2.30),
    ],
    "entropy": [
        entropy("equal", 3.0, INF, [(1, 1, 399)], (0, G), (0, 0.289 * G), 2.78, TWICE),
        entropy("equal", 1.0, INF, [(1, -1, 399)], (0, -G), (0, 0.31 * G), 5.34, TWICE + LOST),
        entropy("equal", 0.3, INF, [(0, -1, 399)], (1, -G), (1, -0.738 * G), 38.7, TWICE),
        entropy("equal", 0.1, 1.0, [(0, -1, 399)], (0, -G), (1, -G), 8.16),
        entropy("proportional", 1.0, INF, [(0, -1, 202), (1, 1, 197)], (0, 0.147 * G), (1, -G), 3.27),
        entropy("proportional", 0.3, INF, [(0, -1, 201), (1, 1, 192), (1, 0.95, 6)], (1, -G), (0, -G), 9.87),
        # the ridge belongs to rows of norm at most 1; rows 20 times as long need one 400 times larger
        scaled(0.3, 100, CORNERS, ridge_times(400.0)),
        scaled(50.0, 200, ONE_POINT, one_weight_lost),
    ],
    "kernel": [
        kernel(20.0, [(1, AXIS, 147), (0, (0.912, 0.411, 0.011), 251), (0, (0.903, 0.001, 0.43), 1)],
               (1, (0.867, 0.499, 0)), (0, (0.039, 0.1, 0.923)), 55.0, (uniform_weight,)),
        # the ridge is on ||p||^2, and not on ||w||^2 = (n/2)^2 ||p||^2
        kernel(100.0, [(0, (0, 1, 0), 296), (1, POINT, 103)], (0, POINT), (1, (0, 1, 0)), 16.5,
               (lambda bound: bound(100.0 * 200**2).V,)),
        kernel(400.0, *APART, 7.9),
        kernel(4000.0, *APART, 5.4),
        # at a large ridge a flip moves more than any change that keeps the treatment
        kernel(1e5, [(1, (1,), 25), (0, (1,), 74)], (1, (1,)), (0, (1,)), 2.0, (flips_forgotten,), n=100),
        kernel(100.0, [(0, (0.89, 0.21, 0.4), 168), (0, (0.49, 0.27, 0.83), 227), (0, (0.9, 0.07, 0.42), 4)],
               (1, (0.15, 0.3, 0.94)), (1, (0.98, 0.14, 0.12)), 14.8, pooled=True),
        kernel(400.0, [(1, (0.43, 0.86, 0.28), 246), (1, (0.16, 0.88, 0.43), 153)],
               (0, (0.12, 0.89, 0.43)), (0, (0.6, 0.77, 0.18)), 4.9, pooled=True),
        kernel(8000.0, [(1, (1, 0), 399)], (1, (0, 1)), (0, (1, 0)), 2.14, LOST, pooled=True),
    ],
    "least squares": [
        least_squares(5.0, 1.0, (0.0, 1.0), 2.0, one_weight_lost),
        least_squares(0.3, 2.0, (0.0, -1.0), 40.0, divided_twice),
    ],
}
# fmt: on
ROWS = [pytest.param(*row, id=f"{kind} {k}") for kind, rows in WORST.items() for k, row in enumerate(rows)]


@pytest.mark.parametrize(("movement", "bound", "at_least", "planted"), ROWS)
def test_a_worst_pair_is_within_the_bound_and_beyond_planted_ones(movement, bound, at_least, planted):
    moved, w, v = movement()
    assert at_least <= moved <= bound().V
    assert max(w.max(), v.max()) <= bound().w_max
    for wrong in planted:
        assert wrong(bound) < moved
