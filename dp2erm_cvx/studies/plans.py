"""From a family of calibrations to a plan, by public quantities only, and theta under many draws of noise."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.calibration import NAMES, Calibration, OutputCalibration, Perturbed
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import TOLERANCE
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.plan import Study, TwoStagePlan, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.solve import Solution, solve
from dp2erm_cvx.steps import Fit
from dp2erm_cvx.studies import baselines
from dp2erm_cvx.studies.scheme import Constants, Rule, StudyScheme, build_scaled, is_printed
from dp2erm_cvx.universe import Universe

#: Calibrations side by side. ``composition-printed`` is the paper's baseline, which is not private as argued.
FAMILIES = (*NAMES, "composition-sharp", "composition-printed")

#: The family of fits without noise.
PLAIN = "non-private"


@dataclass(frozen=True)
class PlannedRule:
    """A plan. ``note`` says what is weaker than replace-one privacy."""

    plan: TwoStagePlan
    note: str = ""

    @property
    def first(self) -> FirstStage:
        """The first stage that is planned for."""
        return self.plan.study.first

    @property
    def second(self) -> SecondStage:
        """The second stage that is planned for."""
        return self.plan.study.second

    def facts(self) -> dict[str, str | float]:
        """What of the plan belongs in every row: V, gamma and the scale of the noise."""
        calibration = self.plan.theta.calibration
        return {
            "V": self.plan.bound.V,
            "gamma": getattr(calibration, "gamma", 0.0),
            "scale": calibration.scale,
            # output noise sets nothing aside
            "split": getattr(calibration, "split", 1.0),
            "theorem": self.plan.theorem,
            "note": self.note,
        }


@dataclass(frozen=True)
class Refused:
    """Why there is no plan."""

    reason: str


def plan_rule(
    rule: Rule, family: str, noise: str, budget: Budget, n_samples: int, n_features: int
) -> PlannedRule | Refused:
    """The plan of a family, or why it has none. ``auto`` chooses the noise itself within the budget.

    Exact arithmetic is assumed: no noise is set aside for it. Raises DeclarationError for an unknown family.
    """
    if family not in FAMILIES:
        raise DeclarationError(f"family = {family!r}: must be one of {', '.join(FAMILIES)}")
    key = json.dumps([rule.scheme.model_dump(), rule.constants.model_dump()], sort_keys=True)
    return _planned(key, family, noise, budget, n_samples, n_features)


@functools.lru_cache(maxsize=4096)
def _planned(key: str, family: str, noise: str, budget: Budget, n: int, p: int) -> PlannedRule | Refused:
    scheme, constants = json.loads(key)
    rule = Rule(StudyScheme.model_validate(scheme), Constants.model_validate(constants))
    plan = _composed if family.startswith("composition") else _direct
    try:
        return plan(rule, family, noise, budget, n, p)
    except (CalibrationError, DeclarationError) as error:
        return Refused(str(error))


def _direct(rule: Rule, family: str, noise: str, budget: Budget, n: int, p: int) -> PlannedRule:
    scheme, constants = rule.scheme, rule.constants
    paper = is_printed(family)
    # the paper's kernel proposition holds only for neighbors of the same treatment
    weaker = paper and scheme.program == "mmd"
    domain = constants.domain(n, keeps_treatment=weaker)
    first, second = scheme.first_stage(domain, paper=paper), constants.second_stage(family).resolve(domain)
    plan = make_plan(
        Study(
            first,
            second,
            Universe(domain, n, p),
            budget,
            calibration=family,
            noise=noise,
            tolerance=TOLERANCE,  # V counts that of the weights as a release does
        )
    )
    return PlannedRule(plan, "neighbors keep their treatment" if weaker else "")


def _composed(rule: Rule, family: str, noise: str, budget: Budget, n: int, p: int) -> PlannedRule:
    scheme, constants = rule.scheme, rule.constants
    domain, printed = constants.domain(n), is_printed(family)
    if scheme.program == "uniform":
        raise CalibrationError("weights 1 need no private first stage: see sharp")
    study = Study(
        scheme.first_stage(domain, paper=printed),
        constants.second_stage(family),
        Universe(domain, n, p),
        budget,
        noise=noise,
    )
    if scheme.program == "ipw_logistic" and not printed:
        private = build_scaled("ipw_private", settings_in_force(scheme, family), domain)
        return PlannedRule(make_plan(dataclasses.replace(study, first=private, tolerance=TOLERANCE)))
    if scheme.program == "ipw_logistic":
        found = baselines.ipw_composition_printed(study)
    else:
        found = baselines.universal_baseline(study, printed=printed)
    return PlannedRule(found.plan, "" if found.private else "not private as argued")


def settings_in_force(scheme: StudyScheme, family: str) -> dict[str, Any]:
    """The settings of the first stage under a family, as the design declares them."""
    composed = family.startswith("composition") and scheme.program == "ipw_logistic"
    if is_printed(family):
        return {**({"share": 0.5} if composed else {}), **scheme.settings, **scheme.paper}
    if composed:
        return {"share": 0.3, **scheme.settings, **scheme.composition}
    return dict(scheme.settings)


@dataclass(frozen=True)
class Fitted:
    """``thetas`` (draws, p), mean effective sample size of the weights over n, and if all was certified."""

    thetas: Array = field(repr=False)
    effective_share: float
    certified: bool


class Weights:
    """Weights of first stages on one dataset, each solved once."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._known: dict[FirstStage, Solution] = {}

    def __call__(self, first: FirstStage) -> Solution:
        """Weights (n,) of a first stage without noise, with their certificate."""
        if first not in self._known:
            self._known[first] = solve(first.instance(self.records), solver="newton", throw=False)
        return self._known[first]


