"""Every call into the package that the table makes: all that a change of a signature has to
edit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from dp2erm_cvx import (
    Budget,
    Codebook,
    Domain,
    PrivateEffect,
    PrivateRule,
    PrivateTwoStageERM,
)
from dp2erm_cvx.calibration import Perturbed
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import Dp2ermError
from dp2erm_cvx.paper import BoundFamily, PrintedBound, bound_of_family
from dp2erm_cvx.plan import Plan, Study, make_plan
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, Program, SecondStage
from dp2erm_cvx.program.registry import first_stages, programs, second_stages
from dp2erm_cvx.release.verify import verify
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.calibrators import NAMES

__all__ = ["Codebook", "Domain", "SamplingWeights"]

#: What a refusal is raised as.
Refusal = Dp2ermError


def first_stage_names() -> list[str]:
    return list(first_stages())


def second_stage_names() -> list[str]:
    return list(second_stages())


def calibrations() -> list[str]:
    return list(NAMES)


def families() -> list[str]:
    return [family.value for family in BoundFamily]


def examples(name: str) -> list[Mapping[str, Any]]:
    """Settings that the program itself is tried at."""
    return list(programs()[name].examples)


def program(name: str, settings: Mapping[str, Any]) -> Any:
    return programs()[name](**settings)


def domain(**declared: Any) -> Domain:
    return Domain(**declared)


def settings_of(program: Program) -> dict[str, Any]:
    return program.settings()


def stability_of(
    first: FirstStage, n: int, domain: Domain, n_features: int, family: str
) -> dict[str, float | str | bool | None]:
    """The bound of a first stage, and what its weights are sure to be certified to."""
    universe = Universe(domain, n, n_features)
    first = first.at(universe)
    bound = bound_of_family(first, universe, BoundFamily(family))
    return {
        "V": bound.V,
        "w_max": bound.w_max,
        **measures(bound),
        "theorem": bound.theorem,
        "relations": ", ".join(sorted(relation.value for relation in bound.relations)),
        "assumptions": "; ".join(bound.assumptions),
        "private": bound.private,
        "certified": first.certified_error(universe),
    }


def measures(bound: StabilityBound) -> dict[str, float | None]:
    """W1 and W2 of a bound of the paper; None for any other."""
    if isinstance(bound, PrintedBound):
        return {"W1": bound.W1, "W2": bound.W2}
    return {"W1": None, "W2": None}


def plan_of(
    first: FirstStage,
    second: SecondStage,
    universe: Domain,
    n: int,
    n_features: int,
    *,
    epsilon: float,
    delta: float,
    **options: Any,
) -> dict[str, float | str | bool | None]:
    """The plan of a release, flat."""
    declared = {
        "calibration": options.pop("method", "sharp"),
        "tolerance": options.pop("weight_error", 0.0) / n,
    }
    where = Universe(universe, n, n_features)
    return _flat(
        make_plan(Study(first, second, where, Budget(epsilon, delta), **declared, **options))
    )


def solved(
    program: Program, domain: Domain, n: int, n_features: int
) -> dict[str, float | str | bool | None]:
    """Weights or parameter of seeded records, as sums against cosines, and their sizes."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, n_features))
    y = domain.outcome_bound * rng.uniform(-1.2, 1.2, n)
    records = domain.records(X, (rng.uniform(size=n) < 0.4 + 0.1 * np.sign(X[:, 0])).astype(int), y)
    resolved = program.resolve(domain.space)
    if isinstance(resolved, SecondStage):
        noise = rng.normal(size=len(resolved.parameter_names(("a", "b", "c"), domain.space)))
        weights = np.exp(rng.normal(size=n) / 2)
        weights *= n / np.sum(weights)
        instance = resolved.instance(records, weights, gamma=0.05, noise=noise)
    elif isinstance(resolved, PrivateFirstStage):
        size = resolved.loss_constants(Universe(domain, n, n_features)).n_parameters
        instance = resolved.perturbed(records, 0.02, rng.normal(size=size))
    else:
        instance = resolved.instance(records)
    solution = solve(instance, solver="clarabel" if instance.model is None else "newton")
    value = solution.value
    sums = {f"sum_{k}": float(np.cos(k * np.arange(len(value))) @ value) for k in (1, 2, 3)}
    return {"length": float(np.linalg.norm(value)), "largest": float(np.max(value)), **sums}


