"""From a plan and its outcome to the release that states them."""

from __future__ import annotations

import math

from dp2erm_cvx.calibration import Calibration, Noise, OutputCalibration
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.release import Guarantee, Mechanism, Perturbed, PropensityMechanism, Release, Standing

#: Arithmetic is floating point, and the noise is sampled in it.
EXACT_ARITHMETIC = "exact arithmetic assumed"


def make_release(
    plan: Plan,
    first: FirstStage,
    second: SecondStage,
    domain: Domain,
    theta: Array,
    columns: tuple[str, ...],
    n_samples: int,
    *,
    certified: bool,
    by_gap: bool,
    tolerance: float,
    seeded: bool,
) -> Release:
    """State the release of ``theta`` (p,) by resolved programs ``first`` and ``second``.

    ``certified`` says that both solutions are, within the relative ``tolerance``; ``by_gap`` that the second
    rests on its duality gap alone, which is no proof about the exact minimizer.
    """
    if seeded:
        standing = Standing.NOT_PRIVATE
    elif not plan.proven:
        standing = Standing.UNPROVEN
    else:
        standing = Standing.PRIVATE if certified and not by_gap else Standing.CONDITIONAL
    counted = (
        f"solutions are certified to {tolerance:g} relative; V counts the error of weights, not of theta"
    )
    assumptions = [*plan.bound.assumptions, counted, EXACT_ARITHMETIC]
    for program in (first, second):
        home = type(program).__module__
        if not home.startswith("dp2erm_cvx."):
            assumptions.append(
                f"the bounds and constants of {home}.{type(program).__name__} are its author's"
            )
    if by_gap:
        assumptions.append("the second stage is certified by its duality gap alone")
    guaranteed = plan.guarantee
    guarantee = Guarantee(
        epsilon=guaranteed.epsilon,
        delta=guaranteed.delta,
        relation=domain.relation,
        theorem=plan.theorem,
        stability_theorem=plan.bound.theorem,
        assumptions=tuple(assumptions),
        standing=standing,
    )
    return Release(
        theta=tuple(float(value) for value in theta),
        parameters=second.parameter_names(columns, domain),
        columns=columns,
        n_samples=n_samples,
        guarantee=guarantee,
        mechanism=_mechanism(plan),
        domain=domain.to_dict(),
        first_stage={"name": first.name, "settings": first.settings()},
        second_stage={"name": second.name, "settings": second.settings()},
    )


def _mechanism(plan: Plan) -> Mechanism:
    calibration, loss = plan.calibration, plan.loss
    if isinstance(calibration, OutputCalibration):
        perturbed = Perturbed.OUTPUT
        law = calibration.law
    else:
        perturbed = Perturbed.UNCONSTRAINED if plan.unconstrained else Perturbed.OBJECTIVE
        law = calibration
    return Mechanism(
        perturbed=perturbed,
        noise=Noise(law.noise),
        scale=law.scale,
        gamma=law.gamma,
        split=law.split,
        stability=plan.bound.V,
        weight_bound=plan.bound.w_max,
        sensitivity=law.sensitivity,
        gradient_radius=loss.gradient_radius if math.isfinite(loss.gradient_radius) else None,
        hessian_trace=loss.hessian_trace,
        strong_convexity=loss.strong_convexity,
        reason=plan.reason,
        propensity=None if plan.propensity is None else _propensity(plan.propensity),
    )


def _propensity(calibration: Calibration) -> PropensityMechanism:
    return PropensityMechanism(
        epsilon=calibration.epsilon,
        delta=calibration.delta,
        noise=calibration.noise,
        scale=calibration.scale,
        gamma=calibration.gamma,
        theorem=calibration.theorem,
    )
