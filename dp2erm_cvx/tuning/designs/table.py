"""The trials of all candidates, on any number of workers, and the rows that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.parallel import Progress, run_tasks
from dp2erm_cvx.tuning.designs.candidates import Candidate
from dp2erm_cvx.tuning.designs.question import DesignQuestion
from dp2erm_cvx.tuning.designs.row import DesignRow, ranked
from dp2erm_cvx.tuning.designs.trials import SimulatedRun, planned_noise, replicate

#: What rules are compared with.
CONSTANT = "best constant rule"


class DesignTable(NamedTuple):
    """Ranked rows; of a rule that of the best constant, and by how much the plain means are confounded."""

    rows: tuple[DesignRow, ...]
    constant: DesignRow
    confounded_by: float


def simulated_table(
    question: DesignQuestion,
    compared: Sequence[Candidate],
    workers: int,
    told: Progress,
    what: str = "replicates",
) -> DesignTable:
    """Simulate the candidates and rank them; ``told`` counts the replicates, by the name ``what``."""
    told(what, 0, question.replicates)
    tasks = ((question, compared, number) for number in range(question.replicates))
    found = []
    for one in run_tasks(replicate, tasks, workers=workers):
        found.append(one)
        told(what, len(found), question.replicates)
    trials, constant, off = zip(*found, strict=True)
    rows = [_row(question, one, of) for one, of in zip(compared, zip(*trials, strict=True), strict=True)]
    return DesignTable(ranked(question, rows), DesignRow.of_rule(CONSTANT, constant), float(np.mean(off)))


def _row(question: DesignQuestion, one: Candidate, found: Sequence[SimulatedRun | str]) -> DesignRow:
    failed = [trial for trial in found if isinstance(trial, str)]
    done = [trial for trial in found if isinstance(trial, SimulatedRun)]
    if failed:
        row = DesignRow(one.name, reason=f"{len(failed)} of {len(found)} runs failed: {failed[0]}")
    elif question.goal == "rule":
        row = DesignRow.of_rule(one.name, done)
    else:
        row = DesignRow.of_effect(one.name, done, planned_noise(question, one))
    return replace(row, command=one.command, words=one.words, model=one.model)
