"""Forms whose bounds are attacked, with the floors of their universes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.weighting.forms.features import Features, IntervalSet
from dp2erm_cvx.weighting.forms.form import (
    FeatureRows,
    Group,
    ImbalancePenalty,
    SumKind,
    WeightingForm,
    WeightSums,
)
from tests.weighting.forms import (
    ALL,
    COUNTS,
    ENTROPY,
    LOG,
    ONE,
    SQUARE,
    ball,
    by_arm,
    form,
    imbalance,
    kernel,
    mmd,
    mmd_pooled,
    rows,
)

X = ball(1.0, 2)
CONTROLS = WeightSums(SumKind.CONTROLS)
TREATED = WeightSums(SumKind.TREATED)

#: A form and the floors of its universe.
Family = tuple[WeightingForm, tuple[int, int]]


def squares(rho: float, n: int) -> ImbalancePenalty:
    """``n rho |m/n|^2 / 2`` of the imbalance m."""
    return ImbalancePenalty(rho / (2.0 * n))


def halves(n: int) -> WeightSums:
    return WeightSums(SumKind.PUBLIC, (n / 2, n / 2))


def plain(n: int, dispersion: Dispersion, rho: float, **more: object) -> WeightingForm:
    """Rows x, no target."""
    groups = ((rows(X, [1.0, 1.0], [0.0, 0.0]),),)
    return form(n, dispersion, [imbalance(groups, squares(rho, n))], **more)  # type: ignore[arg-type]


def arms(n: int, dispersion: Dispersion, rho: float, **more: object) -> WeightingForm:
    """Rows e_a (x) (1, x), targets (g, g)/2."""
    groups = by_arm([(ONE, 1.0), (X, 1.0)])
    return form(n, dispersion, [imbalance(groups, squares(rho, n))], **more)  # type: ignore[arg-type]


def sided(
    n: int, dispersion: Dispersion, rho: float, sums: WeightSums, **more: object
) -> WeightingForm:
    """Controls balanced to the treated, or to all records."""
    if sums is TREATED:
        groups = ((rows(X, [1.0, -1.0], [0.0, 0.0]),),)
    else:
        groups = ((rows(X, [1.0, 0.0], [0.5, 0.5]),),)
    terms = [imbalance(groups, squares(rho, n))]
    return form(n, dispersion, terms, sums=sums, **more)  # type: ignore[arg-type]


def to_an_arm(
    n: int,
    dispersion: Dispersion,
    rho: float,
    sums: WeightSums,
    rows_of: tuple[float, float],
    **more: object,
) -> WeightingForm:
    """Rows times factors by arm, balanced to the mean of the treated."""
    groups = ((rows(X, rows_of, [0.0, 0.0], mean=[0.0, 1.0]),),)
    return form(n, dispersion, [imbalance(groups, squares(rho, n))], sums=sums, **more)  # type: ignore[arg-type]


def to_both_arms(n: int, dispersion: Dispersion, rho: float, **more: object) -> WeightingForm:
    """Rows x, balanced to the middle of the means of both arms, whatever their sizes."""
    groups = ((rows(X, [1.0, 1.0], [0.0, 0.0], mean=[0.5, 0.5]),),)
    return form(n, dispersion, [imbalance(groups, squares(rho, n))], **more)  # type: ignore[arg-type]


def matched(n: int, rho: float, cap: float, *, to_points: bool) -> WeightingForm:
    """Features of a kernel: of all records to public points, or of the controls to the treated."""
    features = kernel(1.0, signed=False, width=3)
    if to_points:
        points = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
        features = replace(features, points=points)
        own = replace(rows(features, [1.0, 1.0], [0.0, 0.0]), public=1.0)
        sums = ALL
    else:
        own = rows(features, [1.0, 0.0], [0.0, 0.0], mean=[0.0, 1.0])
        sums = CONTROLS
    return form(n, SQUARE, [imbalance(((own,),), squares(rho, n))], cap=cap, sums=sums)


def moved_target(n: int, rho: float, cap: float) -> WeightingForm:
    """Rows x and targets -y in the same coordinates."""
    tau = ball(1.0, 2, "targets")
    group = (rows(X, [1.0, 1.0], [0.0, 0.0]), rows(tau, [0.0, 0.0], [-1.0, -1.0]))
    return form(n, SQUARE, [imbalance((group,), squares(rho, n))], cap=cap)


BASE = Features("base", IntervalSet(0.5, 2.0), 1)
NARROW = Features("base", IntervalSet(0.8, 1.25), 1)
CAP = Features("cap", IntervalSet(1.2, 3.0), 1)
FLOOR = Features("floor", IntervalSet(0.0, 0.5), 1)


def end(features: Features, factor: float = 1.0) -> FeatureRows:
    """Ends of boxes that are multiples of a number of each record."""
    return rows(features, [1.0, 1.0], [0.0, 0.0], factor * np.eye(1))


PULL = Features("pull", IntervalSet(-1.0, 1.0), 1)

FAMILIES: dict[str, Family] = {
    "square, one sum, cap 4": (plain(201, SQUARE, 9.0, cap=4.0), (0, 0)),
    "entropy, one sum, cap 3": (plain(201, ENTROPY, 10.0, cap=3.0), (0, 0)),
    "square, rows by arm, cap 3": (arms(201, SQUARE, 10.0, cap=3.0), (0, 0)),
    "entropy, rows by arm, cap 3": (arms(201, ENTROPY, 10.0, cap=3.0), (0, 0)),
    "square, rows by arm": (arms(41, SQUARE, 0.5), (0, 0)),
    "entropy, rows by arm": (arms(41, ENTROPY, 1.0), (0, 0)),
    "log, from .1 to 4": (plain(101, LOG, 10.0, low=0.1, cap=4.0), (0, 0)),
    "square, public sums, cap 3": (arms(100, SQUARE, 10.0, cap=3.0, sums=halves(100)), (25, 25)),
    "square, public sums": (arms(40, SQUARE, 1.0, sums=halves(40)), (8, 8)),
    "entropy, arm sizes, cap 3": (arms(101, ENTROPY, 10.0, cap=3.0, sums=COUNTS), (0, 0)),
    "entropy, arm sizes": (arms(41, ENTROPY, 0.5, sums=COUNTS), (0, 0)),
    "square, as many as treated, cap 4": (sided(101, SQUARE, 3.0, TREATED, cap=4.0), (30, 20)),
    "entropy, as many as treated": (sided(41, ENTROPY, 1.0, TREATED), (10, 15)),
    "square, controls, cap 4": (sided(101, SQUARE, 3.0, CONTROLS, cap=4.0), (30, 20)),
    "square, controls": (sided(41, SQUARE, 1.0, CONTROLS), (10, 5)),
    "entropy, base weights": (plain(101, ENTROPY, 10.0, cap=4.0, base=BASE), (0, 0)),
    "square, base weights": (plain(101, SQUARE, 10.0, cap=4.0, base=BASE), (0, 0)),
    "entropy, base weights without a cap": (plain(41, ENTROPY, 0.3, base=NARROW), (0, 0)),
    "square, base weights, rows by arm": (arms(41, SQUARE, 0.3, base=NARROW), (0, 0)),
    "entropy, base weights, public sums": (
        arms(40, ENTROPY, 0.5, sums=halves(40), base=NARROW),
        (8, 8),
    ),
    "square, caps of records": (plain(101, SQUARE, 9.0, cap_of=end(CAP)), (0, 0)),
    "entropy, boxes of records": (
        arms(101, ENTROPY, 10.0, low=0.1, low_of=end(FLOOR), cap_of=end(CAP, 2.0)),
        (0, 0),
    ),
    "square, public sums, boxes of records": (
        arms(100, SQUARE, 10.0, sums=halves(100), low_of=end(FLOOR), cap_of=end(CAP, 2.0)),
        (40, 40),
    ),
    "square, controls, caps of records": (
        sided(101, SQUARE, 3.0, CONTROLS, cap_of=end(CAP, 3.0)),
        (50, 5),
    ),
    "square, linear terms, cap 4": (
        plain(101, SQUARE, 10.0, cap=4.0, linear=rows(PULL, [1.0, 1.0], [0.0, 0.0])),
        (0, 0),
    ),
    "entropy, linear terms": (
        plain(41, ENTROPY, 0.3, linear=rows(PULL, [0.3, 0.3], [0.0, 0.0])),
        (0, 0),
    ),
    "square, public sums, linear terms": (
        arms(40, SQUARE, 0.5, sums=halves(40), linear=rows(PULL, [0.3, 0.3], [0.0, 0.0])),
        (8, 8),
    ),
    "kernel, pooled": (mmd_pooled(41, 1.0, kernel(1.0, signed=False, width=3)), (0, 0)),
    "kernel, by arm, cap 3": (mmd(40, 0.1, 3.0, kernel(1.0, signed=True, width=3)), (14, 14)),
    "kernel, to public points": (matched(41, 0.5, math.inf, to_points=True), (0, 0)),
    "kernel, to public points, cap 3": (matched(101, 9.0, 3.0, to_points=True), (0, 0)),
    "kernel, controls to the mean of the treated, cap 4": (
        matched(101, 3.0, 4.0, to_points=False),
        (30, 5),
    ),
    "kernel, controls to the mean of the treated": (
        matched(41, 1.0, math.inf, to_points=False),
        (10, 2),
    ),
    "square, targets of their own, cap 3": (moved_target(201, 9.0, 3.0), (0, 0)),
    "square, controls to the mean of the treated, cap 4": (
        to_an_arm(101, SQUARE, 3.0, CONTROLS, (1.0, 0.0), cap=4.0),
        (30, 5),
    ),
    "entropy, controls to the mean of the treated": (
        to_an_arm(41, ENTROPY, 1.0, CONTROLS, (1.0, 0.0)),
        (10, 1),
    ),
    "square, all to the mean of the treated, cap 3": (
        to_an_arm(101, SQUARE, 9.0, ALL, (1.0, 1.0), cap=3.0),
        (0, 2),
    ),
    "square, as many as treated, to their mean, cap 4": (
        to_an_arm(101, SQUARE, 3.0, TREATED, (2.0, 0.0), cap=4.0),
        (30, 20),
    ),
    "square, both means, cap 3": (to_both_arms(101, SQUARE, 9.0, cap=3.0), (3, 2)),
    "entropy, both means and arm sizes": (to_both_arms(41, ENTROPY, 1.0, sums=COUNTS), (2, 3)),
}


def drawn_family(generator: np.random.Generator) -> tuple[WeightingForm, tuple[int, int]]:
    """A form of squares with drawn sums, rows, boxes and targets; some have datasets without
    weights.
    """
    n = int(generator.choice([12, 25, 60, 150]))
    features = ball(1.0, int(generator.choice([1, 2, 3])))
    place = int(generator.integers(3))
    dispersion = (SQUARE, ENTROPY, LOG)[place]
    kind = list(SumKind)[int(generator.integers(len(SumKind)))]
    public = (0.5 * n, 0.5 * n) if generator.random() < 0.5 else (0.3 * n, 0.7 * n)
    sums = WeightSums(kind, public if kind is SumKind.PUBLIC else None)
    low = float(generator.choice([0.02, 0.1, 0.5] if dispersion is LOG else [0.0, 0.0, 0.1, 0.5]))
    cap = float(generator.choice([1.3, 2.0, 3.0, 6.0, math.inf, math.inf]))
    choices: list[tuple[Group, ...]] = [
        by_arm([(ONE, 0.5), (features, 1.0)]),
        ((rows(features, [-1.0, 1.0], [0.0, 0.0]),),),
        ((rows(features, [1.0, 1.0], [0.0, 0.0]),),),
        ((rows(features, [1.0, 0.0], [0.5, 0.5]),), (rows(features, [1.0, 1.0], [1.0, 1.0]),)),
    ]
    if kind is SumKind.TREATED:
        choices = [
            ((rows(features, [1.0, -1.0], [0.0, 0.0]),),),
            ((rows(features, [1.0, 0.0], [0.0, 1.0]),),),
        ]
    least_floor = 0
    if generator.random() < 0.3:
        least_floor = 1
        mean = [[0.0, 1.0], [0.5, 0.5], [-0.3, 0.7]][int(generator.integers(3))]
        weighted = [1.0, float(generator.integers(2))]
        choices = [((rows(features, weighted, [0.1, -0.2], mean=mean),),)]
    groups = choices[int(generator.integers(len(choices)))]
    coordinates = sum(len(group[0].matrix) for group in groups)
    shift = generator.standard_normal(coordinates) * 0.2 * n * (generator.random() < 0.3)
    terms = [imbalance(groups, squares(float(10.0 ** generator.uniform(-1.5, 2.0)), n), shift)]
    more: dict[str, object] = {}
    if generator.random() < 0.2:
        more["linear"] = rows(PULL, [0.5, -0.25], [0.0, 0.0])
    elif generator.random() < 0.2 and kind in (SumKind.ALL, SumKind.PUBLIC, SumKind.COUNTS):
        more["base"] = BASE
    if generator.random() < 0.3:
        more["cap_of"] = end(CAP, float(generator.choice([1.0, 2.0])))
        if generator.random() < 0.5:
            more["low_of"] = end(FLOOR)
    drawn = form(n, dispersion, terms, low=low, cap=cap, sums=sums, **more)
    floors = generator.integers(least_floor, n // 3, 2)
    return drawn, (int(floors[0]), int(floors[1]))
