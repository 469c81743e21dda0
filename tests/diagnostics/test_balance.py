"""Balance tables by hand, and the plots that show them."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, diagnostics
from dp2erm_cvx.diagnostics import balance_table, effective_sample_size
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators.balance import adjusted_balance
from dp2erm_cvx.report.figures import love_plot, overlap_plot

X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [3.0, 1.0], [7.0, 1.0]])
A = np.array([0, 0, 0, 1, 1])
W = np.array([1.0, 1.0, 2.0, 3.0, 1.0])


def test_the_table_has_the_numbers_computed_by_hand() -> None:
    table = balance_table(X, A, W, ["dose", "one"])
    pooled = np.sqrt((4.0 + 8.0) / 2)
    assert table.smd_before[0] == pytest.approx((5.0 - 2.0) / pooled)
    assert table.smd_after[0] == pytest.approx((4.0 - 2.5) / pooled)
    assert (table.records.tolist(), table.effective_before.tolist()) == ([3, 2], [3.0, 2.0])
    assert (table.mass_before.tolist(), table.mass_after.tolist()) == ([0.6, 0.4], [0.5, 0.5])
    assert table.effective_after.tolist() == pytest.approx([16 / 6, 16 / 10])
    np.testing.assert_allclose(table.means_before, [[2.0, 1.0], [5.0, 1.0]])
    np.testing.assert_allclose(table.means_after, [[2.5, 1.0], [4.0, 1.0]])
    assert table.private is False

    assert np.isnan([table.smd_before[1], table.smd_after[1]]).all()
    assert table.notes == ("one does not vary within the arms: no difference is defined",)


def test_the_scale_of_weights_changes_no_balance() -> None:
    table = balance_table(X, A, W)
    for scale in (1e-200, 5e307):  # squares underflow, sums overflow
        scaled = balance_table(X, A, scale * W)
        for name in ("smd_after", "means_after", "mass_after", "effective_after"):
            np.testing.assert_allclose(getattr(scaled, name), getattr(table, name))
    assert table.columns == ("x1", "x2")
    for weights, size in (
        ([3.0] * 7, 7),
        ([1, 0, 0], 1),
        ([1e300, 1e300], 2),
        ([], 0),
        ([0.0, 0.0], 0),
    ):
        assert effective_sample_size(weights) == pytest.approx(size)


@pytest.mark.parametrize(
    ("arms", "weights", "note"),
    [
        ([0] * 5, [1] * 5, "the treated arm is empty: no difference is defined"),
        ([1] * 5, [1] * 5, "the control arm is empty: no difference is defined"),
        (A, 1.0 - A, "the treated arm has no weight: no difference is defined after weighting"),
        (
            [0, 0, 0, 0, 1],
            [1] * 5,
            "the treated arm has one record: no standard deviation is defined",
        ),
    ],
)
def test_missing_arms_are_nan_with_a_reason(arms: object, weights: object, note: str) -> None:
    table = balance_table(X, arms, weights)
    assert np.isnan(table.smd_after).all()
    assert note in table.notes
    assert note in str(table)
    assert table._repr_html_().count("<table") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.where(X == 7.0, np.nan, X), A, W), r"X\[4, 0\] = nan: must be finite"),
        ((X, [0, 0, 2, 1, 1], W), r"a\[2\] = 2.0: must be 0 or 1"),
        ((X.astype(str), A, W), "X: must hold numbers"),
        ((X, A, [1, None, "x", 1, 1]), "weights: must hold numbers"),
        (([[1.0], [1.0, 2.0]], A, W), "X: is not an array"),
        ((np.empty((0, 2)), [], []), "X, a and weights hold no records"),
        *(
            ((X, A, [1.0, wrong, 1.0, 1.0, 1.0]), r"weights\[1\]")
            for wrong in (-1.0, np.nan, np.inf)
        ),
        ((X, A[:4], W), "have shapes"),
        ((X, A, W, ["dose"]), "1 names for the 2 columns"),
    ],
)
def test_errors_name_the_entry(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        balance_table(*arguments)  # type: ignore[arg-type]


def test_weight_two_is_a_record_twice() -> None:
    """Covariates with and without ties, arms of unequal size, whole weights of which some are 0."""
    n, rng = 90, np.random.default_rng(3)
    columns = [
        rng.normal(size=n),
        rng.integers(0, 5, n),
        rng.integers(0, 2, n),
        rng.exponential(size=n),
    ]
    covariates, arms, weights = (
        np.column_stack(columns),
        (rng.random(n) < 0.3) * 1,
        rng.integers(0, 4, n),
    )
    rows = np.repeat(np.arange(n), weights)
    twice = balance_table(covariates[rows], arms[rows], np.ones(len(rows)))
    np.testing.assert_allclose(
        balance_table(covariates, arms, weights).means_after, twice.means_before
    )


def test_rounding_does_not_make_a_constant_column_vary() -> None:
    constant = np.full((30, 1), 0.1)
    assert np.var(constant[:15]) > 0  # what has to be guarded against
    table = balance_table(constant, np.arange(30) % 2, np.ones(30))
    assert np.isnan(table.smd_before).all()
    assert "does not vary" in table.notes[0]


def test_everything_says_that_it_is_not_private() -> None:
    shown = [getattr(diagnostics, name) for name in diagnostics.__all__]
    classes = [one for one in shown if dataclasses.is_dataclass(one)]
    assert classes
    assert all(one.private is False for one in classes)
    assert all(
        "private" not in [field.name for field in dataclasses.fields(one)] for one in classes
    )


def test_what_is_released_balances_what_confounds() -> None:
    rng = np.random.default_rng(0)
    confounded = rng.uniform(-1, 1, (2000, 2))
    chance = 1 / (1 + np.exp(-2 * confounded[:, 0]))
    arms = rng.binomial(1, chance)

    def looked(kind: Any, propensity: str) -> Any:
        seen = list[Any]()
        model = kind(Domain(1.5, 4.0), Budget(500.0), settings={"propensity": propensity}, seed=1)
        model.after_run = lambda *run: seen.extend(run)
        model.fit(confounded, arms, arms + confounded[:, 0])
        return adjusted_balance(*seen)

    for kind in (PrivateEffect, PrivateRule):
        table, propensity, _ = looked(kind, "logistic")
        assert abs(table.smd_before[0]) > 0.8 > 0.2 > abs(table.smd_after[0])
        assert np.corrcoef(propensity, chance)[0, 1] > 0.99
    table = looked(PrivateEffect, "constant")[
        0
    ]  # no weights: what the regression predicts is taken off
    np.testing.assert_allclose(table.smd_before[:2], table.smd_after[:2])
    assert table.columns[2] == "predicted outcome"
    assert abs(table.smd_before[2]) > 0.8 > 0.05 > abs(table.smd_after[2])
    assert "no weights" in love_plot(table).get_title(loc="left")


def test_love_plot_shows_the_table(tmp_path: Path) -> None:
    rng, arms = np.random.default_rng(0), np.arange(80) % 2
    covariates = rng.normal(size=(80, 3)) * [1.0, 2.0, 0.0] + 3.0 * arms[:, None] * [0, 1, 0]
    table = balance_table(
        covariates, arms, rng.uniform(0.5, 1.5, 80), ["age", "weight", "constant"]
    )
    for name, start in (("love.png", b"\x89PNG"), ("love.svg", b"<?xml")):
        axes = love_plot(table, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["constant", "age", "weight"]
    before, after = (points.get_offsets() for points in axes.collections[1:])
    np.testing.assert_allclose(before[1:, 0], np.abs(table.smd_before[:2]))
    np.testing.assert_allclose(after[1:, 0], np.abs(table.smd_after[:2]))
    assert [text.get_text() for text in axes.texts] == ["not defined"]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.1]
    assert "not private" in axes.get_title(loc="left")


ARM, SCORE = np.arange(200) % 3 == 0, np.random.default_rng(0).beta(2, 3, 200)


def test_overlap_plot_mirrors_the_arms(tmp_path: Path) -> None:
    ax = overlap_plot(SCORE, ARM, tmp_path / "overlap.svg", limits=(0.2, 0.8))
    assert (tmp_path / "overlap.svg").read_bytes().startswith(b"<?xml")
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, -1)
    edges = np.linspace(0, 1, heights.shape[1] + 1)
    for height, sign, own in zip(heights, (1, -1), (ARM, ~ARM), strict=True):
        np.testing.assert_allclose(height, sign * np.histogram(SCORE[own], edges)[0] / own.sum())
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [0.2, 0.8]
    assert "not private" in ax.get_title(loc="left")
    assert [ax.yaxis.get_major_formatter()(one, 0) for one in (-0.25, 0.025)] == ["25%", "2.5%"]


def test_a_plot_of_wrong_scores_or_without_its_packages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for score, arms, message in (
        ([0.5, 0.5], [1, 1], "the control arm is empty"),
        ([0.5, 0.5], [1, 2], r"a\[1\] = 2.0"),
        ([1.5, 0.5], [0, 1], r"propensity\[0\] = 1.5: must be in"),
        ([0.5], [0, 1], "have shapes"),
    ):
        with pytest.raises(DataError, match=message):
            overlap_plot(score, arms)
    with pytest.raises(DeclarationError, match="cannot be written"):
        overlap_plot(SCORE, ARM, tmp_path / "absent" / "figure.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DeclarationError, match=r"pip install 'dp2erm-cvx\[plots\]'$"):
        overlap_plot(SCORE, ARM)
