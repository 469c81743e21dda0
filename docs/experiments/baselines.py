"""The baselines that the paper compares with, as printed and as they would have to be.

Each is a plan: what noise it draws in which stage; none of them sees data. Where the published
argument does not cover a baseline, its bound and its calibration are marked ``private=False``;
experiments may still run it.
"""

from __future__ import annotations

import dataclasses
import math

from dp2erm_cvx.calibration import Calibration, Noise, Objective
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper import PrintedBound, calibrate_paper, universal_corollary
from dp2erm_cvx.plan import Plan, Study
from dp2erm_cvx.privacy import Budget, Neighboring, StabilityBound
from dp2erm_cvx.program import PrivateFirstStage, registry
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.weights import WeightsPlan

#: exp beyond this overflows.
_LARGEST = 700.0


def chaudhuri_logistic(
    n_samples: int, n_parameters: int, covariate_bound: float, ridge: float, epsilon: float
) -> Calibration:
    """Private logistic regression by Algorithm 2 of Chaudhuri, Monteleoni & Sarwate (2011).

    For the mean logistic loss with ``(ridge / 2) ||lam||^2``, ``||x|| <= covariate_bound`` = M > 0
    and ``ridge`` > 0 in squared units of x. In units where M = 1 the curvature of the loss is at
    most c = 1/4. With mu = ridge / M^2 and ``left = epsilon - 2 log(1 + c/(n mu))`` the noise has
    density proportional to ``exp(-(left / 2) ||b||)`` without an extra ridge. Where left <= 0 it
    has half of epsilon, and the ridge ``c / (n (exp(epsilon / 4) - 1)) - mu``. To leave out M is
    wrong for norms above one. Raises DeclarationError.
    """
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    mu = public_number("ridge", ridge, above=0.0) / M / M
    whole = public_number("epsilon", epsilon, above=0.0)
    left, extra = whole - 2.0 * math.log1p(0.25 / (n_samples * mu)), 0.0
    if left <= 0.0:
        left = whole / 2.0
        extra = max(0.25 / (n_samples * math.expm1(min(whole / 4.0, _LARGEST))) - mu, 0.0)
    return Calibration(
        noise=Noise.GAMMA,
        scale=2.0 * M / left * (1.0 + 1e-12),
        gamma=extra * M * M * (1.0 + 1e-12),
        split=left / whole,
        n_parameters=n_parameters,
        V=2.0,
        sensitivity=2.0 * M,
        epsilon=whole,
        delta=0.0,
        theorem="Chaudhuri, Monteleoni & Sarwate (2011), Algorithm 2",
    )


def ipw_composition(study: Study) -> Plan[Study]:
    """The paper's composition for IPW: half of the budget for either stage.

    The second stage is calibrated by the fixed-weight corollary with ``1 + exp(M R)``.
    ``study.first`` is a logistic propensity, private or not, whose ``ridge`` and ``radius`` = R > 0
    are taken; R bounds the coefficient, in inverse units of x. Not private as argued: the corollary
    is for weights that depend on no record, and that of record j depends on record j, so W2 can
    reach 2 max w and not sqrt(2) max w; ``1 + exp(M R)`` bounds the unnormalized weight. The
    private first stage is pure, whatever ``study.noise``.

    Raises DeclarationError for an invalid radius or ridge, and CalibrationError where a number
    overflows.
    """
    universe, budget = study.universe, study.budget
    M = universe.space.covariate_bound
    R = public_number("radius", getattr(study.first, "radius", math.inf), above=0.0)
    chosen = {
        "share": 0.5,
        "radius": R,
        "trim": math.inf,
        "ridge": getattr(study.first, "ridge", None),
    }
    first = registry.build(registry.first_stages(), "ipw_private", **chosen).resolve(universe.space)
    loss = first.loss_constants(universe)
    half = Budget(budget.epsilon / 2.0, budget.delta / 2.0)
    calibration = chaudhuri_logistic(
        universe.n_samples, loss.n_parameters, M, loss.strong_convexity, half.epsilon
    )
    if M * R > _LARGEST:
        raise CalibrationError(f"exp(M R) overflows at M R = {M * R:g}: choose a smaller radius")
    largest = 1.0 + math.exp(M * R)
    bound = PrintedBound(
        V=2.0 * largest,
        theorem="corollary on data-independent weights, applied to weights that depend on the data",
        assumptions=("each weight depends on its own record, which the corollary excludes",),
        relations=frozenset(Neighboring),
        w_max=largest,
        W1=2.0 * largest,
        W2=math.sqrt(2.0) * largest,
    )
    reason = "the fixed-weight corollary does not cover weights that depend on their own record"
    plan = _plan(bound, dataclasses.replace(study, first=first, budget=half), reason, printed=True)
    assert plan.main.weights is not None
    own = uniform_weights(universe.n_samples)
    coefficient = Fit(
        name="propensity",
        program=first,
        universe=universe,
        calibration=calibration,
        bound=own,
        loss=loss,
        weights=plan.main.weights,
    )
    return Plan(dataclasses.replace(plan.study, budget=budget), (coefficient, *plan.steps))


