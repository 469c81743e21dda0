"""The settings that every registered program is tried at: a new one joins by an entry of
:data:`SETTINGS`.
"""

from collections.abc import Mapping
from typing import Any

from dp2erm_cvx import conformance
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import Box, FirstStage, Gaussian, L1Ball, Moments, WholeSpace
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.program.stage import family_of
from tests.helpers import make_domain
from tests.unchanged.cases import SETTINGS as PROGRAMS

#: Covariates of the records that the suite uses.
P = 3

_SETS: tuple[Any, ...] = (None, L1Ball(0.4), L2Ball(0.3), Box(0.2), WholeSpace())
_NETS = (ElasticNet(), ElasticNet(l1=0.2), ElasticNet(l2=0.3), ElasticNet(0.2, 0.3))
_SECOND: list[dict[str, Any]] = [
    {"theta_set": chosen, "regularizer": net} for chosen in _SETS for net in _NETS
]
# the smaller programs share the code of the rule, which is tried at every set and penalty
_PLAIN: list[dict[str, Any]] = [
    {}, {"theta_set": WholeSpace()}, {"theta_set": L1Ball(0.4), "regularizer": _NETS[3]},
]  # fmt: skip

#: Schemes that differ in their dispersion or price alone: one row of each, all of them in the
#: golden table.
_ALIKE = (
    "empirical_likelihood",
    "landmark_balancing",
    "logit_calibration",
    "minimal_dispersion",
    "raking",
    "residual_balancing",
)

#: Representative hyper-parameters of every program; first stages share the rows of the golden
#: table, but for a base measure, which is of that table's number of records.
SETTINGS: Mapping[str, list[dict[str, Any]]] = {
    **{
        name: [row for row in PROGRAMS[name] if "base_measure" not in row]
        for name, program in programs().items()
        if name in PROGRAMS and issubclass(family_of(program), FirstStage)
    },
    **{name: PROGRAMS[name][:1] for name in _ALIKE},
    "ipw_known": [
        {"coefficient": (0.1, 0.6, 0.0, -0.8)},
        {"coefficient": (0.5, 2.0, 0.0, -2.0), "trim": 5.0},
    ],
    "overlap_private": [{}, {"ridge": 0.05, "radius": 0.2}],
    "tilting_private": [{}, {"ridge": 0.05, "radius": 0.2, "balance": Moments(2), "constant": 0.5}],
    "itr": [*_SECOND, {"features": (0, 2), "features_bound": 1.0}],
    "itr_huber": [*_PLAIN, {"threshold": 0.05}],
    **dict.fromkeys(("itr_logistic", "regression"), _PLAIN),
    **{name: [*_PLAIN, {"slope": 0.05}] for name in ("itr_saturating", "saturating_regression")},
    **dict.fromkeys(("arm_means", "plug_in_ate"), _PLAIN),
}

_FAR = [{"ridge": 0.01, "radius": 1e6}, {"ridge": 0.01, "radius": 1e-6}, {"ridge": 1e6}]
_DENSE = [{"ridge": 1e-5, "kernel": Gaussian(0.2)}, {"ridge": 1e3}]
#: Settings at the ends of what may be declared, on which a certified solve is still expected.
EXTREMES: Mapping[str, list[dict[str, Any]]] = {
    "ipw_randomized": [{"propensity": 1e-6}, {"propensity": 0.5, "trim": 1.001}],
    "ipw_known": [{"coefficient": (0.0, 40.0, 0.0, -40.0)}, {"coefficient": (0.0, 400.0, 0.0,
    0.0)}],
    "ipw_logistic": [
        {"ridge": 1e-6}, *_FAR, {"ridge": 0.0, "radius": 0.5}, {"ridge": 1e-3, "trim": 1.001},
    ],
    "entropy_balancing": [
        {"ridge": 1e-4, "balance": Moments(2)}, *_FAR, {"ridge": 0.1, "constant": 1e-3},
    ],
    "paper_entropy_balancing": _FAR,
    "overlap": [{"ridge": 1e-6}, {"ridge": 1e6}, {"ridge": 0.0, "radius": 0.5}],
    "odds_weights": [{"ridge": 1e-6}, {"ridge": 1e6}, {"ridge": 0.0, "radius": 0.5}],
    "att_calibration": [{"ridge": 1e-4}, {"ridge": 1e6}, {"low": 1e-3, "high": 50.0}],
    "att_balancing": [{"ridge": 1e-4, "balance": Moments(2)}, {"ridge": 1e6}, {"ridge": 1e-3,
    "cap": 1.5}],
    "inverse_probability_tilting": [{"ridge": 1e6}, {"ridge": 0.01, "radius": 4.0},
    {"constant": 1e-3}],
    "energy_balancing": [{"ridge": 1e-5}, {"ridge": 1e4}],
    "stable_balancing": [{"ridge": 1e-2, "balance": Moments(3)}, {"ridge": 1e4},
    {"constant": 1e-3}],
    **dict.fromkeys(("kernel_mean_matching", "mmd", "mmd_pooled"), _DENSE),
    "itr": [
        {"theta_set": L1Ball(1e6)}, {"theta_set": L1Ball(1e-3)}, {"theta_set": L2Ball(1e-3)},
        {"theta_set": Box(1e-3)}, {"regularizer": ElasticNet(l1=1e3)},
        {"regularizer": ElasticNet(l2=1e6)},
    ],
}  # fmt: skip


def edge_records() -> dict[str, Records]:
    """Datasets of the universe that break careless code."""
    return conformance.edge_records(make_domain(P).space)
