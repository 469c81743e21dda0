"""Rules for every registered program, and the settings it is tried at.

A new program joins by one entry of :data:`SETTINGS`; ``test_every_program`` fails for a program without
one. Where a declaration has variables other than the model's own point, :func:`lift` says how to fill them.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx import conformance
from dp2erm_cvx.domain import Records
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.program import Box, ClosedFormWeights, FirstStage, Gaussian, L1Ball, Moments, WholeSpace
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.registry import programs
from tests.helpers import make_domain, make_records
from tests.unchanged.cases import SETTINGS as PROGRAMS

#: Covariates of the records that the suite uses.
P = 3

_SETS: tuple[Any, ...] = (None, L1Ball(0.4), L2Ball(0.3), Box(0.2), WholeSpace())
_NETS = (ElasticNet(), ElasticNet(l1=0.2), ElasticNet(l2=0.3), ElasticNet(0.2, 0.3))
_USER = {
    "regularizer": UserRegularizer(lambda theta: 0.2 * cp.norm(theta, 1) + 0.1 * cp.norm(theta, 2), "group")
}
_SECOND: list[dict[str, Any]] = [
    *({"theta_set": chosen, "regularizer": net} for chosen in _SETS for net in _NETS),
    # a penalty of one's own has no certificate but Clarabel's gap, too wide in other balls on some datasets
    {**_USER, "theta_set": L1Ball(2.5)},
]
# the smaller programs share the code of the rule, which is tried at every set and penalty
_SMALL: list[dict[str, Any]] = [
    {},
    {"theta_set": WholeSpace()},
    {"theta_set": L1Ball(0.4), "regularizer": _NETS[3]},
    _USER,
]
_PLAIN: list[dict[str, Any]] = [row for row in _SMALL if row is not _USER]

#: Representative hyper-parameters of every program; first stages share the rows of the golden table, but
#: for a base measure, which is of that table's number of records.
SETTINGS: Mapping[str, list[dict[str, Any]]] = {
    **{
        name: [row for row in PROGRAMS[name] if "base_measure" not in row]
        for name, program in programs().items()
        if name in PROGRAMS and issubclass(program, FirstStage)
    },
    "ipw_known": [
        {"coefficient": (0.1, 0.6, 0.0, -0.8)},
        {"coefficient": (0.5, 2.0, 0.0, -2.0), "trim": 5.0},
    ],
    "overlap_private": [{}, {"ridge": 0.05, "radius": 0.2}],
    "tilting_private": [{}, {"ridge": 0.05, "radius": 0.2, "balance": Moments(2), "constant": 0.5}],
    "itr": [*_SECOND, {"features": (0, 2), "features_bound": 1.0}],
    "itr_huber": [*_PLAIN, {"threshold": 0.05}],
    "itr_logistic": _PLAIN,
    "regression": _PLAIN,
    "itr_saturating": [*_PLAIN, {"slope": 0.05}],
    "saturating_regression": [*_PLAIN, {"slope": 0.05}],
    "arm_means": _SMALL,
    "plug_in_ate": _SMALL,
}

_FAR = [{"ridge": 0.01, "radius": 1e6}, {"ridge": 0.01, "radius": 1e-6}, {"ridge": 1e6}]
_DENSE = [{"ridge": 1e-5, "kernel": Gaussian(0.2)}, {"ridge": 1e3}]
#: Settings at the ends of what may be declared, on which a certified solve is still expected.
EXTREMES: Mapping[str, list[dict[str, Any]]] = {
    "ipw_randomized": [{"propensity": 1e-6}, {"propensity": 0.5, "trim": 1.001}],
    "ipw_known": [{"coefficient": (0.0, 40.0, 0.0, -40.0)}, {"coefficient": (0.0, 400.0, 0.0, 0.0)}],
    "ipw_logistic": [
        {"ridge": 1e-6}, *_FAR, {"ridge": 0.0, "radius": 0.5}, {"ridge": 1e-3, "trim": 1.001},
    ],
    "entropy_balancing": [
        {"ridge": 1e-4, "balance": Moments(2)}, *_FAR, {"ridge": 0.1, "constant": 1e-3},
    ],
    "entropy_balancing_primal": _FAR,
    "overlap": [{"ridge": 1e-6}, {"ridge": 1e6}, {"ridge": 0.0, "radius": 0.5}],
    "inverse_probability_tilting": [{"ridge": 1e6}, {"ridge": 0.01, "radius": 4.0}, {"constant": 1e-3}],
    "energy_balancing": [{"ridge": 1e-5}, {"ridge": 1e4}],
    "stable_balancing": [{"ridge": 1e-2, "balance": Moments(3)}, {"ridge": 1e4}, {"constant": 1e-3}],
    **dict.fromkeys(("kernel_mean_matching", "mmd", "mmd_pooled"), _DENSE),
    "itr": [
        {"theta_set": L1Ball(1e6)}, {"theta_set": L1Ball(1e-3)}, {"theta_set": L2Ball(1e-3)},
        {"theta_set": Box(1e-3)}, {"regularizer": ElasticNet(l1=1e3)}, {"regularizer": ElasticNet(l2=1e6)},
    ],
}  # fmt: skip


def cases():
    """Every registered program at every representative setting; KeyError for a program without an entry."""
    return [(name, settings) for name in programs() for settings in SETTINGS[name]]


def lies_between(settings):
    """True if a set is paired with part of a penalty, where another setting pairs it with the whole."""
    paired = isinstance(settings.get("theta_set"), (L2Ball, Box, WholeSpace))
    return paired and settings.get("regularizer") in (*_NETS[:3],)


def build(name, settings):
    """A program by name."""
    return programs()[name](**settings)


def label(case):
    """A short test id."""
    if not isinstance(case, dict):
        return str(case)
    told = {key: value.describe() if hasattr(value, "describe") else value for key, value in case.items()}
    return ",".join(f"{key}={str(one).replace(' ', '')[:40]}" for key, one in told.items()) or "default"


def edge_records() -> dict[str, Records]:
    """Datasets of the universe that break careless code."""
    return conformance.edge_records(make_domain(P))


def lift(instance, solution):
    """Values of the declared variables at a solution; None stands for ``point`` in the only variable."""
    program, weights = instance.program, {"weights": solution.value}
    if program.name != "entropy_balancing_primal":
        other = isinstance(program, ClosedFormWeights) or program.name.endswith("_hard")
        return weights if other else None
    residual = (
        np.asarray(instance.data["B"]).T @ solution.value / len(solution.value) - instance.data["target"]
    )
    if math.isinf(program.radius):
        return weights | {"near": residual}
    near = residual * min(1.0, program.ridge * program.radius / float(np.linalg.norm(residual)))
    return weights | {"near": near, "far": residual - near}


def declared_at(instance, values):
    """The declaration with its variables set: (compiled, objective, largest violation)."""
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    variables, constraints = compiled.declaration.variables, compiled.declaration.constraints.values()
    if not isinstance(values, dict):
        point, model = values, instance.composite
        values = {name: model.margins(point) if name == "margins" else point for name in variables}
    assert values.keys() == variables.keys()
    for name, value in values.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a sign declared on a variable is checked by its violation
            variables[name].save_value(value)
    violation = max((float(np.max(c.violation())) for c in constraints), default=0.0)
    return compiled, float(compiled.problem.objective.value), violation


def check_weights(program, weights, n):
    """Nonnegative with sum n, as every theorem assumes."""
    if isinstance(program, FirstStage):
        assert weights.shape == (n,)
        assert np.all(np.isfinite(weights))
        assert np.all(weights >= 0)
        assert abs(math.fsum(weights) / n - 1) < 1e-13


def solver_names(instance):
    """Every solver that applies: conic ones always, OSQP for QPs, first-order and Newton with a model."""
    is_qp = Compiled(instance.program.declare, instance.data).problem.is_qp()
    own = [] if instance.model is None else ["newton", "projected_gradient"]
    return ["clarabel", "scs", *(["osqp"] if is_qp else []), *own]


def standard_records(n=60, seed=0):
    """The records most checks use: both arms well filled."""
    return make_records(n, P, seed)
