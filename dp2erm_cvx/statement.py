"""From a plan and its outcome to the release that states them."""

from __future__ import annotations

import math

from dp2erm_cvx.calibration import Calibration, Noise, OutputCalibration
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.plan import Plan, Precision
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.release import (
    Guarantee,
    Mechanism,
    NumericalNoise,
    Perturbed,
    PropensityMechanism,
    Release,
    Standing,
)
from dp2erm_cvx.value import ValueRelease

#: Of a release that does not count its arithmetic: it is floating point, and the noise is sampled in it.
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
    by_design: bool,
    by_gap: bool,
    tolerance: float,
    seeded: bool,
    value: ValueRelease | None = None,
) -> Release:
    """State the release of ``theta`` (p,) by resolved programs ``first`` and ``second``.

    ``certified`` says that both solutions are, within the relative ``tolerance``; ``by_design`` that the
    declared solvers certify on every dataset; ``by_gap`` that one that has to be rests on its duality gap
    alone, which is no proof about the exact minimizer.
    """
    if seeded:
        standing = Standing.NOT_PRIVATE
    elif not plan.proven:
        standing = Standing.UNPROVEN
    else:
        private = certified and by_design and not by_gap
        standing = Standing.PRIVATE if private else Standing.CONDITIONAL
    assumptions = [*plan.bound.assumptions, *_numerics(plan, tolerance)]
    for program in (first, second):
        home = type(program).__module__
        if not home.startswith("dp2erm_cvx."):
            assumptions.append(
                f"the bounds, constants and certificates of {home}.{type(program).__name__} are its author's"
            )
    if not by_design:
        assumptions.append("the declared solver certifies on every dataset: it is not known to")
    if by_gap:
        assumptions.append("a stage is certified by its duality gap alone")
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
        value=value,
    )


def _numerics(plan: Plan, tolerance: float) -> list[str]:
    """How the numerical error enters: that of the weights into V, that of theta into noise of its own."""
    weights = f"weights are certified to {tolerance:g} relative, which V counts"
    if plan.covers_all_weights:
        weights = "V covers all weights of sum n, so that theirs need no certificate"
    if plan.precision is None or not plan.counted:
        within = f"{tolerance:g} relative" if plan.radius is None else f"within {plan.radius:.3g}"
        return [f"{weights}; theta is certified to {within}", EXACT_ARITHMETIC]
    covered = f"arithmetic is counted: theta is within {plan.precision.tolerance:.3g} of the exact one"
    if isinstance(plan.calibration, OutputCalibration):
        return [weights, f"{covered}, which its discrete Laplace noise covers"]
    return [weights, f"{covered}, which 2 x {plan.precision.grid.epsilon:.3g} of epsilon hides"]


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
        propensity=_propensity(plan.propensity, plan.propensity_precision),
        numerical=_numerical(plan.precision),
    )


def _numerical(covered: Precision | None) -> NumericalNoise | None:
    if covered is None:
        return None
    grid = covered.grid
    return NumericalNoise(covered.tolerance, grid.exponent, grid.scale, grid.epsilon)


def _propensity(calibration: Calibration | None, covered: Precision | None) -> PropensityMechanism | None:
    if calibration is None:
        return None
    hidden = 0.0 if covered is None else covered.grid.epsilon
    return PropensityMechanism(
        epsilon=calibration.epsilon + 2 * hidden,
        delta=calibration.delta * math.exp(hidden) if calibration.delta else 0.0,
        noise=calibration.noise,
        scale=calibration.scale,
        gamma=calibration.gamma,
        theorem=calibration.theorem,
        numerical=_numerical(covered),
    )
