"""The pipelines that a design compares, each with the words of the command line that run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dp2erm_cvx.design.question import DesignQuestion, rounded
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.steps import Confounding

Model = PrivateEffect | PrivateRule | PrivateTwoStageERM

#: Raw covariates of which cells can be made, and the number of cells of each.
_CELLS, _CUTS = 2, 8
#: What is tried in the place of the public rule of an effect.
_EFFECT: Mapping[str, Mapping[str, Any]] = {
    "one propensity": {"propensity": "constant", "center_share": 0.6},
    "more regression": {"propensity": "constant", "center_share": 0.75},
    "logistic propensity": {"propensity": "logistic", "center_share": 0.45, "propensity_share": 0.2},
    "slopes of the effect": {"rows": "mix", "first_fit": 0.3, "propensity": "logistic", "center_share": 0.5},
    "larger cap": {"propensity": "logistic", "cap": 20.0, "center_share": 0.45, "propensity_share": 0.2},
}
#: What is tried in the place of the public rule of a rule.
_RULE: Mapping[str, Mapping[str, Any]] = {
    "rule alone": {"center_share": None, "propensity": None},
    "center and rule": {"center_share": 0.4, "propensity": None},
    "center, propensity and rule": {"center_share": 0.3, "propensity": "logistic"},
}
#: Values of options that need no words.
_LEFT_OUT: Mapping[str, Any] = {
    "estimand": "ate",
    "prognostic": None,
    "confounding": 1.0,
    "heterogeneity": Confounding.heterogeneity,
}
#: First stages of weights, by their names.
_WEIGHTS = ("entropy_balancing", "ipw_private")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One pipeline: its ``name``, the unfitted ``model``, and what says so on the command line.

    ``command`` is that of ``dp2erm``; ``words`` are its options beside data, domain and budget.
    """

    name: str
    model: Model
    command: str
    words: tuple[str, ...] = field(default=())


def design_candidates(question: DesignQuestion) -> list[Candidate]:
    """Those that have a plan, the public rule of use first; settings that it takes anyway are not repeated.

    Raises DeclarationError or CalibrationError where not even the public rule has a plan.
    """
    made = _rules(question) if question.goal == "rule" else _effects(question)
    found: list[Candidate] = []
    known: list[Any] = []
    for one in made:
        try:
            study = one.model.plan(question.n_samples, question.n_features).study
        except (CalibrationError, DeclarationError):
            if not found:
                raise
            continue
        same = (type(study), getattr(study, "settings", study), study.noise, study.universe)
        if same not in known:
            known.append(same)
            found.append(one)
    return found


def _laws(question: DesignQuestion) -> list[str]:
    """Laws beside gamma noise: the shorter of it and box noise, and Gaussian noise with a delta."""
    return ["auto", "gaussian"] if question.budget.delta else ["auto"]


def _effects(question: DesignQuestion) -> Iterator[Candidate]:
    drivers = question.guess.drivers
    yield _effect(question, "default", {})
    others: dict[str, Mapping[str, Any]] = {"default": {}, **_EFFECT}
    columns = _raw(question) if drivers is None else drivers
    if 0 < len(columns) <= _CELLS:
        others["cells"] = {"cells": dict.fromkeys(columns, _CUTS)}
    for name, settings in others.items():
        for noise in _laws(question):
            yield _effect(question, name, settings, noise, drivers)
    if question.estimand == "ate":
        yield from _weights(question, "arm_means")


def _rules(question: DesignQuestion) -> Iterator[Candidate]:
    yield _rule(question, "default", {})
    bound = rounded(4.0 * question.outcome_scale)
    others = {"default": {}, **_RULE}
    others["factors on the response"] = {"propensity": "logistic", "response_bound": bound}
    for name, settings in others.items():
        for noise in _laws(question):
            yield _rule(question, name, settings, noise)
    yield from _weights(question, "itr")


def _effect(
    question: DesignQuestion,
    name: str,
    settings: Mapping[str, Any],
    noise: str = "gamma",
    prognostic: Sequence[str] | None = None,
) -> Candidate:
    declared = {
        "estimand": question.estimand,
        "prognostic": prognostic,
        "confounding": max(1.0, question.guess.log_odds),
        "heterogeneity": question.heterogeneity,
        "residual_scale": question.residual_scale,
    }
    parts = [name] if prognostic is None else [name, "drivers alone"]
    return _declared(question, PrivateEffect, parts, settings, noise, declared)


def _rule(
    question: DesignQuestion, name: str, settings: Mapping[str, Any], noise: str = "gamma"
) -> Candidate:
    declared = {"outcome_scale": question.outcome_scale}
    return _declared(question, PrivateRule, [name], settings, noise, declared)


def _declared(
    question: DesignQuestion,
    kind: type[PrivateEffect | PrivateRule],
    parts: list[str],
    settings: Mapping[str, Any],
    noise: str,
    declared: Mapping[str, Any],
) -> Candidate:
    """A pipeline of these settings, and the words that declare them on the command line."""
    model = kind(question.domain, question.budget, settings=dict(settings), noise=noise, **declared)
    words: list[str] = []
    for name, value in declared.items():
        if name not in _LEFT_OUT or value != _LEFT_OUT[name]:
            words += ["--" + name.replace("_", "-"), ",".join(value) if name == "prognostic" else str(value)]
    command = "effect" if kind is PrivateEffect else "rule"
    named = ", ".join([*parts, *([] if noise == "gamma" else [f"{noise} noise"])])
    return Candidate(named, model, command, (*words, *_told(settings, noise)))


def _weights(question: DesignQuestion, second: str) -> Iterator[Candidate]:
    for first in _WEIGHTS:
        model = PrivateTwoStageERM(question.domain, question.budget, first, second)
        words = ("--program", first, "--second-stage", second)
        yield Candidate(f"weights: {first}", model, "fit", words)


def _told(settings: Mapping[str, Any], noise: str) -> Iterator[str]:
    """The options that declare the settings and the law of the noise."""
    for name, value in settings.items():
        if name == "cells":
            for column, number in value.items():
                yield from ("--cells", f"{column}:{number}")
            continue
        told = "none" if value is None else str(value)
        yield from ("--set", f"{name}={told}")
    if noise != "gamma":
        yield from ("--noise", noise)


def _raw(question: DesignQuestion) -> tuple[str, ...]:
    """Columns of the table that covariates are made of, where they have names and no levels."""
    domain = question.domain
    columns = domain.columns or ()
    if domain.codebook is not None and (domain.codebook.levels or domain.codebook.missing):
        return ()
    return columns
