"""Which pipeline to take, found by simulation from the public domain and a stated guess of the world."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.plan import EffectPlan, RulePlan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.tuning.design_candidates import Candidate, candidates
from dp2erm_cvx.tuning.design_question import MOST_RECORDS, DesignQuestion
from dp2erm_cvx.tuning.design_result import CONSTANT, MARGIN, DesignResult, DesignRow, Enough, ranked
from dp2erm_cvx.tuning.design_trials import Trial, planned_noise, replicate

#: Is told what is counted, how many of it are done, and their number.
Told = Callable[[str, int, int], None]

#: Replicates of the search for enough records, the most of these that are simulated, and pipelines tried.
_FEW, _SIMULATED, _TRIED = 20, 25_000, 2
#: A budget at which noise no longer matters.
_NO_PRIVACY = 1e5


def untold(what: str, done: int, total: int) -> None:
    """No one watches."""


def design(question: DesignQuestion, *, workers: int = 1, told: Told = untold) -> DesignResult:
    """Simulate every candidate pipeline, rank them, and say whether the first is worth reading.

    No record is read and nothing is spent: data are drawn from the guess. Every candidate sees the same
    datasets. An effect is ranked by its root mean square error among those whose intervals hold it often
    enough, a rule by its share of right decisions. Candidates that paired differences do not tell from the
    best are tied with it; the simplest of them comes first, the public rule of use before settings of one's
    own.

    Where nothing is worth reading, larger numbers of records are tried by the default pipeline. The result
    depends on the question alone, and not on the number of ``workers``. Raises DeclarationError or
    CalibrationError where the default pipeline has no plan.
    """
    compared = candidates(question)
    trials, constant, off = _simulated(question, compared, workers, told)
    rows = [_row(question, one, found) for one, found in zip(compared, trials, strict=True)]
    if question.goal == "rule":
        beside = DesignRow.of_rule(CONSTANT, constant)
    else:
        free = replace(question, budget=Budget(_NO_PRIVACY))
        default = candidates(free)[:1]
        (found,), _, _ = _simulated(free, default, workers, told, "replicates without privacy")
        beside = replace(_row(free, default[0], found), name="default, without privacy", model=None)
    result = DesignResult(question, ranked(question, rows), beside, off)
    return result if result.answers else replace(result, enough=_enough(result, workers, told))


def _simulated(
    question: DesignQuestion,
    compared: Sequence[Candidate],
    workers: int,
    told: Told,
    what: str = "replicates",
) -> tuple[list[list[Trial | str]], list[Trial], float]:
    """The trials of every candidate, those of the best constant, and by how much means are confounded."""
    told(what, 0, question.replicates)
    tasks = ((question, compared, number) for number in range(question.replicates))
    found = []
    for one in run_tasks(replicate, tasks, workers=workers):
        found.append(one)
        told(what, len(found), question.replicates)
    trials, constant, off = zip(*found, strict=True)
    return [list(of) for of in zip(*trials, strict=True)], list(constant), float(np.mean(off))


def _row(question: DesignQuestion, one: Candidate, found: Sequence[Trial | str]) -> DesignRow:
    failed = [trial for trial in found if isinstance(trial, str)]
    done = [trial for trial in found if isinstance(trial, Trial)]
    if failed:
        row = DesignRow(one.name, reason=f"{len(failed)} of {len(found)} runs failed: {failed[0]}")
    elif question.goal == "rule":
        row = DesignRow.of_rule(one.name, done)
    else:
        row = DesignRow.of_effect(one.name, done, planned_noise(question, one))
    return replace(row, command=one.command, words=one.words, model=one.model)


def _enough(result: DesignResult, workers: int, told: Told) -> Enough:
    """About how many records are needed, by the default pipeline and those that came first."""
    question, n = result.question, float(result.question.n_samples)
    while n <= MOST_RECORDS and not _expected(result, n := n * math.sqrt(2.0)):
        pass
    names = {"default", *(row.name for row in result.rows[:_TRIED] if row.command != "fit")}
    failed = 0
    while (records := _upward(n)) <= _SIMULATED:
        larger = replace(question, n_samples=records, replicates=_FEW)
        compared = [one for one in candidates(larger) if one.name in names]
        trials, constant, off = _simulated(larger, compared, workers, told, f"runs at n = {records:,}")
        rows = [_row(larger, one, found) for one, found in zip(compared, trials, strict=True)]
        beside = DesignRow.of_rule(CONSTANT, constant) if question.goal == "rule" else result.beside
        if DesignResult(larger, ranked(larger, rows), beside, off).answers:
            return Enough(records, "simulated")
        failed, n = records, 2.0 * n
    if failed:
        return Enough(failed, "more")
    return Enough(records, "predicted") if records <= MOST_RECORDS else Enough(MOST_RECORDS, "more")


def _upward(n: float) -> int:
    """Two significant digits: no more is known."""
    unit = int(10 ** max(math.floor(math.log10(n)) - 1, 0))
    return math.ceil(n / unit) * unit


def _expected(result: DesignResult, n: float) -> bool:
    """Whether public predictions expect an answer from so many records."""
    question, best = result.question, result.best
    plan = candidates(replace(question, n_samples=int(n)))[0].model.plan(int(n), question.n_features)
    if isinstance(plan, RulePlan):
        guess = question.filled
        assert guess.effect_spread is not None
        # of two normals, the effect and the same with noise, so often the signs differ
        flipped = math.atan2(plan.noise_effect, guess.effect_spread) / math.pi
        return 1.0 - flipped > (result.beside.right or 0.5) + 1.5 * MARGIN
    assert isinstance(plan, EffectPlan)
    if not (math.isfinite(best.width) and math.isfinite(best.noise)):
        return plan.negligible
    less = question.n_samples / n
    sampling = max(0.25 * best.width**2 - best.noise**2, 0.0)
    width = 2.0 * math.sqrt(sampling * less + (best.noise * less) ** 2)
    return width < abs(result.effect) and (best.holds or plan.negligible)
