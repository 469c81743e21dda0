from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.diagnostics import effective_sample_size, weight_summary
from dp2erm_cvx.errors import DataError, DeclarationError

A = np.array([0, 1, 0, 1, 0, 1, 1])
W = np.array([1.0, 5.0, 2.0, 0.0, 6.0, 2.0, 1.0])


def test_the_summary_by_hand() -> None:
    summary = weight_summary(W, A, trim=2.0, largest=2)
    control, treated = summary.control, summary.treated
    assert (control.n_samples, control.minimum, control.median, control.maximum) == (3, 1.0, 2.0, 6.0)
    assert (treated.n_samples, treated.minimum, treated.median, treated.maximum) == (4, 0.0, 1.5, 5.0)
    assert control.coefficient_of_variation == pytest.approx(math.sqrt(7) / 3)
    assert control.largest == ((4, 6.0), (2, 2.0))
    assert treated.largest == ((1, 5.0), (5, 2.0))
    assert control.share_of_largest == pytest.approx(8 / 9)
    assert (control.at_trim, treated.at_trim) == (pytest.approx(2 / 3), 0.5)
    assert control.effective == pytest.approx(81 / 41)


def test_against_scipy_and_the_identity_of_kish() -> None:
    rng = np.random.default_rng(1)
    weights, arms = rng.exponential(size=200), rng.integers(0, 2, 200)
    treated = weight_summary(weights, arms).treated
    own = weights[arms == 1]
    assert treated.coefficient_of_variation == pytest.approx(stats.variation(own, ddof=1))
    n, squared = len(own), treated.coefficient_of_variation**2
    assert treated.effective == pytest.approx(n / (1 + squared * (n - 1) / n))
    assert treated.effective == pytest.approx(effective_sample_size(own))
    assert [weight for _, weight in treated.largest] == sorted(own, reverse=True)[:5]
    assert all(weights[row] == weight and arms[row] == 1 for row, weight in treated.largest)


def test_ties_are_listed_in_the_order_of_the_records() -> None:
    summary = weight_summary(np.ones(7), A, largest=2)
    assert [row for row, _ in summary.treated.largest] == [1, 3]
    assert summary.treated.coefficient_of_variation == 0.0
    assert summary.treated.at_trim is None


def test_a_weight_solved_for_counts_as_at_the_trim() -> None:
    summary = weight_summary([2.0 * (1 - 1e-9), 1.9, 2.0, 1.0], [0, 0, 1, 1], trim=2.0)
    assert (summary.control.at_trim, summary.treated.at_trim) == (0.5, 0.5)


def test_the_scale_only_scales() -> None:
    summary, small = weight_summary(W, A), weight_summary(1e-200 * W, A)
    assert small.treated.coefficient_of_variation == pytest.approx(summary.treated.coefficient_of_variation)
    assert small.treated.share_of_largest == pytest.approx(summary.treated.share_of_largest)
    assert small.treated.maximum == 1e-200 * summary.treated.maximum


def test_arms_without_records_or_weight() -> None:
    summary = weight_summary([0.0, 0.0], [1, 1], trim=1.0)
    control, treated = summary.control, summary.treated
    assert control.at_trim is not None
    assert np.isnan([control.median, control.effective, control.at_trim]).all()
    assert control.largest == ()
    assert (treated.maximum, treated.effective, treated.at_trim) == (0.0, 0.0, 0.0)
    assert np.isnan([treated.coefficient_of_variation, treated.share_of_largest]).all()


def test_the_text() -> None:
    lines = str(weight_summary(W, A, trim=2.0, largest=2)).splitlines()
    assert lines[0] == "Weights (not private: for the data holder only)"
    assert lines[2].split() == ["control", "3", "1", "2", "6", "0.882", "2.0", "66.7%"]
    assert lines[4] == "largest of the control arm (88.9% of its weight): row 4: 6, row 2: 2"
    assert str(weight_summary(W, A)).splitlines()[2].split()[-1] == "-"


@pytest.mark.parametrize(
    ("weights", "arms", "message"),
    [
        ([1.0, -1.0], [0, 1], r"weights\[1\] = -1.0"),
        ([1.0, 1.0], [0, 3], r"a\[1\] = 3.0"),
        ([1.0, 1.0], [0], r"weights and a have shapes \(2,\) and \(1,\)"),
        ([], [], "weights and a hold no records"),
        ([1.0 + 2j, 1.0], [0, 1], "weights: must hold numbers"),
    ],
)
def test_bad_data(weights: list[float], arms: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        weight_summary(weights, arms)


@pytest.mark.parametrize(
    ("declared", "message"),
    [({"trim": 0.0}, "trim = 0.0"), ({"largest": 0}, "largest = 0"), ({"largest": 1.5}, "whole number")],
)
def test_bad_declarations(declared: dict[str, float], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        weight_summary(W, A, **declared)  # type: ignore[arg-type]
