"""The loop of a search: waves of rounds until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable

from dp2erm_cvx.audit.stability.rounds import Searcher
from dp2erm_cvx.audit.stability.search import Progress, ResolveBudget, State
from dp2erm_cvx.parallel import run_tasks


def explore(
    searcher: Searcher,
    state: State,
    budget: ResolveBudget,
    *,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
    save: Callable[[], None] | None = None,
) -> None:
    """Search on from ``state``. ``save`` is called wherever the search could go on after a stop."""
    began = time.time()
    deadline = None if budget.seconds is None else began + budget.seconds
    whole = True
    while True:
        left = None if budget.solves is None else budget.solves - state.spent
        if (left is not None and left <= 0) or (deadline is not None and time.time() >= deadline):
            break
        tasks = list(searcher.wave(state, left, deadline))
        for found in run_tasks(searcher.run, [(task,) for task in tasks], workers=workers):
            state.add(found.kept, found.scouted, found.resolved, found.check)
            whole = whole and found.whole
            if progress is not None:
                shares = [] if budget.solves is None else [state.spent / budget.solves]
                shares += [] if budget.seconds is None else [(time.time() - began) / budget.seconds]
                progress(Progress(min(1.0, max(shares)), state.spent, searcher.highest(state)))
        state.rounds += len(tasks)
        # nothing is gone on from a wave that was cut short, so that a stop does not change what is found
        if save is not None and whole:
            save()
