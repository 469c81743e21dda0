"""From a family of calibrations to a plan, public quantities only."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.calibration import NAMES
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import TOLERANCE
from dp2erm_cvx.plan import Plan, Study, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.studies import baselines
from dp2erm_cvx.studies.scheme import Constants, Rule, StudyScheme, build_scaled
from dp2erm_cvx.universe import Universe

#: Calibrations side by side. ``composition-printed`` is the paper's baseline, which is not private as argued.
FAMILIES = (*NAMES, "composition-sharp", "composition-printed")

#: The family of fits without noise.
PLAIN = "non-private"


@dataclass(frozen=True)
class PlannedRule:
    """A plan. ``note`` says what is weaker than replace-one privacy."""

    plan: Plan
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
    paper = family.startswith("paper")
    # the paper's kernel proposition holds only for neighbors of the same treatment
    weaker = paper and scheme.program == "mmd"
    domain = constants.domain(n, keeps_treatment=weaker)
    first, second = scheme.first_stage(domain, paper=paper), constants.second_stage().resolve(domain)
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
    domain, printed = constants.domain(n), family == "composition-printed"
    if scheme.program == "uniform":
        raise CalibrationError("weights 1 need no private first stage: see sharp")
    study = Study(
        scheme.first_stage(domain, paper=printed),
        constants.second_stage(),
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
    if family.startswith("paper") or family == "composition-printed":
        return {**({"share": 0.5} if composed else {}), **scheme.settings, **scheme.paper}
    if composed:
        return {"share": 0.3, **scheme.settings, **scheme.composition}
    return dict(scheme.settings)
