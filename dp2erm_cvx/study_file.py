"""A study in one public file: its records, its budget, its account and its questions.

A TOML file that declares a domain, see :func:`~dp2erm_cvx.domain_file.load_domain`, becomes a study by three
more tables::

    [budget]
    epsilon = 1.0

    [ledger]                      # may be left out
    file = "book.db"
    dataset = "trial"

    [[effect]]                    # one table for every question: effect, rule or weights
    name = "average"
    share = 0.6
    residual_scale = 4.0

    [[effect]]                    # of another outcome: what is not declared is that of the domain
    name = "stay"
    outcome_column = "days"
    outcome_center = 10.0
    outcome_bound = 10.0

The questions are composed: planned together, charged together or not at all, and answered in their order.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp2erm_cvx import registry
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.domain_file import domain_of, of_event, read_tables
from dp2erm_cvx.errors import CalibrationError, DeclarationError, Dp2ermError, brief, known_names, placed
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator, charge
from dp2erm_cvx.files import CsvLayout
from dp2erm_cvx.ledger import Ledger, Receipt
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.plan.shared import take_over
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import Moments
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.public import declared_by_name, one_line, public_number
from dp2erm_cvx.release.declaration import declaration_of
from dp2erm_cvx.release.record import BaseRelease

#: What may be asked, and what answers it.
QUESTIONS: dict[str, type[PrivateEstimator]] = {
    "effect": PrivateEffect,
    "rule": PrivateRule,
    "weights": PrivateTwoStageERM,
}
#: Arguments of estimators that the study states, or that no public file may.
_OWN = frozenset({"self", "domain", "budget", "ledger", "dataset", "seed"})
#: What a question may declare of an outcome of its own.
OUTCOME = ("outcome_column", "outcome_center", "outcome_bound", "binary_outcome", "treatment_cost")
#: What keeps the parts of a budget from adding up to more than the whole by a rounding.
_ROUND_DOWN = 1.0 - 1e-12
#: How often budgets are enlarged by what questions save by sharing: two are enough but for a rule of use
#: that lies between.
_TRIALS = 6


@dataclass(frozen=True)
class Question:
    """One question of a study.

    Parameters
    ----------
    name
        What the question is called in the file, in messages and in the names of releases.
    kind
        What is asked: a key of ``QUESTIONS``.
    share
        Its share of the budget, above 0 and at most 1.
    settings
        Arguments of the estimator that answers it.
    domain
        The domain of the study, with the outcome that the question is about.
    """

    name: str
    kind: str
    share: float
    settings: Mapping[str, Any]
    domain: Domain


@dataclass(frozen=True)
class StudyFile:
    """Declarations of a study; ``digest`` is the SHA-256 of all. ``source`` is the file, for messages."""

    domain: Domain
    budget: Budget
    questions: tuple[Question, ...]
    account: tuple[Path, str] | None
    digest: str
    source: str = "study"

    def models(self, *, seed: int | None = None, **execution: Any) -> dict[str, PrivateEstimator]:
        """An estimator for every question, by its name, each with its part of the budget.

        ``execution`` are arguments of estimators that declare nothing, such as ``solver``. Raises
        DeclarationError naming the question.
        """
        models = {}
        for number, question in enumerate(self.questions):
            settings = {**execution, **question.settings, "seed": None if seed is None else seed + number}
            part, kind = self._part(question.share), QUESTIONS[question.kind]
            try:
                models[question.name] = kind(question.domain, part, **settings)
            except TypeError as error:  # a required setting of a program, say
                raise DeclarationError(f"{self.source}: {question.name}: {error}") from None
        return models

    def plans(self, models: Mapping[str, PrivateEstimator], n: int, n_features: int) -> dict[str, Plan[Any]]:
        """The plan of every question for n records. Raises naming the one that cannot be planned.

        Effects share the steps that no outcome enters where they declare the same of these: the ``models``
        then know what they take over, and from which one. What that saves is divided among all questions in
        proportion to their shares, by budgets that are the same number of times as large.
        """
        times, whole = 1.0, math.fsum(self._part(question.share).epsilon for question in self.questions)
        for _ in range(_TRIALS):
            plans = self._planned(models, n, n_features, times)
            spent = math.fsum(plan.own.epsilon for plan in plans.values())
            shared = any(plan.study.before for plan in plans.values())
            if (times == 1.0 and not shared) or (1.0 - 1e-5) * whole <= spent <= whole:
                return plans
            # few digits, which are the same on every machine
            times = math.floor(1e6 * times * whole / spent) / 1e6
        return self._planned(models, n, n_features, 1.0)

    def _planned(
        self, models: Mapping[str, PrivateEstimator], n: int, n_features: int, times: float
    ) -> dict[str, Plan[Any]]:
        plans: dict[str, Plan[Any]] = {}
        for question, (name, model) in zip(self.questions, models.items(), strict=True):
            part = self._part(question.share, times)
            model.earlier.enlarged = {model.budget: part} if times != 1.0 else {}
            try:
                if isinstance(model, PrivateEffect):
                    model.settings = question.settings.get("settings")
                    plans[name] = take_over(model, plans, models, n, n_features)
                    own = model.earlier
                    own.owners = {step: models[owner["of"]] for step, owner in own.before.items()}
                else:
                    plans[name] = model.plan(n, n_features)
            except Dp2ermError as error:
                raise type(error)(f"{self.source}: {name}: {error}") from None
        return plans

    def question_of(self, release: BaseRelease) -> str | None:
        """The question that a release answers, by what it declares; None where it answers none of them."""
        columns = self.domain.columns or release.columns
        try:
            plans = self.plans(self.models(), release.n_samples, len(columns))
        except (CalibrationError, DeclarationError):
            return None
        own = json.dumps([release.declared, release.domain], sort_keys=True)
        for name, plan in plans.items():
            declared = declaration_of(plan) | {"arithmetic": release.declared.get("arithmetic")}
            if json.dumps([declared, plan.study.universe.domain.to_dict()], sort_keys=True) == own:
                return name
        return None

    def charge(self, plans: Mapping[str, Plan[Any]], of: str) -> Receipt | None:
        """Charge the account with all questions at once, before any noise; None where there is no account.

        ``of`` says in the note what the questions are about. Raises LedgerError where the sum does not fit,
        and CalibrationError where a plan is not proven; nothing is charged then.
        """
        if self.account is None:
            return None
        path, dataset = self.account
        spent = [plan.own for plan in plans.values()]
        total = Budget(math.fsum(part.epsilon for part in spent), math.fsum(part.delta for part in spent))
        if total.epsilon > self.budget.epsilon or total.delta > self.budget.delta:
            raise CalibrationError("the questions spend more than the budget together: please report it")
        declared = ((name, declaration_of(plan)) for name, plan in plans.items())
        kinds = ((name, what.get("estimand", what["goal"])) for name, what in declared)
        named = ", ".join(name if name == kind else f"{name} ({kind})" for name, kind in kinds)
        note = f"{named} of {of}, study {self.digest[:12]}"
        return charge(Ledger(path), dataset, plans, total, note)

    def _part(self, share: float, times: float = 1.0) -> Budget:
        if len(self.questions) == 1 and share == 1.0:
            return self.budget
        epsilon, delta = self.budget.epsilon * times, self.budget.delta
        return Budget(epsilon * share * _ROUND_DOWN, delta * share * _ROUND_DOWN)


def read_study(path: str | Path, changes: Sequence[str] = ()) -> StudyFile:
    """The study of a TOML file, with ``changes`` such as ``"budget.epsilon=2"`` or ``"average.level=0.9"``.

    Raises DeclarationError in one line that names the place in the file.
    """
    declared = read_tables(path)
    with placed(path):
        return replace(_study(declared, changes, Path(path).parent), source=str(path))


def study_with(
    path: str | Path, question: str | None, kind: str, settings: Mapping[str, Any], budget: Budget
) -> str:
    """The text of a study file whose ``question`` is of this kind and has these settings over its own.

    Remarks and all other lines stay. Without a question one is added, and the budget where none is declared.
    Raises DeclarationError where it cannot be added.
    """
    import tomlkit

    file = tomlkit.parse(Path(path).read_text(encoding="utf-8"))
    questions = {key: file[key] for key in QUESTIONS if key in file}
    tables = [(key, each) for key, of in questions.items() for each in (of if isinstance(of, list) else [of])]
    names = [each["name"] for each in _questions(questions)]
    before, table = (None, tomlkit.table()) if question is None else tables[names.index(question)]
    if before not in (None, kind):  # another estimator: only the name and the share stay
        several, old = file[before], table
        if isinstance(several, list) and len(several) > 1:
            several.remove(old)
        else:
            file.remove(before)
        table = tomlkit.table()
        table.update({"name": question} | ({"share": old["share"]} if "share" in old else {}))
    table.update({name: written(value) for name, value in settings.items()})
    if "budget" not in file:
        file["budget"] = {name: value for name, value in vars(budget).items() if value}
    if before != kind:
        if not isinstance(file.setdefault(kind, tomlkit.aot()), list):
            raise DeclarationError(f"{path}: [{kind}]: write [[{kind}]], so that another one can be added")
        file[kind].append(table)
    return tomlkit.dumps(file)


def written(value: Any) -> Any:
    """A setting as TOML writes it, which has no None."""
    import tomlkit

    if isinstance(value, Mapping):
        inside = tomlkit.inline_table()
        inside.update({name: written(item) for name, item in value.items()})
        return inside
    return "none" if value is None else list(value) if isinstance(value, tuple) else value


def _study(declared: dict[str, Any], changes: Sequence[str], folder: Path) -> StudyFile:
    named = {kind: declared.pop(kind) for kind in QUESTIONS if kind in declared}
    account, spent = declared.pop("ledger", None), declared.pop("budget", None)
    for name, tables in declared.items():
        if isinstance(tables, list) and any(isinstance(own, dict) for own in tables):
            raise DeclarationError(f"[[{name}]]: no question; {known_names(name, QUESTIONS)}")
    if not any(named.values()):
        raise DeclarationError(f"asks nothing: add a table [[{']], [['.join(QUESTIONS)}]]")
    if spent is None:
        raise DeclarationError("no [budget] is declared: add epsilon = ...")
    questions = list(_questions(named))
    places = {"budget": _table("budget", spent), **{own["name"]: own for own in questions}}
    for text in changes:
        _change(places, text)
    # in the order of the file, which is that of the covariates
    plain = {**declared, "budget": spent, "ledger": account, "questions": questions}
    declared_by_name(CsvLayout, "csv", declared.pop("csv", {}))  # which whoever reads the data reads again
    outcomes = {own["outcome_column"] for own in questions if isinstance(own.get("outcome_column"), str)}
    return StudyFile(
        domain_of(_without(declared, outcomes)),
        _budget(spent),
        _shared(questions, declared, outcomes),
        None if account is None else _account(_table("ledger", account), folder),
        hashlib.sha256(json.dumps(plain, default=str).encode()).hexdigest(),
    )


def _questions(file: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every question as one table, with its name and kind."""
    names: set[str] = set()
    for kind, tables in file.items():
        several = tables if isinstance(tables, list) else [tables]
        for number, table in enumerate(several, 1):
            own = dict(_table(kind, table))
            name = own.pop("name", kind if len(several) == 1 else f"{kind}_{number}")
            if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
                raise DeclarationError(f"{kind}: name = {brief(name)}: letters, digits, - and _ alone")
            if name.lower() in names or name in ("budget", "ledger"):
                raise DeclarationError(f"{kind}: name = {brief(name)}: is taken: choose another")
            if "kind" in own:
                raise DeclarationError(f"{name}: kind: is said by the table [[{kind}]]")
            names.add(name.lower())
            yield {"name": name, "kind": kind, **own}


