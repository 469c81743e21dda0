"""Run the cells that are missing, on any number of workers, and collect the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import Progress, run_tasks, untold
from dp2erm_cvx.studies.engine.experiment import (
    Design,
    Experiment,
    Row,
    StudyCell,
    cells_of,
    part_label,
)
from dp2erm_cvx.studies.engine.store import Store

if TYPE_CHECKING:
    import pandas as pd

D = TypeVar("D", bound=Design)


def run(
    experiment: Experiment[D],
    design: D,
    folder: str | Path,
    *,
    workers: int = 1,
    progress: Progress = untold,
) -> pd.DataFrame:
    """Run what is missing in ``folder`` and return the table of all rows, also in ``results.parquet``.

    The table depends on the design alone: not on the workers, nor on how often the run was stopped.
    ``progress`` is called with what is counted, how many of it are done, and their number: first the parts
    that cells share, then the cells. Raises what :class:`Store` does, DataError where a file of the design
    cannot be read, DeclarationError for an invalid number of workers.
    """
    design = experiment.opened(design)
    store = Store(folder, experiment.name, design)
    cells = cells_of(experiment, design)
    missing = [cell for cell in cells if not store.done(cell)]
    shared = _share_missing(experiment, design, missing, store, workers=workers, progress=progress)
    done = len(cells) - len(missing)
    progress("cells", done, len(cells))
    tasks = [(design, cell, shared) for cell in missing]
    for cell, rows in zip(missing, run_tasks(experiment.rows, tasks, workers=workers), strict=True):
        store.keep(cell, rows)
        done += 1
        progress("cells", done, len(cells))
    return store.collect(cells)


def run_one(
    experiment: Experiment[D],
    design: D,
    label: str,
    *,
    folder: str | Path | None = None,
    workers: int = 1,
    progress: Progress = untold,
) -> list[Row]:
    """The rows of the cell with this label, by itself. Raises DeclarationError where there is none.

    Of what cells share, only its own parts are computed. They are taken from ``folder`` where a run of the
    same design has kept them.
    """
    design = experiment.opened(design)
    cells = {cell.label: cell for cell in cells_of(experiment, design)}
    if label not in cells:
        raise DeclarationError(f"cell {label!r}: there is none; the first is {next(iter(cells))!r}")
    known = folder is not None and (Path(folder) / "design.json").exists()
    store = Store(folder, experiment.name, design) if known and folder is not None else None
    cell = cells[label]
    shared = _share_missing(experiment, design, [cell], store, workers=workers, progress=progress)
    return experiment.rows(design, cell, shared)


def _share_missing(
    experiment: Experiment[D],
    design: D,
    cells: Sequence[StudyCell],
    store: Store | None,
    *,
    workers: int,
    progress: Progress,
) -> dict[str, Any]:
    """The parts that ``cells`` need, by label: from the store where they are finished, else computed."""
    needed = {part for cell in cells for part in experiment.needs(design, cell)}
    wanted = [part for part in experiment.parts(design) if part in needed]
    shared = {} if store is None else store.shared()
    missing = [part for part in wanted if part_label(part) not in shared]
    done = len(wanted) - len(missing)
    if missing:
        progress(experiment.parts_are, done, len(wanted))
    tasks = [(design, part) for part in missing]
    for part, found in zip(missing, run_tasks(experiment.share, tasks, workers=workers), strict=True):
        # as it will be read, so that a stopped run goes on with the same values
        shared[part_label(part)] = json.loads(json.dumps(found))
        if store is not None:
            store.keep_shared(shared)
        done += 1
        progress(experiment.parts_are, done, len(wanted))
    return shared
