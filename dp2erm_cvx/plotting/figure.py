"""New figures, and figures as files. matplotlib is imported when a figure is drawn, never before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What to leave out so that the same figure is the same file.
_DATED: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own rather than pyplot's. Raises DeclarationError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DeclarationError("plots need matplotlib: pip install 'dp2erm-cvx[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: str | Path) -> None:
    """Write .png, .svg or .pdf; the same figure is the same file. Raises DeclarationError."""
    from matplotlib import rc_context

    try:
        with rc_context({"svg.hashsalt": "dp2erm"}):
            figure.savefig(path, dpi=150, metadata=_DATED.get(Path(path).suffix.lower()))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path}: cannot be written: {str(error).splitlines()[0]}") from None
