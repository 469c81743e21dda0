"""Brute force: measured movement never exceeds a bound, and planted wrong bounds are exceeded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.stability import EntropyConstants, entropy_balancing, logistic, logistic_propensity
from tests.stability.movement import Pair, entropy_weights, four_clusters, ipw_weights, lone_record, movement
from tests.stability.search_pairs import uphill

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


def search_ipw(n, ridge, radius, trim, start, evaluations, seed):
    """Largest movement found over the shape of four clusters."""
    fit = ipw_weights(ridge, radius, trim)
    rng = np.random.default_rng(seed)

    def value(shape):
        if not (0 < shape[5] < 1 and max(abs(shape[2]), abs(shape[3])) < 1):
            return 0.0
        pair = four_clusters(n, shape)
        return 0.0 if (pair.count <= 0).any() else movement(fit, pair)

    def near(shape, step):
        return shape * np.exp(step * rng.normal(size=7))

    return uphill(value, [near(np.array(start), 0.2)], near, evaluations, step=0.2)[0]


@pytest.mark.parametrize(
    ("n", "ridge", "radius", "trim"),
    [(10, 0.01, INF, INF), (50, 0.003, 2.0, INF), (400, 0.003, 4.0, 5.0), (400, 0.03, INF, 1.6)],
)
def test_search_stays_below_the_bound(n, ridge, radius, trim):
    start = (0.8, 0.8, 0.3, 0.02, 0.4, 0.7, 0.4)
    found = search_ipw(n, ridge, radius, trim, start, 150, seed=n)
    bound = logistic_propensity(n, 1.0, ridge, radius, trim).V
    assert 2.0 < found <= bound


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


def test_planted_bug_flip_forgotten(monkeypatch):
    # half the diameter is what a bound gets that lets the record keep its side
    n, ridge, radius, trim, shape, _ = CLUSTERS[0]
    moved = movement(ipw_weights(ridge, radius, trim), four_clusters(n, shape))
    right = logistic.logistic_diameter
    monkeypatch.setattr(logistic, "logistic_diameter", lambda margin: right(margin) / 2)
    assert moved > logistic_propensity(n, 1.0, ridge, radius, trim).V


def entropy_case(index):
    mass, n, ridge, radius, points, before, after, _ = ENTROPY[index]
    common = np.array([point for point, _ in points], dtype=float)
    count = np.array([count for _, count in points], dtype=float)
    pair = Pair(common, count, np.array(before, dtype=float), np.array(after, dtype=float))
    return (n, ridge, radius, mass), movement(entropy_weights(G, G, ridge, radius, mass), pair)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_planted_bug_entropy_ridge_convention(index):
    # (ridge / 2) ||lam||^2 mistaken for ridge ||lam||^2
    (n, ridge, radius, mass), moved = entropy_case(index)
    assert moved > entropy_balancing(n, EntropyConstants(G, G, 2 * ridge, radius, mass)).V


def test_planted_bug_entropy_one_weight_of_the_changed_record_lost():
    (n, ridge, radius, mass), moved = entropy_case(1)
    bound = entropy_balancing(n, EntropyConstants(G, G, ridge, radius, mass))
    assert bound.V - bound.w_max < moved


@pytest.mark.parametrize("case", CLUSTERS)
def test_planted_bug_divided_by_root_n(case):
    n, ridge, radius, trim, shape, _ = case
    moved = movement(ipw_weights(ridge, radius, trim), four_clusters(n, shape))
    assert logistic_propensity(n, 1.0, ridge, radius, trim).V / math.sqrt(n) < moved


def test_weights_reach_their_largest_value():
    # w_max is nearly attained by one record against all others, trimmed or not
    for n, ridge, trim in ((3, 1.1683, INF), (400, 0.1, INF), (400, 0.1, 4.0), (4, 3.1, INF)):
        bound = logistic_propensity(n, 1.0, ridge, trim=trim).w_max
        fit = ipw_weights(ridge, trim=trim)
        grid = np.linspace(0.0, 1.0, 81)
        count = np.array([n - 1.0, 1.0])
        seen = max(fit(np.array([[z], [-u]]), count)[1] for z in (1.0, 0.9) for u in grid)
        assert seen <= bound
        assert seen >= 0.97 * bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_long_search_stays_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([6, 10, 20, 50, 400, 10_000]))
    ridge = 10 ** rng.uniform(-4, 0)
    radius = float(rng.choice([INF, 1.0, 10 ** rng.uniform(-0.5, 0.7)]))
    trim = float(rng.choice([INF, 1.3, 2.0, 3.0, 5.0, 10.0]))
    found = search_ipw(n, ridge, radius, trim, (0.8, 0.8, 0.3, 0.02, 0.4, 0.7, 0.4), 500, seed)
    assert found <= logistic_propensity(n, 1.0, ridge, radius, trim).V
