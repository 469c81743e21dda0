"""About how many records an answer needs, where there is none at the n that was asked for."""

from __future__ import annotations

import math
from dataclasses import replace

from dp2erm_cvx.parallel import Progress
from dp2erm_cvx.plan import EffectPlan, RulePlan
from dp2erm_cvx.tuning.designs.candidates import design_candidates
from dp2erm_cvx.tuning.designs.question import MOST_RECORDS
from dp2erm_cvx.tuning.designs.result import MARGIN, DesignResult, Enough
from dp2erm_cvx.tuning.designs.table import simulated_table

#: Replicates, the most records that are simulated, and pipelines that are tried beside the default.
_FEW, _SIMULATED, _TRIED = 20, 25_000, 2


def enough_records(result: DesignResult, workers: int, told: Progress) -> Enough:
    """Public predictions say where to start; from there records are doubled until a simulation answers.

    By the default pipeline and those that came first, with fewer replicates than the design itself.
    """
    question, n = result.question, result.question.n_samples * math.sqrt(2.0)
    predictable = question.goal == "rule" or result.best.holds  # coverage is known from simulations alone
    while n <= MOST_RECORDS and not _expected(result, int(n)):
        n *= math.sqrt(2.0)
    names = {"default", *(row.name for row in result.rows[:_TRIED] if row.command != "fit")}
    failed = 0
    while (records := _upward(n)) <= _SIMULATED:
        larger = replace(question, n_samples=records, replicates=_FEW)
        compared = [one for one in design_candidates(larger) if one.name in names]
        found = simulated_table(larger, compared, workers, told, f"runs at n = {records:,}")
        beside = found.constant if question.goal == "rule" else result.beside
        if DesignResult(larger, found.rows, beside, found.confounded_by).answers:
            return Enough(records, "simulated")
        failed, n = records, 2.0 * n
    if failed or not predictable:
        return Enough(failed or question.n_samples, "more")
    return Enough(records, "predicted") if records <= MOST_RECORDS else Enough(MOST_RECORDS, "more")


def _upward(n: float) -> int:
    """Two significant digits: no more is known."""
    unit = int(10 ** max(math.floor(math.log10(n)) - 1, 0))
    return math.ceil(n / unit) * unit


def _expected(result: DesignResult, n: int) -> bool:
    """Whether public predictions expect an answer from so many records."""
    question = result.question
    plan = design_candidates(replace(question, n_samples=n))[0].model.plan(n, question.n_features)
    if isinstance(plan, RulePlan):
        guess = question.filled
        assert guess.effect_spread is not None
        # of two normals, the effect and the same with noise, so often the signs differ
        flipped = math.atan2(plan.noise_effect, guess.effect_spread) / math.pi
        return 1.0 - flipped > (result.beside.right or 0.5) + 1.5 * MARGIN
    assert isinstance(plan, EffectPlan)
    return 4.0 * math.sqrt(plan.study.predicted_error) < abs(result.question.net_effect)
