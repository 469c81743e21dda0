"""Suprema over the public sets of records: above every drawn record, and close to what is
attained.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.bounds import diameters
from dp2erm_cvx.weighting.bounds.diameters import (
    RecordCombinations,
    ScaledImbalance,
    largest_products,
    largest_squares,
)
from dp2erm_cvx.weighting.forms.features import (
    BallSet,
    ConstantSet,
    Features,
    IntervalSet,
    SimilaritySet,
)
from dp2erm_cvx.weighting.forms.form import Group, Imbalance, ImbalancePenalty
from tests.weighting.forms import ONE, ball, rows

ARMS = np.array([[0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]])
ROWS = np.array([[3.0, -2.0, -1.0], [0.0, -1.0, 1.0], [0.5, 0.5, -1.0], [1.0, 1.0, 1.0]])
TARGETS = np.array([[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [-0.5, -0.5, 0.0], [-1.0, 1.0, 0.0]])

INTERVAL = Features("numbers", IntervalSet(-0.5, 2.0), 1)
UNSIGNED = Features("unsigned", SimilaritySet(1.5, False), 4)
SIGNED = Features("signed", SimilaritySet(1.5, True), 4)
LINE = ball(1.2, 1, "line")
WIDE = ball(0.8, 4)
MIXED = np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.5]])


def drawn(generator: np.random.Generator, features: Features, count: int) -> Array:
    """Records of the public set, mostly at its edge."""
    within = features.within
    values = generator.standard_normal((count, features.width))
    if isinstance(within, ConstantSet):
        return np.ones_like(values)
    if isinstance(within, IntervalSet):
        return generator.choice([within.low, within.high], values.shape)
    size = np.linalg.norm(values, axis=1, keepdims=True)
    if isinstance(within, BallSet):
        return values / size * within.radius
    if not within.signed:
        values = np.abs(values) * (generator.random(values.shape) < 0.5) + 1e-9
        size = np.linalg.norm(values, axis=1, keepdims=True)
    return values / size * np.sqrt(within.bound)


#: Groups of coordinates, and how close drawn records have to come to the bound.
GROUPS: dict[str, tuple[tuple[Group, ...], float]] = {
    "by arm": (
        (
            (rows(ONE, [0.7, 0.0], [0.35, 0.35]),),
            (rows(ONE, [0.0, 0.7], [0.35, 0.35]),),
            (rows(WIDE, [1.0, 0.0], [0.5, 0.5]),),
            (rows(WIDE, [0.0, 1.0], [0.5, 0.5]),),
        ),
        0.6,
    ),
    "interval": (((rows(INTERVAL, [1.0, -1.0], [0.5, 0.2]),),), 0.999),
    "line": (((rows(LINE, [1.0, -1.0], [0.5, 0.2]),),), 0.999),
    "similarities": (((rows(UNSIGNED, [1.0, -1.0], [0.0, 0.0]),),), 0.4),
    "signed similarities": (((rows(SIGNED, [1.0, -1.0], [0.5, 0.0]),),), 0.6),
    "columns apart": (
        (
            (rows(WIDE, [1.0, 0.0], [0.5, 0.5], np.eye(4)[:2]),),
            (rows(WIDE, [1.0, 1.0], [0.0, 0.0], 2.0 * np.eye(4)[2:]),),
        ),
        0.4,
    ),
    "mixed columns": (((rows(WIDE, [1.0, 1.0], [0.5, 0.5], MIXED),),), 0.4),
    "features added": (
        (
            (
                rows(WIDE, [1.0, 1.0], [0.5, 0.5], MIXED),
                rows(INTERVAL, [1.0, 0.0], [0.0, 0.0], np.array([[1.0], [0.5]])),
                rows(ONE, [1.0, 1.0], [1.0, 0.0], np.array([[1.0], [0.0]])),
            ),
            (rows(WIDE, [1.0, -1.0], [0.0, 0.0]),),
        ),
        0.3,
    ),
}


def of(groups: tuple[Group, ...], shift: float = 0.0) -> ScaledImbalance:
    coordinates = sum(len(group[0].matrix) for group in groups)
    return ScaledImbalance(
        Imbalance(groups, np.full(coordinates, shift), ImbalancePenalty(1.0)), 1.7
    )


def vectors(
    own: ScaledImbalance, sums: RecordCombinations, case: int, phi: dict[str, Array]
) -> Array:
    """The sum of one case, for records with features phi (m, width)."""
    arms = sums.arms[case]
    scaled = own.imbalance.rows(phi, arms) * sums.rows[case][:, None]
    total = np.sum(scaled, axis=0) + sums.shift * own.imbalance.shift
    for record in range(len(arms)):
        one = {name: values[record : record + 1] for name, values in phi.items()}
        target = own.imbalance.targets(one, arms[record : record + 1]) - own.imbalance.shift
        total = total + sums.targets[case][record] * target
    return own.scale * total


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_squares_and_products_are_above_all_drawn_records(name: str, shift: float) -> None:
    groups, close = GROUPS[name]
    own = of(groups, shift)
    generator = np.random.default_rng(3)
    sums = RecordCombinations(ROWS, TARGETS, ARMS, -1.0)
    other = RecordCombinations(ROWS[::-1].copy(), 0.0 * TARGETS, ARMS)
    squares = largest_squares([own], sums)
    products = largest_products([own], other, sums)
    features = {part.features.name: part.features for group in groups for part in group}
    for case in range(len(ARMS)):
        largest = 0.0
        for _ in range(80):
            phi = {key: drawn(generator, feature, 3) for key, feature in features.items()}
            vector = vectors(own, sums, case, phi)
            largest = max(largest, float(vector @ vector))
            assert vector @ vectors(own, other, case, phi) <= products[case] + 1e-9
        assert largest <= squares[case] * (1.0 + 1e-12)
        if shift == 0.0:
            assert largest >= close * squares[case]


def test_records_share_their_features_between_imbalances() -> None:
    """Rows and targets of one record are of one phi: x less half of x is half of x, in all
    terms.
    """
    groups = ((rows(WIDE, [1.0, 1.0], [0.5, 0.5]),),)
    one = RecordCombinations(np.array([[1.0]]), np.array([[-1.0]]), np.array([[0]]))
    assert largest_squares([of(groups)], one)[0] == pytest.approx((1.7 * 0.4) ** 2, rel=1e-8)
    assert largest_squares([of(groups), of(groups)], one)[0] == pytest.approx(
        2 * (1.7 * 0.4) ** 2, rel=1e-8
    )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_unit_vectors_against_a_semidefinite_program(size: int) -> None:
    generator = np.random.default_rng(size)
    forms = generator.standard_normal((8, size, size))
    forms[:4] = forms[:4] @ forms[:4].swapaxes(1, 2)
    forms[4:] = forms[4:] + forms[4:].swapaxes(1, 2)
    found = diameters._over_unit_vectors([forms])
    for form, bound in zip(forms, found, strict=True):
        gram = cp.Variable((size, size), PSD=True)
        problem = cp.Problem(cp.Maximize(cp.trace(form @ gram)), [cp.diag(gram) <= 1.0])
        exact = problem.solve(solver="CLARABEL")
        assert exact * (1.0 - 1e-6) <= bound <= exact * (1.0 + 1e-5) + 1e-6


def test_a_wrong_ascent_is_still_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the dual lacks is added, so that a search that ends early is only loose."""
    generator = np.random.default_rng(0)
    forms = generator.standard_normal((6, 3, 3))
    forms = forms @ forms.swapaxes(1, 2)
    right = diameters._over_unit_vectors([forms])
    monkeypatch.setattr(diameters, "_ROUNDS", 1)
    early = diameters._over_unit_vectors([forms])
    monkeypatch.setattr(diameters, "_ascended", lambda form: np.zeros(form.shape[:2]))
    none = diameters._over_unit_vectors([forms])
    assert np.all(early >= right * (1.0 - 1e-8))
    assert np.all(none >= right * (1.0 - 1e-8))
