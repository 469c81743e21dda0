from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx import diagnostics
from dp2erm_cvx.diagnostics import BalanceTable, balance_table, effective_sample_size
from dp2erm_cvx.diagnostics.statistics import ks_distance, mean, variance
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.plotting import love_plot

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
    for scale in (1e-200, 5e307):  # squares underflow, sums overflow
        scaled = balance_table(X, A, scale * W)
        np.testing.assert_allclose(scaled.smd_after, table.smd_after)
        np.testing.assert_allclose(scaled.variance_ratio_after, table.variance_ratio_after)
        np.testing.assert_allclose(scaled.ks_after, table.ks_after)
        assert scaled.treated.mass_after == pytest.approx(table.treated.mass_after)
        assert scaled.treated.effective_after == pytest.approx(table.treated.effective_after)
    assert table.columns == ("x1", "x2")


def test_a_constant_column_is_not_defined_and_says_so() -> None:
    table = balance_table(X, A, W, ["dose", "one"])
    assert np.isnan(table.smd_before[1])
    assert np.isnan(table.smd_after[1])
    assert table.notes == (
        "one does not vary within the arms: no ratio or standardized difference is defined",
    )


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.where(X == 7.0, np.nan, X), A, W), r"X\[4, 0\] = nan: must be finite"),
        ((X, [0, 0, 2, 1, 1], W), r"a\[2\] = 2.0: must be 0 or 1"),
        ((X.astype(str), A, W), "X: must hold numbers"),
        ((X, A, [1, None, "x", 1, 1]), "weights: must hold numbers"),
        (([[1.0], [1.0, 2.0]], A, W), "X: is not an array"),
        ((np.empty((0, 2)), [], []), "X, a and weights hold no records"),
    ],
)
def test_errors_name_the_entry(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        balance_table(*arguments)  # type: ignore[arg-type]


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


def test_ratios_distances_and_targets_by_hand() -> None:
    table = balance_table(X, A, W, ["dose", "one"])
    # dose: 0, 2, 4 with weights 1, 1, 2 against 3, 7 with weights 3, 1
    assert table.variance_ratio_before[0] == pytest.approx(8 / 4)
    control = (2.5**2 + 0.5**2 + 2 * 1.5**2) / 4 / (1 - 6 / 16)
    treated = (3 * 1.0**2 + 3.0**2) / 4 / (1 - 10 / 16)
    assert table.variance_ratio_after[0] == pytest.approx(treated / control)
    assert table.ks_before[0] == pytest.approx(2 / 3)
    assert table.ks_after[0] == pytest.approx(1 / 2)
    assert (table.ks_before[1], table.ks_after[1]) == (0.0, 0.0)
    pooled = np.sqrt((4.0 + 8.0) / 2)
    np.testing.assert_allclose(table.target_before[:, 0], np.array([2.0 - 3.2, 5.0 - 3.2]) / pooled)
    np.testing.assert_allclose(table.target_after[:, 0], np.array([2.5 - 3.2, 4.0 - 3.2]) / pooled)


def drawn(n: int = 90) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariates with and without ties, arms of unequal size, whole weights of which some are 0."""
    rng = np.random.default_rng(3)
    columns = [rng.normal(size=n), rng.integers(0, 5, n), rng.integers(0, 2, n), rng.exponential(size=n)]
    return np.column_stack(columns).astype(float), (rng.random(n) < 0.3).astype(int), rng.integers(0, 4, n)


def test_the_distance_before_weighting_is_that_of_scipy() -> None:
    covariates, arms, weights = drawn()
    table = balance_table(covariates, arms, weights)
    treated, control = covariates[arms == 1], covariates[arms == 0]
    expected = [stats.ks_2samp(treated[:, k], control[:, k]).statistic for k in range(4)]
    np.testing.assert_allclose(table.ks_before, expected, rtol=1e-12)
    assert table.ks_before[2] == pytest.approx(abs(treated[:, 2].mean() - control[:, 2].mean()))


def test_the_variance_is_that_of_numpy_with_reliability_weights() -> None:
    covariates, arms, weights = drawn()
    table = balance_table(covariates, arms, weights)
    parts = [(covariates[arms == arm], weights[arms == arm]) for arm in (1, 0)]
    for k in (0, 1, 3):
        before = [np.cov(rows[:, k]) for rows, _ in parts]
        after = [np.cov(rows[:, k], aweights=own) for rows, own in parts]
        assert table.variance_ratio_before[k] == pytest.approx(before[0] / before[1])
        assert table.variance_ratio_after[k] == pytest.approx(after[0] / after[1])


def test_weight_two_is_a_record_twice() -> None:
    covariates, arms, weights = drawn()
    rows = np.repeat(np.arange(len(arms)), weights)
    twice = balance_table(covariates[rows], arms[rows], np.ones(len(rows)))
    once = balance_table(covariates, arms, weights)
    np.testing.assert_allclose(once.ks_after, twice.ks_before, atol=1e-12)
    np.testing.assert_allclose(mean(covariates, 1.0 * weights), covariates[rows].mean(axis=0))
    unit = weights / weights.sum()
    population = variance(covariates, 1.0 * weights) * (1 - unit @ unit)
    np.testing.assert_allclose(population, covariates[rows].var(axis=0))


def test_covariates_with_two_values_have_no_variance_ratio() -> None:
    covariates, arms, weights = drawn()
    table = balance_table(covariates, arms, weights, ["a", "b", "sex", "d"])
    assert np.isnan([table.variance_ratio_before[2], table.variance_ratio_after[2]]).all()
    assert np.isfinite(table.variance_ratio_after[[0, 1, 3]]).all()
    assert table.notes == ("variance ratios are left out for covariates with two values: sex",)


def test_undefined_ratios_say_why() -> None:
    column = np.array([[1.0], [1.0], [4.0], [2.0], [3.0]])
    table = balance_table(column, [0, 0, 0, 1, 1], [1, 1, 0, 1, 1])
    assert np.isfinite(table.variance_ratio_before[0])
    assert np.isnan(table.variance_ratio_after[0])
    (note,) = table.notes
    assert note == "x1 does not vary among the controls: no variance ratio is defined after weighting"
    table = balance_table(column, [0, 0, 0, 1, 1], [1, 1, 1, 1, 0])
    assert np.isnan(table.variance_ratio_after[0])
    assert table.notes[0].startswith("an arm has its weight on fewer than two records")
    nearly = balance_table(column, [0, 0, 0, 1, 1], [1, 1, 1, 1, 1e-20])
    assert nearly.notes == table.notes
    mirrored = balance_table(column, [1, 1, 1, 0, 0], [1, 1, 0, 1, 1])
    assert mirrored.variance_ratio_after[0] == 0.0


def test_rounding_does_not_make_a_constant_column_vary() -> None:
    constant = np.full((30, 1), 0.1)
    assert np.var(constant[:15]) > 0  # what has to be guarded against
    rng = np.random.default_rng(0)
    assert [variance(constant, rng.random(30))[0] for _ in range(20)] == [0.0] * 20
    table = balance_table(constant, np.arange(30) % 2, np.ones(30))
    assert np.isnan(table.smd_before).all()
    assert "does not vary" in table.notes[0]


def test_statistics_without_weight_are_nan() -> None:
    nothing = np.zeros(len(X))
    assert np.isnan(mean(X, nothing)).all()
    assert np.isnan(variance(X, nothing)).all()
    assert np.isnan(ks_distance(X, nothing, W)).all()


def test_distant_distributions_are_at_most_one_apart() -> None:
    weights = np.full(70, 0.1)
    arms = np.arange(70) < 7
    assert ks_distance(1.0 * arms[:, None], weights * arms, weights * ~arms)[0] == pytest.approx(1.0)
    assert ks_distance(1.0 * arms[:, None], weights * arms, weights * ~arms)[0] <= 1.0


def test_everything_says_that_it_is_not_private() -> None:
    shown = [getattr(diagnostics, name) for name in diagnostics.__all__]
    classes = [one for one in shown if dataclasses.is_dataclass(one)]
    assert len(classes) == 7
    assert all(one.private is False for one in classes)
    assert all("private" not in [field.name for field in dataclasses.fields(one)] for one in classes)


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


@pytest.mark.parametrize("statistic", ["variance_ratio", "ks"])
def test_love_plot_of_another_statistic(statistic: str) -> None:
    table = plotted()
    axes = love_plot(table, statistic=statistic)  # type: ignore[arg-type]
    names = [label.get_text() for label in axes.get_yticklabels()]
    for points, when in zip(axes.collections[1:], ("before", "after"), strict=True):
        shown = dict(zip(names, points.get_offsets()[:, 0], strict=True))
        expected = dict(zip(table.columns, getattr(table, f"{statistic}_{when}"), strict=True))
        for name in ("age", "weight"):
            assert float(shown[name]) == pytest.approx(expected[name])
    undefined = [text.get_text() for text in axes.texts]
    assert undefined == (["not defined"] if statistic == "variance_ratio" else [])
    marks = [line.get_xdata()[0] for line in axes.lines]
    assert marks == ([2.0, 0.5, 1.0] if statistic == "variance_ratio" else [0.1])


def test_ratios_are_ordered_by_their_distance_from_one() -> None:
    rng = np.random.default_rng(0)
    arms = np.arange(400) % 2
    scales = np.array([1.0, 1.5, 4.0])
    covariates = rng.normal(size=(400, 3)) * np.where(arms[:, None] == 1, [1.0, 1.5, 0.25], 1.0)
    table = balance_table(covariates, arms, np.ones(400), [f"{scale:g}" for scale in scales])
    axes = love_plot(table, statistic="variance_ratio")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "1.5", "4"]


def test_a_ratio_of_zero_is_drawn_at_the_end_of_the_axis() -> None:
    column = np.array([[1.0], [1.0], [4.0], [2.0], [3.0]])
    table = balance_table(column, [1, 1, 1, 0, 0], [1, 1, 0, 1, 1])
    axes = love_plot(table, statistic="variance_ratio")
    assert axes.collections[2].get_offsets()[0, 0] == pytest.approx(axes.get_xlim()[0])
    assert 0 < axes.get_xlim()[0] < 0.5
    none_before = np.array([[1.0, 0.0], [1.0, 90.0], [1.0, -90.0], [2.0, 1.0], [3.0, 2.0]])
    table = balance_table(none_before, [1, 1, 1, 0, 0], np.ones(5), ["nothing", "much"])
    axes = love_plot(table, statistic="variance_ratio")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["much", "nothing"]


def test_love_plot_refuses_what_it_does_not_know() -> None:
    with pytest.raises(DeclarationError, match="statistic = 'mean': must be one of smd, variance_ratio, ks"):
        love_plot(plotted(), statistic="mean")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"threshold = 0\.1: must be above 1"):
        love_plot(plotted(), statistic="variance_ratio", threshold=0.1)


def test_love_plot_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "absent" / "love.png", tmp_path / "love.docx"):
        with pytest.raises(DeclarationError, match="cannot be written"):
            love_plot(plotted(), path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DeclarationError, match=r"pip install 'dp2erm-cvx\[plots\]'$"):
        love_plot(plotted())
