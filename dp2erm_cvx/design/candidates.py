"""The pipelines that a design compares, each with the settings that declare it in a study file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.design.question import DesignQuestion, rounded
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.steps import Confounding
from dp2erm_cvx.study_file import QUESTIONS

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
#: Settings that a study need not state.
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
    """One pipeline: its ``name``, the unfitted ``model``, and how a study declares it.

    ``kind`` is a key of :data:`~dp2erm_cvx.study_file.QUESTIONS`; ``settings`` are the arguments of the
    estimator beside domain and budget.
    """

    name: str
    kind: str
    settings: Mapping[str, Any]
    model: PrivateEstimator


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
        same = (type(study), getattr(study, "settings", study), getattr(study, "noise", None), study.universe)
        if same not in known:
            known.append(same)
            found.append(one)
    return found


def _laws(question: DesignQuestion) -> list[str]:
    """Laws beside gamma noise: the shorter of it and box noise, and Gaussian noise with a delta."""
    return ["auto", "gaussian"] if question.budget.delta else ["auto"]


def _effects(question: DesignQuestion) -> Iterator[Candidate]:
    drivers = question.guess.drivers
    declared = {
        "estimand": question.estimand,
        "prognostic": None,
        "confounding": max(1.0, question.guess.log_odds),
        "heterogeneity": question.heterogeneity,
        "residual_scale": question.residual_scale,
    }
    yield _candidate(question, "effect", "default", declared)
    tried: dict[str, Mapping[str, Any]] = {"default": {}, **_EFFECT}
    columns = _raw(question) if drivers is None else drivers
    if 0 < len(columns) <= _CELLS:
        tried["cells"] = {"cells": dict.fromkeys(columns, _CUTS)}
    for name, settings in tried.items():
        for noise in _laws(question):
            named = name if drivers is None else f"{name}, drivers alone"
            yield _candidate(question, "effect", named, declared | {"prognostic": drivers}, settings, noise)
    if question.estimand == "ate":
        yield from _weights(question, "arm_means")


def _rules(question: DesignQuestion) -> Iterator[Candidate]:
    declared = {"outcome_scale": question.outcome_scale}
    bound = rounded(4.0 * question.outcome_scale)
    tried = {"default": {}, **_RULE}
    tried["factors on the response"] = {"propensity": "logistic", "response_bound": bound}
    for name, settings in tried.items():
        for noise in _laws(question):
            yield _candidate(question, "rule", name, declared, settings, noise)
    yield from _weights(question, "itr")


def _weights(question: DesignQuestion, second: str) -> Iterator[Candidate]:
    for first in _WEIGHTS:
        stages: dict[str, Any] = {"first_stage": first, "second_stage": second}
        model = QUESTIONS["weights"](question.domain, question.budget, **stages)
        yield Candidate(f"weights: {first}", "weights", stages, model)


def _candidate(
    question: DesignQuestion,
    kind: str,
    name: str,
    guessed: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    noise: str = "gamma",
) -> Candidate:
    """A pipeline by these settings; what the question declares itself is put over them."""
    own = dict(question.declared)
    settings = {**(settings or {}), **own.pop("settings", {})}
    full = {**guessed, "noise": noise, **own, "settings": settings}
    model = QUESTIONS[kind](question.domain, question.budget, **full)
    needless = {**_LEFT_OUT, "noise": "gamma", "settings": {}}
    stated = {key: value for key, value in full.items() if key not in needless or value != needless[key]}
    named = name if full["noise"] == "gamma" else f"{name}, {full['noise']} noise"
    return Candidate(named, kind, stated, model)


def _raw(question: DesignQuestion) -> tuple[str, ...]:
    """Columns of the table that covariates are made of, where they have names and no levels."""
    domain = question.domain
    columns = domain.columns or ()
    if domain.codebook is not None and (domain.codebook.levels or domain.codebook.missing):
        return ()
    return columns
