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
    alone = make({}, {})
    best = alone
    for of, plan in earlier.items():
        if not isinstance(plan.study, EffectStudy):
            continue
        tried = _sharing(alone, make, of, plan)
        if len(tried.study.before) > len(best.study.before):
            best = tried
    return best


def _sharing(alone: Effect, make: Make, of: str, earlier: Effect) -> Effect:
    """The plan of an effect that takes over what it can of an ``earlier`` one.

    Where it can take over nothing, it is that of the effect ``alone``. ``of`` is the name of the
    earlier question.
    """
    study = earlier.study
    if not _same_records(study.universe, alone.study.universe) or not Noise(study.noise).pure:
        return alone
    placing = {name: getattr(study.settings, name) for name in _PLACING}
    paid = divided(study.rest, [step for step in earlier.steps if step.name != SCALE])
    try:
        own = make(placing, {})
        before = {}
        for name in _outcome_free(own):
            if name in paid:
                entry = {"of": of, "epsilon": paid[name].epsilon, "budget": study.rest.epsilon}
                before[name] = study.before.get(name, entry)
        while before:
            own = make(placing, before)
            same = _same(earlier, own)
            if before.keys() <= same:
                return own
            before = {name: entry for name, entry in before.items() if name in same}
    except Dp2ermError:
        # Placed like that, or at that noise, it cannot be released.
        pass
    return alone


def _same_records(one: Universe, other: Universe) -> bool:
    """True if two universes differ by the outcome at most, with covariates in the same order."""
    if one.domain.columns != other.domain.columns:
        return False
    return _without_outcome(one) == _without_outcome(other)


def _same(earlier: Effect, own: Effect) -> set[str]:
    """Names of steps that no outcome enters, and which both release by one map of the records."""
    if _without_outcome(earlier.study.start) != _without_outcome(own.study.start):
        return set()
    declared = _outcome_free(earlier)
    again = _outcome_free(own)
    same = {name for name in declared.keys() & again.keys() if declared[name] == again[name]}
    in_either = declared.keys() | again.keys()
    if _PLACED & in_either - same:
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
