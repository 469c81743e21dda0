"""Data makers shared by the tests of programs, solvers and certificates."""

import importlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import declared_choice, setting
from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import LOGISTIC, Curve, Part
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.paper import PrintedBound
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.known_weights import KnownCoefficient, RandomizedTrial
from dp2erm_cvx.program import FirstStage, Instance, Program, SecondStage, rows, second_stage, trust
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.stability import ArmCurves, margin_movement

#: Losses by their largest slope S and curvature kappa, and the shape h of
#: ``phi'' = kappa h(|phi'| / S)``.
BOUNDED_INFLUENCE = {
    "1 - u": (
        lambda S, kappa: Curve((Part(kappa, atom("saturating", S / kappa)),)),
        lambda u: 1 - u,
    ),
    "4 u (1 - u)": (
        lambda S, kappa: Curve((Part(S * S / (4 * kappa), atom("logistic"), -4 * kappa / S),)),
        lambda u: 4 * u * (1 - u),
    ),
}


#: Classes of programs of the tests' own that count as the library's: bugs are planted into them.
PLANTED: set[type[Any]] = set()
_of_library = trust.of_library


def _of_library_or_planted(kind: type[Any]) -> bool:
    return kind in PLANTED or _of_library(kind)


def planted(kind: Any, scheme: Any = None, name: str = "") -> Any:
    """A class that is trusted for tests; with a ``scheme`` the like of it, of programs of the
    class.
    """
    trust.of_library = _of_library_or_planted
    PLANTED.add(kind)
    if scheme is None:
        return kind
    made = scheme.settings, scheme.formulas, scheme.options
    return Scheme(scheme.function, kind, *made, name or scheme.name)


def with_kernel(made: Scheme, kernel: Kernel) -> Scheme:
    """The like of a scheme at a kernel of the tests' own, which is trusted for tests."""
    if type(kernel) not in rows.CHOICES:
        rows.CHOICES = (*rows.CHOICES, type(kernel))
    own = setting(kernel, declared_choice, kinds=(type(kernel),))
    settings = {**made.settings, "kernel": own}
    return Scheme(made.function, made.family, settings, made.formulas, made.options, made.name)


def make_domain(
    p: int = 10, *, outcome_bound: float = 5.0, intercept: float = 1.0, **changes: Any
) -> Domain:
    """A universe for p covariates in [-1, 1] and an intercept."""
    return Domain(
        math.hypot(math.sqrt(p), intercept), outcome_bound, intercept=intercept, **changes
    )


def randomized_trial(n: int, propensity: float, trim: float = math.inf) -> StabilityBound:
    """Bound of a trial with this propensity."""
    return RandomizedTrial(propensity, trim).stability(Universe(Domain(1.0, 1.0), n, 1))


def known_coefficient(n: int, bound: float, norm: float, trim: float = math.inf) -> StabilityBound:
    """Bound of a known coefficient of this norm, for rows of norm at most ``bound``."""
    return KnownCoefficient((norm,), trim).stability(Universe(Domain(bound, 1.0), n, 1))


def logistic_propensity(
    n: int, bound: float, ridge: float, radius: float = math.inf, trim: float = math.inf
) -> StabilityBound:
    """Bound of inverse propensities of a logistic regression, for rows of norm at most
    ``bound``.
    """
    weight = ipw_logistic(trim=trim).log_weight
    return margin_movement(n, ridge, bound, (ArmCurves(LOGISTIC, weight),), radius=radius).bound


@contextmanager
def planted_diameters(share: float) -> Iterator[None]:
    """Diameters of gradients in every bound of margins are this share of what they are."""
    module = importlib.import_module("dp2erm_cvx.stability.separable")
    margin_movement.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("record_diameter", "weight_diameter"):
            right = getattr(module, name)
            patch.setattr(module, name, lambda *a, right=right, **k: share * right(*a, **k))
        yield
    margin_movement.cache_clear()


def logistic_diameter(margin: float) -> float:
    """Closed form of the diameter of ``{sigma(-<z, v>) z : ||z|| <= 1}``, ``||v|| <= margin``."""
    angle = np.linspace(0.0, math.pi / 2, 200_001)
    return float(np.max(2.0 * np.cos(angle) * expit(margin * np.sin(angle))))


def bound_of(V: float, **changes: Any) -> StabilityBound:
    """A bound for every neighbor, by no theorem."""
    facts = {
        "theorem": "a test",
        "assumptions": (),
        "relations": frozenset(Neighboring),
        "w_max": V / 2,
    }
    return StabilityBound(V=V, **(facts | changes))


def printed_of(V: float, *, W1: float, W2: float) -> PrintedBound:
    """A bound for every neighbor in the measures of the paper, by no theorem."""
    return PrintedBound(**vars(bound_of(V)), W1=W1, W2=W2)


