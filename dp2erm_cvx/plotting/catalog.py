"""Figures of experiments from their tables, as SVG and PNG. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.plotting.common import save
from dp2erm_cvx.plotting.confounded import confounded
from dp2erm_cvx.plotting.nhefs import nhefs
from dp2erm_cvx.plotting.rates import rates
from dp2erm_cvx.plotting.study import study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["figures_of"]

_DRAWN: dict[str, Callable[[pd.DataFrame], Iterable[tuple[str, Any]]]] = {
    "confounded": confounded,
    "nhefs": nhefs,
    "rates": rates,
    "simulation": partial(study, part="scenario", stem="simulation"),
    "twins": partial(study, part="form", stem="twins"),
}


def figures_of(name: str, table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw what there is for an experiment; the paths. Raises DeclarationError without matplotlib."""
    drawn: list[Path] = []
    for stem, figure in _DRAWN[name](table):
        for ending in ("svg", "png"):
            path = folder / f"{stem}.{ending}"
            save(figure, path)
            drawn.append(path)
    return drawn
