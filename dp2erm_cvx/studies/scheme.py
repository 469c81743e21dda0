"""What a rule is fitted with: public constants and a weighting scheme, as designs declare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dp2erm_cvx import registry
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.plan import RuleStudy
from dp2erm_cvx.privacy import Budget, Neighboring
from dp2erm_cvx.program import FirstStage, L1Ball, L2Ball, SecondStage
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.studies.engine import Design
from dp2erm_cvx.universe import Universe

#: The family with a loss of bounded slope over R^p in place of squared loss over a ball (Theorems 15, 16).
SATURATING = "saturating"


def is_printed(family: str) -> bool:
    """Whether a family of calibrations is the paper's, whose settings then are the paper's as well."""
    return family.startswith("paper") or family == "composition-printed"


class Constants(BaseModel):
    """Public constants: norms beyond ``covariate_bound`` are shrunk, outcomes clipped to center ± bound.

    ``theta_set`` is the norm of the ball Theta, ``paper_theta_set`` that under the calibrations of the paper
    (it prints the l1 ball); ``theta_radius`` and ``paper_theta_radius`` (None: the same) are their radii in
    units of ``outcome_bound / covariate_bound``. Both balls cost the same noise. ``slope`` is that of the
    loss under the family "saturating", which has no ball. ``arm_floor`` is a public share of n that either
    arm is declared to have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    covariate_bound: float = Field(gt=0)
    outcome_bound: float = Field(gt=0)
    theta_set: Literal["l1", "l2"] = "l2"
    paper_theta_set: Literal["l1", "l2"] = "l1"
    theta_radius: float = Field(default=1.0, gt=0)
    paper_theta_radius: float | None = Field(default=None, gt=0)
    slope: float | None = Field(default=None, gt=0)
    outcome_center: float = 0.0
    intercept: float = 0.0
    arm_floor: float | None = Field(default=None, gt=0, le=0.5)

    def domain(self, n_samples: int, *, keeps_treatment: bool = False) -> Domain:
        """The public domain; ``keeps_treatment`` for neighbors that never differ in a treatment."""
        kept = Neighboring.REPLACE_ONE_KEEP_TREATMENT if keeps_treatment else Neighboring.REPLACE_ONE
        floor = None if self.arm_floor is None else max(1, int(self.arm_floor * n_samples))
        return Domain(
            self.covariate_bound,
            self.outcome_bound,
            outcome_center=self.outcome_center,
            intercept=self.intercept,
            arm_floor=floor,
            relation=kept,
        )

    def radius(self, family: str) -> float:
        """The radius of Theta under a family in units of theta: outcome per unit of the covariates."""
        stated = self.paper_theta_radius if is_printed(family) else None
        return (stated or self.theta_radius) * self.outcome_bound / self.covariate_bound

    def norm(self, family: str) -> Literal["l1", "l2", "none"]:
        """The norm of the ball Theta under a family of calibrations."""
        if family == SATURATING:
            return "none"
        return self.paper_theta_set if is_printed(family) else self.theta_set

    def second_stage(self, family: str = "sharp") -> SecondStage:
        """The linear rule over the ball of a family, or with its loss."""
        known, built = registry.second_stages(), self.norm(family)
        if built == "none":
            loss: SecondStage = registry.build(known, "itr_saturating", slope=self.slope)
            return loss
        theta = (L1Ball if built == "l1" else L2Ball)(self.radius(family))
        squared: SecondStage = registry.build(known, "itr", theta_set=theta)
        return squared


