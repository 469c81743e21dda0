"""A study: its questions, their plans within one budget, the charge for them, and their answers."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp2erm_cvx.arrays import ROUND_DOWN
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset, Public
from dp2erm_cvx.data.files import PLAIN, CsvLayout
from dp2erm_cvx.data.private_ranges import OpenDomain
from dp2erm_cvx.diagnostics.columns import RecordCounts
from dp2erm_cvx.diagnostics.look import AskedAbout, Findings, look
from dp2erm_cvx.errors import CalibrationError, DeclarationError, Dp2ermError, placed
from dp2erm_cvx.estimators import PrivateEffect
from dp2erm_cvx.estimators.fitting import (
    PlanRun,
    PrivateEstimator,
    charge,
    telling_charge,
    weaker_standings,
)
from dp2erm_cvx.ledger import Ledger, Receipt
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.plan.shared import sharing_plan
from dp2erm_cvx.plan.standing import standing_in_words
from dp2erm_cvx.privacy import Budget, Standing
from dp2erm_cvx.program.stage import Registered
from dp2erm_cvx.release.declaration import declaration_of
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.steps.execution import StepResult
from dp2erm_cvx.study.open_ranges import RANGES
from dp2erm_cvx.study.questions import QUESTIONS, Question
from dp2erm_cvx.study.records import StudyRecords, data_columns

#: How often budgets are enlarged by what questions save by sharing: two are enough but for a rule
#: of use that lies between.
_TRIALS = 6


@dataclass(frozen=True)
class StudyFile:
    """Declarations of a study.

    Parameters
    ----------
    domain
        What its records may look like; what is known of that where ranges are released.
    budget
        (epsilon, delta) of all questions together.
    questions
        In the order of the file; the one that releases ranges comes first.
    account
        The file of the ledger and the name of the data set; None where nothing is charged.
    digest
        SHA-256 of all that is declared, programs and target samples in files of their own included.
    source
        The file, for messages.
    layout
        How its CSV files are written.
    programs
        Programs of files that its questions name.
    resting
        The questions that rest on released ranges, at these; None where all ranges are declared.
    """

    domain: Public
    budget: Budget
    questions: tuple[Question, ...]
    account: tuple[Path, str] | None
    digest: str
    source: str = "study"
    layout: CsvLayout = PLAIN
    programs: tuple[Registered, ...] = ()
    resting: Callable[[RangesRelease], tuple[Question, ...]] | None = None

    def at(self, ranges: RangesRelease) -> StudyFile:
        """The study once its ranges are released, with its other questions in their domains.

        Raises
        ------
        DeclarationError
            Where these are no ranges of this study.
        """
        if self.resting is None:
            raise DeclarationError(f"{self.source}: releases no ranges: all of them are declared")
        with placed(self.source):
            return replace(self, questions=(self.questions[0], *self.resting(ranges)))

    def models(self, *, seed: int | None = None, **execution: Any) -> dict[str, PrivateEstimator]:
        """An estimator for every question, by its name, each with its part of the budget.

        Where ranges are still to be released, estimators that rest on them plan, and refuse to be
        fitted: see :meth:`at`.

        Parameters
        ----------
        seed
            Of the first question; every further one has the next. None for noise that is private.
        execution
            Arguments of estimators that declare nothing, such as ``solver``.

        Raises
        ------
        DeclarationError
            For a question that cannot be asked, with its name.
        """
        models = {}
        for number, question in enumerate(self.questions):
            settings = {**execution, **question.settings}
            settings["seed"] = None if seed is None else seed + number
            estimator = QUESTIONS[question.kind]
            try:
                model = estimator(question.domain, self._part(question.share), **settings)
            except TypeError as error:  # a required setting of a program, say
                raise DeclarationError(f"{self.source}: {question.name}: {error}") from None
            if self._waits_for_ranges(question):
                model.before_charge = _refuse_before_ranges
            models[question.name] = model
        return models

    def _waits_for_ranges(self, question: Question) -> bool:
        """True if a question rests on ranges that are not released."""
        if self.resting is None or question.kind == RANGES:
            return False
        return question.domain.released is None

    def check(self, models: Mapping[str, PrivateEstimator]) -> None:
        """Judge what the questions declare, before any data are read.

        Each of them has to suit some number of records.

        Raises
        ------
        DeclarationError, SolverError
            With the name of the question that does not.
        """
        for question, (name, model) in zip(self.questions, models.items(), strict=True):
            try:
                model.check(question.columns)
            except Dp2ermError as error:
                raise type(error)(f"{self.source}: {name}: {error}") from None

    def check_account(self, models: Mapping[str, PrivateEstimator]) -> None:
        """Raise LedgerError, before any data are read, where there is no account that is declared.

        Where the models are seeded nothing is charged, and none is needed.
        """
        if self.account is None or any(model.seed is not None for model in models.values()):
            return
        path, dataset = self.account
        Ledger(path).account(dataset)

    def plans(
        self,
        models: Mapping[str, PrivateEstimator],
        n: int,
        n_features: int | Sequence[str] | None = None,
    ) -> dict[str, Plan[Any]]:
        """The plan of every question for n records.

        Effects share the steps that no outcome enters where they declare the same of these: a plan
        then names what it takes over, and from which question. What that saves is divided among all
        questions in proportion to their shares, by budgets that are the same number of times as
        large. Where ranges are released first, nothing is shared: what a question spends does not
        depend on them. Nothing is written into the ``models``.

        Parameters
        ----------
        models
            Estimators by the names of their questions.
        n
            Number of records.
        n_features
            Number of the covariates, or their names, where the study does not name them.

        Raises
        ------
        Dp2ermError
            With the name of the question that cannot be planned.
        """
        times = 1.0
        whole = math.fsum(self._part(question.share).epsilon for question in self.questions)
        for _ in range(_TRIALS):
            plans = self._planned(models, n, n_features, times)
            spent = math.fsum(plan.own.epsilon for plan in plans.values())
            shared = any(plan.study.before for plan in plans.values())
            nothing_saved = times == 1.0 and not shared
            if nothing_saved or (1.0 - 1e-5) * whole <= spent <= whole:
                return plans
            # Few digits are kept, which are the same on every machine.
            times = math.floor(1e6 * times * whole / spent) / 1e6
        return self._planned(models, n, n_features, 1.0)

    def _planned(
        self,
        models: Mapping[str, PrivateEstimator],
        n: int,
        n_features: int | Sequence[str] | None,
        times: float,
    ) -> dict[str, Plan[Any]]:
        """The plan of every question, at budgets that are ``times`` as large as its part."""
        plans: dict[str, Plan[Any]] = {}
        for question, (name, model) in zip(self.questions, models.items(), strict=True):
            columns = question.columns or n_features
            if columns is None:
                raise DeclarationError(
                    f"{self.source}: {name}: no covariates are declared: add covariates, or ranges"
                )
            alike: dict[str, Plan[Any]] = {}
            if self.resting is None:
                own = _covariates(model)
                alike = {of: one for of, one in plans.items() if _covariates(models[of]) == own}
            try:
                enlarged = replace(model, budget=self._part(question.share, times))
                plans[name] = _plan(enlarged, n, columns, alike)
            except Dp2ermError as error:
                raise type(error)(f"{self.source}: {name}: {error}") from None
        return plans

    def question_of(self, release: BaseRelease) -> str | None:
        """The question that a release answers, by what it declares; None where it answers none."""
        try:
            plans = self.plans(self.models(), release.n_samples, release.columns)
        except (CalibrationError, DeclarationError):
            return None
        # The domain of ranges is what was released, and no declaration.
        compares_domains = not isinstance(release, RangesRelease)
        stated = [release.declared, release.domain if compares_domains else None]
        for name, plan in plans.items():
            declared = declaration_of(plan) | {"arithmetic": release.declared.get("arithmetic")}
            domain = plan.study.universe.domain.to_dict() if compares_domains else None
            if _as_text([declared, domain]) == _as_text(stated):
                return name
        return None

    def run(
        self,
        table: Any,
        *,
        seed: int | None = None,
        conditional: bool = False,
        accept: bool = False,
        **execution: Any,
    ) -> dict[str, BaseRelease]:
        """Answer all questions from one table.

        They are planned, then charged together, then answered in their order. Ranges that the study
        releases are released first; the questions that rest on them are then planned once more,
        within what was charged for them.

        Parameters
        ----------
        table
            A data frame of pandas or polars, or a table of Arrow, with the columns that are
            declared; or a
            :class:`~dp2erm_cvx.data.blocked.BlockedDataset`.
        seed
            As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`: nothing is charged then.
        conditional
            Whether releases are made that will not be private: elsewhere DeclarationError is
            raised.
        accept
            Whether to release all the same where a look at the records finds that they do not suit
            what is declared, see :mod:`~dp2erm_cvx.diagnostics.look`. Decide that in advance where
            others submit the study.
        execution
            Arguments of the estimators that declare nothing, such as ``solver``.

        Returns
        -------
        dict of str to BaseRelease
            The releases by the names of their questions.

        Raises
        ------
        DataError
            For a table that lacks a column, and where the look finds what stops a release. It warns
            the data holder of what it finds otherwise.
        Dp2ermError
            As :meth:`plans`, :meth:`charge` and :meth:`answered` do.
        """
        records = StudyRecords.of(table)
        models = self.models(seed=seed, **execution)
        self.check(models)
        self.check_account(models)
        plans = self.plans_for(models, records)
        weaker = weaker_standings(plans)
        if weaker and not conditional:
            consent = "Nothing was charged; conditional=True releases all the same"
            raise DeclarationError(f"{self.source}: {'; '.join(weaker)}. {consent}")
        _, findings = self.looked_at(models, records)
        if not accept:
            findings.refuse("run(..., accept=True)")
        for line in (*findings.gross, *findings.lines):
            warnings.warn(f"{line} (for the data holder only)", stacklevel=2)
        receipt = self.charge(plans) if seed is None else None
        with telling_charge(receipt):
            return {name: one.release for name, one in self.answered(models, plans, records)}

    def looked_at(
        self, models: Mapping[str, PrivateEstimator], records: StudyRecords
    ) -> tuple[list[RecordCounts], Findings]:
        """What becomes of the cells, and what a look finds, for all questions together.

        This is not private: it is for the data holder, before anything is spent.
        """
        counts: list[RecordCounts] = []
        findings = Findings()
        for question, asked in zip(self._about_records(), self.asked_about(models), strict=True):
            seen = records.seen(asked.public, question.named)
            if asked.columns is None:
                asked = replace(
                    models[question.name].asked_about(seen.columns), public=asked.public
                )
            if seen.counts not in counts:
                counts.append(seen.counts)
            findings += look(seen, asked)
        return counts, findings

    def asked_about(self, models: Mapping[str, PrivateEstimator]) -> list[AskedAbout]:
        """What a look at records has to know of every question that is about more than ranges."""
        every = []
        for question in self._about_records():
            model = models[question.name]
            public = question.known
            if not isinstance(public, OpenDomain):
                public = model.public()
            asked = AskedAbout(public)
            if question.columns is not None:
                asked = replace(model.asked_about(question.columns), public=public)
            every.append(asked)
        return every

    def _about_records(self) -> Sequence[Question]:
        """All questions but the one that releases ranges, where there are others."""
        first, *others = self.questions
        if others and first.kind == RANGES:
            return others
        return self.questions

    def plans_for(
        self, models: Mapping[str, PrivateEstimator], records: StudyRecords
    ) -> dict[str, Plan[Any]]:
        """The plans of all questions for these records, which can be run on them.

        Nothing is spent.

        Raises
        ------
        ProgramError
            Where a program needs records in memory that are read in blocks.
        Dp2ermError
            As :meth:`plans` does.
        """
        raw = {one.name: records.by(one.known, one.named) for one in self.questions}
        first = raw[self.questions[0].name]
        plans = self.plans(models, first.n_samples, first.columns)
        for name, model in models.items():
            model.before_run(plans[name], raw[name])
        return plans

    def answered(
        self,
        models: Mapping[str, PrivateEstimator],
        plans: Mapping[str, Plan[Any]],
        records: StudyRecords,
    ) -> Iterator[tuple[str, PlanRun]]:
        """The answer of every question in turn, with the digest of the study; it charges nothing.

        Steps that an earlier question released are handed on to those whose plans take them over.
        Questions that rest on ranges are planned once more when these are released, within the
        budgets that they were planned with before. Those that cannot be are left out, and the error
        of the first of them is raised when all others are answered: it follows from released and
        public numbers alone.
        """
        models = dict(models)
        plans = dict(plans)
        refused: list[Dp2ermError] = []
        released: dict[str, Mapping[str, StepResult]] = {}
        study = self
        for name in list(models):
            if name not in plans:
                continue
            (question,) = (one for one in study.questions if one.name == name)
            before = plans[name].study.before.items()
            earlier = {step: released[entry["of"]][step] for step, entry in before}
            raw = study._raw(models[name], question, records)
            answered = models[name].run_plan(plans[name], raw, earlier)
            released[name] = answered.results_for_later()
            release = replace(answered.release, study=self.digest)
            yield name, replace(answered, release=release)
            if isinstance(release, RangesRelease):
                study = self.at(release)
                refused = study._plan_again(models, plans)
                # Records were made by what was known before.
                records.made.clear()
        if refused:
            raise refused[0]

    def _plan_again(
        self, models: dict[str, PrivateEstimator], plans: dict[str, Plan[Any]]
    ) -> list[Dp2ermError]:
        """Put models and plans at released ranges in the place of those before.

        Plans that cannot be made are taken out.

        Returns
        -------
        list of Dp2ermError
            Why those that are gone cannot be made.
        """
        refused = []
        for question in self.questions[1:]:
            name = question.name
            before = plans.pop(name)
            try:
                models[name] = replace(models[name], domain=question.domain, **question.settings)
                plans[name] = self._plan_at_ranges(question, models[name], before)
            except Dp2ermError as error:
                text = f"{self.source}: {name}: {error} (ranges are released, and the charge stays)"
                refused.append(type(error)(text))
        return refused

    def _plan_at_ranges(
        self, question: Question, model: PrivateEstimator, before: Plan[Any]
    ) -> Plan[Any]:
        """The plan of a question at released ranges, for the records of its plan ``before``.

        Raises
        ------
        CalibrationError
            Where it spends more than was charged for the question, and where its release would no
            longer be private.
        """
        known = before.study.universe
        plan = model.plan(known.n_samples, question.columns or known.n_features)
        part = self._part(question.share)
        fits = plan.own.epsilon <= part.epsilon and plan.own.delta <= part.delta
        if not (plan.proven and fits):
            raise CalibrationError(
                "no proven plan at the released ranges is within what was charged"
            )
        if before.standing is Standing.PRIVATE and plan.standing is not Standing.PRIVATE:
            said = standing_in_words(plan)
            raise CalibrationError(f"at the released ranges its release would be {said}")
        return plan

    def _raw(
        self, model: PrivateEstimator, question: Question, records: StudyRecords
    ) -> Dataset | BlockedDataset:
        """The records of a question: who counts, and the outcome, follow from the question."""
        with placed(f"{self.source}: {question.name}"):
            public = model.public()
        return records.by(public, question.named)

    def charge(self, plans: Mapping[str, Plan[Any]]) -> Receipt | None:
        """Charge the account with all questions at once, before any noise.

        Returns
        -------
        Receipt or None
            None where there is no account.

        Raises
        ------
        LedgerError
            Where the sum does not fit; nothing is charged then.
        CalibrationError
            Where a plan is not proven; nothing is charged then.
        """
        if self.account is None:
            return None
        path, dataset = self.account
        spent = [self._charged(question, plans[question.name]) for question in self.questions]
        epsilon = math.fsum(part.epsilon for part in spent)
        total = Budget(epsilon, math.fsum(part.delta for part in spent))
        if total.epsilon > self.budget.epsilon or total.delta > self.budget.delta:
            raise CalibrationError(
                "the questions spend more than the budget together: please report it"
            )
        return charge(Ledger(path), dataset, plans, total, self._note(plans))

    def _note(self, plans: Mapping[str, Plan[Any]]) -> str:
        """What the account says of a charge: the questions, the treatment, outcomes, the study."""
        named = []
        for name, plan in plans.items():
            declared = declaration_of(plan)
            kind = declared.get("estimand", declared["goal"])
            named.append(name if name == kind else f"{name} ({kind})")
        pairs = [data_columns(question.known) for question in self.questions]
        treatment, _ = pairs[0]
        outcomes = dict.fromkeys(outcome for _, outcome in pairs)
        return (
            f"{', '.join(named)} of {treatment} on {', '.join(outcomes)}, study {self.digest[:12]}"
        )

    def _charged(self, question: Question, plan: Plan[Any]) -> Budget:
        """What is charged for a question.

        It is what its plan spends; where it rests on ranges that are still to be released, all that
        a later plan of it may spend.
        """
        if self.resting is not None and question.kind != RANGES:
            return self._part(question.share)
        return plan.own

    def _part(self, share: float, times: float = 1.0) -> Budget:
        """The part of the budget with this share, its epsilon ``times`` as large."""
        if len(self.questions) == 1 and share == 1.0:
            return self.budget
        epsilon = self.budget.epsilon * times
        return Budget(epsilon * share * ROUND_DOWN, self.budget.delta * share * ROUND_DOWN)


def _as_text(declared: Any) -> str:
    """Declarations as JSON, in one order."""
    return json.dumps(declared, sort_keys=True)


def _refuse_before_ranges() -> None:
    """Raise DeclarationError: the domain of such an estimator says only what is known before."""
    raise DeclarationError(
        "its ranges are not released: take the models of StudyFile.at(ranges), or run the study"
    )


def _covariates(model: Any) -> list[list[Any] | None]:
    """The covariates that a model chooses, and those that bend.

    Only models that are equal in both have equal steps.
    """
    prognostic = getattr(model, "prognostic", None)
    curved = getattr(model, "curved", None)
    return [None if chosen is None else list(chosen) for chosen in (prognostic, curved)]


def _plan(
    model: PrivateEstimator, n: int, columns: int | Sequence[str], earlier: Mapping[str, Plan[Any]]
) -> Plan[Any]:
    """The plan of a question; an effect takes over what it can of the plans of ``earlier`` ones."""
    if not isinstance(model, PrivateEffect):
        return model.plan(n, columns)
    own = dict(model.settings or {})

    def make(settings: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> Plan[Any]:
        changed = replace(model, settings={**settings, **own} or None)
        return changed.plan_after(n, columns, before)

    return sharing_plan(make, earlier)
