"""Estimates of one effect from one dataset: private ones, and those that they stand beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from dp2erm_cvx import registry
from dp2erm_cvx.compare.effect_references import Estimate, augmented, difference, hajek
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.estimators import PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import Box
from dp2erm_cvx.studies.effect_data import EffectData, in_domain
from dp2erm_cvx.studies.engine import Row
from dp2erm_cvx.studies.published import PUBLISHED
from dp2erm_cvx.studies.scheme import StudyScheme
from dp2erm_cvx.studies.summary import Z


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
    """One release: its estimate and its interval."""
    model = method.estimator(data, epsilon, int(rng.integers(2**62)))
    model.fit(data.dataset.X, data.dataset.a, data.dataset.y)
    found, (low, high) = model.release_, model.interval_
    return {"status": "done", "estimate": found.estimate, "low": low, "high": high, "delta": method.delta}


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
