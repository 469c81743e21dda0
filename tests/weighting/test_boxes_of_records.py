"""Caps and floors that are a number of each record: bounds, refusals and a release."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError, InfeasibleError
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.registry import known_meanwhile
from dp2erm_cvx.program.weighting.reader import read_weighting
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.weighting.bounds.constants import weighting_constants
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty
from dp2erm_cvx.weighting.neighbors.data import NeighboringData
from dp2erm_cvx.weighting.neighbors.together import FormNeighbors
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting import examples, forms
from tests.weighting.declarations import Function, declared, under
from tests.weighting.families import CAP, end, plain
from tests.weighting.search import searched
from tests.weighting.test_neighbors import FORMS, M, N, drawn_neighbors


def test_the_least_cap_in_place_of_the_hull_is_caught() -> None:
    """V is that of the hull of all boxes: a record of a large cap may move far."""
    form = plain(101, forms.SQUARE, 9.0, cap_of=end(CAP))
    wrong = weighting_constants(plain(101, forms.SQUARE, 9.0, cap=1.2), (0, 0), False)
    found = searched(form, cases=60, generations=8, constants=wrong)
    assert found.ratio > 1.05
    assert found.weight_ratio > 1.05


def test_boxes_that_some_dataset_does_not_fill_are_refused() -> None:
    low_cap = examples.end_of(0.8, 3.0)
    hull = {"low": (0.0, 0.0), "cap": (3.0, 3.0)}
    imbalance = examples.moments_by_arm(ImbalancePenalty(5 / 40))
    form = examples.form_of(40, imbalance, **hull, cap_of=low_cap)
    with pytest.raises(CalibrationError, match="none have the sum n"):
        weighting_constants(form, (0, 0), False)
    low = examples.records_of(40)
    everybody = Records.within(low.space, np.tile([-0.9, 0.0, 0.0], (40, 1)), low.a, low.y)
    with pytest.raises(InfeasibleError):
        DualProblem(form, everybody)
    high_floor = examples.end_of(0.0, 1.5)
    with pytest.raises(CalibrationError, match="none have the sum n"):
        weighting_constants(
            examples.form_of(40, imbalance, **hull, low_of=high_floor), (0, 0), False
        )


def test_a_new_record_with_the_cap_of_the_old_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["boxes of records"]
    records = examples.records_of(N)
    index, new = drawn_neighbors(records, M)
    right = FormNeighbors(form, records).together(index, new)
    true = NeighboringData._boxes

    def mistaken(
        self: NeighboringData, numbers: Array, own: Any, *more: Any
    ) -> tuple[Array, Array]:
        return true(self, numbers, (self.boxes[0][numbers], self.boxes[1][numbers]), *more)

    monkeypatch.setattr(NeighboringData, "_boxes", mistaken)
    off = FormNeighbors(form, records).together(index, new)
    apart = np.sum(np.abs(off.weights - right.weights), axis=1)
    assert np.any(apart > off.claims + right.claims)


def more_of(x: Any, a: int, y: float) -> float:
    return 2.0 + x[0]


def number(r: Any) -> Any:
    return r.numbers("cap", more_of, 1.5, 3.0)


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (under(lambda w, r: w <= number(r) + 1), "is a box made of data"),
        (under(lambda w, r: w <= 1 - number(r)), "is a box made of data"),
        (under(lambda w, r: w <= r.x[:, 0]), "is a box made of data"),
        (under(lambda w, r: w == number(r)), "is a box made of data"),
        (under(lambda w, r: w <= number(r), lambda w, r: w <= 2 * number(r)), "a second cap"),
        (
            under(
                lambda w, r: cp.multiply(r.treatment, w - 1) == 0,
                lambda w, r: (1 - r.treatment) @ w == cp.sum(r.treatment),
                lambda w, r: w <= number(r) / 2,
            ),
            "is outside of the box of some record",
        ),
    ],
)
def test_other_boxes_of_data_are_refused(sets: Function, says: str) -> None:
    problem, w, records = declared(sets, 9)
    with pytest.raises(DeclarationError, match=says) as error:
        read_weighting(problem, w, records)
    assert "please report" not in str(error.value)


def least_of(x: Any, a: int, y: float) -> float:
    return 2.0 - x[0]


@scheme(ridge=0.1)
def near_the_middle(w, records, ridge):
    """Records far from the middle have smaller caps."""
    n = records.n
    price = n / (2 * ridge) * cp.sum_squares(records.signed.T @ w / n)
    caps = records.numbers("cap", least_of, 1.2, 2.5)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) / 2 + price), [cp.sum(w) == n, w <= caps])


@pytest.mark.slow
def test_a_release_keeps_the_caps_of_records() -> None:
    rng = np.random.default_rng(1)
    n = 120
    X = rng.uniform(-1.0, 1.0, (n, 3)) / np.sqrt(3)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-6.0 * X[:, 0]))).astype(int)
    y = np.clip(X[:, 0] + 0.5 * a, -2.0, 2.0)
    domain = Domain(1.0, 2.0)
    program = near_the_middle(ridge=0.02)
    bound = program.stability(Universe(domain, n, 3))
    assert bound.w_max == pytest.approx(2.5)
    model = PrivateTwoStageERM(domain, Budget(4.0), program, "arm_means").fit(X, a, y)
    assert model.release_.private
    weights = model.private_workings_.weights
    caps = np.clip(2.0 - domain.records(X, a, y).X[:, 0], 1.2, 2.5)
    assert weights.certified
    assert np.all(weights.value <= caps * (1 + 1e-9))
    assert np.sum(weights.value > caps * (1 - 1e-6)) >= 3
    with known_meanwhile(program.scheme):
        assert verify(model.release_).refuted == ()
