"""Steps that several effects of one study have in common: released once, by the first of them.

A step that no outcome enters is a function of the covariates, treatments and weights of records alone. Where
two effects declare the same of these, the second conditions on what the first released. By itself it has the
law of a release that drew this noise anew; both together spend it once (adaptive composition).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dp2erm_cvx.blocked import BlockedDataset
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import DataError, DeclarationError, Dp2ermError
from dp2erm_cvx.plan.effect import EffectStudy
from dp2erm_cvx.plan.plan import Plan, divided
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.fit import Fit, enters_no_outcome
from dp2erm_cvx.steps.step import Step, StepResult

#: Settings that decide where covariates are put; a question takes over those of the one that it shares with.
_PLACING = ("norm_bound", "mean_share", "spread_share", "rate_share")
#: Steps without which no other one is shared: what a later map sees depends on them.
_PLACED = {"rate", "mean", "spread"}

Before = Mapping[str, Mapping[str, Any]]
Effect = Plan[EffectStudy]


@dataclass(eq=False)
class Earlier:
    """Releases of earlier questions of a study for an estimator, and those that it has run itself.

    ``before`` are the steps, see :class:`~dp2erm_cvx.plan.Pipeline`, and ``owners`` the estimators that
    release them. The study enlarges the declared budget by what its questions save: ``enlarged``. A release
    of the whole study states its ``digest``. Of the last run there are the plan, the columns, whether it was
    without a seed, the results of the steps, and where steps may be shared a digest of the records: private.
    """

    before: Before = field(default_factory=dict)
    owners: Mapping[str, Any] = field(default_factory=dict)
    enlarged: Mapping[Budget, Budget] = field(default_factory=dict)
    digest: str = ""
    plan: Any = None
    columns: tuple[str, ...] = ()
    fresh: bool = True
    records: bytes = b""
    steps: Mapping[str, StepResult] = field(default_factory=dict)

    def starts(self, plan: Plan[Any], data: Dataset | BlockedDataset, fresh: bool) -> dict[str, StepResult]:
        """The results of the steps that a run of ``plan`` takes over.

        Raises DeclarationError where one is not a step of this run, DataError where it was of other records.
        A study that is fitted to one table, in memory or in blocks, is never refused for that: the refusal is
        about two tables, and for the data holder.
        """
        self.plan, self.columns, self.fresh, self.steps = plan, data.columns, fresh, {}
        self.records = _digest(data) if self.owners or self.enlarged else b""
        results = {}
        for name, owner in self.owners.items():
            of, other = self.before[name]["of"], owner.earlier
            if name not in other.steps:
                raise DeclarationError(f"{of} comes before this question, which takes over steps of it")
            steps = (run.plan.step(name) for run in (self, other))
            own, its = (step and (step.guarantee, step.calibration) for step in steps)
            if own != its or self.columns != other.columns:
                raise DeclarationError(
                    f"{name}: is not the step that {of} released, of other columns or another number of "
                    "records: plan the questions for the records that they are fitted to"
                )
            if fresh != other.fresh:
                raise DeclarationError(f"seed: {of} has one, or this question: give both one, or neither")
            if other.records and other.records != self.records:
                raise DataError(f"{name}: {of} released it of other records: fit both to one table")
            results[name] = other.steps[name]
        return results


def _digest(data: Dataset | BlockedDataset) -> bytes:
    """BLAKE2 of what enters steps without outcomes."""
    if isinstance(data, BlockedDataset):
        return hashlib.blake2b(b"".join(data.blocks.map(_digest))).digest()
    digest = hashlib.blake2b()
    for part in (data.X, data.a, data.sampling, data.person):
        digest.update(b"-" if part is None else np.ascontiguousarray(part).data)
    return digest.digest()


def take_over(
    model: Any,
    plans: Mapping[str, Plan[Any]],
    models: Mapping[str, Any],
    n: int,
    n_features: int | Sequence[str],
) -> Effect:
    """The plan of an effect that shares the most steps with an earlier one; its ``model`` takes them over.

    ``plans`` are those of the earlier questions, by estimators of ``models``. Covariates are the
    same columns in the same order: a domain without names cannot tell them apart.
    """
    own = dict(model.settings or {})

    def make(settings: Mapping[str, Any], before: Before) -> Effect:
        model.settings, model.earlier.before = {**settings, **own} or None, before
        plan: Effect = model.plan(n, n_features)
        return plan

    alone = make({}, {})
    tried = [
        _sharing(alone, make, of, earlier)
        for of, earlier in plans.items()
        if isinstance(earlier.study, EffectStudy) and _columns(models[of]) == _columns(model)
    ]
    best = max([alone, *tried], key=lambda plan: len(plan.study.before))
    model.settings, model.earlier.before = best.study.declared or None, best.study.before
    return best


def _columns(model: Any) -> list[list[Any] | None]:
    """The covariates that a model declares, and those that bend."""
    return [None if own is None else list(own) for own in (model.prognostic, model.curved)]


def _sharing(
    alone: Effect, make: Callable[[Mapping[str, Any], Before], Effect], of: str, earlier: Effect
) -> Effect:
    """The plan of an effect that takes over what it can of an ``earlier`` one; else that of it ``alone``.

    ``make`` plans it with these settings, beside its own, and at steps that were released before.
    """
    study, universe = earlier.study, alone.study.universe
    apart = _unseen(study.universe) != _unseen(universe)
    apart = apart or study.universe.domain.columns != universe.domain.columns  # in their order
    if apart or study.settings.rows is None or not Noise(study.noise).pure:
        return alone
    whole = study.budget.epsilon
    placing = {name: getattr(study.settings, name) for name in _PLACING}
    paid = divided(study.budget, earlier.steps)
    try:
        own = make(placing, {})
        before = {
            name: study.before.get(name, {"of": of, "epsilon": paid[name].epsilon, "budget": whole})
            for name in _outcome_free(own)
            if name in paid
        }
        while before:
            own = make(placing, before)
            same = _same(earlier, own)
            if before.keys() <= same:
                return own
            before = {name: entry for name, entry in before.items() if name in same}
    except Dp2ermError:  # placed like that, or at that noise, it cannot be
        pass
    return alone


def _same(earlier: Effect, own: Effect) -> set[str]:
    """Steps that no outcome enters, and which both release by one map of the same records."""
    declared, again = _outcome_free(earlier), _outcome_free(own)
    one, other = (_unseen(plan.study.start) for plan in (earlier, own))
    same = {name for name in declared.keys() & again.keys() if declared[name] == again[name]}
    apart = _PLACED & (declared.keys() | again.keys()) - same
    return set() if apart or one != other else same


def _outcome_free(plan: Effect) -> dict[str, Step]:
    """The steps that no outcome enters as they are declared, whatever their shares."""
    share = plan.study.numerical_share if plan.counted else None
    free = [step for step in plan.study.steps() if enters_no_outcome(step)]
    # integers are drawn without floating point whatever that of a minimizer is
    counted = [share if isinstance(step, Fit) else share and 1.0 for step in free]
    pairs = zip(free, counted, strict=True)
    return {step.name: replace(step, share=None, numerical_share=one) for step, one in pairs}


def _unseen(universe: Universe) -> Universe:
    """A codebook without the outcome; its column stays where a missing outcome makes a record count 0."""
    domain, book = universe.domain, universe.domain.codebook
    if book is not None and book.outcome in book.missing:
        missing = {name: value for name, value in book.missing.items() if name != book.outcome}
        book = replace(book, outcome=None, missing=missing)
    bare = replace(domain, binary_outcome=False, treatment_cost=0.0, outcome_center=0.0, codebook=book)
    return replace(universe, domain=replace(bare, outcome_bound=1.0))
