"""RELEASES: one of every kind, each with noise of its own, for the tests of releases and of their
pages.
"""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dp2erm_cvx import (
    Budget,
    Codebook,
    Domain,
    OpenDomain,
    PrivateEffect,
    PrivateRanges,
    PrivateRule,
    PrivateTwoStageERM,
    Treatment,
    Within,
)
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.data.domain import ReleasedRanges
from dp2erm_cvx.data.domain_file import domain_of

HOSTILE = '<script>alert("x")</script>'
LONG = "a_covariate_without_any_break_in_its_name_" * 4

DOMAIN = Domain(1.5, 2.0, ranges={"u": (-1.0, 1.0), "v": (-0.8, 0.8)})
RISKS = replace(DOMAIN, outcome_bound=0.5, outcome_center=0.5)
BOX = Domain(1.5, 1.0, intercept=0.5, coordinate_bound=[1.0, 0.8])
SURVEY = replace(DOMAIN, codebook=Codebook(sampling_weights=SamplingWeights("wt", 2.5)))
RANGES = OpenDomain({"u": Within(-5.0, 5.0), "v": (-1.0, 1.0)})
#: A domain that rests on ranges of another release.
RESTING = replace(DOMAIN, released=ReleasedRanges("0" * 64, 0.5))
DRUG = Codebook(Treatment("drug", "yes", "no"), "y")
ARMS = Codebook(treatment=Treatment(levels=["a", "b", "c"]))
#: A registry with spellings, wards and several rows of a person, as a study declares it.
REGISTRY = {
    "outcome_column": "sbp",
    "outcome_center": 3.0,
    "outcome_bound": 20.0,
    "eligible": ["age >= 18", "ward != Hospice"],
    "treatment": {"column": "drug", "treated": "vasopressor", "control": "usual care"},
    "ranges": {"age": [18, 90], "severity": [0, 24]},
    "levels": {"sex": ["F", "M", "other"], "ward": ["ICU", "Surgery"]},
    "missing": {"severity": 6},
    "cells": {"sex": {"synonyms": {"F": ["female"]}}},
    "units": {"sbp": "mmHg"},
}
#: Names that are none of a page's business.
WIDE = domain_of(
    {
        "outcome_bound": 4.0,
        "outcome_column": "y",
        "ranges": {name: [0.0, 2.0] for name in (HOSTILE, LONG, *(f"x{k}" for k in range(58)))},
        "units": {HOSTILE: "<img src=x onerror=alert(1)>", "y": "<b>kg</b> & more"},
    }
)
PURE, MORE, APPROXIMATE = Budget(1.0), Budget(9.0), Budget(1.0, 1e-5)
CHOSEN = {"calibration": "auto", "arithmetic": "assumed"}


def of_registry(declared: dict[str, Any], **asked: Any) -> PrivateEffect:
    return PrivateEffect(domain_of(REGISTRY | declared), Budget(4.0), residual_scale=4.0, **asked)


