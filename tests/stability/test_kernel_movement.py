"""Theorems 5 and 6: measured movement with flips never exceeds the bound, planted wrong bounds do."""

from __future__ import annotations

import numpy as np
import pytest

from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.stability import KernelConstants, kernel, kernel_balancing, pooled_kernel_balancing
from tests.stability.kernel_movement import Groups, movement
from tests.stability.search_pairs import uphill

KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT

# features of the groups, their arms and counts; then the changed record before and after; found by searches
PER_ARM = [
    (
        20.0,
        [[0, 0, 1], [0.912, 0.411, 0.011], [0.903, 0.001, 0.43]],
        [1, 0, 0],
        [147, 251, 1],
        ([0.867, 0.499, 0], 1),
        ([0.039, 0.1, 0.923], 0),
        55.0,
    ),
    (100.0, [[0, 1, 0], [0.86, 0, 0.51]], [0, 1], [296, 103], ([0.86, 0, 0.51], 0), ([0, 1, 0], 1), 16.5),
    (400.0, [[0, 0, 1], [0.85, 0.527, 0]], [1, 0], [100, 299], ([0, 0, 1], 0), ([0.85, 0.527, 0], 1), 7.9),
    (4000.0, [[0, 0, 1], [0.85, 0.527, 0]], [1, 0], [100, 299], ([0, 0, 1], 0), ([0.85, 0.527, 0], 1), 5.4),
]
POOLED = [
    (
        100.0,
        [[0.89, 0.21, 0.4], [0.49, 0.27, 0.83], [0.9, 0.07, 0.42]],
        [0, 0, 0],
        [168, 227, 4],
        ([0.15, 0.3, 0.94], 1),
        ([0.98, 0.14, 0.12], 1),
        14.8,
    ),
    (
        400.0,
        [[0.43, 0.86, 0.28], [0.16, 0.88, 0.43]],
        [1, 1],
        [246, 153],
        ([0.12, 0.89, 0.43], 0),
        ([0.6, 0.77, 0.18], 0),
        4.9,
    ),
    (8000.0, [[1, 0], [1, 0]], [1, 1], [271, 128], ([0, 1], 1), ([1, 0], 0), 2.14),
]


def pair(features, arms, count, before, after):
    features = np.array(features, dtype=float)
    both = []
    for point, arm in (before, after):
        rows = np.vstack([features, point])
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        both.append(Groups(rows, np.append(arms, arm), np.append(count, 1.0)))
    return both


@pytest.mark.parametrize("case", PER_ARM)
def test_worst_cases_per_arm(case):
    ridge, *shape, at_least = case
    moved, w, v = movement(*pair(*shape), ridge, 0.5)
    bound = kernel_balancing(400, KernelConstants(1.0, ridge), 100)
    assert at_least <= moved <= bound.V
    assert max(w.max(), v.max()) <= bound.w_max


@pytest.mark.parametrize("case", POOLED)
def test_worst_cases_pooled(case):
    ridge, *shape, at_least = case
    moved, w, v = movement(*pair(*shape), ridge, 0.5, pooled=True)
    bound = pooled_kernel_balancing(400, KernelConstants(1.0, ridge))
    assert at_least <= moved <= bound.V
    assert max(w.max(), v.max()) <= bound.w_max


def random_shape(rng):
    """Two to four groups of nonnegative features with random counts, and a changed record."""
    k, dim = int(rng.integers(2, 5)), 3
    features = np.abs(rng.normal(size=(k + 2, dim))) * (rng.random((k + 2, dim)) < 0.6) + 1e-6
    return features, rng.integers(0, 2, k), rng.dirichlet(np.full(k, 0.5)), rng.integers(0, 2, 2)


def nearby_shape(rng, shape, step):
    features, arms, share, flip = shape
    moved = features + step * rng.normal(size=features.shape) * (rng.random(features.shape) < 0.3)
    flip = rng.integers(0, 2, 2) if rng.random() < 0.1 else flip
    return moved, arms, share * np.exp(step * rng.normal(size=len(share))), flip


def shape_movement(n, floor, ridge, alpha, pooled, shape):
    """Movement of a shape, 0 where it does not fit the universe."""
    features, arms, share, flip = shape
    count = np.maximum(1.0, np.rint(share / share.sum() * (n - 1)))
    count[np.argmax(count)] += n - 1 - count.sum()
    treated = count[arms == 1].sum() + flip
    if count.min() < 1 or (not pooled and np.minimum(treated, n - treated).min() < floor):
        return 0.0
    features = np.abs(features) / np.linalg.norm(features, axis=1, keepdims=True)
    ends = [(features[-2], flip[0]), (features[-1], flip[1])]
    return movement(*pair(features[:-2], arms, count, *ends), ridge, alpha, pooled)[0]


