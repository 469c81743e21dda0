"""What cells share, computed in parts that are kept as they finish."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.studies.engine.cell import Cell, Experiment, Part, part_label
from dp2erm_cvx.studies.engine.design import Design
from dp2erm_cvx.studies.engine.store import Store

D = TypeVar("D", bound=Design)

#: Is told what is counted, how many of it are done, and their number.
Progress = Callable[[str, int, int], None]


def share_missing(
    experiment: Experiment[D],
    design: D,
    cells: Sequence[Cell],
    store: Store | None,
    *,
    workers: int,
    progress: Progress | None,
) -> dict[str, Any]:
    """The parts that ``cells`` need, by label: from the store where they are finished, else computed."""
    needed = {part for cell in cells for part in experiment.needs(design, cell)}
    wanted = [part for part in experiment.parts(design) if part in needed]
    shared = {} if store is None else store.shared()
    missing = [part for part in wanted if part_label(part) not in shared]
    done = len(wanted) - len(missing)
    if missing and progress is not None:
        progress(experiment.parts_are, done, len(wanted))
    tasks = [(experiment, design, part) for part in missing]
    for part, found in zip(missing, run_tasks(_share, tasks, workers=workers), strict=True):
        # as it will be read, so that a stopped run goes on with the same values
        shared[part_label(part)] = json.loads(json.dumps(found))
        if store is not None:
            store.keep_shared(shared)
        done += 1
        if progress is not None:
            progress(experiment.parts_are, done, len(wanted))
    return shared


def _share(experiment: Experiment[D], design: D, part: Part) -> Any:
    return experiment.share(design, part)
