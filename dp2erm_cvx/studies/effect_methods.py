"""Estimates of one effect from one dataset: private ones, and those that they stand beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from dp2erm_cvx import registry
from dp2erm_cvx.compare.effect_references import Estimate, augmented, difference, hajek
from dp2erm_cvx.datasets import EffectScenario
from dp2erm_cvx.domain import Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.plan import EffectPlan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import Box
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.steps import AverageScore
from dp2erm_cvx.steps.number import UNIT
from dp2erm_cvx.studies.effect_data import EffectData, in_domain
from dp2erm_cvx.studies.engine import Row
from dp2erm_cvx.studies.populations import census
from dp2erm_cvx.studies.published import PUBLISHED
from dp2erm_cvx.studies.scheme import StudyScheme
from dp2erm_cvx.studies.summary import Z

#: Records of a population that its means are computed from, for each record of a sample.
_TIMES, _AT_LEAST = 8, 10_000


class EffectMethod(BaseModel):
    """What a data holder declares about a private effect, see :class:`~dp2erm_cvx.estimators.PrivateEffect`.

    ``residual_scale`` replaces that of the data; 0 declares none. ``scaled`` are settings in units of it.
    The setting "none" stands for None, which TOML does not have. ``delta`` > 0 asks for Gaussian noise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prognostic: list[str] | None = None
    residual_scale: float | None = None
    settings: dict[str, Any] = {}
    scaled: dict[str, float] = {}
    delta: float = 0.0

    def estimator(self, data: EffectData, epsilon: float, seed: int) -> PrivateEffect:
        """The estimator for these data, seeded."""
        scale = data.residual_scale if self.residual_scale is None else self.residual_scale or None
        return PrivateEffect(
            data.domain,
            Budget(epsilon, self.delta),
            estimand="att" if data.treated_only else "ate",
            prognostic=self.prognostic,
            residual_scale=scale,
            settings={
                **{name: None if value == "none" else value for name, value in self.settings.items()},
                **{name: value * data.residual_scale for name, value in self.scaled.items()},
            },
            noise="gaussian" if self.delta else "gamma",
            seed=seed,
        )


class PublishedMethod(BaseModel):
    """A method of others by its name in :data:`~dp2erm_cvx.studies.published.PUBLISHED`.

    ``delta`` is that of the guarantee that it is run at, 0 for pure noise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    settings: dict[str, Any] = {}
    delta: float = 0.0


def published_row(
    data: EffectData, chosen: PublishedMethod, epsilon: float, rng: np.random.Generator
) -> Row | None:
    """One estimate, or why there is none; None where the method has none among the treated.

    Raises KeyError for an unknown method, DataError where a package is missing.
    """
    kind = PUBLISHED[chosen.method]
    if data.treated_only and not kind.serves_treated:
        return None
    records = data.domain.records(data.dataset.X, data.dataset.a, data.dataset.y)
    method = kind(**chosen.settings, treated_only=data.treated_only)
    try:
        found = method(records, Budget(epsilon, chosen.delta), rng)
    except ValueError as error:  # of code that is not ours, and may fail by the data
        return {"status": "failed", "reason": str(error), "delta": chosen.delta}
    ends: Row = {"low": found.value - Z * found.error, "high": found.value + Z * found.error}
    return {"status": "done", "estimate": found.value, "delta": chosen.delta, **ends}


def private_row(data: EffectData, method: EffectMethod, epsilon: float, rng: np.random.Generator) -> Row:
    """One release, and the mean of its score in the population, which is what its interval is about."""
    model = method.estimator(data, epsilon, int(rng.integers(2**62)))
    model.fit(data.dataset.X, data.dataset.a, data.dataset.y)
    found, (low, high) = model.release_, model.interval_
    row: Row = {
        "status": "done",
        "estimate": found.estimate,
        "low": low,
        "high": high,
        "nuisance_ratio": found.nuisance_ratio,
        "negligible": found.negligible,
        "delta": method.delta,
    }
    if data.scenario is not None:
        row["score_mean"] = _score_mean(model.plan(*data.dataset.X.shape), found, data.scenario)
    return row


def _score_mean(plan: EffectPlan, found: EffectRelease, scenario: EffectScenario) -> float:
    """The population mean of the score at the released nuisances."""
    score, n = plan.score.score, plan.study.universe.n_samples
    assert isinstance(score, AverageScore)
    drawn = census(scenario, max(_AT_LEAST, _TIMES * n))
    domain, e, total = plan.study.universe.domain, drawn.propensity, 0.0
    columns = [drawn.dataset.columns.index(column) for column in found.columns]
    # the first of what a step states is what it released
    released = {one.step: np.array(one.coefficient) for one in reversed(found.nuisances)}
    if "cells" in released:
        released["cells"] = np.rint(released["cells"] * UNIT)
    if "propensity" in released and len(released["propensity"]) == 1:
        released["propensity"] = released["propensity"] / n * len(e)  # a number of records
    x = domain.features(drawn.dataset.X[:, columns])
    for arm, share in ((0, 1.0 - e), (1, e)):
        a = np.full(len(e), arm)
        records = Records(x, a, domain.net_outcome(a, drawn.outcomes[:, arm]), domain)
        total += float(np.mean(share * np.clip(score.of(records, released), -score.bound, score.bound)))
    return total + score.center_in(plan.study.universe, released)


def weighted_row(data: EffectData, scheme: StudyScheme, epsilon: float, rng: np.random.Generator) -> Row:
    """Arm means at direct weights of this library, which have no interval."""
    domain = data.domain
    second = registry.build(registry.second_stages(), "arm_means", theta_set=Box(domain.outcome_bound))
    try:
        model = PrivateTwoStageERM(
            domain,
            Budget(epsilon),
            scheme.first_stage(domain),
            second,
            seed=int(rng.integers(2**62)),
        )
        theta = model.fit(data.dataset.X, data.dataset.a, data.dataset.y).theta_
    except (CalibrationError, DeclarationError) as error:
        return {"status": "refused", "reason": str(error)}
    return {"status": "done", "estimate": float(theta[1] - theta[0])}


def plain_rows(data: EffectData) -> Iterator[tuple[str, Row]]:
    """Estimates without privacy from the records inside the universe, with intervals."""
    inside = in_domain(data.dataset, data.domain)
    found: Mapping[str, Estimate] = {
        "difference of means": difference(inside),
        "AIPW": augmented(inside, treated_only=data.treated_only),
    }
    if not data.treated_only:
        found = {**found, "Hajek": hajek(inside)}
    if data.propensity is not None:
        found = {**found, "Hajek, true propensity": hajek(inside, data.propensity)}
    for name, one in found.items():
        ends: Row = {"low": one.value - Z * one.error, "high": one.value + Z * one.error}
        yield name, {"status": "done", "estimate": one.value, **ends}
