import sys
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.plotting import overlap_plot

A = np.arange(200) % 3 == 0
RNG = np.random.default_rng(0)
SCORE = RNG.beta(2, 3, 200)


def test_overlap_plot_mirrors_the_arms(tmp_path: Path) -> None:
    ax = overlap_plot(SCORE, A, tmp_path / "overlap.svg", limits=(0.2, 0.8))
    assert (tmp_path / "overlap.svg").read_bytes().startswith(b"<?xml")
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, -1)
    edges = np.linspace(0, 1, heights.shape[1] + 1)
    np.testing.assert_allclose(heights[0], np.histogram(SCORE[A], edges)[0] / A.sum())
    np.testing.assert_allclose(heights[1], -np.histogram(SCORE[~A], edges)[0] / (~A).sum())
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [0.2, 0.8]
    assert "not private" in ax.get_title(loc="left")
    assert [ax.yaxis.get_major_formatter()(one, 0) for one in (-0.25, 0.025)] == ["25%", "2.5%"]


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for score, arms, message in (
        ([0.5, 0.5], [1, 1], "the control arm is empty"),
        ([0.5, 0.5], [1, 2], r"a\[1\] = 2.0"),
        ([1.5, 0.5], [0, 1], r"propensity\[0\] = 1.5: must be in"),
        ([0.5], [0, 1], "have shapes"),
    ):
        with pytest.raises(DataError, match=message):
            overlap_plot(score, arms)
    with pytest.raises(DeclarationError, match="cannot be written"):
        overlap_plot(SCORE, A, tmp_path / "absent" / "figure.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DeclarationError, match=r"pip install 'dp2erm-cvx\[plots\]'$"):
        overlap_plot(SCORE, A)
