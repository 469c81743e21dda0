"""Cases of the table: settings of every program, universes, and what a plan may declare."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import (
    BalanceFunctions,
    Box,
    Gaussian,
    L1Ball,
    Landmarks,
    Moments,
    WholeSpace,
)
from dp2erm_cvx.program.kernels import Laplace, Linear, PublicSample
from tests.helpers import penalized_rule
from tests.unchanged import adapter


class Stage(NamedTuple):
    """A program at one setting; ``settings`` is their JSON text, ``label`` the name and a
    number.
    """

    label: str
    settings: str
    program: Any


#: Covariates of every universe.
P = 3
SIZES = (50, 400, 4000)
#: Numbers of records that programs are solved at.
SOLVED = (50, 400)

_PRODUCTS = BalanceFunctions(lambda x: np.array([x[0] * x[1], np.sin(x[2])]), 1.4, "products")
_SETS: list[dict[str, Any]] = [
    *({"theta_set": chosen} for chosen in (L1Ball(0.4), L2Ball(0.3), Box(0.2), WholeSpace())),
    {"regularizer": ElasticNet(0.2, 0.3)},
]
_KERNELS: list[dict[str, Any]] = [
    {},
    {"ridge": 1e-3, "kernel": Laplace(0.5)},
    {"ridge": 0.05, "kernel": Linear(1.0)},
    {"ridge": 2.0, "kernel": Gaussian(2.0)},
]

#: Settings beside the examples of every program.
SETTINGS: Mapping[str, list[dict[str, Any]]] = {
    "uniform": [{}],
    "ipw_randomized": [{"propensity": 0.3}, {"propensity": 0.9, "trim": 4.0}],
    "ipw_known": [],
    "ipw_logistic": [
        {},
        {"ridge": 0.05, "radius": 0.2},
        {"ridge": 0.01, "radius": 2.0, "trim": 1.7},
        {"ridge": 1.0},
    ],
    "ipw_private": [
        {},
        {"ridge": 0.05, "radius": 0.2},
        {"ridge": 0.01, "radius": 2.0, "trim": 1.7},
        {"trim": 3.0, "share": 0.5},
    ],
    "entropy_balancing": [
        {},
        {"ridge": 0.05, "radius": 0.1},
        {"ridge": 0.1, "balance": Moments(2), "constant": 0.5},
        {"ridge": 0.1, "radius": 0.3, "balance": _PRODUCTS},
        {"ridge": 0.1, "cap": math.inf},
        {"ridge": 0.02, "treated": 0.3},
    ],
    "paper_entropy_balancing": [
        {},
        {"ridge": 0.05, "radius": 0.1},
        {"ridge": 0.2, "radius": 0.5},
        {"ridge": 0.2, "radius": 0.2},
        {"ridge": 0.1, "balance": Moments(2), "constant": 0.5},
        {"ridge": 0.1, "radius": 0.3, "balance": _PRODUCTS},
        {"ridge": 0.2, "radius": 0.2, "base_measure": tuple(1.0 + k / 50 for k in range(50))},
    ],
    "entropy_balancing_hard": [{}, {"balance": Moments(3)}, {"balance": Moments(2)}],
    "mmd": [*_KERNELS, {"alpha": 0.0}, {"alpha": 1.0, "ridge": 0.01, "cap": 1.5}, {"cap": 40.0}],
    "mmd_pooled": [*_KERNELS, {"alpha": 0.0, "ridge": 0.01}, {"alpha": 1.0}],
    "overlap": [{}, {"ridge": 0.02, "radius": 0.3}, {"ridge": 1.0}],
    "odds_weights": [{}, {"ridge": 0.02, "radius": 1.0, "trim": 3.0}],
    "att_calibration": [{}, {"ridge": 0.1, "low": 0.05, "high": 4.0}],
    "att_balancing": [
        {},
        {"ridge": 0.1, "cap": 4.0},
        {"ridge": 0.1, "cap": math.inf},
        {"ridge": 0.05, "balance": Moments(2), "cap": 30.0},
    ],
    "inverse_probability_tilting": [
        {},
        {"ridge": 0.2, "radius": 0.2},
        {"ridge": 0.3, "radius": 0.4, "balance": Moments(2), "constant": 0.5},
    ],
    "energy_balancing": [{}, {"ridge": 0.02}, {"alpha": 0.0, "ridge": 0.2}],
    "stable_balancing": [
        {},
        {"ridge": 0.02},
        {"alpha": 0.3, "balance": Moments(2), "constant": 0.3},
    ],
    "stable_balancing_hard": [{"tolerance": 0.1}, {"tolerance": 0.02, "balance": Moments(2)}],
    "raking": [{}, {"ridge": 0.02, "cap": 2.0}, {"ridge": 0.05, "treated": 0.2, "constant": 0.5}],
    "landmark_balancing": [{}, {"ridge": 0.01, "balance": Landmarks(5, 0.5)}],
    "logit_calibration": [
        {},
        {"ridge": 0.02, "cap": 2.0},
        {"ridge": 0.05, "treated": 0.2, "low": 0.3},
    ],
    "empirical_likelihood": [
        {},
        {"ridge": 0.02, "cap": 2.0},
        {"ridge": 0.05, "treated": 0.2, "low": 0.3},
    ],
    "minimal_dispersion": [
        {},
        {"ridge": 0.02, "tolerance": 0.01},
        {"ridge": 0.1, "balance": Moments(2)},
    ],
    "residual_balancing": [{}, {"ridge": 0.02, "smoothing": 0.05}, {"ridge": 0.02, "treated": 0.2}],
    "kernel_mean_matching": [*_KERNELS, {"target": PublicSample(np.eye(P)), "ridge": 0.05}],
    "itr": [
        *_SETS,
        {"theta_set": L1Ball(0.4), "regularizer": ElasticNet(l2=0.3)},
        {"features": (0, 2), "features_bound": 1.0},
    ],
    "itr_huber": [*_SETS, {"threshold": 0.05}],
    "itr_logistic": _SETS,
    "regression": _SETS,
    "saturating_regression": [*_SETS, {"slope": 0.05}],
    "itr_saturating": [{}, {"slope": 0.05}],
    "arm_means": _SETS,
    "plug_in_ate": _SETS,
}

#: Universes by name. Replaced records keep their treatment where the name says so.
UNIVERSES: Mapping[str, dict[str, Any]] = {
    "plain": {"covariate_bound": 1.0, "outcome_bound": 2.0},
    "intercept": {"covariate_bound": 2.0, "outcome_bound": 5.0, "intercept": 1.0},
    "floor": {"covariate_bound": 2.0, "outcome_bound": 5.0, "intercept": 1.0, "arm_floor": 15},
    "keep": {
        "covariate_bound": 1.0,
        "outcome_bound": 2.0,
        "relation": "replace-one-keep-treatment",
    },
    "floor, keep": {
        "covariate_bound": 1.0,
        "outcome_bound": 2.0,
        "arm_floor": 15,
        "relation": "replace-one-keep-treatment",
    },
    "ranges": {
        "covariate_bound": math.sqrt(3.25),
        "outcome_bound": 30.0,
        "outcome_center": 10.0,
        "treatment_cost": 2.0,
        "ranges": {"age": (18.0, 90.0), "sex": (0.0, 1.0), "weight": (40.0, 160.0)},
        "intercept": 0.5,
        "arm_floor": 20,
    },
    "small": {"covariate_bound": 0.1, "outcome_bound": 1e-3, "arm_floor": 1},
    "large": {"covariate_bound": 20.0, "outcome_bound": 1e3, "intercept": 1.0},
}

#: What a plan is declared to unless its options say otherwise.
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
QUICK: list[dict[str, Any]] = [
    {"method": "sharp"},
    {"method": "sharp", "arithmetic": "counted"},
    {"method": "paper"},
    {"method": "paper", "noise": "gaussian"},
    {"method": "paper-corrected"},
    {"method": "paper-corrected", "noise": "gaussian"},
    {"method": "output"},
    {"method": "output", "arithmetic": "counted"},
]
# these search a grid or a root: some 30 ms each
COUNTED: list[dict[str, Any]] = [
    {"method": "sharp", "noise": "gaussian", "arithmetic": "counted"},
    {"method": "renyi", "arithmetic": "counted"},
    {"method": "auto"},
]
ASSUMED: list[dict[str, Any]] = [
    {"method": "sharp", "noise": "gaussian"},
    {"method": "renyi"},
    {"method": "auto", "arithmetic": "counted"},
    {"method": "auto", "noise": "gaussian"},
]
FINE: list[dict[str, Any]] = [
    {"method": "sharp", "split": 0.3},
    {"method": "output", "split": 0.3},
    {"method": "sharp", "weight_error": 1e-6},
    {"method": "sharp", "weight_error": 1e-12, "arithmetic": "counted"},
    {"method": "paper", "weight_error": 1e-3},
    {"method": "renyi", "weight_error": 1e-3},
    {"method": "sharp", "arithmetic": "counted", "numerical_share": 0.1},
    {"method": "sharp", "arithmetic": "auto"},
    {"method": "paper", "arithmetic": "auto"},
    *(
        {"method": method, "epsilon": 0.1}
        for method in ("sharp", "paper", "renyi", "output", "auto")
    ),
    *(
        {"method": method, "epsilon": 10.0}
        for method in ("sharp", "paper", "renyi", "output", "auto")
    ),
    *({"method": method, "delta": 0.0} for method in ("sharp", "renyi", "output", "auto")),
    {"method": "sharp", "noise": "gaussian", "delta": 0.0},
    {"method": "paper", "arithmetic": "counted"},
    {"method": "sharp", "epsilon": 600.0, "arithmetic": "counted"},
    {"method": "sharp", "epsilon": 600.0, "arithmetic": "auto"},
]


#: Programs of the same loss with penalties of their own.
DECLARED: Mapping[str, list[Any]] = {
    "itr": [
        penalized_rule(lambda theta: 0.2 * cp.norm(theta, 1) + 0.1 * cp.norm(theta, 2), "group")
    ],
}


@cache
def stages(name: str) -> tuple[Stage, ...]:
    """A program at every setting that the table has of it: those from above, then its own
    examples.
    """
    known: dict[str, Stage] = {}
    programs = [adapter.program(name, settings) for settings in SETTINGS.get(name, [])]
    programs += [scheme() for scheme in DECLARED.get(name, [])]
    programs += [adapter.program(name, settings) for settings in adapter.examples(name)]
    for program in programs:
        own = {} if program.name == name else {"declared": program.name}
        text = json.dumps(adapter.settings_of(program) | own, sort_keys=True)
        known.setdefault(text, Stage(f"{name} {len(known)}", text, program))
    return tuple(known.values())


def universe(name: str) -> Any:
    return adapter.domain(**UNIVERSES[name])


def plans() -> Iterator[tuple[Stage, Stage, str, int, dict[str, Any]]]:
    """First stage, second stage, universe, n and options of every plan of the table."""
    firsts = [stage for name in adapter.first_stage_names() for stage in stages(name)]
    seconds = [stage for name in adapter.second_stage_names() for stage in stages(name)]
    # the first two have a bound of either family here
    scaled, propensity = stages("paper_entropy_balancing")[3], stages("ipw_logistic")[1]
    balanced, private = stages("entropy_balancing")[1], stages("ipw_private")[2]
    uniform = stages("uniform")[0]
    default = [stages(name)[0] for name in adapter.second_stage_names()]
    rule, effect = stages("itr")[0], stages("plug_in_ate")[0]
    product = itertools.product
    yield from product([scaled], seconds, ["floor"], [400], [*QUICK, *COUNTED])
    yield from product([scaled], default, ["floor"], [400], ASSUMED)
    yield from product([uniform], seconds, ["intercept"], [400], QUICK)
    yield from product([private], default, ["intercept"], [400], [*QUICK, *COUNTED, *ASSUMED])
    yield from product(
        firsts, [rule, effect], ["floor"], [50], [QUICK[1], QUICK[2], QUICK[5], QUICK[7]]
    )
    yield from product([propensity], [rule, effect], ["plain"], [400], FINE)
    yield from product([private], [rule], ["plain"], [400], FINE)
    yield from product([propensity], default, UNIVERSES, [4000], [QUICK[2]])
    yield from product([balanced, private], default, UNIVERSES, [4000], [QUICK[1]])
    yield from product([uniform], [rule, effect], UNIVERSES, [100], [*QUICK, *COUNTED])