def _flat(plan: Plan[Any]) -> dict[str, float | str | bool | None]:
    calibration, precision, curve = plan.main.calibration, plan.main.precision, plan.curve
    solved = plan.main.perturbed is not Perturbed.OUTPUT
    private = None if plan.step("propensity") is None else plan.step("propensity").calibration
    covered = None if plan.step("propensity") is None else plan.step("propensity").precision
    return {
        "theorem": plan.theorem,
        "V": plan.bound.V,
        "used_V": calibration.V,
        **measures(plan.bound),
        "scale": calibration.scale,
        "gamma": calibration.gamma if solved else None,
        "sensitivity": calibration.sensitivity,
        "epsilon": calibration.epsilon,
        "delta": calibration.delta,
        "split": calibration.split if solved else None,
        "order": getattr(calibration, "order", None),
        "divergence_2": None if curve is None else curve.at(2.0),
        "guarantee_epsilon": plan.guarantee.epsilon,
        "guarantee_delta": plan.guarantee.delta,
        "tolerance": None if precision is None else precision.tolerance,
        "grid_scale": None if precision is None else precision.grid.scale,
        "propensity_theorem": None if private is None else private.theorem,
        "propensity_scale": None if private is None else private.scale,
        "propensity_gamma": None if private is None else private.gamma,
        "propensity_epsilon": None if private is None else private.epsilon,
        "propensity_delta": None if private is None else private.delta,
        "propensity_tolerance": None if covered is None else covered.tolerance,
        "propensity_grid_scale": None if covered is None else covered.grid.scale,
        "radius": plan.main.radius,
        "proven": plan.proven,
        "counted": plan.counted,
        "weights_known": plan.main.weights.known,
        "reason": plan.main.reason,
    }


ESTIMATORS = {"effect": PrivateEffect, "rule": PrivateRule, "weights": PrivateTwoStageERM}

#: What a release states in numbers, of those that have it.
STATED = (
    *(
        "estimate",
        "interval",
        "standard_deviation",
        "released",
        "risks",
        "ratios",
        "groups",
        "counted",
    ),
    *("capped", "target", "theta", "noise_effect", "flipped_share", "gains"),
    *("residual_bias", "residual_imbalance", "covariate_mean", "covariate_norm", "covariate_scale"),
    *("own_units", "nuisances", "guarantee", "steps"),
)


def estimator(
    goal: str, domain: Any, epsilon: float, delta: float, options: Mapping[str, Any]
) -> Any:
    return ESTIMATORS[goal](domain, Budget(epsilon, delta), seed=1, **options)


def released(model: Any, X: Any, a: Any, y: Any) -> dict[str, Any]:
    """Fields that a fit states, by name, and the result of verifying it."""
    release = model.fit(X, a, y).release_
    fields = {name: getattr(release, name) for name in STATED if hasattr(release, name)}
    fields["refuted"] = verify(release).refuted
    return {".".join(path): value for path, value in _leaves(fields) if value is not None}


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every plain value in a tree, by path; those of named parts by name."""
    if is_dataclass(tree) and not isinstance(tree, type):
        tree = asdict(tree)
    if isinstance(tree, Mapping):
        inner = [(str(name), part) for name, part in tree.items()]
    elif isinstance(tree, list | tuple):
        inner = [(str(place), part) for place, part in enumerate(tree)]
    else:
        yield path, tree
        return
    for name, part in inner:
        yield from _leaves(part, (*path, name))
