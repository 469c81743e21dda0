"""Everything that is fixed before the data are touched: bound, calibration, and why this one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp2erm_cvx.calibration import (
    Calibrator,
    Noise,
    Objective,
    OutputCalibration,
    calibrate_output,
    calibrate_value,
    calibrator,
)
from dp2erm_cvx.calibration.value import ValueStatistic
from dp2erm_cvx.calibration.value import value_statistic as by_name
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError, shown
from dp2erm_cvx.model.weights import GRID_ERROR
from dp2erm_cvx.plan.arithmetic import calibrate_propensity, certified_radius, counts, cover
from dp2erm_cvx.plan.plan import Plan
from dp2erm_cvx.plan.precision import (
    NUMERICAL_SHARE,
    Arithmetic,
    arithmetic_by_name,
    coefficient_reach,
    reserve,
    set_aside,
)
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.program.first_stage import refuse_unproved
from dp2erm_cvx.public import public_number
from dp2erm_cvx.registry import refuse_taken_name
from dp2erm_cvx.stability.tilt import EXACT
from dp2erm_cvx.universe import Universe

#: Keeps the two parts of a divided budget from adding up to more than the whole by a rounding.
_ROUND_DOWN = 1.0 - 1e-12
#: Solves and certificates take dense matrices of this order.
MOST_FEATURES = 2000


def make_plan(
    first: FirstStage,
    second: SecondStage,
    domain: Domain,
    n_samples: int,
    n_features: int,
    budget: Budget,
    *,
    method: str = "sharp",
    noise: Noise | str = Noise.GAMMA,
    split: float | None = None,
    weight_error: float = 0.0,
    arithmetic: Arithmetic | str = Arithmetic.ASSUMED,
    numerical_share: float = NUMERICAL_SHARE,
    value_share: float | None = None,
    value_statistic: ValueStatistic | str = ValueStatistic.CELLS,
) -> Plan:
    """Calibrate a release from public quantities alone.

    ``weight_error`` is a public bound on ``||w_hat - w||_1``, the error of computed weights on every
    dataset: it adds twice itself to V. ``arithmetic`` says whether ``numerical_share`` of the budget covers
    the numerical error of theta. ``value_share`` of epsilon pays for the value of the rule, None for none,
    by the ``value_statistic``.

    Raises DeclarationError for an invalid argument, CalibrationError where the method does not cover what
    is declared.
    """
    chosen = calibrator(method)
    if split is not None and not chosen.splits:
        raise DeclarationError(f"split = {shown(split)}: calibration = {chosen.name!r} chooses its own")
    if n_features > MOST_FEATURES:
        raise DeclarationError(
            f"{n_features} covariates: at most {MOST_FEATURES}, because Hessians are dense; choose some "
            "publicly"
        )
    kind, statistic = arithmetic_by_name(arithmetic), by_name(value_statistic)
    printed = chosen.family is BoundFamily.PAPER
    universe = Universe(domain, n_samples, n_features)
    counted = counts(kind, first, second, universe, budget.epsilon, printed=printed)
    share = numerical_share if counted else None
    setting = _Setting(first, second, universe, budget, chosen, noise, split, value_share, statistic)
    plan = _planned(setting, weight_error, share)
    if share is None or plan.counted:
        return plan
    if kind is Arithmetic.COUNTED:
        raise CalibrationError(
            "arithmetic = 'counted': the curvature is too small for floating point; use a smaller epsilon or "
            "a larger regularizer"
        )
    return _planned(setting, weight_error, None)


@dataclass(frozen=True)
class _Setting:
    first: FirstStage
    second: SecondStage
    universe: Universe
    budget: Budget
    method: Calibrator
    noise: Noise | str
    split: float | None
    value_share: float | None
    value_statistic: ValueStatistic


def _planned(setting: _Setting, weight_error: float, share: float | None) -> Plan:
    """The plan, of whose budget a ``share`` covers the arithmetic unless it is None."""
    for program in (setting.first, setting.second):
        refuse_taken_name(program)
    first, second, universe, noise = setting.first, setting.second, setting.universe, setting.noise
    n, domain = universe.n_samples, universe.domain
    propensity, covered, left, for_value = None, None, setting.budget, 0.0
    if setting.value_share is not None:
        if second.constant_rule:
            raise CalibrationError(
                f"value_share: {second.name} treats everyone or no one, so its value is what it releases "
                "anyway"
            )
        left, for_value = set_aside(left, setting.value_share)
    if isinstance(first, PrivateFirstStage):
        spent, left = _divide(left, first.share, noise)
        propensity, covered = calibrate_propensity(first, universe, spent, noise, share)
    whole, epsilon = left, 0.0
    if share is not None:
        left, epsilon = reserve(left, share)
    bound = first.stability(universe, setting.method.family)
    # here as well, because a program may answer for its stability in a way of its own
    refuse_unproved(first, bound, n)
    if bound.V < 2.0:
        raise CalibrationError(
            f"{bound.theorem} claims V = {bound.V!r}: some weight is at least 1, so V is at least 2"
        )
    error = public_number("weight_error", weight_error, at_least=0.0)
    certified = first.certified_error(universe)
    if isinstance(first, PrivateFirstStage) and propensity is not None:
        norm = coefficient_reach(
            propensity, first.loss_constants(universe), n, None if covered is None else covered.grid
        )
        certified = first.certified_error_at(universe, norm)
    bound = _with_error(
        bound, error, n, certain=not error or certified is None or certified + GRID_ERROR <= error / n
    )
    loss = second.loss_constants(universe)
    objective = _objective(first, second, universe, bound, loss)
    calibration, reason = setting.method.explained(objective, left, noise, setting.split)
    if share is not None and isinstance(calibration, OutputCalibration):
        # one discrete draw covers the statistic and its error: nothing has to be set aside
        calibration = calibrate_output(objective, whole)
    radius = certified_radius(calibration, second, universe)
    precision = None
    if share is not None and radius is not None:
        precision = cover(calibration, loss, n, radius, epsilon)
    value = None
    if setting.value_share is not None:
        value = calibrate_value(
            bound,
            domain.outcome_bound,
            n,
            for_value,
            statistic=setting.value_statistic,
            relation=domain.relation,
        )
    # error = 0 assumes exact weights
    known = certified is not None or bound.V >= 2.0 * n or not error
    return Plan(
        n,
        bound,
        loss,
        setting.budget,
        calibration,
        propensity,
        reason,
        precision,
        covered,
        value,
        radius,
        weights_known=known,
    )


def _objective(
    first: FirstStage, second: SecondStage, universe: Universe, bound: StabilityBound, loss: LossConstants
) -> Objective:
    try:
        second.unconstrained()
        restriction = None
    except CalibrationError as error:
        restriction = str(error)
    n, domain = universe.n_samples, universe.domain
    theta_set = type(second.feasible(domain)).__name__
    return Objective(bound, loss, n, domain.relation, second.name, first.name, theta_set, restriction)


def _with_error(bound: StabilityBound, error: float, n_samples: int, *, certain: bool) -> StabilityBound:
    """The bound for computed weights, each within ``error`` of the exact ones in the l1 norm.

    V sums every weight's movement once, with both weights of the changed record in place of theirs: it
    grows by at most the two errors. W1 counts the largest common weight twice on top. W2 as printed counts
    how many weights differ, which the least error makes n: it is raised only as far as keeps
    ``V <= sqrt(2) W2``, which is what certifies a calibration by it. No nonnegative weights of sum n have a V
    above 2n, computed ones included: that is their bound where it is not ``certain`` that they are certified.
    """
    cap = 2.0 * n_samples
    # the error is counted, so that exact minimizers are no longer assumed
    return replace(
        bound,
        assumptions=tuple(one for one in bound.assumptions if not (error > 0.0 and one == EXACT)),
        V=min(bound.V + 2.0 * error, max(bound.V, cap)) if certain else max(bound.V, cap),
        W1=None if bound.W1 is None else bound.W1 + 4.0 * error,
        W2=None if bound.W2 is None else bound.W2 + 3.0 * error * math.sqrt(1.0 + n_samples),
    )


def _divide(budget: Budget, share: float, noise: Noise | str) -> tuple[Budget, Budget]:
    """The parts of a private first stage and of the second; pure noise leaves delta to the second."""
    epsilon = budget.epsilon * _ROUND_DOWN
    spends_delta = budget.delta if noise == Noise.GAUSSIAN else 0.0
    first = Budget(share * epsilon, share * spends_delta * _ROUND_DOWN)
    rest = budget.delta - first.delta
    return first, Budget((1.0 - share) * epsilon, rest * _ROUND_DOWN)
