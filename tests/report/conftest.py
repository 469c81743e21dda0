"""One release of every kind, for the pages and records about them."""

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRanges, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.domain_file import domain_of

HOSTILE = '<script>alert("x")</script>'
LONG = "a_covariate_without_any_break_in_its_name_" * 4


def data(columns: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, a = rng.uniform(0, 1, (n, columns)), rng.integers(0, 2, n)
    return X, a, np.clip(0.5 * a + 0.5 * rng.random(n), 0, 1)


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


def registry(n: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    severity, drug = rng.gamma(4, 1.5, n), rng.integers(0, 2, n)
    cells = {"id": rng.integers(0, 400, n), "wt": rng.uniform(0.5, 2, n), "age": rng.integers(15, 90, n)}
    cells["severity"] = np.where(rng.random(n) < 0.2, np.nan, severity)
    cells["sex"] = rng.choice(["F", "female", "M", "?"], n)
    cells["ward"] = rng.choice(["ICU", "Surgery", "Hospice"], n)
    arms = np.where(drug, "vasopressor", "usual care")
    cells["drug"] = np.where(rng.random(n) < 0.08, "unknown", arms)
    return pd.DataFrame(cells | {"sbp": 3 + 4 * drug - 0.5 * severity + rng.normal(0, 4, n)})


@pytest.fixture(scope="module")
def releases():
    """One of every kind; the last ones with names that are none of a page's business."""
    domain = Domain(1.5, 0.5, outcome_center=0.5, ranges={"u": (0.0, 1.0), "v": (0.0, 1.0)})
    X, a, y = data(2)
    hostile = domain_of(
        {
            "outcome_bound": 4.0,
            "outcome_column": "y",
            "ranges": {name: [0.0, 2.0] for name in (HOSTILE, LONG, *(f"x{k}" for k in range(58)))},
            "units": {HOSTILE: "<img src=x onerror=alert(1)>", "y": "<b>kg</b> & more"},
        }
    )
    frame, known, budget = registry(), {"propensity": 0.5, "value_share": 0.3}, Budget(2.0)
    persons, counted = {"column": "id", "number": 500}, {"column": "wt", "largest": 2.0}

    def of_registry(declared, **asked):
        return PrivateEffect(domain_of(REGISTRY | declared), Budget(4.0), residual_scale=4.0, **asked)

    models = {
        "groups": of_registry({}, by="sex"),
        "persons": of_registry({"unit": persons}, where={"sex": "F"}),
        "survey": of_registry({"sampling_weights": counted}),
        "overlap": PrivateEffect(domain, budget, estimand="overlap"),
        "effect": PrivateEffect(domain, budget),
        "att": PrivateEffect(domain, Budget(0.01), estimand="att"),
        "risks": PrivateEffect(domain, budget, estimand="risks"),
        "ranges": PrivateEffect(PrivateRanges(0.5), Budget(20.0)),
        "rule": PrivateRule(domain, budget, outcome_scale=1.0, settings=known),
        "means": PrivateTwoStageERM(domain, budget, "uniform", "arm_means"),
        "itr": PrivateTwoStageERM(domain, budget, "uniform", "itr"),
        "huber": PrivateTwoStageERM(domain, budget, "uniform", "itr_huber", seed=1),
        "many effect": PrivateEffect(hostile, budget),
        "many rule": PrivateRule(hostile, budget, outcome_scale=1.0),
        "many itr": PrivateTwoStageERM(hostile, budget, "uniform", "itr"),
    }
    raw, many = (frame, frame["drug"], frame["sbp"]), data(60)
    tables = {name: many if name.startswith("many") else (X, a, y) for name in models}
    tables |= dict.fromkeys(("groups", "persons", "survey"), raw)
    return {name: model.fit(*tables[name]).release_ for name, model in models.items()}
