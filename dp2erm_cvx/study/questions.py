"""Questions of a study, and the arguments of the estimators that answer them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.data.dataset import Public, covariate_table
from dp2erm_cvx.data.files import CsvLayout, read_table
from dp2erm_cvx.data.private_ranges import OpenDomain, Within
from dp2erm_cvx.errors import DeclarationError, brief, known_names, placed
from dp2erm_cvx.estimators import PrivateEffect, PrivateRanges, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet
from dp2erm_cvx.program import registry
from dp2erm_cvx.program.balance import balance_from_text
from dp2erm_cvx.program.files import file_of, program_of_file
from dp2erm_cvx.program.kernels import Kernel, PublicSample
from dp2erm_cvx.program.stage import Registered

#: What may be asked, and what answers it.
QUESTIONS: dict[str, type[PrivateEstimator]] = {
    "effect": PrivateEffect,
    "rule": PrivateRule,
    "two_stage": PrivateTwoStageERM,
    "ranges": PrivateRanges,
}
#: Arguments of estimators that the study states, or that no public file may.
_OWN = frozenset({"self", "domain", "budget", "ledger", "dataset", "seed"})
#: What a question may declare of an outcome of its own.
OUTCOME = ("outcome_column", "outcome_center", "outcome_bound", "binary_outcome", "treatment_cost")
#: What a question may declare beside the arguments of its estimator.
DECLARED = ("name", "kind", "share", "covariates", *OUTCOME)
#: Stages of a two-stage question, and which they are.
STAGES = {"first_stage": "first", "second_stage": "second", "weights": "first"}


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
        The domain of the study, with the outcome and the covariates that the question is about.
        Where ranges are to be released, that which it is planned in before they are; of the
        question that releases them, what is known of all.
    known
        What is known in advance of the records: the same domain, unless ranges are to be released.
    covariates
        Columns of its own, in this order: chosen among those that have ranges or levels, or named
        where none have. None for those of the study.
    """

    name: str
    kind: str
    share: float
    settings: Mapping[str, Any]
    domain: Any
    known: Public
    covariates: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the covariates; None where neither the domain nor the file names them."""
        return self.domain.columns or self.covariates

    @property
    def unit(self) -> str:
        """What widths are in units of when it is planned."""
        if isinstance(self.known, OpenDomain) and self.known.outcome is None:
            return "the range of the outcome"
        return "the outcome"

    @property
    def foreseen(self) -> str:
        """Sentences on the ranges that it is planned at, before some of them are released."""
        known = self.known
        if not isinstance(known, OpenDomain) or self.kind == "ranges":
            return ""
        outcome = "the outcome" if known.codebook is None else str(known.codebook.outcome)
        texts = []
        if known.outcome is None:
            texts.append(
                f"Nothing is known of the range of {outcome}: all widths are in units of that "
                "range, whatever it is, so that 0.1 is a tenth of it."
            )
        named = zip((*(known.columns or ()), outcome), known.known, strict=True)
        wide = [name for name, one in named if isinstance(one, Within)]
        if wide:
            texts.append(f"This is planned at the wide bounds of {', '.join(wide)}.")
        texts.append(
            "When the ranges are released it is planned once more, within the same epsilon and "
            "delta."
        )
        return " ".join(texts)

    @property
    def named(self) -> tuple[str, ...] | None:
        """Columns of the data where the domain names no covariates; else None."""
        return None if self.domain.columns else self.covariates


@dataclass
class Beside:
    """Public files beside a study: programs and target samples, each of them read once.

    Parameters
    ----------
    folder
        Where paths of the study start.
    layout
        How CSV files of the study are written.
    programs
        Programs that were read, by path, chosen name and stage.
    """

    folder: Path
    layout: CsvLayout
    programs: dict[tuple[str, str | None, str], Registered] = field(default_factory=dict)

    def program(self, text: str, stage: str) -> Registered | None:
        """The program of ``FILE.py`` or ``FILE.py:NAME``; None where ``text`` names no file."""
        place = file_of(text)
        if place is None:
            return None
        path, chosen = place
        if (path, chosen, stage) not in self.programs:
            self.programs[path, chosen, stage] = program_of_file(self.folder / path, chosen, stage)
        return self.programs[path, chosen, stage]

    def sample(self, path: str, domain: Public, columns: Sequence[str] | None) -> PublicSample:
        """The public rows of a file, with the covariates that the study declares."""
        return public_sample(self.folder / path, self.layout, domain, columns)


def public_sample(
    path: str | Path, layout: CsvLayout, domain: Public, columns: Sequence[str] | None
) -> PublicSample:
    """The public rows of a CSV or Parquet file.

    Parameters
    ----------
    path
        The file.
    layout
        How it is written.
    domain
        Whose codebook reads its cells.
    columns
        The covariates.

    Raises
    ------
    DeclarationError
        Where nobody names the covariates.
    """
    if columns is None:
        raise DeclarationError(
            f"target = {str(path)!r}: name its columns by covariates, or by named ranges"
        )
    table = read_table(str(path), layout)
    if domain.codebook is not None:
        return PublicSample(covariate_table(domain, table, columns))
    return PublicSample(np.column_stack([table.numbers(name) for name in columns]))


def files_of(questions: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, str]:
    """SHA-256 of every file that the questions name, by its path as they write it.

    Raises DeclarationError where one cannot be read.
    """
    digests = {}
    for table in questions:
        for path in _named_files(table):
            try:
                content = (folder / path).read_bytes()
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise DeclarationError(f"{table['name']}: {path}: cannot be read: {why}") from None
            digests[path] = hashlib.sha256(content).hexdigest()
    return digests


def _named_files(table: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the programs and of the target samples of a question."""
    for stage in STAGES:
        declared = table.get(stage)
        if isinstance(declared, Mapping):
            target = declared.get("target")
            if isinstance(target, str):
                yield target
            declared = declared.get("name")
        if not isinstance(declared, str):
            continue
        place = file_of(declared)
        if place is not None:
            path, _ = place
            yield path


