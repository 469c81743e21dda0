from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.plotting import propensity_overlap, weight_histogram

A = np.arange(200) % 3 == 0
RNG = np.random.default_rng(0)
SCORE = RNG.beta(2, 3, 200)
W = RNG.exponential(size=200)


def test_weight_histogram_counts_every_record(tmp_path: Path) -> None:
    figure = weight_histogram(W, A, tmp_path / "weights.png")
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    treated, control = figure.axes
    for ax, arm in ((treated, A), (control, ~A)):
        own = W[arm] / W[arm].mean()
        starts = [bar.get_x() for bar in ax.patches]
        counts = [bar.get_height() for bar in ax.patches]
        assert sum(counts) == arm.sum()
        assert counts == list(np.histogram(own, [*starts, np.inf])[0])
    assert "not private" in treated.get_title(loc="left")
    assert "67 records" in treated.get_title(loc="right")
    assert control.get_xlabel() == "weight / mean weight of the arm"


def test_weights_are_drawn_without_their_scale() -> None:
    heights = [
        [[bar.get_height() for bar in ax.patches] for ax in weight_histogram(scale * W, A).axes]
        for scale in (1.0, 2.0**1018)
    ]
    assert heights[0] == heights[1]


def test_propensity_overlap_mirrors_the_arms(tmp_path: Path) -> None:
    ax = propensity_overlap(SCORE, A, tmp_path / "overlap.svg", limits=(0.2, 0.8))
    assert (tmp_path / "overlap.svg").read_bytes().startswith(b"<?xml")
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, -1)
    edges = np.linspace(0, 1, heights.shape[1] + 1)
    np.testing.assert_allclose(heights[0], np.histogram(SCORE[A], edges)[0] / A.sum())
    np.testing.assert_allclose(heights[1], -np.histogram(SCORE[~A], edges)[0] / (~A).sum())
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [0.2, 0.8]
    assert "not private" in ax.get_title(loc="left")
    assert ax.yaxis.get_major_formatter()(-0.25, 0) == "25%"


@pytest.mark.parametrize("draw", [weight_histogram, propensity_overlap])
def test_what_cannot_be_drawn(draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="the control arm is empty"):
        draw([0.5, 0.5], [1, 1])
    with pytest.raises(DataError, match=r"a\[1\] = 2.0"):
        draw([0.5, 0.5], [1, 2])
    with pytest.raises(DeclarationError, match="cannot be written"):
        draw(SCORE, A, tmp_path / "absent" / "figure.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DeclarationError, match=r"pip install 'dp2erm-cvx\[plots\]'$"):
        draw(SCORE, A)


def test_an_arm_without_weight_is_refused() -> None:
    with pytest.raises(DataError, match="the treated arm is empty or has no weight"):
        weight_histogram(W * ~A, A)


def test_limits_of_the_figure_are_checked() -> None:
    with pytest.raises(DeclarationError, match="limits"):
        propensity_overlap(SCORE, A, limits=(0.9, 0.1))
