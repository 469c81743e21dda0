"""Measured movement never exceeds a bound: the worst pairs of long searches, and random small datasets."""

import math

import numpy as np
import pytest

from dp2erm_cvx.stability import EntropyConstants, entropy_balancing, logistic_propensity
from tests.stability.movement import Pair, entropy_weights, four_clusters, ipw_weights, lone_record, movement

G = math.sqrt(0.5)
INF = math.inf
# pairs found by long searches; "at least" is what they move, so the tests stay sharp
LONE = [
    (400, 1.0, INF, (-0.768, -0.641), (0.987, 0.162), (0.769, 0.639), 2.97),
    (400, 0.1, INF, (-0.939, 0.344), (0.939, -0.343), (-0.008, 0.056), 10.0),
    (400, 0.1, 1.0, (0.998, 0.058), (-0.997, -0.076), (-0.59, -0.288), 5.40),
    (4, 1.0, INF, (0.322, -0.947), (-0.322, 0.947), (0.0, 0.0), 2.30),
]
CLUSTERS = [
    (400, 0.003, 1.0, INF, (1.0, 0.956, 0.259, 0.0, 0.433, 0.719, 0.394), 16.1),
    (10_000, 0.003, 2.0, INF, (1.2042, 0.9583, 0.2956, -0.0002, 0.602, 0.8811, 0.3471), 40.0),
    (400, 0.003, 4.0, 5.0, (0.58, 0.326, 0.341, 0.045, 0.579, 0.855, 0.56), 32.2),
    (400, 0.003, 4.0, INF, (0.3694, 0.8825, 0.4707, 0.002, 0.1794, 0.9398, 0.3257), 100.0),
]
ENTROPY = [
    ("equal", 400, 3.0, INF, [((1, 1.0), 399)], (0, 1.0), (0, 0.289), 2.78),
    ("equal", 400, 1.0, INF, [((1, -1.0), 399)], (0, -1.0), (0, 0.31), 5.34),
    ("equal", 400, 0.3, INF, [((0, -1.0), 399)], (1, -1.0), (1, -0.738), 38.7),
    ("equal", 400, 0.1, 1.0, [((0, -1.0), 399)], (0, -1.0), (1, -1.0), 8.16),
    ("proportional", 400, 1.0, INF, [((0, -1.0), 202), ((1, 1.0), 197)], (0, 0.147), (1, -1.0), 3.27),
    (
        "proportional",
        400,
        0.3,
        INF,
        [((0, -1.0), 201), ((1, 1.0), 192), ((1, 0.95), 6)],
        (1, -1.0),
        (0, -1.0),
        9.87,
    ),
]


@pytest.mark.parametrize(("n", "ridge", "radius", "z", "before", "after", "at_least"), LONE)
def test_one_record_against_all_others(n, ridge, radius, z, before, after, at_least):
    unit = [np.array(point) / max(1.0, float(np.linalg.norm(point))) for point in (z, before, after)]
    moved = movement(ipw_weights(ridge, radius), lone_record(n, *unit))
    assert at_least <= moved <= logistic_propensity(n, 1.0, ridge, radius).V


@pytest.mark.parametrize(("n", "ridge", "radius", "trim", "shape", "at_least"), CLUSTERS)
def test_a_record_that_jumps_across_clusters(n, ridge, radius, trim, shape, at_least):
    moved = movement(ipw_weights(ridge, radius, trim), four_clusters(n, shape))
    assert at_least <= moved <= logistic_propensity(n, 1.0, ridge, radius, trim).V


@pytest.mark.parametrize("index", range(len(ENTROPY)))
def test_entropy_balancing_worst_cases(index):
    (n, ridge, radius, mass), moved = entropy_case(index)
    assert ENTROPY[index][-1] <= moved <= entropy_balancing(n, EntropyConstants(G, G, ridge, radius, mass)).V


def test_units_cancel():
    # lambda has the inverse units of x: the ridge scales with the square of the covariate bound
    moved = movement(ipw_weights(0.003 * 49, 1.0 / 7, bound=7.0), four_clusters(400, CLUSTERS[0][4]))
    assert 16.1 <= moved <= logistic_propensity(400, 7.0, 0.003 * 49, 1.0 / 7).V
    assert (
        pytest.approx(logistic_propensity(400, 1.0, 0.003, 1.0).V, rel=1e-9)
        == logistic_propensity(400, 7.0, 0.003 * 49, 1.0 / 7).V
    )


@pytest.mark.parametrize("kind", ["equal", "proportional"])
def test_random_small_datasets_stay_below_the_bound(kind):
    rng = np.random.default_rng(11)
    largest = 0.0
    for _ in range(150):
        n = int(rng.integers(2, 7))
        ridge, radius = 10 ** rng.uniform(-1.5, 0.7), float(rng.choice([INF, 10 ** rng.uniform(-0.5, 0.7)]))
        constant = float(rng.choice([0.0, 0.3, 1.0, 3.0]))
        points = np.column_stack([rng.integers(0, 2, n + 1), rng.choice([-1.0, 1.0], n + 1)])
        points[:, 1] *= rng.uniform(size=n + 1) ** 0.3
        pair = Pair(points[: n - 1], np.ones(n - 1), points[n - 1], points[n])
        moved = movement(entropy_weights(1.0, constant, ridge, radius, kind), pair)
        bound = entropy_balancing(n, EntropyConstants(1.0, constant, ridge, radius, kind))
        assert moved <= bound.V
        largest = max(largest, moved / bound.V)
    assert largest > 0.5


def entropy_case(index):
    mass, n, ridge, radius, points, before, after, _ = ENTROPY[index]
    common = np.array([point for point, _ in points], dtype=float)
    count = np.array([count for _, count in points], dtype=float)
    pair = Pair(common, count, np.array(before, dtype=float), np.array(after, dtype=float))
    return (n, ridge, radius, mass), movement(entropy_weights(G, G, ridge, radius, mass), pair)
