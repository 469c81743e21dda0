"""The release of a treatment rule: its coefficient, what corrected it, and how sure its decisions are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.plan import PlanResult, RulePlan, RuleSettings
from dp2erm_cvx.plan.rule_settings import EXPECTATIONS
from dp2erm_cvx.public import public_size
from dp2erm_cvx.release.nuisances import Nuisance, state_coefficient
from dp2erm_cvx.release.reading import check_guarantee, check_spent, read_published
from dp2erm_cvx.release.record import SCHEMA_VERSION, BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.rule_text import rule_blocks
from dp2erm_cvx.release.statement import state_guarantee, state_steps
from dp2erm_cvx.steps import Execution, Rows

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: The public guesses among the settings of a release, beside those that the rule is calibrated from.
_GUESSES = ("outcome_scale", "expected", "mass")


@dataclass(frozen=True)
class RuleRelease(BaseRelease):
    """What may be published about a treatment rule: treat where ``<(1, x), theta> > 0``.

    ``theta`` (p,) has one name per coordinate in ``parameters``, of the constant and of the covariates as the
    ``domain`` scales them; its product with them estimates the effect, in units of the outcome and net of
    the treatment cost. ``nuisances`` are the released center and propensity. ``noise_effect`` is what noise
    is predicted to do to the effect of one record, root mean square, and ``flipped_share`` what share of
    decisions it is predicted to flip: from theta, public guesses and a public covariate spread alone.
    ``settings`` hold the public settings and guesses, such as the ``mass`` of the factors over n.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")

    theta: tuple[float, ...]
    parameters: tuple[str, ...]
    noise_effect: float
    flipped_share: float
    columns: tuple[str, ...]
    n_samples: int
    guarantee: Guarantee
    steps: tuple[StepStatement, ...]
    nuisances: tuple[Nuisance, ...]
    settings: dict[str, Any]
    domain: dict[str, Any]
    schema_version: int = field(default=SCHEMA_VERSION)

    def effects_at(self, X: Array) -> Array:
        """Estimated net effect (m,) at raw covariates X (m, k), each record by itself."""
        domain = Domain.from_dict(self.domain)
        rows = domain.features(X)
        return Rows.POOLED.predict(self.theta, rows[:, 1:] if domain.intercept else rows, 0.0)

    def blocks(self) -> Iterator[Block]:
        """What it says, from what was released and public numbers alone."""
        return rule_blocks(self)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per coordinate of theta."""
        told = {"noise_effect": self.noise_effect, "flipped_share": self.flipped_share, **self.cost()}
        pairs = zip(self.parameters, self.theta, strict=True)
        return [{"parameter": name, "value": value, **told} for name, value in pairs]

    @classmethod
    def from_json(cls, text: str | bytes) -> RuleRelease:
        """Read a release back. Raises DeclarationError, in one line, if it does not fit the schema."""
        return read_published(text, cls, _check)


def make_rule(
    plan: RulePlan, result: PlanResult, columns: tuple[str, ...], execution: Execution
) -> RuleRelease:
    """State what the run of a plan released."""
    study, released = plan.study, result.released
    theta = tuple(float(value) for value in released[plan.rule.name])
    guesses = (study.scale, list(study.expected), plan.mass)
    settings = asdict(study.settings)
    if isinstance(settings["propensity"], tuple):
        settings["propensity"] = list(settings["propensity"])  # as JSON has it
    return RuleRelease(
        theta=theta,
        parameters=Rows.POOLED.names(columns),
        noise_effect=plan.noise_effect,
        flipped_share=plan.flipped_share(theta),
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=state_guarantee(plan, result, execution),
        steps=state_steps(plan),
        nuisances=tuple(state_coefficient(step, released[step.name], columns) for step in plan.steps[:-1]),
        settings={**settings, **dict(zip(_GUESSES, guesses, strict=True))},
        domain=study.universe.domain.to_dict(),
    )


def _check(release: RuleRelease) -> None:
    check_guarantee(release)
    check_spent(release)
    names = [step.step for step in release.steps]
    if names[-1:] != ["rule"] or [part.step for part in release.nuisances] != names[:-1]:
        raise DeclarationError(
            "release JSON: steps: the last of them releases the rule, and every other one a nuisance"
        )
    if release.n_samples < 2 or not release.columns:
        raise DeclarationError("release JSON: n_samples and columns: at least 2 records and 1 covariate")
    expected = Rows.POOLED.names(release.columns)
    coefficients = [(release.parameters, release.theta)]
    coefficients += [(part.parameters, part.coefficient) for part in release.nuisances]
    if any(known != expected or len(values) != len(expected) for known, values in coefficients):
        raise DeclarationError("release JSON: theta and nuisances: a value for the constant and every column")
    if not (0.0 <= release.flipped_share <= 1.0 and release.noise_effect >= 0.0):
        raise DeclarationError("release JSON: flipped_share is a share, and noise_effect no negative number")
    try:
        domain, settings = Domain.from_dict(release.domain), dict(release.settings)
        guesses = {name: settings.pop(name) for name in _GUESSES}
        declared = RuleSettings(**settings)
        for name in ("outcome_scale", "mass"):
            public_size(name, guesses[name])
        if not set(guesses["expected"]) <= set(EXPECTATIONS):
            raise DeclarationError("expected: is none of a rule")
    except (Dp2ermError, TypeError, KeyError, AttributeError) as error:
        raise DeclarationError(f"release JSON: domain or settings: {error}") from None
    stated = {"center": declared.center_share is not None, "propensity": declared.propensity == "logistic"}
    if names != [*(name for name in stated if stated[name]), "rule"]:
        raise DeclarationError("release JSON: steps: are not those of the settings")
    # every effect is at most the l1 norm of theta times the largest covariate
    if not math.isfinite(sum(map(abs, release.theta)) * max(domain.covariate_bound, 1.0)):
        raise DeclarationError("release JSON: theta is too large for finite effects")