def climb(n, floor, ridge, alpha, pooled, seed, rounds):
    """Largest movement found by random starts followed by random steps uphill."""
    rng = np.random.default_rng(seed)
    largest = 0.0
    for _ in range(rounds):
        found, _ = uphill(
            lambda shape: shape_movement(n, floor, ridge, alpha, pooled, shape),
            [random_shape(rng) for _ in range(30)],
            lambda shape, step: nearby_shape(rng, shape, step),
            steps=120,
            step=0.3,
        )
        largest = max(largest, found)
    return largest


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("n", "ridge"), [(20, 20.0), (400, 100.0), (400, 4000.0)])
@pytest.mark.parametrize("pooled", [False, True])
def test_search_stays_below_the_bound(pooled, n, ridge, alpha):
    found = climb(n, n // 4, ridge, alpha, pooled, seed=n, rounds=1)
    free = pooled_kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha))
    assert (
        2.0
        < found
        <= (free if pooled else kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha), n // 4)).V
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_long_search_stays_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    n, pooled, alpha = (
        int(rng.choice([6, 20, 100, 400, 10_000])),
        bool(seed % 2),
        float(rng.choice([0, 0.5, 1])),
    )
    ridge, floor = n * 10 ** rng.uniform(-1.5, 1.5), max(2, int(n * rng.choice([0.02, 0.1, 0.25, 0.5])))
    found = climb(n, floor, ridge, alpha, pooled, seed, rounds=40)
    free = pooled_kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha))
    assert (
        found <= (free if pooled else kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha), floor)).V
    )


def random_pair(rng, signed):
    """Small datasets: random directions, or repeated orthogonal points, which make the extreme cases."""
    n, dim = int(rng.integers(4, 11)), int(rng.integers(1, 4))
    F = rng.normal(size=(n + 1, dim))
    if rng.random() < 0.5:
        F = np.eye(dim)[rng.integers(0, dim, n + 1)] * rng.choice([-1.0, 1.0], (n + 1, 1))
    F = F if signed else np.abs(F)
    F /= np.linalg.norm(F, axis=1, keepdims=True)
    arm = rng.integers(0, 2, n + 1)
    sets = np.arange(n), np.append(np.arange(n - 1), n)
    before, after = (Groups(F[rows], arm[rows], np.ones(n)) for rows in sets)
    floor = min(np.bincount(arm[rows], minlength=2).min() for rows in sets)
    return n, before, after, int(floor), arm[-1] != arm[-2]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
def test_random_small_datasets_stay_below_the_bound(signed, pooled):
    rng = np.random.default_rng(17)
    largest = flips = 0.0
    for _ in range(600):
        n, before, after, floor, flip = random_pair(rng, signed)
        if not pooled and floor < 2:
            continue
        ridge, alpha = n * 10 ** rng.uniform(-1, 1.5), float(rng.choice([0.0, 0.5, 1.0, rng.random()]))
        moved, w, v = movement(before, after, ridge, alpha, pooled)
        if pooled:
            bound = pooled_kernel_balancing(n, KernelConstants(1.0, ridge, alpha=alpha, signed=signed))
        else:
            relation = Neighboring.REPLACE_ONE if flip else KEEP
            bound = kernel_balancing(
                n, KernelConstants(1.0, ridge, alpha=alpha, signed=signed), floor, relation=relation
            )
        assert moved <= bound.V
        assert max(w.max(), v.max()) <= bound.w_max
        flips += flip
        if bound.V < 2 * n:
            largest = max(largest, moved / bound.V)
    assert largest > 0.7
    assert flips > 100


def test_planted_bug_flips_forgotten():
    # at a large ridge a flip moves more than any change that keeps the treatment
    ridge = 1e5
    count = [25, 74]
    before, after = pair([[1.0], [1.0]], [1, 0], count, ([1.0], 1), ([1.0], 0))
    moved = movement(before, after, ridge, 0.5)[0]
    assert (
        kernel_balancing(100, KernelConstants(1.0, ridge), 25, relation=KEEP).V
        < moved
        <= kernel_balancing(100, KernelConstants(1.0, ridge), 25).V
    )


def test_planted_bug_ridge_on_the_weights():
    # the ridge is on ||p||^2; read as a ridge on ||w||^2 = (n/2)^2 ||p||^2 the bound is far too small
    ridge, *shape, _ = PER_ARM[1]
    moved = movement(*pair(*shape), ridge, 0.5)[0]
    assert kernel_balancing(400, KernelConstants(1.0, ridge * 200**2), 100).V < moved


def test_planted_bug_one_weight_of_the_changed_record_lost():
    ridge, *shape, _ = POOLED[2]
    moved = movement(*pair(*shape), ridge, 0.5, pooled=True)[0]
    bound = pooled_kernel_balancing(400, KernelConstants(1.0, ridge))
    assert bound.V - bound.w_max < moved


def test_planted_bug_weight_of_the_changed_record_taken_as_uniform(monkeypatch):
    ridge, *shape, _ = PER_ARM[0]
    moved = movement(*pair(*shape), ridge, 0.5)[0]
    monkeypatch.setattr(kernel.UnitKernel, "arm_weight", lambda _, size: 1.0 / size)
    assert kernel_balancing(400, KernelConstants(1.0, ridge), 100).V < moved
