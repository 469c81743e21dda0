"""Forms of known schemes, built by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.weighting.forms.features import BallSet, ConstantSet, Features, SimilaritySet
from dp2erm_cvx.weighting.forms.form import (
    FeatureRows,
    Group,
    Imbalance,
    ImbalancePenalty,
    SumKind,
    WeightingForm,
    WeightSums,
    least_and_largest,
)

ONE = Features("one", ConstantSet(), 1)
ALL = WeightSums(SumKind.ALL)
COUNTS = WeightSums(SumKind.COUNTS)

SQUARE = Dispersion((DispersionPart("square", 0.5, 1.0, -1.0),))
ENTROPY = Dispersion((DispersionPart("entropy", 1.0),))
LOG = Dispersion((DispersionPart("log", 1.0),))


def logit(low: float, high: float) -> Dispersion:
    """The logit distance, of curvature 1 at 1."""
    scale = (1.0 - low) * (high - 1.0) / (high - low)
    return Dispersion(
        (DispersionPart("entropy", scale, 1.0, -low), DispersionPart("entropy", scale, -1.0, high))
    )


def ball(radius: float, width: int = 3, name: str = "covariates") -> Features:
    return Features(name, BallSet(radius), width)


def kernel(bound: float, *, signed: bool, width: int = 7) -> Features:
    return Features("kernel", SimilaritySet(bound, signed), width)


def rows(
    features: Features,
    weighted: Sequence[float],
    target: Sequence[float],
    matrix: Array | None = None,
    mean: Sequence[float] = (0.0, 0.0),
) -> FeatureRows:
    if matrix is None:
        matrix = np.eye(features.width)
    factors = [np.array(own, float) for own in (weighted, target, mean)]
    return FeatureRows(features, matrix, *factors)


def by_arm(features: Sequence[tuple[Features, float]]) -> tuple[Group, ...]:
    """Rows e_a (x) phi with targets (phi, phi)/2, each feature times a number."""
    groups: list[Group] = []
    for arm in (0, 1):
        for feature, size in features:
            weighted = [size * (arm == 0), size * (arm == 1)]
            groups.append((rows(feature, weighted, [size / 2, size / 2]),))
    return tuple(groups)


def imbalance(
    groups: tuple[Group, ...], penalty: ImbalancePenalty, shift: Array | None = None
) -> Imbalance:
    coordinates = sum(len(group[0].matrix) for group in groups)
    return Imbalance(groups, np.zeros(coordinates) if shift is None else shift, penalty)


def form(
    n: int,
    dispersion: Dispersion,
    imbalances: Sequence[Imbalance],
    low: float | Sequence[float] = 0.0,
    cap: float | Sequence[float] = math.inf,
    sums: WeightSums = ALL,
    **more: object,
) -> WeightingForm:
    lows = np.broadcast_to(np.array(low, float), (2,)).copy()
    caps = np.broadcast_to(np.array(cap, float), (2,)).copy()
    for name, hull, side in (("low_of", lows, 0), ("cap_of", caps, 1)):
        own = more.get(name)
        if isinstance(own, FeatureRows):
            ends = least_and_largest(own)[side]
            hull[:] = np.maximum(hull, ends) if side == 0 else np.minimum(hull, ends)
    return WeightingForm(n, dispersion, lows, caps, sums, tuple(imbalances), **more)  # type: ignore[arg-type]


def entropy_balancing(
    n: int = 400, ridge: float = 2.0, cap: float = math.inf, radius: float = math.inf
) -> WeightingForm:
    """Entropy balancing of (1, x) by arm with equal mass: ``n/(2 ridge)`` times squares of the
    mean.
    """
    groups = by_arm([(ONE, 1.0), (ball(1.0), 1.0)])
    factor = 1.0 / (2.0 * ridge * n)
    if math.isinf(radius):
        penalty = ImbalancePenalty(factor)
    else:
        # huber(|m| / n, ridge radius) with m in place of m / n
        penalty = ImbalancePenalty(factor, knee=ridge * radius * n, norm=2)
    return form(n, ENTROPY, [imbalance(groups, penalty)], cap=cap)


def stable_balancing(
    n: int = 400, ridge: float = 2.0, feature: Features | None = None
) -> WeightingForm:
    """``n ridge |w|^2`` beside squares of both arms' sums less half of the total."""
    features = [(ONE, 1.0), (ball(1.0), 1.0)] if feature is None else [(feature, 1.0)]
    dispersion = Dispersion((DispersionPart("square", n * ridge),))
    return form(n, dispersion, [imbalance(by_arm(features), ImbalancePenalty(1.0))])


def mmd(
    n: int = 400, ridge: float = 1.0, cap: float = math.inf, feature: Features | None = None
) -> WeightingForm:
    """Three-way MMD, n/2 per arm."""
    own = kernel(1.0, signed=False) if feature is None else feature
    dispersion = Dispersion((DispersionPart("square", n * ridge),))
    controls = (rows(own, [1.0, 0.0], [0.5, 0.5]),)
    treated = (rows(own, [0.0, 1.0], [0.5, 0.5]),)
    apart = (rows(own, [-1.0, 1.0], [0.0, 0.0]),)
    half = ImbalancePenalty(0.5)
    sums = WeightSums(SumKind.PUBLIC, (n / 2, n / 2))
    terms = [imbalance((controls,), half), imbalance((treated,), half), imbalance((apart,), half)]
    return form(n, dispersion, terms, cap=cap, sums=sums)


def mmd_pooled(n: int = 400, ridge: float = 1.0, feature: Features | None = None) -> WeightingForm:
    own = kernel(1.0, signed=False) if feature is None else feature
    dispersion = Dispersion((DispersionPart("square", n * ridge),))
    controls = (rows(own, [1.0, 0.0], [0.5, 0.5]),)
    treated = (rows(own, [0.0, 1.0], [0.5, 0.5]),)
    apart = (rows(own, [-1.0, 1.0], [0.0, 0.0]),)
    half = ImbalancePenalty(0.5)
    return form(
        n,
        dispersion,
        [imbalance((controls,), half), imbalance((treated,), half), imbalance((apart,), half)],
    )


def logit_calibration(
    n: int = 400, low: float = 0.1, high: float = 4.0, ridge: float = 0.5
) -> WeightingForm:
    groups = by_arm([(ONE, 1.0), (ball(1.0), 1.0)])
    penalty = ImbalancePenalty(1.0 / (2.0 * ridge * n))
    return form(n, logit(low, high), [imbalance(groups, penalty)], low=low, cap=high)


def minimal_dispersion(
    n: int = 400, tolerance: float = 0.05, ridge: float = 0.1, cap: float = 4.0
) -> WeightingForm:
    groups = by_arm([(ONE, 1.0), (ball(1.0), 1.0)])
    penalty = ImbalancePenalty(1.0 / (2.0 * ridge * n), tolerance=tolerance * n)
    return form(n, SQUARE, [imbalance(groups, penalty)], cap=cap)


def robust(n: int = 400, cap: float = 3.0, rho: float = 1.0) -> WeightingForm:
    """``|w - 1|^2 + rho |sum w_i (+-x_i)|``."""
    dispersion = Dispersion((DispersionPart("square", 1.0, 1.0, -1.0),))
    groups: tuple[Group, ...] = ((rows(ball(1.0), [-1.0, 1.0], [0.0, 0.0]),),)
    penalty = ImbalancePenalty(math.inf, norm=2, price=rho)
    return form(n, dispersion, [imbalance(groups, penalty)], cap=cap)