def universal(study: Study, *, printed: bool = False) -> Plan[Study]:
    """The paper's baseline for EBW and MMD, by the universal corollary.

    Only the second stage is private. ``W1 = 2n + 2 min(w_max, n)``,
    ``W2 = sqrt(2 n min(w_max, n)(1 + n))``. Corrected, w_max is a proven bound on every weight: the
    cap of MMD, what the sharp theorem of the program states, or n. As ``printed``, w_max is what
    the program calls its radius: for entropy balancing that of the *dual* ball, which bounds no
    weight.

    Raises DeclarationError for a program whose first stage is private; CalibrationError where the
    printed form has no number, and where the program has no solution on some datasets of the
    universe, because to fail on those reveals them.
    """
    first, universe = study.first, study.universe
    n, space = universe.n_samples, universe.space
    cap, radius = getattr(first, "cap", math.inf), getattr(first, "radius", math.inf)
    if isinstance(first, PrivateFirstStage):
        raise DeclarationError(
            f"{first.name}: its first stage is private: the composition is planned by Theorem 9"
        )
    if space.relation not in first.relations:
        raise CalibrationError(f"{first.name}: whether it has a solution depends on the data")
    if math.isfinite(cap) and (space.arm_floor or 0) * cap * 2 < n:
        raise CalibrationError(
            f"cap = {cap:g}: an arm of fewer than n / (2 cap) records cannot hold half the weight; "
            "declare an arm_floor or a larger cap"
        )
    if printed and hasattr(first, "radius"):
        if not 1.0 <= radius < math.inf:
            raise CalibrationError(
                f"radius = {radius:g}: as printed it bounds weights of mean 1, so it is at least 1 "
                "and finite"
            )
        reason = "the radius of the dual variable bounds no weight"
        return _plan(universal_corollary(n, radius), study, reason, printed=True)
    try:
        largest = min(cap, first.stability(universe).w_max)
    except CalibrationError:
        if getattr(first, "ridge", None) == 0.0 and math.isinf(radius):
            raise
        largest = cap  # a program that no sharp theorem covers still has weights of sum n
    bound = universal_corollary(n, max(1.0, largest))
    return _plan(bound, study, bound.theorem, printed=False)


def _plan(bound: StabilityBound, study: Study, reason: str, *, printed: bool) -> Plan[Study]:
    """The paper's calibration of a bound; as printed it is marked as not private, in every part."""
    second, universe = study.second, study.universe
    loss, relation = second.constants(universe), universe.space.relation
    objective = Objective(bound, loss, universe.n_samples, relation, second.name)
    calibration = calibrate_paper(
        objective, study.budget, noise=study.noise, corrected=not printed, unsound_ok=printed
    )
    if printed:
        bound = dataclasses.replace(bound, private=False)
        calibration = dataclasses.replace(calibration, private=False)
    weights = WeightsPlan(study.first, bound, 0.0, universe.n_samples)
    theta = Fit(
        name="theta",
        program=second,
        first=study.first,
        universe=universe,
        calibration=calibration,
        bound=bound,
        loss=loss,
        weights=weights,
        reason=reason,
    )
    return Plan(study, (theta,))
