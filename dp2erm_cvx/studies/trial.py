"""All calibrations of a scheme on one dataset: rows of accuracy and value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.datasets import Simulation
from dp2erm_cvx.domain import Array
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.engine import Cell, Row
from dp2erm_cvx.studies.fit import Weights, fitted, without_noise
from dp2erm_cvx.studies.plans import PLAIN, Refused, describe, plan_rule
from dp2erm_cvx.studies.scheme import Constants, Scheme, StudyDesign


def budget_of(epsilon: float, noise: str, n: int) -> Budget:
    """Pure for gamma noise, delta = 1/n for Gaussian noise, as in the paper."""
    return Budget(epsilon, 1.0 / n if noise == "gaussian" else 0.0)


class Judge:
    """A test set that rules are judged on."""

    def __init__(self, test: Simulation, constants: Constants) -> None:
        # as a release treats them: beside an intercept, shrinking a record changes its recommendation
        self.rows = constants.domain(test.dataset.n_samples).features(test.dataset.X)
        self.test = test

    def __call__(self, thetas: Array) -> dict[str, float]:
        """Mean accuracy and value over thetas (m, p)."""
        return self.rules((self.rows @ thetas.T > 0).T)

    def rules(self, treated: NDArray[np.bool_]) -> dict[str, float]:
        """The same for rules (m, n), and the value as estimated from the outcomes of those who followed."""
        data, test = self.test.dataset, self.test
        followed = treated == (data.a == 1)
        weight = followed / np.where(data.a == 1, test.propensity, 1.0 - test.propensity)
        total = np.maximum(weight.sum(axis=1), 1e-300)
        return {
            "accuracy": float(np.mean(treated == test.optimal_rule.astype(bool))),
            "value": float(np.mean([test.value(rule) for rule in treated.astype(np.int64)])),
            "empirical_value": float(np.mean(weight @ data.y / total)),
        }


def private_rows(
    train: Simulation,
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
            "certified": found.certified,
            **describe(rule),
        }


def plain_row(
    train: Simulation, judge: Judge, scheme: Scheme, constants: Constants, weights: dict[str, Weights]
) -> Row:
    """The same two stages without privacy."""
    domain = constants.domain(train.dataset.n_samples)
    first, second = scheme.first_stage(domain), constants.second_stage().resolve(domain)
    found = without_noise(first, second, shared_weights(train, constants, "", weights))
    return {
        "family": PLAIN,
        "noise": "none",
        "epsilon": float("inf"),
        "status": "done",
        **judge(found.thetas),
        "effective_share": found.effective_share,
        "certified": found.certified,
    }


def shared_weights(
    train: Simulation, constants: Constants, note: str, weights: dict[str, Weights]
) -> Weights:
    """The weights of a dataset in a domain, solved once for all calibrations."""
    kept = note == "neighbors keep their treatment"
    key = f"{constants.model_dump_json()},{kept}"
    if key not in weights:
        domain = constants.domain(train.dataset.n_samples, keeps_treatment=kept)
        data = train.dataset
        weights[key] = Weights(domain.records(data.X, data.a, data.y))
    return weights[key]


def taken(sample: Simulation, rows: NDArray[np.int64]) -> Simulation:
    """These records with what is known of them."""
    data = sample.dataset
    part = dataclasses.replace(data, X=data.X[rows], a=data.a[rows], y=data.y[rows])
    return Simulation(
        sample.scenario, part, sample.propensity[rows], sample.contrast[rows], sample.main_effect[rows]
    )


def all_rows(
    design: StudyDesign,
    part: str,
    train: Simulation,
    test: Simulation,
    cell: Cell,
    choices: Mapping[str, Any],
) -> list[Row]:
    """Every scheme, family, noise and budget on one dataset; constant rules and no privacy beside.

    ``choices`` has those of :func:`~dp2erm_cvx.studies.tuning.tune` for ``part``.
    """
    rows: list[Row] = []
    weights: dict[str, Weights] = {}
    for name in design.schemes:
        for family in design.families:
            own, constants = design.chosen(choices[f"{part}/{name}/{family}"], name)
            judge = Judge(test, constants)
            for noise in design.noises:
                rng = cell.rng(f"{name}/{family}/{noise}")
                how = (family, noise, design.epsilons, design.draws)
                found = private_rows(train, judge, own, constants, *how, rng, weights)
                rows += [{"scheme": name, **row} for row in found]
        # settings that a small noise asks for would make every scheme weights of 1
        own, constants = design.chosen(choices[f"{part}/{name}/{PLAIN}"], name)
        plain = plain_row(train, Judge(test, constants), own, constants, weights)
        rows.append({"scheme": name, **plain})
    everyone = np.ones((1, test.dataset.n_samples), dtype=bool)
    for label, rule in (("treat all", everyone), ("treat none", ~everyone)):
        head: Row = {"scheme": label, "family": "constant rule", "noise": "none"}
        rows.append({**head, "epsilon": float("inf"), "status": "done", **judge.rules(rule)})
    return rows