class StudyScheme(BaseModel):
    """A first stage by name and settings. Ridges are in units of the squared norm bound of its rows.

    ``paper`` replaces settings where the paper's statements need it; ``composition`` those of
    ``ipw_private``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str
    settings: dict[str, Any] = {}
    paper: dict[str, Any] = {}
    composition: dict[str, Any] = {}

    def first_stage(self, domain: Domain, *, paper: bool = False) -> FirstStage:
        """The program for a domain. Raises DeclarationError."""
        settings = {**self.settings, **(self.paper if paper else {})}
        return build_scaled(self.program, settings, domain)


@dataclass(frozen=True)
class Rule:
    """A weighting scheme and the public constants that its rule is learned with."""

    scheme: StudyScheme
    constants: Constants


def build_scaled(program: str, settings: dict[str, Any], domain: Domain) -> FirstStage:
    """A first stage whose ridge is given per squared norm of what it multiplies. Raises DeclarationError."""
    chosen = dict(settings)
    if "kernel" in chosen:
        chosen["kernel"] = Kernel.from_text(chosen["kernel"], "kernel")
    if "ridge" in chosen:
        chosen["ridge"] *= _unit(program, chosen, domain)
    return registry.build(registry.first_stages(), program, **chosen).resolve(domain)


def _unit(program: str, settings: dict[str, Any], domain: Domain) -> float:
    if program.startswith("ipw"):
        return domain.covariate_bound**2
    if program == "entropy_balancing" and settings.get("scaling") != "paper":
        return 2 * domain.features_bound**2  # the constant function is as large as the covariates
    return 1.0


class Tuning(BaseModel):
    """How settings are chosen on an independent simulated dataset.

    Every candidate is fitted on ``bootstraps`` resamples with every budget and judged by its out-of-bag
    accuracy against the optimal rule, averaged over budgets; for the line without privacy, by one fit without
    noise. ``candidates`` lists, by scheme, settings that replace the declared ones; ``constants`` public
    constants that do, which are tried first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstraps: int = Field(ge=1)
    candidates: dict[str, list[dict[str, Any]]]
    constants: list[dict[str, Any]] = []


class RuleMethod(BaseModel):
    """What a data holder declares about a private rule, see :class:`~dp2erm_cvx.estimators.PrivateRule`.

    The covariate bound is that without an intercept; the outcome center is that of the constants beside it.
    The setting "none" stands for None, which TOML does not have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    covariate_bound: float = Field(gt=0)
    outcome_bound: float = Field(gt=0)
    outcome_scale: float | None = None
    expected: tuple[str, ...] = ()
    settings: dict[str, Any] = {}

    def domain(self, outcome_center: float) -> Domain:
        """The public domain."""
        return Domain(self.covariate_bound, self.outcome_bound, outcome_center=outcome_center)

    def study(self, domain: Domain, shape: tuple[int, ...], budget: Budget, noise: str) -> RuleStudy:
        """What is planned for covariates of this shape, in exact arithmetic. Raises DeclarationError."""
        return RuleStudy(
            Universe(domain, *shape),
            budget,
            outcome_scale=self.outcome_scale,
            expected=self.expected,
            declared={name: None if value == "none" else value for name, value in self.settings.items()},
            noise=noise,
        )


class RulesDesign(Design):
    """What studies of rules share. ``draws`` of the noise are averaged within a replicate.

    ``methods`` are rules by the default pipeline, beside those by weighting ``schemes``.
    """

    replicates: int = Field(ge=1)
    draws: int = Field(ge=1)
    epsilons: list[float] = Field(min_length=1)
    noises: list[Literal["gamma", "gaussian", "box"]] = Field(min_length=1)
    families: list[str]
    schemes: dict[str, StudyScheme]
    methods: dict[str, RuleMethod] = Field(default={})


class StudyDesign(RulesDesign):
    """A study with one set of public constants, unless tuning replaces them.

    The family "saturating" has a set of its own, which is declared and not tuned.
    """

    constants: Constants
    saturating: Constants | None = None
    tuning: Tuning | None = None

    def constants_of(self, family: str) -> Constants:
        """The declared constants of a family."""
        return self.saturating if family == SATURATING and self.saturating is not None else self.constants

    def chosen(self, choice: dict[str, Any], name: str, family: str) -> Rule:
        """A scheme and the constants of a family with what tuning chose for them."""
        scheme = self.schemes[name]
        settings = {**scheme.settings, **choice["settings"]}
        constants = self.constants_of(family).model_copy(update=choice["constants"])
        return Rule(scheme.model_copy(update={"settings": settings}), constants)
