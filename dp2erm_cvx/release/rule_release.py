"""The release of a treatment rule: its coefficient, what corrected it, and how sure its decisions are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dp2erm_cvx.calibration import ContrastNoise
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.plan import PlanResult, RulePlan, RuleSettings
from dp2erm_cvx.plan.kept_confounding import kept_confounding
from dp2erm_cvx.plan.rule_settings import EXPECTATIONS
from dp2erm_cvx.public import public_size
from dp2erm_cvx.release.effect import EffectInterval
from dp2erm_cvx.release.interval import score_interval
from dp2erm_cvx.release.nuisances import Nuisance, state_coefficient
from dp2erm_cvx.release.own_units import OwnUnits, own_units
from dp2erm_cvx.release.reading import check_guarantee, check_spent, read_published
from dp2erm_cvx.release.record import SCHEMA_VERSION, BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.rule_text import rule_blocks
from dp2erm_cvx.release.shown import beside
from dp2erm_cvx.release.statement import state_guarantee, state_steps
from dp2erm_cvx.steps import Execution, Rows, RuleValuePlan

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: What the value of a rule is compared with.
_OTHERS = ("treating nobody", "treating everybody")
#: The public guesses among the settings of a release, beside those that the rule is calibrated from.
_GUESSES = ("outcome_scale", "expected", "mass")


@dataclass(frozen=True)
class RuleGain:
    """The value of the rule less that of treating as ``over`` says, in units of the net outcome.

    ``interval`` is for the mean of the score at the released nuisances, with the rule taken as given.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    over: str
    estimate: float
    interval: EffectInterval


@dataclass(frozen=True)
class RuleRelease(BaseRelease):
    """What may be published about a treatment rule: treat where ``<(1, x), theta> > 0``.

    ``theta`` (p,) has one name per coordinate in ``parameters``, of the constant and of the covariates as the
    ``domain`` scales them; its product with them estimates the effect, in units of the outcome and net of
    the treatment cost. ``nuisances`` are the released center and propensity. ``noise_effect`` is what noise
    is predicted to do to the effect of one record, root mean square, and ``flipped_share`` what share of
    decisions it is predicted to flip: from theta, public guesses and a public covariate spread alone.
    ``settings`` hold the public settings and guesses, such as the ``mass`` of the factors over n. ``gains``
    say what the rule is worth, and ``released`` are the integers that noise was added to for them, where a
    share of the budget was declared for that. ``kept_confounding`` is the share of a bias that is predicted
    to stay, by :func:`~dp2erm_cvx.plan.kept_confounding.kept_confounding`; None where that is not known.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")
    derived: ClassVar[tuple[str, ...]] = ("own_units",)

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
    gains: tuple[RuleGain, ...] = ()
    released: tuple[int, ...] = ()
    kept_confounding: float | None = None
    schema_version: int = field(default=SCHEMA_VERSION)

    def effects_at(self, X: Array) -> Array:
        """Estimated net effect (m,) at raw covariates X (m, k), each record by itself."""
        domain = Domain.from_dict(self.domain)
        rows = domain.features(X)
        return Rows.POOLED.predict(self.theta, rows[:, 1:] if domain.intercept else rows, 0.0)

    @property
    def own_units(self) -> OwnUnits | None:
        """Theta in the covariates' own units; None without ranges."""
        domain, slopes = Domain.from_dict(self.domain), dict(enumerate(self.theta[1:]))
        return own_units(domain, self.columns, slopes, self.theta[0], math.inf)

    def blocks(self) -> Iterator[Block]:
        """What it says, from what was released and public numbers alone."""
        return rule_blocks(self)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per coordinate of theta."""
        told = {"noise_effect": self.noise_effect, "flipped_share": self.flipped_share, **self.cost()}
        told |= {f"gain over {gain.over}": gain.estimate for gain in self.gains}
        pairs = zip(self.parameters, self.theta, strict=True)
        rows = [{"parameter": name, "value": value, **told} for name, value in pairs]
        return beside(rows, self.own_units)

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
    sums: tuple[int, ...] = ()
    if plan.value is not None:
        sums = tuple(int(number) for number in released[plan.value.name])
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
        nuisances=tuple(
            state_coefficient(step, released[step.name], columns)
            for step in plan.steps
            if step not in (plan.rule, plan.value)
        ),
        settings={**settings, **dict(zip(_GUESSES, guesses, strict=True))},
        domain=study.universe.domain.to_dict(),
        gains=() if plan.value is None else gains(plan.value, sums),
        released=sums,
        kept_confounding=kept_confounding(plan),
    )


def gains(step: RuleValuePlan, sums: tuple[int, ...]) -> tuple[RuleGain, ...]:
    """Both from one release: each mean with the second moment of both, which is at least its own."""
    noise = step.calibration
    assert isinstance(noise, ContrastNoise)
    found = (score_interval(noise.alone, (mean, sums[2]), 0.0) for mean in sums[:2])
    return tuple(
        RuleGain(over, one.estimate, EffectInterval.of(one)) for over, one in zip(_OTHERS, found, strict=True)
    )


def _check(release: RuleRelease) -> None:
    check_guarantee(release)
    check_spent(release)
    names = [step.step for step in release.steps]
    _check_gains(release, names)
    names = names[:-1] if names[-1:] == ["value"] else names
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
    valued = any(step.step == "value" for step in release.steps)
    if names != [*(name for name in stated if stated[name]), "rule"] or valued is (
        declared.value_share is None
    ):
        raise DeclarationError("release JSON: steps: are not those of the settings")
    # every effect is at most the l1 norm of theta times the largest covariate
    if not math.isfinite(sum(map(abs, release.theta)) * max(domain.covariate_bound, 1.0)):
        raise DeclarationError("release JSON: theta is too large for finite effects")


def _check_gains(release: RuleRelease, steps: list[str]) -> None:
    """Refuse gains that no step has paid for, or that their intervals do not hold."""
    stated = [gain.over for gain in release.gains], len(release.released)
    if stated != (([*_OTHERS], 3) if steps[-1:] == ["value"] else ([], 0)):
        raise DeclarationError("release JSON: gains: stand with a step of the value, or not at all")
    for gain in release.gains:
        low, high = gain.interval.low, gain.interval.high
        if low is None or high is None or not low <= gain.estimate <= high:
            raise DeclarationError("release JSON: gains: an interval does not hold its estimate")