def draw_thetas(rule: PlannedRule, weights: Weights, draws: int, rng: np.random.Generator) -> Fitted:
    """``draws`` draws of theta as the plan would release it, with exact arithmetic assumed."""
    if isinstance(rule.first, PrivateFirstStage):
        assert rule.plan.propensity is not None
        noises = simulate_noise(rule.plan.propensity.calibration, draws, rng)
        found = [_private_weights(rule, rule.first, weights.records, noise) for noise in noises]
        parts = [_thetas(rule, weights.records, w.value, 1, rng) for w in found]
        certified = all(w.certified for w in found) and all(fine for _, fine in parts)
        share = float(np.mean([effective_share(w.value) for w in found]))
        return Fitted(np.concatenate([thetas for thetas, _ in parts]), share, certified)
    w = weights(rule.first)
    thetas, fine = _thetas(rule, weights.records, w.value, draws, rng)
    return Fitted(thetas, effective_share(w.value), w.certified and fine)


def without_noise(first: FirstStage, second: SecondStage, weights: Weights) -> Fitted:
    """Theta of the two stages without privacy, and without the constraint that is there for its sake."""
    w = weights(first)
    found = solve(
        second.unconstrained().instance(weights.records, w.value, gamma=0.0), solver="newton", throw=False
    )
    return Fitted(found.value[None], effective_share(w.value), w.certified and found.certified)


def effective_share(w: Array) -> float:
    """Kish's effective sample size over n."""
    return float(np.sum(w)) ** 2 / float(w @ w) / len(w)


def _private_weights(rule: PlannedRule, first: PrivateFirstStage, records: Records, noise: Array) -> Solution:
    assert rule.plan.propensity is not None
    return solve(
        first.perturbed(records, rule.plan.propensity.calibration.gamma, noise), solver="newton", throw=False
    )


def _thetas(
    rule: PlannedRule, records: Records, w: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, bool]:
    calibration, theta_set = rule.plan.theta.calibration, rule.second.feasible(records.domain)
    if isinstance(calibration, OutputCalibration):
        exact = solve(
            rule.second.unconstrained().instance(records, w, gamma=0.0), solver="newton", throw=False
        )
        found, certified = exact.value + simulate_noise(calibration.law, draws, rng), exact.certified
    else:
        assert isinstance(calibration, Calibration)
        theta, noises = rule.plan.theta, simulate_noise(calibration, draws, rng)
        assert isinstance(theta.declared, Fit)
        program = theta.declared.solved(theta)
        perturbed = (program.instance(records, w, gamma=calibration.gamma, noise=b) for b in noises)
        single = [solve(one, solver="newton", throw=False) for one in perturbed]
        found = np.array([one.value for one in single])
        certified = all(one.certified for one in single)
    if rule.plan.theta.perturbed is not Perturbed.OBJECTIVE:  # theta is projected as in a release
        found = np.array([theta_set.project(theta) for theta in found])
    return found, certified
