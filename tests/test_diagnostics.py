from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.diagnostics import BalanceTable, balance_table, effective_sample_size
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.plots import love_plot

X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [3.0, 1.0], [7.0, 1.0]])
A = np.array([0, 0, 0, 1, 1])
W = np.array([1.0, 1.0, 2.0, 3.0, 1.0])


def test_the_table_by_hand() -> None:
    table = balance_table(X, A, W, ["dose", "one"])
    pooled = np.sqrt((4.0 + 8.0) / 2)
    assert table.smd_before[0] == pytest.approx((5.0 - 2.0) / pooled)
    assert table.smd_after[0] == pytest.approx((4.0 - 2.5) / pooled)
    assert (table.control.n_samples, table.treated.n_samples) == (3, 2)
    assert (table.control.mass_before, table.treated.mass_before) == (0.6, 0.4)
    assert (table.control.mass_after, table.treated.mass_after) == (0.5, 0.5)
    assert table.control.effective_before == 3.0
    assert table.control.effective_after == pytest.approx(16 / 6)
    assert table.treated.effective_after == pytest.approx(16 / 10)
    assert table.private is False


def test_weights_have_no_scale() -> None:
    table = balance_table(X, A, W)
    scaled = balance_table(X, A, 1e-200 * W)
    np.testing.assert_allclose(scaled.smd_after, table.smd_after)
    assert scaled.treated.effective_after == pytest.approx(table.treated.effective_after)
    assert table.columns == ("x1", "x2")


def test_a_constant_column_is_not_defined_and_says_so() -> None:
    table = balance_table(X, A, W, ["dose", "one"])
    assert np.isnan(table.smd_before[1])
    assert np.isnan(table.smd_after[1])
    assert table.notes == ("one does not vary within the arms: no standardized difference is defined",)


@pytest.mark.parametrize(
    ("arms", "weights", "note"),
    [
        (np.zeros(5), np.ones(5), "the treated arm is empty: no difference is defined"),
        (np.ones(5), np.ones(5), "the control arm is empty: no difference is defined"),
        (
            A,
            np.where(A == 1, 0.0, 1.0),
            "the treated arm has no weight: no difference is defined after weighting",
        ),
        (
            np.array([0, 0, 0, 0, 1]),
            np.ones(5),
            "the treated arm has one record: no standard deviation is defined",
        ),
    ],
)
def test_missing_arms_are_nan_with_a_reason(arms: np.ndarray, weights: np.ndarray, note: str) -> None:
    table = balance_table(X, arms, weights)
    assert np.isnan(table.smd_after).all()
    assert note in table.notes
    assert note in str(table)


def test_effective_sample_size() -> None:
    assert effective_sample_size(np.full(7, 3.0)) == pytest.approx(7.0)
    assert effective_sample_size([1.0, 0.0, 0.0]) == 1.0
    assert effective_sample_size([1e300, 1e300]) == pytest.approx(2.0)
    assert effective_sample_size([]) == 0.0
    assert effective_sample_size([0.0, 0.0]) == 0.0


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_bad_weights(wrong: float) -> None:
    with pytest.raises(DataError, match=r"weights\[1\]"):
        balance_table(X, A, [1.0, wrong, 1.0, 1.0, 1.0])


def test_bad_shapes() -> None:
    with pytest.raises(DataError, match="have shapes"):
        balance_table(X, A[:4], W)
    with pytest.raises(DataError, match="1 names for the 2 columns"):
        balance_table(X, A, W, ["dose"])


def test_the_text_is_aligned_and_marked() -> None:
    lines = str(balance_table(X, A, W, ["dose", "one"])).splitlines()
    assert "not private" in lines[0]
    assert lines[2].split() == ["dose", "+1.225", "+0.612"]
    assert len(lines[1]) == len(lines[2]) == len(lines[3])
    assert [row[0] for row in balance_table(X, A, W).arm_rows()] == ["control", "treated"]


def plotted() -> BalanceTable:
    rng = np.random.default_rng(0)
    covariates = rng.normal(size=(80, 3)) * [1.0, 2.0, 0.0]
    arms = np.arange(80) % 2
    covariates[arms == 1, 1] += 3.0
    return balance_table(covariates, arms, rng.uniform(0.5, 1.5, 80), ["age", "weight", "constant"])


def test_love_plot_shows_the_table(tmp_path: Path) -> None:
    table = plotted()
    for name, start in (("love.png", b"\x89PNG"), ("love.svg", b"<?xml")):
        axes = love_plot(table, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["constant", "age", "weight"]
    before, after = (points.get_offsets() for points in axes.collections[1:])
    np.testing.assert_allclose(before[1:, 0], np.abs(table.smd_before[:2]))
    np.testing.assert_allclose(after[1:, 0], np.abs(table.smd_after[:2]))
    assert "not private" in axes.get_title(loc="left")


def test_love_plot_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "absent" / "love.png", tmp_path / "love.docx"):
        with pytest.raises(DeclarationError, match="cannot be written"):
            love_plot(plotted(), path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DeclarationError, match=r"pip install 'dp2erm-cvx\[plots\]'$"):
        love_plot(plotted())
