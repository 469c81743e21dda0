"""Run the cells that are missing, on any number of workers, and collect the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.experiments.engine.cell import Cell, Experiment, Row, cells_of
from dp2erm_cvx.experiments.engine.design import Design
from dp2erm_cvx.experiments.engine.store import Store
from dp2erm_cvx.parallel import run_tasks

if TYPE_CHECKING:
    import pandas as pd

D = TypeVar("D", bound=Design)


def run(
    experiment: Experiment[D],
    design: D,
    folder: str | Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Run what is missing in ``folder`` and return the table of all rows, also in ``results.parquet``.

    The table depends on the design alone: not on the workers, nor on how often the run was stopped.
    ``progress`` is called with the cells that are done and their number. Raises what :class:`Store` does,
    DataError where a file of the design cannot be read, DeclarationError for an invalid number of workers.
    """
    design = experiment.opened(design)
    store = Store(folder, experiment.name, design)
    cells = cells_of(experiment, design)
    missing = [cell for cell in cells if not store.done(cell)]
    done = len(cells) - len(missing)
    if progress is not None:
        progress(done, len(cells))
    if missing:
        shared = _shared(experiment, design, store, workers)
        tasks = [(experiment, design, cell, shared) for cell in missing]
        for cell, rows in zip(missing, run_tasks(_rows, tasks, workers=workers), strict=True):
            store.keep(cell, rows)
            done += 1
            if progress is not None:
                progress(done, len(cells))
    return store.collect(cells)


def run_one(
    experiment: Experiment[D], design: D, label: str, *, folder: str | Path | None = None, workers: int = 1
) -> list[Row]:
    """The rows of the cell with this label, by itself. Raises DeclarationError where there is none.

    What cells share is taken from ``folder`` where a run of the same design has kept it.
    """
    design = experiment.opened(design)
    cells = {cell.label: cell for cell in cells_of(experiment, design)}
    if label not in cells:
        raise DeclarationError(f"cell {label!r}: there is none; the first is {next(iter(cells))!r}")
    if folder is not None and (Path(folder) / "design.json").exists():
        shared = _shared(experiment, design, Store(folder, experiment.name, design), workers)
    else:
        shared = json.loads(json.dumps(experiment.prepare(design, workers)))
    return _rows(experiment, design, cells[label], shared)


def _rows(experiment: Experiment[D], design: D, cell: Cell, shared: Any) -> list[Row]:
    return experiment.rows(design, cell, shared)


def _shared(experiment: Experiment[D], design: D, store: Store, workers: int) -> Any:
    try:
        return store.shared()
    except KeyError:
        store.keep_shared(experiment.prepare(design, workers))
        return store.shared()
