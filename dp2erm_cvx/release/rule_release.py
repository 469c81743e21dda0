"""The release of a treatment rule: its coefficient, also in own units, and how sure its decisions are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx import __version__
from dp2erm_cvx.calibration import SumLaw
from dp2erm_cvx.codebook import Codebook, norm_within
from dp2erm_cvx.domain import Array, Domain, clip_norm
from dp2erm_cvx.plan import RulePlan
from dp2erm_cvx.plan.effect_error import value_error
from dp2erm_cvx.plan.predict import kept_confounding
from dp2erm_cvx.release.declaration import declaration_of, state_steps
from dp2erm_cvx.release.interval import EffectInterval, effect_interval, score_interval
from dp2erm_cvx.release.nuisances import Nuisance, state_coefficient
from dp2erm_cvx.release.record import SCHEMA_VERSION, BaseRelease, Guarantee, StepStatement
from dp2erm_cvx.release.value import beside
from dp2erm_cvx.steps import Rows, placed
from dp2erm_cvx.steps.sums import side_shares


@dataclass(frozen=True)
class OwnUnits:
    """``constant + sum of slopes[j] x_j``: what theta says of raw covariates x (k,).

    Inside the domain that is what the scaled theta says, but for rounding: each covariate within its public
    range, and their scaled norm at most ``norm``. A record beyond is clipped and shrunk by the domain first.
    ``slopes`` (k,) are per unit of the ``columns``, which ``per`` names; of what is 0 or 1 it names the
    level.
    """

    constant: float
    columns: tuple[str, ...]
    slopes: tuple[float, ...]
    per: tuple[str, ...]
    norm: float

    def at(self, X: ArrayLike) -> Array:
        """The same (m,) at raw covariates (m, k) of these ``columns``, each record by itself."""
        found: Array = self.constant + np.sum(np.asarray(X, dtype=np.float64) * self.slopes, axis=1)
        return found

    def numbers(self) -> list[tuple[float, str]]:
        """The constant, then every slope, each with what it is per."""
        return [(self.constant, ""), *zip(self.slopes, self.per, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """As the JSON of a release states it."""
        return {"constant": self.constant, "slopes": dict(zip(self.columns, self.slopes, strict=True))}

    def told(self) -> str:
        """For which records it is the same as the scaled theta."""
        return (
            "Own units: the same rule of raw covariates, its constant where all of them are 0. It holds "
            f"inside the ranges, up to a norm of {self.norm:.4g} of the scaled covariates; a record beyond "
            "is clipped and shrunk first."
        )


def own_units(
    domain: Domain, columns: Sequence[str], slopes: Mapping[int, float], constant: float, norm: float
) -> OwnUnits | None:
    """A linear rule with a ``constant`` and ``slopes`` on the scaled covariates of these numbers.

    ``norm`` is what it shrinks those to. None where no ranges scale them, and where no double holds the
    result: ranges can be as short, or as far off, as they like.
    """
    if domain.ranges is None:
        return None
    pairs, middles = domain.range_pairs, domain.middles(len(columns))
    terms, raw = [constant], list[float]()
    for index, value in slopes.items():
        low, high = pairs[index]
        raw.append(value / (high / 2 - low / 2))
        terms.append(-raw[-1] * middles[index])
    try:
        total = math.fsum(terms) + 0.0
    except (OverflowError, ValueError):
        return None
    if not all(map(math.isfinite, [total, *raw])):
        return None
    named = tuple(columns[index] for index in slopes)
    per = tuple(_per(domain.codebook, name) for name in named)
    return OwnUnits(total, named, tuple(raw), per, min(norm, domain.features_bound))


def _per(book: Codebook | None, name: str) -> str:
    column, level = (name, None) if book is None else book.origin(name)
    if level is not None:
        assert book is not None
        known = "missing" if column in book.missing else level or "missing"
        return f"where {column} is {known}"
    unit = None if book is None else book.units.get(column)
    return f"per {unit}" if unit else "per unit"


#: What the value of a rule is compared with.
_OTHERS = ("treating nobody", "treating everybody")
#: The public guesses among the settings of a release, beside those that the rule is calibrated from.
_GUESSES = ("outcome_scale", "expected", "mass")


@dataclass(frozen=True)
class RuleGain:
    """The value of the rule less that of treating as ``over`` says, in units of the net outcome.

    ``interval`` is for the mean gain of all records, with the rule taken as given. Where the propensity is
    not public it allows for what the released regressions of both arms leave of the confounding, to first
    order, see :func:`~dp2erm_cvx.plan.effect_error.value_error`.
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
    to stay, by :func:`~dp2erm_cvx.plan.predict.kept_confounding`; None where that is not known.

    Where a mean and a mean square of covariates are released, ``covariate_mean`` (k,) is subtracted from the
    scaled covariates, which are then shrunk to ``covariate_norm`` and multiplied by ``covariate_scale``: in
    the fit as in every prediction. An empty mean is 0; no norm is that of the domain.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}
    goal: ClassVar[str] = "rule"
    spelled: ClassVar[tuple[str, ...]] = ("private", "standing")
    derived: ClassVar[tuple[str, ...]] = ("own_units", "caveats")

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
    declared: dict[str, Any]
    gains: tuple[RuleGain, ...] = ()
    released: tuple[int, ...] = ()
    kept_confounding: float | None = None
    covariate_mean: tuple[float, ...] = ()
    covariate_norm: float | None = None
    covariate_scale: float = 1.0
    study: str | None = None
    version: str = __version__
    schema_version: int = SCHEMA_VERSION

    def effects_at(self, X: Array) -> Array:
        """Estimated net effect (m,) at raw covariates X (m, k), each record by itself."""
        domain = Domain.from_dict(self.domain)
        rows = domain.features(X)[:, 1 if domain.intercept else 0 :]
        if self.covariate_mean:
            rows = rows - np.array(self.covariate_mean)
        if self.covariate_norm is not None:
            rows = self.covariate_scale * clip_norm(rows, self.covariate_norm)
        if self._ends is not None:
            rows = np.clip(rows, *self._ends)
        return Rows.POOLED.predict(self.theta, rows, 0.0)

    @property
    def _ends(self) -> tuple[Array, Array] | None:
        """The box (k,) that records are clipped to in the end; None without ranges."""
        ends = Domain.from_dict(self.domain).ends(len(self.columns))
        if ends is None or not self.covariate_mean:
            return ends
        return ends[0] - ends[1], ends[1] - ends[0]

    @property
    def norm(self) -> float:
        """The norm to which scaled covariates are shrunk, less their released mean."""
        declared = Domain.from_dict(self.domain).features_bound
        return declared if self.covariate_norm is None else self.covariate_norm

    @property
    def own_units(self) -> OwnUnits | None:
        """Theta in the covariates' own units; None without ranges."""
        domain, norm = Domain.from_dict(self.domain), self.norm
        if domain.ranges is None:
            return None
        slopes = {index: self.covariate_scale * value for index, value in enumerate(self.theta[1:])}
        if self.covariate_mean:
            # the domain shrinks records around its own center before
            room = domain.features_bound - math.hypot(*self.covariate_mean)
            boxed = domain.features_bound >= norm_within(domain.ranges, domain.codebook)
            norm = norm if boxed else min(norm, max(room, 0.0))
            domain = replace(domain, covariate_bound=math.hypot(domain.intercept, norm), center=self.middles)
        if self.covariate_scale != 1.0 and self._ends is not None:
            norm = min(norm, float(np.min(np.abs(self._ends))) / self.covariate_scale)
        return own_units(domain, self.columns, slopes, self.theta[0], norm)

    @property
    def middles(self) -> tuple[float, ...]:
        """The raw covariates (k,) that count as 0: what scales to the released mean, within the ranges."""
        domain = Domain.from_dict(self.domain)
        pairs, found = domain.range_pairs, []
        mean = self.covariate_mean or (0.0,) * len(pairs)
        for (low, high), middle, share in zip(pairs, domain.middles(len(pairs)), mean, strict=True):
            found.append(min(max(middle + share * (high / 2 - low / 2), low), high))
        return tuple(found)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per coordinate of theta."""
        told = {"noise_effect": self.noise_effect, "flipped_share": self.flipped_share, **self.cost()}
        told |= {f"gain over {gain.over}": gain.estimate for gain in self.gains}
        pairs = zip(self.parameters, self.theta, strict=True)
        rows = [{"parameter": name, "value": value, **told} for name, value in pairs]
        return beside(rows, self.own_units)


def make_rule(
    plan: RulePlan, released: Mapping[str, Array], columns: tuple[str, ...], guarantee: Guarantee
) -> RuleRelease:
    """State what a run of a plan ``released``, by step, under its ``guarantee``."""
    study = plan.study
    theta = tuple(float(value) for value in released[plan.rule.name])
    sums: tuple[int, ...] = ()
    if plan.value is not None:
        sums = tuple(int(number) for number in released[plan.value.name])
    spreads, norm = plan.spreads(released), study.norm_bound
    mean, scale = placed(plan.steps, released)
    guesses = (study.scale, list(study.expected), plan.mass)
    settings = asdict(study.settings)
    if isinstance(settings["propensity"], tuple):
        settings["propensity"] = list(settings["propensity"])  # as JSON has it
    return RuleRelease(
        theta=theta,
        parameters=Rows.POOLED.names(columns),
        noise_effect=plan.noise_at(spreads),
        flipped_share=plan.flipped_share(theta, spreads),
        columns=columns,
        n_samples=study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        nuisances=tuple(
            state_coefficient(step, released[step.name], columns)
            for step in plan.steps
            if step not in (plan.rule, plan.value)
        ),
        settings={**settings, **dict(zip(_GUESSES, guesses, strict=True))},
        domain=study.universe.domain.to_dict(),
        declared=declaration_of(plan),
        gains=() if plan.value is None else tuple(gains(plan, released, sums)),
        released=sums,
        kept_confounding=kept_confounding(plan),
        covariate_mean=() if mean is None else tuple(mean.tolist()),
        covariate_norm=None if study.settings.norm_bound is None else norm / scale,
        covariate_scale=scale,
    )


def gains(plan: RulePlan, released: Mapping[str, Array], sums: tuple[int, ...]) -> Iterator[RuleGain]:
    """Both from one release: each mean with the second moment of both, which is at least its own.

    Where records may not count, both are of those that do.
    """
    step = plan.value
    assert step is not None
    noise, own = step.calibration, step.score.at(step.universe, released)
    assert noise.law is SumLaw.CONTRASTS
    # the common second moment is at least that of either mean
    alone = replace(noise, law=SumLaw.SCORE)
    counts, part = plan.step("sides"), 1.0
    if counts is not None and step.universe.domain.weighted:
        part = min(max(float(side_shares(counts, released).sum()), 1.0 / counts.universe.n_samples), 1.0)
    for over, mean, treats in zip(_OTHERS, sums[:2], (True, False), strict=True):
        found = score_interval(alone, (mean, sums[2]), 0.0, widening=own.widening)
        error = value_error(plan, released, found.standard_deviation / math.sqrt(part), treats=treats)
        if part < 1.0:
            assert counts is not None
            counted = 2.0 * math.sqrt(counts.predicted_error) / (part * counts.universe.n_samples)
            error = replace(error, noise=math.hypot(error.noise, counted * found.estimate))
        found = effect_interval(alone, found, error, own.widening)
        yield RuleGain(over, found.estimate / part, EffectInterval.of(found).times(1.0 / part))
