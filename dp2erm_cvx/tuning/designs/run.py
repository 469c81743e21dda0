"""Which pipeline to take, found by simulation from the public domain and a stated guess of the world."""

from __future__ import annotations

from dataclasses import replace

from dp2erm_cvx.parallel import Progress, untold
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.tuning.designs.candidates import design_candidates
from dp2erm_cvx.tuning.designs.enough import enough_records
from dp2erm_cvx.tuning.designs.question import DesignQuestion
from dp2erm_cvx.tuning.designs.result import DesignResult
from dp2erm_cvx.tuning.designs.table import simulated_table

#: A budget at which noise no longer matters.
_NO_PRIVACY = 1e5


def design(question: DesignQuestion, *, workers: int = 1, told: Progress = untold) -> DesignResult:
    """Simulate every candidate pipeline, rank them, and say whether the first is worth reading.

    No record is read and nothing is spent: data are drawn from the guess. Every candidate sees the same
    datasets. An effect is ranked by its root mean square error among those whose intervals cover it often
    enough, a rule by its share of right decisions. Candidates that paired differences do not tell from the
    best are tied with it; the simplest of them comes first, the public rule of use before settings of one's
    own.

    Where nothing is worth reading, larger numbers of records are tried by the default pipeline. The result
    depends on the question alone, and not on the number of ``workers``. Raises DeclarationError or
    CalibrationError where the default pipeline has no plan.
    """
    found = simulated_table(question, design_candidates(question), workers, told)
    beside = found.constant
    if question.goal == "effect":
        free = replace(question, budget=Budget(_NO_PRIVACY))
        (row,) = simulated_table(
            free, design_candidates(free)[:1], workers, told, "runs without privacy"
        ).rows
        beside = replace(row, name="default, without privacy", tied=False, model=None)
    result = DesignResult(question, found.rows, beside, found.confounded_by)
    if result.answers or result.best.reason:
        return result
    return replace(result, enough=enough_records(result, workers, told))
