"""Private effects and rules beside what others published.

Their methods are written as far as public text suffices.

``python benchmark.py --data Twin_Data.csv.gz`` takes 10 minutes, ``--quick`` less than five;
without the Twins file what needs it is left out. ``--variant dpate`` needs the package of that
name: pip install dpate (Python 3.12 or later). Populations are drawn anew for every replicate; of
real records (n = 0) the noise alone is.
"""

from __future__ import annotations

from typing import Any

from common import Design
from confounded import AT_3
from effects import CAP_2, EBW, IPW, main, source
from rules import Constants
from twins import Outcomes

_BOTH, _NSW = [0.5, 2.0], {"private, cap 2, six covariates": CAP_2}
_GAUSSIAN: dict[str, Any] = {"delta": 1e-5}


def _folds(estimator: str, **more: Any) -> dict[str, Any]:
    return _GAUSSIAN | {"method": "folds", "settings": {"estimator": estimator} | more}


def _rules(
    replicates: dict[int, int], constants: Constants, published: Constants, **more: Any
) -> dict[str, Any]:
    """Constants of direct schemes are those of the experiments, which state why.

    Those of ``published`` are the best of six on other seeds, with their settings.
    """
    pipeline = {"covariate_bound": 1.2, "outcome_bound": 30.0, "outcome_scale": 4.0}
    known = {
        "replicates": replicates,
        "epsilons": _BOTH,
        "constants": constants,
        "others": published,
    }
    return known | {"pipelines": {"private": pipeline}} | more


_PAPER = _rules(
    {400: 20, 4000: 20}, Constants(1.0, 2.0, arm_floor=0.35), Constants(2.0, 2.0, intercept=1.0)
)
_CONFOUNDED = _rules(
    {1000: 20, 4000: 20, 10_000: 10},
    AT_3,
    Constants(1.6401, 0.875, intercept=1.0, outcome_center=3.0),
    pipelines={"private": {"covariate_bound": 1.2, "outcome_bound": 13.0, "outcome_scale": 1.3}},
)
_TWINS = _rules(
    {1140: 20, 5000: 20},
    Constants(1.4143, 1.0, "l1", theta_radius=8.0, intercept=1.0, arm_floor=0.25),
    Constants(1.4143, 0.25, intercept=1.0),
    pipelines={"private": {"covariate_bound": 1.0, "outcome_bound": 4.0, "outcome_scale": 0.5}},
    outcomes=Outcomes(),
)
FULL: Design = {
    "seed": 2718,
    "timed": True,
    # pure epsilon, at the defaults; and the same under the guarantee of those that add Gaussian
    # noise
    "methods": {"private": {}, "private, Gaussian": _GAUSSIAN},
    "published": {
        "Lee et al.": _GAUSSIAN | {"method": "private_propensity"},
        "Guha & Reiter": {"method": "subsample_aggregate"},
        "Lebeda et al., G-formula": _folds("g"),
        "Lebeda et al., IPW": _folds("ipw"),
        "Lebeda et al., AIPW": _folds("aipw", per_column=4.0),
        "least squares, noisy moments": _GAUSSIAN | {"method": "noisy_least_squares"},
    },
    "weights": {"IPW": IPW, "EBW": EBW},
    "data": {
        "low overlap": source({1000: 40, 5000: 20}, _BOTH, (1000, 5000)),
        "regions": source({5000: 20}, _BOTH, (5000,)),
        "binary": source({1000: 20, 5000: 20, 50_000: 4}, _BOTH, (1000, 5000)),
        "varying": source({1000: 20, 10_000: 10}, _BOTH, (1000,)),
        "nhefs plasmode": source({500: 20, 2000: 20, 10_000: 10}, _BOTH, (500, 2000)),
        # the scenarios of the paper, and one in which weights of 1 are wrong
        "linear": source({1000: 20, 10_000: 10}, _BOTH, (1000,)),
        "linear, treated": source(
            {1000: 20, 10_000: 10}, _BOTH, population="linear", treated_only=True
        ),
        "nonlinear": source({1000: 20, 10_000: 10}, _BOTH, (1000,)),
        "confounded": source({1000: 20, 10_000: 10}, _BOTH, (1000,)),
        # real pairs, of whom one is seen
        "twins": source({2000: 20, 10_000: 10}, _BOTH, (2000,)),
        "twins, treated": source({10_000: 10}, _BOTH, population="twins", treated_only=True),
        "nhefs": source({0: 20}, _BOTH, (0,)),
        "401k": source({0: 20}, _BOTH, (0,)),
        "nsw-psid": source({0: 20}, [1.0, 4.0], (0,), methods=_NSW),
        "nsw-cps": source({0: 10}, [1.0, 4.0], methods=_NSW),
        "acic-*": source({0: 5}, [2.0], (0,)),
    },
    "rule_schemes": {
        "w = 1": {"program": "uniform"},
        "IPW": IPW,
        "IPW, small ridge": {"program": "ipw_logistic", "settings": {"ridge": 0.003, "trim": 6.0}},
        "EBW": EBW,
    },
    "published_rules": {
        "least squares with interactions": _GAUSSIAN | {"method": "noisy_interactions"},
        "outcome weighted learning": _GAUSSIAN
        | {"method": "weighted_learning", "settings": {"ridge": 0.03, "clip": 0.25}},
    },
    "rules": {
        **dict.fromkeys(("linear", "tree", "nonlinear"), _PAPER),
        "confounded": _CONFOUNDED,
        "twins": _TWINS,
    },
}
VARIANTS: dict[str, Design] = {
    # without the packages of the extra
    "quick": {
        "data": {
            "binary": source({1000: 10, 5000: 4}, [2.0], (1000,)),
            "low overlap": source({1000: 10}, [2.0]),
            "nhefs": source({0: 5}, [2.0]),
            "nonlinear": source({1000: 10}, [2.0]),
            "confounded": source({1000: 10}, [2.0]),
            "twins": source({2000: 5}, [2.0]),
        },
        "rules": {"confounded": _CONFOUNDED | {"replicates": {1000: 5}, "epsilons": [2.0]}},
    },
    # a package of others as it is
    "dpate": {
        "weights": {},
        "rules": {},
        "methods": {"private": {}},
        "published": {
            f"dpate, {label}": {"method": "dpate", "settings": {"function": function}}
            for label, function in {
                "IPW by halves": "dp_ipw_split",
                "IPW": "dp_ipw_sequential",
                "weighted means": "dp_nipw_sequential",
                "blocking": "dp_prop_blocking",
                "by aggregation": "dp_ate_by_aggregation",
                "nuisances by aggregation": "dp_nuisance_aggregation",
            }.items()
        },
        "data": {
            "binary": source({1000: 20, 5000: 3}, _BOTH),
            "varying": source({1000: 3}, _BOTH),
            "low overlap": source({5000: 3}, _BOTH),
            "nhefs": source({0: 3}, _BOTH),
        },
    },
}

if __name__ == "__main__":
    main("benchmark", FULL, VARIANTS)
