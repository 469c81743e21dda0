"""All calibrations of a scheme on one dataset: rows of accuracy and value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dp2erm_cvx.datasets import Simulation as Simulated
from dp2erm_cvx.domain import Array
from dp2erm_cvx.experiments.engine import Row
from dp2erm_cvx.experiments.rules import (
    Constants,
    Refused,
    Scheme,
    Weights,
    describe,
    fitted,
    plan_rule,
    without_noise,
)
from dp2erm_cvx.privacy import Budget


def budget_of(epsilon: float, noise: str, n: int) -> Budget:
    """Pure for gamma noise, delta = 1/n for Gaussian noise, as in the paper."""
    return Budget(epsilon, 1.0 / n if noise == "gaussian" else 0.0)


class Judge:
    """A test set that rules are judged on."""

    def __init__(self, test: Simulated, intercept: float) -> None:
        X = test.dataset.X
        self.rows: Array = np.column_stack([np.full(len(X), intercept), X]) if intercept else X
        self.test = test

    def __call__(self, thetas: Array) -> dict[str, float]:
        """Mean accuracy and value over thetas (m, p)."""
        treated = (self.rows @ thetas.T > 0).T
        return {
            "accuracy": float(np.mean(treated == self.test.optimal_rule.astype(bool))),
            "value": float(np.mean([self.test.value(rule) for rule in treated.astype(np.int64)])),
        }


def private_rows(
    train: Simulated,
    judge: Judge,
    scheme: Scheme,
    constants: Constants,
    family: str,
    noise: str,
    epsilons: list[float],
    draws: int,
    rng: np.random.Generator,
    weights: dict[str, Weights],
) -> Iterator[Row]:
    """One row per epsilon. ``weights`` are shared by all calls on one dataset."""
    n, p = train.dataset.X.shape
    for epsilon in epsilons:
        head: dict[str, Any] = {"family": family, "noise": noise, "epsilon": epsilon}
        rule = plan_rule(scheme, constants, family, noise, budget_of(epsilon, noise, n), n, p)
        if isinstance(rule, Refused):
            yield {**head, "status": "refused", "reason": rule.reason}
            continue
        found = fitted(rule, shared_weights(train, constants, rule.note, weights), draws, rng)
        yield {
            **head,
            "status": "done",
            **judge(found.thetas),
            "effective_share": found.effective_share,
            **describe(rule),
        }


def plain_row(
    train: Simulated, judge: Judge, scheme: Scheme, constants: Constants, weights: dict[str, Weights]
) -> Row:
    """The same two stages without privacy."""
    domain = constants.domain(train.dataset.n_samples)
    first, second = scheme.first_stage(domain), constants.second_stage().resolve(domain)
    found = without_noise(first, second, shared_weights(train, constants, "", weights))
    return {
        "family": "non-private",
        "noise": "none",
        "epsilon": float("inf"),
        "status": "done",
        **judge(found.thetas),
        "effective_share": found.effective_share,
    }


def shared_weights(train: Simulated, constants: Constants, note: str, weights: dict[str, Weights]) -> Weights:
    """The weights of a dataset in a domain, solved once for all calibrations."""
    kept = note == "neighbors keep their treatment"
    key = f"{constants.model_dump_json()},{kept}"
    if key not in weights:
        domain = constants.domain(train.dataset.n_samples, keeps_treatment=kept)
        data = train.dataset
        weights[key] = Weights(domain.records(data.X, data.a, data.y))
    return weights[key]
