"""The pipelines that a design compares, each with the words of the command line that run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.steps import Confounding
from dp2erm_cvx.tuning.designs.guess import rounded
from dp2erm_cvx.tuning.designs.question import DesignQuestion

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
    scale, confounding = question.residual_scale, max(1.0, question.guess.log_odds)
    model = PrivateEffect(
        question.domain,
        question.budget,
        estimand=question.estimand,
        prognostic=prognostic,
        residual_scale=scale,
        confounding=confounding,
        heterogeneity=question.heterogeneity,
        settings=dict(settings),
        noise=noise,
    )
    words = [*([] if question.estimand == "ate" else ["--estimand", question.estimand])]
    words += [] if prognostic is None else ["--prognostic", ",".join(prognostic)]
    words += [] if confounding == 1.0 else ["--confounding", str(confounding)]
    varying = question.heterogeneity
    words += [] if varying == Confounding.heterogeneity else ["--heterogeneity", str(varying)]
    words += ["--residual-scale", str(scale), *_told(settings, noise)]
    return Candidate(_named(question, name, noise, prognostic), model, "effect", tuple(words))


def _rule(
    question: DesignQuestion, name: str, settings: Mapping[str, Any], noise: str = "gamma"
) -> Candidate:
    scale = question.outcome_scale
    model = PrivateRule(
        question.domain, question.budget, outcome_scale=scale, settings=dict(settings), noise=noise
    )
    words = ("--outcome-scale", str(scale), *_told(settings, noise))
    return Candidate(_named(question, name, noise), model, "rule", words)


def _named(question: DesignQuestion, name: str, noise: str, prognostic: Sequence[str] | None = None) -> str:
    parts = [
        name,
        *([] if prognostic is None else ["drivers alone"]),
        *([] if noise == "gamma" else [f"{noise} noise"]),
    ]
    return ", ".join(parts)


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