def make_records(n: int, p: int = 10, seed: int = 0, **changes: Any) -> Records:
    """Confounded records: propensity and outcome both depend on the first covariates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    propensity = 1 / (1 + np.exp(-(0.6 * X[:, 0] - 0.8 * X[:, -1] + 0.1)))
    a = (rng.uniform(size=n) < propensity).astype(int)
    y = X[:, 0] * (2 * a - 1) + 0.5 * X[:, -1] + rng.normal(size=n)
    return make_domain(p, **changes).records(X, a, y)


def make_weights(records: Records, seed: int = 1) -> Array:
    """Unequal weights with sum n."""
    raw = np.random.default_rng(seed).uniform(0.2, 3.0, records.n_samples)
    weights: Array = raw * (records.n_samples / math.fsum(raw))
    return weights


#: Programs with what was read of them in a universe, by the program itself and the universe.
PLACED: dict[tuple[int, MappedUniverse], tuple[Program, Program]] = {}


def placed(program: Any, records: Records) -> Any:
    """A program as it is read where records are: once for all tests, since reading takes longer
    than solving.

    One of another kind, whose reading is of no number of records, is resolved in their space.
    """
    if not isinstance(program, WeightsProgram):
        return program.resolve(records.space)
    universe = MappedUniverse(records.space, records.n_samples, records.n_features)
    key = id(program), universe
    if key not in PLACED:
        # the program is kept beside, so that no other takes its place in memory
        PLACED[key] = program, program.at(universe)
    return PLACED[key][1]


@cache
def at_defaults(made: Scheme, universe: Universe) -> Any:
    """The program of a scheme at its defaults as it is read in a universe, once for all tests."""
    return made().at(universe)


def bind(
    program: Program, records: Records, *, gamma: float = 0.05, noise: float = 1.0, seed: int = 2
) -> Instance:
    """A first or second stage bound to records; a second stage gets unequal weights and random
    noise.
    """
    if isinstance(program, FirstStage):
        instance: Instance = placed(program, records).instance(records)
        return instance
    assert isinstance(program, SecondStage)
    columns = tuple(f"x{k}" for k in range(records.covariates.shape[1]))
    p = len(program.parameter_names(columns, records.space))
    b = noise * np.random.default_rng(seed).normal(size=p)
    return program.instance(records, make_weights(records), gamma=gamma, noise=b)


def output_distance(program: Program, first: Array, second: Array) -> float:
    """The norm that ``output_radius`` is stated in: l1 for weights, l2 for theta."""
    return float(np.linalg.norm(first - second, 1 if isinstance(program, FirstStage) else 2))


def declared_solution(instance: Instance, variable: str) -> Array:
    """The declared variable as Clarabel leaves it: no model, no polish, no certificate."""
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how inaccurate it is, the caller's tolerance says
        compiled.problem.solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )
    return np.asarray(compiled.declaration.variables[variable].value)


#: Losses of theta that a penalty may stand beside.
LOSSES: Mapping[str, Callable[[Any, Any], Any]] = {
    "squares": lambda theta, records: cp.sum_squares(records.x @ theta - records.response),
    "logistic": lambda theta, records: cp.sum(cp.logistic(records.signed @ theta)),
    "huber": lambda theta, records: cp.sum(cp.huber(records.y - records.x @ theta, 0.3)),
    "hinge": lambda theta, records: cp.sum(cp.square(cp.pos(0.5 - records.signed @ theta))),
}


def penalized(
    loss: Callable[[Any, Any], Any],
    penalty: Callable[[Any], Any],
    name: str = "penalized",
    columns: int | None = None,
) -> Scheme:
    """A second stage of a loss and a public penalty of theta, in the ball of the rule."""

    def declared(theta: Any, records: Any) -> Any:
        """A loss and a public penalty."""
        ball = [cp.norm(theta) <= records.outcome_bound / records.space.covariate_bound]
        return cp.Problem(cp.Minimize(loss(theta, records) + records.n * penalty(theta)), ball)

    declared.__name__ = name
    scheme: Scheme = second_stage(columns=columns)(declared)
    return scheme


def penalized_rule(penalty: Callable[[Any], Any], name: str = "penalized") -> Scheme:
    """The rule ``itr`` with a public penalty of theta beside it."""
    return penalized(LOSSES["squares"], penalty, name)


def kinked_net(l1: float, l2: float) -> Callable[[Any], Any]:
    """An elastic net written so that it is read as a penalty with kinks, which a duality gap
    judges.
    """
    return lambda theta: l1 * cp.sum(cp.abs(theta)) + l2 / 2 * cp.sum_squares(theta)