def _shared(
    questions: Sequence[dict[str, Any]], declared: Mapping[str, Any], outcomes: set[str]
) -> tuple[Question, ...]:
    """The questions with shares of the budget: what is not declared is divided evenly."""
    parts = {own["name"]: own["share"] for own in questions if own.get("share") is not None}
    shares = {name: public_number(f"{name}: share", part, above=0.0) for name, part in parts.items()}
    left, open_shares = 1.0 - sum(shares.values()), len(questions) - len(shares)
    if left < -1e-12 or (open_shares and left <= 1e-12):
        wanted = f"share: {1.0 - left:g} of the budget is asked for"
        raise DeclarationError(f"{wanted}: at most 1 for all together, and something for each")
    listed = []
    for table in questions:
        name = table["name"]
        with placed(name):
            own = shares[name] if name in shares else left / open_shares
            domain = _own(table, declared, outcomes)
            listed.append(Question(name, table["kind"], own, _settings(table), domain))
    return tuple(listed)


def _without(declared: Mapping[str, Any], outcomes: set[str]) -> dict[str, Any]:
    """A declaration less the missing values of ``outcomes`` that are not the declared one."""
    missing = declared.get("missing")
    if not isinstance(missing, Mapping):
        return dict(declared)
    missed = outcomes - {declared.get("outcome_column")}
    return {**declared, "missing": {name: value for name, value in missing.items() if name not in missed}}


