"""Seeded releases of many declarations: what each of them states, number by number."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tests.unchanged import adapter
from tests.unchanged.adapter import Codebook, Domain, SamplingWeights


class Declared(NamedTuple):
    """One release: ``goal`` "effect", "rule" or "weights", in a universe of ``UNIVERSES``, at a
    budget.
    """

    goal: str
    universe: str
    epsilon: float
    delta: float = 0.0
    options: Mapping[str, Any] = MappingProxyType({})

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.options.items()]
        budget = [f"epsilon={self.epsilon:g}", f"delta={self.delta:g}"]
        return " ".join([self.goal, self.universe, *budget, *options])


_DECLARED = Domain(
    covariate_bound=1.5, outcome_bound=2.0, ranges={"u": (-1.0, 1.0), "v": (-0.8, 0.8)}
)
_LEVELS = replace(
    _DECLARED,
    ranges={"u": (-1.0, 1.0)},
    codebook=Codebook(levels={"sex": ["F", "M"]}),
    covariate_bound=1.8,
)

#: What is declared of the records, and which columns of the table are covariates.
UNIVERSES: dict[str, tuple[Domain, tuple[str, ...]]] = {
    "ranges": (_DECLARED, ("u", "v")),
    "norm": (Domain(covariate_bound=1.5, outcome_bound=2.0, arm_floor=60), ("u", "v")),
    "keep": (replace(_DECLARED, relation="replace-one-keep-treatment"), ("u", "v")),
    "risks": (replace(_DECLARED, outcome_bound=0.5, outcome_center=0.5), ("u", "v")),
    "cost": (replace(_DECLARED, treatment_cost=0.3, outcome_center=0.5, arm_floor=60), ("u", "v")),
    "survey": (
        replace(_DECLARED, codebook=Codebook(sampling_weights=SamplingWeights("wt", 2.5))),
        ("u", "v", "wt"),
    ),
    "levels": (_LEVELS, ("u", "sex")),
}

_NOISES = (("gamma", 0.0), ("gaussian", 1e-5), ("box", 0.0), ("auto", 0.0))
_ESTIMANDS = ("ate", "att", "overlap", "risks")


def declared() -> Iterator[Declared]:
    """Every release of the table."""
    yield from _effects()
    yield from _rules()
    yield from _weights()


def _effects() -> Iterator[Declared]:
    for estimand in _ESTIMANDS:
        where = "risks" if estimand == "risks" else "ranges"
        for (noise, delta), epsilon in product(_NOISES, (1.0, 9.0)):
            yield Declared("effect", where, epsilon, delta, {"estimand": estimand, "noise": noise})
        more: list[dict[str, Any]] = [
            {"settings": {"propensity": 0.5}},
            {"settings": {"propensity": "logistic"}, "interval": "score"},
            {"settings": {"propensity": "constant"}, "arithmetic": "assumed", "level": 0.8},
        ]
        for options in more:
            yield Declared("effect", where, 6.0, 0.0, {"estimand": estimand, **options})
    single: list[dict[str, Any]] = [
        {"residual_scale": 0.3, "confounding": 0.4, "collinearity": 0.5, "heterogeneity": 0.1},
        {"effect_center": 0.4},
        {"prognostic": ["u"]},
        {"curved": ["u"]},
        {"settings": {"cap": 3.0, "score_bound": 1.0, "residual_bound": 0.7}},
        {"arithmetic": "counted", "numerical_share": 0.05},
    ]
    for options in single:
        yield Declared("effect", "ranges", 4.0, 0.0, options)
    for where in ("norm", "keep", "cost", "levels", "survey"):
        yield Declared("effect", where, 8.0)
        yield Declared("effect", where, 8.0, 0.0, {"settings": {"propensity": "constant"}})
    yield Declared("effect", "survey", 9.0, 0.0, {"estimand": "att"})
    yield Declared("effect", "levels", 30.0, 0.0, {"where": {"sex": "F"}, "prognostic": ["u"]})
    yield Declared("effect", "levels", 30.0, 0.0, {"by": "sex", "prognostic": ["u"]})


def _rules() -> Iterator[Declared]:
    kinds: list[dict[str, Any]] = [
        {},
        {"expected": ["confounding"]},
        {"settings": {"propensity": 0.5, "value_share": 0.2}},
        {"settings": {"propensity": "logistic", "value_share": 0.2}, "outcome_scale": 0.5},
    ]
    for options, (noise, delta), epsilon in product(kinds, _NOISES[:3], (1.0, 9.0)):
        yield Declared("rule", "ranges", epsilon, delta, {"noise": noise, **options})
    single: list[dict[str, Any]] = [
        {"expected": ["main effect"], "arithmetic": "assumed"},
        {"settings": {"propensity": [0.1, 0.5, -0.2], "balance": "inverse"}},
        {"settings": {"propensity": 0.5, "response_bound": 2.0}},
        {"settings": {"mean_share": 0.1, "spread_share": 0.1}},
    ]
    for options in single:
        yield Declared("rule", "ranges", 9.0, 0.0, options)
    for where in ("norm", "cost", "levels", "survey"):
        yield Declared(
            "rule", where, 9.0, 0.0, {"settings": {"value_share": 0.2, "propensity": "logistic"}}
        )


def _weights() -> Iterator[Declared]:
    firsts = (
        "entropy_balancing",
        "ipw_private",
        "uniform",
        "ipw_logistic",
        "overlap",
        "mmd",
        "stable_balancing",
    )
    seconds = ("itr", "itr_huber", "itr_logistic", "regression", "arm_means", "plug_in_ate")
    for first, second in product(firsts[:3], seconds):
        yield Declared("weights", "cost", 2.0, 0.0, {"first_stage": first, "second_stage": second})
    for first in firsts[3:]:
        yield Declared("weights", "norm", 5.0, 1e-5, {"first_stage": first, "noise": "gaussian"})
    for first, calibration in product(
        firsts[:2], ("paper", "paper-corrected", "renyi", "output", "auto")
    ):
        own = {"first_stage": first, "second_stage": "arm_means", "calibration": calibration}
        yield Declared("weights", "norm", 2.0, 1e-5, {**own, "arithmetic": "assumed"})
    yield Declared("weights", "keep", 2.0, 0.0, {"first_stage": "ipw_logistic", "noise": "box"})
    yield Declared(
        "weights", "levels", 2.0, 0.0, {"first_stage": "uniform", "second_stage": "regression"}
    )


@cache
def table(binary: bool) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """600 records of three covariates and a sampling weight, which decide on the treatment."""
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-0.9, 0.9, 600), rng.uniform(-0.7, 0.7, 600)
    a = rng.binomial(1, 1.0 / (1.0 + np.exp(-u)))
    y = 0.5 * u - 0.3 * v + a * (0.4 + 0.5 * v) + 0.3 * rng.standard_normal(600)
    X = pd.DataFrame({"u": u, "v": v, "sex": np.where(rng.random(600) < 0.4, "F", "M")})
    return X.assign(wt=rng.uniform(0.5, 2.0, 600)), a, (y > 0.2).astype(float) if binary else y


def rows(wanted: Collection[tuple[str, ...]] | None = None) -> Iterator[dict[str, Any]]:
    """Every number that a release states, or why there is none; of the releases that are wanted."""
    for case in declared():
        if wanted is not None and (str(case),) not in wanted:
            continue
        public, columns = UNIVERSES[case.universe]
        X, a, y = table(case.universe == "risks")
        model = adapter.estimator(case.goal, public, case.epsilon, case.delta, case.options)
        try:
            fields = adapter.released(model, X[list(columns)], a, y)
        except adapter.Refusal as refusal:
            fields = {"refusal": f"{type(refusal).__name__}: {refusal}"}
        for quantity, value in fields.items():
            yield {"release": str(case), "quantity": quantity, "value": value}
