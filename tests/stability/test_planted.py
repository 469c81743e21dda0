"""One registry of planted errors: neighbors that exceed each of them, and not the right bound."""

import math
from collections.abc import Callable
from unittest import mock

import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.stability import (
    EntropyConstants,
    KernelConstants,
    entropy_balancing,
    entropy_balancing_paper_scaling,
    kernel_balancing,
    pooled_kernel_balancing,
)
from tests.helpers import logistic_propensity, planted_diameters
from tests.stability.movement import Pair, ipw, movement, scaled_entropy
from tests.stability.test_entropy import extremes
from tests.stability.test_kernel import WORST, balancing, of_features
from tests.stability.test_movement import CLUSTERS, ENTROPY, HALF, LOGISTIC, G
from tests.stability.test_movement import entropy as entropy_program
from tests.stability.test_separable import ridge_regression_bound, ridge_regression_movement

KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT
#: What a pair of neighbors moves, the right bound, and V as a planted error would state it.
Planted = tuple[float, StabilityBound, float]


def without_one_weight(moved: float, right: StabilityBound) -> Planted:
    return moved, right, right.V - right.w_max


def clusters(case: int) -> tuple[float, StabilityBound]:
    n, ridge, radius, trim, pair, _ = LOGISTIC[case]
    return movement(ipw(ridge, radius, trim), pair), logistic_propensity(n, 1.0, ridge, radius, trim)


def half_a_diameter() -> Planted:
    n, ridge, radius, trim, *_ = CLUSTERS[0]
    moved, right = clusters(0)
    with planted_diameters(0.5):
        return moved, right, logistic_propensity(n, 1.0, ridge, radius, trim).V


def entropy(index: int, factor: float = 1.0) -> tuple[float, StabilityBound]:
    mass, ridge, radius, pair, _ = ENTROPY[index]
    moved = movement(entropy_program(mass, ridge, radius), pair, HALF)
    return moved, entropy_balancing(400, EntropyConstants(G, G, factor * ridge, radius, mass))


def scaled(ridge: float, floor: int, ends: Pair, factor: float = 1.0) -> tuple[float, StabilityBound]:
    moved = movement(scaled_entropy(ridge), ends, Domain(1.0, 1.0, arm_floor=floor))
    return moved, entropy_balancing_paper_scaling(400, factor * ridge, floor)


ONE_POINT = Pair.of([((0, 1.0, 0.0), 199), ((1, 1.0, 0.0), 200)], (0, 1.0, 0.0), (0, -1.0, 0.0))
CORNERS = extremes(0.26, 100, 400, (1.0, 0.0, -1.0, 0.0))


def per_arm(case: int) -> tuple[float, float]:
    _, ridge, pair, _ = WORST[case]
    return movement(balancing(400, ridge, pooled=False), pair), ridge


def arms(ridge: float, n: int = 400, relation: Neighboring = Neighboring.REPLACE_ONE) -> StabilityBound:
    return kernel_balancing(n, KernelConstants(1.0, ridge), n // 4, relation=relation)


def flips_of_a_kernel() -> Planted:
    ends = of_features([(1, (1,), 25), (0, (1,), 74)], (1, (1,)), (0, (1,)))
    moved = movement(balancing(100, 1e5, pooled=False), ends)
    return moved, arms(1e5, 100), arms(1e5, 100, KEEP).V


def uniform_weight() -> Planted:
    moved, ridge = per_arm(0)
    right = arms(ridge)
    with mock.patch.object(KernelConstants, "arm_weight", lambda _, size, n: 1.0 / size):
        return moved, right, arms(ridge).V


def pooled() -> Planted:
    _, ridge, pair, _ = WORST[-1]
    moved = movement(balancing(400, ridge, pooled=True), pair)
    return without_one_weight(moved, pooled_kernel_balancing(400, KernelConstants(1.0, ridge)))


def least_squares() -> Planted:
    pair = Pair.of([((1.0, 1.0), 400)], (0.0, 1.0), (0.0, 1.0))
    moved = ridge_regression_movement(5.0, math.inf, 1.0, pair)
    return without_one_weight(moved, ridge_regression_bound(401, 5.0, math.inf, 1.0))


def by_root_n(case: int) -> Planted:
    moved, right = clusters(case)
    return moved, right, right.V / math.sqrt(CLUSTERS[case][0])


PLANTED: dict[str, Callable[[], Planted]] = {
    "logistic: a flip forgotten": half_a_diameter,
    **{f"logistic {k}: divided by root n": lambda k=k: by_root_n(k) for k in range(4)},
    **{f"entropy {k}: half the ridge": lambda k=k: (*entropy(k), entropy(k, 2.0)[1].V) for k in range(3)},
    "entropy: one weight lost": lambda: without_one_weight(*entropy(1)),
    # the ridge belongs to rows of norm at most 1; rows 20 times as long need one 400 times larger
    "scaled: ridge of unscaled rows": lambda: (
        *scaled(0.3, 100, CORNERS),
        scaled(0.3, 100, CORNERS, 400.0)[1].V,
    ),
    "scaled: one weight lost": lambda: without_one_weight(*scaled(50.0, 200, ONE_POINT)),
    # at a large ridge a flip moves more than any change that keeps the treatment
    "kernel: flips forgotten": flips_of_a_kernel,
    # the ridge is on ||p||^2, and not on ||w||^2 = (n/2)^2 ||p||^2
    "kernel: ridge on the weights": lambda: (per_arm(1)[0], arms(100.0), arms(100.0 * 200**2).V),
    "kernel: the changed weight is uniform": uniform_weight,
    "pooled kernel: one weight lost": pooled,
    "least squares: one weight lost": least_squares,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bound_is_exceeded_and_the_right_one_is_not(bug: str) -> None:
    moved, right, wrong = PLANTED[bug]()
    assert wrong < moved <= right.V
