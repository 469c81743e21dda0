"""What all figures of experiments share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colors that stay apart for color-blind readers, black first.
COLORS = ("#222222", "#1f5fa8", "#6aa3d8", "#b35900", "#d9a066", "#3a7d44", "#7a4fa3")


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own rather than pyplot's. Raises DeclarationError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DeclarationError("figures need matplotlib: install dp2erm-cvx[plots]") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write .svg or .png; the same table is the same file."""
    from matplotlib import rc_context

    dated: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": "dp2erm"}):
        figure.savefig(path, dpi=150, metadata=dated)


def plain(ax: Axes) -> None:
    """Axes without a box, with a light grid."""
    from matplotlib.ticker import NullFormatter

    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.93", linewidth=0.6)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())  # on a short logarithmic axis they overlap
