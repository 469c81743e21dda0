"""Measured movement never exceeds a bound: the worst pairs of long searches, and random small datasets."""

import math

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.stability import EntropyConstants, entropy_balancing
from tests.helpers import logistic_propensity
from tests.stability.movement import INF, Pair, four_clusters, ipw, movement, program_of

G = math.sqrt(0.5)
HALF = Domain(G, 1.0)
# pairs found by long searches; "at least" is what they move, so the tests stay sharp
CLUSTERS = [
    (400, 0.003, 1.0, INF, (1.0, 0.956, 0.259, 0.0, 0.433, 0.719, 0.394), 16.1),
    (10_000, 0.003, 2.0, INF, (1.2042, 0.9583, 0.2956, -0.0002, 0.602, 0.8811, 0.3471), 40.0),
    (400, 0.003, 4.0, 5.0, (0.58, 0.326, 0.341, 0.045, 0.579, 0.855, 0.56), 32.2),
    (400, 0.003, 4.0, INF, (0.3694, 0.8825, 0.4707, 0.002, 0.1794, 0.9398, 0.3257), 100.0),
]
#: Size, ridge, radius and trim, the pair, and what it moves at least.
LOGISTIC = [
    *((*case[:4], four_clusters(case[0], case[4]), case[5]) for case in CLUSTERS),
    (400, 1.0, INF, INF, Pair.of([((1, -0.768, -0.641), 399)], (1, 0.987, 0.162), (1, 0.769, 0.639)), 2.97),
    (400, 0.1, INF, INF, Pair.of([((1, -0.939, 0.344), 399)], (0, -0.939, 0.343), (1, -0.008, 0.056)), 10.0),
    (400, 0.1, 1.0, INF, Pair.of([((1, 0.998, 0.058), 399)], (1, -0.997, -0.076), (1, -0.59, -0.288)), 5.4),
    (4, 1.0, INF, INF, Pair.of([((1, 0.322, -0.947), 3)], (0, 0.322, -0.947), (1, 0.0, 0.0)), 2.30),
]
#: Arm masses, ridge and radius, the pair of 400 records, and what it moves at least.
ENTROPY = [
    ("equal", 3.0, INF, Pair.of([((1, G), 399)], (0, G), (0, 0.289 * G)), 2.78),
    ("equal", 1.0, INF, Pair.of([((1, -G), 399)], (0, -G), (0, 0.31 * G)), 5.34),
    ("equal", 0.3, INF, Pair.of([((0, -G), 399)], (1, -G), (1, -0.738 * G)), 38.7),
    ("equal", 0.1, 1.0, Pair.of([((0, -G), 399)], (0, -G), (1, -G)), 8.16),
    ("proportional", 1.0, INF, Pair.of([((0, -G), 202), ((1, G), 197)], (0, 0.147 * G), (1, -G)), 3.27),
    (
        "proportional",
        *(0.3, INF),
        Pair.of([((0, -G), 201), ((1, G), 192), ((1, 0.95 * G), 6)], (1, -G), (0, -G)),
        9.87,
    ),
]


@pytest.mark.parametrize(("n", "ridge", "radius", "trim", "pair", "at_least"), LOGISTIC)
def test_worst_cases_of_a_logistic_propensity(n, ridge, radius, trim, pair, at_least):
    moved = movement(ipw(ridge, radius, trim), pair)
    assert at_least <= moved <= logistic_propensity(n, 1.0, ridge, radius, trim).V


def entropy(mass, ridge, radius, constant=G):
    return program_of("entropy_balancing", arm_mass=mass, ridge=ridge, radius=radius, constant=constant)


@pytest.mark.parametrize(("mass", "ridge", "radius", "pair", "at_least"), ENTROPY)
def test_worst_cases_of_entropy_balancing(mass, ridge, radius, pair, at_least):
    moved = movement(entropy(mass, ridge, radius), pair, HALF)
    assert at_least <= moved <= entropy_balancing(400, EntropyConstants(G, G, ridge, radius, mass)).V


def test_units_cancel():
    # lambda has the inverse units of x: the ridge scales with the square of the covariate bound
    large, small = (logistic_propensity(400, b, 0.003 * b**2, 1.0 / b).V for b in (7.0, 1.0))
    assert large == pytest.approx(small, rel=1e-9)


@pytest.mark.parametrize("kind", ["equal", "proportional"])
def test_random_small_datasets_stay_below_the_bound(kind):
    rng = np.random.default_rng(11)
    largest = 0.0
    for _ in range(80):
        n = int(rng.integers(2, 7))
        ridge, radius = 10 ** rng.uniform(-1.5, 0.7), float(rng.choice([INF, 10 ** rng.uniform(-0.5, 0.7)]))
        constant = float(rng.choice([1e-9, 0.3, 1.0, 3.0]))
        points = np.column_stack([rng.integers(0, 2, n + 1), rng.choice([-1.0, 1.0], n + 1)])
        points[:, 1] *= rng.uniform(size=n + 1) ** 0.3
        pair = Pair(points[: n - 1], np.ones(n - 1), points[n - 1], points[n])
        moved = movement(entropy(kind, ridge, radius, constant), pair)
        bound = entropy_balancing(n, EntropyConstants(1.0, constant, ridge, radius, kind))
        assert moved <= bound.V
        largest = max(largest, moved / bound.V)
    assert largest > 0.5
