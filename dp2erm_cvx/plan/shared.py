"""Steps that several effects of one study have in common: released once, by the first of them.

A step that no outcome enters is a function of the covariates, treatments and weights of records
alone. Where two effects declare the same of these, the second conditions on what the first
released. By itself it has the law of a release that drew this noise anew; both together spend it
once (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.plan.effect import EffectStudy
from dp2erm_cvx.plan.plan import Plan, divided
from dp2erm_cvx.steps.fit import Fit, enters_no_outcome
from dp2erm_cvx.steps.outcome_scale import SCALE
from dp2erm_cvx.steps.step import Step

#: Settings that decide where covariates are put; a question takes over those of the one that it
#: shares with.
_PLACING = ("norm_bound", "mean_share", "spread_share", "rate_share")
#: Steps without which no other one is shared: what a later map sees depends on them.
_PLACED = {"rate", "mean", "spread"}

Before = Mapping[str, Mapping[str, Any]]
Effect = Plan[EffectStudy]


#: Makes the plan of an effect with these settings under its own, and these steps released before.
Make = Callable[[Mapping[str, Any], Before], Effect]


def sharing_plan(make: Make, earlier: Mapping[str, Plan[Any]]) -> Effect:
    """The plan of an effect that takes over the most steps of one earlier question.

    Where it can take over none, it is the plan of the effect alone.

    Parameters
    ----------
    make
        Plans the effect: with settings that its own are put over, and with steps that were released
        before. It changes nothing.
    earlier
        Plans of earlier questions of the same records and covariates, by the names of the
        questions.
    """
    plan_alone = make({}, {})
    best = plan_alone
    for question, plan in earlier.items():
        if not isinstance(plan.study, EffectStudy):
            continue
        sharing = _sharing(plan_alone, make, question, plan)
        if len(sharing.study.before) > len(best.study.before):
            best = sharing
    return best


def _sharing(plan_alone: Effect, make: Make, question: str, earlier: Effect) -> Effect:
    """The plan of an effect that takes over what it can of an earlier one.

    Parameters
    ----------
    plan_alone
        The plan of the effect that takes over nothing, which is returned where nothing can be
        taken over.
    make
        Plans the effect.
    question
        Name of the earlier question.
    earlier
        Its plan.
    """
    study = earlier.study
    has_same_records = _same_records(study.universe, plan_alone.study.universe)
    if not has_same_records or not Noise(study.noise).pure:
        return plan_alone
    placing = {name: getattr(study.settings, name) for name in _PLACING}
    paid = divided(study.rest, [step for step in earlier.steps if step.name != SCALE])
    try:
        plan = make(placing, {})
        before = {}
        for name in _outcome_free(plan):
            if name in paid:
                epsilon = paid[name].epsilon
                entry = {"of": question, "epsilon": epsilon, "budget": study.rest.epsilon}
                before[name] = study.before.get(name, entry)
        # without a step that differs others may differ as well, which see other maps then
        while before:
            plan = make(placing, before)
            same_steps = _same_steps(earlier, plan)
            if before.keys() <= same_steps:
                return plan
            before = {name: entry for name, entry in before.items() if name in same_steps}
    except Dp2ermError:
        # Placed like that, or at that noise, it cannot be released.
        pass
    return plan_alone


def _same_records(one: Universe, other: Universe) -> bool:
    """True if two universes differ by the outcome at most, with covariates in the same order."""
    if one.domain.columns != other.domain.columns:
        return False
    return _without_outcome(one) == _without_outcome(other)


def _same_steps(earlier: Effect, later: Effect) -> set[str]:
    """Names of steps that no outcome enters, and which both release by one map of the records."""
    if _without_outcome(earlier.study.start) != _without_outcome(later.study.start):
        return set()
    steps = _outcome_free(earlier)
    later_steps = _outcome_free(later)
    in_both = steps.keys() & later_steps.keys()
    same = {name for name in in_both if steps[name] == later_steps[name]}
    in_either = steps.keys() | later_steps.keys()
    different = in_either - same
    # what a later map sees depends on these: where one differs nothing is the same
    if _PLACED & different:
        return set()
    return same


def _outcome_free(plan: Effect) -> dict[str, Step]:
    """The steps that no outcome enters as they are declared, whatever their shares."""
    share = plan.study.numerical_share if plan.counted else None
    free: dict[str, Step] = {}
    for step in plan.study.steps():
        if not enters_no_outcome(step):
            continue
        numerical_share = share
        if share and not isinstance(step, Fit):
            # Integers are drawn without floating point, whatever that of a minimizer is.
            numerical_share = 1.0
        free[step.name] = replace(step, share=None, numerical_share=numerical_share)
    return free


def _without_outcome(universe: Universe) -> Universe:
    """A universe without what is declared of the outcome.

    The column of the outcome stays where a missing outcome makes a record count 0.
    """
    domain = universe.domain
    book = domain.codebook
    if book is not None and book.outcome in book.missing:
        missing = {name: value for name, value in book.missing.items() if name != book.outcome}
        book = replace(book, outcome=None, missing=missing)
    bare = replace(
        domain, binary_outcome=False, treatment_cost=0.0, outcome_center=0.0, codebook=book
    )
    return replace(universe, domain=replace(bare, outcome_bound=1.0))