def _own(table: Mapping[str, Any], declared: Mapping[str, Any], outcomes: set[str]) -> Domain:
    """The domain of a question, with the outcome that it declares."""
    own = {name: table[name] for name in OUTCOME if name in table}
    if "outcome_column" in own:  # its center and cost are in other units
        own = of_event(own)
        if "outcome_bound" not in own:
            raise DeclarationError("outcome_column: declare its outcome_bound beside it")
        outcomes = outcomes | {str(declared.get("outcome_column"))}
        declared = {name: value for name, value in declared.items() if name not in OUTCOME}
    return domain_of(_without({**declared, **own}, outcomes))


def _settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the estimator of a question, its programs built. Raises DeclarationError naming it."""
    kind, name = QUESTIONS[table["kind"]], table["name"]
    own = {key: value for key, value in table.items() if key not in ("name", "kind", "share", *OUTCOME)}
    known = [*OUTCOME, *(arg for arg in inspect.signature(kind).parameters if arg not in _OWN)]
    settings = _known(name, own, known)
    if "settings" in settings:
        plain = _table("settings", settings["settings"])
        settings["settings"] = {key: None if value == "none" else value for key, value in plain.items()}
    stages: dict[str, Any] = {"first_stage": registry.first_stages, "second_stage": registry.second_stages}
    for place, programs in stages.items():
        if isinstance(settings.get(place), Mapping):
            stage = dict(settings[place])
            if not isinstance(stage.get("name"), str):
                raise DeclarationError(f"{place}: needs a name, such as name = 'overlap'")
            with placed(place):
                settings[place] = registry.build(programs(), stage.pop("name"), **stage_settings(stage))
    return settings


def stage_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a program, from the texts, numbers and lists that a file or a command line writes."""
    families: dict[str, Any] = {"kernel": Kernel, "theta_set": ConvexSet}
    settings: dict[str, Any] = {}
    for key, value in written.items():
        if key == "balance" and isinstance(value, str | int):
            value = Moments.from_text(str(value))
        elif key in families and isinstance(value, str):
            value = families[key].from_text(value, key)
        settings[key] = tuple(value) if isinstance(value, list) else value
    if penalty := {norm: settings.pop(norm) for norm in ("l1", "l2") if norm in settings}:
        settings["regularizer"] = ElasticNet(**penalty)
    return settings


