"""A rule on a training and a test set, under every calibration, and how its settings are chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.datasets import Simulation
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import TOLERANCE
from dp2erm_cvx.plan import make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps import Execution, Rows
from dp2erm_cvx.studies.engine import Part, Row, StudyCell, part_label
from dp2erm_cvx.studies.listing import InForce
from dp2erm_cvx.studies.plans import PLAIN, Fitted, Refused, Weights, draw_thetas, plan_rule, without_noise
from dp2erm_cvx.studies.scheme import SATURATING, Constants, Rule, RulesDesign, StudyDesign


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


class Trial:
    """A training set and a test set. Weights are solved once for all calibrations."""

    def __init__(self, design: RulesDesign, train: Simulation, test: Simulation) -> None:
        self.design, self.train, self.test = design, train, test
        # of rules that bring their own decisions, so that no constants matter
        self.judge = Judge(test, Constants(covariate_bound=1.0, outcome_bound=1.0))
        self._weights: dict[tuple[Constants, bool], Weights] = {}

    def private_rows(self, rule: Rule, family: str, noise: str, rng: np.random.Generator) -> Iterator[Row]:
        """One row for every epsilon of the design."""
        n, p = self.train.dataset.X.shape
        judge = Judge(self.test, rule.constants)
        for epsilon in self.design.epsilons:
            head: dict[str, Any] = {"family": family, "noise": noise, "epsilon": epsilon}
            planned = plan_rule(rule, family, noise, budget_of(epsilon, noise, n), n, p)
            if isinstance(planned, Refused):
                yield {**head, "status": "refused", "reason": planned.reason}
                continue
            kept = planned.note == "neighbors keep their treatment"
            found = draw_thetas(planned, self._solved(rule.constants, kept), self.design.draws, rng)
            yield {**head, **_judged(found, judge), **planned.facts()}

    def method_rows(
        self, name: str, outcome_center: float, noise: str, rng: np.random.Generator
    ) -> Iterator[Row]:
        """The same by one whole run of the default pipeline for every epsilon."""
        data, method = self.train.dataset, self.design.methods[name]
        domain = method.domain(outcome_center)
        rows = Rows.POOLED.of(domain.features(self.test.dataset.X), 0.0)
        for epsilon in self.design.epsilons:
            head: Row = {"scheme": name, "family": "pipeline", "noise": noise, "epsilon": epsilon}
            budget = budget_of(epsilon, noise, data.n_samples)
            try:
                plan = make_plan(method.study(domain, data.X.shape, budget, noise))
            except (CalibrationError, DeclarationError) as error:
                yield {**head, "status": "refused", "reason": str(error)}
                continue
            found = plan.run(data, Execution("first_certified", TOLERANCE, int(rng.integers(2**62))))
            theta = found.released[plan.rule.name]
            calibration = plan.rule.calibration
            yield {
                **head,
                "status": "done",
                **self.judge.rules((rows @ theta > 0)[None]),
                "certified": found.certified,
                "predicted_flips": plan.flipped_share(theta),
                "V": plan.bound.V,
                "gamma": getattr(calibration, "gamma", 0.0),
                "scale": calibration.scale,
                "theorem": plan.theorem,
                "note": ", ".join(step.name for step in plan.steps),
            }

    def plain_row(self, rule: Rule) -> Row:
        """The same two stages without privacy."""
        domain = rule.constants.domain(self.train.dataset.n_samples)
        first, second = rule.scheme.first_stage(domain), rule.constants.second_stage().resolve(domain)
        found = without_noise(first, second, self._solved(rule.constants))
        head: Row = {"family": PLAIN, "noise": "none", "epsilon": float("inf")}
        return {**head, **_judged(found, Judge(self.test, rule.constants))}

    def _solved(self, constants: Constants, keeps_treatment: bool = False) -> Weights:
        """The weights of the training set in a domain."""
        key = (constants, keeps_treatment)
        if key not in self._weights:
            data = self.train.dataset
            domain = constants.domain(data.n_samples, keeps_treatment=keeps_treatment)
            self._weights[key] = Weights(domain.records(data.X, data.a, data.y))
        return self._weights[key]


def _judged(found: Fitted, judge: Judge) -> Row:
    return {
        "status": "done",
        **judge(found.thetas),
        "effective_share": found.effective_share,
        "certified": found.certified,
    }


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
    cell: StudyCell,
    choices: Mapping[str, Any],
) -> list[Row]:
    """Every scheme, family, noise and budget on one dataset; constant rules and no privacy beside.

    Rules by the default pipeline as well. ``choices`` has those of
    :func:`~dp2erm_cvx.studies.trial.choose` for ``part``.
    """
    rows: list[Row] = []
    trial = Trial(design, train, test)
    for name in design.schemes:
        for family in design.families:
            rule = design.chosen(choices[f"{part}/{name}/{family}"], name, family)
            for noise in design.noises:
                found = trial.private_rows(rule, family, noise, cell.rng(f"{name}/{family}/{noise}"))
                rows += [{"scheme": name, **row} for row in found]
        # settings that a small noise asks for would make every scheme weights of 1
        rule = design.chosen(choices[f"{part}/{name}/{PLAIN}"], name, PLAIN)
        rows.append({"scheme": name, **trial.plain_row(rule)})
    for name in design.methods:
        for noise in design.noises:
            rows += trial.method_rows(name, 0.0, noise, cell.rng(f"{name}/{noise}"))
    everyone = np.ones((1, test.dataset.n_samples), dtype=bool)
    for label, treated in (("treat all", everyone), ("treat none", ~everyone)):
        head: Row = {"scheme": label, "family": "constant rule", "noise": "none"}
        rows.append({**head, "epsilon": float("inf"), "status": "done", **trial.judge.rules(treated)})
    return rows


#: What was chosen for a scheme and a family, in plain JSON types.
Choice = dict[str, Any]


def places(design: StudyDesign, samples: Iterable[str]) -> list[Part]:
    """What a choice is made for: every sample, scheme and family, and the fit without privacy."""
    families = [*design.families, PLAIN]
    return [(sample, name, family) for sample in samples for name in design.schemes for family in families]


def in_force(design: StudyDesign, samples: Iterable[str], shared: Mapping[str, Choice]) -> Iterator[InForce]:
    """Schemes and constants with what was chosen for them, where it is known."""
    for place in places(design, samples):
        if part_label(place) in shared:
            sample, name, family = place
            yield InForce(sample, name, family, design.chosen(shared[part_label(place)], name, family))


def choose(design: StudyDesign, sample: Simulation, name: str, family: str) -> Choice:
    """The choice for a scheme and a family; the declared settings where nothing is tuned."""
    best: Choice = {"settings": {}, "constants": {}, "score": None}
    tuning = design.tuning
    if tuning is None:
        return best
    n = sample.dataset.n_samples
    rng = np.random.default_rng([design.seed, 7])
    rows = [rng.integers(n, size=n) for _ in range(tuning.bootstraps)]
    # constants first, then the settings of the scheme at the best of them
    constants = [] if family == SATURATING else tuning.constants
    for kind, options in (("constants", constants), ("settings", tuning.candidates.get(name, []))):
        for option in options:
            tried = {**best, kind: option}
            score = _score(design, sample, rows, design.chosen(tried, name, family), family)
            if score is not None and (best["score"] is None or score > best["score"]):
                best = {**tried, "score": score}
    return best


def _score(
    design: StudyDesign, sample: Simulation, rows: list[NDArray[np.int64]], rule: Rule, family: str
) -> float | None:
    """Mean out-of-bag accuracy over resamples, noises and budgets; None where a budget is refused.

    A candidate that is refused where noise is large would else be judged where it is small.
    """
    once = design.model_copy(update={"draws": 1})
    scores = []
    for number, inside in enumerate(rows):
        outside = np.setdiff1d(np.arange(sample.dataset.n_samples), inside)
        for row in _fits(Trial(once, taken(sample, inside), taken(sample, outside)), rule, family, number):
            if row["status"] != "done":
                return None
            scores.append(row["accuracy"])
    return float(np.mean(scores))  # type: ignore[arg-type]


def _fits(trial: Trial, rule: Rule, family: str, number: int) -> Iterator[Row]:
    """What a candidate is judged by on one resample: every noise and budget, or one fit without noise."""
    if family == PLAIN:
        yield trial.plain_row(rule)
        return
    for noise in trial.design.noises:
        yield from trial.private_rows(
            rule, family, noise, np.random.default_rng([trial.design.seed, 8, number])
        )