def settings_of(
    table: Mapping[str, Any], beside: Beside, domain: Public, columns: Sequence[str] | None
) -> dict[str, Any]:
    """Arguments of the estimator of a question, its programs built.

    Parameters
    ----------
    table
        What the file declares of the question.
    beside
        The files that it may name.
    domain
        Of the question.
    columns
        Names of its covariates; None where nobody names them.

    Raises
    ------
    DeclarationError
        For what is wrong, by its name.
    """
    kind = QUESTIONS[table["kind"]]
    accepted = [argument for argument in inspect.signature(kind).parameters if argument not in _OWN]
    settings = {}
    for name, value in table.items():
        if name in DECLARED:
            continue
        if name not in accepted:
            hint = known_names(name, sorted([*accepted, "covariates", "share", *OUTCOME]))
            raise DeclarationError(f"unknown name {brief(name)}; {hint}")
        settings[name] = value
    if "settings" in settings:
        settings["settings"] = _without_none(settings["settings"])
    for place, stage in STAGES.items():
        if place in settings:
            with placed(place):
                settings[place] = _stage(settings[place], stage, beside, domain, columns)
    return settings


def _without_none(declared: Any) -> dict[str, Any]:
    """Settings in place of the rule of use; TOML has no None, and the word "none" stands for it."""
    if not isinstance(declared, Mapping):
        raise DeclarationError(f"settings = {brief(declared)}: must be a table [settings]")
    return {name: None if value == "none" else value for name, value in declared.items()}


def _stage(
    declared: Any, stage: str, beside: Beside, domain: Public, columns: Sequence[str] | None
) -> Any:
    """The program of a stage: registered or in a file, by its name alone or with settings.

    A registered one by its name alone stays a name, which the estimator knows.
    """
    if isinstance(declared, str) and file_of(declared) is None:
        return declared
    written = dict(declared) if isinstance(declared, Mapping) else {"name": declared}
    name = written.pop("name", None)
    if not isinstance(name, str):
        raise DeclarationError(
            "needs a name, such as name = 'overlap', or a file, such as 'mine.py'"
        )
    if isinstance(written.get("target"), str):
        written["target"] = beside.sample(written["target"], domain, columns)
    if "features" in written:
        written["features"] = _features(written["features"], domain, columns)
    own = beside.program(name, stage)
    settings = stage_settings(written)
    if own is not None:
        return registry.build({own.name: own}, own.name, **settings)
    if stage == "first":
        return registry.build(registry.first_stages(), name, **settings)
    return registry.build(registry.second_stages(), name, **settings)


def _features(chosen: Any, domain: Public, columns: Sequence[str] | None) -> list[Any]:
    """Features as a program knows them: by the names of covariates, else by their numbers."""
    features = list(chosen) if isinstance(chosen, list | tuple) else [chosen]
    if domain.codebook is not None:
        features = list(domain.codebook.expanded(features))
    if domain.columns:
        return features
    places = {column: place for place, column in enumerate(columns or ())}
    return [places.get(feature, feature) for feature in features]


def stage_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a program, from what a file or a command line writes.

    Both write texts, numbers and lists.
    """
    settings = {name: _setting(name, value) for name, value in written.items()}
    penalty = {norm: settings.pop(norm) for norm in ("l1", "l2") if norm in settings}
    if penalty:
        settings["regularizer"] = ElasticNet(**penalty)
    return settings


def _setting(name: str, value: Any) -> Any:
    """The setting that a written value stands for."""
    if name == "balance" and isinstance(value, str | int):
        value = balance_from_text(str(value))
    elif name == "kernel" and isinstance(value, str):
        return Kernel.from_text(value, name)
    elif name == "theta_set" and isinstance(value, str):
        return ConvexSet.from_text(value, name)
    if isinstance(value, list):
        return tuple(value)
    return value
