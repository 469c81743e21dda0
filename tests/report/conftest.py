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
    return pd.DataFrame(
        {
            "id": rng.integers(0, 400, n),
            "wt": rng.uniform(0.5, 2, n),
            "age": rng.integers(15, 90, n),
            "severity": np.where(rng.random(n) < 0.2, np.nan, severity),
            "sex": rng.choice(["F", "female", "M", "?"], n),
            "ward": rng.choice(["ICU", "Surgery", "Hospice"], n),
            "drug": np.where(rng.random(n) < 0.08, "unknown", np.where(drug, "vasopressor", "usual care")),
            "sbp": 3 + 4 * drug - 0.5 * severity + rng.normal(0, 4, n),
        }
    )


@pytest.fixture(scope="session")
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
    many, budget = data(60), Budget(2.0)
    frame = registry()
    tables = {
        "groups": {},
        "persons": {"unit": {"column": "id", "number": 500}},
        "survey": {"sampling_weights": {"column": "wt", "largest": 2.0}},
    }
    declared = {name: domain_of(REGISTRY | more) for name, more in tables.items()}
    how = {"groups": {"by": "sex"}, "persons": {"where": {"sex": "F"}}, "survey": {}}
    raw = {
        name: PrivateEffect(one, Budget(4.0), residual_scale=4.0, **how[name])
        .fit(frame, frame["drug"], frame["sbp"])
        .release_
        for name, one in declared.items()
    }
    return raw | {
        "overlap": PrivateEffect(domain, budget, estimand="overlap").fit(X, a, y).release_,
        "effect": PrivateEffect(domain, budget).fit(X, a, y).release_,
        "att": PrivateEffect(domain, Budget(0.01), estimand="att").fit(X, a, y).release_,
        "risks": PrivateEffect(domain, budget, estimand="risks").fit(X, a, y).release_,
        "ranges": PrivateEffect(PrivateRanges(0.5), Budget(20.0)).fit(X, a, y).release_,
        "rule": PrivateRule(
            domain, budget, outcome_scale=1.0, settings={"propensity": 0.5, "value_share": 0.3}
        )
        .fit(X, a, y)
        .release_,
        "means": PrivateTwoStageERM(domain, budget, "uniform", "arm_means").fit(X, a, y).release_,
        "itr": PrivateTwoStageERM(domain, budget, "uniform", "itr").fit(X, a, y).release_,
        "huber": PrivateTwoStageERM(domain, budget, "uniform", "itr_huber", seed=1).fit(X, a, y).release_,
        "many effect": PrivateEffect(hostile, budget).fit(*many).release_,
        "many rule": PrivateRule(hostile, budget, outcome_scale=1.0).fit(*many).release_,
        "many itr": PrivateTwoStageERM(hostile, budget, "uniform", "itr").fit(*many).release_,
    }
