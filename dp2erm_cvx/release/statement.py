"""From a plan and its run to the release that states them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dp2erm_cvx.calibration import Calibration, GridNoise, IntegerNoise, Noise, OutputCalibration, RangeNoise
from dp2erm_cvx.calibration.base import gradient_size
from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.domain import Array
from dp2erm_cvx.plan import Plan, PlanResult, TwoStagePlan
from dp2erm_cvx.plan.predict import kept_imbalance
from dp2erm_cvx.release.declaration import declaration_of
from dp2erm_cvx.release.record import Guarantee, NumericalNoise, Release, Standing, StepStatement
from dp2erm_cvx.release.value import ValueRelease, state_value
from dp2erm_cvx.sampling import OWN_RECORD
from dp2erm_cvx.solve import by_design, private_solver
from dp2erm_cvx.steps import Execution, Planned, Precision, Value

# what only a run knows of itself
_UNKNOWN_SOLVER = "the declared solver certifies on every dataset: it is not known to"
_BY_GAP = "a stage is certified by its duality gap alone"


def make_release(
    plan: TwoStagePlan, released: Mapping[str, Array], columns: tuple[str, ...], guarantee: Guarantee
) -> Release:
    """State what a run of a plan ``released``, by step, under its ``guarantee``."""
    study, domain = plan.study, plan.study.universe.domain
    return Release(
        theta=tuple(float(value) for value in released[plan.theta.name]),
        parameters=study.second.parameter_names(columns, domain),
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        domain=domain.to_dict(),
        declared=declaration_of(plan),
        value=_value(plan, released),
        kept_imbalance=kept_imbalance(plan),
    )


def _value(plan: TwoStagePlan, released: Mapping[str, Array]) -> ValueRelease | None:
    if plan.value is None:
        return None
    assert isinstance(plan.value.declared, Value)
    return state_value(plan.value, plan.value.declared.kind, released[plan.value.name])


def state_guarantee(plan: Plan, result: PlanResult, execution: Execution) -> Guarantee:
    """What a run of a plan guarantees, and what that rests on."""
    certifies, seeded = by_design(private_solver(execution.solver)), execution.seed is not None
    return guarantee_of(plan, certifies, result.certified, result.by_gap, seeded)


def guarantee_again(plan: Plan, stated: Guarantee) -> Guarantee:
    """What follows from a plan where the run was as it is ``stated``, which no file can show."""
    private = stated.standing is Standing.PRIVATE
    certifies, by_gap = _UNKNOWN_SOLVER not in stated.assumptions, _BY_GAP in stated.assumptions
    return guarantee_of(plan, certifies, private, by_gap, stated.standing is Standing.NOT_PRIVATE)


def guarantee_of(plan: Plan, certifies: bool, certified: bool, by_gap: bool, seeded: bool) -> Guarantee:
    """What a run guarantees whose solver ``certifies`` on every dataset, and ``certified`` this one.

    ``by_gap`` says that it did so by a duality gap alone.
    """
    certifies = certifies and plan.certified_by_design
    standing = Standing.PRIVATE if certified and certifies and not by_gap else Standing.CONDITIONAL
    if not plan.proven:
        standing = Standing.UNPROVEN
    return Guarantee(
        epsilon=plan.guarantee.epsilon,
        delta=plan.guarantee.delta,
        relation=plan.study.universe.domain.relation,
        theorem=plan.theorem,
        stability_theorem=plan.bound.theorem,
        assumptions=_assumptions(plan, certifies, by_gap),
        standing=Standing.NOT_PRIVATE if seeded else standing,
    )


def state_steps(plan: Plan) -> tuple[StepStatement, ...]:
    """What every step spends, and its calibrated noise."""
    return tuple(_stated(step) for step in plan.steps)


def _assumptions(plan: Plan, certifies: bool, by_gap: bool) -> tuple[str, ...]:
    """What the guarantee rests on beyond its theorems, public quantities and the standing."""
    found = list(dict.fromkeys(stated for step in plan.steps for stated in step.assumptions))
    if plan.study.universe.domain.sampling is not None:
        found.append(OWN_RECORD)
    for program in plan.programs:
        home, own = f"{type(program).__module__}.{type(program).__name__}", program.own_data()
        if own is None:
            found.append(f"the bounds, constants and certificates of {home} are its author's")
        elif own:
            found.append(f"{', '.join(own)} of {home}: each record's value is made of that record alone")
    if not certifies:
        found.append(_UNKNOWN_SOLVER)
    if by_gap:
        found.append(_BY_GAP)
    return tuple(found)


def _stated(step: Planned) -> StepStatement:
    loss, law = step.loss, _law(step.calibration)
    # in the norm of the noise
    radius = math.inf if loss is None else gradient_size(loss, law["noise"])
    return StepStatement(
        step=step.name,
        epsilon=step.guarantee.epsilon,
        delta=step.guarantee.delta,
        theorem=step.theorem,
        perturbed=step.perturbed,
        **law,
        stability=step.bound.V,
        weight_bound=step.bound.w_max,
        gradient_radius=radius if math.isfinite(radius) else None,
        hessian_trace=None if loss is None else loss.hessian_trace,
        strong_convexity=None if loss is None else loss.strong_convexity,
        reason=step.reason,
        numerical=_numerical(step.precision),
    )


def _law(
    calibration: Calibration | OutputCalibration | GridNoise | IntegerNoise | GridSums | RangeNoise,
) -> dict[str, Any]:
    if isinstance(calibration, GridSums):
        unit = calibration.units[0]
        noise = {"scale": calibration.scales[0], "sensitivity": unit * calibration.integers.sensitivity}
        return {"noise": calibration.noise, "gamma": 0.0, **noise}
    if isinstance(calibration, IntegerNoise | RangeNoise):
        unit = calibration.unit if isinstance(calibration, IntegerNoise) else 1.0
        noise = {"scale": unit * calibration.scale, "sensitivity": unit * calibration.sensitivity}
        return {"noise": calibration.noise, "gamma": 0.0, **noise}
    if isinstance(calibration, GridNoise):
        sensitivity = calibration.l1_sensitivity
        return {"noise": Noise.GAMMA, "scale": calibration.scale, "gamma": 0.0, "sensitivity": sensitivity}
    law = calibration.law if isinstance(calibration, OutputCalibration) else calibration
    return {name: getattr(law, name) for name in ("noise", "scale", "gamma", "split", "sensitivity", "box")}


def _numerical(covered: Precision | None) -> NumericalNoise | None:
    if covered is None:
        return None
    grid = covered.grid
    return NumericalNoise(covered.tolerance, grid.exponent, grid.scale, grid.epsilon)