RELEASES: dict[str, Any] = {
    "trial": PrivateEffect(DOMAIN, PURE, settings={"propensity": 0.5}),
    "rule and value": PrivateRule(DOMAIN, PURE, settings={"propensity": 0.5, "value_share": 0.2}),
    "balancing": PrivateTwoStageERM(DOMAIN, PURE),
    "average effect": PrivateEffect(DOMAIN, PURE, residual_scale=0.3),
    "Gaussian noise": PrivateEffect(DOMAIN, APPROXIMATE, noise="gaussian"),
    "box noise": PrivateEffect(DOMAIN, PURE, noise="box"),
    "arithmetic assumed": PrivateEffect(DOMAIN, PURE, arithmetic="assumed", effect_center=0.4),
    "among the treated": PrivateEffect(
        DOMAIN, MORE, estimand="att", settings={"propensity": "logistic"}
    ),
    "unbounded": PrivateEffect(replace(DOMAIN, codebook=DRUG), Budget(0.01), estimand="att"),
    "overlap": PrivateEffect(DOMAIN, MORE, estimand="overlap"),
    "risks": PrivateEffect(RISKS, MORE, estimand="risks"),
    "event": PrivateEffect(replace(RISKS, binary_outcome=True), MORE),
    "sampling weights": PrivateEffect(SURVEY, MORE, settings={"propensity": "constant"}),
    "ranges": PrivateRanges(RANGES, Budget(6.0)),
    "on released ranges": PrivateEffect(RESTING, MORE),
    "groups": of_registry({}, by="sex"),
    "groups not adjusted for": of_registry({}, by="sex", prognostic=["age", "severity"]),
    "groups of a trial": of_registry({}, by="sex", settings={"propensity": 0.5}),
    "persons": of_registry({"unit": {"column": "id", "number": 500}}, where={"sex": "F"}),
    "arms": PrivateEffect(replace(DOMAIN, codebook=ARMS), MORE),
    "rule": PrivateRule(DOMAIN, MORE, expected=["confounding"]),
    "rule of all": PrivateRule(DOMAIN, MORE, settings={"value_share": 0.3}),
    "rule, Gaussian noise": PrivateRule(
        DOMAIN, APPROXIMATE, expected=["confounding"], noise="gaussian"
    ),
    "private scheme": PrivateTwoStageERM(DOMAIN, PURE, "ipw_private", "itr_logistic"),
    "chosen calibration": PrivateTwoStageERM(DOMAIN, APPROXIMATE, "uniform", "arm_means", **CHOSEN),
    "perturbed output": PrivateTwoStageERM(
        DOMAIN, MORE, "uniform", "plug_in_ate", calibration="output"
    ),
    "scheme under Renyi": PrivateTwoStageERM(
        DOMAIN, Budget(1.0, 1e-3), "ipw_private", calibration="renyi"
    ),
    "scheme in a box": PrivateTwoStageERM(BOX, PURE, "ipw_private", "itr", noise="box"),
    "means": PrivateTwoStageERM(RISKS, Budget(2.0), "uniform", "arm_means"),
    "decisions": PrivateTwoStageERM(DOMAIN, Budget(2.0), "uniform", "itr"),
    "seeded": PrivateTwoStageERM(DOMAIN, Budget(2.0), "uniform", "itr_huber", seed=1),
    "many effect": PrivateEffect(WIDE, Budget(2.0)),
    "many rule": PrivateRule(WIDE, Budget(2.0), outcome_scale=1.0),
    "many decisions": PrivateTwoStageERM(WIDE, Budget(2.0), "uniform", "itr"),
}


@cache
def table_of(name: str) -> tuple[Any, Any, Any]:
    """What a model of the table is fitted to."""
    rng, model = np.random.default_rng(0), RELEASES[name]
    if model.domain is WIDE:
        a = rng.integers(0, 2, 300)
        return rng.uniform(0, 1, (300, 60)), a, np.clip(0.5 * a + 0.5 * rng.random(300), 0, 1)
    if name.startswith(("groups", "persons")):
        severity, drug = rng.gamma(4, 1.5, 900), rng.integers(0, 2, 900)
        X = pd.DataFrame({"id": rng.integers(0, 400, 900), "age": rng.integers(15, 90, 900)})
        X["severity"] = np.where(rng.random(900) < 0.2, np.nan, severity)
        X["sex"], X["ward"] = (
            rng.choice(["F", "female", "M", "?"], 900),
            rng.choice(["ICU", "Hospice"], 900),
        )
        X["drug"] = np.where(
            drug, "vasopressor", np.where(rng.random(900) < 0.16, "unknown", "usual care")
        )
        X["sbp"] = 3 + 4 * drug - 0.5 * severity + rng.normal(0, 4, 900)
        return X, X["drug"], X["sbp"]
    X, a = (
        pd.DataFrame(rng.uniform(-0.7, 0.7, (400, 2)), columns=["u", "v"]),
        rng.integers(0, 2, 400),
    )
    y = X["u"] + 0.5 * a + 0.1 * rng.standard_normal(400)
    if name == "sampling weights":
        X["wt"] = rng.uniform(0.5, 2.0, 400)
    if name == "unbounded":
        return (
            X,
            np.array(["yes", "no", "no", "yes", ""])[a + 2 * rng.integers(0, 2, 400) + (y > 0.9)],
            y,
        )
    arm = np.array(["a", "b", "c"])[a + rng.integers(0, 2, 400)] if name == "arms" else a
    return (
        X,
        arm,
        (y > 0.2).astype(float) if getattr(model.domain, "outcome_bound", 0.0) == 0.5 else y,
    )


@cache
def release_of(name: str) -> Any:
    """The release of a model of the table, whichever test asks for it first."""
    outer, random.SystemRandom.seeds = random.SystemRandom.seeds, random.Random(name)  # type: ignore[attr-defined]
    try:
        return RELEASES[name].fit(*table_of(name)).release_
    finally:
        random.SystemRandom.seeds = outer  # type: ignore[attr-defined]