def _budget(table: Mapping[str, Any]) -> Budget:
    for name, value in table.items():
        if isinstance(value, str):  # a number on a command line, and none in a file
            raise DeclarationError(f"budget: {name} = {brief(value)}: must be a number")
    with placed("budget"):
        return declared_by_name(Budget, "budget", table)


def _account(table: Mapping[str, Any], folder: Path) -> tuple[Path, str]:
    """The file, by its place beside the study, and the name of the data set."""
    known = _known("ledger", table, ("file", "dataset"))
    file, dataset = (known.get(name) for name in ("file", "dataset"))
    if not isinstance(file, str) or not isinstance(dataset, str):
        raise DeclarationError("ledger: must have two texts, file and dataset")
    return folder / file, one_line("dataset", dataset)


def _change(tables: Mapping[str, dict[str, Any]], text: str) -> None:
    """Put ``TABLE.NAME=VALUE`` over what the file says, the value as TOML writes it."""
    import tomllib

    place, separator, value = text.partition("=")
    table, dot, name = place.strip().partition(".")
    if not (separator and dot and name and value.strip()):
        raise DeclarationError(f"{text!r}: must look like TABLE.NAME=VALUE, for instance budget.epsilon=2")
    if table not in tables:
        raise DeclarationError(f"{text!r}: {known_names(table, sorted(tables))}")
    if name in ("name", "kind"):
        raise DeclarationError(f"{text!r}: what a question is called is declared in the file alone")
    try:
        tables[table][name] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        tables[table][name] = value.strip()


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DeclarationError(f"{name} = {brief(value)}: must be a table [{name}]")
    return value


def _known(where: str, table: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    for name in table:
        if name not in names:
            raise DeclarationError(f"{where}: unknown name {brief(name)}; {known_names(name, sorted(names))}")
    return dict(table)
